//! What a run is to do, and the packets that it is done with.

use std::net::SocketAddr;

use arbitrary::Arbitrary;
use kcp9::proto::{Command, SegmentHeader};

use crate::agreements;

/// Of sessions with static ciphers or none, or of those that agree on keys.
#[derive(Debug, Arbitrary)]
pub(crate) enum Input {
    Static(Plan),
    Agreements(agreements::Plan),
}

#[derive(Debug, Arbitrary)]
pub(crate) struct Plan {
    pub(crate) accepting: bool,
    /// Whether accepted sessions are encrypted.
    pub(crate) encrypted: bool,
    pub(crate) one_per_address: bool,
    /// Whether the extensions are on.
    pub(crate) extensions: bool,
    /// Whether few sessions may be half-open, and whether a cookie is asked for then.
    pub(crate) few: bool,
    pub(crate) cookies: bool,
    pub(crate) operations: Vec<Operation>,
}

#[derive(Debug, Arbitrary)]
pub(crate) enum Operation {
    /// `answers`: what becomes of the sessions that the batch begins, two bits each.
    Batch {
        source: u8,
        answers: u32,
        packets: Vec<Packet>,
    },
    /// Bytes that are no packets, in whatever pieces.
    Noise {
        source: u8,
        stride: u16,
        bytes: Vec<u8>,
    },
    /// What was received before, again.
    Again {
        source: u8,
        batch: u8,
    },
    Connect {
        peer: u8,
        conv: u8,
        key: u8,
    },
    Close {
        nth: u8,
        /// Whether the caller has a record of it.
        recorded: bool,
    },
    CloseAgain(u8),
    /// A peer has shown that it hears.
    Validated(u8),
    Wait(u16),
    StopAccepting,
    /// Another key for accepted sessions, and how long the one before is accepted.
    Rotate {
        keep: u16,
    },
}

#[derive(Debug, Arbitrary)]
pub(crate) struct Packet {
    pub(crate) conv: u8,
    pub(crate) kind: Kind,
    pub(crate) key: u8,
    pub(crate) damaged: bool,
}

#[derive(Debug, Arbitrary)]
pub(crate) enum Kind {
    /// A first PUSH, with one of two payloads.
    First(bool),
    Push(u8),
    Ping,
    /// A HELLO of one of a few ids.
    Hello(u8),
    Ack,
    Garbage(u8),
}

pub(crate) fn address(number: u8) -> SocketAddr {
    let number = number % 6;
    match number {
        0 => "[fe80::1%3]:4000".parse().unwrap(),
        // Nobody can be answered at port 0.
        1 => SocketAddr::from(([10, 0, 0, 1], 0)),
        _ => SocketAddr::from(([10, 0, 0, number / 2], 4_000)),
    }
}

/// A segment with its payload.
pub(crate) fn segment(conv: u32, cmd: Command, sn: u32, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    let header = SegmentHeader { conv, cmd, frg: 0, wnd: 128, ts: 1, sn, una: 0, len };
    [&header.to_bytes()[..], payload].concat()
}

/// `frg` of extension segments.
pub(crate) const HELLO: u8 = 1;
pub(crate) const RETRY: u8 = 3;
pub(crate) const ABORT: u8 = 6;
pub(crate) const RESET: u8 = 7;
pub(crate) const PING: u8 = 8;

pub(crate) fn extension(conv: u32, subtype: u8, tag: u32, body: &[u8]) -> Vec<u8> {
    let (cmd, len) = (Command::Extension, body.len() as u32);
    let header = SegmentHeader { conv, cmd, frg: subtype, wnd: 128, ts: 1, sn: tag, una: 0, len };
    [&header.to_bytes()[..], body].concat()
}
