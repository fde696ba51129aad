//! The modes, round by round.

use super::{
    extra_acked_limit::MIN_LIMIT,
    max_filter::ROUNDS,
    short_path::{LEAST_RTT, MAX_SEGMENTS},
    *,
};
use crate::proto::congestion::{
    InFlight, LossCause,
    delivery_rate::{DeliveryRate, NewlyAcked},
};

const MTU: u64 = 1_400;
/// Segments of a round.
const SENT: u32 = 1_000;

/// A controller with the sampler and the minimum that its path would have.
struct Path {
    bbr: BbrLike,
    rate: DeliveryRate,
    min_rtt: MinRtt,
    now: Instant,
}

impl Path {
    fn new() -> Self {
        Self {
            bbr: BbrLike::new(MTU as usize),
            rate: DeliveryRate::default(),
            min_rtt: MinRtt::default(),
            now: Instant::ZERO,
        }
    }

    /// A path of 1 ms whose ACKs come in batches of a window, behind Startup.
    fn behind_startup() -> Self {
        let mut path = Self::new();
        path.rounds(30, LEAST_RTT, 0);
        assert!(!path.bbr.is_startup());
        path
    }

    /// Sends `segments`, which are all acknowledged at once `rtt` later, with `in_flight` bytes still under way; `lost` of
    /// them are found lost.
    fn round(&mut self, segments: u32, rtt: Duration, lost: u32, in_flight: u64) {
        let (sent_time, state) = (self.now, self.rate.on_send(self.now, 0, MTU));
        self.now += rtt;
        for _ in 0..lost {
            self.bbr.on_lost(&Lost {
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
        let bytes = u64::from(segments) * MTU;
        let mut acked = NewlyAcked::default();
        acked.add(bytes, sent_time, state);
        self.min_rtt.sample(self.now, rtt);
        self.bbr.on_rtt(self.now, &RttSample { latest: rtt, ..RttSample::default() });
        let rate = self.rate.on_ack(self.now, &acked, self.min_rtt.get()).unwrap();
        let acked = Acked {
            now: self.now,
            segments,
            bytes,
            total_delivered: self.rate.delivered(),
            rate,
            in_flight: InFlight { bytes: in_flight, ..InFlight::default() },
            ..Acked::default()
        };
        self.bbr.on_ack(&acked, &mut self.min_rtt);
        self.min_rtt.forget_expired(self.now);
    }

    /// Rounds of [`SENT`] segments.
    fn rounds(&mut self, count: u32, rtt: Duration, lost: u32) {
        (0..count).for_each(|_| self.round(SENT, rtt, lost, 0));
    }

    fn bdp(&self) -> u64 {
        bdp(self.bbr.max_bw.get(), self.bbr.min_rtt, MTU)
    }

    fn limit(&self) -> u64 {
        self.bbr.extra_acked_limit.get()
    }
}

/// Of an application with too little to send, only round trips like those of a queue tell that the path is full.
#[test]
fn startup_ends_with_a_queue_whatever_the_application_has_to_send() {
    for (rtt, lost, ends) in [
        (3 * LEAST_RTT / 2, 0, false),
        (3 * LEAST_RTT / 2, SENT / 10, false),
        (5 * LEAST_RTT, 0, true),
        (5 * LEAST_RTT, SENT / 10, true),
    ] {
        let mut path = Path::new();
        path.rounds(2, LEAST_RTT, 0);
        for _ in 0..4 {
            path.rate.on_app_limited(0);
            path.rounds(1, rtt, lost);
        }
        assert_eq!(!path.bbr.is_startup(), ends, "{rtt:?}, {lost} lost");
        let extra_acked = path.bbr.extra_acked.get();
        let most = if ends { extra_acked + extra_acked / 16 } else { u64::MAX };
        assert!(path.limit() <= most, "{rtt:?}, {lost} lost");
    }
}

#[test]
fn drain_follows_startup_and_then_the_gains_cycle() {
    let rtt = 20 * LEAST_RTT;
    let mut path = Path::new();
    while path.bbr.is_startup() {
        assert_eq!(path.bbr.pacing_rate().unwrap_or(0), 3 * path.bbr.max_bw.get());
        path.rounds(1, rtt, 0);
    }
    assert!(matches!(path.bbr.mode, Mode::Drain { .. }));
    let mut gains = alloc::vec::Vec::new();
    for _ in 0..10 {
        path.rounds(1, rtt, 0);
        let Mode::ProbeBw { phase, .. } = path.bbr.mode else { panic!("{:?}", path.bbr.mode) };
        gains.push(PROBE_BW_GAINS[phase]);
        let extra_acked = path.bbr.extra_acked.get().min(path.limit());
        assert_eq!(path.bbr.window(), path.bdp() / 8 * PROBE_BW_GAINS[phase] + extra_acked);
    }
    assert_eq!(gains, [8, 8, 8, 8, 8, 10, 7, 8, 8, 8]);
}

#[test]
fn losses_with_long_round_trips_take_the_room_for_batches_away() {
    let mut path = Path::behind_startup();
    path.rounds(20, 5 * LEAST_RTT, 0);
    let before = path.bbr.window();
    path.rounds(20, 5 * LEAST_RTT, SENT / 40);
    let after = path.bbr.window();
    assert_eq!(path.limit(), MIN_LIMIT * MTU);
    assert!(after <= before / 2, "{before} to {after}");
    // 3 s.
    path.rounds(600, 5 * LEAST_RTT, 0);
    assert!(path.bbr.window() >= before, "{} of {before}", path.bbr.window());
}

#[test]
fn few_losses_and_those_of_short_round_trips_take_nothing() {
    for (rtt, lost) in [(5 * LEAST_RTT, SENT / 250), (3 * LEAST_RTT / 2, SENT / 4)] {
        let mut path = Path::behind_startup();
        path.rounds(40, rtt, lost);
        assert_eq!(path.limit(), u64::MAX, "{lost} lost, {rtt:?}");
    }
}

#[test]
fn startup_begins_again_on_a_longer_path() {
    let mut path = Path::behind_startup();
    let before = path.bbr.max_bw.get();
    let longer = 20 * LEAST_RTT;
    let rounds = (1..20).find(|_| {
        path.rounds(1, longer, 0);
        path.bbr.is_startup()
    });
    assert!(rounds.is_some_and(|rounds| rounds <= 12), "{rounds:?}");
    assert_eq!(path.min_rtt.get(), Some(longer));
    assert!(path.bbr.max_bw.get() < before / 2, "what the shorter path delivered is forgotten");
}

/// A smaller window measures a lower bandwidth, which says nothing of the path.
#[test]
fn the_bandwidth_is_remembered_while_the_path_is_emptied() {
    let mut path = Path::behind_startup();
    let (before, bw) = (path.bbr.window(), path.bbr.max_bw.get());
    path.now += Duration::from_secs(11);
    for _ in 0..3 * ROUNDS {
        path.round(SENT / 4, 3 * LEAST_RTT / 2, 0, before);
        assert!(path.bbr.is_probing_rtt());
        assert_eq!((path.bbr.max_bw.get(), path.min_rtt.get()), (bw, Some(LEAST_RTT)));
        assert_eq!(path.bbr.window(), path.bdp() / 2);
    }
    path.rounds(2, LEAST_RTT, 0);
    assert!(
        matches!(path.bbr.mode, Mode::ProbeBw { phase: PHASE_AFTER_PROBE_RTT, .. }),
        "{:?}",
        path.bbr.mode
    );
    assert!(path.bbr.window() >= path.bdp() / 8 * 7);
}

#[test]
fn the_path_is_not_emptied_while_the_application_limits_the_sender() {
    let mut path = Path::behind_startup();
    path.now += Duration::from_secs(11);
    path.rate.on_app_limited(0);
    path.rounds(1, 3 * LEAST_RTT / 2, 0);
    assert!(!path.bbr.is_probing_rtt());
    assert_eq!(path.min_rtt.get(), Some(3 * LEAST_RTT / 2));
}

/// What a round trip below a millisecond counts for more than it is does not fill windows at high rates.
#[test]
fn a_short_path_has_little_more_in_flight_than_fits_it() {
    let mut path = Path::new();
    path.rounds(30, LEAST_RTT / 10, 0);
    assert!(!path.bbr.is_startup());
    assert_eq!(path.bdp(), u64::from(SENT) * MTU);
    // Where a twentieth of that fits the path, schedulers get their part.
    let bw = path.bbr.max_bw.get() / 20;
    assert_eq!(bdp(bw, path.bbr.min_rtt, MTU), MAX_SEGMENTS * MTU);
}

#[test]
fn the_least_window_follows_the_mtu() {
    let mut path = Path::new();
    path.bbr.cwnd = MIN_CWND * MTU;
    path.bbr.on_mtu_change(9_000);
    assert_eq!(path.bbr.window(), MIN_CWND * 9_000);
}

fn mark(path: &mut Path) {
    let (now, sent_time) = (path.now, path.now);
    path.bbr.on_ecn(&Marked { now, packets: 1, sent_time, in_flight: InFlight::default() });
}

#[test]
fn a_mark_ends_startup_and_begins_the_phase_that_drains() {
    let mut path = Path::new();
    path.rounds(3, 20 * LEAST_RTT, 0);
    assert!(path.bbr.is_startup());
    mark(&mut path);
    assert!(matches!(path.bbr.mode, Mode::Drain { .. }));
    let mut path = Path::behind_startup();
    let since = path.now;
    path.bbr.mode = Mode::ProbeBw { phase: 0, since };
    mark(&mut path);
    assert_eq!(path.bbr.mode, Mode::ProbeBw { phase: DRAINING_PHASE, since });
    assert_eq!(PROBE_BW_GAINS[DRAINING_PHASE], 7);
    // What empties the path anyway goes on.
    path.bbr.mode = Mode::ProbeRtt { emptied_at: None };
    mark(&mut path);
    assert!(path.bbr.is_probing_rtt());
}

/// A new controller that goes on for one that is parked, as [`crate::proto::path::Path`] makes it.
fn resumed(path: &Path) -> Option<BbrLike> {
    let parked = Parked {
        stage: path.bbr.park()?,
        window: path.bbr.window(),
        metrics: path.bbr.metrics(),
        min_rtt: path.min_rtt.get(),
    };
    let mut bbr = BbrLike::new(MTU as usize);
    bbr.resume(path.now, &parked);
    Some(bbr)
}

#[test]
fn another_controller_goes_on_where_one_is_parked() {
    let mut path = Path::new();
    let fresh = resumed(&path).unwrap();
    assert_eq!((fresh.window(), fresh.pacing_rate()), (INITIAL_CWND * MTU, None));
    for rounds in [3, 30] {
        path.rounds(rounds, 20 * LEAST_RTT, 0);
        let other = resumed(&path).unwrap();
        assert_eq!(other.is_startup(), path.bbr.is_startup());
        assert_eq!((other.window(), other.probing_delay()), (path.bbr.window(), path.bbr.probing_delay()));
        assert_eq!(other.metrics(), path.bbr.metrics());
        assert_eq!(other.pacing_rate(), path.bbr.pacing_rate());
    }
    assert!(!path.bbr.is_startup());
    path.bbr.mode = Mode::ProbeRtt { emptied_at: None };
    assert!(resumed(&path).is_none(), "its window is not that of the path");
}
