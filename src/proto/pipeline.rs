//! From segments to packets and back: encryption and FEC around the segments of a session.
//!
//! ```text
//! packet = [ crypto header | FEC header | segments | tag ]
//!            <---------- head --------->            <tail>
//! ```
//!
//! # Sending
//!
//! A packet is built once, in the buffer that is sent. The ARQ writes segments behind `head` free bytes. FEC then numbers the
//! packet and adds it to the parity of its group ([`Pipeline::complete`]). When a group is complete, its parity packets are
//! sent before anything else ([`Pipeline::parity_len`]). At last the cipher encrypts the whole batch in place
//! ([`Pipeline::encrypt`]).
//!
//! An out-of-band packet carries a datagram instead of segments. It has an FEC header with a conv, even in a session
//! without FEC ([`Pipeline::complete_out_of_band`]).
//!
//! # Receiving
//!
//! Receiving takes two steps, because the conv of a packet is encrypted too: where one socket serves many sessions, a packet is
//! decrypted before it is known whose it is. [`Pipeline::decrypt`] is the first step, for a packet that nobody has decrypted
//! yet. [`Pipeline::take_in`] is the second. It drops replays, and hands on the segments of the packet and of every lost packet
//! that FEC recovers with its help.
//!
//! A session takes no memory for what it does not use: the state of received FEC is made for the first FEC packet.

mod encryption;
#[cfg(feature = "noise")]
mod sealed;

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::time::Duration;

use self::encryption::Encryption;
#[cfg(feature = "noise")]
pub(in crate::proto) use self::sealed::Sealed;
use super::{
    arq::{BlockPosition, LossCounts, Origin},
    config::KcpConfig,
    error::{CloseReason, PacketError},
    extension,
    fec::{self, Adaptive, AdaptiveFec, Decoder, Encoder, FecEvent, Kind, OutOfBand, Packet, ReedSolomon},
    stats::{FecState, FecStats},
    time::Instant,
    wire::{Command, SegmentHeader, Segments},
};
use crate::crypto::PacketCrypto;

/// Encryption and FEC of one session.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    encryption: Option<Encryption>,
    encoder: Option<Box<Encoder>>,
    /// Whether segments leave room for an FEC header. They do so even while FEC is turned off, once it was on.
    fec_room: bool,
    /// The code of the groups after the one under way, if it is another one.
    next_code: Option<Arc<ReedSolomon>>,
    /// FEC is turned off after the group under way.
    is_ending: bool,
    /// The number of the first packet when FEC is turned on again.
    next_seqid: u32,
    /// Chooses the parity of each group by the losses. `None` where the parity is fixed.
    adaptive: Option<Box<Adaptive>>,
    adaptive_limits: Option<Box<AdaptiveFec>>,
    decoder: Option<Box<Decoder>>,
    /// Anybody may have begun the session: its FEC gets no more memory and work than where none is expected.
    peer_is_unproven: bool,
    parity_sent: u64,
}

impl Pipeline {
    /// `conv` is what stands in front of packets where a session has keys of its own.
    pub(super) fn new(conv: u32, config: &KcpConfig) -> Self {
        let encryption = config.crypto.as_ref();
        let encryption = encryption.map(|crypto| Encryption::new(crypto, config.replay_window));
        // Where keys are to be agreed on, nothing else will do.
        #[cfg(feature = "noise")]
        let encryption = match &config.noise {
            Some(_) => Some(Encryption::of_session(conv)),
            None => encryption,
        };
        #[cfg(not(feature = "noise"))]
        let _ = conv;
        let encoder = config.fec_code().map(|code| Box::new(Encoder::new(code)));
        let fec_room = encoder.is_some();
        let adaptive_limits = config.settings.fec_adaptive.map(Box::new);
        let mut pipeline = Self { encryption, encoder, fec_room, adaptive_limits, ..Self::default() };
        pipeline.begin_adapting();
        pipeline
    }

    pub(super) fn crypto(&self) -> Option<&PacketCrypto> {
        self.encryption.as_ref().and_then(|encryption| encryption.crypto())
    }

    /// What seals packets under keys of this session alone, where it has them or is to have them.
    #[cfg(feature = "noise")]
    #[inline]
    pub(super) fn sealed(&self) -> Option<&Sealed> {
        self.encryption.as_ref()?.sealed()
    }

    #[cfg(feature = "noise")]
    #[inline]
    pub(super) fn sealed_mut(&mut self) -> Option<&mut Sealed> {
        self.encryption.as_mut()?.sealed_mut()
    }

    /// Bytes in front of the segments.
    pub(super) fn head(&self) -> usize {
        self.crypto_head() + if self.encoder.is_some() { fec::HEADER_LEN } else { 0 }
    }

    /// Bytes in front of a packet without an FEC header.
    pub(super) fn crypto_head(&self) -> usize {
        self.encryption.as_ref().map_or(0, |encryption| encryption.head())
    }

    /// Bytes behind the segments.
    pub(super) fn tail(&self) -> usize {
        self.encryption.as_ref().map_or(0, |encryption| encryption.tail())
    }

    /// Bytes of a packet that segments must leave free.
    pub(super) fn overhead(&self) -> usize {
        self.crypto_head() + if self.fec_room { fec::HEADER_LEN } else { 0 } + self.tail()
    }

    /// Bytes in front of an out-of-band datagram.
    pub(super) fn out_of_band_head(&self) -> usize {
        self.crypto_head() + fec::OUT_OF_BAND_HEADER_LEN
    }

    /// Whether only a holder of the key can make a packet that is taken in.
    pub(super) fn is_authenticated(&self) -> bool {
        self.encryption.as_ref().is_some_and(|encryption| encryption.is_authenticated())
    }

    /// Whether segments leave room for an FEC header.
    pub(super) const fn has_fec_room(&self) -> bool {
        self.fec_room
    }

    // ---- Sending ----

    /// Completes a packet whose segments were written. Only encryption is left to do.
    #[inline]
    pub(super) fn complete(&mut self, now: Instant, packet: &mut [u8]) {
        let (head, tail) = (self.crypto_head(), self.tail());
        if let Some(encoder) = &mut self.encoder {
            let end = packet.len() - tail;
            encoder.data(now, &mut packet[head..end]);
            self.apply_next_code();
        }
    }

    /// Bytes of the parity packet that must be sent before anything else.
    pub(super) fn parity_len(&self) -> Option<usize> {
        let len = self.encoder.as_ref()?.parity_len()?;
        Some(self.crypto_head() + len + self.tail())
    }

    /// Leaves out the parity of a group that is longer than `mtu`. That happens where the mtu was lowered within the group.
    pub(super) fn skip_parity_over(&mut self, mtu: usize) {
        if self.parity_len().is_some_and(|len| len > mtu)
            && let Some(encoder) = &mut self.encoder
        {
            encoder.skip_parity();
            self.apply_next_code();
        }
    }

    /// Writes the next parity packet into `packet`, which has its [length](Self::parity_len). Only encryption is left to do.
    /// Returns whether it was the last of its group.
    pub(super) fn write_parity(&mut self, packet: &mut [u8]) -> bool {
        let (head, tail) = (self.crypto_head(), self.tail());
        if let Some(encoder) = &mut self.encoder {
            let end = packet.len() - tail;
            encoder.parity(&mut packet[head..end]);
            self.parity_sent += 1;
            self.apply_next_code();
        }
        self.parity_len().is_none()
    }

    /// Completes an out-of-band packet whose datagram was written behind [`out_of_band_head`](Self::out_of_band_head) free
    /// bytes. Only encryption is left to do.
    pub(super) fn complete_out_of_band(&self, conv: u32, packet: &mut [u8]) {
        let end = packet.len() - self.tail();
        fec::write_out_of_band_header(&mut packet[self.crypto_head()..end], conv);
    }

    /// Encrypts packets in place. They lie back to back and have `stride` bytes each; the last may be shorter. `first`: the
    /// first PUSH of the session, or a HELLO, may be among them.
    ///
    /// # Errors
    /// Why the session must end.
    pub(super) fn encrypt(
        &mut self,
        now: Instant,
        packets: &mut [u8],
        stride: usize,
        first: bool,
    ) -> Result<(), CloseReason> {
        match &mut self.encryption {
            Some(encryption) => encryption.encrypt(now, packets, stride, first),
            None => Ok(()),
        }
    }

    /// The identities of the packets sent since the last call that would begin a session at a listener with the same key.
    #[inline]
    pub(super) fn take_sent_first(&mut self) -> Vec<u64> {
        self.encryption.as_mut().map(|encryption| encryption.take_sent_first()).unwrap_or_default()
    }

    /// Data and parity packets of the groups after the one under way; 0 and 0 for no FEC.
    pub(super) fn next_shards(&self) -> (usize, usize) {
        match (&self.next_code, &self.encoder) {
            _ if self.is_ending => (0, 0),
            (Some(code), _) => (code.data_shards(), code.parity_shards()),
            (None, Some(encoder)) => encoder.shards(),
            (None, None) => (0, 0),
        }
    }

    /// The limits within which the parity follows the losses.
    pub(super) fn adaptive_limits(&self) -> Option<AdaptiveFec> {
        self.adaptive_limits.as_deref().copied()
    }

    /// Changes the code of the groups after the one under way. `None` turns FEC off.
    pub(super) fn set_code(&mut self, code: Option<Arc<ReedSolomon>>) {
        match (&mut self.encoder, code) {
            (None, None) => {}
            (None, Some(code)) => {
                self.fec_room = true;
                self.expect_fec(&code);
                self.encoder = Some(Box::new(Encoder::starting_at(code, self.next_seqid)));
                self.begin_adapting();
            }
            (Some(encoder), code) => {
                // The same shards are no change. Announcing one would have the peer find out anew what it knows.
                let shards = code.as_ref().map(|code| (code.data_shards(), code.parity_shards()));
                self.is_ending = shards.is_none();
                self.next_code = code.filter(|_| shards != Some(encoder.shards()));
                self.apply_next_code();
            }
        }
    }

    /// Changes the code if that was asked for and no group is under way.
    fn apply_next_code(&mut self) {
        if !self.encoder.as_ref().is_some_and(|encoder| encoder.is_between_groups()) {
            return;
        }
        if core::mem::take(&mut self.is_ending) {
            self.next_seqid = self.encoder.take().map_or(self.next_seqid, |encoder| encoder.next_seqid());
            self.adaptive = None;
        } else if let Some(code) = self.next_code.take() {
            self.expect_fec(&code);
            if let Some(encoder) = &mut self.encoder {
                encoder.set_code(code);
            }
            self.begin_adapting();
        }
    }

    /// A session that sends FEC expects it of its peer too.
    fn expect_fec(&mut self, own: &ReedSolomon) {
        if let Some(decoder) = self.decoder.as_mut().filter(|_| !self.peer_is_unproven) {
            decoder.expect((own.data_shards(), own.parity_shards()));
        }
    }

    /// Whether the peer has still to show that it hears this end.
    pub(super) fn set_peer_unproven(&mut self, unproven: bool) {
        self.peer_is_unproven = unproven;
        let own = self.encoder.as_ref().map(|encoder| encoder.shards()).filter(|_| !unproven);
        if let (Some(decoder), Some(own)) = (&mut self.decoder, own) {
            decoder.expect(own);
        }
    }

    /// Has the parity of later groups follow the losses within `limits`, or fixes it.
    pub(super) fn set_adaptive(&mut self, limits: Option<AdaptiveFec>) {
        if self.adaptive_limits() != limits {
            self.adaptive_limits = limits.map(Box::new);
            self.begin_adapting();
        }
    }

    fn begin_adapting(&mut self) {
        let Some(encoder) = &self.encoder else { return };
        let (data, parity) = encoder.shards();
        self.adaptive = self.adaptive_limits().map(|limits| Box::new(Adaptive::new(data, parity, limits)));
        self.limit_parity();
    }

    fn limit_parity(&mut self) {
        if let Some(encoder) = &mut self.encoder {
            encoder.limit(self.adaptive.as_ref().map(|adaptive| (adaptive.parity(), adaptive.budget())));
        }
    }

    /// Whether the parity follows the losses: then [`adapt`](Self::adapt) has something to do.
    pub(super) const fn is_adaptive(&self) -> bool {
        self.adaptive.is_some()
    }

    /// Chooses the parity of later groups by the losses that ACKs have shown.
    pub(super) fn adapt(&mut self, now: Instant, counts: &LossCounts, rtt: Duration, min_rtt: Duration) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.update(now, counts, rtt, min_rtt);
            self.limit_parity();
        }
    }

    /// How many copies FEC flush makes of a segment whose group stays incomplete.
    pub(super) fn flush_copies(&self) -> usize {
        self.encoder.as_ref().map_or(0, |encoder| fec::copies_for(encoder.shards().0, encoder.sent_parity()))
    }

    // ---- Receiving ----

    /// Checks and decrypts a packet in place.
    pub(super) fn decrypt(&mut self, now: Instant, packet: &mut [u8]) -> Result<(), PacketError> {
        self.encryption.as_mut().map_or(Ok(()), |encryption| encryption.decrypt(now, packet))
    }

    /// The segments of a decrypted packet that came from elsewhere than from the peer. `None` where others than holders of
    /// the key can have made it, and where it was received before or sent by this end. It is not remembered.
    pub(super) fn segments_from_elsewhere<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        let payload = self.encryption.as_ref()?.peek(packet)?;
        Some(fec::segments_of(payload))
    }

    /// What of a decrypted packet is not the encryption's, and how many bytes lie in front of it.
    #[inline]
    pub(super) fn payload_of<'a>(&self, packet: &'a [u8]) -> (&'a [u8], usize) {
        self.encryption
            .as_ref()
            .map_or((packet, 0), |encryption| (encryption.payload(packet), encryption.head()))
    }

    /// Whether a decrypted packet was neither received before nor sent by this end. It is remembered as received.
    #[inline]
    pub(super) fn passes_replay_check(&mut self, packet: &[u8]) -> bool {
        self.encryption.as_mut().is_none_or(|encryption| encryption.check_replay(packet).is_ok())
    }

    /// Takes in a decrypted packet of `conv`, and passes segments to `deliver`: those of the packet itself, and those of each
    /// packet that FEC recovers with its help. `place` is where the packet lies, if its payload may stay there; `deliver` is
    /// told where the segments lie.
    ///
    /// Returns the out-of-band data that the packet carries instead of segments. Its conv may be another one.
    #[inline]
    pub(super) fn take_in<'a>(
        &mut self,
        packet: &'a [u8],
        place: Option<BlockPosition<'_>>,
        conv: u32,
        mut deliver: impl FnMut(&[u8], Origin, Option<BlockPosition<'_>>) -> Result<(), PacketError>,
    ) -> Result<Option<OutOfBand<'a>>, PacketError> {
        let (payload, place) = match &mut self.encryption {
            Some(encryption) => {
                let head = encryption.head();
                (encryption.check_replay(packet)?, place.map(|place| place.forward(head)))
            }
            None => (packet, place),
        };
        let Some(packet) = Packet::parse(payload) else {
            return deliver(payload, Origin::Received, place).map(|()| None);
        };
        if packet.kind == Kind::OutOfBand {
            return OutOfBand::parse(packet.shard).map(Some).ok_or(PacketError::Fec);
        }
        let own = self.encoder.as_ref().map(|encoder| encoder.shards());
        let unproven = self.peer_is_unproven;
        let decoder = self.decoder.get_or_insert_with(|| {
            Box::new(if unproven { Decoder::beside(own) } else { Decoder::expecting(own) })
        });
        let place = place.map(|place| place.forward(fec::HEADER_LEN));
        let deliver = |segments: &[u8], origin| {
            // Segments that FEC recovered lie in memory of the decoder, which reuses it.
            deliver(segments, origin, place.filter(|_| origin == Origin::Received))
        };
        decoder.input(&packet, conv, deliver).map(|()| None)
    }

    /// The next thing that the application should know of the peer's FEC.
    pub(super) fn take_fec_event(&mut self) -> Option<FecEvent> {
        self.decoder.as_mut()?.take_event()
    }

    // ---- Both ----

    pub(super) fn fec_stats(&self) -> FecStats {
        let received = self.decoder.as_ref().map(|decoder| decoder.stats()).unwrap_or_default();
        FecStats { parity_sent: self.parity_sent, ..received }
    }

    pub(super) fn fec_state(&self) -> FecState {
        let mut state = FecState::default();
        if let Some(encoder) = &self.encoder {
            let (data, parity) = encoder.shards();
            (state.data_shards, state.parity_shards) = (data as u32, parity as u32);
            state.current_parity = encoder.sent_parity() as u32;
        }
        if let Some(adaptive) = &self.adaptive {
            state.loss_ppm = adaptive.losses();
        }
        if let Some(decoder) = &self.decoder {
            let (data, parity) = decoder.shards().unwrap_or_default();
            (state.peer_data_shards, state.peer_parity_shards) = (data as u32, parity as u32);
            state.undecodable = decoder.is_undecodable();
        }
        state
    }

    /// Whether packets of either direction are kept for FEC.
    #[inline]
    pub(super) const fn has_fec(&self) -> bool {
        self.encoder.is_some() || self.decoder.is_some()
    }

    /// Frees the memory that is kept for later traffic.
    pub(super) fn trim(&mut self) {
        if let Some(encryption) = &mut self.encryption {
            encryption.trim();
        }
        if let Some(encoder) = &mut self.encoder {
            encoder.trim();
        }
        if let Some(decoder) = &mut self.decoder {
            decoder.trim();
        }
    }
}

/// The segments of a packet, as far as they can be read. `payload` is the packet without its encryption.
pub(crate) fn segments(payload: &[u8]) -> impl Iterator<Item = (SegmentHeader, &[u8])> {
    Segments::new(fec::segments_of(payload)).map_while(Result::ok)
}

/// How a packet begins a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    /// It does not.
    No,
    /// It carries the first PUSH.
    Push,
    /// It is a HELLO. Where extensions are off, it begins nothing.
    Hello,
}

/// Whether a packet begins a session. `payload` is the packet without its encryption.
pub(crate) fn begins_session(payload: &[u8]) -> Begins {
    if extension::is_beginning(payload) {
        return Begins::Hello;
    }
    if segments(payload).any(|(header, _)| header.cmd == Command::Push && header.sn == 0) {
        return Begins::Push;
    }
    Begins::No
}
