//! The handshake, segment by segment: what each end sends when, and whom it believes.

use alloc::{vec, vec::Vec};
use core::time::Duration;

use super::{
    Caps, Conditions, Envelope, Extension, Extensions, Knowledge, MARK, Role, Segment, Settings, Subtype,
    Taken, seed::tests::seed,
};
use crate::proto::{
    arq::Origin,
    error::CloseReason,
    time::{Instant, earliest},
    wire::{HEADER_LEN, SegmentHeader, Segments},
};

const RTO: Duration = Duration::from_millis(200);
const IDLE: Conditions = Conditions {
    rto: RTO,
    rtt: Duration::ZERO,
    interval: Duration::from_millis(10),
    in_flight: false,
    all_acked: true,
    max_wait: Duration::from_secs(7),
    newest: 0,
    last_heard: Instant::ZERO,
    read_until: Instant::ZERO,
};
const BUSY: Conditions = Conditions { in_flight: true, ..IDLE };
const SETTINGS: Settings = Settings {
    max_packet: None,
    extensions: Extensions::Preferred,
    caps: Caps(0),
    keep_alive: Some(Duration::from_secs(20)),
    dead_timeout: Duration::from_secs(30),
};
const REQUIRED: Settings = Settings { extensions: Extensions::Required, ..SETTINGS };
/// An mtu of 1,400 without encryption.
const ROOM: usize = 1_400;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// One end, and what it sends.
struct End {
    extension: Extension,
    conditions: Conditions,
}

impl End {
    fn new(role: Role, byte: u8) -> Self {
        Self::with(role, byte, &SETTINGS)
    }

    fn with(role: Role, byte: u8, settings: &Settings) -> Self {
        Self { extension: Extension::new(role, settings, seed(byte), Instant::ZERO), conditions: BUSY }
    }

    fn knowledge(&self) -> Knowledge {
        self.extension.knowledge()
    }

    /// Everything that this end has to send in packets of its own.
    fn send(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        while self.extension.is_urgent() {
            let mut out = vec![0; ROOM];
            let envelope = Envelope { conv: 7, wnd: 128, ts: now.as_ts(), una: 0 };
            let written = self.extension.write(now, envelope, &mut out, 0, &self.conditions);
            sent.extend(written.map(|written| {
                out.truncate(written.len);
                out
            }));
            assert!(sent.len() < 10, "it never ends");
        }
        sent
    }

    fn receive(&mut self, now: Instant, packet: &[u8]) -> Taken {
        let (header, body) = Segments::new(packet).next().unwrap().unwrap();
        self.extension.input(now, &header, body, Origin::Received, &self.conditions)
    }

    fn hear(&mut self, now: Instant, mark: Option<u8>) {
        let conditions = self.conditions;
        self.extension.on_heard(now, mark, &conditions);
    }

    /// Runs the clock until `end`. Returns when which HELLO was sent, with its length, and when the window was asked for.
    fn run(&mut self, end: Instant) -> (Vec<(u64, usize)>, Vec<u64>) {
        let (mut hellos, mut asks) = (Vec::new(), Vec::new());
        let mut now = Instant::ZERO;
        loop {
            for packet in self.send(now) {
                assert_eq!(subtype(&packet), Subtype::Hello);
                hellos.push((now.as_micros() / 1_000, packet.len()));
            }
            let Some(deadline) = earliest(self.extension.deadlines()).filter(|at| *at <= end) else { break };
            now = now.max(deadline);
            if self.extension.on_timeout(now, &self.conditions) {
                asks.push(now.as_micros() / 1_000);
            }
        }
        (hellos, asks)
    }
}

fn header(packet: &[u8]) -> SegmentHeader {
    SegmentHeader::parse(packet).unwrap()
}

fn subtype(packet: &[u8]) -> Subtype {
    Subtype::from_byte(header(packet).frg).unwrap()
}

fn subtypes(packets: &[Vec<u8>]) -> Vec<Subtype> {
    packets.iter().map(|packet| subtype(packet)).collect()
}

/// A segment with a token that is sent to the end with `tag`.
fn ping(tag: u32) -> Vec<u8> {
    let mut out = vec![0; 100];
    let envelope = Envelope { conv: 7, wnd: 128, ts: 0, una: 0 };
    let len = envelope.write_ping(1, tag, &mut out).unwrap();
    out.truncate(len);
    out
}

fn abort(tag: u32, reason: u16) -> Vec<u8> {
    let mut out = vec![0; 100];
    let envelope = Envelope { conv: 7, wnd: 0, ts: 0, una: 0 };
    let len = envelope.write_abort(reason, tag, &mut out).unwrap();
    out.truncate(len);
    out
}

fn tag_of(byte: u8) -> u32 {
    u32::from_le_bytes([byte; 4])
}

#[test]
fn both_ends_are_confirmed_after_three_packets() {
    let (mut client, mut server) = (End::new(Role::Connects, 1), End::new(Role::Accepts, 2));
    let hello = client.send(at(0)).pop().unwrap();
    assert_eq!((hello.len(), header(&hello).sn), (1_200, tag_of(1)));
    assert_eq!(server.receive(at(20), &hello), Taken::VOUCHED);
    assert_eq!(server.knowledge(), Knowledge::Known);
    let answer = server.send(at(20)).pop().unwrap();
    assert_eq!((subtype(&answer), answer.len(), header(&answer).sn), (Subtype::Answer, 59, tag_of(1)));
    let taken = client.receive(at(40), &answer);
    assert_eq!(taken, Taken::answer(Some(Duration::from_millis(40))));
    assert_eq!(client.knowledge(), Knowledge::Confirmed);
    // Its answer waits for a packet to go with, but not for long.
    assert!(client.send(at(40)).is_empty() && client.extension.has_appendable());
    assert_eq!(earliest(client.extension.deadlines()), Some(at(50)));
    assert!(!client.extension.on_timeout(at(50), &BUSY));
    let pong = client.send(at(50)).pop().unwrap();
    assert_eq!((subtype(&pong), pong.len(), header(&pong).sn), (Subtype::Pong, 32, tag_of(2)));
    assert_eq!(server.receive(at(70), &pong), Taken::VOUCHED);
    assert_eq!(server.knowledge(), Knowledge::Confirmed);
    for end in [&client, &server] {
        assert_eq!(earliest(end.extension.deadlines()), None);
        assert_eq!(end.extension.close_reason(), None);
    }
}

#[test]
fn hellos_to_a_silent_peer_come_as_resends_do_and_are_short_from_the_third_on() {
    let mut client = End::new(Role::Connects, 1);
    let (hellos, asks) = client.run(at(30_000));
    let times: Vec<u64> = hellos.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 200, 600, 1_400, 3_000, 6_200, 12_600, 20_600, 28_600]);
    assert!(hellos.iter().enumerate().all(|(i, (_, len))| *len == if i < 2 { 1_200 } else { 128 }));
    assert!(asks.is_empty(), "what is in flight asks already");

    let mut client = End { conditions: IDLE, ..End::new(Role::Connects, 1) };
    let (again, asks) = client.run(at(30_000));
    assert_eq!(again, hellos);
    assert_eq!(asks, times[1..]);
}

#[test]
fn without_keep_alive_a_peer_that_nobody_waits_for_is_left_alone_after_four_hellos() {
    let settings = Settings { keep_alive: None, ..SETTINGS };
    let mut client = End { conditions: IDLE, ..End::with(Role::Connects, 1, &settings) };
    let (hellos, asks) = client.run(at(100_000));
    assert_eq!((hellos.len(), asks.len()), (4, 0));
    // Nor is it forgotten: who comes to wait for it asks again.
    assert!(client.extension.ask(at(100_000)));
    let (hellos, asks) = client.run(at(140_000));
    assert!(hellos.len() >= 5 && asks.len() >= 5, "{hellos:?} {asks:?}");
    // Who waits for the peer goes on, and asks for what every peer answers.
    let mut client = End { conditions: IDLE, ..End::with(Role::Connects, 1, &settings) };
    assert!(client.extension.ask(at(0)));
    let (hellos, asks) = client.run(at(30_000));
    assert_eq!((hellos.len(), asks.len()), (9, 8));
}

#[test]
fn a_peer_without_marks_hears_no_more_hellos() {
    let mut client = End::new(Role::Connects, 1);
    assert_eq!(client.send(at(0)).len(), 1);
    client.hear(at(40), Some(0));
    assert_eq!(client.knowledge(), Knowledge::Legacy);
    assert_eq!(earliest(client.extension.deadlines()), None);
    // Nothing changes that: neither a mark nor an ANSWER.
    client.hear(at(50), Some(MARK));
    let mut server = End::new(Role::Accepts, 2);
    let hello = End::new(Role::Connects, 1).send(at(0)).pop().unwrap();
    server.receive(at(1), &hello);
    let answer = server.send(at(1)).pop().unwrap();
    assert_eq!(client.receive(at(60), &answer), Taken::NOTHING);
    assert_eq!(client.knowledge(), Knowledge::Legacy);
    assert_eq!(client.extension.stats().dropped, 1);
    assert!(client.send(at(60)).is_empty());
}

#[test]
fn a_peer_with_marks_is_asked_again_soon_and_then_for_ever() {
    let mut client = End::new(Role::Connects, 1);
    assert_eq!(client.send(at(0)).len(), 1);
    client.conditions.rtt = Duration::from_millis(40);
    client.hear(at(40), Some(MARK));
    assert_eq!(client.knowledge(), Knowledge::Asking);
    // The ANSWER may be on its way.
    assert_eq!(earliest(client.extension.deadlines()), Some(at(50)));
    let (hellos, asks) = client.run(at(60_000));
    // Each wait is an RTO longer than the last one.
    let expected = (0..24).map(|turn| 50 + RTO.as_millis() as u64 * turn * (turn + 1) / 2);
    assert!(hellos.iter().map(|(at, _)| *at).eq(expected), "{hellos:?}");
    assert_eq!((hellos[0].1, hellos[1].1), (1_200, 128));
    assert!(asks.is_empty());
}

#[test]
fn a_peer_that_only_speaks_is_asked_for_its_window_and_not_by_hello() {
    let mut client = End { conditions: IDLE, ..End::new(Role::Connects, 1) };
    assert_eq!(client.send(at(0)).len(), 1);
    client.hear(at(100), None);
    let (hellos, asks) = client.run(at(60_000));
    assert!(hellos.is_empty());
    let expected = (1..=24).map(|turn| RTO.as_millis() as u64 * turn * (turn + 1) / 2);
    assert!(asks.iter().copied().eq(expected), "{asks:?}");
}

#[test]
fn a_segment_with_the_own_tag_shows_that_the_peer_has_read_the_hello() {
    let mut client = End::new(Role::Connects, 1);
    assert_eq!(client.send(at(0)).len(), 1);
    assert_eq!(client.receive(at(40), &ping(tag_of(1))), Taken::VOUCHED);
    assert_eq!(client.knowledge(), Knowledge::Asking);
    assert_eq!(
        earliest(client.extension.deadlines()),
        Some(at(90)),
        "a quarter of the RTO, for want of a sample"
    );
    assert_eq!(client.receive(at(41), &ping(tag_of(3))), Taken::NOTHING);
    assert_eq!(client.extension.stats().wrong_tag, 1);
}

#[test]
fn an_answer_must_echo_one_of_the_last_four_hellos() {
    let mut client = End::new(Role::Connects, 1);
    let mut answers = Vec::new();
    let mut now = at(0);
    for _ in 0..6 {
        let mut server = End::new(Role::Accepts, 2);
        let hello = client.send(now).pop().unwrap();
        server.receive(now, &hello);
        answers.extend(server.send(now));
        now = client.extension.deadlines()[0].unwrap();
        assert!(!client.extension.on_timeout(now, &BUSY));
    }
    for answer in &answers[..2] {
        assert_eq!(client.receive(now, answer), Taken::NOTHING);
    }
    let taken = client.receive(now, &answers[2]);
    assert_eq!(taken.rtt, Some(now - at(600)));
    // The same once more, and the one of another peer.
    assert_eq!(client.receive(now, &answers[5]), Taken::VOUCHED);
    let mut other = End::new(Role::Accepts, 3);
    let hello = End::new(Role::Connects, 1).send(at(600)).pop().unwrap();
    other.receive(now, &hello);
    let answer = other.send(now).pop().unwrap();
    assert_eq!(client.receive(now, &answer), Taken::NOTHING);
}

#[test]
fn of_two_hellos_the_token_shows_which_is_the_peers() {
    let (mut client, mut server) = (End::new(Role::Connects, 1), End::new(Role::Accepts, 2));
    let forged = End::new(Role::Connects, 9).send(at(0)).pop().unwrap();
    let hello = client.send(at(0)).pop().unwrap();
    assert_eq!(server.receive(at(10), &forged), Taken::VOUCHED);
    assert_eq!(server.receive(at(20), &hello), Taken::NOTHING, "neither is taken at its word");
    assert_eq!(server.extension.handshake.peer_tag(), Some(tag_of(1)), "the newest");
    let answers = server.send(at(20));
    let tags: Vec<u32> = answers.iter().map(|answer| header(answer).sn).collect();
    assert_eq!(tags, [tag_of(1), tag_of(9)]);
    // A segment that both may have sent proves nothing, and draws the answers again.
    assert_eq!(server.receive(at(30), &ping(tag_of(2))), Taken::NOTHING);
    assert_eq!(subtypes(&server.send(at(30))), [Subtype::Answer; 2]);
    client.receive(at(40), &answers[0]);
    assert!(!client.extension.on_timeout(at(50), &BUSY));
    let pong = client.send(at(50)).pop().unwrap();
    assert_eq!(server.receive(at(60), &pong), Taken::VOUCHED);
    assert_eq!(
        (server.knowledge(), server.extension.handshake.peer_tag()),
        (Knowledge::Confirmed, Some(tag_of(1)))
    );
    // From here on the other one is not answered any more. But the peer is asked whether it still has this session, once a
    // second at most.
    assert_eq!(server.receive(at(70), &forged), Taken::NOTHING);
    let asked = server.send(at(70));
    assert_eq!((subtypes(&asked), header(&asked[0]).sn), (vec![Subtype::Ping], tag_of(1)));
    assert_eq!(server.receive(at(1_069), &forged), Taken::NOTHING);
    assert!(server.send(at(1_069)).is_empty());
    assert_eq!(server.receive(at(1_070), &hello), Taken::VOUCHED);
    assert_eq!(subtypes(&server.send(at(1_070))), [Subtype::Answer]);
}

#[test]
fn a_forged_hello_ends_with_the_first_segment_of_a_peer_without_extensions() {
    let mut server = End::new(Role::Accepts, 2);
    let forged = End::new(Role::Connects, 9).send(at(0)).pop().unwrap();
    server.receive(at(10), &forged);
    assert_eq!(server.knowledge(), Knowledge::Known);
    server.hear(at(20), Some(0));
    assert_eq!(server.knowledge(), Knowledge::Legacy);
    assert!(server.send(at(20)).is_empty());
    assert_eq!(server.receive(at(30), &forged), Taken::NOTHING);
    assert!(server.send(at(30)).is_empty());
}

#[test]
fn answers_to_hellos_are_at_most_three_times_their_bytes() {
    let mut server = End::new(Role::Accepts, 2);
    let mut out = vec![0; ROOM];
    // No shorter HELLO is answered, since the answer would be longer.
    let hello = super::segment::Hello {
        version: 1,
        oldest: 1,
        caps: Caps(0),
        id: super::seed::SessionId::from_bytes([9; 8]).unwrap(),
        echo_ts: 0,
        fields: Default::default(),
    };
    let envelope = Envelope { conv: 7, wnd: 128, ts: 0, una: 0 };
    for (len, answers) in [(58, 0), (62, 1)] {
        let len = envelope.write_hello(&hello, len, &mut out).unwrap();
        server.receive(at(0), &out[..len]);
        assert_eq!(server.send(at(0)).len(), answers, "{len}");
    }
    // One HELLO more, and segments that draw the answer: it is sent as often as the bytes allow.
    let received = 58 + 62;
    let mut sent = 59;
    let other = super::segment::Hello { id: super::seed::SessionId::from_bytes([8; 8]).unwrap(), ..hello };
    let len = envelope.write_hello(&other, 62, &mut out).unwrap();
    server.receive(at(0), &out[..len]);
    for _ in 0..20 {
        sent += server.send(at(0)).iter().map(Vec::len).sum::<usize>();
        server.receive(at(0), &ping(tag_of(2)));
    }
    assert!(sent <= 3 * (received + len) && sent + 59 > 3 * (received + len), "{sent} of {received} + {len}");
}

#[test]
fn both_ends_may_connect() {
    let (mut one, mut other) = (End::new(Role::Connects, 1), End::new(Role::Connects, 2));
    let (hello, back) = (one.send(at(0)).pop().unwrap(), other.send(at(0)).pop().unwrap());
    one.receive(at(20), &back);
    other.receive(at(20), &hello);
    let (answer, answer_back) = (one.send(at(20)).pop().unwrap(), other.send(at(20)).pop().unwrap());
    one.receive(at(40), &answer_back);
    other.receive(at(40), &answer);
    for end in [&one, &other] {
        assert_eq!(end.knowledge(), Knowledge::Confirmed);
        let keep_alive = end.extension.handshake.peer().unwrap().keep_alive.map(|silence| silence.get());
        assert_eq!(keep_alive, Some(Duration::from_secs(20)), "which the other's HELLO tells");
    }
    assert!(one.extension.handshake.is_prober() && !other.extension.handshake.is_prober());
}

#[test]
fn a_hello_that_comes_back_means_nothing() {
    let mut client = End::new(Role::Connects, 1);
    let hello = client.send(at(0)).pop().unwrap();
    assert_eq!(client.receive(at(1), &hello), Taken::NOTHING);
    assert_eq!((client.knowledge(), client.send(at(1)).len()), (Knowledge::Asking, 0));
}

#[test]
fn a_retry_draws_a_hello_with_its_cookie_three_times() {
    let mut client = End::new(Role::Connects, 1);
    let cookie = [0x30; 24];
    let mut last_ts = 0;
    client.send(at(0));
    for round in 0..5 {
        let mut retry = vec![0x02, 24, 0];
        retry.extend_from_slice(&cookie);
        let retry_header = SegmentHeader {
            conv: 7,
            cmd: crate::proto::wire::Command::Extension,
            frg: Subtype::Retry as u8,
            wnd: 0,
            ts: last_ts,
            sn: tag_of(1),
            una: 0,
            len: retry.len() as u32,
        };
        client.extension.input(at(10 * round + 10), &retry_header, &retry, Origin::Received, &BUSY);
        let hellos = client.send(at(10 * round + 10));
        if round >= 3 {
            assert!(hellos.is_empty(), "{round}");
            continue;
        }
        assert_eq!(hellos[0].len(), 1_200);
        let (header, body) = Segments::new(&hellos[0]).next().unwrap().unwrap();
        let Ok(Segment::Hello(hello)) = Segment::parse(Subtype::Hello, &header, body) else { panic!() };
        assert_eq!(hello.fields.cookie, Some(&cookie[..]));
        last_ts = header.ts;
        // An answer to the HELLO before, which had no cookie or another one, came twice.
        let late = SegmentHeader { ts: 0, ..retry_header };
        client.extension.input(at(10 * round + 11), &late, &retry, Origin::Received, &BUSY);
        assert!(client.send(at(10 * round + 11)).is_empty(), "{round}");
    }
}

#[test]
fn required_extensions_end_the_session_of_a_peer_without() {
    let mut client = End::with(Role::Connects, 1, &REQUIRED);
    client.send(at(0));
    client.hear(at(10), Some(0));
    assert_eq!(client.extension.close_reason(), Some(CloseReason::PeerLacksExtensions));

    let mut server = End::with(Role::Accepts, 2, &REQUIRED);
    assert!(server.extension.requires_hello());
    assert_eq!(earliest(server.extension.deadlines()), Some(at(30_000)));
    let hello = End::new(Role::Connects, 9).send(at(0)).pop().unwrap();
    server.receive(at(0), &hello);
    assert!(!server.extension.requires_hello());
    assert!(!server.extension.on_timeout(at(29_999), &BUSY));
    assert_eq!(server.extension.close_reason(), None);
    assert!(!server.extension.on_timeout(at(30_000), &BUSY));
    assert_eq!(server.extension.close_reason(), Some(CloseReason::PeerLacksExtensions));
}

#[test]
fn a_refusal_ends_an_asking_end_and_no_other() {
    let mut client = End::new(Role::Connects, 1);
    client.send(at(0));
    client.receive(at(10), &abort(tag_of(3), 5));
    assert_eq!(client.extension.close_reason(), None, "another tag");
    client.receive(at(10), &abort(tag_of(1), 5));
    assert_eq!(client.extension.close_reason(), Some(CloseReason::Refused));
}

#[test]
fn what_this_version_cannot_speak_is_told_and_makes_no_state() {
    let mut server = End::new(Role::Accepts, 2);
    for vector in kcp9_vectors::extension() {
        if !(vector.has("unsupported") || vector.has("not_spoken")) {
            continue;
        }
        let mut wire = vector.bytes("wire");
        wire.extend_from_slice(&[0, 61, 0]);
        wire.resize(wire.len() + 61, 0);
        let len = (wire.len() - HEADER_LEN) as u32;
        wire[20..24].copy_from_slice(&len.to_le_bytes());
        assert_eq!(server.receive(at(0), &wire), Taken::NOTHING);
        assert_eq!(server.knowledge(), Knowledge::Unknown);
        let answer = server.send(at(0)).pop().unwrap();
        let (header, body) = Segments::new(&answer).next().unwrap().unwrap();
        let Ok(Segment::Answer(hello)) = Segment::parse(Subtype::Answer, &header, body) else { panic!() };
        assert_eq!(hello.fields.token, None);
        let unsupported = if vector.has("unsupported") { Some(&[0xef][..]) } else { None };
        assert_eq!(hello.fields.unsupported, unsupported);
    }
}
