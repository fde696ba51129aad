//! Sessions that are begun here.

use core::net::SocketAddr;

use super::{
    ConnectError, Endpoint, Handle,
    decryptor::RouteKey,
    record::FirstPush,
    routes::{Role, without_flow_label},
};
use crate::crypto::PacketCrypto;

impl Endpoint {
    /// Adds a session with `peer` that is begun here. `crypto` is that of its
    /// [`Connection`](crate::proto::Connection).
    ///
    /// # Errors
    /// [`ConnectError::ConvInUse`] where there is one already, [`ConnectError::OtherCipher`] where the other sessions with
    /// this peer have another cipher, or agree on keys, [`ConnectError::IsShard`] where the endpoint is one of several.
    pub fn connect(
        &mut self,
        peer: SocketAddr,
        conv: u32,
        crypto: Option<&PacketCrypto>,
    ) -> Result<Handle, ConnectError> {
        self.connect_with(peer, conv, crypto, None)
    }

    /// As [`connect`](Self::connect), for a session that agrees on keys: its packets are opened by its connection, and have no cipher
    /// besides. `route_key` is [`Connection::route_key`](crate::proto::Connection::route_key), which finds them.
    ///
    /// # Errors
    /// As [`connect`](Self::connect). A cipher is another one, too, where the other sessions with this peer have another route key, or
    /// none.
    #[cfg(feature = "noise")]
    pub fn connect_sealed(
        &mut self,
        peer: SocketAddr,
        conv: u32,
        route_key: &RouteKey,
    ) -> Result<Handle, ConnectError> {
        let handle = self.connect_with(peer, conv, None, Some(route_key))?;
        self.routes.set_sealed(handle);
        self.unmasks = true;
        Ok(handle)
    }

    fn connect_with(
        &mut self,
        peer: SocketAddr,
        conv: u32,
        crypto: Option<&PacketCrypto>,
        route_key: Option<&RouteKey>,
    ) -> Result<Handle, ConnectError> {
        if self.shard.is_some() {
            return Err(ConnectError::IsShard);
        }
        let peer = without_flow_label(peer);
        if let Some(handle) = self.find(peer, conv) {
            return Err(ConnectError::ConvInUse(handle));
        }
        let differs = self.admission.is_some() && self.decryptor.accepted().current() != crypto;
        if differs && self.routes.of_address(peer).any(|(_, role)| role == Role::Accepted) {
            return Err(ConnectError::OtherCipher);
        }
        if !self.decryptor.add(peer, crypto, route_key) {
            return Err(ConnectError::OtherCipher);
        }
        let handle = self.routes.insert((peer, conv), Role::Connected, 0, FirstPush::default());
        self.routes.set_phase(handle, self.decryptor.accepted().find(crypto).unwrap_or_default());
        Ok(handle)
    }
}
