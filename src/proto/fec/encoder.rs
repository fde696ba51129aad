//! The sender's half of FEC: numbers packets, and makes the parity of each group as its data packets go out.

use alloc::sync::Arc;
use core::time::Duration;

use super::{
    ParityAccumulator, ReedSolomon,
    packet::{self, LEAP, SHARD_AT},
};
use crate::proto::time::Instant;

/// A group whose last data packet comes this long after the one before sends no parity: kcp-go's rule. Its receiver has
/// asked for what it misses by then.
const MAX_GAP: Duration = Duration::from_millis(500);

/// Makes the FEC packets of one session. No data is kept: each data packet is added to the parity when it is sent.
#[derive(Debug)]
pub(in crate::proto) struct Encoder {
    code: Arc<ReedSolomon>,
    parity: ParityAccumulator,
    seqid: u32,
    /// Data packets of the group so far.
    data: usize,
    /// Parity packets of the group that were handed out, while its data is complete.
    parity_sent: Option<usize>,
    last_data: Option<Instant>,
}

impl Encoder {
    pub(in crate::proto) fn new(code: Arc<ReedSolomon>) -> Self {
        Self::starting_at(code, 0)
    }

    /// An encoder whose first group begins at the first multiple of its size from `seqid` on.
    pub(in crate::proto) fn starting_at(code: Arc<ReedSolomon>, seqid: u32) -> Self {
        let group = (code.data_shards() + code.parity_shards()) as u32;
        let seqid = seqid.div_ceil(group).checked_mul(group).unwrap_or(0) % packet::seqid_wrap(group);
        Self { code, parity: ParityAccumulator::new(), seqid, data: 0, parity_sent: None, last_data: None }
    }

    /// Whether no group is under way.
    pub(in crate::proto) const fn is_between_groups(&self) -> bool {
        self.data == 0
    }

    /// From where on an encoder with other shards may number its packets.
    pub(in crate::proto) fn next_seqid(&self) -> u32 {
        self.seqid.checked_add(LEAP).unwrap_or(0)
    }

    /// Data and parity packets of a group.
    pub(in crate::proto) fn shards(&self) -> (usize, usize) {
        (self.code.data_shards(), self.code.parity_shards())
    }

    /// Has the groups to come use another code. Between groups only: its first group begins at a multiple of its size,
    /// behind a leap.
    pub(in crate::proto) fn set_code(&mut self, code: Arc<ReedSolomon>) {
        debug_assert!(self.is_between_groups());
        let last_data = self.last_data;
        *self = Self { last_data, ..Self::starting_at(code, self.next_seqid()) };
    }

    /// Completes a data packet, whose payload stands behind [`packet::HEADER_LEN`] free bytes. All parity of the group
    /// before must have been taken.
    pub(in crate::proto) fn data(&mut self, now: Instant, packet: &mut [u8]) {
        debug_assert!(self.parity_len().is_none());
        packet::write_data_header(packet, self.seqid);
        let added = self.parity.add(&self.code, self.data, &packet[SHARD_AT..]);
        debug_assert!(added.is_ok());
        self.advance(1);
        self.data += 1;
        if self.data == self.code.data_shards() {
            if self.last_data.is_some_and(|last| now - last < MAX_GAP) {
                self.parity_sent = Some(0);
            } else {
                self.advance(self.code.parity_shards() as u32);
                self.end_group();
            }
        }
        self.last_data = Some(now);
    }

    /// Gives memory that is kept for further traffic back.
    pub(in crate::proto) fn trim(&mut self) {
        if self.is_between_groups() {
            self.parity = ParityAccumulator::new();
        }
    }

    /// Leaves the parity that is due out; its numbers are used.
    pub(in crate::proto) fn skip_parity(&mut self) {
        let Some(sent) = self.parity_sent else { return };
        self.advance((self.code.parity_shards() - sent) as u32);
        self.end_group();
    }

    /// Bytes of the parity packet that is due, behind nothing: FEC header and parity.
    pub(in crate::proto) fn parity_len(&self) -> Option<usize> {
        self.parity_sent.map(|_| SHARD_AT + self.parity.len())
    }

    /// Writes the parity packet that is due; `packet` has its length.
    pub(in crate::proto) fn parity(&mut self, packet: &mut [u8]) {
        let Some(row) = self.parity_sent else { return };
        packet::write_parity_header(packet, self.seqid);
        if let Some(parity) = self.parity.rows(&self.code).nth(row) {
            packet[SHARD_AT..].copy_from_slice(parity);
        }
        self.advance(1);
        self.parity_sent = Some(row + 1);
        if row + 1 == self.code.parity_shards() {
            self.end_group();
        }
    }

    fn end_group(&mut self) {
        self.parity.clear();
        self.data = 0;
        self.parity_sent = None;
    }

    fn advance(&mut self, packets: u32) {
        let group = (self.code.data_shards() + self.code.parity_shards()) as u32;
        self.seqid = (self.seqid + packets) % packet::seqid_wrap(group);
    }
}
