//! The packets that are sent: ordinary ones, and as costly ones as there are.

use kcp9::proto::{
    Command, HEADER_LEN, SegmentHeader,
    noise::SessionCipher::{Aes256Gcm, ChaCha20Poly1305},
};

use super::peer::{CONV, Kind, Peer, extension, header, padded_hello, push};
use crate::packets::{FULL, field, hello, id, subtype, token};

/// Segments with a byte each, and without any, in a full packet.
const OF_A_BYTE: u32 = (FULL / (HEADER_LEN + 1)) as u32;
const EMPTY: u32 = (FULL / HEADER_LEN) as u32;
/// Extension segments with 8 bytes in a full packet.
const OF_8_BYTES: u32 = (FULL / (HEADER_LEN + 8)) as u32;
/// Packets that are sent at once. Two such bursts of each peer are under way, so that the driver always has some before it.
const BURST: u32 = 8;

pub(super) struct Burst {
    /// Sent from another address, and first.
    pub(super) elsewhere: Vec<Vec<u8>>,
    /// All but the last have the same length. The last one is acknowledged.
    pub(super) packets: Vec<Vec<u8>>,
}

pub(super) type Make = fn(&mut Peer) -> Burst;

/// What it is called, what sends it, how many bursts, and what they have.
pub(super) struct Pattern {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) bursts: u32,
    pub(super) make: Make,
}

const fn pattern(name: &'static str, kind: Kind, make: Make) -> Pattern {
    Pattern { name, kind, bursts: 200, make }
}

pub(super) const PATTERNS: &[Pattern] = &[
    pattern("ordinary: a full PUSH in order", Kind::Plain, full),
    pattern("56 PUSHes of a byte behind a gap, then 56 that close it", Kind::Plain, |peer| {
        gaps(peer, OF_A_BYTE, 1)
    }),
    pattern("58 empty PUSHes behind a gap, then 58 that close it", Kind::Plain, |peer| gaps(peer, EMPTY, 0)),
    pattern("56 PUSHes of a byte in order", Kind::Plain, |peer| {
        let first = take(peer, BURST * OF_A_BYTE);
        let packet = |nth| (0..OF_A_BYTE).flat_map(|at| push(first + nth * OF_A_BYTE + at, 1)).collect();
        sealed(peer, (0..BURST).map(packet).collect())
    }),
    pattern("58 duplicates behind a gap", Kind::Plain, |peer| {
        let first = take(peer, EMPTY + 1);
        let packet = |_| (0..EMPTY).flat_map(|at| push(first + 1 + at, 0)).collect();
        sealed(peer, (0..BURST).map(packet).chain([push(first, 0)]).collect())
    }),
    pattern("58 WASK", Kind::Plain, |peer| {
        let wask = header(Command::Wask, 0).to_bytes();
        and_a_push(peer, |_| wask.repeat(EMPTY as usize))
    }),
    pattern("43 PINGs with the right tag", Kind::Extensions, |peer| {
        and_a_push(peer, |peer| of_tokens(peer, subtype::PING))
    }),
    pattern("43 PONGs with other tokens", Kind::Extensions, |peer| {
        and_a_push(peer, |peer| of_tokens(peer, subtype::PONG))
    }),
    pattern("29 HELLOs of others", Kind::Extensions, |peer| {
        and_a_push(peer, |peer| (0..29).flat_map(|_| other_hello(peer, &[])).collect())
    }),
    pattern("a HELLO of another, 1,200 bytes", Kind::Extensions, |peer| {
        and_a_push(peer, |peer| padded_hello(CONV, id(peer.draw()), &[]))
    }),
    pattern("a HELLO of another with 380 unknown fields", Kind::Extensions, |peer| {
        let fields: Vec<u8> = (0..380_u32).flat_map(|at| field(0x30 + (at % 64) as u8, &[])).collect();
        and_a_push(peer, |peer| other_hello(peer, &fields))
    }),
    pattern("a HELLO of another with 380 empty paddings", Kind::Extensions, |peer| {
        and_a_push(peer, |peer| other_hello(peer, &[0; 3 * 380]))
    }),
    pattern("AES-256-GCM, ordinary: a full PUSH in order", Kind::Sealed(Aes256Gcm), full),
    pattern(
        "AES-256-GCM, 55 PUSHes of a byte behind a gap, then 55 that close it",
        Kind::Sealed(Aes256Gcm),
        |peer| gaps(peer, (peer.room() / (HEADER_LEN + 1)) as u32, 1),
    ),
    pattern("AES-256-GCM, forged, the right route", Kind::Sealed(Aes256Gcm), forged),
    pattern(
        "AES-256-GCM, forged, the right route, from elsewhere",
        Kind::Sealed(Aes256Gcm),
        forged_from_elsewhere,
    ),
    pattern("AES-256-GCM, true, from elsewhere", Kind::Sealed(Aes256Gcm), true_from_elsewhere),
    pattern("AES-256-GCM, forged, another route", Kind::Sealed(Aes256Gcm), of_another_route),
    pattern("AES-256-GCM, replayed", Kind::Sealed(Aes256Gcm), replayed),
    pattern("ChaCha20-Poly1305, ordinary: a full PUSH in order", Kind::Sealed(ChaCha20Poly1305), full),
    pattern("ChaCha20-Poly1305, forged, the right route", Kind::Sealed(ChaCha20Poly1305), forged),
    pattern(
        "ChaCha20-Poly1305, forged, the right route, from elsewhere",
        Kind::Sealed(ChaCha20Poly1305),
        forged_from_elsewhere,
    ),
    pattern("ChaCha20-Poly1305, forged, another route", Kind::Sealed(ChaCha20Poly1305), of_another_route),
    pattern("ChaCha20-Poly1305, replayed", Kind::Sealed(ChaCha20Poly1305), replayed),
    // No more than begin without a cookie.
    Pattern {
        bursts: 40,
        ..pattern("opening: a HELLO of 1,200 bytes", Kind::Extensions, |peer| {
            and_a_push(peer, |peer| {
                let number = peer.draw();
                padded_hello(CONV + number, id(number), &[])
            })
        })
    },
    Pattern {
        bursts: 40,
        ..pattern("opening: a PUSH of a byte", Kind::Plain, |peer| {
            and_a_push(peer, |peer| {
                SegmentHeader { conv: CONV + peer.draw(), len: 1, ..header(Command::Push, 0) }
                    .to_bytes()
                    .into_iter()
                    .chain([9])
                    .collect()
            })
        })
    },
];

/// The first of so many numbers of segments, which are the next.
const fn take(peer: &mut Peer, numbers: u32) -> u32 {
    let first = peer.sn;
    peer.sn += numbers;
    first
}

fn sealed(peer: &mut Peer, packets: Vec<Vec<u8>>) -> Burst {
    let packets = packets.into_iter().map(|segments| peer.sealed(segments)).collect();
    Burst { elsewhere: Vec::new(), packets }
}

/// Packets that draw no ACK, and one that does.
fn and_a_push(peer: &mut Peer, make: impl Fn(&mut Peer) -> Vec<u8>) -> Burst {
    let mut packets: Vec<_> = (0..BURST).map(|_| make(peer)).collect();
    packets.push(push(take(peer, 1), 0));
    Burst { elsewhere: Vec::new(), packets }
}

fn full(peer: &mut Peer) -> Burst {
    let (first, len) = (take(peer, BURST), (peer.room() - HEADER_LEN) as u32);
    sealed(peer, (0..BURST).map(|at| push(first + at, len)).collect())
}

/// By turns a packet of `count` PUSHes with `len` bytes each behind a gap, and one that closes it and repeats all but the last of them.
fn gaps(peer: &mut Peer, count: u32, len: u32) -> Burst {
    let first = take(peer, BURST / 2 * (count + 1));
    let of_gap = |first: u32| {
        let behind = (0..count).flat_map(|at| push(first + count - at, len)).collect();
        [behind, (0..count).flat_map(|at| push(first + at, len)).collect()]
    };
    let firsts = (0..BURST / 2).map(|gap| first + gap * (count + 1));
    sealed(peer, firsts.flat_map(of_gap).collect())
}

/// A packet full of extension segments with a token each.
fn of_tokens(peer: &mut Peer, subtype: u8) -> Vec<u8> {
    (0..OF_8_BYTES).flat_map(|_| extension(CONV, subtype, peer.tag, &token(peer.draw()))).collect()
}

fn other_hello(peer: &mut Peer, fields: &[u8]) -> Vec<u8> {
    let id = id(peer.draw());
    extension(CONV, subtype::HELLO, id as u32, &hello(id, fields))
}

/// Full packets that have of a true one what shows of which session it is, and a counter that has not come yet. By turns they look as
/// if under the current key and under the next.
fn forgeries(peer: &mut Peer, of: &[u8]) -> Vec<Vec<u8>> {
    const COUNTER_AHEAD: u32 = 1 << 20;
    const OTHER_PHASE: u32 = 1 << 31;
    let shown = 24;
    let mut packet = vec![0; FULL];
    packet[..shown].copy_from_slice(&of[..shown]);
    (0..BURST)
        .map(|nth| {
            let masked = u32::from_le_bytes(of[4..8].try_into().expect("4 bytes"));
            let masked = masked ^ COUNTER_AHEAD ^ if nth % 2 == 0 { 0 } else { OTHER_PHASE };
            packet[4..8].copy_from_slice(&masked.to_le_bytes());
            packet[shown..shown + 4].copy_from_slice(&peer.draw().to_le_bytes());
            packet.clone()
        })
        .collect()
}

fn sealed_push(peer: &mut Peer) -> Vec<u8> {
    let push = push(take(peer, 1), 0);
    peer.sealed(push)
}

fn forged(peer: &mut Peer) -> Burst {
    let last = sealed_push(peer);
    let packets = forgeries(peer, &last).into_iter().chain([last.clone()]).collect();
    Burst { elsewhere: Vec::new(), packets }
}

fn forged_from_elsewhere(peer: &mut Peer) -> Burst {
    let last = sealed_push(peer);
    Burst { elsewhere: forgeries(peer, &last), packets: vec![last] }
}

/// They say nothing of the session's, and ask for nothing.
fn true_from_elsewhere(peer: &mut Peer) -> Burst {
    let segments = vec![header(Command::Wins, 0).to_bytes(); peer.room() / HEADER_LEN].concat();
    let elsewhere = (0..BURST).map(|_| peer.sealed(segments.clone())).collect();
    Burst { elsewhere, packets: vec![sealed_push(peer)] }
}

fn of_another_route(peer: &mut Peer) -> Burst {
    let last = sealed_push(peer);
    let random = |peer: &mut Peer| (0..FULL / 8).flat_map(|_| token(peer.draw())).collect();
    let packets = (0..BURST).map(|_| random(peer)).chain([last]).collect();
    Burst { elsewhere: Vec::new(), packets }
}

/// The first burst is what is sent again.
fn replayed(peer: &mut Peer) -> Burst {
    let mut packets = std::mem::take(&mut peer.last);
    packets.truncate(BURST as usize);
    if packets.len() < BURST as usize {
        return full(peer);
    }
    packets.push(sealed_push(peer));
    Burst { elsewhere: Vec::new(), packets }
}
