//! Rounds of a path whose round trips the tests choose.

use alloc::vec::Vec;

use super::*;
use crate::proto::congestion::{InFlight, LossCause, RateSample};

const MTU: u64 = 1_000;
/// ACK packets of a round.
const ACKS: u64 = 16;
/// The rate of all rounds: 2 segments a millisecond.
const RATE: u64 = 2_000_000;
const BASE: Duration = Duration::from_millis(50);

struct Path {
    control: DelayBased,
    min_rtt: MinRtt,
    now: Instant,
    /// When the round before began.
    before: Instant,
    delivered: u64,
}

impl Path {
    /// Behind Startup, with a window that fits and a minimum of [`BASE`].
    fn new() -> Self {
        let now = Instant::from_millis(1_000);
        let mut control = DelayBased::new(now, MTU as usize);
        control.mode = Mode::Delay;
        control.cwnd = bytes_in(RATE, BASE);
        control.rate = RATE;
        control.highest_rate = RATE;
        let mut path = Self { control, min_rtt: MinRtt::default(), now, before: now, delivered: 0 };
        path.round(BASE, 0);
        path
    }

    /// What [`RATE`] is in `rtt` is confirmed one after the other, with a window still in flight, and `lost` segments are found
    /// lost that were sent in the round before.
    fn round(&mut self, rtt: Duration, lost: u32) {
        let prior_delivered = self.delivered;
        let sent_time = core::mem::replace(&mut self.before, self.now);
        for _ in 0..lost {
            self.control.on_lost(&Lost {
                now: self.now,
                sn: 0,
                bytes: MTU,
                sent_time,
                cause: LossCause::Skipped,
                tx_in_flight: MTU,
                lost: MTU,
                is_app_limited: false,
            });
        }
        let bytes = bytes_in(RATE, rtt) / ACKS;
        for _ in 0..ACKS {
            self.now += rtt / ACKS as u32;
            self.delivered += bytes;
            self.min_rtt.sample(self.now, rtt);
            let sample = RttSample { latest: rtt, smoothed: rtt, ..RttSample::default() };
            self.control.on_rtt(self.now, &sample);
            let rate =
                RateSample { prior_delivered, sent_time, delivery_rate: RATE, ..RateSample::default() };
            let acked = Acked {
                now: self.now,
                segments: (bytes / MTU) as u32,
                bytes,
                total_delivered: self.delivered,
                rate,
                in_flight: InFlight { bytes: self.control.window(), ..InFlight::default() },
                ..Acked::default()
            };
            self.control.on_ack(&acked, &mut self.min_rtt);
            self.min_rtt.forget_expired(self.now);
        }
    }

    /// Rounds until one drains, at most so many. Returns how long that took.
    fn until_drain(&mut self, rtt: Duration, lost: u32, most: u32) -> Option<Duration> {
        let began = self.now;
        for _ in 0..most {
            self.round(rtt, lost);
            if self.control.drains.is_draining() {
                return Some(self.now - began);
            }
        }
        None
    }

    /// Rounds until the drain is over.
    fn drain(&mut self, rtt: Duration, lost: u32) {
        for _ in 0..4 {
            if self.control.drains.is_draining() {
                self.round(rtt, lost);
            }
        }
        assert!(!self.control.drains.is_draining());
    }
}

/// 2 MB/s with a delay of 6 ms are 12,000 bytes in the queue, and 5 segments with what is sent in 2 ms 9,000: the window gives up
/// half of what is too much. With 3 ms there are 6,000.
#[test]
fn a_step_goes_half_the_way_to_what_is_meant_to_be_in_the_queue() {
    for (delay, step) in [(6, -1_500), (3, 1_500)] {
        let mut path = Path::new();
        // The first round ends with the first ACK of the second.
        path.round(BASE + Duration::from_millis(delay), 0);
        path.control.cwnd = 112_000;
        path.round(BASE + Duration::from_millis(delay), 0);
        assert!((path.control.cwnd as i64 - 112_000 - step).abs() <= 150, "{delay}: {}", path.control.cwnd);
    }
}

/// Half of 9,000 bytes at a time while three rounds have no queue, then twice and four times as much.
#[test]
fn steps_double_while_there_is_no_queue() {
    let mut path = Path::new();
    path.round(BASE, 0);
    path.control.quick = 0;
    let mut steps = Vec::new();
    for _ in 0..5 {
        let before = path.control.cwnd;
        path.round(BASE, 0);
        steps.push(path.control.cwnd - before);
    }
    assert_eq!(steps, [4_500, 4_500, 4_500, 9_000, 18_000]);
}

#[test]
fn what_the_window_does_not_hold_back_is_no_reason_for_a_larger_one() {
    let mut path = Path::new();
    path.round(BASE, 0);
    path.control.cwnd = 10_000_000;
    let acked = Acked { now: path.now, ..Acked::default() };
    path.control.step(&acked, &Round::new(path.now), 0, false);
    assert_eq!(path.control.cwnd, 10_000_000);
}

/// A queue of 4.5 ms, which is as long as it is meant to be, was not empty for 2.5 s: the window is 0.8 of what the path holds for three rounds. It is empty then, and all
/// is as before.
#[test]
fn a_drain_that_finds_an_empty_queue_changes_nothing() {
    let mut path = Path::new();
    let rtt = BASE + Duration::from_micros(4_500);
    let took = path.until_drain(rtt, 0, 60).unwrap();
    assert!((2_500..2_650).contains(&took.as_millis()), "{took:?}");
    assert!(path.control.cwnd.abs_diff(80_000) <= 2_000, "{}", path.control.cwnd);
    let before = path.control.largest;
    path.drain(BASE, 0);
    assert!(matches!(path.control.mode, Mode::Delay));
    assert!(path.control.cwnd.abs_diff(before) <= 20_000, "{} {before}", path.control.cwnd);
    let took = path.until_drain(rtt, 0, 60).unwrap();
    assert!(took >= drain::INTERVAL - BASE, "{took:?}");
}

/// The window is what CUBIC makes of half the rate then, until the queue is seen empty.
#[test]
fn a_queue_that_stays_through_two_drains_is_others() {
    let mut path = Path::new();
    let rtt = 2 * BASE;
    for failed in 1..=2 {
        path.until_drain(rtt, 0, 60).unwrap();
        path.drain(rtt, 0);
        assert_eq!(matches!(path.control.mode, Mode::Compete(_)), failed == 2, "after {failed}");
    }
    assert!(path.control.cwnd >= bytes_in(RATE / 2, rtt) * 9 / 10, "{}", path.control.cwnd);
    let before = path.control.cwnd;
    path.round(rtt, 1);
    assert!(path.control.cwnd <= before * 3 / 4, "a loss counts: {} of {before}", path.control.cwnd);
    (0..20).for_each(|_| path.round(BASE, 0));
    assert!(matches!(path.control.mode, Mode::Delay));
}

#[test]
fn who_sees_round_trips_fall_joins_a_drain() {
    let mut path = Path::new();
    (0..30).for_each(|_| path.round(BASE + Duration::from_millis(10), 0));
    assert!(!path.control.drains.is_draining());
    assert!(path.until_drain(BASE + Duration::from_millis(4), 0, 3).is_some());
}

/// A tenth is lost. With a small window as much is: it is the path's own, and there is no question for ten seconds.
#[test]
fn losses_that_a_small_window_does_not_end_are_the_paths_own() {
    let mut path = Path::new();
    path.control.drains = Drains::new(path.now);
    (0..20).for_each(|_| path.round(BASE, 0));
    let before = path.control.cwnd;
    assert!(path.until_drain(BASE, 10, 4).is_some());
    assert!(path.control.cwnd <= 45_000, "{}", path.control.cwnd);
    path.drain(BASE, 10);
    assert!(path.control.cwnd >= before, "{} {before}", path.control.cwnd);
    assert_eq!(path.until_drain(BASE, 10, 150), None);
}

#[test]
fn losses_that_a_small_window_ends_came_of_a_large_one() {
    let mut path = Path::new();
    (0..20).for_each(|_| path.round(BASE, 0));
    assert!(path.until_drain(BASE, 10, 4).is_some());
    let before = path.control.largest;
    path.round(BASE, 10);
    path.drain(BASE, 0);
    assert!(path.control.cwnd < before * 4 / 5, "{} {before}", path.control.cwnd);
}

/// What was taken for the path was a queue: the window becomes what the shorter path holds.
#[test]
fn losses_of_a_queue_that_was_taken_for_the_path_show_the_path() {
    let mut path = Path::new();
    (0..20).for_each(|_| path.round(BASE, 0));
    assert!(path.until_drain(BASE, 10, 4).is_some());
    path.drain(BASE * 3 / 5, 0);
    let fitting = bytes_in(RATE, BASE * 3 / 5) + 9_000;
    assert!(path.control.cwnd.abs_diff(fitting) <= 12_000, "{} {fitting}", path.control.cwnd);
}

/// The first eight round trips of a round are those of a queue: the round before has filled the path.
#[test]
fn startup_ends_with_a_queue() {
    let mut path = Path::new();
    path.control.mode = Mode::Startup { rate: 0, rounds: 0 };
    path.round(BASE + Duration::from_millis(5), 0);
    assert!(path.control.is_startup(), "a tenth of the round trip may be jitter");
    path.round(BASE + Duration::from_millis(7), 0);
    assert!(!path.control.is_startup());
    assert!(path.control.cwnd <= 110_000, "{}", path.control.cwnd);
}

fn mark(path: &mut Path) {
    let in_flight = InFlight::default();
    path.control.on_ecn(&Marked { now: path.now, packets: 1, sent_time: path.now, in_flight });
}

/// Half as many segments in the queue; when there are no fewer, an eighth of the window.
#[test]
fn marks_are_those_of_a_full_queue() {
    let mut path = Path::new();
    let (segments, cwnd) = (path.control.queue_segments, path.control.cwnd);
    mark(&mut path);
    path.round(BASE, 0);
    assert!(path.control.queue_segments <= segments / 2 + PARTS && path.control.cwnd <= cwnd);
    path.control.queue_segments = PARTS;
    let cwnd = path.control.cwnd;
    mark(&mut path);
    path.round(BASE, 0);
    assert_eq!(path.control.cwnd, cwnd - cwnd / 8);
    let mut path = Path::new();
    path.control.mode = Mode::Startup { rate: 0, rounds: 0 };
    mark(&mut path);
    path.round(BASE, 0);
    assert!(!path.control.is_startup());
}
