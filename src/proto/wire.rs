//! The KCP segment: a 24-byte little-endian header and its payload.
//!
//! ```text
//! 0       4     5     6      8      12     16     20     24
//! | conv  | cmd | frg | wnd  |  ts  |  sn  | una  | len  | payload (len bytes)
//! ```
//!
//! Several segments may share a packet; [`Segments`] reads them in place, without a copy.

use super::error::SegmentError;

/// Bytes of a segment's header.
pub const HEADER_LEN: usize = 24;

/// The commands of the protocol, and the one of this crate's extensions. Values from 0x60 up are free for such: at a command that
/// they do not know, kcp-go and ikcp drop the rest of the packet, and the session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Command {
    /// Carries one fragment of a message, or a piece of the stream.
    Push = 81,
    /// Acknowledges one PUSH: its `sn` and `ts` are those of the PUSH.
    Ack = 82,
    /// Asks for the peer's window.
    Wask = 83,
    /// Tells the sender's window.
    Wins = 84,
    /// What peers of this crate say to each other beyond KCP. The kind of it is in `frg`, and `sn` is not a number of the
    /// sequence: see [`Extensions`](super::Extensions).
    Extension = 0x60,
}

impl Command {
    /// The command of a `cmd` byte; `None` for a value that the protocol does not have.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            81 => Some(Self::Push),
            82 => Some(Self::Ack),
            83 => Some(Self::Wask),
            84 => Some(Self::Wins),
            0x60 => Some(Self::Extension),
            _ => None,
        }
    }
}

/// The header of one segment.
///
/// ```
/// use kcp9::proto::{Command, HEADER_LEN, Segments, SegmentHeader};
///
/// let header = SegmentHeader { conv: 7, cmd: Command::Push, frg: 0, wnd: 128, ts: 1, sn: 2, una: 3, len: 5 };
/// let mut packet = header.to_bytes().to_vec();
/// packet.extend_from_slice(b"hello");
///
/// let mut segments = Segments::new(&packet);
/// let (parsed, payload) = segments.next().unwrap().unwrap();
/// assert_eq!((parsed, payload), (header, b"hello".as_slice()));
/// assert!(segments.next().is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentHeader {
    /// Conversation: which session the segment belongs to.
    pub conv: u32,
    /// What the segment is.
    pub cmd: Command,
    /// Fragments of the same message still to come: counts down to 0 over a message, always 0 in stream mode.
    pub frg: u8,
    /// Free receive window of the segment's sender, in segments.
    pub wnd: u16,
    /// Milliseconds of the sender's clock when the segment was sent; an ACK echoes the `ts` of the PUSH it answers.
    pub ts: u32,
    /// Sequence number of the segment (of the PUSH it answers, in an ACK).
    pub sn: u32,
    /// The next `sn` that the segment's sender expects: all below have arrived.
    pub una: u32,
    /// Bytes of payload behind the header.
    pub len: u32,
}

impl SegmentHeader {
    /// Reads a header from the first [`HEADER_LEN`] bytes of `bytes`. The payload is not looked at.
    ///
    /// # Errors
    /// [`SegmentError::Truncated`] for fewer bytes than a header has, [`SegmentError::UnknownCommand`] for a `cmd`
    /// that the protocol does not have.
    pub fn parse(bytes: &[u8]) -> Result<Self, SegmentError> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(SegmentError::Truncated)?;
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let cmd = Command::from_byte(header[4]).ok_or(SegmentError::UnknownCommand(header[4]))?;
        Ok(Self {
            conv: word(0),
            cmd,
            frg: header[5],
            wnd: u16::from_le_bytes([header[6], header[7]]),
            ts: word(8),
            sn: word(12),
            una: word(16),
            len: word(20),
        })
    }

    /// The header and the payload of a packet that is one PUSH and nothing else.
    #[inline]
    pub(in crate::proto) fn of_push_alone(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (header, payload) = packet.split_at_checked(HEADER_LEN)?;
        let header = Self::parse(header).ok()?;
        (header.cmd == Command::Push && header.len as usize == payload.len()).then_some((header, payload))
    }

    /// The header as it stands on the wire.
    #[inline]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let [conv, ts, sn, una, len] = [
            self.conv.to_le_bytes(),
            self.ts.to_le_bytes(),
            self.sn.to_le_bytes(),
            self.una.to_le_bytes(),
            self.len.to_le_bytes(),
        ];
        let wnd = self.wnd.to_le_bytes();
        let mut i = 0;
        while i < 4 {
            bytes[i] = conv[i];
            bytes[8 + i] = ts[i];
            bytes[12 + i] = sn[i];
            bytes[16 + i] = una[i];
            bytes[20 + i] = len[i];
            i += 1;
        }
        bytes[4] = self.cmd as u8;
        bytes[5] = self.frg;
        bytes[6] = wnd[0];
        bytes[7] = wnd[1];
        bytes
    }
}

/// The segments of one packet, front to back.
///
/// It ends after the first segment that cannot be parsed, which is returned as an error. As in kcp-go and ikcp, the segments
/// before it count, those after it are lost, and trailing bytes are ignored where they are too few for a header.
#[derive(Debug, Clone)]
pub struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Segments<'a> {
    /// Reads the segments of `packet`, FEC and crypto headers already removed.
    #[must_use]
    pub const fn new(packet: &'a [u8]) -> Self {
        Self { rest: packet }
    }

    /// Bytes that were not looked at.
    pub(in crate::proto) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The `sn` of the next segment, if there is one.
    #[inline]
    pub(in crate::proto) fn next_sn(&self) -> Option<u32> {
        let sn = self.rest.get(12..16)?.first_chunk()?;
        Some(u32::from_le_bytes(*sn))
    }

    /// The payload of the next segment, if that has the number `sn` and is like `first` but for that and its length.
    #[inline]
    pub(in crate::proto) fn next_of_run(&mut self, first: &SegmentHeader, sn: u32) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_first_chunk::<HEADER_LEN>()?;
        let next = SegmentHeader::parse(bytes).ok()?;
        let payload = rest.get(..next.len as usize)?;
        if next != (SegmentHeader { sn, len: next.len, ..*first }) {
            return None;
        }
        self.rest = &rest[payload.len()..];
        Some(payload)
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Result<(SegmentHeader, &'a [u8]), SegmentError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < HEADER_LEN {
            return None;
        }
        let (header, rest) = self.rest.split_at(HEADER_LEN);
        let parsed = SegmentHeader::parse(header).and_then(|header| {
            let len = header.len as usize;
            if len > rest.len() {
                return Err(SegmentError::LengthPastEnd { len: header.len, available: rest.len() });
            }
            let (payload, rest) = rest.split_at(len);
            self.rest = rest;
            Ok((header, payload))
        });
        if parsed.is_err() {
            self.rest = &[];
        }
        Some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn push(sn: u32, payload: &[u8]) -> Vec<u8> {
        let header = SegmentHeader {
            conv: 1,
            cmd: Command::Push,
            frg: 0,
            wnd: 2,
            ts: 3,
            sn,
            una: 4,
            len: payload.len() as u32,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn every_segment_of_a_packet_is_read() {
        let mut packet = push(0, b"one");
        packet.extend(push(1, b""));
        packet.extend(push(2, b"three"));
        let found: Vec<_> = Segments::new(&packet)
            .map(|segment| segment.map(|(header, payload)| (header.sn, payload)))
            .collect();
        assert_eq!(found, [Ok((0, &b"one"[..])), Ok((1, &b""[..])), Ok((2, &b"three"[..]))]);
    }

    #[test]
    fn reading_stops_at_the_first_bad_segment() {
        let mut packet = push(0, b"good");
        let bad_at = packet.len();
        packet.extend(push(1, b"bad"));
        packet[bad_at + 4] = 0x61;
        packet.extend(push(2, b"lost"));
        let found: Vec<_> = Segments::new(&packet).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].is_ok());
        assert_eq!(found[1], Err(SegmentError::UnknownCommand(0x61)));
    }

    #[test]
    fn a_length_past_the_end_is_refused() {
        let mut packet = push(0, b"abc");
        packet.pop();
        let found: Vec<_> = Segments::new(&packet).collect();
        assert_eq!(found, [Err(SegmentError::LengthPastEnd { len: 3, available: 2 })]);
        packet[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(
            Segments::new(&packet).next(),
            Some(Err(SegmentError::LengthPastEnd { len: u32::MAX, .. }))
        ));
    }

    #[test]
    fn a_run_ends_where_anything_but_number_and_length_differs() {
        let packet = [push(0, b"one"), push(1, b""), push(2, b"three")].concat();
        let first = SegmentHeader::parse(&packet).unwrap();
        let behind = HEADER_LEN + 3;
        let run = |packet: &[u8]| {
            let mut rest = Segments::new(&packet[behind..]);
            let payloads: Vec<_> =
                (1..).map_while(|sn| Some(rest.next_of_run(&first, sn)?.to_vec())).collect();
            (payloads, rest.remaining())
        };
        assert_eq!(run(&packet), (Vec::from([Vec::new(), b"three".to_vec()]), 0));
        assert_eq!(Segments::new(&packet[behind..]).next_sn(), Some(1));
        assert_eq!(Segments::new(&packet[behind..][..15]).next_sn(), None);
        // Any bit of the second header but those of its length: it is no part of the run, and is still to be read.
        for bit in 0..20 * 8 {
            let mut other = packet.clone();
            other[behind + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(run(&other), (Vec::new(), packet.len() - behind), "bit {bit}");
        }
        // A length past the end.
        assert_eq!(run(&packet[..packet.len() - 1]).0.len(), 1);
    }

    #[test]
    fn trailing_bytes_shorter_than_a_header_are_ignored() {
        let mut packet = push(9, b"x");
        packet.extend_from_slice(&[0xff; HEADER_LEN - 1]);
        assert_eq!(Segments::new(&packet).count(), 1);
        assert_eq!(crate::proto::peek_conv(&packet), Some(1));
        assert_eq!(crate::proto::peek_conv(&packet[..HEADER_LEN - 1]), None);
    }
}
