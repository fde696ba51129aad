//! What is said in the clear. Each packet is one extension segment, so that a peer which knows nothing of it skips it.
//!
//! ```text
//! HELLO     subtype 0x01, tag of the sender     fixed body with its id | NOISE first message | COOKIE | PAD
//! ANSWER    subtype 0x02, tag of the HELLO      fixed body with an id  | NOISE answer, or refusal
//! NOISE     subtype 0x0b, tag of the ANSWER     last message
//! RETRY     subtype 0x03, tag of the HELLO      COOKIE
//! ABORT     subtype 0x06, tag of the HELLO      nothing
//! ```

use crate::proto::{
    extension::{Caps, Envelope, Fields, Hello, Segment, SessionId, Subtype, VERSION},
    wire::{Command, HEADER_LEN, SegmentHeader, Segments},
};

/// Subtype of the last message.
const LAST: u8 = 0x0b;
/// Bytes of HELLO and ANSWER that both ends mix into the handshake: conv and the fixed body.
pub(in crate::proto) const CONTEXT_LEN: usize = 4 + BODY_LEN;
const BODY_LEN: usize = 24;
/// The window of a segment that says nothing of one. A peer that believes it stops nothing (F3 of `docs/extensions.md`).
const WINDOW: u16 = 32;

/// A packet in the clear.
#[derive(Debug)]
pub(in crate::proto) enum Clear<'a> {
    Hello { ts: u32, cookie: Option<&'a [u8]>, greeting: Greeting<'a> },
    Answer { tag: u32, echo_ts: u32, greeting: Greeting<'a> },
    Last { tag: u32, message: &'a [u8] },
    Retry { tag: u32, ts: u32, cookie: &'a [u8] },
    Abort { tag: u32 },
}

/// What HELLO and ANSWER have in common.
#[derive(Debug)]
pub(in crate::proto) struct Greeting<'a> {
    pub(in crate::proto) id: SessionId,
    pub(in crate::proto) message: &'a [u8],
    /// What is said beside the message. The time that an ANSWER echoes is none of it: one answer is for several HELLOs.
    pub(in crate::proto) context: [u8; CONTEXT_LEN],
}

impl Greeting<'_> {
    /// Of the message's tag: a message that differs in any other bit is none.
    pub(in crate::proto) fn identity(&self) -> u64 {
        self.message.last_chunk().map_or(0, |tag| u64::from_le_bytes(*tag))
    }
}

/// Whether a packet looks like one in the clear. Of 4 billion sealed ones, less than one does.
pub(in crate::proto) fn is_clear(packet: &[u8]) -> bool {
    // Most are told by these bytes.
    packet.get(4) == Some(&(Command::Extension as u8)) && parse(packet).is_some()
}

/// Reads a packet in the clear; `None` for everything else.
pub(in crate::proto) fn parse(packet: &[u8]) -> Option<Clear<'_>> {
    let (header, body) = Segments::new(packet).next()?.ok()?;
    if header.cmd != Command::Extension || header.sn == 0 || HEADER_LEN + body.len() != packet.len() {
        return None;
    }
    let tag = header.sn;
    if header.frg == LAST {
        return Some(Clear::Last { tag, message: body });
    }
    Some(match Segment::parse(Subtype::from_byte(header.frg)?, &header, body).ok()? {
        Segment::Hello(hello) => {
            let greeting = greeting(header.conv, body, &hello)?;
            Clear::Hello { ts: header.ts, cookie: hello.fields.cookie, greeting }
        }
        Segment::Answer(answer) => {
            let greeting = greeting(header.conv, body, &answer)?;
            Clear::Answer { tag, echo_ts: answer.echo_ts, greeting }
        }
        Segment::Retry(cookie) => Clear::Retry { tag, ts: header.ts, cookie },
        Segment::Abort(_) => Clear::Abort { tag },
        _ => return None,
    })
}

fn greeting<'a>(conv: u32, body: &[u8], hello: &Hello<'a>) -> Option<Greeting<'a>> {
    let message = hello.fields.noise.filter(|_| hello.is_version_spoken())?;
    // Nothing else is among those that must be understood.
    (hello.fields.unknown.len() == 1).then_some(Greeting {
        id: hello.id,
        message,
        context: context(conv, body.first_chunk()?),
    })
}

fn context(conv: u32, body: &[u8; BODY_LEN]) -> [u8; CONTEXT_LEN] {
    let mut context = [0; CONTEXT_LEN];
    context[..4].copy_from_slice(&conv.to_le_bytes());
    context[4..24].copy_from_slice(&body[..20]);
    context
}

/// What is said beside the message of an end with this id.
pub(in crate::proto) fn own_context(conv: u32, id: SessionId) -> [u8; CONTEXT_LEN] {
    let mut packet = [0; HEADER_LEN + BODY_LEN];
    let envelope = Envelope { conv, wnd: WINDOW, ts: 0, una: 0 };
    envelope.write_hello(&hello(id, 0, Fields::default()), 0, &mut packet);
    let mut body = [0; BODY_LEN];
    body.copy_from_slice(&packet[HEADER_LEN..]);
    context(conv, &body)
}

const fn hello(id: SessionId, echo_ts: u32, fields: Fields<'_>) -> Hello<'_> {
    Hello { version: VERSION, oldest: VERSION, caps: Caps(0), id, echo_ts, fields }
}

/// Writes a HELLO, padded to `padded` bytes. Returns its bytes; `None` where it does not fit `out`.
pub(super) fn write_hello(
    conv: u32,
    ts: u32,
    id: SessionId,
    message: &[u8],
    cookie: Option<&[u8]>,
    padded: usize,
    out: &mut [u8],
) -> Option<usize> {
    let fields = Fields { noise: Some(message), cookie, ..Fields::default() };
    Envelope { conv, wnd: WINDOW, ts, una: 0 }.write_hello(&hello(id, 0, fields), padded, out)
}

/// Writes the ANSWER of the end with this `id` to a HELLO of that tag and time.
pub(in crate::proto) fn write_answer(
    conv: u32,
    id: SessionId,
    (tag, ts): (u32, u32),
    message: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let fields = Fields { noise: Some(message), ..Fields::default() };
    Envelope { conv, wnd: WINDOW, ts, una: 0 }.write_answer(&hello(id, ts, fields), tag, out)
}

/// Writes the last message for the end whose ANSWER had this tag's id.
pub(super) fn write_last(conv: u32, ts: u32, tag: u32, message: &[u8], out: &mut [u8]) -> Option<usize> {
    let len = message.len();
    out.get_mut(HEADER_LEN..HEADER_LEN + len)?.copy_from_slice(message);
    let header = SegmentHeader {
        conv,
        cmd: Command::Extension,
        frg: LAST,
        wnd: WINDOW,
        ts,
        sn: tag,
        una: 0,
        len: len as u32,
    };
    out[..HEADER_LEN].copy_from_slice(&header.to_bytes());
    Some(HEADER_LEN + len)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn id(byte: u8) -> SessionId {
        SessionId::non_zero([byte; 8])
    }

    #[test]
    fn what_is_written_is_read_with_the_context_of_its_sender() {
        let mut packet = [0; 400];
        let len = write_hello(7, 9, id(1), b"first", Some(&[5; 20]), 256, &mut packet).unwrap();
        assert_eq!(len, 256);
        let Some(Clear::Hello { ts: 9, cookie: Some(cookie), greeting }) = parse(&packet[..len]) else {
            panic!("not read");
        };
        assert_eq!((cookie, greeting.message, greeting.id), (&[5; 20][..], &b"first"[..], id(1)));
        assert_eq!(greeting.context, own_context(7, id(1)));
        let len = write_answer(7, id(2), (id(1).tag(), 9), b"answer", &mut packet).unwrap();
        let Some(Clear::Answer { tag, echo_ts: 9, greeting }) = parse(&packet[..len]) else {
            panic!("not read");
        };
        assert_eq!((tag, greeting.message), (id(1).tag(), &b"answer"[..]));
        assert_eq!(greeting.context, own_context(7, id(2)), "the echoed time is none of it");
        assert_ne!(greeting.context, own_context(8, id(2)));
        let len = write_last(7, 9, id(2).tag(), b"last", &mut packet).unwrap();
        let Some(Clear::Last { tag, message: b"last" }) = parse(&packet[..len]) else { panic!("not read") };
        assert_eq!(tag, id(2).tag());
    }

    #[test]
    fn other_packets_are_none_in_the_clear() {
        let mut packet = vec![0; 400];
        let len = write_hello(7, 9, id(1), b"first", None, 0, &mut packet).unwrap();
        for cut in 0..len {
            assert!(parse(&packet[..cut]).is_none(), "{cut}");
        }
        assert!(is_clear(&packet[..len]) && !is_clear(&packet[..len + 1]));
        // An ordinary HELLO has no message.
        let envelope = Envelope { conv: 7, wnd: 1, ts: 1, una: 0 };
        let len = envelope.write_hello(&hello(id(1), 0, Fields::default()), 0, &mut packet).unwrap();
        assert!(parse(&packet[..len]).is_none());
    }
}
