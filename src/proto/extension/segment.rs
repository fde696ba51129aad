//! The extension segments on the wire: read and written here, without any state.
//!
//! ```text
//! conv u32 | 0x60 u8 | subtype u8 | wnd u16 | ts u32 | tag u32 | una u32 | len u32 | body
//! ```
//!
//! The header is that of every segment: `frg` is the subtype, and `sn` the tag. A body that is longer than what is known of it
//! says more than this version understands; the rest is ignored. A shorter one is malformed.

#[cfg(feature = "noise")]
use super::fields::MUST_UNDERSTAND;
use super::{
    fields::{FieldError, FieldWriter, Fields, KindSet, kind},
    seed::SessionId,
};
use crate::proto::{
    ecn::EcnCounts,
    wire::{Command, HEADER_LEN, SegmentHeader},
};

/// Bytes of HELLO and ANSWER in front of their fields.
pub(in crate::proto) const HELLO_LEN: usize = 24;
/// The longest HELLO or ANSWER, with its header: kcp-go reads no packet of more than 1,500 bytes.
pub(in crate::proto) const MAX_HELLO: usize = 1_200;
/// The version of the extensions that is spoken here. It is the oldest one as well.
pub(in crate::proto) const VERSION: u8 = 1;

/// What no other use of the command is taken for.
const MAGIC: [u8; 4] = *b"kcp9";
/// Bytes of FIN and FIN_ACK, and of a token.
const FIN_LEN: usize = 8;
/// The same with the header.
pub(super) const FIN_SEGMENT_LEN: usize = HEADER_LEN + FIN_LEN;
const TOKEN_LEN: usize = 8;
/// The flag of a FIN whose sender drops whatever it still receives.
const NO_READER: u8 = 1;

/// What an extension segment is: its `frg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(in crate::proto) enum Subtype {
    /// Begins a session: who the sender is and what it can do.
    Hello = 0x01,
    /// Answers HELLO with the same.
    Answer = 0x02,
    /// Asks for the HELLO again, with a cookie.
    Retry = 0x03,
    /// Where the sender's stream ends.
    Fin = 0x04,
    /// The peer knows where the stream ends.
    FinAck = 0x05,
    /// The session has ended at the sender, and why.
    Abort = 0x06,
    /// The sender of the answered PING is not known.
    Reset = 0x07,
    /// Asks for a PONG with the same token.
    Ping = 0x08,
    /// Returns the token of a PING or an ANSWER.
    Pong = 0x09,
    /// How many packets the sender has received with each mark of ECN.
    Ecn = 0x0a,
}

impl Subtype {
    /// `None` for what later versions may have.
    pub(in crate::proto) const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x01 => Self::Hello,
            0x02 => Self::Answer,
            0x03 => Self::Retry,
            0x04 => Self::Fin,
            0x05 => Self::FinAck,
            0x06 => Self::Abort,
            0x07 => Self::Reset,
            0x08 => Self::Ping,
            0x09 => Self::Pong,
            0x0a => Self::Ecn,
            _ => return None,
        })
    }
}

/// Why an extension segment is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum Malformed {
    /// The body is shorter than its fixed part.
    TooShort,
    /// A HELLO or ANSWER of something else.
    Magic,
    /// Version 0, or an oldest version past the highest.
    Version,
    /// The tag is 0, or not that of a HELLO's id.
    Tag,
    Field(FieldError),
}

impl From<FieldError> for Malformed {
    fn from(error: FieldError) -> Self {
        Self::Field(error)
    }
}

/// An extension segment, parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum Segment<'a> {
    Hello(Hello<'a>),
    Answer(Hello<'a>),
    /// The cookie that the next HELLO is to carry.
    Retry(&'a [u8]),
    Fin(Fin),
    FinAck(Fin),
    /// The reason.
    Abort(u16),
    /// The tokens of these three.
    Reset(u64),
    Ping(u64),
    Pong(u64),
    Ecn(EcnCounts),
}

impl<'a> Segment<'a> {
    /// Reads the body of a segment whose header says `subtype`.
    pub(in crate::proto) fn parse(
        subtype: Subtype,
        header: &SegmentHeader,
        body: &'a [u8],
    ) -> Result<Self, Malformed> {
        if header.sn == 0 {
            return Err(Malformed::Tag);
        }
        Ok(match subtype {
            Subtype::Hello => {
                let hello = Hello::parse(body)?;
                if hello.id.tag() != header.sn {
                    return Err(Malformed::Tag);
                }
                Self::Hello(hello)
            }
            Subtype::Answer => Self::Answer(Hello::parse(body)?),
            Subtype::Retry => Self::Retry(Fields::parse(body)?.cookie.ok_or(Malformed::TooShort)?),
            Subtype::Fin => Self::Fin(Fin::parse(body)?),
            Subtype::FinAck => Self::FinAck(Fin::parse(body)?),
            Subtype::Abort => Self::Abort(header.wnd),
            Subtype::Reset => Self::Reset(token(body)?),
            Subtype::Ping => Self::Ping(token(body)?),
            Subtype::Pong => Self::Pong(token(body)?),
            Subtype::Ecn => Self::Ecn(EcnCounts::from_bytes(*body.first_chunk().ok_or(Malformed::TooShort)?)),
        })
    }
}

fn token(body: &[u8]) -> Result<u64, Malformed> {
    body.first_chunk().map(|token: &[u8; TOKEN_LEN]| u64::from_le_bytes(*token)).ok_or(Malformed::TooShort)
}

/// The body of a HELLO or an ANSWER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) struct Hello<'a> {
    /// The highest and the lowest version that the sender speaks.
    pub(in crate::proto) version: u8,
    pub(in crate::proto) oldest: u8,
    pub(in crate::proto) caps: Caps,
    pub(in crate::proto) id: SessionId,
    /// In an ANSWER: `ts` of the HELLO that it answers.
    pub(in crate::proto) echo_ts: u32,
    pub(in crate::proto) fields: Fields<'a>,
}

impl<'a> Hello<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, fields): (&[u8; HELLO_LEN], _) = body.split_first_chunk().ok_or(Malformed::TooShort)?;
        let word = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        if fixed[..4] != MAGIC {
            return Err(Malformed::Magic);
        }
        let (version, oldest) = (fixed[4], fixed[5]);
        if version == 0 || oldest > version {
            return Err(Malformed::Version);
        }
        let mut id = [0; 8];
        id.copy_from_slice(&fixed[12..20]);
        let id = SessionId::from_bytes(id).ok_or(Malformed::Tag)?;
        let fields = Fields::parse(fields)?;
        Ok(Self { version, oldest, caps: Caps(word(8)), id, echo_ts: word(20), fields })
    }

    /// Whether both ends speak a version in common.
    pub(in crate::proto) fn is_version_spoken(&self) -> bool {
        // The oldest version of this end is its only one.
        VERSION >= self.oldest && self.version >= VERSION
    }
}

/// What the sender of a HELLO or an ANSWER can receive. Bits of later versions are kept and mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::proto) struct Caps(pub(in crate::proto) u32);

impl Caps {
    /// It takes datagrams beside the stream.
    pub(in crate::proto) const DATAGRAMS: Self = Self(1);
    /// It reports marks of ECN.
    pub(in crate::proto) const ECN: Self = Self(2);
    /// It follows its peer to another address.
    pub(in crate::proto) const MOVE: Self = Self(4);
    /// It takes padded PINGs of up to MAX_PACKET bytes.
    pub(in crate::proto) const PROBE: Self = Self(8);

    #[must_use]
    pub(in crate::proto) const fn with(self, caps: Self) -> Self {
        Self(self.0 | caps.0)
    }

    pub(in crate::proto) const fn has(self, caps: Self) -> bool {
        self.0 & caps.0 == caps.0
    }
}

/// The body of FIN and FIN_ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) struct Fin {
    /// The `sn` behind the last PUSH.
    pub(in crate::proto) end: u32,
    /// The sender of the FIN drops whatever it still receives.
    pub(in crate::proto) no_reader: bool,
}

impl Fin {
    fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let [a, b, c, d, flags, ..]: &[u8; FIN_LEN] = body.first_chunk().ok_or(Malformed::TooShort)?;
        Ok(Self { end: u32::from_le_bytes([*a, *b, *c, *d]), no_reader: flags & NO_READER != 0 })
    }

    fn to_bytes(self) -> [u8; FIN_LEN] {
        let [a, b, c, d] = self.end.to_le_bytes();
        [a, b, c, d, if self.no_reader { NO_READER } else { 0 }, 0, 0, 0]
    }
}

// ---- Writing ----

/// What a segment is to say in its header besides its subtype, its tag and its length.
#[derive(Debug, Clone, Copy)]
pub(in crate::proto) struct Envelope {
    pub(in crate::proto) conv: u32,
    pub(in crate::proto) wnd: u16,
    pub(in crate::proto) ts: u32,
    pub(in crate::proto) una: u32,
}

impl Envelope {
    /// Writes the header of a segment whose body of `len` bytes stands behind it. Returns the bytes of both.
    fn seal(self, subtype: Subtype, tag: u32, out: &mut [u8], len: usize) -> usize {
        let Self { conv, wnd, ts, una } = self;
        let header = SegmentHeader {
            conv,
            cmd: Command::Extension,
            frg: subtype as u8,
            wnd,
            ts,
            sn: tag,
            una,
            len: len as u32,
        };
        out[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        HEADER_LEN + len
    }

    /// Writes a segment with this body. `None` where `out` is too short.
    fn write(self, subtype: Subtype, tag: u32, body: &[u8], out: &mut [u8]) -> Option<usize> {
        out.get_mut(HEADER_LEN..HEADER_LEN + body.len())?.copy_from_slice(body);
        Some(self.seal(subtype, tag, out, body.len()))
    }

    /// Writes a HELLO, padded to `padded` bytes with its header. `None` where it does not fit `out`.
    pub(in crate::proto) fn write_hello(
        self,
        hello: &Hello<'_>,
        padded: usize,
        out: &mut [u8],
    ) -> Option<usize> {
        let len = write_hello_body(hello, padded, out)?;
        Some(self.seal(Subtype::Hello, hello.id.tag(), out, len))
    }

    /// Writes an ANSWER to a HELLO whose tag is `tag`. `None` where it does not fit `out`.
    pub(in crate::proto) fn write_answer(self, hello: &Hello<'_>, tag: u32, out: &mut [u8]) -> Option<usize> {
        let len = write_hello_body(hello, 0, out)?;
        Some(self.seal(Subtype::Answer, tag, out, len))
    }

    pub(in crate::proto) fn write_fin(self, fin: Fin, tag: u32, out: &mut [u8]) -> Option<usize> {
        self.write(Subtype::Fin, tag, &fin.to_bytes(), out)
    }

    pub(in crate::proto) fn write_fin_ack(self, fin: Fin, tag: u32, out: &mut [u8]) -> Option<usize> {
        self.write(Subtype::FinAck, tag, &fin.to_bytes(), out)
    }

    pub(in crate::proto) fn write_abort(self, reason: u16, tag: u32, out: &mut [u8]) -> Option<usize> {
        let envelope = Self { wnd: reason, una: 0, ..self };
        envelope.write(Subtype::Abort, tag, &[], out)
    }

    /// Writes the answer to a PING of the tag `tag`; `ts` is that of the PING.
    pub(in crate::proto) fn write_reset(self, token: u64, tag: u32, out: &mut [u8]) -> Option<usize> {
        let envelope = Self { wnd: 0, una: 0, ..self };
        envelope.write(Subtype::Reset, tag, &token.to_le_bytes(), out)
    }

    /// The cookie that the next HELLO is to carry. `self.ts` is that of the HELLO which is answered.
    pub(in crate::proto) fn write_retry(self, cookie: &[u8], tag: u32, out: &mut [u8]) -> Option<usize> {
        let envelope = Self { wnd: 0, una: 0, ..self };
        let mut writer = FieldWriter::new(out.get_mut(HEADER_LEN..)?);
        writer.field(kind::COOKIE, cookie);
        let len = writer.finish()?;
        Some(envelope.seal(Subtype::Retry, tag, out, len))
    }

    pub(in crate::proto) fn write_ping(self, token: u64, tag: u32, out: &mut [u8]) -> Option<usize> {
        self.write(Subtype::Ping, tag, &token.to_le_bytes(), out)
    }

    /// Writes a PING that fills `out`.
    pub(in crate::proto) fn write_padded_ping(self, token: u64, tag: u32, out: &mut [u8]) -> Option<usize> {
        let (own, padding) = out.split_at_mut_checked(HEADER_LEN + TOKEN_LEN)?;
        own[HEADER_LEN..].copy_from_slice(&token.to_le_bytes());
        padding.fill(0);
        let len = out.len() - HEADER_LEN;
        Some(self.seal(Subtype::Ping, tag, out, len))
    }

    pub(in crate::proto) fn write_pong(self, token: u64, tag: u32, out: &mut [u8]) -> Option<usize> {
        self.write(Subtype::Pong, tag, &token.to_le_bytes(), out)
    }

    pub(in crate::proto) fn write_ecn(self, counts: EcnCounts, tag: u32, out: &mut [u8]) -> Option<usize> {
        self.write(Subtype::Ecn, tag, &counts.to_bytes(), out)
    }
}

/// Writes the body behind the room for a header, and returns its length.
fn write_hello_body(hello: &Hello<'_>, padded: usize, out: &mut [u8]) -> Option<usize> {
    let (fixed, rest) = out.get_mut(HEADER_LEN..)?.split_first_chunk_mut::<HELLO_LEN>()?;
    *fixed = [0; HELLO_LEN];
    fixed[..4].copy_from_slice(&MAGIC);
    (fixed[4], fixed[5]) = (hello.version, hello.oldest);
    fixed[8..12].copy_from_slice(&hello.caps.0.to_le_bytes());
    fixed[12..20].copy_from_slice(&hello.id.to_bytes());
    fixed[20..24].copy_from_slice(&hello.echo_ts.to_le_bytes());
    let mut writer = FieldWriter::new(rest);
    let Fields {
        keep_alive,
        cookie,
        token,
        unsupported,
        max_packet,
        reset_key,
        #[cfg(feature = "noise")]
        noise,
        unknown,
    } = hello.fields;
    #[cfg(feature = "noise")]
    if let Some(noise) = noise {
        writer.field(kind::NOISE | MUST_UNDERSTAND, noise);
    }
    if let Some(keep_alive) = keep_alive {
        writer.field(kind::KEEP_ALIVE, &keep_alive.to_le_bytes());
    }
    if let Some(cookie) = cookie {
        writer.field(kind::COOKIE, cookie);
    }
    if let Some(token) = token {
        writer.field(kind::TOKEN, &token.to_le_bytes());
    }
    if let Some(unsupported) = unsupported {
        writer.field(kind::UNSUPPORTED, unsupported);
    } else if !unknown.is_empty() {
        writer.field_of(kind::UNSUPPORTED, unknown.len(), unknown.must_understand());
    }
    if let Some(max_packet) = max_packet {
        writer.field(kind::MAX_PACKET, &max_packet.to_le_bytes());
    }
    if let Some(reset_key) = reset_key {
        writer.field(kind::RESET_KEY, reset_key);
    }
    writer.pad_to(padded.saturating_sub(HEADER_LEN + HELLO_LEN));
    Some(HELLO_LEN + writer.finish()?)
}

/// The fields of an ANSWER that refuses a HELLO because of these.
pub(super) fn refusing(unknown: KindSet) -> Fields<'static> {
    Fields { unknown, ..Fields::default() }
}
