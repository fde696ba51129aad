//! Segments that are confirmed, skipped, and resent.

use super::*;

const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    rto: Duration::from_millis(100),
    nodelay: true,
    thin: false,
    max: Duration::from_secs(60),
};

const fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn filled(first: u32, count: u32) -> SendBuffer {
    let mut buffer = SendBuffer::new(first);
    for i in 0..count {
        let sn = buffer.push(i * 10, 10, 0, ms(u64::from(i)), SendState::default());
        assert_eq!(sn, first.wrapping_add(i));
    }
    buffer
}

fn ack(buffer: &mut SendBuffer, sn: u32) -> bool {
    buffer.ack(sn, 0, &mut Confirmed::default()).is_some()
}

fn ack_before(buffer: &mut SendBuffer, una: u32) -> u32 {
    let mut confirmed = Confirmed::default();
    buffer.ack_before(una, &mut confirmed);
    confirmed.acked.segments
}

fn resend_all(buffer: &mut SendBuffer, now: Instant) -> Vec<(u32, Cause)> {
    let mut sent = Vec::new();
    while let Some((sn, cause)) = buffer.next_resend(now, &BACKOFF) {
        buffer.resent(sn, cause, false, now, SendState::default());
        sent.push((sn, cause));
    }
    sent
}

#[test]
fn acks_in_any_order_confirm_segments_across_the_wrap() {
    let first = u32::MAX - 20;
    let mut buffer = filled(first, 100);
    for i in (0..100).rev().step_by(3) {
        assert!(ack(&mut buffer, first.wrapping_add(i)));
        assert!(!ack(&mut buffer, first.wrapping_add(i)));
    }
    assert_eq!(buffer.unacked(), 66);
    assert_eq!(ack_before(&mut buffer, first.wrapping_add(50)), 33);
    assert_eq!(buffer.una(), first.wrapping_add(50));
    assert_eq!(buffer.retire(), Some(500));
    assert!(!ack(&mut buffer, first.wrapping_sub(1)));
    assert!(!ack(&mut buffer, first.wrapping_add(100)));
    assert_eq!(ack_before(&mut buffer, first.wrapping_add(101)), 0);
    assert_eq!(ack_before(&mut buffer, first.wrapping_add(49)), 0);
    assert_eq!(ack_before(&mut buffer, first.wrapping_add(100)), 33);
    assert_eq!(buffer.retire(), None);
    assert_eq!((buffer.unacked(), buffer.occupied), (0, 0));
    assert_eq!(buffer.next_timeout(&BACKOFF), None);
}

#[test]
fn timeouts_back_off_level_by_level() {
    let mut buffer = filled(0, 2);
    assert_eq!(buffer.next_timeout(&BACKOFF), Some(ms(100)));
    assert_eq!(resend_all(&mut buffer, ms(99)), []);
    assert_eq!(resend_all(&mut buffer, ms(100)), [(0, Cause::Timeout)]);
    assert_eq!(buffer.next_timeout(&BACKOFF), Some(ms(101)));
    assert_eq!(resend_all(&mut buffer, ms(101)), [(1, Cause::Timeout)]);
    // The second wait is 150 ms from the second transmission, the third 200 ms.
    assert_eq!(buffer.next_timeout(&BACKOFF), Some(ms(250)));
    assert_eq!(resend_all(&mut buffer, ms(250)), [(0, Cause::Timeout)]);
    ack(&mut buffer, 1);
    assert_eq!(buffer.next_timeout(&BACKOFF), Some(ms(450)));
    // A thin stream is one level behind.
    assert_eq!(buffer.next_timeout(&Backoff { thin: true, ..BACKOFF }), Some(ms(400)));
}

#[test]
fn a_segment_skipped_often_enough_is_resent_once_and_then_waits() {
    let mut buffer = filled(0, 5);
    assert!(ack(&mut buffer, 1));
    assert!(buffer.skip_before(1, 1, 2));
    assert_eq!(buffer.next_resend(ms(10), &BACKOFF), None);
    assert_eq!(buffer.next_early(), Some(0));
    assert!(ack(&mut buffer, 2));
    assert!(buffer.skip_before(2, 2, 2));
    assert_eq!(resend_all(&mut buffer, ms(10)), [(0, Cause::Fast)]);
    for sn in 3..5 {
        ack(&mut buffer, sn);
        assert!(!buffer.skip_before(sn, sn, 2));
    }
    assert_eq!(resend_all(&mut buffer, ms(109)), []);
    assert_eq!(resend_all(&mut buffer, ms(110)), [(0, Cause::Timeout)]);
}

/// Congestion control is told of each loss once, in the order in which the losses were found.
#[test]
fn segments_that_become_due_are_reported_once() {
    let report = |buffer: &mut SendBuffer| {
        let mut lost = Vec::new();
        buffer.report_lost(|sn, segment| {
            assert_eq!(sn, segment.position / 10);
            lost.push(sn);
        });
        lost
    };
    let mut buffer = filled(0, 8);
    ack(&mut buffer, 3);
    buffer.skip_before(3, 3, 1);
    assert_eq!(report(&mut buffer), [0, 1, 2]);
    ack(&mut buffer, 1);
    ack(&mut buffer, 7);
    buffer.skip_before(7, 7, 1);
    assert_eq!(report(&mut buffer), [4, 5, 6]);
    assert!(report(&mut buffer).is_empty());
    assert!(!buffer.found_lost(4));
    assert_eq!(resend_all(&mut buffer, ms(10)).len(), 5);
    assert!(buffer.found_lost(4), "the resend may be lost as well");
}

#[test]
fn an_ack_older_than_the_last_transmission_skips_nothing() {
    let mut buffer = filled(0, 3);
    assert_eq!(resend_all(&mut buffer, ms(100)), [(0, Cause::Timeout)]);
    ack(&mut buffer, 1);
    assert!(!buffer.skip_before(1, 1, 1));
    ack(&mut buffer, 2);
    assert!(buffer.skip_before(2, 100, 1));
    assert_eq!(resend_all(&mut buffer, ms(101)), [(0, Cause::Fast)]);
}

#[test]
fn the_ring_grows_around_what_is_in_flight() {
    let mut buffer = SendBuffer::new(u32::MAX - 3);
    for i in 0..1_000_u32 {
        buffer.push(i, 1, 0, ms(0), SendState::default());
        if i % 5 == 4 {
            let una = buffer.una().wrapping_add(3);
            ack_before(&mut buffer, una);
        }
    }
    assert_eq!(buffer.span(), 400);
    assert_eq!(buffer.get(buffer.una()).position, 600);
    assert_eq!(resend_all(&mut buffer, ms(100)).len(), 400);
    let nxt = buffer.nxt();
    ack_before(&mut buffer, nxt);
    buffer.trim();
    assert_eq!(buffer.ring.capacity(), 0);
    buffer.push(0, 1, 0, ms(0), SendState::default());
}
