//! Streams whose sessions agree on keys of their own: [`noise`](crate::KcpConfigBuilder::noise).

use std::{io, net::SocketAddr};

use tokio::net::{ToSocketAddrs, lookup_host};

use super::{
    clock,
    endpoint::{KcpEndpoint, connect},
    entropy,
    error::KcpError,
    shared::Shared,
    stream::{KcpStream, no_address},
};
use crate::{
    KcpConfig,
    proto::{Connection, noise::PublicKey},
};

impl KcpStream {
    /// As [`connect`](Self::connect), with the first bytes of the stream in its first packet, under the keys that both ends have before
    /// they agree on those of the session. A listener that
    /// [takes early data](crate::proto::noise::Responder::with_early_data) reads them, and may answer, a round trip sooner than it could
    /// else. Any other one gets them a round trip later, as if they had been written. What is written goes behind them.
    ///
    /// They are protected less than the rest of the stream. Whoever learns the shared key, or the listener's secret key, reads them in a
    /// recording, and **whoever has a recording may have the listener read them again**. So they should say nothing that does harm if it
    /// is done twice: a request to read, and none to pay.
    ///
    /// The first packet is as long as they need: up to 1,200 bytes. On a path that does not carry such, the session does not begin.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use kcp9::{
    ///     KcpConfig, KcpListener, KcpStream,
    ///     proto::noise::{Initiator, Psk, Responder},
    /// };
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// let psk = Psk::from_bytes(&[7; 32]); // From a file.
    /// let responder = Responder::nn_psk0(psk.clone()).with_early_data();
    /// let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::builder().noise(responder).build()?).await?;
    /// let addr = listener.local_addr()?;
    ///
    /// let config = KcpConfig::builder().noise(Initiator::nn_psk0(psk)).build()?;
    /// let mut client = KcpStream::connect_with_early_data(addr, config, b"get /").await?;
    ///
    /// let (mut server, _) = listener.accept().await?;
    /// let mut request = [0; 5];
    /// server.read_exact(&mut request).await?;
    /// server.write_all(b"index").await?;
    ///
    /// let mut answer = [0; 5];
    /// client.read_exact(&mut answer).await?;
    /// assert_eq!((&request, &answer), (b"get /", b"index"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect); `InvalidData` where the configuration has no
    /// [`Initiator`](crate::proto::noise::Initiator), or one of a pattern that
    /// [takes no early data](crate::proto::noise::Pattern::takes_early_data), or where there are more than
    /// [`MAX_EARLY_DATA`](crate::proto::noise::MAX_EARLY_DATA) bytes, or more than a packet of the
    /// [`mtu`](crate::KcpConfigBuilder::mtu) has room for beside 200 others.
    pub async fn connect_with_early_data<A: ToSocketAddrs>(
        addr: A,
        config: KcpConfig,
        early: &[u8],
    ) -> io::Result<Self> {
        let conv = entropy::conv()?;
        let mut outcome = Err(no_address());
        for peer in lookup_host(addr).await? {
            outcome = Self::connect_to(peer, conv, &config, early);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Whether what was read so far may be a recording that somebody sends again. It is so on a stream that was accepted with
    /// [early data](Self::connect_with_early_data), until its peer has shown that it is there, which takes a round trip; and never on any
    /// other one. `false` does not say that nobody has read the same bytes before: if a stream with early data fails before its peer knows
    /// that they were taken, or the peer's address changes in that moment, its next one brings them once more, as any others.
    #[must_use]
    pub fn may_be_replayed(&self) -> bool {
        self.handle.session().may_be_replayed()
    }

    /// The static public key of the peer, which it has proven to have: who it is. `None` in a session without
    /// [`noise`](crate::KcpConfigBuilder::noise), before [`connected`](Self::connected) has returned, and in patterns in which the peer has
    /// no key or does not show it ([`Pattern`](crate::proto::noise::Pattern)). It is known of every accepted stream from the beginning.
    #[must_use]
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.handle.session().peer_key()
    }

    /// What is the same at both ends of this session and at no end of another, to tie something else to it (channel binding). `None`
    /// without [`noise`](crate::KcpConfigBuilder::noise), and before [`connected`](Self::connected) has returned.
    #[must_use]
    pub fn handshake_hash(&self) -> Option<[u8; 32]> {
        self.handle.session().handshake_hash()
    }
}

impl KcpEndpoint {
    /// As [`connect`](Self::connect), with early data as [`KcpStream::connect_with_early_data`] has it.
    ///
    /// # Errors
    /// Those of both.
    pub fn connect_with_early_data(
        &self,
        peer: SocketAddr,
        config: KcpConfig,
        early: &[u8],
    ) -> io::Result<KcpStream> {
        connect(self.alone()?, peer, self.next_conv(), &config, early)
    }
}

/// The connection of a session that is begun here. It agrees on keys where the configuration says so.
pub(super) fn begin(shared: &Shared, conv: u32, config: &KcpConfig, early: &[u8]) -> io::Result<Connection> {
    let now = clock::now();
    if config.noise().is_none() && early.is_empty() {
        return Ok(Connection::connect(conv, config, now, shared.seed()));
    }
    // Not of the generator of nonces, which remembers what it has given out.
    let mut random = entropy::draw::<{ Connection::NOISE_RANDOM_BYTES }>()?;
    Connection::connect_with_early_data(conv, config, now, shared.seed(), early, &mut random)
        .map_err(|error| KcpError::of_noise(error).into())
}
