//! Received batches, cut into runs of packets of one conversation: each is looked at once, and handed to its session with
//! those around it.

use super::Driver;
use crate::{
    net::{opener::Opened, socket::Received, table::Route},
    proto::{Instant, peek_conv},
};

/// Datagrams of one conversation, one behind the other in a batch.
#[derive(Debug)]
struct Run {
    conv: u32,
    /// Where in the batch its first packet begins.
    start: usize,
}

impl Driver {
    /// Decrypts a batch and hands each run of packets with one conv to its session.
    pub(super) fn route(&mut self, now: Instant, mut received: Received<'_>) {
        let (peer, size) = (received.peer, received.size);
        let Some(bytes) = received.bytes_mut().filter(|bytes| !bytes.is_empty()) else {
            self.shared.counters.dropped_short.add(1);
            return;
        };
        let opened = self.opener.open(&peer, bytes, size, &self.shared.counters);
        let bytes = received.bytes();
        let mut run: Option<Run> = None;
        let mut at = 0;
        while at < bytes.len() {
            let payload = opened.payload_at(bytes, at);
            let next = payload.and_then(peek_conv).map(|conv| Run { conv, start: at });
            if next.is_none() && opened.is_open(at) {
                self.shared.counters.dropped_short.add(1);
            }
            match (&run, next) {
                (Some(run), Some(next)) if run.conv == next.conv => {}
                (_, next) => {
                    if let Some(run) = std::mem::replace(&mut run, next) {
                        self.deliver(now, &received, &opened, &run, at);
                    }
                }
            }
            at += size;
        }
        if let Some(run) = run {
            self.deliver(now, &received, &opened, &run, bytes.len());
        }
        self.opener.recycle(opened);
    }

    /// The session of a route: mostly that of the packets before.
    fn find(&mut self, route: &Route) -> Option<u32> {
        if !self.table.get(self.found_last).is_some_and(|slot| slot.session.is_of(route)) {
            self.found_last = self.table.find(route)?;
        }
        Some(self.found_last)
    }

    /// Hands a run of packets, which ends at byte `end` of the batch, to its session, which it may open.
    fn deliver(&mut self, now: Instant, batch: &Received<'_>, opened: &Opened, run: &Run, end: usize) {
        let packets = &batch.bytes()[run.start..end];
        let route = (batch.peer, run.conv);
        let key = match self.find(&route) {
            Some(key) => {
                self.note_first_packets(key, packets, opened);
                Some(key)
            }
            None => self.open(now, route, batch.local_ip, packets, opened),
        };
        let Some(key) = key else { return };
        if let Some(slot) = self.table.get(key) {
            // Less would not be worth the memory that it keeps.
            let lent = (packets.len() >= batch.block.len() / 2).then_some(&*batch.block);
            slot.session.receive(now, packets, opened.size, lent);
        }
        self.touch(key);
    }
}
