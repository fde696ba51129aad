//! What there is to be seen in the packets of one session, computed here from the packets alone: an oracle for the dissector's
//! analysis, in the words of its fields.

use std::{collections::HashMap, ops::Range};

use kcp9::proto::{Command, SegmentHeader, Segments};
use kcp9_relay::Direction;
use serde_json::Value;

use crate::{capture::Packet, tshark};

pub const FEC_HEADER_LEN: usize = 8;
pub const MARK: u8 = 0x60;

/// What fills a probe of the path's MTU lies so far before the next segment.
const FILLERS: Range<u32> = 1 << 17..1 << 18;

pub mod subtype {
    pub const HELLO: u8 = 1;
    pub const ANSWER: u8 = 2;
    pub const RETRY: u8 = 3;
    pub const FIN: u8 = 4;
    pub const FIN_ACK: u8 = 5;
    pub const ABORT: u8 = 6;
    pub const RESET: u8 = 7;
    pub const PONG: u8 = 9;
    pub const NOISE: u8 = 11;
}

/// What is in front of the segments of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    Plain,
    Data { seqid: u32 },
    Parity { seqid: u32 },
    Datagram,
}

pub fn layer(payload: &[u8]) -> Layer {
    let seqid = u32::from_le_bytes(*payload.first_chunk().unwrap());
    match payload[4..6] {
        [0xf1, 0] => Layer::Data { seqid },
        [0xf2, 0] => Layer::Parity { seqid },
        [0xf3, 0] => Layer::Datagram,
        _ => Layer::Plain,
    }
}

/// The segments of a packet of a kcp9 end.
pub fn segments(payload: &[u8]) -> Vec<(SegmentHeader, &[u8])> {
    let segments = match layer(payload) {
        Layer::Plain => payload,
        Layer::Data { .. } => &payload[FEC_HEADER_LEN..],
        Layer::Parity { .. } | Layer::Datagram => &[],
    };
    Segments::new(segments).map(Result::unwrap).collect()
}

/// A frame and microseconds.
type Reference = (u32, u64);

/// A segment, and what can be said of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Segment {
    /// cmd, frg, wnd, ts, sn, una and len.
    pub header: [u32; 7],
    pub is_marked: bool,
    /// The first transmission, how long ago it was, and how many resends there are with this one.
    pub resend: Option<(Reference, u32)>,
    pub missing: Option<u32>,
    pub in_flight: Option<u32>,
    pub is_out_of_order: bool,
    pub is_address_probe: bool,
    /// It fills a probe of the path's MTU.
    pub is_mtu_probe: bool,
    /// The transmission that it answers and how long ago that was. Without the time, the last one of the same segment: FEC has
    /// restored the one that is answered, and the capture does not have it.
    pub acks: Option<(u32, Option<u64>)>,
    pub first_ack: Option<u32>,
    pub is_ack_unseen: bool,
    pub is_zero_window: bool,
    /// The frame that closed the window, and for how long it was closed.
    pub reopened: Option<Reference>,
}

impl Segment {
    /// What tshark says of a segment.
    pub fn shown(node: &Value) -> Self {
        let number = |name: &str| tshark::number(node, &format!("kcp.{name}"));
        let analysis = |name: &str| number(&format!("analysis.{name}"));
        let reference = |frame: &str, time: &str| {
            Some((analysis(frame)?, tshark::micros(node, &format!("kcp.analysis.{time}"))?))
        };
        let experts = tshark::experts(node);
        let is = |name: &str| experts.iter().any(|expert| expert == name);
        // In extension segments, three numbers of the header have other names.
        let first = |names: [&str; 2]| names.into_iter().find_map(number).expect("a whole header");
        let header = [
            first(["cmd", "cmd"]),
            first(["frg", "ext.subtype"]),
            first(["wnd", "ext.reason"]),
            first(["ts", "ts"]),
            first(["sn", "ext.tag"]),
            first(["una", "una"]),
            first(["len", "len"]),
        ];
        let resend = reference("resend_frame", "resend_time")
            .map(|first| (first, analysis("resend_number").expect("it is counted")));
        assert_eq!(is("analysis.resend"), resend.is_some());
        assert_eq!(is("analysis.gap"), analysis("missing").is_some());
        assert_eq!(is("analysis.duplicate_ack"), analysis("duplicate_ack_frame").is_some());
        assert_eq!(is("analysis.window_reopened"), analysis("zero_window_frame").is_some());
        assert_eq!(is("analysis.window_probe"), header[0] == Command::Wask as u32);
        assert!(!is("ext.malformed"), "{node}");
        Self {
            header,
            is_marked: number("ext.mark").is_some(),
            resend,
            missing: analysis("missing"),
            in_flight: analysis("in_flight"),
            is_out_of_order: is("analysis.out_of_order"),
            is_address_probe: is("analysis.address_probe"),
            is_mtu_probe: is("analysis.mtu_probe"),
            acks: analysis("acks_frame").map(|frame| (frame, tshark::micros(node, "kcp.analysis.ack_rtt"))),
            first_ack: analysis("duplicate_ack_frame"),
            is_ack_unseen: is("analysis.ack_unseen"),
            is_zero_window: is("analysis.zero_window"),
            reopened: reference("zero_window_frame", "zero_window_time"),
        }
    }
}

/// What one end has sent.
#[derive(Default)]
struct End {
    next: Option<u32>,
    sent: HashMap<u32, Pushed>,
    una: Option<u32>,
    closed: Option<Reference>,
    /// The first FIN, its resends, and the end that it tells.
    fin: Option<(Reference, u32, u32)>,
}

#[derive(Default)]
struct Pushed {
    /// The first transmission, and the number of resends.
    first: Option<(Reference, u32)>,
    /// Each transmission: its `ts`, when it was, and the frame of its first ACK.
    times: Vec<(u32, Reference, Option<u32>)>,
}

/// What there is to be said of each segment of each packet.
pub fn of(packets: &[Packet]) -> Vec<Vec<Segment>> {
    let mut ends = [End::default(), End::default()];
    let frames = packets.iter().zip(1..);
    let each = frames.map(|(packet, frame)| {
        let here = (frame, packet.at.as_micros() as u64);
        let segments = segments(&packet.payload).into_iter();
        segments.map(|(header, body)| one(&mut ends, packet.way, here, &header, body)).collect()
    });
    each.collect()
}

fn one(ends: &mut [End; 2], way: Direction, here: Reference, header: &SegmentHeader, body: &[u8]) -> Segment {
    let SegmentHeader { cmd, frg, wnd, ts, sn, una, len, .. } = *header;
    let [to_server, to_client] = ends;
    let (mine, peer) = match way {
        Direction::ToServer => (to_server, to_client),
        Direction::ToClient => (to_client, to_server),
    };
    let since = |(frame, at): Reference| (frame, here.1 - at);
    let mut said = Segment {
        header: [cmd as u32, frg.into(), wnd.into(), ts, sn, una, len],
        is_marked: frg == MARK && cmd != Command::Extension && (cmd != Command::Push || len == 0),
        resend: None,
        missing: None,
        in_flight: None,
        is_out_of_order: false,
        is_address_probe: false,
        is_mtu_probe: false,
        acks: None,
        first_ack: None,
        is_ack_unseen: false,
        is_zero_window: false,
        reopened: None,
    };
    match cmd {
        Command::Push => {
            let pushed = mine.sent.entry(sn).or_default();
            if len == 0 {
                // Ends of this crate send an empty PUSH for its ACK only.
                said.is_address_probe = true;
            } else if mine.next.is_some_and(|next| FILLERS.contains(&next.wrapping_sub(sn))) {
                said.is_mtu_probe = true;
            } else if let Some((first, resends)) = &mut pushed.first {
                *resends += 1;
                said.resend = Some((since(*first), *resends));
            } else {
                pushed.first = Some((here, 0));
                let next = mine.next.unwrap_or(sn);
                said.is_out_of_order = sn < next;
                said.missing = sn.checked_sub(next).filter(|&missing| missing > 0);
                mine.next = Some(next.max(sn + 1));
            }
            pushed.times.push((ts, here, None));
            said.in_flight = mine.next.zip(peer.una).and_then(|(next, una)| next.checked_sub(una));
        }
        Command::Ack => match peer.sent.get_mut(&sn) {
            None => said.is_ack_unseen = peer.next.is_some(),
            Some(pushed) => {
                if let Some((_, sent, first_ack)) =
                    pushed.times.iter_mut().find(|(sent_ts, ..)| *sent_ts == ts)
                {
                    said.acks = Some((sent.0, Some(here.1 - sent.1)));
                    said.first_ack = *first_ack;
                    first_ack.get_or_insert(here.0);
                } else {
                    said.acks = pushed.times.last().map(|(_, sent, _)| (sent.0, None));
                }
            }
        },
        Command::Extension if frg == subtype::FIN => match &mut mine.fin {
            Some((first, resends, _)) => {
                *resends += 1;
                said.resend = Some((since(*first), *resends));
            }
            None => mine.fin = Some((here, 0, u32::from_le_bytes(*body.first_chunk().unwrap()))),
        },
        _ => {}
    }
    let untold = [subtype::RETRY, subtype::ABORT, subtype::RESET];
    if cmd != Command::Extension || !untold.contains(&frg) {
        let has_all = peer.fin.is_some_and(|(_, _, end)| end == una);
        if wnd == 0 && has_all {
            mine.closed = None;
        } else if wnd == 0 {
            said.is_zero_window = true;
            mine.closed.get_or_insert(here);
        } else {
            said.reopened = mine.closed.take().map(since);
        }
        mine.una = mine.una.max(Some(una));
    }
    said
}

/// Whether a packet has an extension segment of a subtype.
pub fn has(payload: &[u8], subtype: u8) -> bool {
    let is = |(header, _): &(SegmentHeader, &[u8])| header.cmd == Command::Extension && header.frg == subtype;
    segments(payload).iter().any(is)
}
