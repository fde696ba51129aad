//! From packets to segments and back: what stands around the segments of a packet.
//!
//! ```text
//! packet = [ crypto header | FEC header | segments | tag ]
//!              <-------- head -------->              <-tail->
//! ```
//!
//! A packet is built once, in the buffer that is sent: segments are written behind `head` free bytes, FEC numbers the
//! packet and adds it to its group's parity ([`Pipeline::complete`]), and the cipher seals a whole batch in place
//! ([`Pipeline::seal`]). Parity becomes packets between others as soon as its group is complete
//! ([`Pipeline::parity_len`]). Out-of-band packets have an FEC packet's header, whether there is FEC or not, and a conv in
//! place of segments ([`Pipeline::complete_out_of_band`]).
//!
//! A received packet goes the other way in two steps, because its conv is encrypted too: where one socket serves many sessions,
//! packets are decrypted before it is known whose they are. [`Pipeline::decrypt`] is the first step, for packets that nobody
//! has decrypted yet. [`Pipeline::take_in`] is the second: it drops replays, and hands on the segments of the packet and
//! of every lost packet that FEC recovers with its help. Without cipher and FEC a packet is its segments.
//!
//! What a session does not use takes no memory: the state of received FEC comes with the first such packet.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::time::Duration;

use super::{
    arq::{BlockPosition, LossCounts, Origin},
    config::KcpConfig,
    error::{CloseReason, PacketError},
    fec::{self, Adaptive, AdaptiveFec, Decoder, Encoder, FecEvent, Kind, OutOfBand, Packet, ReedSolomon},
    replay::ReplayWindow,
    stats::{FecState, FecStats},
    time::Instant,
    wire::{Command, Segments},
};
use crate::crypto::PacketCrypto;

/// The layers around the segments of one session.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    encryption: Option<Box<Encryption>>,
    encoder: Option<Box<Encoder>>,
    /// Segments leave room for an FEC header, used or not.
    fec_room: bool,
    /// What is to follow the encoder's group.
    next_code: Option<Option<Arc<ReedSolomon>>>,
    /// Where numbering goes on when FEC is turned on again.
    next_seqid: u32,
    /// What chooses the parity of each group, where it is not fixed.
    adaptive: Option<Box<Adaptive>>,
    adaptive_limits: Option<AdaptiveFec>,
    decoder: Option<Box<Decoder>>,
    parity_sent: u64,
}

#[derive(Debug)]
struct Encryption {
    crypto: PacketCrypto,
    head: usize,
    tail: usize,
    nonce_len: usize,
    authenticated: bool,
    replays: ReplayWindow,
    /// What was sealed here, to be known again when somebody sends it back.
    sent: ReplayWindow,
    /// Packets sealed that would begin a session elsewhere.
    sent_first: Vec<u64>,
}

impl Pipeline {
    pub(super) fn new(config: &KcpConfig) -> Self {
        let encryption = config.crypto.as_ref().map(|crypto| {
            let cipher = crypto.cipher();
            Box::new(Encryption {
                head: cipher.header_len(),
                tail: cipher.trailer_len(),
                nonce_len: cipher.nonce_len().min(cipher.header_len()),
                authenticated: cipher.is_authenticated(),
                replays: ReplayWindow::new(config.replay_window),
                sent: ReplayWindow::new(config.replay_window),
                sent_first: Vec::new(),
                crypto: crypto.clone(),
            })
        });
        let encoder = config.fec_code().map(|code| Box::new(Encoder::new(code)));
        let fec_room = encoder.is_some();
        let adaptive_limits = config.settings.fec_adaptive;
        let mut pipeline = Self { encryption, encoder, fec_room, adaptive_limits, ..Self::default() };
        pipeline.begin_adapting();
        pipeline
    }

    pub(super) fn crypto(&self) -> Option<&PacketCrypto> {
        self.encryption.as_ref().map(|layer| &layer.crypto)
    }

    /// Bytes in front of the segments.
    pub(super) fn head(&self) -> usize {
        self.crypto_head() + if self.encoder.is_some() { fec::HEADER_LEN } else { 0 }
    }

    fn crypto_head(&self) -> usize {
        self.encryption.as_ref().map_or(0, |layer| layer.head)
    }

    /// Bytes behind the segments.
    pub(super) fn tail(&self) -> usize {
        self.encryption.as_ref().map_or(0, |layer| layer.tail)
    }

    /// Bytes of a packet that segments leave free.
    pub(super) fn overhead(&self) -> usize {
        self.crypto_head() + if self.fec_room { fec::HEADER_LEN } else { 0 } + self.tail()
    }

    /// Bytes in front of an out-of-band datagram.
    pub(super) fn out_of_band_head(&self) -> usize {
        self.crypto_head() + fec::OUT_OF_BAND_HEADER_LEN
    }

    /// Whether nobody without the key can make a packet that is taken in.
    pub(super) fn is_authenticated(&self) -> bool {
        self.encryption.as_ref().is_some_and(|layer| layer.authenticated)
    }

    pub(super) const fn has_fec_room(&self) -> bool {
        self.fec_room
    }

    // ---- Sending ----

    /// Completes a packet whose segments were written, but for its encryption.
    pub(super) fn complete(&mut self, now: Instant, packet: &mut [u8]) {
        let (head, tail) = (self.crypto_head(), self.tail());
        if let Some(encoder) = &mut self.encoder {
            let end = packet.len() - tail;
            encoder.data(now, &mut packet[head..end]);
            self.change_code();
        }
    }

    /// Bytes of the parity packet to be sent before anything else.
    pub(super) fn parity_len(&self) -> Option<usize> {
        let len = self.encoder.as_ref()?.parity_len()?;
        Some(self.crypto_head() + len + self.tail())
    }

    /// Leaves parity out that is longer than `mtu`, which was lowered within its group.
    pub(super) fn skip_parity_over(&mut self, mtu: usize) {
        if self.parity_len().is_some_and(|len| len > mtu)
            && let Some(encoder) = &mut self.encoder
        {
            encoder.skip_parity();
            self.change_code();
        }
    }

    /// Writes the parity packet that is due, but for its encryption; `packet` has its length. Returns whether it was
    /// the last of its group.
    pub(super) fn write_parity(&mut self, packet: &mut [u8]) -> bool {
        let (head, tail) = (self.crypto_head(), self.tail());
        if let Some(encoder) = &mut self.encoder {
            let end = packet.len() - tail;
            encoder.parity(&mut packet[head..end]);
            self.parity_sent += 1;
            self.change_code();
        }
        self.parity_len().is_none()
    }

    /// Completes an out-of-band datagram, written behind [`out_of_band_head`](Self::out_of_band_head) free bytes, but for its
    /// encryption.
    pub(super) fn complete_out_of_band(&self, conv: u32, packet: &mut [u8]) {
        let end = packet.len() - self.tail();
        fec::write_out_of_band_header(&mut packet[self.crypto_head()..end], conv);
    }

    /// Encrypts the packets that lie back to back, `size` bytes each, the last perhaps shorter; or tells why the
    /// session must end. `first`: the first PUSH may be among them.
    pub(super) fn seal(&mut self, packets: &mut [u8], size: usize, first: bool) -> Result<(), CloseReason> {
        match &mut self.encryption {
            Some(layer) => layer.seal(packets, size, first),
            None => Ok(()),
        }
    }

    /// What identifies the packets sealed since the last call that would begin a session elsewhere.
    pub(super) fn take_sent_first(&mut self) -> Vec<u64> {
        self.encryption.as_mut().map(|layer| core::mem::take(&mut layer.sent_first)).unwrap_or_default()
    }

    /// Has the groups to come use another code, or none. Takes effect when the group under way is complete.
    pub(super) fn set_code(&mut self, code: Option<Arc<ReedSolomon>>) {
        match (&mut self.encoder, code) {
            (None, None) => {}
            (None, Some(code)) => {
                self.fec_room = true;
                self.encoder = Some(Box::new(Encoder::starting_at(code, self.next_seqid)));
                self.begin_adapting();
            }
            (Some(encoder), code) => {
                // A leap would have the peer look for what it knows.
                let shards = code.as_ref().map(|code| (code.data_shards(), code.parity_shards()));
                self.next_code = (shards != Some(encoder.shards())).then_some(code);
                self.change_code();
            }
        }
    }

    fn change_code(&mut self) {
        if !self.encoder.as_ref().is_some_and(|encoder| encoder.is_between_groups()) {
            return;
        }
        match (self.next_code.take(), &mut self.encoder) {
            (Some(Some(code)), Some(encoder)) => {
                encoder.set_code(code);
                self.begin_adapting();
            }
            (Some(None), Some(encoder)) => {
                self.next_seqid = encoder.next_seqid();
                self.encoder = None;
                self.adaptive = None;
            }
            _ => {}
        }
    }

    /// Has the parity of the groups to come follow the losses, within limits, or be fixed.
    pub(super) fn set_adaptive(&mut self, limits: Option<AdaptiveFec>) {
        if self.adaptive_limits != limits {
            self.adaptive_limits = limits;
            self.begin_adapting();
        }
    }

    fn begin_adapting(&mut self) {
        let Some(encoder) = &self.encoder else { return };
        let (data, parity) = encoder.shards();
        self.adaptive = self.adaptive_limits.map(|limits| Box::new(Adaptive::new(data, parity, limits)));
        self.limit_parity();
    }

    fn limit_parity(&mut self) {
        if let Some(encoder) = &mut self.encoder {
            encoder.limit(self.adaptive.as_ref().map(|adaptive| (adaptive.parity(), adaptive.budget())));
        }
    }

    /// Whether the losses matter: see [`adapt`](Self::adapt).
    pub(super) const fn is_adaptive(&self) -> bool {
        self.adaptive.is_some()
    }

    /// Chooses the parity of the groups to come by what ACKs have told.
    pub(super) fn adapt(&mut self, now: Instant, counts: &LossCounts, rtt: Duration, min_rtt: Duration) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.update(now, counts, rtt, min_rtt);
            self.limit_parity();
        }
    }

    /// How often segments of a group that stays incomplete are to be copied.
    pub(super) fn flush_copies(&self) -> usize {
        self.encoder.as_ref().map_or(0, |encoder| fec::copies_for(encoder.shards().0, encoder.sent_parity()))
    }

    // ---- Receiving ----

    /// Checks and decrypts a packet in place.
    pub(super) fn decrypt(&self, packet: &mut [u8]) -> Result<(), PacketError> {
        match &self.encryption {
            Some(layer) => layer.crypto.cipher().open(packet).map_err(PacketError::Open),
            None => Ok(()),
        }
    }

    /// Takes in a decrypted packet of `conv`, and passes segments to `deliver`: those of the packet itself, and those of each
    /// packet that FEC recovers with its help. `place` is where the packet lies, if its payload may stay there; `deliver` is
    /// told where the segments lie.
    ///
    /// Returns the out-of-band data that the packet carries instead of segments. Its conv may be another one.
    pub(super) fn take_in<'a>(
        &mut self,
        packet: &'a [u8],
        place: Option<BlockPosition<'_>>,
        conv: u32,
        mut deliver: impl FnMut(&[u8], Origin, Option<BlockPosition<'_>>) -> Result<(), PacketError>,
    ) -> Result<Option<OutOfBand<'a>>, PacketError> {
        let (payload, place) = match &mut self.encryption {
            Some(layer) => (layer.admit(packet)?, place.map(|place| place.forward(layer.head))),
            None => (packet, place),
        };
        let Some(packet) = Packet::parse(payload) else {
            return deliver(payload, Origin::Received, place).map(|()| None);
        };
        if packet.kind == Kind::OutOfBand {
            return OutOfBand::parse(packet.shard).map(Some).ok_or(PacketError::Fec);
        }
        let own = self.encoder.as_ref().map(|encoder| encoder.shards());
        let decoder = self.decoder.get_or_insert_with(|| Box::new(Decoder::expecting(own)));
        let place = place.map(|place| place.forward(fec::HEADER_LEN));
        let deliver = |segments: &[u8], origin| {
            // What FEC recovers lies in memory of the decoder.
            deliver(segments, origin, place.filter(|_| origin == Origin::Received))
        };
        decoder.input(&packet, conv, deliver).map(|()| None)
    }

    /// What is to be told about the peer's FEC.
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

    /// Gives memory that is kept for further traffic back.
    pub(super) fn trim(&mut self) {
        if let Some(encoder) = &mut self.encoder {
            encoder.trim();
        }
        if let Some(decoder) = &mut self.decoder {
            decoder.trim();
        }
    }
}

/// Packets that would begin a session, kept until someone asks for them.
const MAX_SENT_FIRST: usize = 64;

/// Whether a packet begins a session: it carries the first PUSH.
pub(crate) fn begins_session(payload: &[u8]) -> bool {
    Segments::new(fec::segments_of(payload))
        .map_while(Result::ok)
        .any(|(header, _)| header.cmd == Command::Push && header.sn == 0)
}

impl Encryption {
    fn seal(&mut self, packets: &mut [u8], size: usize, first: bool) -> Result<(), CloseReason> {
        let mut beginnings = 0_u64;
        if first && self.authenticated {
            for (bit, packet) in packets.chunks(size).enumerate() {
                let payload = packet.get(self.head..packet.len() - self.tail).unwrap_or_default();
                beginnings |= u64::from(begins_session(payload)) << (bit % 64);
            }
        }
        if !self.crypto.reserve(packets.len().div_ceil(size)) {
            return Err(CloseReason::NonceLimit);
        }
        if self.nonce_len > 0 {
            for packet in packets.chunks_mut(size) {
                self.crypto.fill_nonce(&mut packet[..self.nonce_len]);
            }
        }
        let cipher = self.crypto.cipher();
        cipher.seal_batch(packets, size).map_err(CloseReason::SealFailed)?;
        if self.authenticated {
            for (bit, packet) in packets.chunks(size).enumerate() {
                let Some(identity) = cipher.sealed_identity(packet) else { continue };
                self.sent.insert(identity);
                if beginnings >> (bit % 64) & 1 == 1 && self.sent_first.len() < MAX_SENT_FIRST {
                    self.sent_first.push(identity);
                }
            }
        }
        Ok(())
    }

    /// The payload of an opened packet, unless it was seen before, or sent here.
    fn admit<'a>(&mut self, packet: &'a [u8]) -> Result<&'a [u8], PacketError> {
        let end = packet.len().saturating_sub(self.tail);
        let payload = packet.get(self.head..end).unwrap_or_default();
        let identity = self.crypto.cipher().identity(packet);
        if identity.is_some_and(|identity| self.sent.contains(identity) || !self.replays.insert(identity)) {
            return Err(PacketError::Replayed);
        }
        Ok(payload)
    }
}
