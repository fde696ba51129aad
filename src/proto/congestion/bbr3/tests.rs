//! The model and the states, with numbers worked out from the draft.

mod losses;
mod probe_bw;
mod probe_rtt;
mod startup;

use super::{
    model::{ExtraAcked, MaxBwFilter},
    *,
};
use crate::proto::congestion::{InFlight, LossCause, RateSample};

const SMSS: u64 = 1_000;
const RTT: Duration = Duration::from_millis(100);
/// Bytes a second, and what fits the path at that.
const BW: u64 = 10_000_000;
const BDP: u64 = 1_000_000;

const fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A controller whose rounds take [`RTT`], unless told otherwise, and are confirmed at once.
struct Path {
    bbr: Bbr3,
    now: Instant,
    rtt: Duration,
    /// Bytes in flight behind each ACK.
    in_flight: u64,
    is_app_limited: bool,
    sn: u32,
}

impl Path {
    fn new() -> Self {
        let bbr = Bbr3::new(ms(0), SMSS as usize);
        Self { bbr, now: ms(0), rtt: RTT, in_flight: 0, is_app_limited: false, sn: 0 }
    }

    /// In `state`, with a path of [`BW`] and [`RTT`].
    fn in_state(state: State) -> Self {
        let mut path = Self::new();
        let bbr = &mut path.bbr;
        bbr.full_bw_reached = true;
        bbr.max_bw = BW;
        bbr.max_bw_filter = MaxBwFilter::default();
        bbr.bw = BW;
        bbr.min_rtt = Some(RTT);
        bbr.probe_rtt_min_delay = Some(RTT);
        bbr.cwnd = 2 * BDP;
        bbr.delivered = BDP;
        bbr.next_round_delivered = BDP;
        bbr.loss_round_delivered = BDP;
        bbr.cycle_stamp = ms(0);
        bbr.bw_probe_wait = Duration::from_secs(2);
        bbr.state = state;
        path.in_flight = BDP;
        path
    }

    /// A round trip in which the path delivers at `rate`: one ACK, of what was sent since the ACK before.
    fn round(&mut self, rate: u64) {
        self.now += self.rtt;
        self.ack(rate, self.bbr.delivered, bytes_in(rate, self.rtt), 0);
    }

    /// `bytes` are confirmed, of which the newest segment was sent when `prior_delivered` had been; `lost` since then.
    fn ack(&mut self, rate: u64, prior_delivered: u64, bytes: u64, lost: u64) {
        self.bbr
            .on_rtt(self.now, &RttSample { latest: self.rtt, smoothed: self.rtt, ..RttSample::default() });
        let rate = RateSample {
            delivery_rate: rate,
            delivered: bytes,
            prior_delivered,
            tx_in_flight: self.in_flight,
            lost,
            is_app_limited: self.is_app_limited,
            ..RateSample::default()
        };
        let acked = Acked {
            now: self.now,
            segments: (bytes / SMSS) as u32,
            bytes,
            total_delivered: self.bbr.delivered + bytes,
            rate,
            is_app_limited: self.is_app_limited,
            in_flight: InFlight { bytes: self.in_flight, ..InFlight::default() },
        };
        self.bbr.on_ack(&acked, &mut MinRtt::default());
    }

    /// The window is full.
    fn fill(&mut self) {
        let in_flight = InFlight { bytes: self.bbr.cwnd, ..InFlight::default() };
        self.bbr.on_sent(&Sent { now: self.now, in_flight, ..Sent::default() });
    }

    /// A segment was sent with `tx_in_flight` bytes in flight, and `lost` bytes are lost since, with it.
    fn lose_with(&mut self, tx_in_flight: u64, lost: u64, cause: LossCause) {
        self.sn += 2;
        self.bbr.on_lost(&Lost {
            now: self.now,
            sn: self.sn,
            bytes: SMSS,
            sent_time: self.now,
            cause,
            tx_in_flight,
            lost,
            is_app_limited: self.is_app_limited,
        });
    }

    fn lose(&mut self, tx_in_flight: u64, lost: u64) {
        self.lose_with(tx_in_flight, lost, LossCause::Skipped);
    }
}

/// Section 5.5.6: the filter holds two cycles.
#[test]
fn the_largest_rate_is_remembered_for_two_cycles() {
    let mut path = Path::in_state(State::Cruise);
    let rate = |path: &mut Path, rate| {
        path.ack(rate, path.bbr.delivered, 0, 0);
        path.bbr.max_bw
    };
    assert_eq!(rate(&mut path, 9_000_000), 9_000_000);
    assert_eq!(rate(&mut path, 7_000_000), 9_000_000);
    path.bbr.max_bw_filter.advance();
    assert_eq!(rate(&mut path, 7_000_000), 9_000_000);
    path.bbr.max_bw_filter.advance();
    assert_eq!(rate(&mut path, 6_000_000), 7_000_000);
    path.bbr.max_bw_filter.advance();
    // A cycle without samples.
    path.bbr.max_bw_filter.advance();
    assert_eq!(rate(&mut path, 5_000_000), 6_000_000);
}

/// Section 5.5.4: an application-limited sample counts if it is larger.
#[test]
fn app_limited_rates_count_only_upwards() {
    let mut path = Path::in_state(State::Cruise);
    path.round(BW);
    path.is_app_limited = true;
    path.bbr.max_bw_filter.advance();
    path.bbr.max_bw_filter.advance();
    path.round(BW / 2);
    assert_eq!(path.bbr.max_bw, BW);
    path.round(BW + 1);
    assert_eq!(path.bbr.max_bw, BW + 1);
}

/// Section 5.5.9: 1,000 bytes a millisecond explain what a batch has less than; it counts up to the window.
#[test]
fn a_batch_counts_beyond_what_the_bandwidth_explains() {
    const BW: u64 = 1_000_000;
    let mut extra = ExtraAcked::new(ms(0));
    extra.update(ms(100), 10_000, BW, 1 << 20);
    assert_eq!(extra.get(), 10_000);
    // 5 ms later 5,000 were to come.
    extra.update(ms(105), 10_000, BW, 1 << 20);
    assert_eq!(extra.get(), 15_000);
    extra.update(ms(106), 1 << 30, BW, 20_000);
    assert_eq!(extra.get(), 20_000);
    // Ten rounds behind Startup, one in it.
    (0..9).for_each(|_| extra.advance(false));
    assert_eq!(extra.get(), 20_000);
    extra.advance(false);
    assert_eq!(extra.get(), 0);
    extra.update(ms(200), 10_000, BW, 1 << 20);
    extra.advance(true);
    assert_eq!(extra.get(), 0);
}

/// The table of section 5.6.1, with a margin of 1 % below the rate (section 5.6.2).
#[test]
fn each_state_has_its_gains() {
    for (state, pacing, cwnd) in [
        (State::Startup, 277, 200),
        (State::Drain, 50, 200),
        (State::Down, 90, 200),
        (State::Cruise, 100, 200),
        (State::Refill, 100, 200),
        (State::Up, 125, 225),
        (State::ProbeRtt, 100, 50),
    ] {
        let mut path = Path::in_state(state);
        assert_eq!((path.bbr.pacing_gain(), path.bbr.cwnd_gain()), (pacing, cwnd), "{state:?}");
        path.bbr.set_pacing_rate();
        assert_eq!(path.bbr.pacing_rate(), Some(BW / 100 * pacing / 100 * 99), "{state:?}");
    }
}

/// Sections 5.6.2 and 5.6.4: ten segments in a millisecond until a round trip is known, then in that.
#[test]
fn the_first_rate_is_that_of_the_first_window() {
    let mut path = Path::new();
    assert_eq!((path.bbr.window(), path.bbr.pacing_rate()), (10 * SMSS, Some(10_000_000 / 100 * 277)));
    path.bbr.on_rtt(ms(100), &RttSample { latest: RTT, smoothed: RTT, ..RttSample::default() });
    assert_eq!(path.bbr.pacing_rate(), Some(277_000));
    // Until the path is full, the rate only grows (section 5.6.2).
    path.bbr.bw = 50_000;
    path.bbr.set_pacing_rate();
    assert_eq!(path.bbr.pacing_rate(), Some(277_000));
}

/// Section 5.6.4: the window grows by what is confirmed, to twice what fits the path, and is cut to that at once.
#[test]
fn the_window_grows_to_twice_the_product() {
    let mut path = Path::in_state(State::Cruise);
    let rs = |newly_acked| Sample { newly_acked, ..Sample::default() };
    path.bbr.cwnd = BDP;
    path.bbr.set_cwnd(&rs(30 * SMSS));
    assert_eq!(path.bbr.window(), BDP + 30 * SMSS);
    path.bbr.cwnd = 3 * BDP;
    path.bbr.set_cwnd(&rs(SMSS));
    assert_eq!(path.bbr.window(), 2 * BDP);
    // Up: 2.25 times, and two segments (section 5.6.4.2).
    path.bbr.state = State::Up;
    path.bbr.set_cwnd(&rs(BDP));
    assert_eq!(path.bbr.window(), BDP / 100 * 225 + 2 * SMSS);
    // At least four segments.
    path.bbr.bw = 0;
    path.bbr.state = State::ProbeRtt;
    path.bbr.send_quantum = 0;
    path.bbr.set_cwnd(&rs(0));
    assert_eq!(path.bbr.window(), 4 * SMSS);
}

/// Section 5.6.4.7: the volume caps of the states.
#[test]
fn the_window_is_bound_by_the_model() {
    for (state, cap) in [
        (State::Startup, 2 * BDP),
        (State::Drain, 2 * BDP),
        (State::Down, 900_000),
        (State::Refill, 900_000),
        (State::Up, 900_000),
        (State::Cruise, 765_000),
        (State::ProbeRtt, BDP / 2),
    ] {
        let mut path = Path::in_state(state);
        path.bbr.inflight_longterm = 900_000;
        path.bbr.set_cwnd(&Sample::default());
        assert_eq!(path.bbr.window(), cap, "{state:?}");
        path.bbr.inflight_shortterm = 123_000;
        path.bbr.set_cwnd(&Sample::default());
        assert_eq!(path.bbr.window(), 123_000, "{state:?}");
    }
}

/// Section 5.6.3: what a millisecond carries, at least two segments and at most 64 KiB.
#[test]
fn the_send_quantum_is_a_millisecond() {
    let mut path = Path::new();
    for (rate, quantum) in [(0, 2 * SMSS), (5_000_000, 5_000), (1_000_000_000, 65_536)] {
        path.bbr.pacing_rate = rate;
        path.bbr.set_send_quantum();
        assert_eq!(path.bbr.send_quantum, quantum);
    }
}

/// Section 5.4: behind a pause the rate is that of the path, whatever the phase.
#[test]
fn sending_begins_again_at_the_rate_of_the_path() {
    let mut path = Path::in_state(State::Up);
    path.bbr.set_pacing_rate();
    let in_flight = InFlight { bytes: SMSS, ..InFlight::default() };
    path.bbr.on_sent(&Sent { now: ms(5_000), bytes: SMSS, in_flight, ..Sent::default() });
    assert_eq!(path.bbr.pacing_rate(), Some(BW / 100 * 99));
    assert!(path.bbr.idle_restart);
}

#[test]
fn no_number_overflows() {
    let mut path = Path::in_state(State::Up);
    path.bbr.inflight_longterm = INFINITY - 1;
    path.rtt = Duration::from_secs(100_000);
    for _ in 0..100 {
        path.bbr.delivered = 0;
        path.now += Duration::from_secs(1);
        path.ack(u64::MAX, u64::MAX, u64::MAX / 2, u64::MAX);
        path.fill();
        path.lose(u64::MAX, u64::MAX);
    }
    assert!(path.bbr.window() > 0 && path.bbr.pacing_rate() > Some(0));
}
