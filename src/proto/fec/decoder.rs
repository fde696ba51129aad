//! The receiver's half of FEC: keeps the shards of the groups under way and computes what is missing.
//!
//! Data packets are handed on when they come; a shard of each is kept only until its group is complete or given up. With
//! nothing lost or reordered that is one group. At most [`MIN_GROUPS`], or 128 packets' worth, are kept, and [`MAX_BYTES`] in all.
//!
//! How many shards a group has is found out from the packets ([`Detector`]); until then shards are set aside. What the
//! session itself sends is not taken for the peer's: shards of a wrong code yield garbage, and not any. It is a linear
//! combination of packets, in which what all of them share (the conv, the command, the length) survives, with numbers and
//! data that are nobody's. So nothing is decoded before the detector has been certain for a whole group (packets from
//! before and after a change may leave a code possible that is neither's), one packet that contradicts the code ends it,
//! parity must name this conversation, and what is recovered must be exactly as long as it says, padded with zeros, and
//! whole segments of this conversation.
//! Our own senders leap in their numbers when they change, so that packets before and after are never taken together;
//! kcp-go's do not change.

use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec::Vec};

use super::{
    DecodeCache, ReedSolomon,
    detector::{Detector, Shards},
    notice::{FecEvent, Watch},
    packet::{self, Kind, LEAP, Packet, SIZE_LEN},
    pattern::Pattern,
    pool::ShardPool,
};
use crate::proto::{arq::Origin, error::PacketError, stats::FecStats, wire::Segments};

/// Groups kept, as in kcp-go: what is reordered farther than that is not waited for.
const MIN_GROUPS: usize = 3;
/// Packets whose groups are kept, where groups are small.
const MIN_PACKETS: usize = 128;
/// Bytes of shards kept, in groups and for those to come: 3 groups of 256 packets of 1,500 bytes, and more.
const MAX_BYTES: usize = 2 << 20;
/// Packets kept until the code is known: two groups of up to 64, which is when most codes are.
const MAX_UNDECODED: usize = 128;
/// Bytes of such a packet: any that fits an Ethernet's MTU.
const MAX_UNDECODED_LEN: usize = 1_500;
/// Packets that may be missing between two. A longer gap is a change, or long enough to begin anew.
const MAX_GAP: i32 = LEAP as i32 / 2;
/// Packets of groups long gone, one after the other, that mean that the peer counts anew.
const MAX_STRAYS: u32 = 32;

#[derive(Debug, Default)]
pub(in crate::proto) struct Decoder {
    /// The code of the peer, once it is known.
    code: Option<Arc<ReedSolomon>>,
    detector: Option<Box<Detector>>,
    /// What came while the code was not known, to be decoded once it is.
    undecoded: VecDeque<Undecoded>,
    /// In the order of their seqids.
    groups: VecDeque<Group>,
    /// Memory of the shards, of [`MAX_BYTES`] in all.
    pool: ShardPool,
    /// Of groups of this code that are gone, for those to come.
    spare_groups: Vec<Vec<Option<Vec<u8>>>>,
    /// Empty but while a group is recovered.
    recovered: Vec<Vec<u8>>,
    strays: u32,
    /// The seqid of the packet farthest on.
    newest: Option<u32>,
    /// Packets numbered before this are of the code before, while the new one is looked for.
    since: Option<u32>,
    /// Packets refused as late, one after the other.
    overtaken: u32,
    /// Packets that agreed with what the detector is certain of.
    agreed: u32,
    cache: DecodeCache,
    watch: Watch,
    stats: FecStats,
}

#[derive(Debug)]
struct Group {
    /// The seqid of its first shard.
    first: u32,
    /// Data, then parity; empty once all data was handed on.
    shards: Vec<Option<Vec<u8>>>,
    /// Those that came, kept or not.
    seen: Pattern,
    data: usize,
    parity: usize,
    done: bool,
}

#[derive(Debug)]
struct Undecoded {
    seqid: u32,
    is_data: bool,
    shard: Vec<u8>,
}

impl Decoder {
    /// A decoder of a session that sends groups of so many data and parity packets itself: a peer that does the same is
    /// no news.
    pub(in crate::proto) fn expecting(own: Option<(usize, usize)>) -> Self {
        let own = own.map(|(data, parity)| Shards { data: data as u16, parity: parity as u16 });
        Self { watch: Watch::new(own), ..Self::default() }
    }

    pub(in crate::proto) const fn stats(&self) -> FecStats {
        self.stats
    }

    /// Whether parity arrives from which nothing can be recovered.
    pub(in crate::proto) const fn is_undecodable(&self) -> bool {
        self.watch.is_undecodable()
    }

    /// What is to be told about the peer's FEC.
    pub(in crate::proto) fn take_event(&mut self) -> Option<FecEvent> {
        self.watch.take_event()
    }

    /// Data and parity shards of the peer's groups, as far as known.
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
                // A segment that is not understood is still one of its group.
                if matches!(outcome, Err(PacketError::WrongConv { .. })) {
                    return outcome;
                }
            }
            Kind::Parity => {
                self.stats.parity_received += 1;
                let ours = packet::parity_conv(packet.shard) == Some(conv);
                self.watch.on_parity(ours);
                // In what several parity packets of another session yield the conv may be right by accident.
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
            self.set_aside(packet);
            return outcome;
        }
        for earlier in core::mem::take(&mut self.undecoded) {
            self.keep(earlier.seqid, earlier.is_data, &earlier.shard, conv, &mut deliver);
        }
        self.keep(packet.seqid, is_data, packet.shard, conv, &mut deliver);
        outcome
    }

    /// Numbers that leap forward mean that the peer has changed its shards: ours leap when they do. What came before tells
    /// nothing about what follows.
    fn look_for_jump(&mut self, seqid: u32) {
        let ahead = self.newest.map_or(0, |newest| seqid.wrapping_sub(newest) as i32);
        if ahead > MAX_GAP {
            self.forget_groups();
            self.code = None;
            self.detector = None;
            self.undecoded.clear();
            self.agreed = 0;
            self.since = Some(seqid);
        }
        if ahead >= 0 {
            self.newest = Some(seqid);
        }
    }

    fn set_aside(&mut self, packet: &Packet<'_>) {
        if self.undecoded.len() == MAX_UNDECODED {
            self.undecoded.pop_front();
        }
        if packet.shard.len() <= MAX_UNDECODED_LEN {
            let (seqid, is_data) = (packet.seqid, packet.kind == Kind::Data);
            self.undecoded.push_back(Undecoded { seqid, is_data, shard: packet.shard.to_vec() });
        }
    }

    /// Gives the peer's code up if this packet disagrees with it, and looks for the right one. Whether the packet is of
    /// use: not if it is late, and of the code before perhaps.
    fn check_code(&mut self, seqid: u32, is_data: bool) -> bool {
        if let Some(code) = &self.code {
            if Shards::of(code).agrees(seqid, is_data) {
                self.watch.on_agreed();
                self.overtaken = 0;
                return true;
            }
            let first = self.groups.front().map(|group| group.first);
            if first.is_some_and(|first| is_before(seqid, first)) && self.overtaken < MAX_STRAYS {
                self.overtaken += 1;
                return false;
            }
            self.stats.mismatches += 1;
            self.forget_groups();
            self.code = None;
            self.since = Some(seqid);
            self.newest = Some(seqid);
        }
        if self.since.is_some_and(|since| is_before(seqid, since)) {
            if self.overtaken < MAX_STRAYS {
                self.overtaken += 1;
                return false;
            }
            // So many are not late: what was farther on is none of the peer's numbers.
            self.since = None;
            self.newest = Some(seqid);
            self.detector = None;
            self.undecoded.clear();
            self.agreed = 0;
        }
        self.overtaken = 0;
        self.watch.on_unknown(is_data);
        let detector = self.detector.get_or_insert_with(|| Box::new(Detector::new()));
        let (found, anew) = detector.observe(seqid, is_data);
        if anew {
            self.undecoded.clear();
            self.since = Some(seqid);
            self.agreed = 0;
        }
        let Some(shards) = found else { return true };
        // Packets of two codes may leave a third possible for a while: what is certain must hold for a group.
        self.agreed += 1;
        if self.agreed <= shards.group() {
            return true;
        }
        self.agreed = 0;
        self.code = ReedSolomon::new(shards.data.into(), shards.parity.into()).ok().map(Arc::new);
        self.stats.peer_changes += u64::from(self.watch.on_known(shards));
        self.detector = None;
        self.since = None;
        self.spare_groups.clear();
        true
    }

    /// Keeps a shard, and recovers what its group lacks if that can be done now.
    fn keep(
        &mut self,
        seqid: u32,
        is_data: bool,
        bytes: &[u8],
        conv: u32,
        deliver: impl FnMut(&[u8], Origin) -> Result<(), PacketError>,
    ) {
        let Some(code) = self.code.clone() else { return };
        let size = code.data_shards() + code.parity_shards();
        let index = seqid as usize % size;
        let Some(at) = self.group_of(seqid - index as u32, size) else {
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
        let mut shard = self.pool.take(bytes.len());
        shard.extend_from_slice(bytes);
        group.shards[index] = Some(shard);
        group.data += usize::from(is_data);
        group.parity += usize::from(!is_data);
        if group.data == code.data_shards() {
            self.stats.groups_complete += 1;
            self.finish(at);
        } else if group.data + group.parity >= code.data_shards() {
            self.recover(&code, at, conv, deliver);
            self.finish(at);
        }
        while !self.pool.fit(MAX_BYTES) && !self.groups.is_empty() {
            self.forget_first();
        }
    }

    /// The group that begins at `first`, made unless it is older than those kept.
    fn group_of(&mut self, first: u32, size: usize) -> Option<usize> {
        let newer = self.groups.iter().position(|group| (group.first.wrapping_sub(first) as i32) >= 0);
        let at = newer.unwrap_or(self.groups.len());
        if self.groups.get(at).is_some_and(|group| group.first == first) {
            self.strays = 0;
            return Some(at);
        }
        let full = self.groups.len() >= (MIN_PACKETS / size).max(MIN_GROUPS);
        if full && at == 0 {
            self.strays += 1;
            if self.strays < MAX_STRAYS {
                return None;
            }
            self.forget_groups();
            self.newest = Some(first);
            return self.group_of(first, size);
        }
        self.strays = 0;
        let mut shards = self.spare_groups.pop().unwrap_or_default();
        shards.resize_with(size, || None);
        self.groups
            .insert(at, Group { first, shards, seen: Pattern::default(), data: 0, parity: 0, done: false });
        if full {
            self.forget_first();
            return Some(at - 1);
        }
        Some(at)
    }

    /// Computes the missing data shards of a group and hands over what they carry.
    fn recover(
        &mut self,
        code: &ReedSolomon,
        at: usize,
        conv: u32,
        mut deliver: impl FnMut(&[u8], Origin) -> Result<(), PacketError>,
    ) {
        let group = &self.groups[at];
        let missing = code.data_shards() - group.data;
        let parity = &group.shards[code.data_shards()..];
        let len = parity.iter().flatten().map(Vec::len).next().unwrap_or(0);
        // Parity of one group is of one length; room for what is missing must be within the bound as well.
        let one_length = parity.iter().flatten().all(|shard| shard.len() == len);
        if !one_length || !self.pool.fit(MAX_BYTES.saturating_sub(missing * len)) {
            self.stats.parity_wasted += group.parity as u64;
            self.stats.unrecoverable += missing as u64;
            self.watch.on_recovery(false);
            return;
        }
        for _ in 0..missing {
            let mut shard = self.pool.take(len);
            shard.resize(len, 0);
            self.recovered.push(shard);
        }
        // Fails for shards that are not of one group, which a peer without a key to be held to can make up.
        let done = code.reconstruct_data_into(&mut self.cache, &group.shards, &mut self.recovered);
        if done.is_err() {
            self.stats.parity_wasted += group.parity as u64;
        }
        let before = self.stats.recovered;
        for shard in self.recovered.drain(..) {
            let payload = carried(&shard, conv).filter(|_| done.is_ok());
            // Segments that were received meanwhile do no harm.
            if payload.is_some_and(|payload| deliver(payload, Origin::Recovered).is_ok()) {
                self.stats.recovered += 1;
            } else {
                self.stats.unrecoverable += 1;
            }
            self.pool.give(shard);
        }
        self.watch.on_recovery(self.stats.recovered > before);
    }

    /// The group is of no further use: its shards are given back.
    fn finish(&mut self, at: usize) {
        let group = &mut self.groups[at];
        group.done = true;
        let mut shards = core::mem::take(&mut group.shards);
        for shard in shards.drain(..).flatten() {
            self.pool.give(shard);
        }
        self.spare_groups.push(shards);
    }

    /// Finishes a group that lacks shards.
    fn give_up(&mut self, at: usize) {
        let group = &self.groups[at];
        if group.done {
            return;
        }
        let data = self.shards().map_or(0, |(data, _)| data);
        self.stats.unrecoverable += (data - group.data.min(data)) as u64;
        self.stats.parity_wasted += group.parity as u64;
        self.finish(at);
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

    /// Bytes of all that is kept.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        let groups = self.groups.iter().map(|group| &group.shards).chain(&self.spare_groups);
        let entries: usize = groups.map(Vec::capacity).sum();
        let undecoded: usize = self.undecoded.iter().map(|packet| packet.shard.capacity()).sum();
        self.pool.bytes()
            + entries * size_of::<Option<Vec<u8>>>()
            + self.recovered.capacity() * size_of::<Vec<u8>>()
            + self.groups.capacity() * size_of::<Group>()
            + self.undecoded.capacity() * size_of::<Undecoded>()
            + undecoded
            + self.cache.memory()
    }

    /// Gives memory that is kept for further traffic back. Groups under way are left to resends, which have taken the
    /// place of what they could recover.
    pub(in crate::proto) fn trim(&mut self) {
        for at in 0..self.groups.len() {
            let group = &self.groups[at];
            // Without parity, the data that the last one lacks is not lost but yet to be sent.
            if group.parity == 0 && at + 1 == self.groups.len() && !group.done {
                self.finish(at);
            }
            self.give_up(at);
        }
        self.groups.shrink_to_fit();
        self.pool.trim();
        self.spare_groups = Vec::new();
        self.recovered = Vec::new();
        self.undecoded = VecDeque::new();
        self.cache = DecodeCache::new();
    }
}

fn is_before(seqid: u32, other: u32) -> bool {
    (seqid.wrapping_sub(other) as i32) < 0
}

/// What a recovered shard carries, if that is nothing but whole segments of `conv`.
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
    let whole = len == payload.len() && len > 0 && padding.iter().all(|byte| *byte == 0);
    whole.then_some(payload)
}
