//! Packets that an endpoint sends without a session: written, encrypted, and limited.
//!
//! Anybody can forge the address that a packet comes from. So an answer is one segment, never longer than what it answers,
//! and there is a [limit](super::limit) to how many there are. What is answered where there is no record either:
//!
//! | the packet holds | answer | because |
//! |---|---|---|
//! | PING | RESET | its sender has a session with this address that is not known here: this end was restarted |
//! | HELLO, and no sessions are accepted any more | ABORT | its sender need not wait for a timeout |
//! | HELLO without a cookie, where one is asked for | RETRY | its sender is to show that it receives what is sent to its address |
//!
//! What may be of a session whose keys are lost is answered by a RESET under a key of its own: see `noise/reset`.
//!
//! Only a peer that has heard this end sends PING. So nothing is answered to a session that may only be beginning, nor to a
//! peer without extensions, whose listener would take the answer for a session.

use alloc::vec::Vec;

use super::cookie::COOKIE_LEN;
use crate::{
    crypto::PacketCrypto,
    proto::{
        AbortReason, Command, HEADER_LEN, Instant, SegmentHeader,
        extension::{Envelope, Fin, Segment, Subtype},
        pipeline::segments,
    },
};

/// The window that an answer tells, in segments: enough to send what is left, and nothing more is to come.
const WINDOW: u16 = 32;
/// The longest answer: a segment with a cookie and the three bytes in front of it.
const MAX_LEN: usize = HEADER_LEN + 3 + COOKIE_LEN;

/// What an endpoint itself answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// To a PING: its token, tag and `ts`.
    Reset { token: u64, tag: u32, ts: u32 },
    /// To a PING of a session that is done, with the tag of the peer: where the data ended that this end sent.
    Fin { fin: Fin, tag: u32, una: u32 },
    /// To a PUSH that had arrived: its `sn` and `ts`. `una` acknowledges every other one that had arrived, too.
    Ack { sn: u32, ts: u32, una: u32, mark: u8 },
    /// To a FIN, with the tag of the peer.
    FinAck { fin: Fin, tag: u32, una: u32 },
    /// To anything, with the tag of the peer.
    Abort { reason: u16, tag: u32 },
    /// To a HELLO without a cookie, with its tag and `ts`.
    Retry { cookie: [u8; COOKIE_LEN], tag: u32, ts: u32 },
}

impl Answer {
    /// The answer to packets of no session and without a record. `refuses`: sessions were accepted here, and are no more.
    pub(super) fn find<'a>(
        payloads: impl Iterator<Item = &'a [u8]>,
        resets: bool,
        refuses: bool,
    ) -> Option<Self> {
        payloads.flat_map(segments).find_map(|(header, body)| {
            if header.cmd != Command::Extension {
                return None;
            }
            match Segment::parse(Subtype::from_byte(header.frg)?, &header, body).ok()? {
                Segment::Ping(token) if resets => Some(Self::Reset { token, tag: header.sn, ts: header.ts }),
                Segment::Hello(hello) if refuses => {
                    Some(Self::Abort { reason: AbortReason::Refused.code(), tag: hello.id.tag() })
                }
                _ => None,
            }
        })
    }

    /// Of several answers to a run of packets, the one of the highest rank is sent: it says what the others would, or more.
    pub(super) const fn rank(&self) -> u8 {
        match self {
            Self::Reset { .. } | Self::Fin { .. } | Self::Retry { .. } => 0,
            Self::Ack { .. } => 1,
            Self::FinAck { .. } => 2,
            Self::Abort { .. } => 3,
        }
    }

    /// Writes the segment of the conversation `conv`. Returns its bytes.
    pub(super) fn write(self, now: Instant, conv: u32, out: &mut [u8]) -> Option<usize> {
        let envelope = Envelope { conv, wnd: WINDOW, ts: now.as_ts(), una: 0 };
        match self {
            Self::Reset { token, tag, ts } => Envelope { ts, ..envelope }.write_reset(token, tag, out),
            Self::Ack { sn, ts, una, mark } => {
                let cmd = Command::Ack;
                let header = SegmentHeader { conv, cmd, frg: mark, wnd: WINDOW, ts, sn, una, len: 0 };
                out.get_mut(..HEADER_LEN)?.copy_from_slice(&header.to_bytes());
                Some(HEADER_LEN)
            }
            Self::Fin { fin, tag, una } => Envelope { una, ..envelope }.write_fin(fin, tag, out),
            Self::FinAck { fin, tag, una } => Envelope { una, ..envelope }.write_fin_ack(fin, tag, out),
            Self::Abort { reason, tag } => envelope.write_abort(reason, tag, out),
            Self::Retry { cookie, tag, ts } => Envelope { ts, ..envelope }.write_retry(&cookie, tag, out),
        }
    }
}

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
        now: Instant,
        conv: u32,
        answer: Answer,
        cause_len: usize,
        crypto: Option<&PacketCrypto>,
    ) -> bool {
        let (head, tail) =
            crypto.map_or((0, 0), |crypto| (crypto.cipher().header_len(), crypto.cipher().trailer_len()));
        self.packet.clear();
        self.packet.resize(head + MAX_LEN + tail, 0);
        let len =
            answer.write(now, conv, &mut self.packet[head..head + MAX_LEN]).map(|len| head + len + tail);
        let len = len.filter(|len| *len <= cause_len).unwrap_or(0);
        self.packet.truncate(len);
        if len > 0 && !crypto.is_none_or(|crypto| crypto.seal_one(&mut self.packet)) {
            self.packet.clear();
        }
        !self.packet.is_empty()
    }

    /// What was written elsewhere is the packet that was written last.
    #[cfg(feature = "noise")]
    pub(super) fn set_packet(&mut self, packet: Vec<u8>) {
        self.packet = packet;
    }

    /// The packet that was written last; empty if there was none.
    pub(super) fn packet(&self) -> &[u8] {
        &self.packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(77);

    fn written(answer: Answer, cause_len: usize) -> Vec<u8> {
        let mut stateless = Stateless::default();
        stateless.write(NOW, 0x1122_3344, answer, cause_len, None);
        stateless.packet().to_vec()
    }

    const ANSWERS: [(Answer, usize); 6] = [
        (Answer::Reset { token: 9, tag: 8, ts: 7 }, 32),
        (Answer::Ack { sn: 1, ts: 2, una: 3, mark: 0x60 }, 24),
        (Answer::FinAck { fin: Fin { end: 4, no_reader: true }, tag: 5, una: 4 }, 32),
        (Answer::Abort { reason: 5, tag: 6 }, 24),
        (Answer::Fin { fin: Fin { end: 9, no_reader: false }, tag: 5, una: 4 }, 32),
        (Answer::Retry { cookie: [3; COOKIE_LEN], tag: 7, ts: 6 }, 47),
    ];

    #[test]
    fn an_answer_is_one_segment_and_never_longer_than_its_cause() {
        for (answer, len) in ANSWERS {
            for cause_len in 0..100 {
                let packet = written(answer, cause_len);
                let expected = if cause_len < len { 0 } else { len };
                assert_eq!(packet.len(), expected, "{answer:?} to {cause_len} bytes");
            }
            let packet = written(answer, len);
            let (header, body) = segments(&packet).next().unwrap();
            assert_eq!((header.conv, HEADER_LEN + body.len()), (0x1122_3344, len));
        }
    }

    #[test]
    fn answers_say_what_they_answer() {
        let check = |at: usize, expected: fn(&SegmentHeader, Option<Segment<'_>>)| {
            let packet = written(ANSWERS[at].0, 100);
            let (header, body) = segments(&packet).next().unwrap();
            let subtype = Subtype::from_byte(header.frg).filter(|_| header.cmd == Command::Extension);
            expected(&header, subtype.map(|subtype| Segment::parse(subtype, &header, body).unwrap()));
        };
        check(0, |header, segment| {
            assert_eq!(segment, Some(Segment::Reset(9)));
            assert_eq!((header.ts, header.sn, header.wnd, header.una), (7, 8, 0, 0));
        });
        check(1, |header, _| {
            assert_eq!((header.cmd, header.frg, header.wnd), (Command::Ack, 0x60, WINDOW));
            assert_eq!((header.sn, header.ts, header.una), (1, 2, 3));
        });
        check(2, |header, segment| {
            assert_eq!(segment, Some(Segment::FinAck(Fin { end: 4, no_reader: true })));
            assert_eq!((header.ts, header.sn, header.una), (77, 5, 4));
        });
        check(3, |header, segment| {
            assert_eq!(segment, Some(Segment::Abort(5)));
            assert_eq!((header.sn, header.una), (6, 0));
        });
        check(4, |header, segment| {
            assert_eq!(segment, Some(Segment::Fin(Fin { end: 9, no_reader: false })));
            assert_eq!((header.ts, header.sn, header.una), (77, 5, 4));
        });
        check(5, |header, segment| {
            assert_eq!(segment, Some(Segment::Retry(&[3; COOKIE_LEN])));
            assert_eq!((header.ts, header.sn, header.wnd, header.una), (6, 7, 0, 0));
        });
    }
}
