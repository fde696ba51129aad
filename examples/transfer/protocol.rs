//! The messages of a file transfer, version 1.
//!
//! A transfer is one KCP session. KCP tells nobody that a peer has closed, so the bytes themselves say where everything
//! ends. All numbers are big-endian. Every message is
//!
//! | bytes | field |
//! |---|---|
//! | 1 | kind |
//! | 4 | length of the body: 64 KiB at most, checked before anything is allocated |
//! | length | body |
//!
//! | kind | message | from | body |
//! |---|---|---|---|
//! | 1 | Hello | both | `kcp9xfer`, version (2) |
//! | 2 | Offer | sender | size (8), name (UTF-8, `/` between folders) |
//! | 3 | Exists | receiver | SHA-256 (32) of the file of that name and size that is there already |
//! | 4 | Compared | sender | 1 when its file has that hash, else 0 |
//! | 5 | Resume | receiver | bytes of the file that it has from before (8), their SHA-256 (32) |
//! | 6 | Begin | sender | where the data starts (8): at what the receiver has, or 0 |
//! | 7 | Data | sender | 1 byte to 64 KiB of the file |
//! | 8 | End | sender | SHA-256 (32) of the whole file |
//! | 9 | Done | receiver | none: the file is verified, on disk and in place |
//! | 10 | Failed | both | why this file failed (UTF-8) |
//! | 11 | Bye | both | none |
//! | 12 | Alive | both | none: sent every so often, whatever else goes on |
//! | 13 | Fatal | both | why the session ends here (UTF-8) |
//!
//! The order is:
//!
//! 1. Hello, answered by Hello, or by Fatal for a version that is not spoken.
//! 2. For each file, Offer. The receiver answers
//!    - Failed: it does not take the file;
//!    - Exists: the sender answers Compared. After 1 the file counts as transferred; after 0 comes Failed or Resume;
//!    - Resume: the sender answers Begin, then Data messages, then End. At any point it may send Failed instead. The
//!      receiver answers with exactly one Done or Failed. A Failed may come before the end of the data: the sender
//!      then stops early with a Failed of its own, which is not answered again.
//! 3. Bye, answered by Bye. The receiver, which writes last, waits for the acknowledgement of its Bye (`shutdown`); the
//!    sender stays a moment to give it. Nothing depends on that last exchange: each file was confirmed by its Done.
//!
//! An end that receives nothing at all within the timeout, not even Alive, gives the session up.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sha2::{Digest, Sha256};

/// The version described here.
pub(crate) const VERSION: u16 = 1;
/// Most bytes of a message's body, and so of one Data message.
pub(crate) const MAX_BODY: usize = 65_536;
/// Bytes before a message's body.
pub(crate) const HEADER: usize = 5;

/// A SHA-256.
pub(crate) type Hash = [u8; 32];

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Hello { version: u16 },
    Offer { size: u64, name: String },
    Exists { hash: Hash },
    Compared { same: bool },
    Resume { have: u64, hash: Hash },
    Begin { offset: u64 },
    Data(Bytes),
    End { hash: Hash },
    Done,
    Failed(String),
    Bye,
    Alive,
    Fatal(String),
}

impl Message {
    /// The bytes of the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        match self {
            Self::Hello { version } => {
                out.put_slice(MAGIC);
                out.put_u16(*version);
            }
            Self::Offer { size, name } => {
                out.put_u64(*size);
                out.put_slice(name.as_bytes());
            }
            Self::Exists { hash } | Self::End { hash } => out.put_slice(hash),
            Self::Compared { same } => out.put_u8((*same).into()),
            Self::Resume { have, hash } => {
                out.put_u64(*have);
                out.put_slice(hash);
            }
            Self::Begin { offset } => out.put_u64(*offset),
            Self::Data(bytes) => out.put_slice(bytes),
            Self::Failed(text) | Self::Fatal(text) => out.put_slice(shortened(text).as_bytes()),
            Self::Done | Self::Bye | Self::Alive => {}
        }
        let length = out.len() - HEADER;
        out[..HEADER].copy_from_slice(&header(self.kind(), length));
        out
    }

    /// Takes the first message from `buffer`. If not all of it is there, reserves room for the rest and returns `None`.
    ///
    /// # Errors
    /// `InvalidData` for what no peer of this version sends.
    pub(crate) fn decode(buffer: &mut BytesMut) -> io::Result<Option<Self>> {
        let Some((&kind, rest)) = buffer.split_first() else { return Ok(None) };
        let Some(length) = rest.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if !(1..=13).contains(&kind) || length > MAX_BODY {
            return Err(invalid("the other end does not speak this protocol"));
        }
        if buffer.len() < HEADER + length {
            buffer.reserve(HEADER + length - buffer.len());
            return Ok(None);
        }
        buffer.advance(HEADER);
        Self::parse(kind, buffer.split_to(length).freeze()).map(Some)
    }

    fn parse(kind: u8, mut body: Bytes) -> io::Result<Self> {
        let message = match (kind, body.len()) {
            (1, 10) if body.starts_with(MAGIC) => {
                body.advance(MAGIC.len());
                Self::Hello { version: body.get_u16() }
            }
            (2, 8..) => Self::Offer {
                size: body.get_u64(),
                name: String::from_utf8(body.into()).map_err(|_| invalid("a name is not UTF-8"))?,
            },
            (3, 32) => Self::Exists { hash: take_hash(&mut body) },
            (4, 1) if body[0] < 2 => Self::Compared { same: body[0] == 1 },
            (5, 40) => Self::Resume { have: body.get_u64(), hash: take_hash(&mut body) },
            (6, 8) => Self::Begin { offset: body.get_u64() },
            (7, 1..) => Self::Data(body),
            (8, 32) => Self::End { hash: take_hash(&mut body) },
            (9, 0) => Self::Done,
            (10, _) => Self::Failed(String::from_utf8_lossy(&body).into_owned()),
            (11, 0) => Self::Bye,
            (12, 0) => Self::Alive,
            (13, _) => Self::Fatal(String::from_utf8_lossy(&body).into_owned()),
            _ => return Err(invalid("a message is malformed")),
        };
        Ok(message)
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Offer { .. } => 2,
            Self::Exists { .. } => 3,
            Self::Compared { .. } => 4,
            Self::Resume { .. } => 5,
            Self::Begin { .. } => 6,
            Self::Data(_) => DATA,
            Self::End { .. } => 8,
            Self::Done => 9,
            Self::Failed(_) => 10,
            Self::Bye => 11,
            Self::Alive => 12,
            Self::Fatal(_) => 13,
        }
    }
}

/// The header of a Data message, for callers that read the file's bytes right after it.
pub(crate) fn data_header(length: usize) -> [u8; HEADER] {
    header(DATA, length)
}

/// The error for a message that is not expected now.
pub(crate) fn unexpected(message: &Message) -> io::Error {
    match message {
        Message::Fatal(text) => {
            io::Error::new(io::ErrorKind::ConnectionAborted, format!("the other end says: {text}"))
        }
        other => invalid(&format!("the other end sent message {} out of order", other.kind())),
    }
}

/// What has been hashed so far, as a [`Hash`].
pub(crate) fn digest(hasher: &Sha256) -> Hash {
    hasher.clone().finalize().into()
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

fn header(kind: u8, length: usize) -> [u8; HEADER] {
    debug_assert!(length <= MAX_BODY);
    let [a, b, c, d] = (length as u32).to_be_bytes();
    [kind, a, b, c, d]
}

fn take_hash(body: &mut Bytes) -> Hash {
    let mut hash = Hash::default();
    body.copy_to_slice(&mut hash);
    hash
}

fn shortened(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

const MAGIC: &[u8] = b"kcp9xfer";
const DATA: u8 = 7;
/// A few lines: texts are for people.
const MAX_TEXT: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        vec![
            Message::Hello { version: VERSION },
            Message::Offer { size: 5, name: "a b/ü".into() },
            Message::Exists { hash: [1; 32] },
            Message::Compared { same: true },
            Message::Resume { have: 7, hash: [2; 32] },
            Message::Begin { offset: 9 },
            Message::Data(Bytes::from_static(b"data")),
            Message::End { hash: [3; 32] },
            Message::Done,
            Message::Failed("why".into()),
            Message::Bye,
            Message::Alive,
            Message::Fatal("why".into()),
        ]
    }

    #[test]
    fn messages_survive_any_split() {
        let bytes: Vec<u8> = all().iter().flat_map(Message::encode).collect();
        for step in [1, 2, 7, bytes.len()] {
            let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
            for chunk in bytes.chunks(step) {
                buffer.extend_from_slice(chunk);
                while let Some(message) = Message::decode(&mut buffer).unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, all());
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn nonsense_is_an_error_before_it_is_allocated() {
        for bytes in [
            &b"\x07\xff\xff\xff\xff"[..],
            b"\x07\x00\x01\x00\x01",
            b"\x00\x00\x00\x00\x00",
            b"\x0e\x00\x00\x00\x00",
            b"\x07\x00\x00\x00\x00",
            b"\x04\x00\x00\x00\x01\x02",
            b"\x01\x00\x00\x00\x0aKCP9xfer\x00\x01",
            b"\x02\x00\x00\x00\x09\0\0\0\0\0\0\0\x01\xff",
            b"GET / HTTP/1.1\r\n",
        ] {
            let mut buffer = BytesMut::from(bytes);
            assert!(Message::decode(&mut buffer).is_err(), "{bytes:?}");
            assert!(buffer.capacity() < 4_096);
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let bytes = Message::Failed("ü".repeat(MAX_TEXT)).encode();
        let Ok(Some(Message::Failed(text))) = Message::decode(&mut BytesMut::from(&bytes[..])) else {
            panic!()
        };
        assert_eq!(text, "ü".repeat(MAX_TEXT / 2));
    }
}
