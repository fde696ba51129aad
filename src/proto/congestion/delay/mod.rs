//! A controller that keeps queues short: delay-based among its like, CUBIC beside others.
//!
//! [`BbrLike`](super::CongestionControl::BbrLike) and CUBIC find out what a link carries by sending more. Many sessions that do so
//! fill its queue, and it drops what does not fit. This controller goes by the length of the queue, so that any number of
//! sessions fill a link and little is dropped, and losses by themselves mean nothing to it.
//!
//! # Among its like
//!
//! The window is that of FAST TCP (Wei, Jin, Low and Hegde, 2006): once a round trip it moves half the way to where the session
//! has as many bytes in the queue as it means to. By Little's law it has its rate times the delay there, where the delay is the
//! standing round trip less the shortest one. It means to have a few segments (`QUEUE_SEGMENTS`), and what it sends in 2 ms
//! (`QUEUE_TIME`). From the first part comes fairness: as all see the same delay, all have the same rate, in whatever
//! way they began. The second is what keeps a fast session from taking the jitter of the two ends for a queue.
//!
//! While there is no queue at all, steps double, so that a link that becomes faster is full again in a few round trips.
//!
//! # Drains
//!
//! Two questions can only be answered by a small window. *How short is the path?* Who begins while others have a queue takes the queue
//! for a part of the path. *Who else is there?* If nobody has seen the queue empty for 2.5 seconds, the window is
//! made smaller than what the path holds for a few round trips. Sessions of this kind do that together: who sees
//! round trips fall joins in, and who sees an empty queue counts its interval from then. So all empty the queue at the same
//! time, and all learn the same shortest round trip.
//!
//! A queue that stays is somebody else's. After two such drains the session becomes CUBIC, at half the rate that it had at best.
//! It goes on to drain now and then, until a drain shows the queue empty again.
//!
//! # Losses
//!
//! * With the delay near the longest of the last seconds, the queue is full: the session means to have fewer segments there.
//! * More than 3 % in other round trips raise a question: the window becomes small for a few round trips. If round
//!   trips become shorter than they ever were, the losses were those of a queue that was taken for a part of the path. If
//!   the losses end, they came of too large a window, though there was no queue. If neither, they are the path's own, and
//!   mean nothing for ten seconds.
//! * Marks of ECN are those of a full queue: the session means to have fewer segments there, and if it means to have the fewest
//!   already, the window shrinks by an eighth. They end Startup, and beside others CUBIC answers them.
//! * Beside others, all losses count but the few that come while the queue is short.
//!
//! # Startup
//!
//! The window grows by half in a round trip. It ends with the first round whose first eight samples are all those of a
//! queue (as in HyStart++, RFC 9406), after three rounds that have not raised the rate by a quarter (as in BBR), with a sixth lost, or
//! with a mark of ECN.
//!
//! # What it is worth, and what it lacks
//!
//! `tests/simulation/congestion/delay.rs` and `tests/snapshots/sharing.txt` have the figures. On 100 Mbit/s and 50 ms, eight
//! sessions keep a queue of 8 ms and drop nothing, where the default resends 8 % and CUBIC fills the queue; one session keeps its rate
//! through losses of 10 % at random. It is not the default yet, because
//!
//! * BBR beside it takes nearly everything: it leaves the queue empty now and then, so that drains find it empty;
//! * of 32 sessions some take the others for a queue that stays, and are CUBIC for a while: what they get is uneven then;
//! * queues that hold less than what the sessions mean to have in them overflow: eight sessions resend a third behind a queue of a
//!   tenth of a round trip;
//! * beside CUBIC with a long queue it takes tens of seconds to get its part;
//! * Startup ends early where a tenth is lost.

mod drain;
mod loss_level;
mod queue_range;
mod round;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use core::time::Duration;

use self::{
    drain::{Drain, Drains, Reason},
    loss_level::LossLevel,
    queue_range::QueueRange,
    round::{Recent, Round},
};
use super::{Acked, Controller, Lost, Marked, Metrics, MinRtt, RttSample, Sent, cubic::Cubic};
use crate::proto::time::Instant;

/// What each session means to have in the queue: so many full segments, and what it sends in so much time, at most the other number
/// of segments.
const QUEUE_SEGMENTS: u64 = 5;
const QUEUE_TIME: Duration = Duration::from_millis(2);
const MAX_QUEUE_TIME_SEGMENTS: u64 = 128;
/// [`DelayBased::queue_segments`] counts sixteenths of a segment, so that it can grow slowly.
const PARTS: u64 = 16;
/// The window at first, and at least, in full segments.
const INITIAL_CWND: u64 = 32;
const MIN_CWND: u64 = 4;
/// Rounds without a queue before steps double.
const PATIENCE: u32 = 3;
/// Rounds without growth that end Startup.
const FULL_ROUNDS: u8 = 3;
/// How long the shortest round trip is remembered beside others, whose queue may never end.
const HOLD: Duration = Duration::from_secs(40);

/// What the controller is doing. Drains come on top.
#[derive(Debug)]
enum Mode {
    /// The rate that was reached, and the rounds since that have not raised it by a quarter.
    Startup {
        rate: u64,
        rounds: u8,
    },
    Delay,
    Compete(Box<Cubic>),
}

/// The controller.
#[derive(Debug)]
pub(super) struct DelayBased {
    mtu: u64,
    mode: Mode,
    cwnd: u64,
    /// The shortest round trip, as it was told with the last ACK.
    base: Option<Duration>,
    srtt: Duration,
    latest: Duration,
    recent: Recent,
    range: QueueRange,
    /// The round ends when a segment is acknowledged that was sent after so many bytes were delivered.
    next_round_delivered: u64,
    round: Round,
    /// Bytes a second, of the last rounds.
    rate: u64,
    /// The highest that it has been, slowly forgotten.
    highest_rate: u64,
    /// What the session means to have in the queue, in parts of a segment: see [`PARTS`].
    queue_segments: u64,
    /// Rounds without a queue.
    quick: u32,
    losses: LossLevel,
    drains: Drains,
    /// The largest window since the queue was empty.
    largest: u64,
    /// When CUBIC was told of a loss.
    congested_at: Instant,
}

impl DelayBased {
    pub(super) fn new(now: Instant, mtu: usize) -> Self {
        let mtu = mtu as u64;
        Self {
            mtu,
            mode: Mode::Startup { rate: 0, rounds: 0 },
            cwnd: INITIAL_CWND * mtu,
            base: None,
            srtt: Duration::ZERO,
            latest: Duration::ZERO,
            recent: Recent::default(),
            range: QueueRange::default(),
            next_round_delivered: 0,
            round: Round::new(now),
            rate: 0,
            highest_rate: 0,
            queue_segments: QUEUE_SEGMENTS * PARTS,
            quick: 0,
            losses: LossLevel::default(),
            drains: Drains::new(now),
            largest: 0,
            congested_at: now,
        }
    }

    /// Bytes that the session means to have in the queue.
    fn target(&self) -> u64 {
        let in_time = bytes_in(self.rate, QUEUE_TIME).min(MAX_QUEUE_TIME_SEGMENTS * self.mtu);
        self.queue_segments * self.mtu / PARTS + in_time
    }

    /// The window that fits the path and the queue that the session means to have.
    fn window_for_target(&self, base: Duration) -> u64 {
        bytes_in(self.rate, base) + self.target()
    }

    fn set_cwnd(&mut self, cwnd: u64) {
        self.cwnd = cwnd.max(MIN_CWND * self.mtu);
    }

    fn end_round(&mut self, acked: &Acked) {
        self.next_round_delivered = acked.total_delivered;
        let round = core::mem::replace(&mut self.round, Round::new(acked.now));
        let Some((base, rtt)) = self.base.zip(round.standing_rtt()) else { return };
        // A round in which the application had little to send says nothing of the path.
        if acked.rate.is_app_limited {
            return;
        }
        let rate = round.rate(acked.now).unwrap_or(self.rate);
        self.rate = if self.is_startup() { rate } else { (self.rate + rate) / 2 };
        self.highest_rate = self.rate.max(self.highest_rate - self.highest_rate / 512);
        if let Some(drain) = self.drains.end_round(acked.now) {
            self.end_drain(acked.now, base, &drain);
        }
        if self.drains.is_draining() {
            return;
        }
        self.largest = self.largest.max(self.cwnd);
        self.losses.add(round.acked, round.lost);
        let excess = self.losses.end_round(acked.now);
        let queued = bytes_in(self.rate, rtt.saturating_sub(base));
        if let Some(reason) = self.reason_to_drain(acked.now, rtt, &round, excess, queued) {
            self.begin_drain(acked.now, base, reason);
            return;
        }
        match &mut self.mode {
            Mode::Startup { rate: highest, rounds } => {
                if self.rate >= *highest + *highest / 4 {
                    (*highest, *rounds) = (self.rate, 0);
                } else {
                    *rounds += 1;
                }
                let is_lossy = round.lost * 6 > round.acked + round.lost;
                if *rounds >= FULL_ROUNDS || is_lossy || round.marked {
                    self.end_startup(acked.now, base);
                }
            }
            Mode::Delay => self.step(acked, &round, queued, excess.is_some()),
            Mode::Compete(_) => {
                if acked.now - self.congested_at <= rtt {
                    self.drains.on_congestion(acked.now);
                }
            }
        }
    }

    fn reason_to_drain(
        &mut self,
        now: Instant,
        rtt: Duration,
        round: &Round,
        excess: Option<u64>,
        queued: u64,
    ) -> Option<Reason> {
        if let Some(loss_rate) = excess
            && matches!(self.mode, Mode::Delay)
        {
            // The queue is as long as it is meant to be, and not full: it is not the queue that loses.
            if queued >= self.target() / 2 && round.lost_in_full_queue * 2 <= round.lost {
                self.losses.accept(now, loss_rate);
            } else if self.drains.may_ask_for_losses(now) {
                return Some(Reason::Losses(loss_rate));
            }
        }
        let reason = self.drains.reason(now, rtt);
        reason.filter(|_| !self.is_startup())
    }

    const fn is_startup(&self) -> bool {
        matches!(self.mode, Mode::Startup { .. })
    }

    /// One step of FAST, with `queued` bytes of the session in the queue.
    fn step(&mut self, acked: &Acked, round: &Round, queued: u64, excess: bool) {
        let least = self.queue_segments == PARTS;
        let overflows = round.marked || round.lost_in_full_queue * 64 > round.acked;
        self.queue_segments = if overflows {
            (self.queue_segments / 2).max(PARTS)
        } else {
            (self.queue_segments + self.queue_segments / 64 + 1).min(QUEUE_SEGMENTS * PARTS)
        };
        let target = self.target();
        let no_queue = queued < target / 2 && !overflows && !excess;
        self.quick = if no_queue { self.quick + 1 } else { 0 };
        if queued > target {
            let less = ((queued - target) / 2).min(self.cwnd / 3);
            let less = if round.marked && least { less.max(self.cwnd / 8) } else { less };
            self.set_cwnd(self.cwnd - less);
            return;
        }
        if round.marked {
            if least {
                self.set_cwnd(self.cwnd - self.cwnd / 8);
            }
            return;
        }
        // Only what the window holds back is a reason for a larger one, and what is lost for it is none.
        let is_limit = acked.in_flight.bytes + acked.bytes + 2 * self.mtu >= self.cwnd;
        if !is_limit || self.losses.is_excessive() {
            return;
        }
        let step = (target - queued) / 2;
        let most = if self.losses.is_high() { self.cwnd / 16 } else { self.cwnd / 4 };
        let doublings = self.quick.saturating_sub(PATIENCE).min(16);
        let more = if doublings > 0 { (step << doublings).min(most).max(step) } else { step };
        self.set_cwnd(self.cwnd + more.min(self.cwnd / 2));
    }

    fn end_startup(&mut self, now: Instant, base: Duration) {
        let Mode::Startup { rate, .. } = self.mode else { return };
        self.mode = Mode::Delay;
        self.set_cwnd(bytes_in(self.rate.max(rate), base).min(self.cwnd));
        self.drains.postpone(now);
    }

    fn begin_drain(&mut self, now: Instant, base: Duration, reason: Reason) {
        let cwnd = bytes_in(self.rate, base) / 10 * reason.tenths();
        self.drains.begin(now, Drain::new(reason, self.cwnd, base));
        self.set_cwnd(cwnd.min(self.cwnd));
    }

    fn end_drain(&mut self, now: Instant, base: Duration, drain: &Drain) {
        self.losses.clear();
        let fitting = self.window_for_target(base);
        match drain.reason {
            Reason::Losses(loss_rate) => {
                let cwnd = if is_empty(base, drain.base) {
                    if drain.lost_less_than_half(loss_rate) {
                        drain.cwnd / 10 * 7
                    } else if self.losses.accept(now, loss_rate) {
                        drain.cwnd
                    } else {
                        drain.cwnd / 10 * 7
                    }
                } else {
                    // The path is shorter than it was thought to be: it was a queue.
                    fitting
                };
                self.set_cwnd(cwnd);
                return;
            }
            Reason::Due | Reason::Joined => {}
        }
        self.set_cwnd(if base < drain.base { drain.cwnd.min(fitting) } else { drain.cwnd });
        let alone = self.drains.found_empty_queue();
        let is_due = drain.reason == Reason::Due;
        match self.mode {
            Mode::Compete(_) if alone && is_due => self.delay_again(fitting.min(drain.cwnd)),
            Mode::Delay if alone => self.largest = 0,
            Mode::Delay if self.drains.failed_twice() => {
                let half = bytes_in(self.highest_rate / 2, self.srtt);
                let cwnd = half.clamp(self.cwnd, self.cwnd.max(self.largest * 2));
                self.set_cwnd(cwnd);
                let cubic = Cubic::in_avoidance(self.mtu, self.cwnd, self.srtt);
                self.mode = Mode::Compete(Box::new(cubic));
            }
            _ => {}
        }
    }

    fn delay_again(&mut self, cwnd: u64) {
        self.mode = Mode::Delay;
        self.largest = 0;
        self.set_cwnd(cwnd);
    }

    fn on_empty_queue(&mut self, now: Instant) {
        self.drains.on_empty_queue(now);
        // CUBIC's own reduction may have emptied it.
        if matches!(self.mode, Mode::Compete(_))
            && !self.drains.is_draining()
            && now - self.congested_at > drain::INTERVAL / 4
        {
            self.delay_again(self.cwnd);
        }
    }

    /// Lets CUBIC's window be the session's.
    fn follow_cubic(&mut self) {
        if let Mode::Compete(cubic) = &self.mode
            && !self.drains.is_draining()
        {
            self.set_cwnd(cubic.window());
        }
    }
}

impl Controller for DelayBased {
    fn on_sent(&mut self, sent: &Sent) {
        if let Mode::Compete(cubic) = &mut self.mode {
            cubic.on_sent(sent);
        }
    }

    fn on_ack(&mut self, acked: &Acked, min_rtt: &mut MinRtt) {
        let now = acked.now;
        if matches!(self.mode, Mode::Compete(_)) && min_rtt.is_expired(now) {
            if now - self.drains.empty_at() < HOLD { min_rtt.hold() } else { min_rtt.renew(now) }
        }
        self.base = min_rtt.get();
        self.round.on_ack(acked);
        self.drains.on_ack(acked);
        if let Some(base) = self.base {
            if self.recent.shortest().is_some_and(|rtt| is_empty(base, rtt)) {
                self.on_empty_queue(now);
            }
            if let Mode::Startup { rate, .. } = &mut self.mode
                && let Some(first) = self.round.take_first()
                && first >= base + (base / 8).max(QUEUE_TIME)
            {
                *rate = acked.rate.delivery_rate.max(*rate);
                self.end_startup(now, base);
            }
        }
        if acked.rate.prior_delivered >= self.next_round_delivered {
            self.end_round(acked);
        }
        match &mut self.mode {
            // Only what the window held back proves that it is too small.
            Mode::Startup { .. } if acked.in_flight.bytes + acked.bytes >= self.cwnd / 2 => {
                self.cwnd += acked.bytes / 2;
            }
            Mode::Compete(cubic) if !self.drains.is_draining() => {
                cubic.on_ack(acked, min_rtt);
                self.follow_cubic();
            }
            _ => {}
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.round.lost += 1;
        self.drains.on_lost(lost);
        let Some(base) = self.base else { return };
        // The latest sample is of what was sent just after the lost segment.
        let delay = self.latest.saturating_sub(base);
        if self.range.is_long(delay) {
            self.round.lost_in_full_queue += 1;
        }
        if let Mode::Compete(cubic) = &mut self.mode
            && (self.losses.is_high() || !self.range.is_short(delay))
        {
            self.congested_at = lost.now;
            cubic.on_lost(lost);
            self.follow_cubic();
        }
    }

    fn on_ecn(&mut self, marked: &Marked) {
        self.round.marked = true;
        if let Mode::Compete(cubic) = &mut self.mode {
            self.congested_at = marked.now;
            cubic.on_ecn(marked);
            self.follow_cubic();
        }
    }

    fn supports_ecn(&self) -> bool {
        true
    }

    fn on_spurious_loss(&mut self, now: Instant, bytes: u64) {
        if let Mode::Compete(cubic) = &mut self.mode {
            cubic.on_spurious_loss(now, bytes);
            self.follow_cubic();
        }
    }

    fn on_rtt(&mut self, now: Instant, rtt: &RttSample) {
        self.round.on_rtt(rtt.latest);
        self.recent.add(rtt.latest);
        if let Some(base) = self.base {
            self.range.add(now, rtt.latest.saturating_sub(base));
        }
        (self.latest, self.srtt) = (rtt.latest, rtt.smoothed);
        if let Mode::Compete(cubic) = &mut self.mode {
            cubic.on_rtt(now, rtt);
        }
    }

    fn on_mtu_change(&mut self, mtu: usize) {
        self.mtu = mtu as u64;
        self.set_cwnd(self.cwnd);
        if let Mode::Compete(cubic) = &mut self.mode {
            cubic.on_mtu_change(mtu);
        }
    }

    fn window(&self) -> u64 {
        self.cwnd
    }

    /// A quarter more than the window in a round trip, and twice that in Startup.
    fn pacing_rate(&self) -> Option<u64> {
        let quarters = if self.is_startup() { 8 } else { 5 };
        let bytes = u128::from(self.cwnd) * quarters / 4 * 1_000_000;
        let rate = bytes.checked_div(self.srtt.as_micros())?;
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Others may fill the queue as far in a round trip.
    fn probing_delay(&self) -> Duration {
        self.base.map_or(Duration::ZERO, |base| base / 4 + QUEUE_TIME)
    }

    fn mode(&self) -> Option<&'static str> {
        Some(match self.mode {
            _ if self.drains.is_draining() => "drain",
            Mode::Startup { .. } => "startup",
            Mode::Delay => "delay",
            Mode::Compete(_) => "compete",
        })
    }

    fn metrics(&self) -> Metrics {
        Metrics::of_delivery_rate(self.rate)
    }
}

/// Whether a round trip is that of an empty queue.
fn is_empty(base: Duration, rtt: Duration) -> bool {
    rtt <= base + QUEUE_TIME / 2 + base / 64
}

/// What `rate` bytes a second are in `time`.
fn bytes_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_micros() / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX / 8)
}
