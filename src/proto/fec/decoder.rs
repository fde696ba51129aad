//! The receiver's half of FEC: keeps the shards of recent groups, and computes the data packets that are missing.
//!
//! A data packet is handed on as soon as it comes. A copy of its shard is kept until its group is complete or given up. Where
//! nothing is lost or reordered, that is one group. At least three groups are kept, or 128 packets' worth where groups
//! are small, and no more than its [`Limits`] allow.
//!
//! # Which group size the peer has
//!
//! The [`Detector`] finds the peer's group size from the numbers of its packets. Until then shards are set aside. The group size
//! that this end sends with is not assumed to be the peer's, because decoding with a wrong one yields garbage, and of the worst
//! kind. What it computes is a linear combination of packets. All that the packets have in common survives in it (the conv, the
//! command, the length), so that it looks like a valid segment, with a number and data that nobody sent.
//!
//! Therefore nothing is handed on unless all of this holds:
//!
//! * The detector has been certain for a whole group. Shortly after a change, packets from before and after it may agree with
//!   a third group size that is neither.
//! * No packet has contradicted the group size since. The first one that does ends it.
//! * The parity names this conversation.
//! * What is recovered has exactly the length that it states, is padded with zeros, and holds whole segments of this
//!   conversation and nothing else.
//!
//! A sender of this crate skips some numbers when it changes its group size, so that packets from before and after the change
//! are never combined. kcp-go's senders do not change.

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use super::{
    DecodeCache, ReedSolomon,
    detector::{Detector, Shards},
    groups::Groups,
    limits::Limits,
    packet::{self, Kind, LEAP, Packet, SIZE_LEN},
    peer_check::{FecEvent, PeerCheck},
    pool::ShardPool,
    set_aside::SetAside,
};
use crate::proto::{arq::Origin, error::PacketError, stats::FecStats, trace::tell, wire::Segments};

/// Bytes that a buffer takes in lists: twice in that of the pool, and in that of the recovered shards, both of which may be twice as
/// long as they need to be.
const BUFFER: usize = 4 * size_of::<Vec<u8>>();
/// Packets that may be missing between two that arrive. A longer gap means that the peer has changed its group size, or that so
/// much was lost that the search may begin anew.
const MAX_GAP: i32 = LEAP as i32 / 2;
/// Packets in a row that come too late, after which they are taken for the peer's new numbers.
const MAX_STRAYS: u32 = 32;

#[derive(Debug, Default)]
pub(in crate::proto) struct Decoder {
    /// The peer's code, once its group size is known.
    code: Option<Arc<ReedSolomon>>,
    detector: Option<Box<Detector>>,
    undecoded: SetAside,
    groups: Groups,
    /// Buffers of the shards.
    pool: ShardPool,
    /// The data shards that are computed. Empty except while a group is recovered.
    recovered: Vec<Vec<u8>>,
    /// Packets in a row that belong to groups given up long ago.
    strays: u32,
    /// The highest seqid received.
    newest: Option<u32>,
    /// While a new code is searched for: packets numbered before this belong to the former one.
    since: Option<u32>,
    /// Packets in a row that were refused as late, because they may belong to the former code.
    late_in_row: u32,
    /// Packets in a row that agreed with the group size of which the detector is certain.
    agreed: u32,
    cache: DecodeCache,
    limits: Limits,
    peer_check: PeerCheck,
    stats: FecStats,
}

impl Decoder {
    /// A decoder for a session that itself sends groups of `own` data and parity packets. A peer with the same group size is
    /// not reported. Where the session sends none, it expects none, and keeps little.
    pub(in crate::proto) fn expecting(own: Option<(usize, usize)>) -> Self {
        let mut decoder = Self::beside(own);
        if let Some(own) = own {
            decoder.expect(own);
        }
        decoder
    }

    /// As [`expecting`](Self::expecting), but it keeps little until it is told to [`expect`](Self::expect) more.
    pub(in crate::proto) fn beside(own: Option<(usize, usize)>) -> Self {
        Self { peer_check: PeerCheck::new(own.map(Shards::from)), ..Self::default() }
    }

    /// The session sends groups of `own` data and parity packets, and expects that its peer has FEC from now on.
    pub(in crate::proto) fn expect(&mut self, own: (usize, usize)) {
        self.limits.expect(own.into());
    }

    pub(in crate::proto) const fn stats(&self) -> FecStats {
        self.stats
    }

    /// Whether parity arrives from which nothing can be recovered.
    pub(in crate::proto) const fn is_undecodable(&self) -> bool {
        self.peer_check.is_undecodable()
    }

    /// The next event about the peer's FEC.
    pub(in crate::proto) fn take_event(&mut self) -> Option<FecEvent> {
        self.peer_check.take_event()
    }

    /// Data and parity shards of the peer's groups, once they are known.
    pub(in crate::proto) fn shards(&self) -> Option<(usize, usize)> {
        self.code.as_ref().map(|code| (code.data_shards(), code.parity_shards()))
    }

    /// Takes in an FEC packet and hands over the segments that it carries and those that it lets recover.
    pub(in crate::proto) fn input(
        &mut self,
        packet: &Packet<'_>,
        conv: u32,
        mut deliver: impl FnMut(&[u8], Origin) -> Result<(), PacketError>,
    ) -> Result<(), PacketError> {
        let mut outcome = Ok(());
        match packet.kind {
            Kind::OutOfBand => return Ok(()),
            Kind::Data => {
                let payload = packet::payload(packet.shard).ok_or(PacketError::Fec)?;
                outcome = deliver(payload, Origin::Received);
                // A packet with a bad segment still belongs to its group.
                if matches!(outcome, Err(PacketError::WrongConv { .. })) {
                    return outcome;
                }
            }
            Kind::Parity => {
                self.stats.parity_received += 1;
                let ours = packet::parity_conv(packet.shard) == Some(conv);
                self.peer_check.on_parity(ours);
                // What several parity packets of another session yield may have the right conv by accident.
                if !ours {
                    self.stats.parity_wasted += 1;
                    return Ok(());
                }
            }
        }
        let is_data = packet.kind == Kind::Data;
        self.look_for_jump(packet.seqid);
        if !self.check_code(packet.seqid, is_data) {
            self.stats.late += 1;
            return outcome;
        }
        if self.code.is_none() {
            self.undecoded.push(packet, self.limits.bytes / 2);
            return outcome;
        }
        while let Some(earlier) = self.undecoded.pop() {
            self.keep(earlier.seqid, earlier.is_data, &earlier.shard, conv, &mut deliver);
        }
        self.keep(packet.seqid, is_data, packet.shard, conv, &mut deliver);
        outcome
    }

    /// Looks for a gap in the numbers, by which a sender of this crate shows that it has changed its group size. What came before
    /// the gap says nothing about what follows.
    fn look_for_jump(&mut self, seqid: u32) {
        let ahead = self.newest.map_or(0, |newest| seqid.wrapping_sub(newest) as i32);
        if ahead > MAX_GAP {
            self.forget_code();
            self.detector = None;
            self.undecoded.clear();
            self.agreed = 0;
            self.since = Some(seqid);
        }
        if ahead >= 0 {
            self.newest = Some(seqid);
        }
    }

    /// Gives up all that belongs to the peer's code, and frees the memory that was of use with it.
    fn forget_code(&mut self) {
        self.forget_groups();
        if self.code.take().is_some() {
            self.groups.trim();
            self.pool.trim();
            self.cache = DecodeCache::new();
        }
    }

    /// Drops the peer's code if this packet contradicts it, and searches for the right one. Returns whether the packet is of
    /// use. A late packet is not, because it may belong to the former code.
    fn check_code(&mut self, seqid: u32, is_data: bool) -> bool {
        if let Some(code) = &self.code {
            if Shards::of(code).agrees(seqid, is_data) {
                self.peer_check.on_agreed();
                self.late_in_row = 0;
                return true;
            }
            let first = self.groups.front().map(|group| group.first);
            if first.is_some_and(|first| is_before(seqid, first)) && self.late_in_row < MAX_STRAYS {
                self.late_in_row += 1;
                return false;
            }
            self.stats.mismatches += 1;
            self.forget_code();
            self.since = Some(seqid);
            self.newest = Some(seqid);
        }
        if self.since.is_some_and(|since| is_before(seqid, since)) {
            if self.late_in_row < MAX_STRAYS {
                self.late_in_row += 1;
                return false;
            }
            // So many in a row are not late. The higher number was not one of the peer's.
            self.since = None;
            self.newest = Some(seqid);
            self.detector = None;
            self.undecoded.clear();
            self.agreed = 0;
        }
        self.late_in_row = 0;
        self.peer_check.on_unknown(is_data);
        let detector = self.detector.get_or_insert_with(|| Box::new(Detector::new()));
        let (found, anew) = detector.observe(seqid, is_data);
        if anew {
            self.undecoded.clear();
            self.since = Some(seqid);
            self.agreed = 0;
        }
        let Some(shards) = found else { return true };
        // Packets of two codes may agree with a third for a while, so that certainty must last for a whole group.
        self.agreed += 1;
        if self.agreed <= shards.group() {
            return true;
        }
        self.agreed = 0;
        self.code = ReedSolomon::new(shards.data.into(), shards.parity.into()).ok().map(Arc::new);
        self.stats.peer_changes += u64::from(self.peer_check.on_known(shards));
        self.detector = None;
        self.since = None;
        self.groups.set_size(shards.group() as usize);
        true
    }

    /// Keeps a shard, and recovers the missing data of its group if there are enough shards now.
    fn keep(
        &mut self,
        seqid: u32,
        is_data: bool,
        bytes: &[u8],
        conv: u32,
        deliver: impl FnMut(&[u8], Origin) -> Result<(), PacketError>,
    ) {
        let Some((data, parity)) = self.shards() else { return };
        // No group has more than 256.
        let index = seqid % (data + parity) as u32;
        let (first, index) = (seqid - index, index as usize);
        let Some(mut at) = self.group_of(first) else {
            self.stats.late += 1;
            return;
        };
        let group = &mut self.groups[at];
        if group.seen.contains(index) {
            return;
        }
        group.seen.insert(index);
        if group.done {
            self.stats.parity_wasted += u64::from(!is_data);
            return;
        }
        // The rest of a group that has no room is not kept either.
        if !self.make_room(&mut at, bytes.len() + BUFFER) {
            return self.give_up(at);
        }
        let group = &mut self.groups[at];
        self.limits.earn(bytes.len());
        let mut shard = self.pool.take(bytes.len());
        shard.extend_from_slice(bytes);
        group.shards[index] = Some(shard);
        group.data += usize::from(is_data);
        group.parity += usize::from(!is_data);
        if group.data == data {
            self.stats.groups_complete += 1;
            self.groups.finish(at, &mut self.pool);
        } else if group.data + group.parity >= data {
            self.recover(at, conv, deliver);
        }
    }

    /// Makes room for `more` bytes of the group at `at`, which older groups give way for: its place changes with each. Returns
    /// whether there is room then.
    fn make_room(&mut self, at: &mut usize, more: usize) -> bool {
        while !self.fits(more) {
            if *at == 0 {
                return false;
            }
            self.forget_first();
            *at -= 1;
        }
        true
    }

    /// Whether `more` bytes are within the limit of memory, once spare buffers are freed.
    fn fits(&mut self, more: usize) -> bool {
        let others = self.memory() - self.pool.bytes();
        let max = self.limits.bytes.checked_sub(others + more);
        max.is_some_and(|max| self.pool.fit(max))
    }

    /// The place of the group that begins at `first`. It is made if there is none, unless it is older than all groups kept.
    fn group_of(&mut self, first: u32) -> Option<usize> {
        // Nearly always it is the newest.
        let older =
            self.groups.iter().rposition(|group| is_before(group.first, first) || group.first == first);
        if let Some(at) = older.filter(|at| self.groups[*at].first == first) {
            self.strays = 0;
            return Some(at);
        }
        let at = older.map_or(0, |older| older + 1);
        let full = self.groups.is_full();
        if full && at == 0 {
            self.strays += 1;
            if self.strays < MAX_STRAYS {
                return None;
            }
            self.forget_groups();
            self.newest = Some(first);
            return self.group_of(first);
        }
        self.strays = 0;
        self.groups.insert(at, first);
        if full {
            self.forget_first();
            return Some(at - 1);
        }
        Some(at)
    }

    /// Computes the missing data shards of a group, hands over what they carry, and ends the group.
    fn recover(
        &mut self,
        mut at: usize,
        conv: u32,
        mut deliver: impl FnMut(&[u8], Origin) -> Result<(), PacketError>,
    ) {
        let Some(code) = self.code.clone() else { return };
        let group = &self.groups[at];
        let missing = code.data_shards() - group.data;
        // Parity shards of one group have one length. Room for the missing shards must be within the limit as well.
        let parity_len = group.parity_len(code.data_shards());
        let len = parity_len.unwrap_or(0);
        let room = missing * (len + code.data_shards() + BUFFER);
        let possible = parity_len.is_some() && self.make_room(&mut at, room);
        if !possible || !self.limits.spend(missing, self.groups[at].lengths()) {
            self.stats.parity_wasted += self.groups[at].parity as u64;
            self.stats.unrecoverable += missing as u64;
            tell!(gave_up(self.groups[at].first, missing as u64));
            // What costs more than is due is no sign of useless parity.
            if !possible {
                self.peer_check.on_recovery(false);
            }
            return self.groups.finish(at, &mut self.pool);
        }
        for _ in 0..missing {
            let mut shard = self.pool.take(len);
            shard.resize(len, 0);
            self.recovered.push(shard);
        }
        let group = &self.groups[at];
        // It fails for shards that do not belong to one group. Without encryption anybody can make such shards up.
        let done = code.reconstruct_data_into(&mut self.cache, &group.shards, &mut self.recovered);
        if done.is_err() {
            self.stats.parity_wasted += group.parity as u64;
        }
        let (first, before) = (group.first, self.stats.recovered);
        for shard in self.recovered.drain(..) {
            let payload = carried(&shard, conv).filter(|_| done.is_ok());
            // A segment that was received meanwhile is a duplicate, which does no harm.
            if payload.is_some_and(|payload| deliver(payload, Origin::Recovered).is_ok()) {
                self.stats.recovered += 1;
            } else {
                self.stats.unrecoverable += 1;
            }
            self.pool.give(shard);
        }
        tell!(recovered(first, self.stats.recovered - before));
        tell!(gave_up(first, missing as u64 + before - self.stats.recovered));
        self.peer_check.on_recovery(self.stats.recovered > before);
        self.groups.finish(at, &mut self.pool);
    }

    /// Ends a group whose data is incomplete.
    fn give_up(&mut self, at: usize) {
        let group = &self.groups[at];
        if group.done {
            return;
        }
        let data = self.shards().map_or(0, |(data, _)| data);
        self.stats.unrecoverable += (data - group.data.min(data)) as u64;
        tell!(gave_up(group.first, (data - group.data.min(data)) as u64));
        self.stats.parity_wasted += group.parity as u64;
        self.groups.finish(at, &mut self.pool);
    }

    fn forget_first(&mut self) {
        if !self.groups.is_empty() {
            self.give_up(0);
        }
        self.groups.pop_front();
    }

    fn forget_groups(&mut self) {
        while !self.groups.is_empty() {
            self.forget_first();
        }
        self.strays = 0;
    }

    /// The most bytes of shards that were kept at once.
    #[cfg(test)]
    pub(super) const fn peak(&self) -> usize {
        self.pool.peak()
    }

    /// Bytes of all memory kept, and of the lists of one group more.
    pub(super) fn memory(&self) -> usize {
        self.pool.bytes()
            + self.groups.memory()
            + self.recovered.capacity() * size_of::<Vec<u8>>()
            + self.undecoded.memory()
            + self.cache.memory()
            + self.detector.as_ref().map_or(0, |detector| size_of_val(&**detector))
            + self.code.as_ref().map_or(0, |code| code.memory())
    }

    /// Frees the memory that is kept for further traffic. Incomplete groups are given up: in an idle session, resends have
    /// already delivered what they could recover.
    pub(in crate::proto) fn trim(&mut self) {
        for at in 0..self.groups.len() {
            let group = &self.groups[at];
            // The last group without parity does not lack lost data: its sender has not sent it yet.
            if group.parity == 0 && at + 1 == self.groups.len() && !group.done {
                self.groups.finish(at, &mut self.pool);
            }
            self.give_up(at);
        }
        self.groups.trim();
        self.pool.trim();
        self.recovered = Vec::new();
        self.undecoded = SetAside::default();
        self.cache = DecodeCache::new();
    }
}

fn is_before(seqid: u32, other: u32) -> bool {
    (seqid.wrapping_sub(other) as i32) < 0
}

/// The segments of a recovered shard, if it holds whole segments of `conv` and nothing else.
fn carried(shard: &[u8], conv: u32) -> Option<&[u8]> {
    let payload = packet::payload(shard)?;
    let padding = &shard[SIZE_LEN + payload.len()..];
    let mut len = 0;
    for segment in Segments::new(payload) {
        let (header, data) = segment.ok()?;
        if header.conv != conv {
            return None;
        }
        len += crate::proto::wire::HEADER_LEN + data.len();
    }
    let whole = len == payload.len() && len > 0 && is_zero(padding);
    whole.then_some(payload)
}

/// Whether all bytes are zero, as many at a time as vector instructions take.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|bytes| bytes.iter().fold(0, |all, byte| all | byte) == 0)
}
