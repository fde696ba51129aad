//! Packets set aside while the peer's group size is unknown, to be decoded once it is known.

use alloc::{collections::VecDeque, vec::Vec};

use super::packet::{Kind, Packet};

/// Longest packet that is set aside, in bytes: any that fits an Ethernet's MTU.
const MAX_LEN: usize = 1_500;

#[derive(Debug)]
pub(super) struct Undecoded {
    pub(super) seqid: u32,
    pub(super) is_data: bool,
    pub(super) shard: Vec<u8>,
}

/// The last packets that came.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    packets: VecDeque<Undecoded>,
    /// Bytes of their shards.
    bytes: usize,
}

impl SetAside {
    /// Adds a packet. Drops the oldest where there would be more than `max`.
    pub(super) fn push(&mut self, packet: &Packet<'_>, max: usize) {
        if max == 0 || packet.shard.len() > MAX_LEN {
            return;
        }
        if self.packets.len() >= max
            && let Some(oldest) = self.packets.pop_front()
        {
            self.bytes -= oldest.shard.capacity();
        }
        let shard = packet.shard.to_vec();
        self.bytes += shard.capacity();
        self.packets.push_back(Undecoded { seqid: packet.seqid, is_data: packet.kind == Kind::Data, shard });
    }

    /// Takes all of them out.
    pub(super) fn take(&mut self) -> VecDeque<Undecoded> {
        self.bytes = 0;
        core::mem::take(&mut self.packets)
    }

    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.bytes = 0;
    }

    /// Bytes of all that is kept.
    pub(super) fn memory(&self) -> usize {
        self.packets.capacity() * size_of::<Undecoded>() + self.bytes
    }
}
