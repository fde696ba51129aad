//! The builder of a configuration.

use core::time::Duration;

#[cfg(feature = "noise")]
use super::limits::check_noise;
use super::{
    Code, CookiePolicy, KcpConfig, NoDelay, SessionSettings,
    limits::{MAX_DATAGRAM_QUEUE, check, check_duration, check_mtu, fec_code},
};
#[cfg(feature = "noise")]
use crate::proto::noise::Noise;
use crate::{
    crypto::PacketCrypto,
    proto::{
        arq::{LARGEST_MESSAGE, default_max_message},
        congestion::CongestionControl,
        error::ConfigError,
        extension::{self, Extensions},
        fec::{self, AdaptiveFec},
        replay::MAX_LIMIT as MAX_REPLAY_WINDOW,
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

    /// All settings that a live session can change, at once. They replace what was set for them before.
    pub const fn settings(mut self, settings: SessionSettings) -> Self {
        self.config.settings = settings;
        self
    }

    /// Largest packet (UDP payload) that is sent, in bytes: 64 to 65,507, default 1,400. kcp-go takes at most 1,500.
    ///
    /// What the path takes may be less: its MTU less 28 (IPv6: less 48). That is found out as in RFC 8899, and
    /// [`PathState::plpmtu`](crate::proto::PathState::plpmtu) says it. A session begins with 1,200 bytes, or the `mtu` if that is less. Once it
    /// has sent 32 segments and has more to send than one such packet holds, it sends packets that ask whether longer ones pass, the
    /// longest first. Where they do, all packets are as long from the next round trip on. A path that drops long packets later, without a word, is
    /// noticed by its losses, and so is one in a session without [extensions](Self::extensions), which begins with its `mtu`. After ten minutes
    /// more is tried again. No timer runs for any of this.
    ///
    /// A segment keeps the size that it was first sent with. Where it does not fit any more, it goes without *don't fragment*, as do
    /// [datagrams](Self::datagram_queue) that are longer: see [`Transmit::may_fragment`](crate::proto::Transmit::may_fragment). If it does
    /// not arrive so for [`dead_timeout`](Self::dead_timeout), the session ends. Where this machine knows that packets are too long, as for the
    /// MTU of its own interface, sending fails with `EMSGSIZE`, and shorter ones follow.
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

    /// Have both ends agree on keys for each session ([`proto::noise`](crate::proto::noise)), or not (the default): for an end that
    /// connects an [`Initiator`](crate::proto::noise::Initiator), for one that accepts a [`Responder`](crate::proto::noise::Responder). Recordings
    /// cannot be read later, nothing opens twice, and each end knows whom it talks to, as far as the
    /// [`Pattern`](crate::proto::noise::Pattern) says it.
    ///
    /// Nothing is sent before there are keys, and nothing without them: peers without key agreement are refused. An end that accepts may
    /// [serve them](crate::proto::noise::Noise::serving_static_peers) with [`crypto`](Self::crypto) all the same, which it needs then; else both
    /// together are refused by [`build`](Self::build), and so is [`Extensions::Off`]. The `mtu` is 256 at least. [`replay_window`](Self::replay_window) does not apply: the last 1,984 packets are
    /// always told from new ones, and older ones are refused.
    ///
    /// In the Tokio layer that is all. Programs on [`proto`](crate::proto) call
    /// [`Connection::connect_with_noise`](crate::proto::Connection::connect_with_noise) and
    /// [`Connection::accept_with_keys`](crate::proto::Connection::accept_with_keys).
    ///
    /// ```no_run
    /// # #[cfg(feature = "tokio")]
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use kcp9::{
    ///     KcpConfig, KcpListener, KcpStream,
    ///     proto::noise::{Initiator, KeyPair, Responder},
    /// };
    ///
    /// // `examples/keys` makes and shows keys, and pins those of servers in a file.
    /// let keys: KeyPair = std::fs::read_to_string("server.key")?.parse()?;
    /// let server = KcpConfig::builder().noise(Responder::nk(keys)).build()?;
    /// let listener = KcpListener::bind("0.0.0.0:4000", server).await?;
    ///
    /// let pinned = std::fs::read_to_string("server.pub")?.parse()?;
    /// let client = KcpConfig::builder().noise(Initiator::nk(pinned)).build()?;
    /// let stream = KcpStream::connect("server.example:4000", client).await?;
    /// // It is who has that key, or an error says what does not match.
    /// stream.connected(Duration::from_secs(10)).await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "noise")]
    pub fn noise(mut self, noise: impl Into<Option<Noise>>) -> Self {
        self.config.noise = noise.into();
        self
    }

    /// Forward error correction of what is sent. Each group of `data` packets is followed by `parity` parity packets. The peer can
    /// compute up to `parity` lost packets of the group from the others, without waiting for a resend.
    ///
    /// Both numbers are 1 to 255, and 256 together at most, or 0 and 0 for no FEC (the default). kcptun's usual 10 and 3 cost
    /// 30 % more traffic. The two directions need not agree: whatever is set here, this end understands what its peer sends.
    pub const fn fec(mut self, data: usize, parity: usize) -> Self {
        self.config.settings.fec = (data, parity);
        self
    }

    /// Exchange datagrams beside the stream ([`Connection::send_datagram`](crate::proto::Connection::send_datagram)). Up to
    /// `bytes` of them wait in each direction: at most 64 MiB, or 0 (the default) to exchange none. Each datagram counts 64
    /// bytes more than it has. The oldest make room for new ones, and one datagram is kept whatever its size.
    ///
    /// Both ends must support datagrams. kcp9 does, and so does kcp-go from 5.6.60 on where its FEC is on; where it is off,
    /// kcp-go drops them.
    ///
    /// **They are off by default because they can harm other peers**, whether FEC is on here or not. Such a peer takes a datagram
    /// of 12 bytes or more for a segment of the conversation 0xffffffff. ikcp and clients of older kcp-go drop it. The listeners
    /// of older kcp-go (such as 5.6.1) and of tokio_kcp end the session if the datagram begins with four zeros. Clients of
    /// tokio_kcp may switch to that conversation.
    pub const fn datagram_queue(mut self, bytes: usize) -> Self {
        self.config.datagram_queue = bytes;
        self
    }

    /// Send only as much parity as the losses call for: between a least number of packets and that of [`fec`](Self::fec), within a
    /// budget. `None` (default) sends all of it, always.
    ///
    /// The losses are those that ACKs show. Losses from a queue that lengthens the round trip are left out, because parity would
    /// fill that queue further. Every peer with the same group size can decode it, kcp-go too: there, parity that is not sent
    /// counts as lost. A kcp-go with another group size cannot detect this one while parity is left out.
    ///
    /// ```
    /// use kcp9::{KcpConfig, fec::AdaptiveFec};
    ///
    /// // From no parity at all up to eight packets for ten.
    /// let config = KcpConfig::builder().fec(10, 8).fec_adaptive(Some(AdaptiveFec::default())).build()?;
    /// assert_eq!(config.fec_adaptive(), Some(AdaptiveFec { min_parity: 0, budget: 100 }));
    /// # Ok::<(), kcp9::ConfigError>(())
    /// ```
    pub const fn fec_adaptive(mut self, limits: Option<AdaptiveFec>) -> Self {
        self.config.settings.fec_adaptive = limits;
        self
    }

    /// Send copies of segments whose group stays incomplete for this long, because too little is sent to complete it: 1 ms to
    /// 1 s, default `None` for no copies. Needs [`fec`](Self::fec).
    ///
    /// A segment is copied once to three times, depending on the share of parity, this long apart. Copies end when the group is
    /// complete or the segment is acknowledged. A lost message of a slow sender is repaired after this time instead of a round
    /// trip or more. Where groups are complete sooner, nothing changes. Any peer takes the copies for early resends.
    pub const fn fec_flush(mut self, after: Option<Duration>) -> Self {
        self.config.settings.fec_flush = after;
        self
    }

    /// How many received packets are remembered, so that none is taken in twice: up to 32,768, default 256, 0 for none. Of the
    /// packets that this end has sent, as many are. Each takes 12 bytes, and 4 while the session is idle. Only encrypted packets are
    /// remembered, because only a cipher can tell packets apart. One in 2^32 / `packets` that are new is taken for a known one,
    /// and is lost.
    ///
    /// An attacker may replay a packet that is no longer remembered. Its segments are known by their numbers, until these wrap after
    /// 2^32 segments: an old PUSH or ACK does nothing, except that a PUSH is answered by an ACK. Datagrams beside the stream
    /// have no numbers: an old one passes for a new one.
    pub const fn replay_window(mut self, packets: usize) -> Self {
        self.config.replay_window = packets;
        self
    }

    /// Segments that may be in flight: 1 to 65,535, default 2,048.
    pub const fn send_window(mut self, segments: u32) -> Self {
        self.config.settings.send_window = segments;
        self
    }

    /// Segments that the receive queue holds: 1 to 65,535, default 2,048. Its free part is the window that the peer learns.
    /// As many more segments may wait out of order.
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

    /// Whether writes form a byte stream (default), or each keeps its boundaries. In a byte stream, small writes share segments.
    /// Otherwise, a write of up to a segment's payload is one message, and a longer write is cut into several. The peer need
    /// not know.
    pub const fn stream(mut self, stream: bool) -> Self {
        self.config.settings.stream = stream;
        self
    }

    /// Send ACKs for every batch of packets received, instead of once per `interval`. Default off. Also when off, ACKs are sent
    /// at once after a gap, after eight full segments, or after as many small ones as fill a packet with ACKs.
    pub const fn ack_no_delay(mut self, ack_no_delay: bool) -> Self {
        self.config.settings.ack_no_delay = ack_no_delay;
        self
    }

    /// Let written data that does not fill a segment wait up to `interval` for more. Default off.
    pub const fn write_delay(mut self, write_delay: bool) -> Self {
        self.config.settings.write_delay = write_delay;
        self
    }

    /// How long the peer may be silent while data, a window probe or a [keep-alive](Self::keep_alive) waits for its answer, before the session ends with
    /// [`CloseReason::DeadLink`](crate::proto::CloseReason::DeadLink): 100 ms to a day, default 30 s.
    pub const fn dead_timeout(mut self, silence: Duration) -> Self {
        self.config.dead_timeout = silence;
        self
    }

    /// How often one segment may be sent while nothing at all comes back. When it would have to be sent once more, the session
    /// ends, before [`dead_timeout`](Self::dead_timeout). 0 (default) for no limit. This is ikcp's `dead_link`: ikcp and kcp-go
    /// only note that 20 was reached.
    pub const fn dead_link(mut self, transmissions: u32) -> Self {
        self.config.dead_link = transmissions;
        self
    }

    /// How long a shutdown waits for what was written to be acknowledged: up to a day, default 30 s. As long, what a dropped stream
    /// wrote is still delivered in the background; with zero, a dropped stream is gone at once.
    ///
    /// The sessions of dropped streams take at most 256 MiB for each socket. When it would be more, those that have lingered
    /// longest are given up. `EndpointStats` counts the sessions that linger, and the bytes given up.
    pub const fn linger(mut self, limit: Duration) -> Self {
        self.config.linger = limit;
        self
    }

    /// End a session in which no payload has passed for this long, in either direction: 100 ms to a day, default `None`. It is
    /// for servers that want to be rid of clients which are there and do nothing. Clients that vanish are found by
    /// [`keep_alive`](Self::keep_alive).
    ///
    /// Payload is what had not been received before, and what the peer had not acknowledged before. So neither probes nor packets
    /// that somebody recorded and sends again keep a session. A datagram counts where the cipher authenticates it.
    pub const fn idle_timeout(mut self, silence: Option<Duration>) -> Self {
        self.config.idle_timeout = silence;
        self
    }

    /// After how much silence the peer is asked whether it is still there: 100 ms to a day, default 20 s; `None` for never. If no answer
    /// comes, it is asked again, and the session ends [`dead_timeout`](Self::dead_timeout) after the first question.
    ///
    /// Without it an end that only reads never learns that its peer is gone. With it, an idle session wakes up once in this time
    /// and sends one packet, which the peer answers with one: 100,000 sessions take about 4 % of a core. Each session waits up to
    /// a tenth less or more, so that those that fell silent together do not all ask together. Where both ends have this setting,
    /// one of them asks: the end that accepted the session waits a quarter longer.
    ///
    /// Every peer answers, because KCP has a question for this: WASK, "how large is your window?". Peers without kcp9's
    /// extensions are asked by it. A session is ended for them, too, when their answer shows that they have forgotten it
    /// ([`CloseReason::Reset`](crate::proto::CloseReason::Reset)).
    ///
    /// # What cannot be noticed
    ///
    /// kcp-go's listeners (and tokio_kcp's) open a new session for any packet that they do not know, so that a server that was
    /// started again answers in the place of the one before. It gives itself away by acknowledging less than before. **A client
    /// that has never written anything cannot tell the two apart**, and waits for ever for what the new server does not know that
    /// it owes. The same holds for a kcp9 server whose kcp-go client was started again with the same address and conversation. Let
    /// such clients write something, or time them out in the application.
    pub const fn keep_alive(mut self, silence: Option<Duration>) -> Self {
        self.config.keep_alive = silence;
        self
    }

    /// Sessions of a listener that may wait to be accepted: 1 to 65,536, default 1,024. When as many wait, first packets of
    /// further sessions are dropped. Their clients send them again. Under [`CookiePolicy::UnderLoad`](crate::CookiePolicy::UnderLoad), peers
    /// that have not shown that they hear this end have half of it.
    pub const fn accept_backlog(mut self, sessions: usize) -> Self {
        self.config.accept_backlog = sessions;
        self
    }

    /// How many packets a listener sends in a second in answer to packets of sessions that it does not know, at most: up to
    /// 1,000,000, default 1,000, 0 for none. See [`Endpoint::set_reply_limit`](crate::proto::Endpoint::set_reply_limit).
    ///
    /// After a restart, the peers of sessions from before learn of it by these answers. Those that the limit leaves out wait for
    /// [`dead_timeout`](Self::dead_timeout).
    pub const fn reply_limit(mut self, per_second: u32) -> Self {
        self.config.reply_limit = per_second;
        self
    }

    /// Sessions that a listener has at most: 1 to 16,777,216, default 1,048,576. When there are as many, a session gives way to a new one
    /// that is half-open and idle, or has been half-open for long; else the new one is refused, and its client tries again. A session takes 3 to 5 KiB while it
    /// is idle.
    pub const fn max_sessions(mut self, sessions: usize) -> Self {
        self.config.max_sessions = sessions;
        self
    }

    /// Half-open sessions that a listener has at most: 1 to 16,777,216, default 65,536. A session is *half-open* until its peer has
    /// shown that it receives what is sent to its address, which takes a round trip; anybody can send a first packet in the name of
    /// somebody else. When there are as many, the oldest gives way from whose peer nothing came for a second, or that
    /// has been half-open for 10 s; else the new session is refused, and its client tries again. Other sessions are never touched.
    ///
    /// Of several [`shards`](Self::shards) each has its part, and one at least, since only a session of the same shard can give way.
    pub const fn max_half_open(mut self, sessions: usize) -> Self {
        self.config.max_half_open = sessions;
        self
    }

    /// The same for one network, which is one IPv4 address or 64 bits of an IPv6 address: default 1,024. Many users may stand behind
    /// one address: those whose sessions are not half-open do not count. Of several [`shards`](Self::shards) each has its part.
    pub const fn max_half_open_of_network(mut self, sessions: usize) -> Self {
        self.config.max_half_open_of_network = sessions;
        self
    }

    /// Bytes that the buffers of all sessions of a listener together take, at most: of what their peers sent and nobody has read, and of
    /// what was written and is not acknowledged. At least four times the longest message that a session may [send](Self::mtu) (255
    /// segments) or [receive](Self::max_message_bytes), default 1 GiB. It counts memory: beside payload, the blocks that payload was
    /// received into, spare memory of the buffers, and 128 bytes for a segment that is shorter.
    ///
    /// It counts for one socket, or for all [`shards`](Self::shards) of a listener. A `KcpListener` and an accepting `KcpEndpoint` have it of the configuration of what they accept, a
    /// `KcpStream` with a socket of its own has it of its own, and an endpoint that only connects has the default. `EndpointStats` shows
    /// how much is taken, and what was refused. Without the Tokio layer, see [`BufferMemory`](crate::proto::BufferMemory).
    ///
    /// # When it is used up
    ///
    /// Every session may hold 32 KiB beside it, half of it for what it receives, or four segments of its mtu if that is more. **So all
    /// sessions together hold no more than this and that for each session.** With so much each goes on: its peer is told of
    /// a window of five segments of 1,500 bytes, which it sends in each round trip, and its writer waits as at a full window.
    /// What arrives beyond that is not acknowledged, and its sender sends it again. A message of more than 8 KiB (to be received) or
    /// 16 KiB (to be sent) waits until there is memory for all of it; a reader of bytes takes such a message in parts.
    ///
    /// Before that, no buffer has more than a quarter of what the others leave, and what is received and what is sent each leave a quarter
    /// to the other.
    ///
    /// Beside it a session holds what [`datagram_queue`](Self::datagram_queue) allows, packets of FEC (64 KiB in all, or 2 MiB where
    /// [`fec`](Self::fec) is on), and the 3 to 5 KiB that it takes when it is idle.
    ///
    /// ```
    /// use kcp9::KcpConfig;
    ///
    /// // For 10,000 sessions: 256 MiB of buffers, and 320 MiB if each holds all that it may without asking.
    /// let config = KcpConfig::builder().max_sessions(10_000).max_buffer_memory(256 << 20).build()?;
    /// assert_eq!(config.max_buffer_memory(), 256 << 20);
    /// # Ok::<(), kcp9::ConfigError>(())
    /// ```
    pub const fn max_buffer_memory(mut self, bytes: usize) -> Self {
        self.config.max_buffer_memory = bytes;
        self
    }

    /// Longest message that is received whole, in bytes: 1 to 16,698,165 (255 segments of the largest packets of UDP). Default: 255
    /// segments of 1,500 bytes, or of this end's own size if that is more, which is as much as any peer sends whose
    /// [`mtu`](Self::mtu) is no larger. Ends may differ in it; it does not limit what is sent.
    ///
    /// A message is held until it is whole, whatever the [`recv_window`](Self::recv_window). One that is longer than this is cut, and
    /// comes as several messages: each ends with the segment that brings it to this length, as it does after 255 segments. To a reader
    /// of bytes that makes no difference.
    ///
    /// ```
    /// use kcp9::KcpConfig;
    ///
    /// assert_eq!(KcpConfig::default().max_message_bytes(), 255 * 1_500);
    /// let config = KcpConfig::builder().max_message_bytes(64 << 10).build()?;
    /// assert!(config.max_unread_bytes() < KcpConfig::default().max_unread_bytes());
    /// # Ok::<(), kcp9::ConfigError>(())
    /// ```
    pub const fn max_message_bytes(mut self, bytes: usize) -> Self {
        self.config.max_message_bytes = Some(bytes);
        self
    }

    /// When a listener asks a peer for a cookie before it accepts a session. Default [`CookiePolicy::UnderLoad`].
    pub const fn cookies(mut self, policy: CookiePolicy) -> Self {
        self.config.cookies = policy;
        self
    }

    /// Whether a listener ends a session when its peer begins another conversation from the same address, as kcp-go does.
    /// Default off: conversations live side by side, and the former session of a peer that came back ends by a timeout.
    pub const fn one_session_per_address(mut self, one: bool) -> Self {
        self.config.one_session_per_address = one;
        self
    }

    /// How many sockets a listener of the Tokio layer opens on its port, each with a task of its own, so that it can use as many
    /// cores: 1 to 256, default 1. The system spreads the peers over them by their addresses (`SO_REUSEPORT`), and a session stays
    /// with the task that accepted it. More than one needs Linux or Android; elsewhere, binding fails.
    ///
    /// All limits of this configuration are for the sockets together. Two things differ from a listener of one socket. It
    /// connects to nobody, and goes on over no other socket. And since other processes may share the port, it does not tell the peers of
    /// sessions that it does not know that they have ended: after a restart, these wait for their [`dead_timeout`](Self::dead_timeout).
    pub const fn shards(mut self, sockets: u16) -> Self {
        self.config.shards = sockets;
        self
    }

    /// Whether sessions that [`Connection::connect`](crate::proto::Connection::connect) and
    /// [`Connection::accept`](crate::proto::Connection::accept) begin speak the extensions with peers that know them, or demand
    /// that they do. Default [`Extensions::Preferred`].
    ///
    /// [`Connection::new`](crate::proto::Connection::new) never speaks them.
    pub const fn extensions(mut self, extensions: Extensions) -> Self {
        self.config.extensions = extensions;
        self
    }

    /// Whether a session with a peer that knows the [extensions](Self::extensions), and has this on too, uses Explicit Congestion
    /// Notification (RFC 3168). Default on: where a queue on the way would drop packets, it marks them instead, if it can. The peer
    /// reports the marks, and congestion control answers them as it answers losses, but nothing has to be sent again.
    ///
    /// Packets with payload are then sent with ECT(0), as TCP's and QUIC's are, but for the first 32 of a session: who sends no more than
    /// these has little use for it. Paths that clear the marks, change them or drop such
    /// packets are found out as RFC 9000 (appendix A.4) has it, and get none: [`PathState::ecn`](crate::proto::PathState::ecn) tells,
    /// [`EcnStats`](crate::proto::EcnStats) counts. Peers without the extensions get none either, nor does anybody while
    /// [`nc`](crate::NoDelay::nc) is on, or with a controller that does not
    /// [answer marks](crate::congestion::Controller::supports_ecn).
    ///
    /// It takes what sends and receives packets to do its part: [`Transmit::ecn`](crate::proto::Transmit::ecn) and
    /// [`Connection::handle_ecn`](crate::proto::Connection::handle_ecn). Turn it off where that cannot be.
    pub const fn ecn(mut self, ecn: bool) -> Self {
        self.config.ecn = ecn;
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
        let overhead = config.encryption_overhead() + if settings.has_fec() { fec::HEADER_LEN } else { 0 };
        check_mtu(settings.mtu, overhead, config.crypto.as_ref())?;
        if config.extensions == Extensions::Required {
            // FEC leaves the handshake's packets alone.
            let around = config.encryption_overhead();
            check("mtu", settings.mtu as u64, (around + extension::MIN_ROOM) as u64, u64::MAX)?;
        }
        #[cfg(feature = "noise")]
        if let Some(noise) = &config.noise {
            check_noise(noise, config.crypto.is_some(), config.extensions, settings.mtu)?;
        }
        check("replay_window", config.replay_window as u64, 0, MAX_REPLAY_WINDOW as u64)?;
        check("datagram_queue", config.datagram_queue as u64, 0, MAX_DATAGRAM_QUEUE)?;
        let (min_wait, max_wait) = (Duration::from_millis(100), Duration::from_secs(86_400));
        check_duration("dead_timeout", config.dead_timeout, min_wait, max_wait)?;
        check_duration("linger", config.linger, Duration::ZERO, max_wait)?;
        for (field, silence) in [("keep_alive", config.keep_alive), ("idle_timeout", config.idle_timeout)] {
            silence.map_or(Ok(()), |silence| check_duration(field, silence, min_wait, max_wait))?;
        }
        check("accept_backlog", config.accept_backlog as u64, 1, 65_536)?;
        for (field, sessions) in [
            ("max_sessions", config.max_sessions),
            ("max_half_open", config.max_half_open),
            ("max_half_open_of_network", config.max_half_open_of_network),
        ] {
            check(field, sessions as u64, 1, 1 << 24)?;
        }
        check("shards", config.shards.into(), 1, 256)?;
        check("reply_limit", config.reply_limit.into(), 0, 1_000_000)?;
        check("max_message_bytes", config.max_message_bytes() as u64, 1, LARGEST_MESSAGE as u64)?;
        let longest = config.max_message_bytes().max(default_max_message(settings.mtu));
        check("max_buffer_memory", config.max_buffer_memory as u64, 4 * longest as u64, u64::MAX)?;
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
    fn a_value_outside_its_limits_is_refused_by_name() {
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
            ("keep_alive", |b| b.keep_alive(Some(Duration::from_millis(99)))),
            ("keep_alive", |b| b.keep_alive(Some(Duration::from_secs(86_401)))),
            ("idle_timeout", |b| b.idle_timeout(Some(Duration::ZERO))),
            ("accept_backlog", |b| b.accept_backlog(0)),
            ("reply_limit", |b| b.reply_limit(1_000_001)),
            ("max_sessions", |b| b.max_sessions(0)),
            ("shards", |b| b.shards(0)),
            ("shards", |b| b.shards(257)),
            ("max_half_open", |b| b.max_half_open((1 << 24) + 1)),
            ("max_half_open_of_network", |b| b.max_half_open_of_network(0)),
            ("max_message_bytes", |b| b.max_message_bytes(0)),
            ("max_message_bytes", |b| b.max_message_bytes(16_698_166)),
            ("max_buffer_memory", |b| b.max_buffer_memory(4 * 255 * 1_500 - 1)),
            ("max_buffer_memory", |b| b.max_buffer_memory(1 << 24).mtu(60_000)),
            ("max_buffer_memory", |b| b.max_buffer_memory(1 << 24).max_message_bytes(1 << 23)),
            ("replay_window", |b| b.replay_window(32_769)),
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
    fn the_limits_themselves_are_taken() {
        let builder = KcpConfig::builder();
        assert!(builder.clone().mtu(64).recv_window(1).send_window(1).build().is_ok());
        assert!(builder.mtu(65_507).recv_window(65_535).send_window(65_535).build().is_ok());
        assert_eq!(KcpConfig::builder().build(), Ok(KcpConfig::default()));
    }

    #[test]
    fn settings_of_a_live_session_make_a_configuration() {
        let live = KcpConfig::builder()
            .mtu(900)
            .send_window(1)
            .recv_window(2)
            .nodelay(NoDelay::NORMAL)
            .fec(10, 3)
            .fec_adaptive(Some(AdaptiveFec { min_parity: 3, ..AdaptiveFec::default() }))
            .fec_flush(Some(Duration::from_millis(9)))
            .stream(false)
            .ack_no_delay(true)
            .write_delay(true)
            .build()
            .unwrap();
        let settings = live.settings();
        assert_eq!(KcpConfig::builder().settings(settings).build(), Ok(live));
        let refused = SessionSettings { fec: (10, 2), ..settings };
        let error = KcpConfig::builder().settings(refused).build().unwrap_err();
        assert_eq!(error.field, "fec min_parity");
    }

    #[test]
    fn a_preset_is_read_by_its_name_or_its_numbers() {
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
