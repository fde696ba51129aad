//! What goes to the peer, and whose turn it is.
//!
//! A write copies its bytes into the one buffer that goes to the transport: no stream has a buffer of its own. When that is full,
//! writers queue. Each time the buffer was taken, as many of them as fill it again may write a frame, in the order in which
//! they came. Who is granted a turn may use it later, whatever the others do meanwhile, so a fast writer cannot push aside one whose
//! task runs late. A turn that is never used (its future was dropped) takes no room from the others, and is lost when too
//! many have gathered.

use std::{collections::VecDeque, vec::Vec};

use super::{
    Command, Header, MuxConfig, MuxVersion, Stream, StreamKey,
    stream::{Streams, Turn},
};
use crate::mux::{
    error::ProtocolError,
    frame::{HEADER_LEN, UPD_LEN, Update},
};

#[derive(Debug, Default)]
pub(super) struct Output {
    /// Frames in the order in which they go.
    buffer: Vec<u8>,
    /// Bytes that were taken before.
    taken: u64,
    /// Streams whose window is to be told.
    updates: VecDeque<StreamKey>,
    /// Those whose window is told when something else is sent.
    possible_updates: VecDeque<StreamKey>,
    /// Ids of streams that are to end before they began.
    refused: VecDeque<u32>,
    nop_due: bool,
    /// Writers that wait for room.
    waiting: VecDeque<StreamKey>,
    /// Writers that may write a frame; some have already.
    granted: VecDeque<StreamKey>,
    /// Bytes that were granted and not written yet.
    granted_bytes: usize,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.updates.is_empty() && self.refused.is_empty() && !self.nop_due
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_full(&self, limit: usize) -> bool {
        self.buffer.len() >= limit
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn nop_due(&self) -> bool {
        self.nop_due
    }

    pub(super) fn ask_for_nop(&mut self) {
        self.nop_due = true;
    }

    /// Drops what was not taken. Whose turn it is the streams still know.
    pub(super) fn clear(&mut self) {
        self.buffer = Vec::new();
        self.updates.clear();
        self.possible_updates.clear();
        self.refused.clear();
        self.nop_due = false;
    }

    /// Appends a frame; returns where it ends in all that is sent.
    pub(super) fn push_frame(
        &mut self,
        version: MuxVersion,
        command: Command,
        id: u32,
        payload: &[u8],
    ) -> u64 {
        push(&mut self.buffer, version, command, id, payload);
        self.taken + self.buffer.len() as u64
    }

    pub(super) fn push_update(&mut self, key: StreamKey) {
        self.updates.push_back(key);
    }

    pub(super) fn push_possible_update(&mut self, key: StreamKey) {
        self.possible_updates.push_back(key);
    }

    pub(super) fn push_refusal(&mut self, id: u32) -> Result<(), ProtocolError> {
        if self.refused.len() >= MAX_REFUSED {
            return Err(ProtocolError::TooManyStreams);
        }
        self.refused.push_back(id);
        Ok(())
    }

    /// Moves everything into `buffer`, which is empty. What has no place among the streams' bytes goes behind them.
    pub(super) fn take(&mut self, config: &MuxConfig, streams: &mut Streams, buffer: &mut Vec<u8>) {
        std::mem::swap(&mut self.buffer, buffer);
        let due = self.updates.len().min(MAX_UPDATES);
        for key in self.updates.drain(..due) {
            let Some(stream) = streams.get_mut(key) else { continue };
            stream.update_due = false;
            push_update_frame(buffer, config, stream);
        }
        if !buffer.is_empty() {
            let possible = self.possible_updates.len().min(MAX_UPDATES);
            for key in self.possible_updates.drain(..possible) {
                let Some(stream) = streams.get_mut(key) else { continue };
                stream.update_may_go = false;
                // It may have been told already, or has nothing to come.
                if stream.untold as usize >= config.stream_buffer / 4
                    && !stream.update_due
                    && !stream.ended_by_peer
                {
                    push_update_frame(buffer, config, stream);
                }
            }
        }
        for id in self.refused.drain(..) {
            push(buffer, config.version, Command::Fin, id, &[]);
        }
        if std::mem::take(&mut self.nop_due) && buffer.is_empty() {
            push(buffer, config.version, Command::Nop, 0, &[]);
        }
        self.taken += buffer.len() as u64;
    }

    /// Whether a stream may write a frame of so many bytes now. If not, it is in the queue.
    pub(super) fn take_turn(
        &mut self,
        key: StreamKey,
        stream: &mut Stream,
        count: usize,
        limit: usize,
    ) -> bool {
        match stream.turn {
            Turn::Granted(_) => {
                self.give_up_turn(stream);
                true
            }
            Turn::Waiting(_) => false,
            Turn::None if self.waiting.is_empty() && self.buffer.len() < limit => true,
            Turn::None => {
                // A frame has 16 bits of length.
                stream.turn = Turn::Waiting(count as u32);
                self.waiting.push_back(key);
                false
            }
        }
    }

    /// The queues pass over what they still have of it.
    pub(super) fn give_up_turn(&mut self, stream: &mut Stream) {
        if let Turn::Granted(bytes) = std::mem::take(&mut stream.turn) {
            self.granted_bytes -= bytes as usize;
        }
    }

    /// Lets as many writers write as fill the buffer; `wake` is called for each.
    pub(super) fn grant_turns(
        &mut self,
        config: &MuxConfig,
        streams: &mut Streams,
        mut wake: impl FnMut(StreamKey),
    ) {
        let limit = config.send_buffer;
        let mut granted = self.buffer.len();
        while granted < limit
            && let Some(key) = self.waiting.pop_front()
        {
            let Some(stream) = streams.get_mut(key) else { continue };
            let Turn::Waiting(bytes) = stream.turn else { continue };
            stream.turn = Turn::Granted(bytes);
            self.granted.push_back(key);
            self.granted_bytes += bytes as usize;
            granted += bytes as usize;
            if std::mem::take(&mut stream.writer_waits) {
                wake(key);
            }
        }
        while let Some(key) = self.granted.front() {
            let too_many =
                self.granted_bytes > 2 * limit + config.max_frame || self.granted.len() > MAX_GRANTED;
            match streams.get_mut(*key) {
                Some(stream) if matches!(stream.turn, Turn::Granted(_)) => {
                    if !too_many {
                        break;
                    }
                    self.give_up_turn(stream);
                }
                _ => {}
            }
            self.granted.pop_front();
        }
    }
}

fn push_update_frame(buffer: &mut Vec<u8>, config: &MuxConfig, stream: &mut Stream) {
    stream.untold = 0;
    let update = Update { consumed: stream.read, window: config.stream_buffer as u32 };
    push(buffer, config.version, Command::Upd, stream.id, &update.to_bytes());
}

fn push(buffer: &mut Vec<u8>, version: MuxVersion, command: Command, id: u32, payload: &[u8]) {
    // Every caller keeps to 16 bits.
    let header = Header { command, len: payload.len() as u16, id };
    buffer.extend_from_slice(&header.to_bytes(version));
    buffer.extend_from_slice(payload);
}

/// UPDs in one buffer: 32 KiB of those that are due, and as much of those that go with them.
const MAX_UPDATES: usize = 32_768 / (HEADER_LEN + UPD_LEN);
/// Refusals that wait to be sent: 64 KiB of frames. Only a peer that opens streams and does not read gets so far.
const MAX_REFUSED: usize = 8_192;
const MAX_GRANTED: usize = 256;
