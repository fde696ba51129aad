//! What comes from the peer.

use bytes::{Buf, Bytes};

use super::{
    Command, Header, Instant, MuxCore, MuxError, MuxEvent, MuxRole, MuxVersion, NOT_ACCEPTING, Stream,
    StreamKey, WriteFailure, recv_queue::MIN_SLICE,
};
use crate::mux::{
    error::ProtocolError,
    frame::{HEADER_LEN, INITIAL_WINDOW, UPD_LEN, Update},
};

/// How far the frame that is coming in has come.
#[derive(Debug, Clone, Copy)]
pub(super) enum Decoder {
    Header {
        bytes: [u8; HEADER_LEN],
        have: usize,
    },
    Update {
        id: u32,
        bytes: [u8; UPD_LEN],
        have: usize,
    },
    /// The rest of a PSH: of a stream, or of none that is known.
    Payload {
        stream: Option<StreamKey>,
        left: usize,
        /// As a whole it is long enough to stay where it was read to.
        is_large: bool,
    },
}

impl Default for Decoder {
    fn default() -> Self {
        Self::Header { bytes: [0; HEADER_LEN], have: 0 }
    }
}

impl MuxCore {
    /// Whether the session takes more bytes from the transport: not while the receive buffer is used up.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.end.is_none() && self.unread < self.config.receive_buffer
    }

    /// How many bytes to read next where they should be one piece: the rest of a large payload that is coming in, with the header
    /// behind it.
    pub(in crate::mux) fn rest_of_large_frame(&self) -> Option<usize> {
        match self.decoder {
            Decoder::Payload { left, is_large: true, .. } => Some(left + HEADER_LEN),
            _ => None,
        }
    }

    /// Bytes from the transport, cut anywhere. Payload of some length stays in their memory, so hand in buffers of at most 64 KiB.
    pub fn receive(&mut self, now: Instant, mut bytes: Bytes) {
        self.last_received = now;
        while !bytes.is_empty() && self.end.is_none() {
            if let Err(error) = self.decode(&mut bytes) {
                self.fail(error.into());
            }
        }
        self.was_paused = !self.wants_input();
    }

    /// The transport has ended.
    pub fn receive_end(&mut self) {
        self.fail(match self.decoder {
            Decoder::Header { have: 0, .. } => MuxError::PeerClosed,
            _ => MuxError::Truncated,
        });
    }

    /// One step further: bytes are taken as far as one part of a frame goes.
    fn decode(&mut self, bytes: &mut Bytes) -> Result<(), ProtocolError> {
        match self.decoder {
            Decoder::Header { bytes: mut header, mut have } => {
                if fill(&mut header, &mut have, bytes) {
                    self.decoder = Decoder::default();
                    return self.handle_header(Header::parse(header, self.config.version)?);
                }
                self.decoder = Decoder::Header { bytes: header, have };
            }
            Decoder::Update { id, bytes: mut update, mut have } => {
                if fill(&mut update, &mut have, bytes) {
                    self.decoder = Decoder::default();
                    self.handle_update(id, Update::parse(update));
                } else {
                    self.decoder = Decoder::Update { id, bytes: update, have };
                }
            }
            Decoder::Payload { stream, left, is_large } => {
                let count = left.min(bytes.len());
                let piece = bytes.split_to(count);
                self.decoder = match left - count {
                    0 => Decoder::default(),
                    left => Decoder::Payload { stream, left, is_large },
                };
                if let Some(stream) = stream {
                    self.deliver(stream, piece)?;
                }
            }
        }
        Ok(())
    }

    fn handle_header(&mut self, Header { command, len, id }: Header) -> Result<(), ProtocolError> {
        self.stats.frames_received += 1;
        match command {
            Command::Nop => {}
            Command::Syn => self.handle_syn(id)?,
            Command::Fin => {
                if let Some(key) = self.streams.find(id)
                    && let Some(stream) = self.streams.get_mut(key)
                {
                    stream.ended_by_peer = true;
                    self.wake_reader(key);
                    // A writer that waits for the window shall not do so for ever: it asks again, and notes the time.
                    self.wake_writer(key);
                }
            }
            Command::Psh => {
                if len > 0 {
                    let stream = self.streams.find(id);
                    let left = usize::from(len);
                    self.decoder = Decoder::Payload { stream, left, is_large: left >= MIN_SLICE };
                }
            }
            Command::Upd => self.decoder = Decoder::Update { id, bytes: [0; UPD_LEN], have: 0 },
        }
        Ok(())
    }

    fn handle_syn(&mut self, id: u32) -> Result<(), ProtocolError> {
        let of_peer = match self.role {
            MuxRole::Client => id.is_multiple_of(2),
            MuxRole::Server => !id.is_multiple_of(2),
        };
        if !of_peer || self.streams.find(id).is_some() {
            return Ok(());
        }
        let cause = if !self.accepting {
            Some(NOT_ACCEPTING)
        } else if self.peer_streams >= self.config.max_streams {
            Some("max_streams")
        } else if self.unaccepted.len() >= self.config.accept_backlog {
            Some("accept_backlog")
        } else if self.output.is_full(MAX_UNSENT.saturating_add(4 * self.config.send_buffer)) {
            // Each stream that ends here adds a FIN, whether the peer takes what is sent or not.
            Some("unsent")
        } else {
            None
        };
        if let Some(cause) = cause {
            self.stats.refused += 1;
            self.trace.stream_refused(id, cause);
            return self.output.push_refusal(id);
        }
        let key = self.streams.insert(Stream::new(id, true));
        self.peer_streams += 1;
        self.unaccepted.push_back(key);
        if std::mem::take(&mut self.acceptor_waits) {
            self.events.push_back(MuxEvent::Acceptable);
        }
        Ok(())
    }

    fn handle_update(&mut self, id: u32, Update { consumed, window }: Update) {
        let Some(key) = self.streams.find(id) else { return };
        let Some(stream) = self.streams.get_mut(key) else { return };
        // Else it waits for its turn, which no window brings.
        let waits_for_window = stream.room() == 0;
        if stream.written.wrapping_sub(consumed) > i32::MAX as u32 {
            stream.write_error.get_or_insert(WriteFailure::OverConsumed);
        } else {
            stream.consumed = consumed;
            // So that what is on its way can be told from what was consumed beyond it.
            stream.window = window.min(i32::MAX as u32);
            if stream.room() == 0 {
                return;
            }
            stream.blocked_since = None;
            if !waits_for_window {
                return;
            }
        }
        self.wake_writer(key);
    }

    fn deliver(&mut self, key: StreamKey, piece: Bytes) -> Result<(), ProtocolError> {
        // It may have been released since its frame began, or ended before.
        let Some(stream) = self.streams.get_mut(key).filter(|stream| !stream.ended_by_peer) else {
            return Ok(());
        };
        self.stats.bytes_received += piece.len() as u64;
        if self.config.version == MuxVersion::V2 {
            // An honest peer keeps to the window that it was told, or to the first one: what it was not told of yet it counts as
            // unread, so there is never less room than it believes.
            let window = self.config.stream_buffer.max(INITIAL_WINDOW as usize);
            if stream.received.len() + piece.len() > window {
                return Err(ProtocolError::WindowExceeded { id: stream.id });
            }
        }
        self.unread += piece.len();
        stream.received.push(piece);
        self.wake_reader(key);
        Ok(())
    }
}

/// Whether `bytes` had enough to fill what is missing.
fn fill<const N: usize>(into: &mut [u8; N], have: &mut usize, bytes: &mut Bytes) -> bool {
    let count = (N - *have).min(bytes.len());
    into[*have..*have + count].copy_from_slice(&bytes[..count]);
    bytes.advance(count);
    *have += count;
    *have == N
}

/// No more streams are let in while so much waits to be sent, beyond what writers may have waiting.
const MAX_UNSENT: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mux::MuxConfig;

    #[test]
    fn the_rest_of_a_large_frame_is_one_piece() {
        let mut core = MuxCore::new(MuxConfig::default(), MuxRole::Server, Instant::ZERO);
        let mut receive = |bytes: &[u8]| {
            core.receive(Instant::ZERO, Bytes::copy_from_slice(bytes));
            assert!(core.end().is_none());
            core.rest_of_large_frame()
        };
        // A SYN, and the beginning of a PSH of 16,384 bytes.
        assert_eq!(receive(&[1, 0, 0, 0, 3, 0, 0, 0, 1, 2, 0, 0x40]), None);
        assert_eq!(receive(&[3, 0, 0, 0]), Some(16_384 + HEADER_LEN));
        assert_eq!(receive(&[7; 16_383]), Some(1 + HEADER_LEN));
        // Its end, and one of a byte less.
        assert_eq!(receive(&[7, 1, 2, 0xff, 0x3f, 3, 0, 0, 0]), None);
        assert_eq!(receive(&[7; 16_383]), None);
    }
}
