//! Packets that an endpoint sends without a session: written, encrypted, and limited.
//!
//! Anybody can forge the address that a packet comes from. So an answer is one segment, never longer than what it answers,
//! and there is a [limit](super::limit) to how many there are.

use alloc::vec::Vec;

use super::record::Answer;
use crate::{
    crypto::PacketCrypto,
    proto::{Command, HEADER_LEN, SegmentHeader},
};

/// The window that an answer tells, in segments: enough to send what is left, and nothing more is to come.
const WINDOW: u16 = 32;

/// Writes answers.
#[derive(Debug, Default)]
pub(super) struct Stateless {
    /// The packet that was written last. It is kept for its memory.
    packet: Vec<u8>,
}

impl Stateless {
    /// Writes an answer to a packet of `cause_len` bytes of the conversation `conv`. Returns `false` if there is none: it would
    /// be longer than its cause, or nothing more may be encrypted under the key.
    pub(super) fn write(
        &mut self,
        conv: u32,
        answer: Answer,
        cause_len: usize,
        crypto: Option<&PacketCrypto>,
    ) -> bool {
        self.packet.clear();
        let Answer::Ack { sn, ts, una } = answer;
        let header = SegmentHeader { conv, cmd: Command::Ack, frg: 0, wnd: WINDOW, ts, sn, una, len: 0 };
        let (head, tail) =
            crypto.map_or((0, 0), |crypto| (crypto.cipher().header_len(), crypto.cipher().trailer_len()));
        if head + HEADER_LEN + tail > cause_len {
            return false;
        }
        self.packet.resize(head, 0);
        self.packet.extend_from_slice(&header.to_bytes());
        self.packet.resize(self.packet.len() + tail, 0);
        let sealed = crypto.is_none_or(|crypto| crypto.seal_one(&mut self.packet));
        if !sealed {
            self.packet.clear();
        }
        sealed
    }

    /// The packet that was written last; empty if there was none.
    pub(super) fn packet(&self) -> &[u8] {
        &self.packet
    }
}
