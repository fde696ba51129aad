//! Settings on their way to being checked.

use core::time::Duration;

use super::{
    Code, KcpConfig, NoDelay, SessionSettings,
    limits::{MAX_DATAGRAM_QUEUE, check, check_duration, check_mtu, fec_code},
};
use crate::{
    crypto::PacketCrypto,
    proto::{
        congestion::CongestionControl,
        error::ConfigError,
        fec::{self, AdaptiveFec},
    },
};

/// Builds a [`KcpConfig`]; [`build`](Self::build) checks every value.
#[derive(Debug, Clone)]
#[must_use]
pub struct KcpConfigBuilder {
    config: KcpConfig,
}

impl KcpConfigBuilder {
    pub(super) const fn new(config: KcpConfig) -> Self {
        Self { config }
    }

    /// Every setting that a live session can change, at once: for a configuration made from settings that were tried out.
    pub const fn settings(mut self, settings: SessionSettings) -> Self {
        self.config.settings = settings;
        self
    }

    /// Largest packet (UDP payload) that is sent, in bytes: 64 to 65,507, default 1,400. kcp-go takes at most 1,500.
    /// Datagrams are not fragmented by the network: one larger than the path's MTU less 28 (48 for IPv6) is lost.
    pub const fn mtu(mut self, bytes: usize) -> Self {
        self.config.settings.mtu = bytes;
        self
    }

    /// Encrypt every packet with this cipher, or none without one (the default). Both ends need the same cipher, key and
    /// [`Framing`](crate::crypto::Framing). [`CipherKind::build`](crate::crypto::CipherKind::build) makes a cipher,
    /// [`PacketCrypto`] adds a source of nonces to it.
    pub fn crypto(mut self, crypto: impl Into<Option<PacketCrypto>>) -> Self {
        self.config.crypto = crypto.into();
        self
    }

    /// Forward error correction of what is sent: with every `data` packets go `parity` more, from which the peer computes
    /// any `parity` of them all that were lost, without waiting for a resend. 1 to 255 each and 256 together, or 0 and 0
    /// for none (the default). kcptun's usual 10 and 3 cost 30 % more traffic. The two directions need not agree, and what
    /// the peer sends is understood whatever is set here.
    pub const fn fec(mut self, data: usize, parity: usize) -> Self {
        self.config.settings.fec = (data, parity);
        self
    }

    /// Exchange datagrams beside the stream ([`Connection::send_datagram`](crate::proto::Connection::send_datagram)), and keep up to
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
        self.config.settings.fec_adaptive = limits;
        self
    }

    /// Send segments once more that have waited this long for the parity of their group, because too little is sent to
    /// complete it: 1 ms to 1 s, default `None`. One to three copies each, by the share of parity, this long apart, until
    /// the group is complete or they are acknowledged. Messages at a slow pace are repaired after that time instead of a
    /// round trip and more; where groups are complete sooner, nothing changes. Needs [`fec`](Self::fec); any peer
    /// takes the copies for early resends.
    pub const fn fec_flush(mut self, after: Option<Duration>) -> Self {
        self.config.settings.fec_flush = after;
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
        self.config.settings.send_window = segments;
        self
    }

    /// Segments that the receive queue holds, which is the window told to the peer: 1 to 65,535, default 2,048. As
    /// many more may wait out of order.
    pub const fn recv_window(mut self, segments: u32) -> Self {
        self.config.settings.recv_window = segments;
        self
    }

    /// The four knobs of `ikcp_nodelay`. Default: those of [`NoDelay::FAST3`], but with congestion control.
    pub const fn nodelay(mut self, nodelay: NoDelay) -> Self {
        self.config.settings.nodelay = nodelay;
        self
    }

    /// How the sender adapts to the path while [`nc`](NoDelay::nc) is off. Default [`CongestionControl::BbrLike`].
    pub fn congestion_control(mut self, control: CongestionControl) -> Self {
        self.config.congestion_control = control;
        self
    }

    /// Whether writes form a byte stream, small ones sharing segments (default), or each keeps its boundaries: then a
    /// write of up to a segment's payload is one message, and a longer one is cut into several. The peer need not know.
    pub const fn stream(mut self, stream: bool) -> Self {
        self.config.settings.stream = stream;
        self
    }

    /// Send an ACK for every batch of packets received instead of once per `interval`. Default off: then too, a gap,
    /// eight full segments, or as many small ones as fill a packet with ACKs, are told at once.
    pub const fn ack_no_delay(mut self, ack_no_delay: bool) -> Self {
        self.config.settings.ack_no_delay = ack_no_delay;
        self
    }

    /// Let written data that does not fill a segment wait up to `interval` for more. Default off.
    pub const fn write_delay(mut self, write_delay: bool) -> Self {
        self.config.settings.write_delay = write_delay;
        self
    }

    /// How long the peer may be silent while data or a window probe waits for its answer, before the session ends with
    /// [`CloseReason::DeadLink`](crate::proto::CloseReason::DeadLink): 100 ms to a day, default 30 s.
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
    /// has no close on the wire, so a server that does not time its sessions out itself wants this. A packet counts as
    /// heard where the cipher authenticates it; without, only the stream's segments do.
    pub const fn idle_timeout(mut self, silence: Option<Duration>) -> Self {
        self.config.idle_timeout = silence;
        self
    }

    /// Sessions of a listener that may wait to be accepted: 1 to 65,536, default 1,024. First packets past that are
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
        let Self { mut config } = self;
        let settings = config.settings;
        settings.check()?;
        let overhead = config.crypto.as_ref().map_or(0, PacketCrypto::overhead)
            + if settings.has_fec() { fec::HEADER_LEN } else { 0 };
        check_mtu(settings.mtu, overhead, config.crypto.as_ref())?;
        check("replay_window", config.replay_window as u64, 0, 65_536)?;
        check("datagram_queue", config.datagram_queue as u64, 0, MAX_DATAGRAM_QUEUE)?;
        let (min_wait, max_wait) = (Duration::from_millis(100), Duration::from_secs(86_400));
        check_duration("dead_timeout", config.dead_timeout, min_wait, max_wait)?;
        check_duration("linger", config.linger, Duration::ZERO, max_wait)?;
        if let Some(silence) = config.idle_timeout {
            check_duration("idle_timeout", silence, min_wait, max_wait)?;
        }
        check("accept_backlog", config.accept_backlog as u64, 1, 65_536)?;
        let code = config.code.as_ref().map(|code| (code.0.data_shards(), code.0.parity_shards()));
        if code.unwrap_or_default() != settings.fec {
            config.code = fec_code(settings.fec).map(Code);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::error::UnknownPreset;

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
