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

    /// The sn behind the last segment that has arrived, in order or not.
    pub(in crate::proto) const fn newest_received(&self) -> u32 {
        self.recv.newest_end()
    }

    /// The peer sends nothing from `end` on, and has sent nothing from there on.
    pub(in crate::proto) const fn set_end(&mut self, end: u32) {
        self.recv.set_end(end);
    }

    /// Neither keeps nor acknowledges what is new from here on. The window is closed.
    pub(in crate::proto) fn refuse(&mut self) {
        self.discard_unread();
        self.recv.refuse();
    }

    /// Takes in whatever comes, as at the beginning.
    pub(in crate::proto) const fn accept_all(&mut self) {
        self.recv.accept_all();
        self.tell_window = true;
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

    // ---- Times of what is sent beside the stream ----

    pub(in crate::proto) const fn rto(&self) -> Duration {
        self.path.rtt().rto()
    }

    /// The longest wait for an answer.
    pub(in crate::proto) const fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// Something was sent that the peer must answer.
    pub(in crate::proto) fn on_sent_beside(&mut self, now: Instant) {
        self.path.liveness.on_send(now);
    }
}
