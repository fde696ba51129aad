//! Packets set aside while the peer's group size is unknown, to be decoded once it is known.

use alloc::{collections::VecDeque, vec::Vec};

use super::packet::{Kind, Packet};

/// Longest packet that is set aside, in bytes: any that fits an Ethernet's MTU.
const MAX_LEN: usize = 1_500;
/// Packets that are set aside at the most: two groups of up to 64. By then most group sizes are known.
const MAX_PACKETS: usize = 128;

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
    /// Adds a packet. The oldest give way where there would be more than [`MAX_PACKETS`] or `max` bytes.
    pub(super) fn push(&mut self, packet: &Packet<'_>, max: usize) {
        if packet.shard.len() > MAX_LEN {
            return;
        }
        while self.packets.len() >= MAX_PACKETS || self.bytes + packet.shard.len() > max {
            let Some(oldest) = self.packets.pop_front() else { break };
            self.bytes -= oldest.shard.capacity();
        }
        let shard = packet.shard.to_vec();
        self.bytes += shard.capacity();
        self.packets.push_back(Undecoded { seqid: packet.seqid, is_data: packet.kind == Kind::Data, shard });
    }

    /// Takes the oldest out. With the last one, the memory is given back.
    pub(super) fn pop(&mut self) -> Option<Undecoded> {
        let oldest = self.packets.pop_front();
        match &oldest {
            Some(oldest) => self.bytes -= oldest.shard.capacity(),
            None => self.packets = VecDeque::new(),
        }
        oldest
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
