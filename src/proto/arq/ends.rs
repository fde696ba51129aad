//! What the end of a session means for its queues: which segments are still taken in, and what is given up.

use core::time::Duration;

use super::Arq;
use crate::proto::time::Instant;

impl Arq {
    // ---- Receiving ----

    /// The next sn in order: everything before has arrived.
    pub(in crate::proto) const fn rcv_nxt(&self) -> u32 {
        self.recv.nxt()
    }

    /// Neither keeps nor acknowledges what is new from here on. The window is closed.
    pub(in crate::proto) fn refuse(&mut self) {
        self.discard_unread();
        self.recv.refuse();
    }

    /// Takes in whatever comes, as at the beginning.
    pub(in crate::proto) const fn accept_all(&mut self) {
        if self.recv.is_limited() {
            self.recv.accept_all();
            self.tell_window = true;
        }
    }

    /// Drops what the application has not read. It stays acknowledged.
    pub(in crate::proto) fn discard_unread(&mut self) {
        if self.recv.unread_segments() > 0 {
            self.recv.discard();
            self.after_read(0);
        }
    }

    /// Segments that were neither kept nor acknowledged so far.
    pub(in crate::proto) const fn refused(&self) -> u64 {
        self.counters.segments.out_of_window
    }

    // ---- Sending ----

    /// The sn of the next new segment.
    pub(in crate::proto) const fn snd_nxt(&self) -> u32 {
        self.buffer.nxt()
    }

    /// Whether every byte written is in some segment that was sent.
    pub(in crate::proto) const fn is_all_sent(&self) -> bool {
        self.queue.unsent() == 0
    }

    /// Gives up what was written and not acknowledged: the peer does not want it.
    pub(in crate::proto) fn abandon(&mut self, now: Instant) {
        self.queue.abandon();
        self.buffer.abandon();
        self.fec_flush.clear(self.buffer.nxt());
        self.flush_at = None;
        self.early_at = None;
        self.early_due = false;
        self.path.liveness.on_given_up();
        self.update_probe(now);
    }

    /// Whether nothing waits that would tell the peer what has arrived.
    pub(in crate::proto) const fn has_told_all(&self) -> bool {
        self.acks.is_empty() && !self.has_control()
    }

    pub(in crate::proto) const fn rto(&self) -> Duration {
        self.path.rtt().rto()
    }
}
