//! Rounds of a path whose round trips the tests choose.

use super::*;
use crate::proto::congestion::{
    Controller as _, InFlight, LossCause, Lost, Marked, MinRtt, Parked, RateSample, RttSample,
};

const MTU: u64 = 1_000;
/// ACK packets of a round.
const ACKS: u64 = 16;
/// Segments that each confirms: a full batch, which waited for no others.
const BATCH: u32 = 8;
/// The rate of all rounds: 2 segments a millisecond.
const RATE: u64 = 2_000_000;
const BASE: Duration = Duration::from_millis(50);
/// Others fill the queue. If round trips became twice as long at once, it would be another path.
const FULL: Duration = Duration::from_millis(98);

struct Path {
    control: DelayBased,
    min_rtt: MinRtt,
    now: Instant,
    /// When the round before began.
    before: Instant,
    delivered: u64,
    /// The window before the last drain.
    before_drain: u64,
}

impl Path {
    /// Behind Startup, with a window that fits and a minimum of [`BASE`].
    fn new() -> Self {
        let now = Instant::from_millis(1_000);
        let mut control = DelayBased::new(now, MTU as usize);
        control.mode = Mode::Delay;
        control.cwnd = bytes_in(RATE, BASE);
        control.rate = RATE;
        // Rounds end with the first ACK of what was sent in them.
        control.round = Round::new(Instant::from_millis(900));
        control.highest_rate = RATE;
        let mut path =
            Self { control, min_rtt: MinRtt::default(), now, before: now, delivered: 0, before_drain: 0 };
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
                segments: BATCH,
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
            self.before_drain = self.control.cwnd;
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

/// A queue of 3 ms was not empty for 2.5 s: the window is 0.8 of what the path holds for three rounds. It is empty then, and all
/// is as before.
#[test]
fn a_drain_that_finds_an_empty_queue_changes_nothing() {
    let mut path = Path::new();
    let rtt = BASE + Duration::from_millis(3);
    path.until_drain(rtt, 0, 60).unwrap();
    path.drain(BASE, 0);
    let took = path.until_drain(rtt, 0, 60).unwrap();
    assert!((2_400..2_650).contains(&took.as_millis()), "{took:?}");
    assert!(path.control.cwnd.abs_diff(80_000) <= 2_000, "{}", path.control.cwnd);
    let before = path.before_drain;
    path.drain(BASE, 0);
    assert!(matches!(path.control.mode, Mode::Delay));
    assert!(path.control.cwnd.abs_diff(before) <= 20_000, "{} {before}", path.control.cwnd);
}

/// The ACK of a first transmission comes when its segment has just been sent again.
#[test]
fn a_round_takes_a_round_trip() {
    let mut path = Path::new();
    let began = path.control.round.began;
    let rate = RateSample { prior_delivered: path.delivered, ..RateSample::default() };
    for (after, ends) in [(1, false), (2, false), (1, true)] {
        path.now += Duration::from_millis(after);
        let acked = Acked { now: path.now, total_delivered: path.delivered, rate, ..Acked::default() };
        path.control.on_ack(&acked, &mut path.min_rtt);
        assert_eq!(path.control.round.began > began, ends, "{:?}", path.now);
    }
}

/// The first drain empties half of the path, and so does the next if the path was shorter than it was thought to be.
#[test]
fn who_is_not_sure_of_the_path_drains_more_of_it_and_soon_again() {
    let mut path = Path::new();
    let rtt = BASE + Duration::from_millis(3);
    path.until_drain(rtt, 0, 60).unwrap();
    assert!(path.control.cwnd.abs_diff(50_000) <= 1_500, "{}", path.control.cwnd);
    path.drain(BASE * 4 / 5, 0);
    let took = path.until_drain(BASE * 4 / 5, 0, 60).unwrap();
    assert!((600..700).contains(&took.as_millis()), "{took:?}");
    assert!(path.control.cwnd.abs_diff(40_000) <= 1_500, "{}", path.control.cwnd);
}

/// The window is what CUBIC makes of half the rate then, until a drain finds the queue empty.
#[test]
fn a_queue_that_stays_through_two_drains_is_others() {
    let mut path = Path::new();
    let rtt = FULL;
    // The queue was empty before the first of three.
    for drain in 1..=3 {
        path.until_drain(rtt, 0, 60).unwrap();
        path.drain(rtt, 0);
        assert_eq!(path.control.mode(), Some(if drain == 3 { "compete" } else { "delay" }), "after {drain}");
    }
    assert!(path.control.cwnd >= bytes_in(RATE / 2, rtt) * 9 / 10, "{}", path.control.cwnd);
    let before = path.control.cwnd;
    path.round(rtt, 1);
    assert!(path.control.cwnd >= before, "it has just come: {} of {before}", path.control.cwnd);
    (0..4).for_each(|_| path.round(rtt, 0));
    let before = path.control.cwnd;
    path.round(rtt, 1);
    assert!(path.control.cwnd <= before * 3 / 4, "a loss counts: {} of {before}", path.control.cwnd);
    (0..5).for_each(|_| path.round(BASE, 0));
    assert_eq!(path.control.mode(), Some("compete"), "an empty queue may be others' doing");
}

/// Startup begins again, with the window that fitted the shorter path.
#[test]
fn round_trips_that_become_long_at_once_are_those_of_another_path() {
    let mut path = Path::new();
    let before = path.control.cwnd;
    (0..5).for_each(|_| path.round(BASE, 0));
    (0..12).for_each(|_| {
        if path.control.mode() != Some("startup") {
            path.round(3 * BASE, 0)
        }
    });
    assert_eq!(path.control.mode(), Some("startup"));
    assert_eq!(path.min_rtt.get(), Some(3 * BASE));
    assert!(path.control.cwnd >= before, "{} of {before}", path.control.cwnd);
}

/// Behind two drains that the queue outlasts.
fn beside_others(rtt: Duration) -> Path {
    let mut path = Path::new();
    while path.control.mode() != Some("compete") {
        path.until_drain(rtt, 0, 60).unwrap();
        path.drain(rtt, 0);
    }
    path
}

/// A drain finds the queue empty, and it stays empty while the window stays as it is.
#[test]
fn others_are_gone_where_the_queue_does_not_grow_again() {
    let mut path = beside_others(FULL);
    path.until_drain(FULL, 0, 300).unwrap();
    path.drain(BASE, 0);
    assert_eq!(path.control.mode(), Some("hold"));
    (0..41).for_each(|_| path.round(BASE, 0));
    assert_eq!(path.control.mode(), Some("hold"));
    path.round(BASE, 0);
    assert_eq!(path.control.mode(), Some("delay"));
}

/// CUBIC had just lost: it fills the queue again. The session has the window that it had beside it, and waits twice as long.
#[test]
fn others_are_there_still_where_the_queue_grows_again() {
    let mut path = beside_others(FULL);
    let took = [0, 0].map(|_| {
        let took = path.until_drain(FULL, 0, 300).unwrap();
        path.drain(BASE, 0);
        let before = path.before_drain;
        for round in 0..30 {
            path.round(BASE + Duration::from_micros(300) * round, 0);
        }
        assert_eq!(path.control.mode(), Some("compete"));
        assert!(path.control.cwnd >= before, "{} {before}", path.control.cwnd);
        took.as_millis()
    });
    assert!((2_450..2_700).contains(&took[0]) && (4_950..5_200).contains(&took[1]), "{took:?}");
}

/// Nobody of this kind makes a queue longer for one round only.
#[test]
fn a_queue_with_spikes_is_others() {
    let mut path = Path::new();
    (0..40).for_each(|round| path.round(if round % 8 == 0 { BASE + BASE / 4 } else { BASE }, 0));
    assert_eq!(path.control.mode(), Some("compete"));
}

/// Who drains a little before the others does not see how all have emptied the queue, but soon after.
#[test]
fn a_queue_that_was_empty_between_two_drains_does_not_stay() {
    let mut path = Path::new();
    let rtt = FULL;
    for _ in 0..6 {
        path.until_drain(rtt, 0, 60).unwrap();
        path.drain(rtt, 0);
        path.round(BASE, 0);
        path.round(BASE, 0);
        assert_ne!(path.control.mode(), Some("compete"));
    }
}

/// A queue of 60 ms is no session's of this kind: the first drain does not wait.
#[test]
fn a_long_queue_is_looked_into_at_once() {
    let mut path = Path::new();
    path.until_drain(BASE + Duration::from_millis(3), 0, 60).unwrap();
    path.drain(BASE, 0);
    let took = path.until_drain(BASE + Duration::from_millis(60), 0, 60).unwrap();
    assert!(took.as_millis() <= 700, "{took:?}");
}

#[test]
fn who_sees_round_trips_fall_joins_a_drain() {
    let mut path = Path::new();
    (0..35).for_each(|_| path.round(BASE + Duration::from_millis(10), 0));
    assert!(!path.control.drains.is_draining());
    assert!(path.until_drain(BASE + Duration::from_millis(4), 0, 3).is_some());
}

/// Of 138 segments ten are lost. With a small window as many are: it is the path's own, and means nothing.
#[test]
fn losses_that_a_small_window_does_not_end_are_the_paths_own() {
    let mut path = Path::new();
    (0..20).for_each(|_| path.round(BASE, 0));
    let before = path.control.cwnd;
    assert!(path.until_drain(BASE, 10, 4).is_some());
    assert!(path.control.cwnd <= 45_000, "{}", path.control.cwnd);
    path.drain(BASE, 10);
    assert!(path.control.cwnd >= before, "{} {before}", path.control.cwnd);
    (0..150).for_each(|_| path.round(BASE, 10));
    assert!(path.control.cwnd >= before, "{} {before}", path.control.cwnd);
}

#[test]
fn losses_that_a_small_window_ends_came_of_a_large_one() {
    let mut path = Path::new();
    (0..20).for_each(|_| path.round(BASE, 0));
    assert!(path.until_drain(BASE, 10, 4).is_some());
    let before = path.before_drain;
    path.round(BASE, 10);
    path.drain(BASE, 0);
    assert!(path.control.cwnd < before * 9 / 10, "{} {before}", path.control.cwnd);
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
    path.control.mode = Mode::Startup(Startup::default());
    path.round(BASE + Duration::from_millis(5), 0);
    assert_eq!(path.control.mode(), Some("startup"), "a tenth of the round trip may be jitter");
    path.round(BASE + Duration::from_millis(7), 0);
    assert_eq!(path.control.mode(), Some("delay"));
    assert!(path.control.cwnd <= 110_000, "{}", path.control.cwnd);
}

#[test]
fn a_mark_ends_startup() {
    let mut path = Path::new();
    path.control.mode = Mode::Startup(Startup::default());
    let in_flight = InFlight::default();
    path.control.on_ecn(&Marked { now: path.now, packets: 1, sent_time: path.now, in_flight });
    path.round(BASE, 0);
    assert_ne!(path.control.mode(), Some("startup"));
}

/// The least window is four segments of the new size.
#[test]
fn the_window_follows_the_mtu() {
    let mut path = Path::new();
    path.control.cwnd = 4_000;
    path.control.on_mtu_change(1_400);
    assert_eq!(path.control.window(), 5_600);
    path.control.on_mtu_change(500);
    assert_eq!(path.control.window(), 5_600);
}

/// A new controller that goes on for one that is parked.
fn resumed(path: &Path) -> Option<DelayBased> {
    let parked = Parked {
        stage: path.control.park()?,
        window: path.control.window(),
        metrics: path.control.metrics(),
        min_rtt: path.min_rtt.get(),
    };
    let mut control = DelayBased::new(path.now, MTU as usize);
    control.resume(path.now, &parked);
    Some(control)
}

#[test]
fn another_controller_goes_on_where_one_is_parked() {
    let mut path = Path::new();
    path.control = DelayBased::new(path.now, MTU as usize);
    path.min_rtt = MinRtt::default();
    let fresh = resumed(&path).unwrap();
    assert_eq!(
        (fresh.mode(), fresh.window(), fresh.pacing_rate()),
        (Some("startup"), INITIAL_CWND * MTU, None)
    );
    let mut path = Path::new();
    for mode in ["delay", "drain", "delay"] {
        assert_eq!(path.control.mode(), Some(mode));
        let Some(other) = resumed(&path) else {
            assert_eq!(mode, "drain", "its window is not that of the path");
            path.drain(BASE, 0);
            continue;
        };
        assert_eq!((other.mode(), other.window()), (Some("delay"), path.control.window()));
        assert_eq!(
            (other.metrics(), other.probing_delay()),
            (path.control.metrics(), path.control.probing_delay())
        );
        assert!(other.pacing_rate() >= path.control.pacing_rate() && other.pacing_rate().is_some());
        path.until_drain(BASE + Duration::from_millis(3), 0, 60).unwrap();
    }
    let path = beside_others(FULL);
    assert_eq!(resumed(&path).unwrap().window(), path.control.window());
}

/// A peer waits for eight segments or ten milliseconds, which is many round trips there.
#[test]
fn a_short_path_has_a_window_that_is_acknowledged_at_once() {
    let mut control = DelayBased::new(Instant::ZERO, MTU as usize);
    for (base, segments) in [(QUEUE_TIME, MIN_CWND), (QUEUE_TIME / 2, MIN_CWND_OF_SHORT_PATH)] {
        control.base = Some(base);
        control.set_cwnd(0);
        assert_eq!(control.window(), segments * MTU, "{base:?}");
    }
}
