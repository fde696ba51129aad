//! Session settings: validated when they are built, so that no later code meets a wrong one.

use alloc::sync::Arc;
use core::{str::FromStr, time::Duration};

use super::{
    error::{ConfigError, UnknownPreset},
    fec::{self, AdaptiveFec, ReedSolomon},
    wire::HEADER_LEN,
};
use crate::crypto::PacketCrypto;

/// The four knobs of `ikcp_nodelay`, by their usual names.
///
/// The presets are those of kcptun (`normal` to `fast3`) and the defaults of the C library ([`IKCP`](Self::IKCP)).
/// [`FromStr`] takes a preset's name or the four numbers, as `1,10,2,1`.
///
/// ```
/// use kcp9::NoDelay;
///
/// assert_eq!("fast3".parse(), Ok(NoDelay::FAST3));
/// assert_eq!("1,10,2,1".parse(), Ok(NoDelay::FAST3));
/// assert!("faster".parse::<NoDelay>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoDelay {
    /// Aggressive timeouts: RTO of at least 30 ms (else 100 ms), growing by half an RTO per timeout (else by one).
    pub nodelay: bool,
    /// How long an ACK or a delayed write may wait, and the least margin of the RTO over the RTT. 1 ms to 5 s.
    pub interval: Duration,
    /// Resend a segment once this many later ones were acknowledged; 0 turns fast and early resend off.
    pub resend: u32,
    /// No congestion control: the window is the smaller of the two peers' windows only.
    pub nc: bool,
}

impl NoDelay {
    /// kcptun's `normal`: 0,40,2,1.
    pub const NORMAL: Self = Self::new(false, 40, 2, true);
    /// kcptun's `fast`: 0,30,2,1.
    pub const FAST: Self = Self::new(false, 30, 2, true);
    /// kcptun's `fast2`: 1,20,2,1.
    pub const FAST2: Self = Self::new(true, 20, 2, true);
    /// kcptun's `fast3`: 1,10,2,1.
    pub const FAST3: Self = Self::new(true, 10, 2, true);
    /// The knobs of the C library's defaults: 0,100,0,0. With [`CongestionControl::Kcp`] it also has that library's
    /// congestion control.
    pub const IKCP: Self = Self::new(false, 100, 0, false);

    const fn new(nodelay: bool, interval_ms: u64, resend: u32, nc: bool) -> Self {
        Self { nodelay, interval: Duration::from_millis(interval_ms), resend, nc }
    }

    /// The least retransmission timeout.
    pub(crate) const fn min_rto(&self) -> Duration {
        Duration::from_millis(if self.nodelay { 30 } else { 100 })
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        check_duration("nodelay.interval", self.interval, Duration::from_millis(1), Duration::from_secs(5))
    }
}

impl FromStr for NoDelay {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, UnknownPreset> {
        match name {
            "normal" => return Ok(Self::NORMAL),
            "fast" => return Ok(Self::FAST),
            "fast2" => return Ok(Self::FAST2),
            "fast3" => return Ok(Self::FAST3),
            "ikcp" => return Ok(Self::IKCP),
            _ => {}
        }
        let mut numbers = name.split(',').map(|number| number.trim().parse::<u32>().ok());
        let mut next = || numbers.next().flatten().ok_or(UnknownPreset);
        let preset = Self::new(next()? != 0, next()?.into(), next()?, next()? != 0);
        match numbers.next() {
            None => Ok(preset),
            Some(_) => Err(UnknownPreset),
        }
    }
}

/// How the sender adapts to the path while [`nc`](NoDelay::nc) is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CongestionControl {
    /// Keeps in flight what the path has been seen to deliver in a round trip, and a little more: fast on lossy paths,
    /// and does not flood slow ones. After BBR.
    #[default]
    Bandwidth,
    /// ikcp's and kcp-go's: slow start, additive growth, half the window after a loss and one segment after a timeout.
    /// Polite, and slow where packets are lost at random.
    Kcp,
}

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
    pub(crate) mtu: usize,
    pub(crate) crypto: Option<PacketCrypto>,
    pub(crate) replay_window: usize,
    fec: Option<Fec>,
    pub(crate) datagram_queue: usize,
    pub(crate) fec_adaptive: Option<AdaptiveFec>,
    pub(crate) fec_flush: Option<Duration>,
    pub(crate) send_window: u32,
    pub(crate) recv_window: u32,
    pub(crate) nodelay: NoDelay,
    pub(crate) congestion_control: CongestionControl,
    pub(crate) stream: bool,
    pub(crate) ack_no_delay: bool,
    pub(crate) write_delay: bool,
    pub(crate) dead_timeout: Duration,
    pub(crate) dead_link: u32,
    pub(crate) linger: Duration,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) accept_backlog: usize,
    pub(crate) one_session_per_address: bool,
}

/// Largest UDP payload over IPv4.
const MAX_MTU: usize = 65_507;
/// A segment header, an FEC header, the largest crypto header and a little payload.
const MIN_MTU: usize = 64;
/// Seconds of the fastest datagrams; what a hostile peer can have a session keep.
const MAX_DATAGRAM_QUEUE: u64 = 64 << 20;
/// What a segment's `wnd` field can tell.
const MAX_WINDOW: u32 = u16::MAX as u32;

impl Default for KcpConfig {
    fn default() -> Self {
        Self {
            // kcp-go's; leaves room for tunnels below an Ethernet's 1,500.
            mtu: 1_400,
            // There is no key to default to.
            crypto: None,
            // More than a path duplicates within; 8 KiB at most, which an idle session keeps.
            replay_window: 256,
            // A third more traffic is for those to choose who need it.
            fec: None,
            // Peers that do not know them may take one for another conversation.
            datagram_queue: 0,
            // Fixed, as everywhere else.
            fec_adaptive: None,
            // Twice the traffic of what is sent sparsely.
            fec_flush: None,
            // 1,376 B x 2,048 = 2.8 MB in flight: 100 Mbit/s over 225 ms, or 28 MB/s over 100 ms.
            send_window: 2_048,
            recv_window: 2_048,
            // kcptun's fast3, what people who pick KCP pick, but with congestion control: without it a window larger
            // than the path holds floods it.
            nodelay: NoDelay { nc: false, ..NoDelay::FAST3 },
            congestion_control: CongestionControl::Bandwidth,
            // `AsyncWrite` is a byte stream; small writes share segments.
            stream: true,
            // An ACK per batch of datagrams costs traffic; `interval` is short enough.
            ack_no_delay: false,
            // A write does not wait for `interval`.
            write_delay: false,
            // Longer than a handover, a suspended laptop's resume or a route change; shorter than a user's patience.
            dead_timeout: Duration::from_secs(30),
            // Off: a count says nothing about time, and kills live sessions under load.
            dead_link: 0,
            // As `dead_timeout`: what a peer that vanished costs a closing session.
            linger: Duration::from_secs(30),
            // Idle sessions live until they are dropped, as with TCP.
            idle_timeout: None,
            // The usual `somaxconn` of a small server.
            accept_backlog: 1_024,
            // A peer may hold several conversations over one socket.
            one_session_per_address: false,
        }
    }
}

/// Forward error correction: two are the same if their shards are.
#[derive(Debug, Clone)]
struct Fec(Arc<ReedSolomon>);

impl Fec {
    fn shards(&self) -> (usize, usize) {
        (self.0.data_shards(), self.0.parity_shards())
    }
}

impl PartialEq for Fec {
    fn eq(&self, other: &Self) -> bool {
        self.shards() == other.shards()
    }
}

impl Eq for Fec {}

impl KcpConfig {
    /// A builder that starts from the default settings.
    pub fn builder() -> KcpConfigBuilder {
        Self::default().to_builder()
    }

    /// A builder that starts from these settings.
    pub fn to_builder(self) -> KcpConfigBuilder {
        let fec = self.fec();
        KcpConfigBuilder { config: self, fec }
    }

    /// Largest datagram (UDP payload) that is sent, in bytes.
    #[must_use]
    pub const fn mtu(&self) -> usize {
        self.mtu
    }

    /// How datagrams are encrypted.
    #[must_use]
    pub const fn crypto(&self) -> Option<&PacketCrypto> {
        self.crypto.as_ref()
    }

    /// Data and parity packets of an FEC group; 0 and 0 without FEC.
    #[must_use]
    pub fn fec(&self) -> (usize, usize) {
        self.fec.as_ref().map_or((0, 0), Fec::shards)
    }

    /// Limits of the parity that follows the losses; `None` where it is fixed.
    #[must_use]
    pub const fn fec_adaptive(&self) -> Option<AdaptiveFec> {
        self.fec_adaptive
    }

    /// How long segments wait for the parity of an incomplete group before they are sent again.
    #[must_use]
    pub const fn fec_flush(&self) -> Option<Duration> {
        self.fec_flush
    }

    pub(crate) fn fec_code(&self) -> Option<Arc<ReedSolomon>> {
        self.fec.as_ref().map(|fec| Arc::clone(&fec.0))
    }

    /// Bytes of datagrams that are kept in each direction; 0 where none are exchanged.
    #[must_use]
    pub const fn datagram_queue(&self) -> usize {
        self.datagram_queue
    }

    /// Packets remembered to tell replays.
    #[must_use]
    pub const fn replay_window(&self) -> usize {
        self.replay_window
    }

    /// Segments that may be in flight.
    #[must_use]
    pub const fn send_window(&self) -> u32 {
        self.send_window
    }

    /// Segments that the receive queue holds.
    #[must_use]
    pub const fn recv_window(&self) -> u32 {
        self.recv_window
    }

    /// The four knobs of `ikcp_nodelay`.
    #[must_use]
    pub const fn nodelay(&self) -> NoDelay {
        self.nodelay
    }

    /// How the sender adapts to the path while `nc` is off.
    #[must_use]
    pub const fn congestion_control(&self) -> CongestionControl {
        self.congestion_control
    }

    /// Whether writes form a byte stream.
    #[must_use]
    pub const fn stream(&self) -> bool {
        self.stream
    }

    /// Whether an ACK is sent for every batch of datagrams.
    #[must_use]
    pub const fn ack_no_delay(&self) -> bool {
        self.ack_no_delay
    }

    /// Whether written data that does not fill a segment waits up to `interval` for more.
    #[must_use]
    pub const fn write_delay(&self) -> bool {
        self.write_delay
    }

    /// How long a peer may be silent while an answer is due.
    #[must_use]
    pub const fn dead_timeout(&self) -> Duration {
        self.dead_timeout
    }

    /// Transmissions of one segment that mean a dead link; 0 for no limit.
    #[must_use]
    pub const fn dead_link(&self) -> u32 {
        self.dead_link
    }

    /// How long a shutdown waits for acknowledgements.
    #[must_use]
    pub const fn linger(&self) -> Duration {
        self.linger
    }

    /// How long a session may hear nothing from its peer.
    #[must_use]
    pub const fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    /// Sessions of a listener that may wait to be accepted.
    #[must_use]
    pub const fn accept_backlog(&self) -> usize {
        self.accept_backlog
    }

    /// Whether a listener ends a session when its peer begins another conversation.
    #[must_use]
    pub const fn one_session_per_address(&self) -> bool {
        self.one_session_per_address
    }

    /// Payload bytes of a full segment: what is left of `mtu` behind `overhead` bytes of crypto and FEC headers.
    pub(crate) const fn mss(&self, overhead: usize) -> usize {
        self.mtu - overhead - HEADER_LEN
    }
}

/// Builds a [`KcpConfig`]; [`build`](Self::build) checks every value.
#[derive(Debug, Clone)]
#[must_use]
pub struct KcpConfigBuilder {
    config: KcpConfig,
    fec: (usize, usize),
}

impl KcpConfigBuilder {
    /// Largest datagram (UDP payload) that is sent, in bytes: 64 to 65,507, default 1,400. kcp-go takes at most 1,500.
    /// Datagrams are not fragmented by the network: one larger than the path's MTU less 28 (48 for IPv6) is lost.
    pub const fn mtu(mut self, bytes: usize) -> Self {
        self.config.mtu = bytes;
        self
    }

    /// Encrypt every datagram, or none (the default): both ends the same way with the same key. Takes a
    /// [`PacketCrypto`]; [`CipherKind::build`](crate::crypto::CipherKind::build) makes the cipher of one.
    pub fn crypto(mut self, crypto: impl Into<Option<PacketCrypto>>) -> Self {
        self.config.crypto = crypto.into();
        self
    }

    /// Forward error correction of what is sent: with every `data` datagrams go `parity` more, from which the peer computes
    /// any `parity` of them all that were lost, without waiting for a resend. 1 to 255 each and 256 together, or 0 and 0
    /// for none (the default). kcptun's usual 10 and 3 cost 30 % more traffic. The two directions need not agree, and what
    /// the peer sends is understood whatever is set here.
    pub const fn fec(mut self, data: usize, parity: usize) -> Self {
        self.fec = (data, parity);
        self
    }

    /// Exchange datagrams beside the stream ([`Connection::send_datagram`](super::Connection::send_datagram)), and keep up to
    /// so many bytes of them in each direction: up to 64 MiB, or 0 (the default) to exchange none. Each counts 64 bytes more
    /// than it has; the oldest make room for new ones, and one is kept whatever its size.
    ///
    /// Both ends must know them: kcp9 does, and kcp-go from 5.6.60 on where its FEC is on (where it is off, it drops them).
    /// **Off by default because others may be harmed**, whether FEC is on here or not. To them a datagram of 12 bytes or more is
    /// a segment of the conversation 0xffffffff. Most drop it (ikcp; older kcp-go, as a client), but the listeners of older
    /// kcp-go (5.6.1 is one) and of tokio_kcp end the session where it begins with four zeros, and clients of tokio_kcp may
    /// go over to that conversation.
    pub const fn datagram_queue(mut self, bytes: usize) -> Self {
        self.config.datagram_queue = bytes;
        self
    }

    /// Let the parity of each group follow the losses: between a least number of packets and that of [`fec`](Self::fec),
    /// within a budget. `None` (default): all of it, always. The losses are those that ACKs let the sender see, but for
    /// those of a queue that lengthens the round trip: parity would fill it further. Every peer with the same numbers of
    /// shards follows, kcp-go too: parity that is not sent counts as lost there. A kcp-go with others cannot find these out
    /// while parity is left out.
    ///
    /// ```
    /// use kcp9::{KcpConfig, fec::AdaptiveFec};
    ///
    /// // From no parity at all to eight packets for ten.
    /// let config = KcpConfig::builder().fec(10, 8).fec_adaptive(Some(AdaptiveFec::default())).build()?;
    /// assert_eq!(config.fec_adaptive(), Some(AdaptiveFec { min_parity: 0, budget: 100 }));
    /// # Ok::<(), kcp9::ConfigError>(())
    /// ```
    pub const fn fec_adaptive(mut self, limits: Option<AdaptiveFec>) -> Self {
        self.config.fec_adaptive = limits;
        self
    }

    /// Send segments once more that have waited this long for the parity of their group, because too little is sent to
    /// complete it: 1 ms to 1 s, default `None`. One to three copies each, by the share of parity, this long apart, until
    /// the group is complete or they are acknowledged. Messages at a slow pace are repaired after that time instead of a
    /// round trip and more; where groups are complete sooner, nothing changes. Needs [`fec`](Self::fec); any peer
    /// takes the copies for early resends.
    pub const fn fec_flush(mut self, after: Option<Duration>) -> Self {
        self.config.fec_flush = after;
        self
    }

    /// How many of the packets received last are remembered, so that none is taken in twice: up to 65,536, default
    /// 256, 0 for none. They take up to 32 bytes each, and only where a cipher tells packets apart. What an attacker
    /// replays later than that meets the numbers of its segments: a PUSH or ACK that has been dealt with does nothing but
    /// draw an ACK, until the numbers wrap after 2^32 segments. Datagrams beside the stream have none: an old one passes for
    /// a new one.
    pub const fn replay_window(mut self, packets: usize) -> Self {
        self.config.replay_window = packets;
        self
    }

    /// Segments that may be in flight: 1 to 65,535, default 2,048.
    pub const fn send_window(mut self, segments: u32) -> Self {
        self.config.send_window = segments;
        self
    }

    /// Segments that the receive queue holds, which is the window told to the peer: 1 to 65,535, default 2,048. As
    /// many more may wait out of order.
    pub const fn recv_window(mut self, segments: u32) -> Self {
        self.config.recv_window = segments;
        self
    }

    /// The four knobs of `ikcp_nodelay`. Default: those of [`NoDelay::FAST3`], but with congestion control.
    pub const fn nodelay(mut self, nodelay: NoDelay) -> Self {
        self.config.nodelay = nodelay;
        self
    }

    /// How the sender adapts to the path while [`nc`](NoDelay::nc) is off. Default [`CongestionControl::Bandwidth`].
    pub const fn congestion_control(mut self, control: CongestionControl) -> Self {
        self.config.congestion_control = control;
        self
    }

    /// Whether writes form a byte stream, small ones sharing segments (default), or each keeps its boundaries: then a
    /// write of up to a segment's payload is one message, and a longer one is cut into several. The peer need not know.
    pub const fn stream(mut self, stream: bool) -> Self {
        self.config.stream = stream;
        self
    }

    /// Send an ACK for every batch of datagrams received instead of once per `interval`. Default off: then too, a gap,
    /// eight full segments, or as many small ones as fill a datagram with ACKs, are told at once.
    pub const fn ack_no_delay(mut self, ack_no_delay: bool) -> Self {
        self.config.ack_no_delay = ack_no_delay;
        self
    }

    /// Let written data that does not fill a segment wait up to `interval` for more. Default off.
    pub const fn write_delay(mut self, write_delay: bool) -> Self {
        self.config.write_delay = write_delay;
        self
    }

    /// How long the peer may be silent while data or a window probe waits for its answer, before the session ends with
    /// [`CloseReason::DeadLink`](super::CloseReason::DeadLink): 100 ms to a day, default 30 s.
    pub const fn dead_timeout(mut self, silence: Duration) -> Self {
        self.config.dead_timeout = silence;
        self
    }

    /// How often one segment may be sent without anything at all coming back; when it would have to be sent once more,
    /// the session ends before [`dead_timeout`](Self::dead_timeout). ikcp's `dead_link`: it and kcp-go note 20 and do
    /// nothing. 0 (default) for no limit.
    pub const fn dead_link(mut self, transmissions: u32) -> Self {
        self.config.dead_link = transmissions;
        self
    }

    /// How long a shutdown waits for what was written to be acknowledged: up to a day, default 30 s.
    pub const fn linger(mut self, limit: Duration) -> Self {
        self.config.linger = limit;
        self
    }

    /// End a session that hears nothing from its peer for this long, idle or not: 100 ms to a day, default `None`. KCP
    /// has no close on the wire, so a server that does not time its sessions out itself wants this. A datagram counts as
    /// heard where the cipher authenticates it; without, only the stream's segments do.
    pub const fn idle_timeout(mut self, silence: Option<Duration>) -> Self {
        self.config.idle_timeout = silence;
        self
    }

    /// Sessions of a listener that may wait to be accepted: 1 to 65,536, default 1,024. First datagrams past that are
    /// dropped; their clients send them again.
    pub const fn accept_backlog(mut self, sessions: usize) -> Self {
        self.config.accept_backlog = sessions;
        self
    }

    /// Whether a listener ends a session when its peer begins another conversation from the same address, as kcp-go
    /// does. Default off: conversations live side by side, and that of a peer that came back ends by a timeout.
    pub const fn one_session_per_address(mut self, one: bool) -> Self {
        self.config.one_session_per_address = one;
        self
    }

    /// The settings, checked.
    ///
    /// # Errors
    /// A [`ConfigError`] that names the first field out of its limits.
    pub fn build(self) -> Result<KcpConfig, ConfigError> {
        let Self { mut config, fec } = self;
        if config.fec() != fec {
            config.fec = fec_code(fec.0, fec.1)?.map(Fec);
        }
        check_adaptive(config.fec_adaptive)?;
        if let (Some(limits), Some(fec)) = (config.fec_adaptive, &config.fec) {
            check("fec min_parity", limits.min_parity as u64, 0, fec.shards().1 as u64)?;
        }
        check_flush(config.fec_flush)?;
        let max_wait = Duration::from_secs(86_400);
        let min_wait = Duration::from_millis(100);
        let overhead = config.crypto.as_ref().map_or(0, PacketCrypto::overhead)
            + if config.fec.is_some() { fec::HEADER_LEN } else { 0 };
        check_mtu(config.mtu, overhead, config.crypto.as_ref())?;
        check("replay_window", config.replay_window as u64, 0, 65_536)?;
        check("datagram_queue", config.datagram_queue as u64, 0, MAX_DATAGRAM_QUEUE)?;
        check_window("send_window", config.send_window)?;
        check_window("recv_window", config.recv_window)?;
        config.nodelay.validate()?;
        check_duration("dead_timeout", config.dead_timeout, min_wait, max_wait)?;
        check_duration("linger", config.linger, Duration::ZERO, max_wait)?;
        if let Some(silence) = config.idle_timeout {
            check_duration("idle_timeout", silence, min_wait, max_wait)?;
        }
        check("accept_backlog", config.accept_backlog as u64, 1, 65_536)?;
        Ok(config)
    }
}

/// What is around the segments, a segment header and at least a byte must fit.
pub(crate) fn check_mtu(
    mtu: usize,
    overhead: usize,
    crypto: Option<&PacketCrypto>,
) -> Result<(), ConfigError> {
    let min = (overhead + HEADER_LEN + 1).max(MIN_MTU);
    let max = crypto.map_or(MAX_MTU, |crypto| crypto.cipher().max_packet_len()).min(MAX_MTU);
    check("mtu", mtu as u64, min as u64, max as u64)
}

/// The code of so many data and parity packets, none for 0 and 0.
pub(crate) fn fec_code(data: usize, parity: usize) -> Result<Option<Arc<ReedSolomon>>, ConfigError> {
    if (data, parity) == (0, 0) {
        return Ok(None);
    }
    check("fec data", data as u64, 1, 255)?;
    check("fec parity", parity as u64, 1, 256 - data as u64)?;
    Ok(ReedSolomon::new(data, parity).ok().map(Arc::new))
}

pub(crate) fn check_adaptive(limits: Option<AdaptiveFec>) -> Result<(), ConfigError> {
    let Some(AdaptiveFec { min_parity, budget }) = limits else { return Ok(()) };
    check("fec min_parity", min_parity as u64, 0, 255)?;
    check("fec budget", budget.into(), 1, 1_000)
}

pub(crate) fn check_flush(after: Option<Duration>) -> Result<(), ConfigError> {
    let limits = (Duration::from_millis(1), Duration::from_secs(1));
    after.map_or(Ok(()), |after| check_duration("fec_flush", after, limits.0, limits.1))
}

pub(crate) fn check_window(field: &'static str, segments: u32) -> Result<(), ConfigError> {
    check(field, segments.into(), 1, MAX_WINDOW.into())
}

fn check_duration(
    field: &'static str,
    value: Duration,
    min: Duration,
    max: Duration,
) -> Result<(), ConfigError> {
    if value >= min && value <= max {
        return Ok(());
    }
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Err(ConfigError { field, value: millis(value), min: millis(min), max: millis(max) })
}

fn check(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), ConfigError> {
    if value >= min && value <= max {
        return Ok(());
    }
    Err(ConfigError { field, value, min, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Setter = fn(KcpConfigBuilder) -> KcpConfigBuilder;

    #[test]
    fn every_limit_is_checked_and_named() {
        let cases: &[(&str, Setter)] = &[
            ("mtu", |b| b.mtu(63)),
            ("mtu", |b| b.mtu(65_508)),
            ("send_window", |b| b.send_window(0)),
            ("send_window", |b| b.send_window(65_536)),
            ("recv_window", |b| b.recv_window(0)),
            ("recv_window", |b| b.recv_window(65_536)),
            ("nodelay.interval", |b| b.nodelay(NoDelay { interval: Duration::ZERO, ..NoDelay::FAST })),
            ("nodelay.interval", |b| {
                b.nodelay(NoDelay { interval: Duration::from_millis(5_001), ..NoDelay::FAST })
            }),
            ("dead_timeout", |b| b.dead_timeout(Duration::from_millis(99))),
            ("linger", |b| b.linger(Duration::MAX)),
            ("idle_timeout", |b| b.idle_timeout(Some(Duration::ZERO))),
            ("accept_backlog", |b| b.accept_backlog(0)),
            ("replay_window", |b| b.replay_window(65_537)),
            ("datagram_queue", |b| b.datagram_queue((64 << 20) + 1)),
            ("fec data", |b| b.fec(0, 3)),
            ("fec data", |b| b.fec(256, 1)),
            ("fec parity", |b| b.fec(10, 0)),
            ("fec parity", |b| b.fec(200, 57)),
            ("fec budget", |b| b.fec_adaptive(Some(AdaptiveFec { budget: 0, ..AdaptiveFec::default() }))),
            ("fec min_parity", |b| {
                b.fec_adaptive(Some(AdaptiveFec { min_parity: 256, ..AdaptiveFec::default() }))
            }),
            ("fec min_parity", |b| {
                b.fec(10, 3).fec_adaptive(Some(AdaptiveFec { min_parity: 4, ..AdaptiveFec::default() }))
            }),
            ("fec_flush", |b| b.fec_flush(Some(Duration::ZERO))),
        ];
        for (field, set) in cases {
            let error = set(KcpConfig::builder()).build().unwrap_err();
            assert_eq!(error.field, *field);
            assert!(error.value < error.min || error.value > error.max, "{error}");
        }
    }

    #[test]
    fn limits_themselves_are_taken() {
        let builder = KcpConfig::builder();
        assert!(builder.clone().mtu(64).recv_window(1).send_window(1).build().is_ok());
        assert!(builder.mtu(65_507).recv_window(65_535).send_window(65_535).build().is_ok());
        assert_eq!(KcpConfig::builder().build(), Ok(KcpConfig::default()));
    }

    #[test]
    fn presets_by_name() {
        for (name, numbers) in [
            ("normal", "0,40,2,1"),
            ("fast", "0,30,2,1"),
            ("fast2", "1,20,2,1"),
            ("fast3", "1, 10, 2, 1"),
            ("ikcp", "0,100,0,0"),
        ] {
            assert_eq!(name.parse::<NoDelay>(), numbers.parse());
            assert!(name.parse::<NoDelay>().is_ok());
        }
        for bad in ["", "1,2,3", "1,2,3,4,5", "1,x,3,4", "fast4"] {
            assert_eq!(bad.parse::<NoDelay>(), Err(UnknownPreset), "{bad}");
        }
    }
}
