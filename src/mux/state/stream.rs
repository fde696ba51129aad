//! One stream, and the table of all.

use std::{boxed::Box, collections::HashMap, vec::Vec};

use super::recv_queue::RecvQueue;
use crate::{mux::frame::INITIAL_WINDOW, proto::Instant};

/// Names a stream of a [`MuxCore`](super::MuxCore). Unlike an id, it is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    index: u32,
    generation: u32,
}

impl StreamKey {
    pub(in crate::mux) fn index(self) -> usize {
        self.index as usize
    }
}

/// Both directions of a stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// The peer opened it.
    pub(super) by_peer: bool,

    // ---- What comes in ----
    pub(super) received: RecvQueue,
    /// Bytes that were read, modulo 2^32.
    pub(super) read: u32,
    /// Those of them that the peer has not been told of.
    pub(super) untold: u32,
    /// An UPD is to be sent.
    pub(super) update_due: bool,
    /// It is in the list of those whose UPD goes with whatever is sent next.
    pub(super) update_may_go: bool,
    /// The peer has sent FIN.
    pub(super) ended_by_peer: bool,
    /// A reader waits.
    pub(super) reader_waits: bool,

    // ---- What goes out ----
    /// Bytes that were written, modulo 2^32.
    pub(super) written: u32,
    /// Those of them that the peer says it has read.
    pub(super) consumed: u32,
    /// The peer's window.
    pub(super) window: u32,
    /// Where in all that the session sends its last byte lies.
    pub(super) end: u64,
    /// FIN is on its way.
    pub(super) finished: bool,
    /// A writer waits.
    pub(super) writer_waits: bool,
    pub(super) turn: Turn,
    /// Since when a writer waits for the window of a peer that has ended its direction.
    pub(super) blocked_since: Option<Instant>,
    /// The stream is in the list of those that wait so.
    pub(super) in_blocked: bool,
    pub(super) write_error: Option<WriteFailure>,
}

/// Why nothing more can be written, though the session lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteFailure {
    NoReader,
    OverConsumed,
}

/// Where a writer stands in the queue for room, with the bytes that it wants to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Turn {
    /// Not in it.
    #[default]
    None,
    Waiting(u32),
    /// It may write one frame now.
    Granted(u32),
}

impl Stream {
    pub(super) fn new(id: u32, by_peer: bool) -> Self {
        Self {
            id,
            by_peer,
            received: RecvQueue::default(),
            read: 0,
            untold: 0,
            update_due: false,
            update_may_go: false,
            ended_by_peer: false,
            reader_waits: false,
            written: 0,
            consumed: 0,
            window: INITIAL_WINDOW,
            end: 0,
            finished: false,
            writer_waits: false,
            turn: Turn::None,
            blocked_since: None,
            in_blocked: false,
            write_error: None,
        }
    }

    /// Bytes that the peer's window has room for.
    pub(super) fn room(&self) -> usize {
        self.window.saturating_sub(self.written.wrapping_sub(self.consumed)) as usize
    }
}

/// The streams, by key and by id.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The standard library's hash: a peer chooses the ids.
    by_id: HashMap<u32, StreamKey>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    stream: Option<Box<Stream>>,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds a stream whose id is not known.
    pub(super) fn insert(&mut self, stream: Stream) -> StreamKey {
        let id = stream.id;
        let stream = Some(Box::new(stream));
        let key = match self.free.pop() {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                slot.stream = stream;
                StreamKey { index, generation: slot.generation }
            }
            None => {
                // Fewer than 2^32: ids have 32 bits, and each stream has another.
                let index = self.slots.len() as u32;
                self.slots.push(Slot { generation: 0, stream });
                StreamKey { index, generation: 0 }
            }
        };
        self.by_id.insert(id, key);
        key
    }

    pub(super) fn remove(&mut self, key: StreamKey) -> Option<Box<Stream>> {
        let slot = self.slots.get_mut(key.index()).filter(|slot| slot.generation == key.generation)?;
        let stream = slot.stream.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        self.by_id.remove(&stream.id);
        Some(stream)
    }

    pub(super) fn get(&self, key: StreamKey) -> Option<&Stream> {
        let slot = self.slots.get(key.index()).filter(|slot| slot.generation == key.generation)?;
        slot.stream.as_deref()
    }

    pub(super) fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        let slot = self.slots.get_mut(key.index()).filter(|slot| slot.generation == key.generation)?;
        slot.stream.as_deref_mut()
    }

    pub(super) fn find(&self, id: u32) -> Option<StreamKey> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn keys(&self) -> Vec<StreamKey> {
        self.by_id.values().copied().collect()
    }
}
