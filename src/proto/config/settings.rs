//! The settings that a live session can change.

use core::time::Duration;

use super::{
    NoDelay,
    limits::{check, check_adaptive, check_flush, check_window},
};
use crate::proto::{error::ConfigError, fec::AdaptiveFec};

/// The settings of a session that may change while it lives.
///
/// They begin as its [`KcpConfig`](super::KcpConfig) says ([`KcpConfig::settings`](super::KcpConfig::settings)), where each field
/// has a builder's method of the same name with its limits. A live session takes a change whole or refuses it whole: see
/// [`Connection::update_settings`](crate::proto::Connection::update_settings) and, over Tokio,
#[cfg_attr(feature = "tokio", doc = "[`KcpStream::update_settings`](crate::KcpStream::update_settings).")]
#[cfg_attr(not(feature = "tokio"), doc = "`KcpStream::update_settings`.")]
///
/// ```
/// use kcp9::{KcpConfig, NoDelay, proto::{Connection, Instant}};
///
/// let mut connection = Connection::new(7, &KcpConfig::default(), Instant::ZERO);
/// connection.update_settings(|settings| {
///     settings.send_window = 512;
///     settings.fec = (10, 3);
///     settings.nodelay = NoDelay::FAST2;
/// })?;
/// assert_eq!(connection.settings().fec, (10, 3));
///
/// let error = connection.update_settings(|settings| {
///     settings.recv_window = 1_024;
///     settings.mtu = 12;
/// });
/// assert_eq!(error.unwrap_err().to_string(), "mtu is 12, outside 64..=65507");
/// assert_eq!(connection.settings().recv_window, 2_048, "nothing of a refused change is applied");
/// # Ok::<(), kcp9::proto::SettingError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionSettings {
    /// Largest packet (UDP payload) that is sent, in bytes; see [`mtu`](super::KcpConfigBuilder::mtu). It cannot become too
    /// small for segments that are queued or in flight.
    pub mtu: usize,
    /// Segments that may be in flight; see [`send_window`](super::KcpConfigBuilder::send_window).
    pub send_window: u32,
    /// Segments that the receive queue holds; see [`recv_window`](super::KcpConfigBuilder::recv_window). What has arrived
    /// is kept when it becomes smaller.
    pub recv_window: u32,
    /// The four knobs of `ikcp_nodelay`; see [`nodelay`](super::KcpConfigBuilder::nodelay). Changing
    /// [`nc`](NoDelay::nc) starts congestion control anew.
    pub nodelay: NoDelay,
    /// Data and parity packets of a group that is sent, 0 and 0 for no FEC; see [`fec`](super::KcpConfigBuilder::fec). A change
    /// takes effect when the group under way is complete.
    ///
    /// FEC cannot be turned on for the first time while segments are queued or in flight that leave no room for its header.
    /// kcp-go decodes by its own numbers until it has detected the new ones, for which it needs packets without a gap.
    /// Version 5.6.72 recovers nothing from groups larger than before until it counts as many packets.
    pub fec: (usize, usize),
    /// Limits within which parity follows the losses; see [`fec_adaptive`](super::KcpConfigBuilder::fec_adaptive).
    pub fec_adaptive: Option<AdaptiveFec>,
    /// How long segments wait for the parity of an incomplete group; see [`fec_flush`](super::KcpConfigBuilder::fec_flush).
    pub fec_flush: Option<Duration>,
    /// Whether later writes form a byte stream; see [`stream`](super::KcpConfigBuilder::stream).
    pub stream: bool,
    /// Whether every batch of packets is acknowledged at once; see [`ack_no_delay`](super::KcpConfigBuilder::ack_no_delay).
    pub ack_no_delay: bool,
    /// Whether writes wait for more; see [`write_delay`](super::KcpConfigBuilder::write_delay). Turning it off sends what has
    /// waited.
    pub write_delay: bool,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            // kcp-go's; leaves room for tunnels below an Ethernet's 1,500.
            mtu: 1_400,
            // 1,376 B x 2,048 = 2.8 MB in flight: 100 Mbit/s over 225 ms, or 28 MB/s over 100 ms.
            send_window: 2_048,
            recv_window: 2_048,
            // kcptun's fast3, which most who choose KCP choose, but with congestion control: without it, a window larger
            // than the path holds floods the path.
            nodelay: NoDelay { nc: false, ..NoDelay::FAST3 },
            // A third more traffic is for those to choose who need it.
            fec: (0, 0),
            // Fixed parity, as in other implementations.
            fec_adaptive: None,
            // It doubles the traffic of sparse messages.
            fec_flush: None,
            // `AsyncWrite` is a byte stream, and small writes share segments.
            stream: true,
            // An ACK for each batch of packets costs traffic, and `interval` is short enough.
            ack_no_delay: false,
            // A write does not wait for `interval`.
            write_delay: false,
        }
    }
}

impl SessionSettings {
    /// Whether parity is sent.
    pub(crate) const fn has_fec(&self) -> bool {
        !matches!(self.fec, (0, 0))
    }

    /// Checks every setting but the mtu: that one depends on what encryption and FEC take of a packet, see
    /// [`check_mtu`](super::limits::check_mtu).
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let (data, parity) = self.fec;
        if self.has_fec() {
            check("fec data", data as u64, 1, 255)?;
            check("fec parity", parity as u64, 1, 256 - data as u64)?;
        }
        check_adaptive(self.fec_adaptive)?;
        if let Some(limits) = self.fec_adaptive.filter(|_| self.has_fec()) {
            check("fec min_parity", limits.min_parity as u64, 0, parity as u64)?;
        }
        check_flush(self.fec_flush)?;
        check_window("send_window", self.send_window)?;
        check_window("recv_window", self.recv_window)?;
        self.nodelay.validate()
    }
}
