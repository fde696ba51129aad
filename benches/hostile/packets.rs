//! Packets that cost their sender little: those of honest peers first, to compare with.

use std::{net::SocketAddr, time::Duration};

use kcp9::proto::{Command, HEADER_LEN, SegmentHeader};

use crate::victim::{CONV, PEER, Victim, settings, stranger, with_aead};

/// Bytes of a full packet, and of its payload.
pub(crate) const FULL: usize = 1_400;
const PAYLOAD: usize = FULL - HEADER_LEN;
/// Segments without payload in a full packet.
const SEGMENTS: u32 = (FULL / HEADER_LEN) as u32;

/// Subtypes of the extensions.
pub(crate) mod subtype {
    pub(crate) const HELLO: u8 = 0x01;
    pub(crate) const ANSWER: u8 = 0x02;
    pub(crate) const RETRY: u8 = 0x03;
    pub(crate) const FIN: u8 = 0x04;
    pub(crate) const ABORT: u8 = 0x06;
    pub(crate) const RESET: u8 = 0x07;
    pub(crate) const PING: u8 = 0x08;
    pub(crate) const PONG: u8 = 0x09;
    pub(crate) const ECN: u8 = 0x0a;
    pub(crate) const UNKNOWN: u8 = 0x7f;
}

type Make = fn(&mut Victim, u32) -> Vec<u8>;

/// A pattern of packets without end: each is made from its number, and from how far the session has come.
pub(crate) struct Pattern {
    pub(crate) name: &'static str,
    pub(crate) victim: fn() -> Victim,
    /// What is done once, before the first packet.
    pub(crate) prepare: fn(&mut Victim),
    /// Where a packet comes from, by its number.
    pub(crate) from: fn(u32) -> SocketAddr,
    pub(crate) make: Make,
    /// Packets that may be made before the first of them is taken in.
    pub(crate) ahead: usize,
}

fn plain() -> Victim {
    Victim::new(settings())
}

fn sealed() -> Victim {
    Victim::new(with_aead(settings()))
}

fn of_peer(_: u32) -> SocketAddr {
    SocketAddr::from(PEER)
}

/// Many senders, as many as a forger likes.
fn of_strangers(number: u32) -> SocketAddr {
    stranger(number & 0xffff)
}

/// What the session's peer sends, or somebody in its name.
fn peer(name: &'static str, make: Make) -> Pattern {
    Pattern { name, victim: plain, prepare: |_| {}, from: of_peer, make, ahead: 64 }
}

/// The same while 10 segments of the victim are in flight, the first of which is lost.
fn in_flight(name: &'static str, make: Make) -> Pattern {
    let prepare = |victim: &mut Victim| {
        let sent = victim.send(10, 100);
        assert_eq!(sent.len(), 10);
    };
    Pattern { prepare, ..peer(name, make) }
}

/// The same while a segment that came before is missing.
fn behind_a_gap(name: &'static str, make: Make) -> Pattern {
    Pattern { prepare: |victim| victim.peer_sn += 1, ..peer(name, make) }
}

fn strangers(name: &'static str, make: Make) -> Pattern {
    Pattern { from: of_strangers, ..peer(name, make) }
}

fn under_a_key(pattern: Pattern) -> Pattern {
    Pattern { victim: sealed, ..pattern }
}

// ---- Segments ----

fn segment(victim: &Victim, cmd: Command, sn: u32) -> SegmentHeader {
    SegmentHeader { conv: CONV, cmd, frg: 0, wnd: 1_024, ts: victim.ts, sn, una: victim.sn, len: 0 }
}

fn push(victim: &Victim, sn: u32, len: usize) -> Vec<u8> {
    let header = SegmentHeader { len: len as u32, ..segment(victim, Command::Push, sn) };
    [&header.to_bytes()[..], &vec![9; len]].concat()
}

/// A full packet of segments without payload.
fn segments(of: impl Fn(u32) -> SegmentHeader) -> Vec<u8> {
    (0..SEGMENTS).flat_map(|at| of(at).to_bytes()).collect()
}

fn extension(victim: &Victim, subtype: u8, tag: u32, body: &[u8]) -> Vec<u8> {
    let header = SegmentHeader {
        frg: subtype,
        ts: victim.ts.wrapping_add(1),
        len: body.len() as u32,
        ..segment(victim, Command::Extension, tag)
    };
    [&header.to_bytes()[..], body].concat()
}

/// A full packet of extension segments; `body` makes the bodies from their numbers.
fn extensions(victim: &Victim, subtype: u8, tag: u32, body: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let one = HEADER_LEN + body(0).len();
    (0..(FULL / one) as u32).flat_map(|at| extension(victim, subtype, tag, &body(at))).collect()
}

pub(crate) fn token(number: u32) -> Vec<u8> {
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec()
}

/// The body of a HELLO or an ANSWER.
pub(crate) fn hello(id: u64, fields: &[u8]) -> Vec<u8> {
    let mut body = b"kcp9\x01\x01\0\0".to_vec();
    body.extend(0_u32.to_le_bytes());
    body.extend(id.to_le_bytes());
    body.extend(0_u32.to_le_bytes());
    body.extend(fields);
    body
}

pub(crate) fn field(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind][..], &(value.len() as u16).to_le_bytes(), value].concat()
}

/// As long as our own, by its padding.
fn padded_hello(victim: &Victim, id: u64) -> Vec<u8> {
    let body = hello(id, &field(0, &[0; 1_200 - HEADER_LEN - 24 - 3]));
    extension(victim, subtype::HELLO, id as u32, &body)
}

/// The id of another peer: the low half is its tag.
pub(crate) fn id(number: u32) -> u64 {
    u64::from(number.wrapping_mul(0x9e37_79b1)) << 8 | 0x8000_0001
}

// ---- The patterns ----

pub(crate) fn honest() -> Vec<Pattern> {
    let full: Make = |victim, _| {
        let sn = victim.peer_sn;
        victim.peer_sn = sn.wrapping_add(1);
        let packet = push(victim, sn, PAYLOAD);
        victim.sealed(packet)
    };
    vec![
        peer("honest: full PUSH in order", full),
        peer("honest: PUSH of 64 bytes in order", |victim, _| {
            let sn = victim.peer_sn;
            victim.peer_sn = sn.wrapping_add(1);
            push(victim, sn, 64)
        }),
        Pattern { ahead: 1, ..peer("honest: ACK of 2 segments in flight", |victim, _| acks(victim, 2)) },
        under_a_key(peer("honest, AEAD: full PUSH in order", full)),
    ]
}

/// The ACKs of segments that are sent for this.
fn acks(victim: &mut Victim, count: usize) -> Vec<u8> {
    victim.wait(Duration::from_millis(1));
    let sent = victim.send(count, 1_000);
    assert_eq!(sent.len(), count);
    let ack =
        |sent: &SegmentHeader| SegmentHeader { cmd: Command::Ack, wnd: 1_024, una: sent.sn, len: 0, ..*sent };
    sent.iter().flat_map(|sent| ack(sent).to_bytes()).collect()
}

pub(crate) fn of_acks() -> Vec<Pattern> {
    vec![
        in_flight("ACKs: of what was never sent, 58", |victim, n| {
            segments(|at| SegmentHeader {
                una: victim.sn - 10,
                ..segment(victim, Command::Ack, victim.sn + n % 999 + at)
            })
        }),
        in_flight("ACKs: of one segment that was confirmed, 58", |victim, _| {
            segments(|_| SegmentHeader {
                una: victim.sn - 10,
                ..segment(victim, Command::Ack, victim.sn - 1)
            })
        }),
        in_flight("ACKs: `una` past what was sent, 58", |victim, n| {
            segments(|at| SegmentHeader { una: victim.sn + 1 + at, ..segment(victim, Command::Ack, n) })
        }),
        in_flight("ACKs: `una` of before, 58", |victim, n| {
            segments(|at| SegmentHeader { una: at % 2, ..segment(victim, Command::Ack, n) })
        }),
        peer("ACKs: nothing in flight, 58", |victim, n| segments(|_| segment(victim, Command::Ack, n))),
        Pattern { ahead: 1, ..peer("ACKs: 16 segments in flight", |victim, _| acks(victim, 16)) },
        peer("ACK: nothing in flight, 1", |victim, n| segment(victim, Command::Ack, n).to_bytes().to_vec()),
        peer("WASK: 1", |victim, n| segment(victim, Command::Wask, n).to_bytes().to_vec()),
        peer("WASK: 58", |victim, n| segments(|_| segment(victim, Command::Wask, n))),
        peer("WINS: 1", |victim, n| {
            SegmentHeader { wnd: n as u16, ..segment(victim, Command::Wins, n) }.to_bytes().to_vec()
        }),
        in_flight("WINS: other windows and `una`, 58", |victim, n| {
            segments(|at| SegmentHeader {
                wnd: (n + at) as u16,
                una: victim.sn - 10 + at % 12,
                ..segment(victim, Command::Wins, n)
            })
        }),
    ]
}

pub(crate) fn of_pushes() -> Vec<Pattern> {
    vec![
        peer("PUSH: duplicate, full", |victim, _| push(victim, victim.peer_sn - 1, PAYLOAD)),
        peer("PUSH: duplicate, empty", |victim, _| push(victim, victim.peer_sn - 1, 0)),
        peer("PUSH: duplicates, 58", |victim, _| {
            segments(|_| segment(victim, Command::Push, victim.peer_sn - 1))
        }),
        behind_a_gap("PUSH: duplicate behind a gap, full", |victim, _| {
            push(victim, victim.peer_sn + 9, PAYLOAD)
        }),
        behind_a_gap("PUSH: duplicate behind a gap, empty", |victim, _| push(victim, victim.peer_sn + 9, 0)),
        behind_a_gap("PUSH: duplicates behind a gap, 58", |victim, _| {
            segments(|at| segment(victim, Command::Push, victim.peer_sn + at))
        }),
        peer("PUSH: 58 empty ones, then the gap is closed", |victim, n| {
            let first = victim.peer_sn;
            // By turns 58 behind a gap, and what was missing with 57 duplicates.
            if n.is_multiple_of(2) {
                return segments(|at| segment(victim, Command::Push, first + SEGMENTS - at));
            }
            victim.peer_sn += SEGMENTS + 1;
            segments(|at| segment(victim, Command::Push, first + at))
        }),
        peer("PUSH: 56 of a byte, then the gap is closed", |victim, n| {
            let first = victim.peer_sn;
            if n.is_multiple_of(2) {
                return (0..56).flat_map(|at| push(victim, first + 56 - at, 1)).collect();
            }
            victim.peer_sn += 57;
            (0..56).flat_map(|at| push(victim, first + at, 1)).collect()
        }),
        peer("PUSH: 56 of a byte in order", |victim, _| {
            let first = victim.peer_sn;
            victim.peer_sn += 56;
            (0..56).flat_map(|at| push(victim, first + at, 1)).collect()
        }),
        peer("PUSH: empty ones in order, 58", |victim, _| {
            let first = victim.peer_sn;
            victim.peer_sn += SEGMENTS;
            segments(|at| segment(victim, Command::Push, first + at))
        }),
        peer("PUSH: past the window, full", |victim, n| {
            push(victim, victim.peer_sn + 70_000 + n % 99, PAYLOAD)
        }),
        peer("PUSH: past the window, empty", |victim, n| push(victim, victim.peer_sn + 70_000 + n % 99, 0)),
        peer("PUSH: past the window, 58", |victim, n| {
            segments(|at| segment(victim, Command::Push, victim.peer_sn + 70_000 + n % 99 + at))
        }),
        behind_a_gap("WASK, ACK, PUSH by turns, 58", |victim, _| {
            let cmds = [Command::Wask, Command::Ack, Command::Push];
            segments(|at| segment(victim, cmds[at as usize % 3], victim.peer_sn + at))
        }),
        peer("segment cut short", |victim, _| push(victim, victim.peer_sn, 100)[..60].to_vec()),
        peer("`len` of 4 GiB", |victim, _| {
            SegmentHeader { len: u32::MAX, ..segment(victim, Command::Push, victim.peer_sn) }
                .to_bytes()
                .to_vec()
        }),
        peer("another conv behind 57 ACKs", |victim, n| {
            let mut packet = segments(|_| segment(victim, Command::Ack, n));
            packet[57 * HEADER_LEN..57 * HEADER_LEN + 4].fill(3);
            packet
        }),
        peer("unknown command", |victim, n| {
            let mut packet = segment(victim, Command::Ack, n).to_bytes().to_vec();
            packet[4] = 99;
            packet
        }),
        peer("datagram, full", |victim, _| datagram(victim, 1_388)),
        peer("datagram, empty", |victim, _| datagram(victim, 0)),
    ]
}

fn datagram(_: &Victim, len: usize) -> Vec<u8> {
    let size = (6 + len) as u16;
    [&[0xff; 4][..], &[0xf3, 0], &size.to_le_bytes(), &CONV.to_le_bytes(), &vec![1; len]].concat()
}

pub(crate) fn of_extensions() -> Vec<Pattern> {
    use subtype::*;
    vec![
        peer("HELLO: of another peer, 1,200 bytes", |victim, n| padded_hello(victim, id(n))),
        peer("HELLO: of others, 29", |victim, n| {
            (0..29)
                .flat_map(|at| {
                    let id = id(n * 29 + at);
                    extension(victim, HELLO, id as u32, &hello(id, &[]))
                })
                .collect()
        }),
        peer("HELLO: 380 unknown fields", |victim, n| {
            let fields: Vec<u8> = (0..380).flat_map(|at: u32| field(0x30 + (at % 64) as u8, &[])).collect();
            extension(victim, HELLO, id(n) as u32, &hello(id(n), &fields))
        }),
        peer("HELLO: 380 empty paddings", |victim, n| {
            extension(victim, HELLO, id(n) as u32, &hello(id(n), &[0; 3 * 380]))
        }),
        peer("ANSWER: wrong tag, 29", |victim, n| {
            extensions(victim, ANSWER, victim.tag ^ 1, |at| hello(id(n + at), &[]))
        }),
        peer("ANSWER: right tag, 29", |victim, n| {
            extensions(victim, ANSWER, victim.tag, |at| hello(id(n + at), &[]))
        }),
        peer("RETRY: right tag, 29", |victim, n| {
            extensions(victim, RETRY, victim.tag, |at| field(2, &token(n + at)))
        }),
        peer("PING: wrong tag, 1", |victim, n| extension(victim, PING, victim.tag ^ 1, &token(n))),
        peer("PING: wrong tag, 43", |victim, n| extensions(victim, PING, victim.tag ^ 1, |at| token(n + at))),
        peer("PING: right tag, 1", |victim, n| extension(victim, PING, victim.tag, &token(n))),
        peer("PING: right tag, 43", |victim, n| extensions(victim, PING, victim.tag, |at| token(n + at))),
        peer("PING: right tag, padded to 1,400 bytes", |victim, n| {
            extension(victim, PING, victim.tag, &[token(n), vec![0; FULL - HEADER_LEN - 8]].concat())
        }),
        peer("PONG: right tag, another token, 1", |victim, n| extension(victim, PONG, victim.tag, &token(n))),
        peer("PONG: right tag, other tokens, 43", |victim, n| {
            extensions(victim, PONG, victim.tag, |at| token(n + at))
        }),
        peer("FIN: wrong tag, 43", |victim, _| extensions(victim, FIN, victim.tag ^ 1, |_| vec![0; 8])),
        peer("FIN: right tag, 43", |victim, _| {
            let end = victim.peer_sn.to_le_bytes();
            extensions(victim, FIN, victim.tag, |_| [&end[..], &[0; 4]].concat())
        }),
        peer("FIN: right tag, other ends, 43", |victim, n| {
            extensions(victim, FIN, victim.tag, |at| [(n + at).to_le_bytes(), [0; 4]].concat())
        }),
        peer("ABORT: wrong tag, 58", |victim, _| extensions(victim, ABORT, victim.tag ^ 1, |_| Vec::new())),
        peer("RESET: right tag, other tokens, 43", |victim, n| {
            extensions(victim, RESET, victim.peer_tag, |at| token(n + at))
        }),
        peer("ECN: wrong tag, 38", |victim, _| extensions(victim, ECN, victim.tag ^ 1, |_| vec![0; 12])),
        peer("ECN: right tag, 38", |victim, n| {
            extensions(victim, ECN, victim.tag, |at| {
                [n + at, 0, n].iter().flat_map(|count| count.to_le_bytes()).collect()
            })
        }),
        peer("unknown subtype, right tag, 58", |victim, _| {
            extensions(victim, UNKNOWN, victim.tag, |_| Vec::new())
        }),
        peer("PING, PONG, HELLO, FIN by turns, 1", |victim, n| match n % 4 {
            0 => extension(victim, PING, victim.tag, &token(n)),
            1 => extension(victim, PONG, victim.tag, &token(n)),
            2 => extension(victim, FIN, victim.tag, &token(n)),
            _ => extension(victim, PING, victim.tag ^ 1, &token(n)),
        }),
    ]
}

pub(crate) fn of_strangers_in_all() -> Vec<Pattern> {
    use subtype::*;
    let noise: Make = |_, n| (0..FULL as u32).map(|at| (at.wrapping_mul(n | 1) >> 3) as u8).collect();
    let short: Make = |_, n| n.to_le_bytes().repeat(6);
    let with_cookies: fn() -> Victim = || Victim::new(settings().cookies(kcp9::proto::CookiePolicy::Always));
    vec![
        strangers("no session: noise, 1,400 bytes", noise),
        strangers("no session: noise, 24 bytes", short),
        strangers("no session: noise, 3 bytes", |_, _| vec![1; 3]),
        strangers("no session: PUSH that would begin one", |victim, _| push(victim, 0, 1)),
        strangers("no session: PUSH that would not", |victim, _| push(victim, 9, 1)),
        strangers("no session: 58 PUSHes that would not", |victim, _| {
            segments(|at| segment(victim, Command::Push, 1 + at))
        }),
        strangers("no session: ACKs, 58", |victim, n| segments(|_| segment(victim, Command::Ack, n))),
        strangers("no session: WASK", |victim, n| segment(victim, Command::Wask, n).to_bytes().to_vec()),
        strangers("no session: PINGs, 43", |victim, n| extensions(victim, PING, n | 1, token)),
        strangers("no session: PING", |victim, n| extension(victim, PING, n | 1, &token(n))),
        strangers("no session: HELLO that would begin one", |victim, n| padded_hello(victim, id(n))),
        Pattern {
            victim: with_cookies,
            ..strangers("cookies: HELLO without one", |victim, n| padded_hello(victim, id(n)))
        },
        Pattern {
            victim: with_cookies,
            ..strangers("cookies: HELLO with a wrong one", |victim, n| {
                let seconds = (victim.now.as_micros() / 1_000_000) as u32;
                let cookie = [&seconds.to_le_bytes()[..], &[7; 16]].concat();
                let fields = [field(2, &cookie), field(0, &[0; 1_100])].concat();
                extension(victim, HELLO, id(n) as u32, &hello(id(n), &fields))
            })
        },
        Pattern {
            from: of_peer,
            ..strangers("peer's address: other convs", |victim, n| {
                let mut packet = push(victim, 9, 1);
                packet[..4].copy_from_slice(&(n | 0x100).to_le_bytes());
                packet
            })
        },
        under_a_key(Pattern { from: of_peer, ..strangers("AEAD: noise, 1,400 bytes", noise) }),
        under_a_key(strangers("AEAD: noise of strangers, 1,400 bytes", noise)),
        under_a_key(strangers("AEAD: noise of strangers, 24 bytes", short)),
        under_a_key(Pattern {
            ahead: 1,
            ..peer("AEAD: the same packet again, full", |victim, n| {
                // The first time it is new.
                if n == 0 {
                    let packet = push(victim, victim.peer_sn, PAYLOAD);
                    victim.last = victim.sealed(packet);
                }
                victim.last.clone()
            })
        }),
        under_a_key(strangers("AEAD, elsewhere: PING, wrong tag", |victim, n| {
            let packet = extension(victim, PING, victim.tag ^ 1, &token(n));
            victim.sealed(packet)
        })),
        under_a_key(strangers("AEAD, elsewhere: PING, right tag", |victim, n| {
            let packet = extension(victim, PING, victim.tag, &token(n));
            victim.sealed(packet)
        })),
        under_a_key(strangers("AEAD, elsewhere: PINGs, right tag, 42", |victim, n| {
            let mut packet = extensions(victim, PING, victim.tag, |at| token(n + at));
            packet.truncate(42 * 32);
            victim.sealed(packet)
        })),
        under_a_key(strangers("AEAD, elsewhere: PONG, right tag", |victim, n| {
            let packet = extension(victim, PONG, victim.tag, &token(n));
            victim.sealed(packet)
        })),
    ]
}
