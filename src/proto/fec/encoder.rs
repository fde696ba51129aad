//! The sender's half of FEC: numbers packets, and makes the parity of each group as its data packets go out.

use alloc::sync::Arc;
use core::time::Duration;

use super::{
    ParityAccumulator, ReedSolomon,
    adaptive::Credit,
    packet::{self, LEAP, SHARD_AT},
};
use crate::proto::time::Instant;

/// A group whose last data packet comes this long after the one before sends no parity: kcp-go's rule. Its receiver has
/// asked for what it misses by then.
const MAX_GAP: Duration = Duration::from_millis(500);

/// Makes the FEC packets of one session. No data is kept: each data packet is added to the parity when it is sent.
///
/// A group may send less than its parity ([`limit`](Self::limit)); the numbers of the rest are left out. What is not to
/// be sent is not computed either: parity rows do not depend on how many there are.
#[derive(Debug)]
pub(in crate::proto) struct Encoder {
    code: Arc<ReedSolomon>,
    /// The code of fewer parity packets that the group under way uses, if it does.
    shorter: Option<Arc<ReedSolomon>>,
    /// Parity packets that the group under way computes.
    rows: usize,
    /// Those of the groups to come, and their budget in percent of the data; `None` for all of them.
    limit: Option<(usize, u32)>,
    credit: Credit,
    /// The group under way is one of the first, which no budget binds.
    exempt: bool,
    /// Parity packets that the group sends, once its data is complete.
    to_send: usize,
    parity: ParityAccumulator,
    seqid: u32,
    /// Where the seqids begin again at 0.
    wrap: u32,
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
        let wrap = packet::seqid_wrap(group);
        let seqid = seqid.div_ceil(group).checked_mul(group).unwrap_or(0) % wrap;
        Self {
            wrap,
            rows: code.parity_shards(),
            code,
            shorter: None,
            limit: None,
            credit: Credit::default(),
            exempt: false,
            to_send: 0,
            parity: ParityAccumulator::new(),
            seqid,
            data: 0,
            parity_sent: None,
            last_data: None,
        }
    }

    /// Whether no group is under way.
    pub(in crate::proto) const fn is_between_groups(&self) -> bool {
        self.data == 0
    }

    /// From where on an encoder with other shards may number its packets: as far ahead across the end of the numbers.
    pub(in crate::proto) const fn next_seqid(&self) -> u32 {
        self.seqid.wrapping_add(LEAP)
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

    /// Has the groups to come send no more than `parity` of their parity packets, and no more bytes of them than `budget`
    /// percent of their data; the first ones send all. `None` for no limit.
    pub(in crate::proto) const fn limit(&mut self, limit: Option<(usize, u32)>) {
        self.limit = limit;
    }

    /// Parity packets of the groups to come.
    pub(in crate::proto) fn sent_parity(&self) -> usize {
        let all = self.code.parity_shards();
        self.limit.map_or(all, |(parity, _)| parity.min(all))
    }

    fn begin_group(&mut self) {
        let all = self.code.parity_shards();
        self.exempt = self.limit.is_some() && self.credit.is_first_group();
        let rows = if self.exempt { all } else { self.sent_parity() };
        if rows != self.rows {
            self.rows = rows;
            self.shorter = (1..all)
                .contains(&rows)
                .then(|| ReedSolomon::new(self.code.data_shards(), rows).ok().map(Arc::new))
                .flatten();
        }
    }

    /// The code of the group under way.
    fn group_code(&self) -> &Arc<ReedSolomon> {
        self.shorter.as_ref().unwrap_or(&self.code)
    }

    /// Completes a data packet, whose payload stands behind [`packet::HEADER_LEN`] free bytes. All parity of the group
    /// before must have been taken.
    pub(in crate::proto) fn data(&mut self, now: Instant, packet: &mut [u8]) {
        debug_assert!(self.parity_len().is_none());
        if self.data == 0 {
            self.begin_group();
        }
        packet::write_data_header(packet, self.seqid);
        if self.rows > 0 {
            let code = self.shorter.as_ref().unwrap_or(&self.code);
            let added = self.parity.add(code, self.data, &packet[SHARD_AT..]);
            debug_assert!(added.is_ok());
        }
        if let Some((_, budget)) = self.limit {
            let group = self.rows * (SHARD_AT + self.parity.len());
            self.credit.earn(packet.len(), budget, group);
        }
        self.advance(1);
        self.data += 1;
        if self.data == self.code.data_shards() {
            let continuous = self.last_data.is_some_and(|last| now - last < MAX_GAP);
            self.to_send = if continuous { self.affordable() } else { 0 };
            self.parity_sent = Some(0);
            self.end_if_sent();
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
        if let Some(sent) = self.parity_sent {
            self.to_send = sent;
            self.end_if_sent();
        }
    }

    /// Parity packets of the complete group that the budget allows.
    fn affordable(&mut self) -> usize {
        let len = SHARD_AT + self.parity.len();
        if self.limit.is_none() || self.exempt { self.rows } else { self.credit.spend(self.rows, len) }
    }

    /// Bytes of the parity packet that is due, behind nothing: FEC header and parity.
    pub(in crate::proto) fn parity_len(&self) -> Option<usize> {
        self.parity_sent.map(|_| SHARD_AT + self.parity.len())
    }

    /// Writes the parity packet that is due; `packet` has its length.
    pub(in crate::proto) fn parity(&mut self, packet: &mut [u8]) {
        let Some(row) = self.parity_sent else { return };
        packet::write_parity_header(packet, self.seqid);
        if let Some(parity) = self.parity.rows(self.group_code()).nth(row) {
            packet[SHARD_AT..].copy_from_slice(parity);
        }
        self.advance(1);
        self.parity_sent = Some(row + 1);
        self.end_if_sent();
    }

    /// Ends the group if all parity that it sends is sent; the numbers of the rest are left out.
    fn end_if_sent(&mut self) {
        let Some(sent) = self.parity_sent.filter(|sent| *sent == self.to_send) else { return };
        self.advance((self.code.parity_shards() - sent) as u32);
        self.parity.clear();
        self.data = 0;
        self.parity_sent = None;
    }

    fn advance(&mut self, packets: u32) {
        self.seqid += packets;
        if self.seqid >= self.wrap {
            self.seqid -= self.wrap;
        }
    }
}
