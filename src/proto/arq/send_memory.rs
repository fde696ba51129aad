//! What the send buffer may hold: what was written and is not acknowledged.
//!
//! A stream position tells half of its numbers apart, and sessions may share their [memory](crate::proto::memory). Both are one
//! comparison for a write that finds room. A write of a stream takes what there is room for. A message can only go whole, and is
//! refused where there is no room for all of it.
//!
//! A writer that was refused is woken when the peer acknowledges something. There is always something to acknowledge, because the
//! floor has room for a few segments, with one exception: a message that is longer than the floor may find no memory although nothing
//! is in flight. Other sessions have it, and they wake nobody here. So this session looks again by a timer.

use core::time::Duration;

use super::bytes_queue::BytesQueue;
use crate::proto::{
    memory::{BufferMemory, Direction, FLOOR, MemoryShare},
    time::Instant,
};

/// Most bytes from the first that is not acknowledged to the last that is written: half of what stream positions can tell
/// apart. Only the largest window with the largest packets gets there.
const MAX_HELD: usize = 1 << 31;
/// How soon a message that waits for memory is tried again, and how late at most.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const MAX_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct SendMemory {
    share: MemoryShare,
    /// Bytes that may be held without asking for more.
    limit: usize,
    /// Bytes of the message that was refused last, until there is room for it.
    refused: usize,
    /// When it is looked whether there is memory for it.
    retry_at: Option<Instant>,
    wait: Duration,
}

impl SendMemory {
    pub(super) fn new(mss: usize) -> Self {
        let share = MemoryShare::unbounded(Direction::Sending, floor(mss));
        Self { share, limit: MAX_HELD, refused: 0, retry_at: None, wait: FIRST_WAIT }
    }

    pub(super) fn join(&mut self, memory: &BufferMemory) {
        self.share.join(memory);
        self.update();
    }

    pub(super) fn set_mss(&mut self, mss: usize) {
        self.share.set_floor(floor(mss));
        self.update();
    }

    /// Follows a change of the share. What is written goes to spare chunks first, so that these take nothing of it.
    fn update(&mut self) {
        self.limit = self.share.allowed().min(MAX_HELD);
    }

    // ---- Writing ----

    /// How many of `wanted` bytes there is room for, `None` for none.
    #[inline]
    pub(super) fn room(&mut self, bytes: &mut BytesQueue, wanted: usize) -> Option<usize> {
        if bytes.len() + wanted <= self.limit { Some(wanted) } else { self.more_room(bytes, wanted) }
    }

    #[cold]
    fn more_room(&mut self, bytes: &mut BytesQueue, wanted: usize) -> Option<usize> {
        let needed = bytes.len() + wanted;
        if !self.grow_by_shedding(bytes, needed) {
            // As much as there is.
            self.share.grow_to(needed.min(self.share.attainable()));
            self.share.count_refused();
        }
        self.update();
        Some(wanted.min(self.limit.saturating_sub(bytes.len()))).filter(|room| *room > 0)
    }

    /// Whether there is room for all of a message of `len` bytes.
    #[inline]
    pub(super) fn has_room_for_all(&mut self, now: Instant, bytes: &mut BytesQueue, len: usize) -> bool {
        if bytes.len() + len <= self.limit || self.more_room_for_all(bytes, len) {
            if self.refused > 0 {
                self.forget_refused();
            }
            return true;
        }
        self.refused = len;
        self.retry_at.get_or_insert(now + self.wait);
        false
    }

    #[cold]
    fn more_room_for_all(&mut self, bytes: &mut BytesQueue, len: usize) -> bool {
        let needed = bytes.len() + len;
        if needed > MAX_HELD {
            return false;
        }
        let has_room = self.grow_by_shedding(bytes, needed);
        self.update();
        if !has_room {
            self.share.count_refused();
        }
        has_room
    }

    /// Takes what is missing to hold `needed` bytes, if need be by freeing spare chunks: who has nothing is granted more.
    fn grow_by_shedding(&mut self, bytes: &mut BytesQueue, needed: usize) -> bool {
        if self.share.grow_to(needed) {
            return true;
        }
        if bytes.spare_bytes() == 0 {
            return false;
        }
        bytes.trim();
        self.share.give_back(bytes.len());
        self.share.grow_to(needed)
    }

    fn forget_refused(&mut self) {
        self.refused = 0;
        self.retry_at = None;
        self.wait = FIRST_WAIT;
    }

    /// Whether there is room for what was refused last, or for a byte.
    pub(super) fn has_room_for_refused(&self, bytes: &BytesQueue) -> bool {
        let needed = bytes.len() + self.refused.max(1);
        needed <= self.limit || needed <= self.share.attainable().min(MAX_HELD)
    }

    // ---- Time ----

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Looks whether there is room by now. If not, it looks again later, and later each time.
    #[inline]
    pub(super) fn on_timeout(&mut self, now: Instant, bytes: &BytesQueue) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry(now, bytes);
        }
    }

    #[cold]
    fn retry(&mut self, now: Instant, bytes: &BytesQueue) {
        if self.has_room_for_refused(bytes) {
            // If others take it first, the next try is refused, and counts as a first one.
            self.forget_refused();
        } else {
            self.wait = (2 * self.wait).min(MAX_WAIT);
            self.retry_at = Some(now + self.wait);
        }
    }

    // ---- Taking and giving back ----

    /// Has the share follow what is held. Where memory is short, or a message waits for some, spare chunks are freed.
    #[inline(never)]
    pub(super) fn settle(&mut self, bytes: &mut BytesQueue) {
        let spare = bytes.spare_bytes();
        let is_wanting = self.refused > 0 || self.share.is_short();
        if spare > 0 && (is_wanting || !self.share.settle(bytes.len() + spare)) {
            bytes.trim();
        }
        if self.refused > 0 {
            self.share.give_back(bytes.len());
        }
        self.share.settle(bytes.len() + bytes.spare_bytes());
        self.update();
    }

    /// Gives back all that is not needed.
    pub(super) fn give_back(&mut self, bytes: &BytesQueue) {
        self.share.give_back(bytes.len() + bytes.spare_bytes());
        self.update();
    }
}

/// What may be written without asking: a segment at least.
fn floor(mss: usize) -> usize {
    mss.max(2 * FLOOR)
}
