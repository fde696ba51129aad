//! A few packets each, for what live sessions seldom do.

use std::time::Duration;

use kcp9::proto::{Command, SegmentHeader};
use kcp9_relay::Direction::{self, ToClient, ToServer};

use crate::{
    capture::{Packet, pcap},
    tshark::{self, Frame, dissect},
};

const CONV: u32 = 7;

/// A segment whose `ts` is its `sn`, but for what a scene changes.
fn segment(cmd: Command, sn: u32) -> SegmentHeader {
    SegmentHeader { conv: CONV, cmd, frg: 0, wnd: 128, ts: sn, sn, una: 0, len: 0 }
}

fn bytes(header: SegmentHeader, body: &[u8]) -> Vec<u8> {
    [&SegmentHeader { len: body.len() as u32, ..header }.to_bytes()[..], body].concat()
}

fn push(sn: u32) -> Vec<u8> {
    bytes(segment(Command::Push, sn), b"data")
}

fn ack(sn: u32) -> Vec<u8> {
    bytes(segment(Command::Ack, sn), b"")
}

fn fin(end: u32) -> Vec<u8> {
    let header = SegmentHeader { frg: 4, ..segment(Command::Extension, 0x0102_0304) };
    bytes(header, &[&end.to_le_bytes()[..], &[0; 4]].concat())
}

/// A HELLO whose session id is this byte eight times.
fn hello(id: u8) -> Vec<u8> {
    let header = SegmentHeader { frg: 1, ..segment(Command::Extension, u32::from_le_bytes([id; 4])) };
    bytes(header, &[b"kcp9\x01\x01\0\0\0\0\0\0", &[id; 8][..], &[0; 4]].concat())
}

/// What tshark shows of these packets, 10 ms apart.
fn show(payloads: &[(Direction, Vec<u8>)]) -> Vec<Frame> {
    let at = (0..).step_by(10).map(Duration::from_millis);
    let packets = payloads.iter().zip(at).map(|((way, payload), at)| Packet::new(*way, at, payload.clone()));
    dissect(&pcap(&packets.collect::<Vec<_>>()), &[])
}

/// What is said of each packet, without notes that are of no interest here.
fn said(frames: &[Frame]) -> Vec<Vec<String>> {
    let said = |frame: &Frame| {
        let experts = frame.experts().into_iter().filter(|name| name != "analysis.fin");
        experts.map(|name| name.trim_start_matches("analysis.").to_owned()).collect()
    };
    frames.iter().map(said).collect()
}

fn number(frame: &Frame, name: &str) -> Option<u32> {
    tshark::number(&frame.segments()[0], &format!("kcp.analysis.{name}"))
}

#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_follows_numbers_through_gaps_and_the_wrap() {
    let pushes = [u32::MAX - 1, u32::MAX, 0, 3, 1, 3].map(|sn| (ToServer, push(sn)));
    let frames = show(
        &[&pushes[..], &[(ToClient, ack(u32::MAX)), (ToClient, ack(2)), (ToClient, ack(u32::MAX))]].concat(),
    );
    let expected: [&[&str]; 9] =
        [&[], &[], &[], &["gap"], &["out_of_order"], &["resend"], &[], &["ack_unseen"], &["duplicate_ack"]];
    assert_eq!(said(&frames), expected);
    assert_eq!(number(&frames[3], "missing"), Some(2));
    assert_eq!((number(&frames[5], "resend_frame"), number(&frames[5], "resend_number")), (Some(4), Some(1)));
    let time = tshark::micros(&frames[5].segments()[0], "kcp.analysis.resend_time");
    assert_eq!(time, Some(20_000));
    assert_eq!(
        (number(&frames[6], "acks_frame"), number(&frames[8], "duplicate_ack_frame")),
        (Some(2), Some(7))
    );
}

#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_takes_a_new_session_id_or_numbers_far_away_for_a_new_session() {
    let push_again = [(ToServer, push(0)), (ToServer, push(1))];
    let frames = show(&[&push_again[..], &[(ToServer, hello(1))], &push_again].concat());
    assert_eq!(said(&frames)[3..], [["resend"], ["resend"]], "the same session: its first HELLO came late");
    let begun = [&[(ToServer, hello(1))], &push_again[..], &[(ToServer, hello(2))], &push_again].concat();
    assert!(said(&show(&begun)).iter().all(Vec::is_empty));
    let far =
        [(ToServer, push(5)), (ToServer, push(1_000_000)), (ToServer, push(1_000_001)), (ToServer, push(5))];
    assert!(said(&show(&far)).iter().all(Vec::is_empty));
}

#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_marks_probes_and_what_lies_behind_an_end() {
    let probe = |sn| bytes(segment(Command::Push, sn), b"");
    let frames = show(&[
        (ToServer, probe(u32::MAX)),
        (ToServer, push(0)),
        (ToServer, probe(0)),
        // An empty message takes a number as any other.
        (ToServer, probe(1)),
        (ToServer, fin(2)),
        (ToServer, fin(2)),
        (ToServer, fin(3)),
        (ToServer, push(2)),
        // Who has everything up to the end has closed no window.
        (ToClient, bytes(SegmentHeader { wnd: 0, una: 1, ..segment(Command::Wins, 1) }, b"")),
        (ToClient, bytes(SegmentHeader { wnd: 0, una: 2, ..segment(Command::Wins, 1) }, b"")),
    ]);
    let expected: [&[&str]; 10] = [
        &["address_probe"],
        &[],
        &["address_probe"],
        &[],
        &[],
        &["resend"],
        &["another_end"],
        &["past_end"],
        &["zero_window"],
        &[],
    ];
    assert_eq!(said(&frames), expected);
}

/// Its second PUSH has a number that no window reaches. It is acknowledged, as all are that came before.
#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_marks_what_fills_a_probe_of_the_mtu() {
    let filler = |una: u32| una.wrapping_sub(1 << 17);
    let probe = |sn, una| [push(sn), push(filler(una))].concat();
    let frames = show(&[
        (ToServer, push(0)),
        (ToServer, probe(1, 0)),
        (ToServer, push(2)),
        (ToServer, probe(3, 0)),
        (ToServer, probe(4, 2)),
        (ToClient, ack(filler(2))),
        (ToServer, push(5)),
    ]);
    let filled: &[&str] = &["mtu_probe"];
    assert_eq!(said(&frames), [&[], filled, &[], filled, filled, &[], &[]]);
    assert_eq!(number(&frames[5], "acks_frame"), Some(5));
}

/// What an ICMP message quotes of a packet is the beginning of one that was sent elsewhere in the capture: no damage, no resend.
#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_counts_no_packet_that_an_icmp_message_quotes() {
    let push = bytes(segment(Command::Push, 0), &[7; 600]);
    let packet = |millis, way, payload| Packet::new(way, Duration::from_millis(millis), payload);
    for kept in [8, 24, 60] {
        let push = packet(0, ToServer, push.clone());
        let refused = Packet { kept, is_refused: true, at: Duration::from_millis(1), ..push.clone() };
        let frames = dissect(&pcap(&[push, refused, packet(2, ToClient, ack(0))]), &[]);
        assert_eq!(frames[1].protocol, "ICMP", "{kept} bytes");
        assert_eq!(frames[1].experts(), ["cut"], "{kept} bytes");
        let acks = tshark::number(&frames[2].segments()[0], "kcp.analysis.acks_frame");
        assert_eq!(acks, Some(1), "{kept} bytes");
    }
}
