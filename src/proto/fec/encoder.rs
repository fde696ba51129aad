//! The sender's half of FEC: numbers packets, and makes the parity of each group while its data packets go out.

use alloc::sync::Arc;
use core::time::Duration;

use super::{
    ParityAccumulator, ReedSolomon,
    adaptive::Credit,
    packet::{self, LEAP, SHARD_AT},
};
use crate::proto::time::Instant;

/// A group sends no parity where its last data packet comes this long after the one before. This is kcp-go's rule: by then,
/// missing packets have been resent.
const MAX_GAP: Duration = Duration::from_millis(500);

/// Makes the FEC packets of one session. No data is kept: each data packet is added to the parity when it is sent.
///
/// A group may send only a part of its parity ([`limit`](Self::limit)). The numbers of the other parity packets are skipped.
/// Those packets are not computed either, because a parity row does not depend on how many rows there are.
#[derive(Debug)]
pub(in crate::proto) struct Encoder {
    code: Arc<ReedSolomon>,
    /// The code of the current group, where that has fewer parity packets than `code`.
    shorter: Option<Arc<ReedSolomon>>,
    /// Parity packets that the current group computes.
    rows: usize,
    /// Parity packets of the next groups, and their budget in percent of the data. `None` for all parity, always.
    limit: Option<(usize, u32)>,
    /// What the budget allows to be sent.
    credit: Credit,
    /// The current group is one of the first, to which no budget applies.
    exempt: bool,
    /// Parity packets that the current group sends once its data is complete.
    to_send: usize,
    parity: ParityAccumulator,
    /// The number of the next packet.
    seqid: u32,
    /// The number at which numbering begins again at 0.
    wrap: u32,
    /// Data packets of the current group so far.
    data: usize,
    /// While parity is being sent: how many parity packets of the current group were.
    parity_sent: Option<usize>,
    /// When the last data packet was sent.
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

    /// The least number at which an encoder with another code may begin. It is as far ahead where the numbers wrap.
    pub(in crate::proto) const fn next_seqid(&self) -> u32 {
        self.seqid.wrapping_add(LEAP)
    }

    /// Data and parity packets of a group.
    pub(in crate::proto) fn shards(&self) -> (usize, usize) {
        (self.code.data_shards(), self.code.parity_shards())
    }

    /// Uses another code from the next group on. To be called between groups only. The new code's first group begins at a
    /// multiple of its size, after a gap in the numbers.
    pub(in crate::proto) fn set_code(&mut self, code: Arc<ReedSolomon>) {
        debug_assert!(self.is_between_groups());
        let last_data = self.last_data;
        *self = Self { last_data, ..Self::starting_at(code, self.next_seqid()) };
    }

    /// Limits what the next groups send: the number of their parity packets, and the bytes of these in percent of their data (the
    /// budget). The first groups of a session send all parity. `None` for no limit.
    pub(in crate::proto) const fn limit(&mut self, limit: Option<(usize, u32)>) {
        self.limit = limit;
    }

    /// Parity packets that the next groups send.
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

    /// The code of the current group.
    fn group_code(&self) -> &Arc<ReedSolomon> {
        self.shorter.as_ref().unwrap_or(&self.code)
    }

    /// Completes a data packet, whose payload begins after [`packet::HEADER_LEN`] free bytes. All parity of the group before must
    /// have been [taken](Self::parity).
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

    /// Frees the memory that is kept for further traffic.
    pub(in crate::proto) fn trim(&mut self) {
        if self.is_between_groups() {
            self.parity = ParityAccumulator::new();
        }
    }

    /// Skips the parity that is due, and its numbers.
    pub(in crate::proto) fn skip_parity(&mut self) {
        if let Some(sent) = self.parity_sent {
            self.to_send = sent;
            self.end_if_sent();
        }
    }

    /// How many parity packets of the complete group the budget allows.
    fn affordable(&mut self) -> usize {
        let len = SHARD_AT + self.parity.len();
        if self.limit.is_none() || self.exempt { self.rows } else { self.credit.spend(self.rows, len) }
    }

    /// Bytes of the parity packet that is due: its FEC header and the parity.
    pub(in crate::proto) fn parity_len(&self) -> Option<usize> {
        self.parity_sent.map(|_| SHARD_AT + self.parity.len())
    }

    /// Writes the parity packet that is due. `packet` must have its length.
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

    /// Ends the group once all parity that it sends is sent. The numbers of the other parity packets are skipped.
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
