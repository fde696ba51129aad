//! Key agreement in packets that are written here, as `docs/secure-sessions.md` has them: what tshark shows of it, and which packets it
//! takes for sealed ones afterwards.

use std::time::Duration;

use kcp9::proto::{Command, SegmentHeader};
use kcp9_relay::Direction::{self, ToClient, ToServer};
use kcp9_vectors::Vector;
use serde_json::Value;

use crate::{
    capture::{CLIENT_PORT, Packet, pcap},
    expected::subtype::{ABORT, ANSWER, HELLO, NOISE, RETRY},
    tshark::{self, Frame, dissect_twice},
};

/// A packet, and which way it goes.
type Sent = (Direction, Vec<u8>);

const CONV: u32 = 0x5ea1_0001;
/// A conversation without key agreement.
const PLAIN: u32 = 7;

/// Bytes that a HELLO has at least.
const PADDED: usize = 256;
const NOISE_FIELD: u8 = 0xa0;

/// A segment in the clear.
fn segment(conv: u32, subtype: u8, tag: u32, body: &[u8]) -> Vec<u8> {
    let len = body.len() as u32;
    let header =
        SegmentHeader { conv, cmd: Command::Extension, frg: subtype, wnd: 32, ts: 5, sn: tag, una: 0, len };
    [&header.to_bytes()[..], body].concat()
}

fn field(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind], &(value.len() as u16).to_le_bytes()[..], value].concat()
}

/// The session id of an end is this byte eight times.
const CLIENT_ID: u8 = 0xc1;
const SERVER_ID: u8 = 0x5e;

fn tag_of(id: u8) -> u32 {
    u32::from_le_bytes([id; 4])
}

/// HELLO or ANSWER with these fields.
fn greeting(conv: u32, subtype: u8, fields: &[u8]) -> Vec<u8> {
    let id = if subtype == HELLO { CLIENT_ID } else { SERVER_ID };
    let echo: u32 = if subtype == HELLO { 0 } else { 5 };
    let body = [b"kcp9\x01\x01\0\0\0\0\0\0", &[id; 8][..], &echo.to_le_bytes(), fields].concat();
    segment(conv, subtype, tag_of(CLIENT_ID), &body)
}

/// The packet that carries a message: the subtype tells which one.
fn carrying(conv: u32, subtype: u8, message: &[u8]) -> Vec<u8> {
    match subtype {
        HELLO => {
            let len = 48 + 3 + message.len();
            let pad = field(0, &vec![0; PADDED.saturating_sub(len + 3)]);
            greeting(conv, HELLO, &[field(NOISE_FIELD, message), pad].concat())
        }
        ANSWER => greeting(conv, ANSWER, &field(NOISE_FIELD, message)),
        _ => segment(conv, NOISE, tag_of(SERVER_ID), message),
    }
}

/// The messages of a known handshake in the packets of a session, and then the packets that are known to be sealed under its keys,
/// with the end that sends each. What was said beside the messages when they were made is something else: that is of no interest here.
pub fn known_session(vector: &Vector) -> Vec<Sent> {
    let packets = vector.vectors("packets");
    let conv = packets[0].number("route");
    let messages = vector.byte_strings("messages");
    let messages = messages.iter().zip([(ToServer, HELLO), (ToClient, ANSWER), (ToServer, NOISE)]);
    let messages = messages.map(|(message, (way, subtype))| (way, carrying(conv, subtype, message)));
    let sealed = packets.iter().map(|packet| {
        let way = if packet.number::<u8>("from") == 0 { ToServer } else { ToClient };
        (way, packet.bytes("wire"))
    });
    messages.chain(sealed).collect()
}

/// What of a message tshark shows in a frame.
pub fn shown_message(frame: &Frame) -> Option<&Value> {
    let segment = frame.segments().first()?;
    let fields = tshark::many(segment, "kcp.ext.field").iter();
    fields.chain([segment]).find_map(|node| node.get("kcp.ext.noise"))
}

/// The bytes that tshark shows of a field: `None` if it does not show the field.
pub fn shown_bytes(node: &Value, name: &str) -> Option<Vec<u8>> {
    tshark::text(node, name).map(|text| kcp9_vectors::from_hex(&text.replace(':', "")))
}

/// Compares a sealed packet with what is shown of it.
pub fn compare_sealed(payload: &[u8], frame: &Frame) {
    let sealed = frame.kcp.as_ref().and_then(|kcp| kcp.get("kcp.sealed"));
    let sealed = sealed.unwrap_or_else(|| panic!("not sealed: {}", frame.info));
    let words = ["kcp.sealed.route", "kcp.sealed.masked"].map(|name| tshark::number(sealed, name).unwrap());
    assert_eq!(words.map(u32::to_le_bytes).concat(), payload[..8], "{}", frame.info);
    let (inner, tag) = payload[8..].split_at(payload.len() - 24);
    assert_eq!(shown_bytes(sealed, "kcp.sealed.payload").unwrap_or_default(), inner, "{}", frame.info);
    assert_eq!(shown_bytes(sealed, "kcp.sealed.tag").unwrap(), tag, "{}", frame.info);
    // That of the only agreement between these addresses, if there was one alone.
    let conv = tshark::number(sealed, "kcp.conv").map(|conv| format!(" conv=0x{conv:08x}"));
    let text = format!("Sealed len={}{}", inner.len(), conv.unwrap_or_default());
    assert!(frame.info.ends_with(&text), "{}, not {text}", frame.info);
    assert_eq!(frame.experts(), [""; 0], "{}", frame.info);
}

/// Something that is sealed, or damaged. It begins as anything may.
fn opaque() -> Vec<u8> {
    vec![0xd5; 64]
}

fn push(conv: u32, sn: u32) -> Vec<u8> {
    let header = SegmentHeader { conv, cmd: Command::Push, frg: 0, wnd: 9, ts: sn, sn, una: 0, len: 4 };
    [&header.to_bytes()[..], b"data"].concat()
}

/// A message with this header. What is behind it is encrypted.
fn message(header: [u8; 4], len: usize) -> Vec<u8> {
    [&header[..], &vec![0xee; len - 4]].concat()
}

fn agreed(conv: u32) -> [Sent; 2] {
    [
        (ToServer, carrying(conv, HELLO, &message([1, 1, 0, 0], 52))),
        (ToClient, carrying(conv, ANSWER, &message([1, 2, 0, 0], 68))),
    ]
}

/// What tshark shows of these packets, 10 ms apart. Each scene is between two ports of its own.
fn show(scenes: &[Vec<Sent>]) -> Vec<Vec<Frame>> {
    let mut packets = Vec::new();
    for (scene, client_port) in scenes.iter().zip(CLIENT_PORT..) {
        for (way, payload) in scene {
            let at = Duration::from_millis(10 * packets.len() as u64);
            packets.push(Packet { client_port, ..Packet::new(*way, at, payload.clone()) });
        }
    }
    let mut frames = dissect_twice(&pcap(&packets), &[]).into_iter();
    scenes.iter().map(|scene| frames.by_ref().take(scene.len()).collect()).collect()
}

/// What is shown of each packet: "clear", "sealed", "malformed" or "encrypted".
fn kinds(scenes: &[Vec<Sent>]) -> Vec<Vec<&'static str>> {
    let kind = |frame: &Frame| {
        let is_sealed = frame.kcp.as_ref().is_some_and(|kcp| kcp.get("kcp.sealed").is_some());
        let bad = ["malformed", "encrypted"].into_iter().find(|expert| frame.is(expert));
        match (is_sealed, bad, frame.segments()) {
            (true, None, []) => "sealed",
            (false, Some(bad), []) => bad,
            (false, None, [_, ..]) => "clear",
            _ => panic!("{frame:?}"),
        }
    };
    show(scenes).iter().map(|frames| frames.iter().map(kind).collect()).collect()
}

/// Between addresses where ends have agreed on keys, a packet is sealed if it is not read as something else. Whose it is says the agreement,
/// where there was one alone.
#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_takes_packets_for_sealed_by_the_agreements_between_their_addresses() {
    let [hello, answer] = agreed(CONV);
    let sealed = |way| (way, opaque());
    let alone = vec![hello.clone(), sealed(ToServer), answer.clone(), sealed(ToClient)];
    // Another conversation is in the clear, before and after. What is damaged of it cannot be told from a sealed packet.
    let plain = (ToServer, push(PLAIN, 0));
    let beside = vec![plain.clone(), sealed(ToServer), hello.clone(), sealed(ToServer), answer.clone()];
    let behind = vec![hello.clone(), plain, sealed(ToServer)];
    // A capture may begin with the last message.
    let last = (ToServer, carrying(CONV, NOISE, &message([1, 3, 4, 0], 68)));
    let expected: [&[&str]; 4] = [
        &["clear", "sealed", "clear", "sealed"],
        &["clear", "malformed", "clear", "sealed", "clear"],
        &["clear", "clear", "sealed"],
        &["clear", "sealed"],
    ];
    assert_eq!(kinds(&[alone, beside, behind, vec![last, sealed(ToClient)]]), expected);

    // With a second agreement it is not known of which one a packet is.
    let [other, _] = agreed(CONV + 1);
    let frames = &show(&[vec![hello, answer, sealed(ToServer), other, sealed(ToServer)]])[0];
    for (frame, conv) in [(&frames[2], Some(CONV)), (&frames[4], None)] {
        compare_sealed(&opaque(), frame);
        let kcp = frame.kcp.as_ref().unwrap();
        assert_eq!(tshark::number(&kcp["kcp.sealed"], "kcp.conv"), conv);
        assert_eq!(tshark::number(kcp, "kcp.stream"), conv.map(|_| 0));
    }
}

/// What is shorter than a sealed packet can be is none. What the masked counter looks like is of no interest.
#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_takes_packets_for_sealed_whatever_their_counters_look_like() {
    let [hello, _] = agreed(CONV);
    let looks =
        [[0xf1, 0, 0x40, 0], [0xf2, 0, 0x40, 0], [0xf3, 0, 0x40, 0], [0x51, 0, 0, 0], [0x60, 1, 0, 0]];
    let mut packets = vec![hello];
    for look in looks {
        packets.push((ToServer, [&[0xd5; 4][..], &look, &[0xd5; 52]].concat()));
    }
    packets.push((ToServer, opaque()[..24].to_vec()));
    packets.push((ToServer, opaque()[..23].to_vec()));
    let frames = &show(&[packets.clone()])[0];
    let (short, frames) = frames.split_last().unwrap();
    for ((_, payload), frame) in packets.iter().zip(frames).skip(1) {
        compare_sealed(payload, frame);
    }
    assert_eq!(short.experts(), ["encrypted"]);
}

/// A later session of the same addresses and conversation, without key agreement.
#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_takes_no_packets_for_sealed_once_both_ends_speak_in_the_clear() {
    let opaque = |way| (way, opaque());
    // Anybody may have sent that.
    let one_end =
        [(ToServer, greeting(CONV, HELLO, &[])), (ToServer, push(CONV, 0)), (ToServer, push(CONV, 1))];
    let unanswered = [&agreed(CONV)[..], &one_end, &[opaque(ToServer)]].concat();
    let answer = (ToClient, greeting(CONV, ANSWER, &[]));
    let answered = [&unanswered[..], &[answer, opaque(ToServer)]].concat();
    let agreed_again = [&answered[..], &agreed(CONV)[..], &[opaque(ToClient)]].concat();
    // These two are in the clear in an agreement, too.
    let retry = (ToClient, segment(CONV, RETRY, tag_of(CLIENT_ID), &field(2, b"cookie")));
    let abort = (ToClient, segment(CONV, ABORT, tag_of(CLIENT_ID), b""));
    let parts = [&agreed(CONV)[..], &[retry, (ToServer, push(CONV, 0)), abort, opaque(ToServer)]].concat();
    let kinds = kinds(&[unanswered, answered, agreed_again, parts]);
    let last: Vec<_> = kinds.iter().map(|kinds| *kinds.last().unwrap()).collect();
    assert_eq!(last, ["sealed", "malformed", "sealed", "sealed"]);
}

/// The beginning of a sealed packet in an ICMP message.
#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_shows_what_an_icmp_message_quotes_of_a_sealed_packet() {
    let [(way, hello), _] = agreed(CONV);
    let hello = Packet::new(way, Duration::ZERO, hello);
    let sealed = Packet::new(ToServer, Duration::from_millis(1), opaque());
    for kept in [8, 24, 60] {
        let refused = Packet { kept, is_refused: true, at: Duration::from_millis(2), ..sealed.clone() };
        let frames = dissect_twice(&pcap(&[hello.clone(), sealed.clone(), refused]), &[]);
        compare_sealed(&sealed.payload, &frames[1]);
        assert_eq!((frames[2].protocol.as_str(), frames[2].experts()), ("ICMP", vec!["cut".to_owned()]));
        let quoted = &frames[2].kcp.as_ref().unwrap()["kcp.sealed"];
        assert_eq!(tshark::number(quoted, "kcp.conv"), Some(CONV), "{kept} bytes");
        let shown = shown_bytes(quoted, "kcp.sealed.payload").unwrap_or_default();
        assert_eq!(shown, sealed.payload[8..kept], "{kept} bytes");
    }
}

#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_names_messages_and_marks_what_is_refused_of_them() {
    const MALFORMED: &[&str] = &["ext.malformed"];
    let mut cases: Vec<(Vec<u8>, String, &[&str])> = Vec::new();
    let mut add = |subtype: u8, message: &[u8], text: &str, experts: &'static [&'static str]| {
        cases.push((carrying(CONV, subtype, message), text.to_owned(), experts));
    };
    for (pattern, len, answer_len, name) in [
        (0, 52, 68, "NNpsk0"),
        (1, 60, 84, "NKpsk0"),
        (2, 52, 132, "XXpsk3"),
        (3, 60, 84, "NK"),
        (4, 36, 132, "XX"),
    ] {
        let text = format!("HELLO ({name}, first)");
        // Those without a third message have room for early data.
        let has_third = name.starts_with("XX");
        let longer: &[&str] = if has_third { MALFORMED } else { &[] };
        let lens = [(len, &[][..]), (len - 1, MALFORMED), (len + 1, longer), (len + 1_001, MALFORMED)];
        for (len, experts) in lens {
            add(HELLO, &message([1, 1, pattern, 0], len), &text, experts);
        }
        for (len, experts) in [(answer_len, &[][..]), (answer_len + 1, MALFORMED)] {
            add(ANSWER, &message([1, 2, pattern, 1], len), &format!("ANSWER ({name}, answer)"), experts);
        }
        if has_third {
            for (len, experts) in [(68, &[][..]), (67, MALFORMED)] {
                add(NOISE, &message([1, 3, pattern, 0], len), &format!("NOISE ({name}, last)"), experts);
            }
        }
    }
    let reasons = ["version", "pattern", "cipher", "unknown server key", "wrong psk", "untrusted key"];
    for (reason, text) in (1..).zip(reasons) {
        add(ANSWER, &[1, 255, reason, 0], &format!("ANSWER (refusal: {text})"), &["analysis.refusal"]);
    }
    // Messages that belong elsewhere.
    add(HELLO, &message([1, 2, 0, 0], 68), "HELLO (NNpsk0, answer)", MALFORMED);
    add(HELLO, &[1, 255, 5, 0], "HELLO (refusal: wrong psk)", MALFORMED);
    add(ANSWER, &message([1, 1, 0, 0], 52), "ANSWER (NNpsk0, first)", MALFORMED);
    add(NOISE, &message([1, 1, 0, 0], 52), "NOISE (NNpsk0, first)", MALFORMED);
    // There is not even a header.
    add(ANSWER, &[1, 255, 5], "ANSWER", MALFORMED);
    // Of what is not known yet nobody knows how long it is.
    add(HELLO, &message([1, 1, 9, 0], 40), "HELLO (pattern 9, first)", &[]);
    add(HELLO, &message([2, 1, 0, 0], 40), "HELLO (first of version 2)", &[]);

    let frames = show(&[cases.iter().map(|(packet, ..)| (ToServer, packet.clone())).collect()]);
    for ((_, text, experts), frame) in cases.iter().zip(&frames[0]) {
        let mark = if *experts == MALFORMED { "[Malformed] " } else { "" };
        let start = format!("50000 → 29900 {mark}{text} conv=0x5ea10001");
        assert_eq!(
            (&frame.info, frame.experts()),
            (&start, experts.iter().map(ToString::to_string).collect())
        );
    }
}

/// A field of that number which need not be understood is another one, and ends that send it have no keys.
#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_takes_another_field_of_that_number_for_no_key_agreement() {
    let message = message([1, 1, 0, 0], 52);
    let other = (ToServer, greeting(CONV, HELLO, &field(NOISE_FIELD & 0x7f, &message)));
    let frames = &show(&[vec![other, (ToServer, opaque())]])[0];
    assert_eq!(frames[0].experts(), ["ext.field.unknown"]);
    assert_eq!(shown_message(&frames[0]), None);
    assert_eq!(frames[1].experts(), ["malformed"]);
}
