//! What writes and reads at one end.
//!
//! Both sides rely on events, like an application: a writer that was blocked waits for `Writable`, a reader that found nothing
//! waits for `Readable`. So a connection that forgets an event stalls, and the run fails.

use std::{collections::VecDeque, ops::RangeInclusive, time::Duration};

use kcp9::proto::{Connection, Instant, ReadError, WriteError};

use super::{payload::Payload, rng::Rng};

/// One direction of traffic: what was written and how far it was read.
#[derive(Debug)]
pub struct Flow {
    pub payload: Payload,
    pub written: u64,
    pub read: u64,
    /// Lengths of messages sent whole and not yet received.
    pub messages: VecDeque<usize>,
}

impl Flow {
    pub fn new(key: u64) -> Self {
        Self { payload: Payload::new(key), written: 0, read: 0, messages: VecDeque::new() }
    }

    fn take(&mut self, bytes: &[u8]) {
        let difference = self.payload.first_difference(self.read, bytes);
        assert_eq!(difference.map(|at| self.read + at as u64), None, "wrong byte read at this position");
        self.read += bytes.len() as u64;
        assert!(self.read <= self.written, "more was read than written");
    }
}

/// Writes `total` bytes in pieces of random size.
#[derive(Debug, Clone)]
pub struct Writer {
    pub total: u64,
    pub sizes: RangeInclusive<usize>,
    /// Use `send`, so that every piece is a message the peer must get as it is.
    pub messages: bool,
    /// Time between two pieces; `None` to write as long as there is room.
    pub pace: Option<Duration>,
    /// Shut down behind the last byte.
    pub shutdown: bool,
    /// When the next piece is due.
    pub next: Instant,
    /// It was refused and waits for `Writable`.
    pub blocked: bool,
    /// Size of a piece that was refused.
    pub piece: Option<usize>,
    /// It has shut down.
    pub done: bool,
    /// Why it can write no more.
    pub refused: Option<WriteError>,
}

impl Writer {
    /// `total` bytes, as fast as they are taken.
    pub const fn bulk(total: u64) -> Self {
        Self {
            total,
            sizes: 65_536..=65_536,
            messages: false,
            pace: None,
            shutdown: false,
            next: Instant::ZERO,
            blocked: false,
            piece: None,
            done: false,
            refused: None,
        }
    }

    /// `count` messages of `len` bytes each.
    pub const fn messages(count: u64, len: usize) -> Self {
        Self { sizes: len..=len, messages: true, ..Self::bulk(count * len as u64) }
    }

    /// Nothing.
    pub const fn none() -> Self {
        Self::bulk(0)
    }

    pub const fn on_writable(&mut self) {
        self.blocked = false;
    }

    /// When it runs again without an event.
    pub fn wakeup(&self, flow: &Flow) -> Option<Instant> {
        (self.pace.is_some() && !self.blocked && flow.written < self.total).then_some(self.next)
    }

    pub fn run(&mut self, connection: &mut Connection, now: Instant, flow: &mut Flow, rng: &mut Rng) {
        while !self.blocked && flow.written < self.total && now >= self.next {
            let piece = self.piece.take().unwrap_or_else(|| rng.size(self.sizes.clone()));
            let len = piece.min((self.total - flow.written) as usize);
            let bytes = flow.payload.bytes(flow.written, len);
            let outcome = if self.messages {
                connection.send(now, bytes).map(|()| len)
            } else {
                connection.write(now, bytes)
            };
            match outcome {
                Ok(count) => {
                    assert!(count > 0 && count <= len, "write took {count} of {len} bytes");
                    flow.written += count as u64;
                    if self.messages {
                        flow.messages.push_back(len);
                    }
                    self.next = now + self.pace.unwrap_or_default();
                }
                Err(WriteError::Blocked) => {
                    self.blocked = true;
                    self.piece = Some(piece);
                }
                Err(WriteError::Closed(_)) if connection.close_reason().is_some() => self.blocked = true,
                Err(error) if error == WriteError::NoReader || connection.is_reader_dropped() => {
                    self.refused = Some(error);
                    self.blocked = true;
                }
                Err(error) => panic!("write refused: {error:?}"),
            }
            if self.pace.is_some() {
                break;
            }
        }
        if self.shutdown && !self.done && (flow.written == self.total || self.refused.is_some()) {
            self.done = true;
            connection.shutdown(now);
        }
    }
}

/// Reads whatever comes and compares it with what was written.
#[derive(Debug, Clone)]
pub struct Reader {
    /// Use `recv` and expect the peer's messages.
    pub messages: bool,
    /// Size of the buffer it reads into.
    pub size: usize,
    /// Time between two reads; `None` to read until nothing is left.
    pub pace: Option<Duration>,
    /// It does not read before this time.
    pub not_before: Instant,
    /// There may be something to read.
    pub ready: bool,
    /// It has read to the end of the stream.
    pub finished: bool,
    /// What it reads into.
    pub buffer: Vec<u8>,
}

impl Reader {
    /// Reads everything at once.
    pub const fn eager() -> Self {
        Self {
            messages: false,
            size: 65_536,
            pace: None,
            not_before: Instant::ZERO,
            ready: false,
            finished: false,
            buffer: Vec::new(),
        }
    }

    /// Receives whole messages.
    pub fn messages() -> Self {
        Self { messages: true, ..Self::eager() }
    }

    pub const fn on_readable(&mut self) {
        self.ready = true;
    }

    /// When it runs again without an event.
    pub fn wakeup(&self) -> Option<Instant> {
        self.ready.then_some(self.not_before)
    }

    pub fn run(&mut self, connection: &mut Connection, now: Instant, flow: &mut Flow) {
        self.buffer.resize(self.size, 0);
        while self.ready && now >= self.not_before {
            let outcome = if self.messages {
                connection.recv().map(|message| {
                    assert_eq!(Some(message.len()), flow.messages.pop_front(), "length of a message");
                    flow.take(&message);
                })
            } else {
                connection.read(&mut self.buffer).map(|count| {
                    assert!(count > 0, "read returned nothing");
                    flow.take(&self.buffer[..count]);
                })
            };
            match outcome {
                Ok(()) => {
                    assert!(!self.finished, "something is read behind the end of the stream");
                    self.not_before = now + self.pace.unwrap_or_default();
                }
                Err(ReadError::Blocked) => self.ready = false,
                Err(ReadError::Closed(reason)) => {
                    assert_eq!(connection.close_reason(), Some(reason));
                    self.ready = false;
                }
                Err(ReadError::Finished) => {
                    self.finished = true;
                    self.ready = false;
                }
                Err(error) => panic!("read refused: {error:?}"),
            }
        }
    }
}
