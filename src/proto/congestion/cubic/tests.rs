//! The controller, event by event, with numbers worked out from the RFC.

use super::*;
use crate::proto::congestion::{InFlight, RateSample};

const MTU: u64 = 1_000;
const RTT: Duration = Duration::from_millis(100);

const fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A controller with a window of `segments`, which has left slow start at `ssthresh`.
fn cubic(segments: u64, ssthresh: Option<u64>) -> Cubic {
    let mut cubic = Cubic::new(MTU as usize);
    cubic.cwnd = segments * MTU;
    cubic.ssthresh = ssthresh.map(|segments| segments * MTU);
    cubic.on_rtt(ms(0), &RttSample { latest: RTT, smoothed: RTT, variation: Duration::ZERO });
    cubic
}

/// `bytes` are confirmed that were sent at `sent`, with the window full.
fn ack(cubic: &mut Cubic, now: u64, sent: u64, bytes: u64) {
    let in_flight = InFlight { bytes: cubic.cwnd, ..InFlight::default() };
    cubic.on_sent(&Sent { now: ms(now), in_flight, ..Sent::default() });
    ack_with(cubic, now, sent, bytes, in_flight.bytes);
}

fn ack_with(cubic: &mut Cubic, now: u64, sent: u64, bytes: u64, in_flight: u64) {
    let rate = RateSample { sent_time: ms(sent), ..RateSample::default() };
    let in_flight = InFlight { bytes: in_flight, ..InFlight::default() };
    let segments = (bytes / MTU) as u32;
    let acked = Acked { now: ms(now), segments, bytes, rate, in_flight, ..Acked::default() };
    cubic.on_ack(&acked, &mut MinRtt::default());
}

fn lose(cubic: &mut Cubic, now: u64, sent: u64, cause: LossCause) {
    cubic.on_lost(&Lost {
        now: ms(now),
        sn: 0,
        bytes: MTU,
        sent_time: ms(sent),
        cause,
        tx_in_flight: MTU,
        lost: MTU,
        is_app_limited: false,
    });
}

fn skip(cubic: &mut Cubic, now: u64, sent: u64) {
    lose(cubic, now, sent, LossCause::Skipped);
}

/// RFC 6928: ten segments. Slow start grows by what is confirmed (RFC 5681, section 3.1) up to ssthresh.
#[test]
fn slow_start_doubles_the_window_up_to_ssthresh() {
    let mut cubic = Cubic::new(MTU as usize);
    assert_eq!(cubic.window(), 10 * MTU);
    ack(&mut cubic, 100, 0, 10 * MTU);
    assert_eq!(cubic.window(), 20 * MTU);
    cubic.ssthresh = Some(25 * MTU);
    ack(&mut cubic, 200, 100, 20 * MTU);
    assert_eq!(cubic.window(), 25 * MTU);
}

/// Section 4.6: β_cubic = 0.7, at least two segments. W_max is the window at the loss.
#[test]
fn a_loss_leaves_seven_tenths_of_the_window() {
    let mut cubic = cubic(100, None);
    skip(&mut cubic, 1_000, 900);
    assert_eq!((cubic.window(), cubic.ssthresh), (70 * MTU, Some(70 * MTU)));
    assert_eq!((cubic.w_max, cubic.cwnd_prior), (Some(100 * MTU), 100 * MTU));
    let mut least = self::cubic(2, None);
    skip(&mut least, 1_000, 900);
    assert_eq!(least.window(), 2 * MTU);
}

/// RFC 9002, section 7.3.2, as RFC 9438 has one reduction for each congestion event: what was sent before the reduction
/// reduces no more, and makes nothing grow.
#[test]
fn losses_of_a_round_trip_reduce_the_window_once() {
    let mut cubic = cubic(100, None);
    skip(&mut cubic, 1_000, 900);
    skip(&mut cubic, 1_050, 950);
    skip(&mut cubic, 1_090, 999);
    assert_eq!(cubic.window(), 70 * MTU);
    ack(&mut cubic, 1_095, 999, 50 * MTU);
    assert_eq!(cubic.window(), 70 * MTU);
    skip(&mut cubic, 1_100, 1_000);
    assert_eq!(cubic.window(), 49 * MTU);
}

/// Section 4.7: on the way down, W_max is (1 + β) / 2 of the window: 0.85.
#[test]
fn a_second_loss_below_w_max_converges_fast() {
    let mut cubic = cubic(100, None);
    skip(&mut cubic, 1_000, 900);
    skip(&mut cubic, 1_200, 1_100);
    assert_eq!((cubic.window(), cubic.w_max), (49 * MTU, Some(59_500)));
    // Above it, W_max is the window itself.
    cubic.cwnd = 60 * MTU;
    skip(&mut cubic, 1_400, 1_300);
    assert_eq!(cubic.w_max, Some(60 * MTU));
}

/// Sections 4.2 to 4.4: after a loss at 100 segments K is ∛(30 / 0.4) = 4.217 s. The window is where the curve is a round
/// trip ahead: 100 - 0.4 (4.217 - t - 0.1)³.
#[test]
fn the_window_follows_the_curve() {
    let mut cubic = cubic(100, None);
    skip(&mut cubic, 1_000, 900);
    // Congestion avoidance begins with the first ACK of what was sent since.
    let mut at = [0; 5];
    for round in 0..=50 {
        let now = 1_100 + 100 * round;
        let cwnd = cubic.window();
        ack(&mut cubic, now, now - 100, cwnd);
        if round % 10 == 0 {
            at[(round / 10) as usize % 5] = cubic.window();
        }
    }
    // 100 + 0.4 (5 + 0.1 - 4.217163)³ overwrote t = 0.
    let expected = [100_275, 87_902, 96_210, 99_444, 99_999];
    let close = at.iter().zip(expected).all(|(found, expected): (&u64, u64)| found.abs_diff(expected) < 250);
    assert!(close, "{at:?}");
}

/// Section 4.10: when slow start ends without a loss, K = 0 and W_max is the window then, which grows at once.
#[test]
fn without_a_loss_the_curve_begins_at_its_plateau() {
    let mut cubic = cubic(50, Some(50));
    ack(&mut cubic, 1_000, 900, 50 * MTU);
    for round in 1..=20 {
        let cwnd = cubic.window();
        ack(&mut cubic, 1_000 + 100 * round, 900 + 100 * round, cwnd);
    }
    // W_est is ahead: a segment for each of 21 windows (section 4.3); the curve is 0.4 × 2.1³ = 3.7 above.
    assert!(cubic.window().abs_diff((50 + 21) * MTU) < 30, "{}", cubic.window());
}

/// Section 4.8: one segment, ssthresh of 0.7. The curve behind slow start has K = 0 and W_max where slow start ended.
#[test]
fn a_timeout_begins_with_one_segment() {
    let mut cubic = cubic(100, None);
    ack(&mut cubic, 1_000, 900, MTU);
    let before = cubic.window();
    lose(&mut cubic, 1_400, 1_010, LossCause::Timeout);
    lose(&mut cubic, 1_400, 1_020, LossCause::Timeout);
    assert_eq!((cubic.window(), cubic.ssthresh), (MTU, Some(beta(before))));
    // RFC 5681, section 3.1: what times out again leaves ssthresh.
    lose(&mut cubic, 1_900, 1_400, LossCause::Timeout);
    assert_eq!((cubic.window(), cubic.ssthresh), (MTU, Some(beta(before))));
    let mut now = 2_000;
    while cubic.is_slow_start() {
        let cwnd = cubic.window();
        ack(&mut cubic, now, now - 50, cwnd);
        now += 100;
    }
    let cwnd = cubic.window();
    assert_eq!(cwnd, beta(before));
    ack(&mut cubic, now, now - 50, MTU);
    assert!(cubic.curve.is_some() && cubic.w_max.is_none() && cubic.window() - cwnd < 100, "K = 0");
}

/// RFC 6298, section 5.3: an RTO that passes while ACKs come is no timeout of TCP, but a loss.
#[test]
fn a_timeout_with_acks_since_is_a_loss() {
    let mut cubic = cubic(100, None);
    ack(&mut cubic, 1_100, 1_000, MTU);
    let before = cubic.window();
    lose(&mut cubic, 1_300, 1_010, LossCause::Timeout);
    assert_eq!(cubic.window(), beta(before));
}

/// A timeout counts although a loss has reduced the window for the same segments; ssthresh is lowered once.
#[test]
fn a_timeout_behind_a_loss_leaves_ssthresh() {
    let mut cubic = cubic(100, None);
    ack(&mut cubic, 1_000, 900, MTU);
    let before = cubic.window();
    skip(&mut cubic, 1_000, 950);
    lose(&mut cubic, 1_400, 1_000, LossCause::Timeout);
    assert_eq!(cubic.window(), MTU);
    let mut other = self::cubic(100, None);
    skip(&mut other, 1_000, 950);
    lose(&mut other, 1_400, 960, LossCause::Timeout);
    assert_eq!((other.window(), other.ssthresh), (MTU, Some(70 * MTU)));
    assert!(cubic.ssthresh < Some(beta(before)), "what was sent after the loss is another event");
}

/// Section 4.9.2: all is as before if nothing was lost; if something was, nothing changes.
#[test]
fn a_reduction_for_nothing_is_undone() {
    let mut cubic = cubic(100, Some(50));
    ack(&mut cubic, 900, 800, MTU);
    let curve = |cubic: &Cubic| (cubic.ssthresh, cubic.w_max, cubic.cwnd_prior, cubic.curve.is_some());
    let (window, before) = (cubic.window(), curve(&cubic));
    skip(&mut cubic, 1_000, 900);
    skip(&mut cubic, 1_010, 905);
    cubic.on_spurious_loss(ms(1_020), MTU);
    assert_eq!(cubic.window(), beta(window));
    cubic.on_spurious_loss(ms(1_030), MTU);
    assert_eq!((cubic.window(), curve(&cubic)), (window, before));
    cubic.on_spurious_loss(ms(1_040), MTU);
    assert_eq!(cubic.window(), window);
    // A timeout for the same losses is undone to what was before the first of them (section 4.9.1).
    skip(&mut cubic, 2_000, 1_900);
    lose(&mut cubic, 2_400, 1_950, LossCause::Timeout);
    assert_eq!(cubic.window(), MTU);
    cubic.on_spurious_loss(ms(2_410), 2 * MTU);
    assert_eq!((cubic.window(), curve(&cubic)), (window, before));
}

/// Section 5.8: a window that is not used does not grow, and the curve waits.
#[test]
fn an_application_with_little_to_send_does_not_move_the_curve() {
    let mut used = cubic(100, None);
    skip(&mut used, 1_000, 900);
    let mut paused = cubic(100, None);
    skip(&mut paused, 1_000, 900);
    for cubic in [&mut used, &mut paused] {
        ack(cubic, 1_100, 1_050, 70 * MTU);
    }
    for now in (1_300..=60_000).step_by(100) {
        let before = paused.window();
        ack_with(&mut paused, now, now - 100, MTU, 10 * MTU);
        assert_eq!(paused.window(), before);
    }
    ack(&mut used, 1_200, 1_150, 10 * MTU);
    ack(&mut paused, 60_100, 60_000, 10 * MTU);
    assert_eq!(used.window(), paused.window());
    // A window that is sent at once and confirmed at once was used, however long that took.
    let mut at_once = cubic(70, Some(70));
    let in_flight = InFlight { bytes: at_once.cwnd, ..InFlight::default() };
    at_once.on_sent(&Sent { now: ms(1_000), in_flight, ..Sent::default() });
    ack_with(&mut at_once, 1_000 + 3 * 100, 1_000, 70 * MTU, 0);
    assert_eq!(at_once.window(), 71 * MTU);
    // In slow start, half the window must be in use, as it doubles.
    let mut start = cubic(100, None);
    ack_with(&mut start, 1_000, 900, MTU, 48 * MTU);
    assert_eq!(start.window(), 100 * MTU);
    ack_with(&mut start, 1_000, 900, MTU, 49 * MTU);
    assert_eq!(start.window(), 101 * MTU);
}

/// RFC 9406, section 4.2: five rounds of Conservative Slow Start end it with ssthresh at the window.
#[test]
fn longer_round_trips_end_slow_start_without_a_loss() {
    let mut cubic = Cubic::new(MTU as usize);
    let (mut now, mut delivered) = (0, 0);
    let mut windows = alloc::vec::Vec::new();
    for round in 0..8 {
        let rtt = Duration::from_millis(if round < 2 { 100 } else { 120 });
        let prior_delivered = delivered;
        let sent_time = ms(now);
        now += 120;
        cubic.on_rtt(ms(now), &RttSample { latest: rtt, smoothed: rtt, variation: Duration::ZERO });
        let bytes = cubic.window();
        delivered += bytes;
        let rate = RateSample { sent_time, prior_delivered, ..RateSample::default() };
        let segments = (bytes / MTU) as u32;
        let acked =
            Acked { now: ms(now), segments, bytes, total_delivered: delivered, rate, ..Acked::default() };
        cubic.on_ack(&acked, &mut MinRtt::default());
        windows.push(cubic.window());
    }
    // Each round is confirmed at once: twice the double, then 1.25 for each round of CSS but the last.
    assert_eq!(windows, [20_000, 40_000, 50_000, 62_500, 78_125, 97_656, 97_656, 97_656]);
    assert_eq!(cubic.ssthresh, Some(97_656));
    assert_eq!(cubic.w_max, None, "section 4.10");
}

/// Twice the window a round trip in slow start, 1.2 times later.
#[test]
fn the_window_is_paced_over_a_round_trip() {
    assert_eq!(Cubic::new(MTU as usize).pacing_rate(), None, "no round trip is known");
    assert_eq!(cubic(100, None).pacing_rate(), Some(2_000_000));
    assert_eq!(cubic(100, Some(400)).pacing_rate(), Some(2_000_000));
    assert_eq!(cubic(100, Some(150)).pacing_rate(), Some(1_200_000));
    assert_eq!(cubic(100, Some(50)).pacing_rate(), Some(1_200_000));
    assert_eq!(cubic(u64::MAX / MTU, None).pacing_rate(), None, "no overflow");
}

#[test]
fn the_window_holds_a_segment_whatever_the_mtu() {
    let mut cubic = cubic(1, Some(2));
    cubic.on_mtu_change(9_000);
    assert_eq!(cubic.window(), 9_000);
}

fn mark(cubic: &mut Cubic, now: u64, sent: u64) {
    let in_flight = InFlight::default();
    cubic.on_ecn(&Marked { now: ms(now), packets: 1, sent_time: ms(sent), in_flight });
}

/// RFC 8511: 0.85 in congestion avoidance; W_max and fast convergence are those of a loss.
#[test]
fn a_mark_leaves_seventeen_twentieths_of_the_window() {
    let mut cubic = cubic(100, Some(50));
    mark(&mut cubic, 1_000, 900);
    assert_eq!((cubic.window(), cubic.w_max), (85 * MTU, Some(100 * MTU)));
    // Losses of the same round trip are answered.
    skip(&mut cubic, 1_050, 950);
    assert_eq!(cubic.window(), 85 * MTU);
    mark(&mut cubic, 1_100, 1_000);
    assert_eq!((cubic.window(), cubic.w_max), (72_250, Some(72_250)));
    // In slow start, a mark is a loss.
    let mut start = self::cubic(100, None);
    mark(&mut start, 1_000, 900);
    assert_eq!((start.window(), start.ssthresh), (70 * MTU, Some(70 * MTU)));
    let mut least = self::cubic(2, Some(1));
    mark(&mut least, 1_000, 900);
    assert_eq!(least.window(), 2 * MTU);
}

#[test]
fn what_had_a_mark_is_not_undone() {
    for marked_first in [true, false] {
        let mut cubic = cubic(100, Some(50));
        if marked_first {
            mark(&mut cubic, 1_000, 900);
            skip(&mut cubic, 1_010, 905);
        } else {
            skip(&mut cubic, 1_000, 900);
            mark(&mut cubic, 1_010, 905);
        }
        let window = cubic.window();
        assert_eq!(window, if marked_first { 85 } else { 70 } * MTU);
        cubic.on_spurious_loss(ms(1_020), MTU);
        assert_eq!(cubic.window(), window);
    }
}
