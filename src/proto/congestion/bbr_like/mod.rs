//! The default congestion control: after BBR (Cardwell et al., 2016, and the BBR drafts), and simpler.
//!
//! A path is modelled by the highest rate at which it has delivered lately (`max_bw`) and by its minimum round-trip time
//! (`min_rtt`). Their product (`bdp`) is what fits the path without a queue, and the window stays close to it. Losses by
//! themselves do not shrink the window, so a lossy link stays fast; a full queue does not either make it grow, so a link
//! is not flooded.
//!
//! * **Startup** adds what is acknowledged to the window, which doubles it every round trip, until the path is full: three
//!   rounds in a row have not raised the bandwidth by a quarter, or two of them have lost segments or had round trips of
//!   twice the minimum, those of a queue.
//! * **Drain** sets the window to the model, below what Startup has in flight: nothing new leaves until the queue that
//!   Startup built is gone. It lasts a round trip.
//! * **`ProbeBw`** is the steady state. The window is `bdp` times a gain that cycles: a quarter more for a round trip, to find
//!   out whether the path carries more; an eighth less, to drain what that queued; then six round trips of just the
//!   product.
//! * **`ProbeRtt`**: when the minimum round-trip time has not been seen for ten seconds, the path is emptied to measure it.
//!   The window is half the product until what was sent with no more than that in flight is acknowledged. Sessions that
//!   share a link have a queue there that none of them sees the end of: what one drains, the others fill. Each would
//!   come to take the round trip with the queue for the path's own, have as much more in flight, and lengthen the queue
//!   until it overflows. When one empties the path, the others see shorter round trips too, and as all remember them for as
//!   long, all come to empty it at the same time. A session alone sees short round trips again and again, and seldom does.
//!
//! A mark of ECN tells of a queue: it ends Startup, and in `ProbeBw` the phase that drains begins at once. A round with one has
//! overflowed its queue, as far as the room for batches of ACKs goes.
//!
//! On top of the product, the window has room for batches of ACKs (`extra_acked`).
//!
//! A session that is idle gives its controller back. Another goes on with the same window and bandwidth, as BBR does after a pause,
//! and learns the rest anew.
//!
//! # How it differs from BBR
//!
//! * The window is the limit; pacing, at a quarter more than the bandwidth, only breaks bursts.
//! * The window follows the gain in `ProbeBw`, where BBR's pacing rate does.
//! * In `ProbeRtt` the path is emptied for one round trip, where BBR stays for 200 ms. The window is half the product, as in
//!   BBRv2 and later.
//! * There is no limit learnt from losses, as BBRv2 has one.
//!
//! # Our own
//!
//! Each of these is worth something, which a test in `tests/simulation/congestion` shows:
//!
//! * A limit on the room for batches of ACKs where a queue overflows (`extra_acked_limit.rs`; `sharing.rs`).
//! * Startup begins again when the path has become longer (`path_change.rs`; the same).
//! * A round trip counts as a millisecond at least (`short_path.rs`; the same).
//! * Rounds with the round trips of a queue end Startup even if the application had too little to send to fill the window.
//!   Otherwise the window would go on growing. Many sessions that begin together in one process have little each
//!   (`sharing.rs`: `sessions_with_little_to_send_each_do_not_flood_a_link_together`).
//! * RTOs are longer by the queue that `ProbeBw` makes when it probes (`sharing.rs` and `path_change.rs`).

mod extra_acked;
mod extra_acked_limit;
mod max_filter;
mod path_change;
mod short_path;
#[cfg(test)]
mod tests;

use core::time::Duration;

use self::{
    extra_acked::ExtraAcked, extra_acked_limit::ExtraAckedLimit, max_filter::MaxFilter,
    path_change::PathChange,
};
use super::{Acked, Controller, Lost, Marked, Metrics, MinRtt, Parked, RateSample, RttSample, Stage};
use crate::proto::time::Instant;

/// Window gains of `ProbeBw`'s phases, in eighths.
const PROBE_BW_GAINS: [u64; 8] = [10, 7, 8, 8, 8, 8, 8, 8];
/// The phase of `ProbeBw` behind Drain, which was the first that cruises.
const PHASE_AFTER_DRAIN: usize = 3;
/// The phase behind `ProbeRtt`: the path must stay drained while the window opens again.
const PHASE_AFTER_PROBE_RTT: usize = DRAINING_PHASE;
/// The phase of `ProbeBw` whose window is smaller than what the path holds.
const DRAINING_PHASE: usize = 1;
/// The pacing gain of Startup, and in eighths that of the other modes: enough for the window to be what limits the sender,
/// little enough that a window that opens at once does not leave at once.
const STARTUP_PACING_GAIN: u64 = 3;
const PACING_GAIN: u64 = 10;
/// Rounds without growth that end Startup: BBR's `full_bw_count`.
const FULL_BW_ROUNDS: u8 = 3;
/// A round is lossy if more than one segment in so many is lost.
const LOSSY: u64 = 200;
/// Round trips of twice the minimum are those of a queue, and of twice this where the minimum is shorter.
const LEAST_QUEUE_RTT: Duration = Duration::from_micros(250);
/// The window at first, and at least, in full segments. The least does not hold while the window is halved for a
/// [`PathChange`].
const INITIAL_CWND: u64 = 32;
const MIN_CWND: u64 = 16;

/// What the controller is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain { since: Instant },
    ProbeBw { phase: usize, since: Instant },
    ProbeRtt { emptied_at: Option<Instant> },
}

/// The controller.
#[derive(Debug)]
pub(super) struct BbrLike {
    mtu: u64,
    mode: Mode,
    cwnd: u64,
    max_bw: MaxFilter,
    extra_acked: ExtraAcked,
    extra_acked_limit: ExtraAckedLimit,
    path_change: PathChange,
    /// The path's, as it was told with the last ACK.
    min_rtt: Option<Duration>,
    /// The highest bandwidth that Startup has grown to, and the rounds since that have not raised it by a quarter.
    full_bw: u64,
    full_bw_count: u8,
    /// The round ends when a segment is acknowledged that was sent after so many bytes were delivered.
    next_round_delivered: u64,
    round: Round,
}

/// What has happened in a round so far.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    /// Segments acknowledged.
    acked: u64,
    /// Segments found lost.
    lost: u64,
    /// The shortest round trip.
    rtt: Option<Duration>,
    /// Packets had marks of ECN.
    marked: bool,
}

impl BbrLike {
    pub(super) fn new(mtu: usize) -> Self {
        let mtu = mtu as u64;
        Self {
            mtu,
            mode: Mode::Startup,
            cwnd: INITIAL_CWND * mtu,
            max_bw: MaxFilter::default(),
            extra_acked: ExtraAcked::default(),
            extra_acked_limit: ExtraAckedLimit::default(),
            path_change: PathChange::default(),
            min_rtt: None,
            full_bw: 0,
            full_bw_count: 0,
            next_round_delivered: 0,
            round: Round::default(),
        }
    }

    const fn is_startup(&self) -> bool {
        matches!(self.mode, Mode::Startup)
    }

    const fn is_probing_rtt(&self) -> bool {
        matches!(self.mode, Mode::ProbeRtt { .. })
    }

    /// Begins and ends `ProbeRtt`.
    fn check_probe_rtt(&mut self, acked: &Acked, min_rtt: &mut MinRtt) {
        let now = acked.now;
        match &mut self.mode {
            Mode::ProbeRtt { emptied_at: Some(at) } => {
                if acked.rate.sent_time >= *at {
                    min_rtt.renew(now);
                    self.mode = Mode::ProbeBw { phase: PHASE_AFTER_PROBE_RTT, since: now };
                }
            }
            Mode::ProbeRtt { emptied_at } => {
                let bdp = bdp(self.max_bw.get(), self.min_rtt, self.mtu);
                if acked.in_flight.bytes <= probe_rtt_cwnd(bdp, self.mtu) {
                    *emptied_at = Some(now);
                }
            }
            Mode::Startup => {}
            // Where the application limits the sender, a smaller window changes nothing.
            Mode::Drain { .. } | Mode::ProbeBw { .. } => {
                if min_rtt.is_expired(now) && !acked.rate.is_app_limited {
                    min_rtt.hold();
                    self.mode = Mode::ProbeRtt { emptied_at: None };
                }
            }
        }
    }

    fn end_round(&mut self, acked: &Acked, min_rtt: &mut MinRtt) {
        self.next_round_delivered = acked.total_delivered;
        let round = core::mem::take(&mut self.round);
        let path_rtt = self.min_rtt.unwrap_or(short_path::LEAST_RTT).max(LEAST_QUEUE_RTT);
        let queued = round.marked || round.rtt.is_some_and(|rtt| rtt >= 2 * path_rtt);
        let overflows = round.marked || (queued && round.lost * LOSSY > round.acked);
        let app_limited = acked.rate.is_app_limited;
        if app_limited {
            if self.path_change.is_asked()
                && let Some((rtt, min_rtt)) = round.rtt.zip(self.min_rtt)
            {
                self.path_change.on_app_limited_round(acked.now, min_rtt, rtt);
            }
            // A round in which the application had little to send says nothing of the path, unless the path has a queue.
            if !(if self.is_startup() { queued } else { overflows }) {
                return;
            }
        }
        let bw = self.max_bw.get();
        // Such a round makes the filters forget nothing, nor does one with the smaller window of ProbeRtt.
        if !app_limited && !self.is_probing_rtt() {
            self.max_bw.end_round();
            self.extra_acked.end_round();
        }
        if self.is_startup() {
            self.check_full_bw(acked.now, bw, &round, queued, overflows);
            return;
        }
        self.adapt_extra_acked_limit(&round, overflows);
        if !app_limited {
            self.check_path_change(acked.now, round.rtt, min_rtt);
        }
    }

    /// Ends Startup when the path is full.
    fn check_full_bw(&mut self, now: Instant, bw: u64, round: &Round, queued: bool, overflows: bool) {
        if bw >= self.full_bw + self.full_bw / 4 {
            self.full_bw = bw;
            self.full_bw_count = 0;
            return;
        }
        // Losses or a queue with no more bandwidth to show for them are a stronger sign.
        self.full_bw_count += if round.lost > 0 || queued { 2 } else { 1 };
        if self.full_bw_count >= FULL_BW_ROUNDS {
            self.mode = Mode::Drain { since: now };
            if queued {
                // Or every window that is acknowledged at once would make room for a larger one.
                self.extra_acked_limit.set(self.extra_acked.get());
            }
            self.adapt_extra_acked_limit(round, overflows);
        }
    }

    fn check_path_change(&mut self, now: Instant, rtt: Option<Duration>, min_rtt: &mut MinRtt) {
        if let Some((rtt, shortest)) = rtt.zip(self.min_rtt)
            && self.path_change.on_round(now, shortest, rtt, self.cwnd)
        {
            min_rtt.replace(now, rtt);
            self.min_rtt = Some(rtt);
            self.mode = Mode::Startup;
            self.max_bw.clear();
            (self.full_bw, self.full_bw_count) = (0, 0);
        }
    }

    fn adapt_extra_acked_limit(&mut self, round: &Round, overflows: bool) {
        if let Some(rtt) = round.rtt {
            self.extra_acked_limit.on_round(rtt, overflows, self.extra_acked.get(), self.mtu);
        }
    }

    fn update_max_bw(&mut self, rate: &RateSample) {
        if !rate.is_app_limited || rate.delivery_rate > self.max_bw.get() {
            self.max_bw.update(rate.delivery_rate);
        }
    }

    /// Goes on to the next phase after a round trip.
    fn advance_phase(&mut self, now: Instant) {
        let (next, since) = match self.mode {
            Mode::Drain { since } => (PHASE_AFTER_DRAIN, since),
            Mode::ProbeBw { phase, since } => ((phase + 1) % PROBE_BW_GAINS.len(), since),
            Mode::Startup | Mode::ProbeRtt { .. } => return,
        };
        if now - since >= self.min_rtt.map_or(short_path::LEAST_RTT, |rtt| rtt.max(short_path::LEAST_RTT)) {
            self.mode = Mode::ProbeBw { phase: next, since: now };
        }
    }

    fn update_cwnd(&mut self, acked: &Acked, bw: u64) {
        let gain = match self.mode {
            Mode::Startup => {
                // Only what the window held back proves that it is too small.
                if acked.in_flight.bytes + acked.bytes >= self.cwnd / 2 {
                    self.cwnd += acked.bytes;
                }
                return;
            }
            Mode::ProbeRtt { .. } => {
                let bdp = bdp(bw, self.min_rtt, self.mtu);
                self.cwnd = self.cwnd.min(probe_rtt_cwnd(bdp, self.mtu));
                return;
            }
            Mode::Drain { .. } => 8,
            Mode::ProbeBw { phase, .. } => PROBE_BW_GAINS[phase],
        };
        let extra_acked = self.extra_acked.get().min(self.extra_acked_limit.get());
        let cwnd = bdp(bw, self.min_rtt, self.mtu) / 8 * gain + extra_acked;
        self.cwnd = cwnd.max(MIN_CWND * self.mtu).min(self.path_change.max_cwnd());
    }
}

impl Controller for BbrLike {
    fn on_ack(&mut self, acked: &Acked, min_rtt: &mut MinRtt) {
        self.min_rtt = min_rtt.get();
        self.round.acked += u64::from(acked.segments);
        self.check_probe_rtt(acked, min_rtt);
        self.min_rtt = min_rtt.get();
        if acked.rate.prior_delivered >= self.next_round_delivered {
            self.end_round(acked, min_rtt);
        }
        self.update_max_bw(&acked.rate);
        let bw = self.max_bw.get();
        self.extra_acked.update(acked.now, acked.bytes, bw, self.cwnd);
        self.advance_phase(acked.now);
        self.update_cwnd(acked, bw);
    }

    fn on_lost(&mut self, _: &Lost) {
        self.round.lost += 1;
    }

    fn on_ecn(&mut self, marked: &Marked) {
        self.round.marked = true;
        match self.mode {
            // What grows from here on is the queue.
            Mode::Startup => {
                self.mode = Mode::Drain { since: marked.now };
                self.extra_acked_limit.set(self.extra_acked.get());
            }
            Mode::ProbeBw { .. } => {
                self.mode = Mode::ProbeBw { phase: DRAINING_PHASE, since: marked.now };
            }
            Mode::Drain { .. } | Mode::ProbeRtt { .. } => {}
        }
    }

    fn supports_ecn(&self) -> bool {
        true
    }

    fn on_rtt(&mut self, _: Instant, rtt: &RttSample) {
        self.round.rtt = Some(self.round.rtt.map_or(rtt.latest, |shortest| shortest.min(rtt.latest)));
    }

    fn on_mtu_change(&mut self, mtu: usize) {
        self.mtu = mtu as u64;
        self.cwnd = self.cwnd.max(MIN_CWND * self.mtu).min(self.path_change.max_cwnd());
    }

    fn window(&self) -> u64 {
        self.cwnd
    }

    /// None before the first sample of the bandwidth.
    fn pacing_rate(&self) -> Option<u64> {
        let bw = self.max_bw.get();
        let rate =
            if self.is_startup() { bw.saturating_mul(STARTUP_PACING_GAIN) } else { bw / 8 * PACING_GAIN };
        (rate > 0).then_some(rate)
    }

    /// The queue of the phase that probes. Without this, RTOs would pass in that phase: see `sharing.rs` and `path_change.rs`
    /// in `tests/simulation/congestion`.
    fn probing_delay(&self) -> Duration {
        self.min_rtt.map_or(Duration::ZERO, |rtt| rtt / 4)
    }

    fn mode(&self) -> Option<&'static str> {
        Some(match self.mode {
            Mode::Startup => "startup",
            Mode::Drain { .. } => "drain",
            Mode::ProbeBw { .. } => "probe_bw",
            Mode::ProbeRtt { .. } => "probe_rtt",
        })
    }

    fn metrics(&self) -> Metrics {
        Metrics::of_delivery_rate(self.max_bw.get())
    }

    /// What the filters have beside the bandwidth is soon learnt again.
    fn park(&self) -> Option<Stage> {
        match self.mode {
            Mode::Startup => Some(Stage::Startup),
            Mode::Drain { .. } | Mode::ProbeBw { .. } => Some(Stage::Steady),
            // Its window is not that of the path.
            Mode::ProbeRtt { .. } => None,
        }
    }

    fn resume(&mut self, now: Instant, parked: &Parked) {
        if parked.stage == Stage::Steady {
            self.mode = Mode::ProbeBw { phase: PHASE_AFTER_DRAIN, since: now };
        }
        self.max_bw.update(parked.metrics.delivery_rate);
        self.full_bw = parked.metrics.delivery_rate;
        self.cwnd = parked.window;
        self.min_rtt = parked.min_rtt;
    }
}

/// Bytes that fit the path without a queue.
fn bdp(bw: u64, min_rtt: Option<Duration>, mtu: u64) -> u64 {
    min_rtt.map_or(0, |rtt| bytes_in(bw, rtt)).max(short_path::bdp(bw, mtu))
}

/// The window while the path is emptied: BBRv2's `BBRProbeRTTCwndGain` of a half.
fn probe_rtt_cwnd(bdp: u64, mtu: u64) -> u64 {
    (bdp / 2).max(MIN_CWND * mtu)
}

/// What `rate` bytes a second are in `time`.
fn bytes_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_micros() / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX / 8)
}
