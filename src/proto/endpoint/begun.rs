//! Sessions that are begun here.

use core::net::SocketAddr;

use super::{
    ConnectError, Endpoint, Handle,
    record::FirstPush,
    routes::{Role, without_flow_label},
};
use crate::crypto::PacketCrypto;
#[cfg(feature = "noise")]
use crate::proto::noise::RouteKey;

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
        self.connect_with(peer, conv, crypto, false)
    }

    /// As [`connect`](Self::connect), for a session that agrees on keys: its packets are opened by its connection, and have no cipher
    /// besides. What its peer says in the clear is found at once, and its packets after [`set_route_key`](Self::set_route_key).
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect). [`ConnectError::OtherCipher`] means that the other sessions with this peer agree on no keys.
    #[cfg(feature = "noise")]
    pub fn connect_sealed(&mut self, peer: SocketAddr, conv: u32) -> Result<Handle, ConnectError> {
        let handle = self.connect_with(peer, conv, None, true)?;
        self.routes.set_sealed(handle);
        self.unmasks = true;
        Ok(handle)
    }

    /// Tells the key under which the packets of a session are found that was begun by [`connect_sealed`](Self::connect_sealed):
    /// [`Connection::route_key`](crate::proto::Connection::route_key), as soon as a packet has brought it. Without this call, the session
    /// hears nothing more. It belongs before the next [`poll_routed`](Self::poll_routed): what lies behind that packet may be
    /// sealed. For other sessions it has no effect.
    ///
    /// A peer tells the same key to all of its sessions, and another one after it was started again with other keys. The last eight keys
    /// of an address are tried.
    #[cfg(feature = "noise")]
    pub fn set_route_key(&mut self, handle: Handle, key: &RouteKey) {
        let Some(entry) = self.routes.get(handle) else { return };
        if entry.role == Role::Connected && entry.sealed {
            let source = entry.route.0;
            self.decryptor.learn_route_key(source, key);
            self.batch.learned |= self.batch.source == source;
        }
    }

    fn connect_with(
        &mut self,
        peer: SocketAddr,
        conv: u32,
        crypto: Option<&PacketCrypto>,
        is_sealed: bool,
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
        if !self.decryptor.add(peer, crypto, is_sealed) {
            return Err(ConnectError::OtherCipher);
        }
        let handle = self.routes.insert((peer, conv), Role::Connected, 0, FirstPush::default());
        self.routes.set_phase(handle, self.decryptor.accepted().find(crypto).unwrap_or_default());
        Ok(handle)
    }
}
