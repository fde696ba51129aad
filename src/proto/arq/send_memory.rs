//! What the send buffer may hold: what was written and is not acknowledged.
//!
//! A stream position tells half of its numbers apart, and sessions may share their [memory](crate::proto::memory). Both are one
//! comparison for a write that finds room. A write of a stream takes what there is room for. A message can only go whole, and is
//! refused where there is no room for all of it.
//!
//! A writer that was refused is woken when the peer acknowledges something. There is always something to acknowledge, because the
//! floor has room for a few segments, with one exception: a message that is longer than the floor may find no memory although nothing
//! is in flight. Other sessions have it, and they wake nobody here. So this session looks again by a timer.

use alloc::boxed::Box;
use core::time::Duration;

use super::bytes_queue::BytesQueue;
use crate::proto::{
    memory::{BufferMemory, FLOOR, SendShare},
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
    share: SendShare,
    /// Bytes that may be held without asking for more.
    limit: usize,
    /// The message that was refused last, until there is room for it.
    refused: Option<Box<Refused>>,
}

/// A message that waits for memory.
#[derive(Debug)]
struct Refused {
    len: usize,
    /// When it is looked whether there is memory for it.
    retry_at: Instant,
    wait: Duration,
}

impl SendMemory {
    pub(super) fn new(mss: usize) -> Self {
        Self { share: SendShare::unbounded(floor(mss)), limit: MAX_HELD, refused: None }
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

    /// Whether there is plain room for `more` bytes.
    #[inline]
    pub(super) const fn has_plain_room(&self, bytes: &BytesQueue, more: usize) -> bool {
        bytes.len() + more <= self.limit
    }

    /// Takes memory for as many of `wanted` bytes as there is some for, and returns how many these are.
    #[cold]
    pub(super) fn make_room(&mut self, bytes: &mut BytesQueue, wanted: usize) -> usize {
        let needed = bytes.len() + wanted;
        if !self.grow_by_shedding(bytes, needed) {
            // As much as there is.
            self.share.grow_to(needed.min(self.share.attainable()));
            self.share.count_refused();
        }
        self.update();
        wanted.min(self.limit.saturating_sub(bytes.len()))
    }

    /// Whether there is room for all of a message of `len` bytes.
    #[inline]
    pub(super) fn has_room_for_all(&mut self, now: Instant, bytes: &mut BytesQueue, len: usize) -> bool {
        if self.has_plain_room(bytes, len) || self.make_room_for_all(bytes, len) {
            self.refused = None;
            return true;
        }
        self.note_refused(now, len);
        false
    }

    #[cold]
    fn note_refused(&mut self, now: Instant, len: usize) {
        let first = || Box::new(Refused { len, retry_at: now + FIRST_WAIT, wait: FIRST_WAIT });
        self.refused.get_or_insert_with(first).len = len;
    }

    #[cold]
    fn make_room_for_all(&mut self, bytes: &mut BytesQueue, len: usize) -> bool {
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

    /// Whether there is room for what was refused last, or for a byte.
    pub(super) fn has_room_for_refused(&self, bytes: &BytesQueue) -> bool {
        let needed = bytes.len() + self.refused.as_ref().map_or(1, |refused| refused.len);
        needed <= self.limit || needed <= self.share.attainable().min(MAX_HELD)
    }

    // ---- Time ----

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.refused.as_ref().map(|refused| refused.retry_at)
    }

    /// Looks whether there is room by now. If not, it looks again later, and later each time.
    #[inline]
    pub(super) fn on_timeout(&mut self, now: Instant, bytes: &BytesQueue) {
        if self.refused.is_some() {
            self.retry(now, bytes);
        }
    }

    #[cold]
    fn retry(&mut self, now: Instant, bytes: &BytesQueue) {
        let has_room = self.has_room_for_refused(bytes);
        let Some(refused) = self.refused.as_mut().filter(|refused| refused.retry_at <= now) else { return };
        if has_room {
            // If others take it first, the next try is refused, and counts as a first one.
            self.refused = None;
        } else {
            refused.wait = (2 * refused.wait).min(MAX_WAIT);
            refused.retry_at = now + refused.wait;
        }
    }

    // ---- Taking and giving back ----

    /// Has the share follow what is held. Where memory is short, or a message waits for some, spare chunks are freed.
    #[inline(never)]
    pub(super) fn settle(&mut self, bytes: &mut BytesQueue) {
        let spare = bytes.spare_bytes();
        let is_wanting = self.refused.is_some() || self.share.is_short();
        if spare > 0 && (is_wanting || !self.share.settle(bytes.len() + spare)) {
            bytes.trim();
        }
        if self.refused.is_some() {
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
