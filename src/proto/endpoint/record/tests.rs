//! Records, without an endpoint around them.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::*;
use crate::proto::{
    arq::SequenceNumbers,
    extension::{Caps, Envelope, Fields, Hello},
};

const KEY: HashKey = HashKey::for_tests();
const NOW: Instant = Instant::from_millis(5_000);

fn route(conv: u32) -> Route {
    (SocketAddr::from(([127, 0, 0, 1], 1)), conv)
}

fn push(sn: u32, una: u32, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    let header = SegmentHeader { conv: 1, cmd: Command::Push, frg: 0, wnd: 9, ts: 77, sn, una, len };
    [&header.to_bytes()[..], payload].concat()
}

fn closed(received: u32, acknowledged: u32, sent: u32) -> Option<ClosedRecord> {
    let numbers = SequenceNumbers { received, acknowledged, sent };
    Some(ClosedRecord { numbers, mark: 0, resend_millis: 500, peer: PeerRecord::Legacy })
}

/// Records with that of an accepted session, which began with `request`.
fn records_of(left: Option<ClosedRecord>) -> Records {
    let mut records = Records::new(KEY);
    let first = push(0, 0, b"request");
    records.insert(NOW, &route(1), Role::Accepted, FirstPush::find(KEY, [&first[..]].into_iter()), left);
    records
}

fn judge(records: &mut Records, after: Duration, packets: &[&[u8]]) -> Option<Verdict> {
    records.judge(NOW + after, &route(1), packets.iter().copied())
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn ack(sn: u32, una: u32) -> Option<Verdict> {
    Some(Verdict::Answer(Answer::Ack { sn, ts: 77, una, mark: 0 }))
}

#[test]
fn what_had_arrived_is_acknowledged_for_a_minute() {
    let mut records = records_of(closed(10, 2, 5));
    for after in [0, 100, 2_999, 3_000, 59_999].map(ms) {
        assert_eq!(judge(&mut records, after, &[&push(0, 2, b"request")]), ack(0, 10), "{after:?}");
        assert_eq!(judge(&mut records, after, &[&push(9, 5, b"end")]), ack(9, 10), "{after:?}");
        let both = [push(7, 3, b"x"), push(8, 3, b"y")].concat();
        assert_eq!(judge(&mut records, after, &[&both]), ack(7, 10), "one answer a run");
        assert_eq!(judge(&mut records, after, &[&push(10, 5, b"new"), &push(9, 5, b"end")]), ack(9, 10));
    }
    assert_eq!(judge(&mut records, ms(60_000), &[&push(9, 5, b"end")]), None);
}

#[test]
fn what_had_not_arrived_is_not_acknowledged() {
    let mut records = records_of(closed(10, 0, 0));
    assert_eq!(judge(&mut records, ms(9), &[&push(10, 0, b"more")]), Some(Verdict::Nothing));
    assert_eq!(judge(&mut records, ms(9), &[&push(1 << 31, 0, b"far")]), Some(Verdict::Nothing));
}

#[test]
fn another_first_payload_begins_a_session_after_a_while() {
    let mut records = records_of(closed(10, 0, 5));
    let other = push(0, 0, b"another");
    for (after, verdict) in [(2_999, Verdict::Nothing), (3_000, Verdict::MayBegin)] {
        assert_eq!(judge(&mut records, ms(after), &[&other]), Some(verdict), "{after}");
        // No number of the new session is acknowledged by the old one's record.
        let batch = [&push(1, 0, b"b")[..], &other];
        assert_eq!(judge(&mut records, ms(after), &batch), Some(verdict), "{after}");
    }
}

/// A program that begins each session with the same bytes comes back with the same port and conv.
#[test]
fn who_has_received_less_than_the_peer_had_is_another() {
    let mut records = records_of(closed(10, 2, 5));
    let again = push(0, 0, b"request");
    assert_eq!(judge(&mut records, ms(2_999), &[&again]), Some(Verdict::Nothing));
    assert_eq!(judge(&mut records, ms(3_000), &[&again]), Some(Verdict::MayBegin));
    for una in [0, 1, 6, u32::MAX] {
        assert_eq!(judge(&mut records, ms(3_000), &[&push(1, una, b"x")]), Some(Verdict::Nothing), "{una}");
    }
}

#[test]
fn numbers_wrap() {
    let mut records = records_of(closed(3, u32::MAX, 2));
    for sn in [0, 2, u32::MAX] {
        for una in [u32::MAX, 0, 2] {
            assert_eq!(judge(&mut records, ms(1), &[&push(sn, una, b"request")]), ack(sn, 3), "{sn} {una}");
        }
    }
    assert_eq!(judge(&mut records, ms(1), &[&push(3, 0, b"x")]), Some(Verdict::Nothing));
    assert_eq!(judge(&mut records, ms(1), &[&push(2, 3, b"x")]), Some(Verdict::Nothing));
}

#[test]
fn without_a_record_of_its_numbers_a_session_is_not_begun_twice_and_nothing_is_answered() {
    let mut records = records_of(None);
    for after in [0, 2_999, 3_000, 59_999].map(ms) {
        assert_eq!(judge(&mut records, after, &[&push(0, 0, b"request")]), Some(Verdict::Nothing));
        assert_eq!(judge(&mut records, after, &[&push(1, 0, b"x")]), Some(Verdict::Nothing));
    }
    assert_eq!(judge(&mut records, ms(3_000), &[&push(0, 0, b"another")]), Some(Verdict::MayBegin));
}

#[test]
fn a_session_that_was_begun_here_answers_nothing() {
    let mut records = Records::new(KEY);
    records.insert(NOW, &route(1), Role::Connected, FirstPush::default(), closed(10, 0, 5));
    for after in [0, 3_000, 59_999].map(ms) {
        for packet in [push(0, 5, b"request"), push(9, 5, b"end")] {
            assert_eq!(judge(&mut records, after, &[&packet]), Some(Verdict::Nothing));
        }
    }
}

#[test]
fn of_a_route_the_last_record_counts_until_it_is_over() {
    let mut records = records_of(closed(10, 0, 5));
    let later = NOW + ms(30_000);
    records.insert(later, &route(1), Role::Accepted, FirstPush::default(), closed(20, 0, 5));
    assert_eq!(judge(&mut records, ms(59_999), &[&push(15, 0, b"x")]), ack(15, 20));
    assert_eq!(judge(&mut records, ms(60_000), &[&push(15, 0, b"x")]), ack(15, 20));
    assert_eq!(judge(&mut records, ms(90_000), &[&push(15, 0, b"x")]), None);
    assert!(records.records.is_empty() && records.latest.is_empty());
}

#[test]
fn a_record_is_small() {
    assert!(size_of::<Record>() <= 88, "{}", size_of::<Record>());
}

#[test]
#[cfg_attr(miri, ignore = "so many take minutes, and do nothing that few do not")]
fn no_more_than_the_limit_are_kept_and_their_memory_is_given_back() {
    let mut records = Records::new(KEY);
    let count = 2 * MAX as u32 + 5;
    for conv in 0..count {
        records.insert(NOW, &route(conv), Role::Accepted, FirstPush::default(), closed(1, 0, 0));
    }
    assert_eq!((records.records.len(), records.latest.len()), (MAX, MAX));
    let mut known = |conv| records.judge(NOW, &route(conv), core::iter::empty()).is_some();
    assert!(!known(0) && !known(count - MAX as u32 - 1));
    assert!(known(count - MAX as u32) && known(count - 1));
    assert_eq!(records.judge(NOW + LIFETIME, &route(count - 1), core::iter::empty()), None);
    assert!(records.records.capacity() <= MIN_CAPACITY && records.latest.capacity() <= 2 * MIN_CAPACITY);
}

// ---- Peers with extensions ----

const TAG: u32 = 0x0101_0101;

fn id(byte: u8) -> SessionId {
    SessionId::from_bytes([byte; 8]).unwrap()
}

/// That of a session that had received 10 segments, and of whose peer 5 were sent and 2 acknowledged.
fn known(ended: Ended) -> ClosedRecord {
    let fin = Some(Fin { end: 10, no_reader: false });
    let peer = KnownPeer { tag: TAG, id: Some(id(2)), fin, ended };
    ClosedRecord { mark: 0x60, peer: PeerRecord::Known(peer), ..closed(10, 2, 5).unwrap() }
}

fn envelope(una: u32) -> Envelope {
    Envelope { conv: 1, wnd: 9, ts: 77, una }
}

fn packet(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut out = [0; 128];
    let len = write(&mut out).unwrap();
    out[..len].to_vec()
}

fn fin(tag: u32, end: u32, no_reader: bool) -> Vec<u8> {
    packet(|out| envelope(5).write_fin(Fin { end, no_reader }, tag, out))
}

fn ping(tag: u32) -> Vec<u8> {
    packet(|out| envelope(5).write_ping(9, tag, out))
}

fn hello_like(id: SessionId, answer_to: Option<u32>, una: u32) -> Vec<u8> {
    let (caps, fields) = (Caps::default(), Fields::default());
    let hello = Hello { version: 1, oldest: 1, caps, id, echo_ts: 0, fields };
    packet(|out| match answer_to {
        Some(tag) => envelope(una).write_answer(&hello, tag, out),
        None => envelope(una).write_hello(&hello, 0, out),
    })
}

fn hello(byte: u8) -> Vec<u8> {
    hello_like(id(byte), None, 0)
}

fn answers(records: &mut Records, packet: &[u8]) -> Option<Answer> {
    match judge(records, ms(1), &[packet]).unwrap() {
        Verdict::Answer(answer) => Some(answer),
        Verdict::Nothing => None,
        Verdict::MayBegin => panic!("a session may begin"),
    }
}

/// The table of `docs/extensions.md`, section 2.5, row by row: PUSH that had arrived, PUSH that had not, FIN as known, another
/// FIN, PING.
#[test]
fn what_a_record_answers_to_a_peer_with_extensions() {
    let ack = Some(Answer::Ack { sn: 9, ts: 77, una: 10, mark: 0x60 });
    let fin_ack =
        |end| Some(Answer::FinAck { fin: Fin { end, no_reader: false }, tag: id(2).tag(), una: 10 });
    let reset = Some(Answer::Reset { token: 9, tag: TAG, ts: 77 });
    let fin_of = |no_reader| Some(Answer::Fin { fin: Fin { end: 5, no_reader }, tag: id(2).tag(), una: 10 });
    let abort = |reason| Some(Answer::Abort { reason, tag: id(2).tag() });
    for (ended, expected) in [
        (Ended::Finished, [ack, None, fin_ack(10), None, fin_of(false)]),
        (Ended::WithoutReader, [ack, abort(0), fin_ack(10), fin_ack(11), fin_of(true)]),
        (Ended::Aborted(2), [abort(2); 5]),
        (Ended::ByPeer, [None, None, None, None, reset]),
    ] {
        for role in [Role::Accepted, Role::Connected] {
            let mut records = Records::new(KEY);
            records.insert(NOW, &route(1), role, FirstPush::default(), Some(known(ended)));
            let packets =
                [push(9, 5, b"x"), push(10, 5, b"x"), fin(TAG, 10, false), fin(TAG, 11, false), ping(TAG)];
            let found = packets.each_ref().map(|packet| answers(&mut records, packet));
            assert_eq!(found, expected, "{ended:?}, {role:?}");
        }
    }
}

#[test]
fn of_several_answers_the_one_that_says_most_is_sent() {
    let mut records = Records::new(KEY);
    records.insert(NOW, &route(1), Role::Accepted, FirstPush::default(), Some(known(Ended::WithoutReader)));
    let reset = answers(&mut records, &ping(7)).unwrap();
    let both = [ping(TAG), push(9, 5, b"x")].concat();
    let ack = answers(&mut records, &both).unwrap();
    let three = [push(9, 5, b"x"), fin(TAG, 10, false), ping(TAG)].concat();
    let fin_ack = answers(&mut records, &three).unwrap();
    let fin_itself = answers(&mut records, &ping(TAG)).unwrap();
    assert_eq!(reset.rank(), fin_itself.rank());
    assert!(reset.rank() < ack.rank() && ack.rank() < fin_ack.rank());
    let abort = [&three[..], &push(10, 5, b"x")].concat();
    assert!(matches!(answers(&mut records, &abort), Some(Answer::Abort { .. })));
}

/// Neither who does not know the tag, nor who sends back what this end had sent.
#[test]
fn another_tag_draws_no_answer_but_reset() {
    let mut records = Records::new(KEY);
    records.insert(NOW, &route(1), Role::Accepted, FirstPush::default(), Some(known(Ended::Finished)));
    for tag in [id(2).tag(), 7] {
        assert_eq!(answers(&mut records, &fin(tag, 10, false)), None, "{tag:#x}");
    }
    assert_eq!(answers(&mut records, &ping(id(2).tag())), None);
    assert_eq!(answers(&mut records, &ping(7)), Some(Answer::Reset { token: 9, tag: 7, ts: 77 }));
}

#[test]
fn a_hello_of_another_id_begins_a_session_after_a_while() {
    for ended in [Ended::Finished, Ended::WithoutReader, Ended::Aborted(1), Ended::ByPeer] {
        let mut records = Records::new(KEY);
        records.insert(NOW, &route(1), Role::Accepted, FirstPush::default(), Some(known(ended)));
        for (after, other) in [(2_999, Verdict::Nothing), (3_000, Verdict::MayBegin)] {
            assert_eq!(judge(&mut records, ms(after), &[&hello(2)]), Some(Verdict::Nothing), "its own");
            assert_eq!(
                judge(&mut records, ms(after), &[&hello(1)]),
                Some(Verdict::Nothing),
                "ours, reflected"
            );
            assert_eq!(judge(&mut records, ms(after), &[&hello(3)]), Some(other));
        }
    }
}

#[test]
fn a_session_that_was_given_up_before_it_was_answered_tells_so_who_answers() {
    let peer = KnownPeer { tag: TAG, id: None, fin: None, ended: Ended::Aborted(1) };
    let left = ClosedRecord { peer: PeerRecord::Known(peer), ..closed(0, 0, 1).unwrap() };
    let mut records = Records::new(KEY);
    records.insert(NOW, &route(1), Role::Connected, FirstPush::default(), Some(left));
    let abort = Some(Answer::Abort { reason: 1, tag: id(4).tag() });
    assert_eq!(answers(&mut records, &hello_like(id(4), Some(TAG), 1)), abort);
    assert_eq!(answers(&mut records, &hello_like(id(4), Some(7), 1)), None, "the answer to somebody else");
    assert_eq!(answers(&mut records, &push(0, 1, b"220 ready")), None, "its tag is not known");
    for byte in [1, 4] {
        assert_eq!(judge(&mut records, ms(9_000), &[&hello(byte)]), Some(Verdict::Nothing));
    }
}

/// Its first PUSH has begun the session, and HELLO comes when the session is over. It must not begin a second one.
#[test]
fn a_hello_that_comes_behind_the_end_begins_nothing() {
    let left = ClosedRecord { mark: 0x60, peer: PeerRecord::Unknown, ..closed(10, 2, 5).unwrap() };
    let mut records = records_of(Some(left));
    let abort = Some(Verdict::Answer(Answer::Abort { reason: 0, tag: id(2).tag() }));
    for after in [1, 5_000, 59_000] {
        assert_eq!(judge(&mut records, ms(after), &[&hello_like(id(2), None, 2)]), abort, "{after}");
    }
    // Another one, of who has received nothing: with the same port and conv he begins anew.
    assert_eq!(judge(&mut records, ms(2_999), &[&hello(3)]), Some(Verdict::Nothing));
    assert_eq!(judge(&mut records, ms(3_000), &[&hello(3)]), Some(Verdict::MayBegin));
    assert_eq!(judge(&mut records, ms(3_000), &[&push(9, 5, b"end")]), {
        Some(Verdict::Answer(Answer::Ack { sn: 9, ts: 77, una: 10, mark: 0x60 }))
    });
}

/// Nor is it a reason to take the resend beside it for the beginning of a session.
#[test]
fn a_hello_that_shares_its_packet_begins_nothing() {
    let mut records = records_of(closed(10, 0, 5));
    let alone = hello(9);
    let shared = [&alone[..], &push(3, 0, b"x")].concat();
    let resend = push(0, 0, b"request");
    assert_eq!(judge(&mut records, ms(3_000), &[&resend, &shared]), ack(0, 10));
    assert_eq!(judge(&mut records, ms(3_000), &[&resend, &alone]), Some(Verdict::MayBegin));
}
