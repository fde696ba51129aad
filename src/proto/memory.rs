//! Memory that the buffers of many sessions share: see [`BufferMemory`].
//!
//! The windows of one session bound what it holds. What a million of them hold is bounded here, as `tcp_mem` bounds it in Linux:
//! each buffer has a little of its own, and takes the rest from what all share, in steps of [`STEP`], and gives it back.
//!
//! * **The floor.** A buffer may hold [`FLOOR`] bytes, or a segment of this end's mtu if that is more, without asking. So a session
//!   goes on where others have taken everything: its peer is told of a window of a few segments, its writer has room for a few, and
//!   no session ever waits for another one to be woken. It is also why most sessions of a large server never touch the shared
//!   counter.
//! * **No session has it all.** Who has something already is granted more as long as that is no more than [`SHARE`] of what is free,
//!   as in a switch whose queues share one memory ("dynamic thresholds", Choudhury and Hahne 1998). Who has nothing gets what is free.
//! * **Neither direction stops the other.** Each leaves a [quarter](DIRECTION) to the other. Else a program that copies from one session
//!   to another could wait for ever: its messages hold all memory where they arrived, and cannot be written. And so could two that send to
//!   each other: what they have written holds all memory at both ends, and cannot arrive.
//!
//! What is taken is never more than the limit. So all sessions together hold no more than the limit and their floors.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that a buffer may hold without asking: one of what a session receives, in order and once more out of order, and one of
/// what it sends twice as much.
pub(super) const FLOOR: usize = 8 << 10;
/// What is taken and given back at a time.
const STEP: usize = 16 << 10;
/// A buffer gives back what it does not need once that is more than so much, and all of it once it is within its floor: nobody tells
/// an idle session that others are in want.
const SLACK: usize = 2 * STEP;
/// Who has something takes no more than this part of what is free.
const SHARE: usize = 4;
/// A direction takes no more than so many parts of so many.
const DIRECTION: (usize, usize) = (3, 4);

/// Memory for the buffers of all sessions of an endpoint: what their peers sent and nobody has read, and what was written and is not
/// acknowledged. Clones are the same memory.
///
/// A session without it ([`Connection::set_buffer_memory`](super::Connection::set_buffer_memory)) is bounded by its windows alone.
/// The Tokio layer makes one for each socket, of [`max_buffer_memory`](crate::KcpConfigBuilder::max_buffer_memory) bytes.
///
/// Every session may hold 32 KiB beside it, or four segments of its mtu if that is more: so each goes on, slowly, where others have
/// taken everything. **All sessions together hold no more than its limit and that.**
///
/// ```
/// use kcp9::{KcpConfig, proto::{BufferMemory, Connection, Instant}};
///
/// let memory = BufferMemory::new(1 << 20);
/// let (config, now) = (KcpConfig::default(), Instant::ZERO);
/// let mut sessions: Vec<_> = (0..100).map(|conv| Connection::new(conv, &config, now)).collect();
/// let mut written = 0;
/// for session in &mut sessions {
///     session.set_buffer_memory(&memory);
///     while let Ok(count) = session.write(now, &[7; 10_000]) {
///         written += count;
///     }
/// }
/// assert!(memory.taken() <= memory.limit());
/// assert!(written <= memory.limit() + sessions.len() * (32 << 10));
/// sessions.clear();
/// assert_eq!(memory.taken(), 0);
/// # Ok::<(), kcp9::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct BufferMemory(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    limit: usize,
    taken: AtomicUsize,
    refused_segments: AtomicUsize,
    refused_writes: AtomicUsize,
}

impl BufferMemory {
    /// Memory of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Pool {
            limit: limit.min(MAX_STEPS * STEP),
            taken: AtomicUsize::new(0),
            refused_segments: AtomicUsize::new(0),
            refused_writes: AtomicUsize::new(0),
        }))
    }

    /// Bytes that all sessions together may take.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Bytes that are taken now: never more than the limit. What sessions hold without asking is not counted.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken_now().total() * STEP
    }

    /// Segments that were not taken in for want of memory. They are not acknowledged, and their peers send them again. It only grows.
    #[must_use]
    pub fn refused_segments(&self) -> usize {
        self.0.refused_segments.load(Ordering::Relaxed)
    }

    /// Writes and messages that found no room, or less than they wanted, for want of memory. It only grows.
    #[must_use]
    pub fn refused_writes(&self) -> usize {
        self.0.refused_writes.load(Ordering::Relaxed)
    }

    fn taken_now(&self) -> Taken {
        Taken::from_word(self.0.taken.load(Ordering::Relaxed))
    }

    /// Bytes that are free for a direction while this is taken.
    fn free(&self, direction: Direction, taken: Taken) -> usize {
        let steps = self.0.limit / STEP;
        let of_direction =
            steps / DIRECTION.1 * DIRECTION.0 + steps % DIRECTION.1 * DIRECTION.0 / DIRECTION.1;
        let free = steps.saturating_sub(taken.total());
        free.min(of_direction.saturating_sub(taken.of(direction))) * STEP
    }
}

/// How many steps each direction has taken. Both are in one word, so that they change together.
#[derive(Debug, Clone, Copy)]
struct Taken {
    receiving: usize,
    sending: usize,
}

/// Where the steps of the second direction begin in the word.
const HALF: u32 = usize::BITS / 2;
/// As many steps as half a word can count: 1 GiB of them on targets of 32 bits.
const MAX_STEPS: usize = (1 << HALF) - 1;

impl Taken {
    const fn from_word(word: usize) -> Self {
        Self { receiving: word & MAX_STEPS, sending: word >> HALF }
    }

    const fn total(self) -> usize {
        self.receiving + self.sending
    }

    const fn of(self, direction: Direction) -> usize {
        match direction {
            Direction::Receiving => self.receiving,
            Direction::Sending => self.sending,
        }
    }
}

/// What a buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Receiving,
    Sending,
}

impl Direction {
    /// What so many steps of it are in the word of [`Taken`].
    const fn word(self, steps: usize) -> usize {
        match self {
            Self::Receiving => steps,
            Self::Sending => steps << HALF,
        }
    }
}

/// What a buffer of received data has of the memory that all share.
pub(super) type ReceiveShare = MemoryShare<false>;
/// What a buffer of data to be sent has of it.
pub(super) type SendShare = MemoryShare<true>;

/// What one buffer of a session has of the memory that all share, and its floor. What it has taken is given back when it is dropped.
#[derive(Debug)]
pub(super) struct MemoryShare<const SENDS: bool> {
    /// In bytes. A mebibyte is more than any has.
    floor: u32,
    /// In steps.
    taken: u32,
    memory: Option<BufferMemory>,
}

impl<const SENDS: bool> MemoryShare<SENDS> {
    const DIRECTION: Direction = if SENDS { Direction::Sending } else { Direction::Receiving };

    /// The share of a buffer that is bounded by nothing.
    pub(super) const fn unbounded(floor: usize) -> Self {
        Self { floor: floor as u32, taken: 0, memory: None }
    }

    /// Takes part in `memory` from here on. What is held already is asked for with the next [`settle`](Self::settle).
    pub(super) fn join(&mut self, memory: &BufferMemory) {
        self.give_back(0);
        self.memory = Some(memory.clone());
    }

    pub(super) const fn is_bounded(&self) -> bool {
        self.memory.is_some()
    }

    pub(super) const fn floor(&self) -> usize {
        self.floor as usize
    }

    pub(super) const fn set_floor(&mut self, floor: usize) {
        self.floor = floor as u32;
    }

    /// Bytes that were taken.
    const fn taken(&self) -> usize {
        self.taken as usize * STEP
    }

    /// The bytes that the buffer may hold without asking for more.
    pub(super) const fn allowed(&self) -> usize {
        if self.memory.is_none() { usize::MAX } else { self.floor() + self.taken() }
    }

    /// The most that [`allowed`](Self::allowed) could become now.
    pub(super) fn attainable(&self) -> usize {
        let Some(memory) = &self.memory else { return usize::MAX };
        self.floor() + self.taken() + self.more(memory.free(Self::DIRECTION, memory.taken_now()))
    }

    /// Whether so much is taken that nobody should keep what it has no use for now.
    pub(super) fn is_short(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.taken() > memory.limit() / 2)
    }

    /// What this share may take while `free` bytes are: whole steps.
    const fn more(&self, free: usize) -> usize {
        let more = if self.taken == 0 { free } else { (free / SHARE).saturating_sub(self.taken()) };
        more - more % STEP
    }

    /// Below so many bytes held, the buffer has much to give back; 0 while it has taken nothing.
    pub(super) const fn gives_back_below(&self) -> usize {
        if self.taken == 0 {
            return 0;
        }
        let needed = (self.floor() + self.taken()).saturating_sub(SLACK);
        if needed > self.floor() { needed } else { self.floor() + 1 }
    }

    /// Takes what is missing to hold `bytes`. Returns whether they may be held; if not, nothing is taken.
    #[cold]
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let Some(missing) = bytes.checked_sub(self.allowed()).filter(|missing| *missing > 0) else {
            return true;
        };
        let Some(memory) = &self.memory else { return true };
        let steps = missing.div_ceil(STEP);
        let grant = |word: usize| {
            let free = memory.free(Self::DIRECTION, Taken::from_word(word));
            (self.more(free) / STEP >= steps).then(|| word + Self::DIRECTION.word(steps))
        };
        let granted = memory.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grant).is_ok();
        if granted {
            self.taken += steps as u32;
        }
        granted
    }

    /// Gives back what is not needed to hold `bytes`.
    #[cold]
    pub(super) fn give_back(&mut self, bytes: usize) {
        let needed = bytes.saturating_sub(self.floor()).div_ceil(STEP) as u32;
        if let Some(more) = self.taken.checked_sub(needed).filter(|more| *more > 0)
            && let Some(memory) = &self.memory
        {
            memory.0.taken.fetch_sub(Self::DIRECTION.word(more as usize), Ordering::Relaxed);
            self.taken = needed;
        }
    }

    /// Takes or gives back what `bytes` call for. Returns whether they may be held.
    pub(super) fn settle(&mut self, bytes: usize) -> bool {
        if bytes > self.allowed() {
            return self.grow_to(bytes);
        }
        if bytes < self.gives_back_below() {
            self.give_back(bytes);
        }
        true
    }

    #[cold]
    pub(super) fn count_refused(&self) {
        if let Some(BufferMemory(pool)) = &self.memory {
            let count = match Self::DIRECTION {
                Direction::Receiving => &pool.refused_segments,
                Direction::Sending => &pool.refused_writes,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<const SENDS: bool> Drop for MemoryShare<SENDS> {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.give_back(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn share<const SENDS: bool>(memory: &BufferMemory) -> MemoryShare<SENDS> {
        let mut share = MemoryShare::unbounded(FLOOR);
        share.join(memory);
        share
    }

    #[test]
    fn a_share_without_memory_is_unbounded() {
        let mut share = SendShare::unbounded(FLOOR);
        assert_eq!((share.allowed(), share.attainable()), (usize::MAX, usize::MAX));
        assert!(share.grow_to(usize::MAX) && share.settle(1 << 30));
    }

    /// Has the share follow `bytes`. Returns whether they may be held.
    fn settle<const SENDS: bool>(share: &mut MemoryShare<SENDS>, bytes: usize) -> bool {
        let (before, attainable) = (share.allowed(), share.attainable());
        let may_hold = share.settle(bytes);
        if may_hold {
            assert!(share.allowed() >= bytes && bytes <= attainable);
            assert!(share.allowed() <= bytes.max(FLOOR) + SLACK + STEP || share.allowed() == before);
        } else {
            assert!(bytes > attainable && share.allowed() == before);
        }
        may_hold
    }

    #[test]
    fn what_is_taken_is_never_more_than_the_limit_and_all_of_it_comes_back() {
        let memory = BufferMemory::new(1 << 20);
        let mut state: u64 = 7;
        let mut random = |below: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % below
        };
        let mut receiving: Vec<ReceiveShare> = (0..25).map(|_| share(&memory)).collect();
        let mut sending: Vec<SendShare> = (0..25).map(|_| share(&memory)).collect();
        let mut refused = 0;
        for _ in 0..20_000 {
            let (index, bytes) = (random(50), random(200_000));
            let may_hold = match receiving.get_mut(index) {
                Some(share) => settle(share, bytes),
                None => settle(&mut sending[index - 25], bytes),
            };
            refused += u32::from(!may_hold);
            let received: usize = receiving.iter().map(MemoryShare::taken).sum();
            let sent: usize = sending.iter().map(MemoryShare::taken).sum();
            assert_eq!(memory.taken(), received + sent);
            assert!(received.max(sent) <= memory.limit() / 4 * 3 && received + sent <= memory.limit());
        }
        assert!(refused > 1_000, "{refused}");
        drop((receiving, sending));
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn no_share_has_more_than_a_quarter_of_what_is_free_and_who_has_nothing_gets_what_there_is() {
        let memory = BufferMemory::new(64 << 20);
        let mut first: SendShare = share(&memory);
        while first.grow_to(first.allowed() + 1) {}
        let taken = first.taken();
        assert!(taken <= (48 << 20) / SHARE && taken > (48 << 20) / (SHARE + 2), "{taken}");
        let mut second: SendShare = share(&memory);
        assert!(second.grow_to(30 << 20), "one message, which can only go whole");
        assert!(!second.grow_to(31 << 20) && !first.grow_to(first.allowed() + 1));
    }

    fn leaves_a_quarter<const FIRST: bool, const SECOND: bool>() {
        let memory = BufferMemory::new(1 << 20);
        let mut shares: Vec<MemoryShare<FIRST>> = Vec::new();
        loop {
            let mut next = share(&memory);
            if !next.grow_to(FLOOR + 1) {
                break;
            }
            shares.push(next);
        }
        assert_eq!(memory.taken(), 3 << 18);
        let mut other: MemoryShare<SECOND> = share(&memory);
        assert!(!other.grow_to((1 << 18) + FLOOR + 1) && other.grow_to(1 << 18));
    }

    #[test]
    fn each_direction_leaves_a_quarter_to_the_other() {
        leaves_a_quarter::<false, true>();
        leaves_a_quarter::<true, false>();
    }
}
