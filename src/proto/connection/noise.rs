//! Sessions that agree on keys of their own: see `proto/agreement`.
//!
//! A session that is begun here sends nothing but its part of the agreement before it has keys. What is written meanwhile waits. One
//! that is accepted has keys from the beginning. From then on every packet is sealed, and whoever has not made it is not heard.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::ops::Range;

use super::{BatchDrops, Connection, State, Transmit};
use crate::proto::{
    Random,
    agreement::{Agreement, Asking, EarlyData, Outcome, parse},
    arq::Block,
    config::KcpConfig,
    ecn::EcnCodepoint,
    error::{CloseReason, HandshakeError, PacketError},
    extension::SessionSeed,
    noise::{Noise, NoiseError, NoiseFailure, PublicKey, RouteKey, SessionKeys},
    time::{Instant, earliest},
};

/// Bytes of a HELLO beside early data, at most: header and body, a message with its field, a cookie.
const BESIDE_EARLY_DATA: usize = 200;

impl Connection {
    /// Bytes of randomness that [`connect_with_noise`](Self::connect_with_noise) takes: an id, a time to begin with, and a secret key.
    #[doc(hidden)]
    pub const NOISE_RANDOM_BYTES: usize = 8 + 4 + 32;

    /// As [`connect`](Self::connect), with a configuration that has [`noise`](crate::KcpConfigBuilder::noise): the session agrees on
    /// keys with its peer first, and nothing is sent without them. `random` must be unpredictable: the keys come of it.
    ///
    /// [`Event::Connected`](super::Event::Connected) comes when the peer has shown that it is the right one. If it does not, the session
    /// ends with [`CloseReason::HandshakeFailed`], which says what does not match, as far as the peer has said it: 2 seconds after
    /// that, since anybody may have said it in the peer's name. If nothing comes at all, it ends after
    /// [`dead_timeout`](crate::KcpConfigBuilder::dead_timeout).
    ///
    /// # Errors
    /// [`NoiseError::Unconfigured`] where the configuration has no [`Initiator`](crate::proto::noise::Initiator), and those of
    /// [`Initiator::begin`](crate::proto::noise::Initiator::begin).
    pub fn connect_with_noise(
        conv: u32,
        config: &KcpConfig,
        now: Instant,
        seed: SessionSeed,
        random: &mut dyn Random,
    ) -> Result<Self, NoiseError> {
        Self::connect_with_early_data(conv, config, now, seed, &[], random)
    }

    /// As [`connect_with_noise`](Self::connect_with_noise), with the first bytes of the stream in its first packet, where the peer may take
    /// them at once: [`Responder::with_early_data`](crate::proto::noise::Responder::with_early_data) says what that is worth. If
    /// it does not, they are sent as if they had been [written](Self::write). What is written besides goes behind them.
    ///
    /// The first packet is long enough for them, also when it is sent again: on a path that does not carry it, the session does not begin.
    ///
    /// # Errors
    /// Those of [`connect_with_noise`](Self::connect_with_noise), and [`NoiseError::EarlyData`]: there are more than
    /// [`MAX_EARLY_DATA`](crate::proto::noise::MAX_EARLY_DATA) bytes, or more than a packet of the mtu has room for beside 200 others, or the
    /// pattern has no early data.
    pub fn connect_with_early_data(
        conv: u32,
        config: &KcpConfig,
        now: Instant,
        seed: SessionSeed,
        early: &[u8],
        random: &mut dyn Random,
    ) -> Result<Self, NoiseError> {
        let initiator = config.noise.as_ref().and_then(Noise::initiator).ok_or(NoiseError::Unconfigured)?;
        let asking = Asking::new(conv, initiator, early, random)?;
        let mut connection = Self::connect(conv, config, now, seed);
        let fits = early.is_empty() || early.len() + BESIDE_EARLY_DATA <= connection.mtu();
        if !fits || connection.write(now, early) != Ok(early.len()) {
            return Err(NoiseError::EarlyData);
        }
        connection.agreement = Some(Box::new(Agreement::Asking(asking)));
        Ok(connection)
    }

    /// As [`accept`](Self::accept), for a session whose peer has agreed on `keys` with this end:
    /// [`Endpoint::take_session_keys`](crate::proto::Endpoint::take_session_keys) has them, and
    /// [`Endpoint::take_early_data`](crate::proto::Endpoint::take_early_data) what came with them. Whether it is
    /// [validated](Self::set_validated) is said by [`Incoming::validated`](crate::proto::Incoming::validated). `config` is that of the endpoint: with one
    /// that has no [`noise`](crate::KcpConfigBuilder::noise) the session is closed from the beginning, and says nothing.
    #[must_use]
    pub fn accept_with_keys(
        conv: u32,
        config: &KcpConfig,
        now: Instant,
        seed: SessionSeed,
        mut keys: Box<SessionKeys>,
        early: Option<EarlyData>,
    ) -> Self {
        let mut connection = Self::accept(conv, config, now, seed);
        if let (Some(key), Some(extension)) = (keys.take_reset_key(), connection.extension.as_mut()) {
            extension.set_reset_key(key);
        }
        match connection.pipeline.sealed_mut() {
            Some(sealed) => {
                sealed.set_keys(keys);
                if let Some(EarlyData { answering, data }) = early {
                    connection.agreement = Some(Box::new(Agreement::Answering(answering)));
                    connection.arq.push_early_data(&data);
                }
            }
            None => connection
                .close(CloseReason::HandshakeFailed(HandshakeError::Noise(NoiseFailure::Unconfigured))),
        }
        connection
    }

    /// The static public key of the peer. `None` in a session without [`noise`](crate::KcpConfigBuilder::noise), before both ends
    /// have agreed on keys, and in patterns in which the peer has no key or does not show it.
    #[must_use]
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.pipeline.sealed()?.peer()
    }

    /// What is the same at both ends of this session and at no end of another, for channel binding:
    /// [`SessionKeys::handshake_hash`]. `None` without [`noise`](crate::KcpConfigBuilder::noise), and before both ends have agreed on
    /// keys.
    #[must_use]
    pub fn handshake_hash(&self) -> Option<[u8; 32]> {
        self.pipeline.sealed()?.handshake_hash()
    }

    /// Whether packets are sealed under keys of this session alone. Its packets are opened here, not by an
    /// [`Endpoint`](crate::proto::Endpoint).
    #[must_use]
    #[inline]
    pub fn is_sealed(&self) -> bool {
        self.pipeline.sealed().is_some()
    }

    /// The key that hides the route of its packets, for [`Endpoint::set_route_key`](crate::proto::Endpoint::set_route_key). `None` without
    /// [`noise`](crate::KcpConfigBuilder::noise), before a packet has brought the peer's answer, and once the session's keys were
    /// [taken](Self::take_session_keys).
    #[must_use]
    pub fn route_key(&self) -> Option<&RouteKey> {
        self.pipeline.sealed()?.route_key()
    }

    /// Takes the keys of a session that has ended, for [`Endpoint::close_sealed`](crate::proto::Endpoint::close_sealed). The session sends
    /// and receives nothing more.
    pub fn take_session_keys(&mut self) -> Option<Box<SessionKeys>> {
        self.pipeline.sealed_mut()?.take_keys()
    }

    /// Whether what was read so far may be a recording that somebody sends again: the session was accepted with early data
    /// ([`Responder::with_early_data`](crate::proto::noise::Responder::with_early_data)), and its peer has not shown yet that it is
    /// there. If a session that has taken early data fails before its peer knows, the peer's next one brings the same bytes once more, as any
    /// others.
    #[must_use]
    pub fn may_be_replayed(&self) -> bool {
        matches!(self.agreement.as_deref(), Some(Agreement::Answering(_)))
    }

    /// Whether this end has no keys yet.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.agreement.as_deref(), Some(Agreement::Asking(_)))
    }

    // ---- Input ----

    /// As [`handle_batch`](Self::handle_batch), for packets that lie in `block[range]` as they were received: those of a session with
    /// keys of its own are opened in place. If somebody else refers to the block, they are copied first.
    ///
    /// In other sessions it is the same as [`handle_batch`](Self::handle_batch).
    pub fn handle_sealed_batch(
        &mut self,
        now: Instant,
        block: &mut Block,
        range: Range<usize>,
        stride: usize,
    ) -> BatchDrops {
        if !self.is_sealed() {
            return self.handle_batch(now, block, range, stride);
        }
        let range = range.start..range.end.min(block.len());
        match Arc::get_mut(block).and_then(|bytes| bytes.get_mut(range.clone())) {
            Some(bytes) => {
                let opened = self.open_batch(now, bytes, stride);
                self.take_in_opened(now, block, range, stride, opened)
            }
            None => self.handle_copied_batch(now, block, range, stride),
        }
    }

    /// As [`handle_sealed_batch`](Self::handle_sealed_batch), of a block that somebody else refers to.
    #[cold]
    pub(super) fn handle_copied_batch(
        &mut self,
        now: Instant,
        block: &Block,
        range: Range<usize>,
        stride: usize,
    ) -> BatchDrops {
        let end = range.end.min(block.len());
        let mut bytes: Box<[u8]> = block.get(range.start..end).unwrap_or_default().into();
        let opened = self.open_batch(now, &mut bytes, stride);
        let len = bytes.len();
        self.take_in_opened(now, &Arc::new(bytes), 0..len, stride, opened)
    }

    /// Opens packets in place. Says of each whether it is to be taken in, and how many were dropped.
    fn open_batch(&mut self, now: Instant, bytes: &mut [u8], stride: usize) -> (Vec<bool>, BatchDrops) {
        let mut drops = BatchDrops::default();
        if !self.listens() {
            return (Vec::new(), drops);
        }
        let mut opened = self.pipeline.sealed_mut().map(|sealed| sealed.take_opened()).unwrap_or_default();
        for packet in bytes.chunks_mut(stride.max(1)) {
            if self.take_clear(now, packet) {
                opened.push(false);
                continue;
            }
            let outcome = self.pipeline.decrypt(now, packet);
            opened.push(outcome.is_ok());
            match outcome {
                Ok(()) => {}
                Err(_) if self.take_keyed_reset(now, packet) => {}
                Err(error) => {
                    self.arq.counters_mut().udp.count_refused(error);
                    if error == PacketError::Replayed {
                        drops.replayed += 1;
                    } else {
                        drops.malformed += 1;
                    }
                }
            }
        }
        (opened, drops)
    }

    fn take_in_opened(
        &mut self,
        now: Instant,
        block: &Block,
        range: Range<usize>,
        stride: usize,
        (opened, before): (Vec<bool>, BatchDrops),
    ) -> BatchDrops {
        let is_open = |index: usize| opened.get(index).is_some_and(|opened| *opened);
        let mut drops = self.take_in_batch(now, block, range, stride, is_open);
        drops.replayed += before.replayed;
        drops.malformed += before.malformed;
        if opened.contains(&true) {
            self.after_opening();
        }
        if let Some(sealed) = self.pipeline.sealed_mut() {
            sealed.return_opened(opened);
        }
        drops
    }

    /// A packet was opened: the peer has the keys, and with three messages the last one. Nothing in the clear is heeded any more.
    #[inline]
    pub(super) fn after_opening(&mut self) {
        if self.agreement.is_some() {
            // The peer has the answer, and that went to its address.
            self.set_validated();
            self.agreement = None;
        }
        // One at rest doubts nobody.
        if !self.extension.is_at_rest()
            && let Some(extension) = self.extension.as_mut()
        {
            extension.on_opened();
        }
    }

    /// Takes in a packet that did not open. Returns whether it is one of a peer that has lost the session.
    #[cold]
    pub(super) fn take_keyed_reset(&mut self, now: Instant, packet: &[u8]) -> bool {
        let is_reset = self.extension.as_ref().is_some_and(|extension| extension.is_keyed_reset(packet));
        if is_reset && let Some(extension) = self.extension.as_mut() {
            extension.on_keyed_reset(now, self.arq.rto());
        }
        is_reset
    }

    /// Takes in a packet in the clear, as long as there may be some; returns whether it was none to be opened.
    #[inline]
    pub(super) fn take_clear(&mut self, now: Instant, packet: &[u8]) -> bool {
        self.agreement.is_some() && self.take_clear_packet(now, packet)
    }

    #[cold]
    fn take_clear_packet(&mut self, now: Instant, packet: &[u8]) -> bool {
        let conv = self.conv();
        let clear = parse(packet).filter(|_| packet.starts_with(&conv.to_le_bytes()));
        match (self.agreement.as_deref_mut(), clear) {
            (Some(Agreement::Asking(asking)), Some(clear)) => {
                if let Outcome::Keys { keys, confirming, early_data } = asking.input(now, &clear) {
                    self.agreement = confirming.map(|confirming| Box::new(Agreement::Confirming(confirming)));
                    self.arq.discard_unsent(early_data);
                    self.begin_sealed(now, keys);
                }
                true
            }
            (Some(Agreement::Asking(_)), None) => true,
            (Some(Agreement::Confirming(confirming)), Some(clear)) => {
                confirming.input(now, &clear);
                true
            }
            (Some(Agreement::Answering(answering)), Some(clear)) => {
                let gives_way = answering.input(now, &clear);
                self.arq.note_received(packet.len());
                if gives_way {
                    self.close(CloseReason::DeadLink);
                }
                true
            }
            _ => false,
        }
    }

    /// There are keys.
    fn begin_sealed(&mut self, now: Instant, keys: Box<SessionKeys>) {
        if let Some(sealed) = self.pipeline.sealed_mut() {
            sealed.set_keys(keys);
        }
        // With three messages, the peer has not yet said that it trusts this end.
        if self.agreement.is_none() {
            self.arq.set_heard();
            self.after_extension_input(now);
        }
    }

    // ---- Time ----

    /// When the agreement has something to do, or the session without it.
    pub(super) fn agreement_timeout(&self) -> Option<Instant> {
        match self.agreement.as_deref()? {
            Agreement::Asking(asking) => earliest([asking.deadline(), self.lifetime(), self.unagreed_at()]),
            Agreement::Confirming(confirming) => confirming.deadline(),
            Agreement::Answering(_) => None,
        }
    }

    /// When the peer has been silent for too long.
    fn unagreed_at(&self) -> Option<Instant> {
        let Some(Agreement::Asking(asking)) = self.agreement.as_deref() else { return None };
        asking.asked_since().map(|since| (since + self.dead_timeout.get()).max(self.no_end_before))
    }

    /// Does what is due; returns whether there is nothing else to do before there are keys.
    #[cold]
    pub(super) fn on_agreement_timeout(&mut self, now: Instant, read_until: Instant) -> bool {
        let failed = |error: NoiseError| CloseReason::HandshakeFailed(HandshakeError::Noise(error.into()));
        let is_over = self.unagreed_at().is_some_and(|at| at <= read_until);
        let reason = match self.agreement.as_deref_mut() {
            Some(Agreement::Asking(asking)) => {
                asking.on_timeout(now);
                let refused = asking.is_refused(read_until).then_some(CloseReason::Refused);
                let dead = is_over.then(|| asking.error().map_or(CloseReason::DeadLink, failed));
                asking.expired(read_until).map(failed).or(refused).or(dead)
            }
            Some(Agreement::Confirming(confirming)) => {
                confirming.on_timeout(now);
                confirming.expired(read_until).map(failed)
            }
            Some(Agreement::Answering(_)) | None => None,
        };
        if let Some(reason) = reason {
            self.close(reason);
            return true;
        }
        if !self.is_asking() {
            return false;
        }
        self.check_ends(now);
        if let Some(reason) = self.expired(read_until) {
            self.expire(reason);
        }
        true
    }

    // ---- Output ----

    /// Writes the next packet of the agreement. `None` where the session may send others.
    #[cold]
    pub(super) fn transmit_agreement(&mut self, now: Instant, buf: &mut [u8]) -> Option<Option<Transmit>> {
        if let State::Closed(_) = self.state {
            return self.is_asking().then_some(None);
        }
        let (mtu, rto) = (self.mtu(), self.arq.rto());
        let Some(out) = buf.get_mut(..mtu) else { return Some(None) };
        let written = match self.agreement.as_deref_mut()? {
            Agreement::Asking(asking) => asking.write(now, rto, out),
            Agreement::Confirming(confirming) => Some(confirming.write(now, rto, out)?),
            Agreement::Answering(answering) => Some(answering.write(out)?),
        };
        let Some(len) = written else { return Some(None) };
        self.arq.charge(now, len);
        if self.arq.is_validating() {
            self.arq.note_sent(now, len, false);
        }
        let udp = &mut self.arq.counters_mut().udp;
        udp.packets_sent += 1;
        udp.bytes_sent += len as u64;
        Some(Some(Transmit { len, stride: len, ecn: EcnCodepoint::NotEct, may_fragment: false }))
    }
}
