//! What a connection does with its extensions: it begins them, hands them what comes in, and sends what they have to say.

use super::{Connection, State, Transmit};
use crate::proto::{
    config::KcpConfig,
    error::CloseReason,
    extension::{Caps, Conditions, Extension, Extensions, MIN_ROOM, Role, SessionSeed, Settings},
    time::{Instant, earliest},
    timer::Timer,
    trace::tell,
};

/// Bytes that ACKs leave to an extension segment behind them. A HELLO has at least as much, and no answer is longer than its HELLO.
const ROOM_BEHIND_ACKS: usize = 128;

impl Connection {
    /// A session that is begun here, of the conversation `conv`, which is chosen at random
    /// ([`random_conv`](crate::proto::random_conv)).
    ///
    /// Unless the [`extensions`](KcpConfig::extensions) are off, the first transmission is a HELLO. It begins the session at
    /// the peer, so that a peer may speak first, and tells it what this end knows. What is written meanwhile leaves right
    /// behind it: nothing waits for an answer. [`Event::Connected`](super::Event::Connected) comes with the first one.
    ///
    /// ```
    /// use kcp9::{KcpConfig, proto::{Connection, Event, Extensions, Instant, Random, SessionSeed}};
    ///
    /// # struct Entropy(u8);
    /// # impl Random for Entropy {
    /// #     fn fill(&mut self, bytes: &mut [u8]) {
    /// #         self.0 += 1;
    /// #         bytes.fill(self.0);
    /// #     }
    /// # }
    /// # let mut entropy = Entropy(0);
    /// let now = Instant::ZERO;
    /// let config = KcpConfig::builder().extensions(Extensions::Preferred).build()?;
    /// // `entropy` draws from the operating system.
    /// let mut client = Connection::connect(7, &config, now, SessionSeed::new(&mut entropy));
    /// let mut server = Connection::accept(7, &config, now, SessionSeed::new(&mut entropy));
    ///
    /// let mut buffer = vec![0; 65_536];
    /// let hello = client.poll_transmit(now, &mut buffer).ok_or("nothing to send")?;
    /// server.handle_packet(now, &mut buffer[..hello.len])?;
    /// let answer = server.poll_transmit(now, &mut buffer).ok_or("nothing to send")?;
    /// client.handle_packet(now, &mut buffer[..answer.len])?;
    /// assert_eq!(client.poll_event(), Some(Event::Connected));
    /// assert!(client.is_peer_confirmed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn connect(conv: u32, config: &KcpConfig, now: Instant, seed: SessionSeed) -> Self {
        Self::connecting_at(conv, config, now, seed, 0)
    }

    /// A session that a peer has begun: see [`connect`](Self::connect). `conv` is that of its first packet.
    #[must_use]
    pub fn accept(conv: u32, config: &KcpConfig, now: Instant, seed: SessionSeed) -> Self {
        Self::accepting_at(conv, config, now, seed, 0)
    }

    /// As [`connect`](Self::connect), with the first numbers of [`starting_at`](Self::starting_at).
    #[doc(hidden)]
    #[must_use]
    pub fn connecting_at(
        conv: u32,
        config: &KcpConfig,
        now: Instant,
        seed: SessionSeed,
        first_sn: u32,
    ) -> Self {
        let mut connection = Self::starting_at(conv, config, now, first_sn);
        connection.awaits_peer = true;
        connection.arq.set_connected();
        connection.begin_extension(Role::Connects, config, now, seed);
        connection
    }

    /// As [`accept`](Self::accept), with the first numbers of [`starting_at`](Self::starting_at).
    #[doc(hidden)]
    #[must_use]
    pub fn accepting_at(
        conv: u32,
        config: &KcpConfig,
        now: Instant,
        seed: SessionSeed,
        first_sn: u32,
    ) -> Self {
        let mut connection = Self::starting_at(conv, config, now, first_sn);
        connection.arq.set_accepted(None);
        connection.arq.begin_validation();
        connection.pipeline.set_peer_unproven(true);
        connection.begin_extension(Role::Accepts, config, now, seed);
        connection
    }

    fn begin_extension(&mut self, role: Role, config: &KcpConfig, now: Instant, seed: SessionSeed) {
        self.arq.set_ts_base(seed.ts_base());
        let room = config.mtu().saturating_sub(self.around_extension());
        if config.extensions == Extensions::Off || room < MIN_ROOM {
            return;
        }
        // Where packets are tiny, an ANSWER has no room for it.
        let max_packet = (config.mtu() >= LEAST_MTU_TOLD)
            .then(|| u16::try_from(config.mtu()).unwrap_or(u16::MAX).max(MAX_PACKET));
        let probes = if max_packet.is_some() { Caps::PROBE } else { Caps::default() };
        let settings = Settings {
            extensions: config.extensions,
            max_packet,
            caps: self.caps(role, config).with(probes),
            keep_alive: config.keep_alive,
            dead_timeout: config.dead_timeout,
        };
        if config.ecn {
            self.ecn.enable();
        }
        self.arq.mark_segments();
        self.arq.begin_at_base_mtu();
        self.extension.fill(Extension::new(role, &settings, seed, now));
    }

    /// What this end says that it can receive.
    fn caps(&self, role: Role, config: &KcpConfig) -> Caps {
        // Without authentication, whoever is on the path could move the session.
        let follows = role == Role::Accepts && self.pipeline.is_authenticated();
        [(Caps::DATAGRAMS, self.datagrams.is_enabled()), (Caps::ECN, config.ecn), (Caps::MOVE, follows)]
            .into_iter()
            .filter(|(_, has)| *has)
            .fold(Caps::default(), |caps, (cap, _)| caps.with(cap))
    }

    /// Whether the peer has shown that it knows the extensions and hears this end. Once it has, it stays so.
    #[must_use]
    pub fn is_peer_confirmed(&self) -> bool {
        self.extension.as_ref().is_some_and(|extension| extension.is_confirmed())
    }

    /// Whether the peer has answered. In a session of [`connect`](Self::connect), [`Event::Connected`](super::Event::Connected)
    /// comes when it has.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        !self.awaits_peer && self.arq.has_heard()
    }

    /// Asks the peer for an answer now, and again until it answers: for an application that waits for
    /// [`is_connected`](Self::is_connected) before it writes. If no answer comes, the session ends after
    /// [`dead_timeout`](crate::KcpConfigBuilder::dead_timeout).
    ///
    /// Peers without extensions answer nothing but this as long as nothing is written. kcp-go begins a session by it. ikcp answers
    /// if its program knows the session by then. An [`Endpoint`](crate::proto::Endpoint) without extensions knows it only when
    /// something was written.
    pub fn await_peer(&mut self, now: Instant) {
        if self.close_reason().is_some() || self.is_connected() {
            return;
        }
        match self.extension.as_mut() {
            Some(extension) => {
                if extension.ask(now) {
                    self.arq.ask_window();
                }
            }
            None => self.arq.seek_peer(now),
        }
    }

    // ---- Input and time ----

    /// Draws the conclusions from the packets that were taken in, as far as the extensions know of them.
    #[inline]
    pub(super) fn after_extension_input(&mut self, now: Instant) {
        if !self.extension.is_at_rest() || self.awaits_peer {
            self.heed_extension(now);
        }
    }

    fn heed_extension(&mut self, now: Instant) {
        // Also by what ends the session: nobody else knows this end's tag.
        if self.arq.is_validating() && self.is_peer_confirmed() {
            self.set_validated();
        }
        if let Some(reason) = self.extension_close_reason() {
            self.close(reason);
            return;
        }
        if let Some(extension) = self.extension.as_ref()
            && extension.is_confirmed()
            && !self.arq.is_confirmed()
        {
            let (is_followed, uses_ecn) = (extension.is_followed(), extension.uses_ecn());
            self.arq.set_confirmed(now, extension.asks_first(), self.pipeline.is_authenticated());
            if is_followed {
                self.arq.introduce_itself();
            }
            if uses_ecn {
                self.arq.enable_ecn(now);
            }
        }
        if self.awaits_peer && self.arq.has_heard() {
            self.after_answer();
        }
    }

    #[cold]
    fn after_answer(&mut self) {
        let is_peer_missing = |extension: &Extension| extension.is_required() && !extension.is_confirmed();
        if !self.extension.as_deref().is_some_and(is_peer_missing) {
            self.awaits_peer = false;
            self.connected = true;
            tell!(connected());
        }
    }

    pub(super) fn on_extension_timeout(&mut self, now: Instant, read_until: Instant) {
        if self.extension.is_at_rest() {
            return;
        }
        let Some(extension) = self.extension.as_mut() else { return };
        if extension.on_timeout(now, &Conditions { read_until, ..self.arq.conditions() }) {
            self.arq.ask_window();
        }
        if let Some(reason) = self.extension_close_reason() {
            self.close(reason);
        } else if self.extension.as_ref().is_some_and(|extension| extension.has_moved()) {
            self.follow_peer(now);
        }
    }

    /// Why the session must end, as far as the extensions know, if it must.
    fn extension_close_reason(&self) -> Option<CloseReason> {
        let extension = self.extension.as_ref()?;
        let is_lost = || extension.has_ended_another() && self.arq.counters().segments.acks_received > 0;
        extension.close_reason().or_else(|| is_lost().then_some(CloseReason::Reset))
    }

    #[inline]
    pub(super) fn extension_deadline(&self) -> Option<Instant> {
        if self.extension.is_at_rest() {
            return None;
        }
        earliest(self.extension.as_ref()?.deadlines())
    }

    pub(super) fn extension_timers(&self) -> impl Iterator<Item = (Timer, Option<Instant>)> {
        let extension = self.extension.iter();
        extension.flat_map(|extension| Extension::TIMERS.into_iter().zip(extension.deadlines()))
    }

    // ---- Output ----

    /// Whether an extension segment is to be sent in a packet of its own.
    #[inline]
    pub(super) fn has_urgent_extension(&self) -> bool {
        (!self.extension.is_at_rest() || self.arq.is_ping_due()) && self.finds_urgent_extension()
    }

    fn finds_urgent_extension(&self) -> bool {
        self.extension.as_ref().is_some_and(|extension| extension.is_urgent() || self.arq.is_ping_due())
    }

    /// Whether an extension segment may go with a packet of the stream.
    #[inline]
    pub(super) fn has_appendable_extension(&self) -> bool {
        !self.extension.is_at_rest()
            && self.extension.as_ref().is_some_and(|extension| extension.has_appendable())
    }

    /// Bytes of a packet in front of and behind an extension segment that stands alone. It takes no FEC header: it is sent
    /// again sooner than parity would come, and a peer without extensions never finds it in a group.
    pub(super) fn around_extension(&self) -> usize {
        self.pipeline.crypto_head() + self.pipeline.tail()
    }

    /// Writes the next extension segment that has a packet of its own, of `mtu` bytes at most. To a peer that knows the extensions
    /// it takes waiting ACKs along.
    #[cold]
    pub(super) fn transmit_extension(
        &mut self,
        now: Instant,
        buf: &mut [u8],
        mtu: usize,
    ) -> Option<Transmit> {
        let (head, tail) = (self.pipeline.crypto_head(), self.pipeline.tail());
        let out = buf.get_mut(head..mtu.saturating_sub(tail))?;
        let extension = self.extension.as_mut()?;
        if self.arq.take_ping_due() {
            extension.ask_peer();
        }
        if !extension.is_urgent() {
            return None;
        }
        // A probe of the MTU is alone in its packet: where that is too long, ACKs would be lost with it.
        let takes_acks = !matches!(self.state, State::Closed(_))
            && extension.is_peer_known()
            && !extension.has_mtu_probe();
        let most = out.len().min(self.arq.plpmtu().saturating_sub(head + tail));
        let most_acks = most.saturating_sub(ROOM_BEHIND_ACKS);
        let acks = if takes_acks { self.arq.fill_acks(now, &mut out[..most_acks]) } else { 0 };
        let (envelope, conditions) = (self.arq.envelope(now), self.arq.conditions());
        let mut len = acks;
        let mut begins = false;
        while extension.is_urgent() {
            // What does not fit, or may not be sent, is given up: the next one's turn.
            if let Some(written) =
                extension.write(now, envelope, &mut out[acks..], head + acks + tail, &conditions)
            {
                if written.owed {
                    self.arq.owe_answer(now);
                }
                self.arq.counters_mut().segments.sent += 1;
                len += written.len;
                begins = written.begins;
                break;
            }
        }
        if len == 0 {
            return None;
        }
        let len = head + len + tail;
        self.arq.charge(now, len);
        self.encrypt(now, &mut buf[..len], len, begins)
    }

    /// Writes extension segments behind those of the stream. Returns how many bytes.
    #[cold]
    pub(super) fn append_extension(&mut self, now: Instant, out: &mut [u8]) -> usize {
        let (envelope, conditions) = (self.arq.envelope(now), self.arq.conditions());
        let Some(extension) = self.extension.as_mut() else { return 0 };
        // The last data may be what stands before it.
        if extension.awaits_last_data() && self.arq.is_all_sent() && !self.datagrams.has_unsent() {
            extension.ends.on_all_sent(self.arq.snd_nxt());
        }
        let before = extension.stats().sent;
        let (len, owed) = extension.append(now, envelope, out, &conditions);
        let is_due = self.ecn.is_due();
        let reported =
            if is_due { extension.write_ecn(envelope, self.ecn.counts(), &mut out[len..]) } else { 0 };
        self.arq.counters_mut().segments.sent += extension.stats().sent - before;
        if reported > 0 {
            self.after_ecn_report(now);
        }
        if owed {
            self.arq.owe_answer(now);
        }
        len + reported
    }
}

/// A packet that every end takes, whatever it sends: kcp-go's receive buffer is as long.
const MAX_PACKET: u16 = 1_500;
/// An end that sends shorter packets says nothing of those that it takes.
const LEAST_MTU_TOLD: usize = 576;
