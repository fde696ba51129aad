//! The configuration of sessions. It is checked when it is built, so that no other code meets an invalid value.

mod builder;
mod cookies;
pub(crate) mod limits;
mod nodelay;
mod settings;

use alloc::sync::Arc;
use core::time::Duration;

pub use self::{
    builder::KcpConfigBuilder, cookies::CookiePolicy, nodelay::NoDelay, settings::SessionSettings,
};
#[cfg(feature = "noise")]
use super::noise::{self, Noise};
use super::{
    arq::{default_max_message, most_held},
    congestion::CongestionControl,
    extension::Extensions,
    fec::{AdaptiveFec, ReedSolomon},
    wire::HEADER_LEN,
};
use crate::crypto::PacketCrypto;

/// Settings of a session, valid by construction. Build one with [`KcpConfig::builder`] or take the [`Default`].
///
/// ```
/// use kcp9::{KcpConfig, NoDelay};
///
/// let config = KcpConfig::builder()
///     .nodelay(NoDelay::FAST2)
///     .send_window(512)
///     .recv_window(2_048)
///     .build()?;
/// assert_eq!(config.mtu(), 1_400);
///
/// let error = KcpConfig::builder().mtu(12).build().unwrap_err();
/// assert_eq!(error.to_string(), "mtu is 12, outside 64..=65507");
/// # Ok::<(), kcp9::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KcpConfig {
    pub(crate) settings: SessionSettings,
    /// The code of `settings.fec`, which all sessions of these settings share.
    code: Option<Code>,
    pub(crate) crypto: Option<PacketCrypto>,
    #[cfg(feature = "noise")]
    pub(crate) noise: Option<Noise>,
    pub(crate) replay_window: usize,
    pub(crate) datagram_queue: usize,
    pub(crate) congestion_control: CongestionControl,
    pub(crate) dead_timeout: Duration,
    pub(crate) dead_link: u32,
    pub(crate) linger: Duration,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) accept_backlog: usize,
    pub(crate) one_session_per_address: bool,
    pub(crate) extensions: Extensions,
    pub(crate) ecn: bool,
    pub(crate) reply_limit: u32,
    pub(crate) max_sessions: usize,
    pub(crate) max_half_open: usize,
    pub(crate) max_half_open_of_network: usize,
    pub(crate) cookies: CookiePolicy,
    max_message_bytes: Option<usize>,
    pub(crate) max_buffer_memory: usize,
    pub(crate) shards: u16,
}

impl Default for KcpConfig {
    fn default() -> Self {
        Self {
            settings: SessionSettings::default(),
            code: None,
            // There is no key to default to.
            crypto: None,
            // Nor are there keys for this.
            #[cfg(feature = "noise")]
            noise: None,
            // More packets than a path duplicates within. It takes 6 KiB at most in both directions together, and an idle session keeps 2.
            replay_window: 256,
            // Peers that do not know datagrams may take one for another conversation.
            datagram_queue: 0,
            congestion_control: CongestionControl::BbrLike,
            // Longer than a handover, a laptop's resume or a route change; shorter than a user's patience.
            dead_timeout: Duration::from_secs(30),
            // Off: a number of transmissions says nothing about time, and would end live sessions under load.
            dead_link: 0,
            // As `dead_timeout`: so long does a closing session wait for a peer that has vanished.
            linger: Duration::from_secs(30),
            // Before a NAT forgets a silent flow (most wait 30 s or more), and with `dead_timeout` a dead peer is found
            // within a minute.
            keep_alive: Some(Duration::from_secs(20)),
            // Idle sessions live until they are dropped, as with TCP.
            idle_timeout: None,
            // The usual `somaxconn` of a small server.
            accept_backlog: 1_024,
            // A peer may hold several conversations over one socket.
            one_session_per_address: false,
            extensions: Extensions::Preferred,
            // A mark in place of a loss saves a resend, and a path that does not carry marks is found out.
            ecn: true,
            // Enough to tell 60,000 peers of a restart within a minute.
            reply_limit: 1_000,
            // What a server with 4 GiB for them can have.
            max_sessions: 1 << 20,
            // 65,536 openings in each round trip.
            max_half_open: 65_536,
            // 10,000 openings a second of one network at 100 ms.
            max_half_open_of_network: 1_024,
            cookies: CookiePolicy::UnderLoad,
            // As many segments as KCP can number in one.
            max_message_bytes: None,
            // What 300 sessions of full windows hold, or a million of a KiB; a quarter of what those take that are idle.
            max_buffer_memory: 1 << 30,
            // One thread carries more than most servers have, and a port of one socket tells peers of a restart.
            shards: 1,
        }
    }
}

/// A code that is compared by its numbers of shards, which say everything about it.
#[derive(Debug, Clone)]
struct Code(Arc<ReedSolomon>);

impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        let shards = |code: &Self| (code.0.data_shards(), code.0.parity_shards());
        shards(self) == shards(other)
    }
}

impl Eq for Code {}

impl KcpConfig {
    /// A builder that starts from the default settings.
    pub fn builder() -> KcpConfigBuilder {
        Self::default().to_builder()
    }

    /// A builder that starts from these settings.
    pub fn to_builder(self) -> KcpConfigBuilder {
        KcpConfigBuilder::new(self)
    }

    /// The settings that a session begins with and can change while it lives.
    #[must_use]
    pub const fn settings(&self) -> SessionSettings {
        self.settings
    }

    /// Largest packet (UDP payload) that is sent, in bytes.
    #[must_use]
    pub const fn mtu(&self) -> usize {
        self.settings.mtu
    }

    /// The cipher that encrypts packets and the source of its nonces. `None` without encryption.
    #[must_use]
    pub const fn crypto(&self) -> Option<&PacketCrypto> {
        self.crypto.as_ref()
    }

    /// How sessions agree on keys; `None` where they do not.
    #[cfg(feature = "noise")]
    #[must_use]
    pub const fn noise(&self) -> Option<&Noise> {
        self.noise.as_ref()
    }

    /// These settings for a peer that does not agree on keys.
    #[cfg(all(feature = "noise", feature = "tokio"))]
    pub(crate) fn without_noise(&self) -> Self {
        Self { noise: None, ..self.clone() }
    }

    /// The most bytes that encryption adds to a packet.
    pub(crate) fn encryption_overhead(&self) -> usize {
        let of_crypto = self.crypto.as_ref().map_or(0, PacketCrypto::overhead);
        #[cfg(feature = "noise")]
        if self.noise.is_some() {
            return of_crypto.max(noise::HEADER_LEN + noise::TAG_LEN);
        }
        of_crypto
    }

    /// Data and parity packets of an FEC group; 0 and 0 without FEC.
    #[must_use]
    pub const fn fec(&self) -> (usize, usize) {
        self.settings.fec
    }

    /// Limits within which parity follows the losses; `None` where parity is fixed.
    #[must_use]
    pub const fn fec_adaptive(&self) -> Option<AdaptiveFec> {
        self.settings.fec_adaptive
    }

    /// How long segments wait for the parity of an incomplete group before copies of them are sent.
    #[must_use]
    pub const fn fec_flush(&self) -> Option<Duration> {
        self.settings.fec_flush
    }

    pub(crate) fn fec_code(&self) -> Option<Arc<ReedSolomon>> {
        self.code.as_ref().map(|code| Arc::clone(&code.0))
    }

    /// Bytes of datagrams that may wait in each direction; 0 where none are exchanged.
    #[must_use]
    pub const fn datagram_queue(&self) -> usize {
        self.datagram_queue
    }

    /// How many received packets are remembered, to detect replays.
    #[must_use]
    pub const fn replay_window(&self) -> usize {
        self.replay_window
    }

    /// Segments that may be in flight.
    #[must_use]
    pub const fn send_window(&self) -> u32 {
        self.settings.send_window
    }

    /// Segments that the receive queue holds.
    #[must_use]
    pub const fn recv_window(&self) -> u32 {
        self.settings.recv_window
    }

    /// The four knobs of `ikcp_nodelay`.
    #[must_use]
    pub const fn nodelay(&self) -> NoDelay {
        self.settings.nodelay
    }

    /// How the sender adapts to the path while `nc` is off.
    #[must_use]
    pub const fn congestion_control(&self) -> &CongestionControl {
        &self.congestion_control
    }

    /// Whether writes form a byte stream.
    #[must_use]
    pub const fn stream(&self) -> bool {
        self.settings.stream
    }

    /// Whether an ACK is sent for every batch of packets.
    #[must_use]
    pub const fn ack_no_delay(&self) -> bool {
        self.settings.ack_no_delay
    }

    /// Whether written data that does not fill a segment waits up to `interval` for more.
    #[must_use]
    pub const fn write_delay(&self) -> bool {
        self.settings.write_delay
    }

    /// How long a peer may be silent while an answer is due.
    #[must_use]
    pub const fn dead_timeout(&self) -> Duration {
        self.dead_timeout
    }

    /// Transmissions of one segment after which the link counts as dead; 0 for no limit.
    #[must_use]
    pub const fn dead_link(&self) -> u32 {
        self.dead_link
    }

    /// How long a shutdown waits for what was written to be acknowledged.
    #[must_use]
    pub const fn linger(&self) -> Duration {
        self.linger
    }

    /// After how much silence the peer is asked whether it is still there; `None` for never.
    #[must_use]
    pub const fn keep_alive(&self) -> Option<Duration> {
        self.keep_alive
    }

    /// How long a session may exchange no payload; `None` for ever.
    #[must_use]
    pub const fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    /// Sessions of a listener that may wait to be accepted.
    #[must_use]
    pub const fn accept_backlog(&self) -> usize {
        self.accept_backlog
    }

    /// Whether a listener ends a session when its peer begins another conversation from the same address.
    #[must_use]
    pub const fn one_session_per_address(&self) -> bool {
        self.one_session_per_address
    }

    /// Answers without a session that a listener sends in a second, at most.
    #[must_use]
    pub const fn reply_limit(&self) -> u32 {
        self.reply_limit
    }

    /// Sessions that a listener has at most.
    #[must_use]
    pub const fn max_sessions(&self) -> usize {
        self.max_sessions
    }

    /// Sessions of a listener whose peers have not shown yet that they hear it: at most so many.
    #[must_use]
    pub const fn max_half_open(&self) -> usize {
        self.max_half_open
    }

    /// As [`max_half_open`](Self::max_half_open), of one network.
    #[must_use]
    pub const fn max_half_open_of_network(&self) -> usize {
        self.max_half_open_of_network
    }

    /// When a listener asks a peer for a cookie before it accepts a session.
    #[must_use]
    pub const fn cookies(&self) -> CookiePolicy {
        self.cookies
    }

    /// How many sockets a listener opens on its port.
    #[must_use]
    pub const fn shards(&self) -> u16 {
        self.shards
    }

    /// Whether the extensions are spoken.
    #[must_use]
    pub const fn extensions(&self) -> Extensions {
        self.extensions
    }

    /// Whether packets to peers that know the extensions are sent with ECN.
    #[must_use]
    pub const fn ecn(&self) -> bool {
        self.ecn
    }

    /// Bytes of the longest message that is received whole.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        self.max_message_bytes.unwrap_or_else(|| default_max_message(self.plain_mss()))
    }

    /// Bytes that the buffers of all sessions of a listener or endpoint take together, at most.
    #[must_use]
    pub const fn max_buffer_memory(&self) -> usize {
        self.max_buffer_memory
    }

    /// The most bytes of payload that a session holds of what its peer sent, whatever the peer sends and although nobody reads.
    ///
    /// It is [`recv_window`](KcpConfigBuilder::recv_window) segments of 1,500 bytes, or of what this end's own segments have if that is
    /// more, twice [`max_message_bytes`](KcpConfigBuilder::max_message_bytes), and two segments of the largest size that UDP has: a
    /// message is taken until it is whole or as long as that, and its segments are as long as its sender makes them. With the defaults
    /// that is 4 MB.
    ///
    /// What all sessions hold together is bounded by [`max_buffer_memory`](KcpConfigBuilder::max_buffer_memory).
    ///
    /// It counts payload, not memory: payload that stays where it was received may hold twice its size in memory, and 256 KiB. A live
    /// session whose receive window is changed has the limit of the new one.
    ///
    /// Beside it a session holds up to [`datagram_queue`](KcpConfigBuilder::datagram_queue) of unread datagrams, packets of FEC (64 KiB
    /// in all, or 2 MiB where [`fec`](KcpConfigBuilder::fec) is on), what its own application wrote, and the memory of its tables.
    ///
    /// ```
    /// use kcp9::KcpConfig;
    ///
    /// let held = |window| -> Result<usize, kcp9::ConfigError> {
    ///     Ok(KcpConfig::builder().recv_window(window).build()?.max_unread_bytes())
    /// };
    /// assert_eq!(held(1_256)? - held(256)?, 1_000 * 1_500);
    /// # Ok::<(), kcp9::ConfigError>(())
    /// ```
    #[must_use]
    pub fn max_unread_bytes(&self) -> usize {
        most_held(self.settings.recv_window, self.plain_mss(), self.max_message_bytes())
    }

    /// Payload bytes of a full segment without FEC.
    fn plain_mss(&self) -> usize {
        self.mss(self.encryption_overhead())
    }

    /// Payload bytes of a full segment: what is left of `mtu` behind `overhead` bytes of crypto and FEC headers.
    pub(crate) const fn mss(&self, overhead: usize) -> usize {
        self.settings.mtu - overhead - HEADER_LEN
    }
}
