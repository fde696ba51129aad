//! A controller that keeps queues short: delay-based among its like, CUBIC beside others.
//!
//! [`BbrLike`](super::CongestionControl::BbrLike) and CUBIC find out what a link carries by sending more. Many sessions that do so
//! fill its queue, and it drops what does not fit. This controller goes by the length of the queue, so that any number of
//! sessions fill a link and little is dropped, and losses that are the path's own mean nothing to it.
//!
//! # Among its like
//!
//! The window is that of FAST TCP (Wei, Jin, Low and Hegde, 2006): once a round trip it moves half the way to where the session
//! has as many bytes in the queue as it means to. By Little's law it has its rate times the delay there, where the delay is the
//! standing round trip less the shortest one. It means to have a few segments there, and what it sends in 2 ms.
//! The segments make it fair: as all see the same delay, all have the same rate, in whatever
//! way they began. They are halved when the queue was full, and grow back in a few seconds, so that many sessions fit into a short queue.
//! The 2 ms keep a fast session from taking the jitter of the two ends for a queue.
//!
//! While there is no queue at all, steps double, so that a link that becomes faster is full again in a few round trips.
//!
//! What the peer holds ACKs back for is no queue, and the bursts of Wi-Fi are none: see `ack_delay` and `bursts`.
//!
//! # Drains
//!
//! Three questions can only be answered by a small window. *How short is the path?* Who begins while others have a queue takes the queue
//! for a part of the path. *Who else is there?* *What does the path lose by itself?* If nobody has seen the queue empty for 2.5 seconds and 24
//! round trips, the window is made smaller than what the path holds for a few round trips; still smaller by who has just begun, or has just found the
//! path shorter than it thought. Sessions of this kind do that together: who sees round trips fall joins in, and who sees an empty queue counts its
//! interval from then. So all empty the queue at the same time, and all learn the same shortest round trip.
//!
//! # Beside others
//!
//! A queue that was not empty in two drains, nor since the one before them, is somebody else's. BBR empties the queue by itself now and then; it is
//! known by what it does in between: see `spikes`. CUBIC that lost early leaves room to drains for a while, and takes more of the link second by second:
//! see `giving_way`. The session becomes CUBIC (RFC 9438), at half the rate that it had at best, as if it had grown since the queue was empty, or stands:
//! see `compete`. Sessions of its own kind that begin one after the other look like others now and then. Where it may be so, it takes four times its
//! window at first, and more step by step.
//!
//! Now and then it drains. If the queue is empty then, others may only have lost just before, so that the session holds its window for a while: see
//! `probation`. Where they are there still, it goes on with the window that it had, and the next drain waits twice as long, up to 20 seconds.
//!
//! # Losses
//!
//! * After a drain, the window is what it was, unless the queue was far longer than it is meant to be: then it is what fits the rate
//!   before. A path that becomes slower is followed so. One that becomes longer is found in another way: see `longer_path`.
//! * The loss rate of drains that find the queue empty is the path's own. What is lost while the queue is about as long as it gets is not in it.
//!   Where more than twice that rate and 1 % is lost, the queue is full: the window shrinks by a quarter, the session means to have fewer
//!   segments in the queue, and for four rounds nothing grows.
//! * Where nothing waits, it may be a policer that drops: the window becomes what comes through (see `policer`).
//! * When such losses begin, a drain asks, once in 20 round trips or a second at most. If round
//!   trips become shorter than they ever were, the losses were those of a queue that was taken for a part of the path. If as much is lost
//!   as before, it is the path's own, and the window is what it was.
//! * Marks of ECN are those of a full queue: the session means to have fewer segments there, and if it means to have the fewest
//!   already, the window shrinks by an eighth. They end Startup, and beside others CUBIC answers them.
//! * A loss that an RTO finds does not count if the window has become smaller since the segment was sent: a burst that was lost at once is
//!   found window by window.
//! * Beside others, all losses count but those that come while the queue is short, unless they are many.
//!
//! # Startup
//!
//! The window grows by a little more than half in a round trip. Startup ends when eight samples in a row are those of a queue and the window is about
//! what the path holds, after three rounds that have not raised the rate by a quarter (as in BBR), with a third lost, or with a mark of ECN. What was
//! sent too much until then leaves the queue at the rate of the link, which is the window's measure then: see `settling`. A drain follows soon, and at
//! once if there were losses.
//!
//! # Short paths
//!
//! Round trips below 2 ms tell more of the schedulers at both ends than of the path. There the window is at least twelve segments, as a peer
//! waits for eight before it acknowledges fewer, and Startup leaves what is meant to be in the queue besides what the path holds.
//!
//! # What it is worth, and what it lacks
//!
//! `tests/simulation/congestion/bars.rs` has what it is held against, and it keeps all of that there. It is not the default yet, because
//!
//! * one beside one of Linux's BBR had 33 to 43 % of the link in six runs of the lab, of the 35 that it should have at least;
//! * many sessions that begin one after the other take each other for BBR or CUBIC, and go on as CUBIC. Of 16 that begin within 5 to 24 s on the
//!   bars' link, up to 13 % is dropped until all have begun, and up to 30 % for ten seconds; of 32 a third. Jain's index is 0.3 to 0.97. (Of
//!   [`BbrLike`](super::CongestionControl::BbrLike), 31 to 48 % are dropped until all have begun, with an index of 0.9.);
//! * at 200 ms it has 0.65 to 0.88 of the rate in the first ten seconds, and at 400 ms 0.41 to 0.78, mostly about a tenth of the rate less than
//!   [`BbrLike`](super::CongestionControl::BbrLike). Of 0.125 MB/s behind a queue of seven packets it drops up to 72 %;
//! * where the rate changes tenfold within a second it had 77 % there, and 77 % behind a policer, where BBR has 83 and 95. Eight
//!   behind a policer drop 45 %: each takes what the others lose for the path's own;
//! * 32 sessions that begin at once drop 4 to 5 % behind a quarter of the path's queue, as each makes its window smaller only when it has lost
//!   several segments. Behind a tenth they drop more than a third, and behind ten paths' queue some take the others for strangers: Jain's index is
//!   0.5 and 0.7 there (`tests/snapshots/sharing.txt`);
//! * eight sessions whose ACKs come in bursts of 10 ms, on a path of 2 ms, have 85 to 95 % of a fast link, until they know the bursts;
//! * where more than 15 % is lost at random, not all of that is taken for the path's own, and it is slower than
//!   [`BbrLike`](super::CongestionControl::BbrLike), as it is in the first round trips (`tests/snapshots/goodput.txt`).

mod ack_delay;
mod bursts;
mod compete;
mod controller;
mod drain;
mod fast;
mod giving_way;
mod long_queue;
mod longer_path;
mod loss_level;
mod policer;
mod probation;
mod queue_range;
mod round;
mod settling;
mod spikes;
mod startup;
#[cfg(test)]
mod tests;

use core::time::Duration;

use self::{
    ack_delay::{AckDelay, PROMPT_SEGMENTS},
    bursts::Bursts,
    compete::{Begin, Compete},
    drain::{Drain, Drains, Reason},
    fast::{Fast, QUEUE_TIME, Shown, bytes_in},
    giving_way::GivingWay,
    long_queue::LongQueue,
    longer_path::LongerPath,
    loss_level::LossLevel,
    probation::{Probation, Verdict},
    queue_range::QueueRange,
    round::{Recent, Round},
    settling::Settling,
    spikes::Spikes,
    startup::Startup,
};
use super::Acked;
use crate::proto::time::Instant;

/// The window at first, and at least, in full segments.
const INITIAL_CWND: u64 = 32;
const MIN_CWND: u64 = 4;
/// The same where the time that a peer waits for eight segments before it acknowledges fewer is many round trips.
const MIN_CWND_OF_SHORT_PATH: u64 = 12;
/// How long the shortest round trip is remembered beside others, whose queue may never end.
const MIN_RTT_MEMORY: Duration = Duration::from_secs(40);

/// Rounds behind one in which the session did not fill its window before round trips are compared.
const PAUSE: u8 = 3;
/// Rounds in which the queue is still that of the window before, or of the present one when it left at once.
const SETTLING: u8 = 2;
/// Who has taken more than so many times the window that is left is not of this kind.
const MOST_OF_KIND: u64 = 10;
/// Where others may be of this kind after all, no more than so many times the window is taken back at once.
const MOST_MORE: u64 = 4;
/// Rounds without a loss behind which none is to be expected.
const LOSSLESS: u8 = 8;

/// What the controller is doing. Drains come on top.
#[expect(
    clippy::large_enum_variant,
    reason = "sessions that go on allocate nothing, and idle ones park their controller"
)]
#[derive(Debug)]
enum Mode {
    Startup(Startup),
    Delay,
    Compete(Compete),
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
    /// It is to be looked at together with what its ACKs confirm.
    is_new: bool,
    ack_delay: AckDelay,
    recent: Recent,
    bursts: Bursts,
    range: QueueRange,
    /// The same of standing round trips.
    standing: QueueRange,
    /// The round ends when a segment is acknowledged that was sent after so many bytes were delivered.
    next_round_delivered: u64,
    round: Round,
    /// Bytes a second, of the last rounds.
    rate: u64,
    /// The highest that it has been, slowly forgotten.
    highest_rate: u64,
    fast: Fast,
    losses: LossLevel,
    drains: Drains,
    long: LongQueue,
    probation: Option<Probation>,
    spikes: Spikes,
    giving_way: GivingWay,
    /// It competes for no other reason.
    only_gave_way: bool,
    longer_path: LongerPath,
    /// The round trip of a path that has become longer, until it is the shortest.
    new_base: Option<Duration>,
    /// Others did not give way.
    stands: bool,
    /// When the window was made smaller.
    reduced_at: Instant,
    /// Rounds until round trips are compared.
    pause: u8,
    settling: Settling,
    /// Rounds without a loss.
    lossless: u8,
    /// A drain found the queue empty before others came.
    was_alone: bool,
}

impl DelayBased {
    pub(super) fn new(now: Instant, mtu: usize) -> Self {
        let mtu = mtu as u64;
        Self {
            mtu,
            mode: Mode::Startup(Startup::default()),
            cwnd: INITIAL_CWND * mtu,
            base: None,
            srtt: Duration::ZERO,
            latest: Duration::ZERO,
            is_new: false,
            ack_delay: AckDelay::default(),
            recent: Recent::default(),
            bursts: Bursts::default(),
            range: QueueRange::default(),
            standing: QueueRange::default(),
            next_round_delivered: 0,
            round: Round::new(now),
            rate: 0,
            highest_rate: 0,
            fast: Fast::default(),
            losses: LossLevel::default(),
            drains: Drains::new(now),
            long: LongQueue::default(),
            probation: None,
            spikes: Spikes::default(),
            giving_way: GivingWay::default(),
            only_gave_way: false,
            longer_path: LongerPath::default(),
            new_base: None,
            stands: false,
            reduced_at: now,
            pause: 0,
            settling: Settling::default(),
            lossless: 0,
            was_alone: false,
        }
    }

    fn is_short_path(&self) -> bool {
        self.base.is_some_and(|base| base < QUEUE_TIME)
    }

    fn set_cwnd(&mut self, cwnd: u64) {
        let least = if self.is_short_path() { MIN_CWND_OF_SHORT_PATH } else { MIN_CWND };
        self.cwnd = cwnd.max(least * self.mtu);
    }

    fn end_round(&mut self, acked: &Acked) {
        self.next_round_delivered = acked.total_delivered;
        let round = core::mem::replace(&mut self.round, Round::new(acked.now));
        self.bursts.end_round(acked.now);
        let Some((base, rtt)) = self.base.zip(round.standing_rtt()) else { return };
        self.drains.on_base(base);
        let rtt = match round.shortest {
            Some(shortest) if self.bursts.are_found() => self.bursts.correct(shortest).max(base),
            _ => rtt,
        };
        // More is under way from a time before this controller.
        if self.is_growing() && acked.in_flight.bytes > 2 * self.cwnd {
            return;
        }
        // A round in which the application had little to send says nothing of the path.
        if acked.rate.is_app_limited {
            return;
        }
        let rate = round.rate(acked.now).unwrap_or(self.rate);
        self.rate = if self.is_growing() { rate } else { (self.rate + rate) / 2 };
        self.highest_rate = self.rate.max(self.highest_rate - self.highest_rate / 512);
        if matches!(self.mode, Mode::Delay)
            && let Some(shortest) = round.shortest
            && self.longer_path.end_round(base, shortest, self.cwnd)
        {
            self.begin_anew(acked.now, base, shortest);
            return;
        }
        if let Some(drain) = self.drains.end_round(acked.now, base, rtt, self.competes()) {
            self.end_drain(acked.now, base, &drain);
        }
        if self.drains.is_draining() {
            return;
        }
        let delay = rtt.saturating_sub(base);
        self.standing.add(acked.now, delay);
        if matches!(self.mode, Mode::Delay) && round.is_full(self.cwnd) && self.drains.is_sure() {
            self.long.end_round(base, delay);
        }
        if let Some(is_own) = self.fast.end_round(&round) {
            self.drains.on_policer(is_own);
        }
        let sent = round.acked + round.lost;
        self.lossless = if round.lost == 0 { self.lossless.saturating_add(1) } else { 0 };
        let excess = self.losses.add(sent, round.lost);
        if excess {
            self.ack_delay.forget(acked.now, base);
        }
        // Behind a pause the window leaves at once, and makes a queue of its own.
        self.pause = if round.is_full(self.cwnd) { self.pause.saturating_sub(1) } else { PAUSE };
        let is_full_queue = excess || round.marked;
        if let Some(probation) = &self.probation {
            if is_full_queue {
                self.relapse(acked.now, probation.cwnd_before);
                return;
            }
        } else if let Some(reason) = self.reason_to_drain(acked.now, rtt, excess) {
            self.begin_drain(acked.now, base, reason, delay);
            return;
        }
        self.look_for_others(acked.now, base, delay);
        match &mut self.mode {
            Mode::Startup(startup) => {
                if startup.end_round(&round, self.rate) {
                    self.end_startup(acked.now, base, 0);
                }
            }
            Mode::Delay if self.settling.end_round() => {}
            Mode::Delay => {
                if excess {
                    self.reduced_at = acked.now;
                }
                let in_flight = acked.in_flight.bytes.saturating_add(acked.bytes);
                let cwnd = self.fast.step(&Shown {
                    cwnd: self.cwnd,
                    mtu: self.mtu,
                    rate: self.rate,
                    fits: bytes_in(rate, base),
                    delay,
                    has_queue: !self.standing.is_flat(),
                    marked: round.marked,
                    overflows: excess,
                    is_limit: in_flight.saturating_add(2 * self.mtu) >= self.cwnd,
                });
                // What nobody takes while the window stays is this session's.
                if self.probation.as_ref().is_none_or(|probation| probation.is_idle() && cwnd > self.cwnd) {
                    self.set_cwnd(cwnd);
                }
            }
            Mode::Compete(compete) => {
                if acked.now - compete.congested_at() <= rtt {
                    self.drains.on_congestion(acked.now);
                }
                if let Some(cwnd) = compete.end_round(acked.now, &round, self.losses.own()) {
                    self.stands = false;
                    self.compete(acked.now, cwnd);
                } else if compete.stands() && !self.stands {
                    self.stands = true;
                    self.drains.begin_latest(acked.now);
                }
                self.follow_cubic();
            }
        }
    }

    /// A round ends in which the queue was so long.
    fn look_for_others(&mut self, now: Instant, base: Duration, delay: Duration) {
        if !matches!(self.mode, Mode::Delay) || self.pause > 0 {
            self.spikes.pause();
            self.giving_way.begin_anew();
            return;
        }
        let gives_way = self.giving_way.end_round(now, base, self.rate, delay);
        let looks_for_more = self.spikes.end_round(base, delay);
        let Some(probation) = &mut self.probation else {
            if looks_for_more || gives_way {
                self.compete_with_part(now);
                self.only_gave_way = !looks_for_more;
            }
            return;
        };
        match probation.end_round(base, delay) {
            Verdict::Unknown => {}
            Verdict::Still => {
                let before = probation.cwnd_before;
                self.relapse(now, before);
            }
            Verdict::Gone => {
                self.probation = None;
                self.stands = false;
                self.drains.on_alone();
            }
        }
    }

    /// Others are there still, beside whom the session had the window `before`.
    fn relapse(&mut self, now: Instant, before: u64) {
        self.drains.on_others();
        self.compete(now, before);
    }

    fn reason_to_drain(&mut self, now: Instant, rtt: Duration, excess: bool) -> Option<Reason> {
        if excess
            && matches!(self.mode, Mode::Delay)
            && self.drains.may_ask_for_losses(now, self.base.unwrap_or_default())
        {
            return Some(Reason::Losses);
        }
        if matches!(self.mode, Mode::Delay) && self.long.is_others() {
            self.drains.hasten(now);
        }
        let reason = self.drains.reason(now, rtt, self.pause == 0, self.competes());
        reason.filter(|_| !self.is_growing())
    }

    const fn competes(&self) -> bool {
        matches!(self.mode, Mode::Compete(_))
    }

    const fn is_growing(&self) -> bool {
        matches!(self.mode, Mode::Startup(_))
    }

    /// The path is full. It holds `fits` bytes at least.
    fn end_startup(&mut self, now: Instant, base: Duration, fits: u64) {
        let Mode::Startup(startup) = &self.mode else { return };
        let (rate, has_losses) = (startup.rate(), startup.has_losses());
        self.mode = Mode::Delay;
        self.settling = Settling::begin(now);
        self.reduced_at = now;
        let rate = rate.max(self.rate);
        // Round trips of a short path tell more of the schedulers at both ends than of the path.
        let queue = if self.is_short_path() { self.fast.target(self.mtu, rate) } else { 0 };
        self.set_cwnd((bytes_in(rate, base).max(fits) + queue).min(self.cwnd));
        self.drains.begin_soon(now, has_losses);
    }

    /// The window behind Startup becomes what fits the rate at which the queue that it has made leaves.
    fn settle(&mut self, acked: &Acked) {
        if let Some(base) = self.base
            && let Some(rate) = self.settling.on_ack(acked, base, self.cwnd)
            && matches!(self.mode, Mode::Delay)
            && !self.drains.is_draining()
        {
            let cwnd = bytes_in(rate, base) + self.fast.target(self.mtu, rate);
            self.set_cwnd(cwnd.clamp(self.cwnd, 2 * self.cwnd));
            self.settling.on_new_window();
        }
    }

    fn begin_drain(&mut self, now: Instant, base: Duration, reason: Reason, delay: Duration) {
        let tenths = self.drains.tenths(reason, self.competes());
        let cwnd = bytes_in(self.rate, base) / 10 * tenths;
        self.spikes.pause();
        if reason == Reason::Joined && self.drains.is_early(now) {
            self.giving_way.begin_anew();
        }
        self.giving_way.pause();
        let mut drain = Drain::new(reason, self.cwnd, self.rate, base);
        // Not after every drain: while a session grows, its rate is that of a smaller window.
        drain.is_too_large = bytes_in(self.rate, delay) > 2 * self.fast.target(self.mtu, self.rate);
        drain.was_lossless = self.lossless >= LOSSLESS;
        self.drains.begin(now, drain);
        self.reduced_at = now;
        self.set_cwnd(cwnd.min(self.cwnd));
    }

    fn end_drain(&mut self, now: Instant, base: Duration, drain: &Drain) {
        if self.drains.found_empty_queue() {
            self.losses.learn(drain.sent, drain.lost);
        }
        let fitting =
            self.losses.with_own(bytes_in(drain.rate, base)) + self.fast.target(self.mtu, drain.rate);
        if drain.reason == Reason::Losses {
            // Either the path is shorter than it was thought to be, and it was a queue; or the path's own is known now.
            let cwnd = if !is_empty(base, drain.base) {
                fitting
            } else if drain.lost * 64 > drain.sent {
                self.fast.undo(drain.cwnd)
            } else {
                drain.cwnd - drain.cwnd / 8
            };
            self.set_cwnd(cwnd);
            return;
        }
        self.set_cwnd(if base < drain.base || drain.is_too_large {
            drain.cwnd.min(fitting)
        } else {
            drain.cwnd
        });
        let alone = self.drains.found_empty_queue();
        if alone && drain.is_too_large && self.was_alone {
            // It was the session's own queue: the path has become slower.
            self.highest_rate = self.rate;
        }
        match self.mode {
            Mode::Compete(_) if alone => {
                self.delay_again(fitting.min(drain.cwnd));
                if self.only_gave_way {
                    self.giving_way.on_mistake();
                } else {
                    self.probation = Some(Probation::new(drain.cwnd));
                }
            }
            Mode::Delay if alone => {
                if self.was_alone {
                    // Who took the rest is of this kind.
                    self.highest_rate = self.rate.max(self.highest_rate / 4 * 3);
                }
                self.was_alone = true;
            }
            Mode::Delay if self.drains.failed_twice() => self.compete_with_part(now),
            Mode::Compete(_) => self.only_gave_way = false,
            _ => {}
        }
    }

    /// Others are there, and have taken a part of what this session had.
    fn compete_with_part(&mut self, now: Instant) {
        // Who was never alone had a part when its rate was highest.
        let part = if self.was_alone { self.highest_rate / 2 } else { self.highest_rate };
        // Or it had a part until they began to take it.
        let before = self.giving_way.first_rate();
        let cwnd = bytes_in(part.max(before - before / 8), self.srtt);
        self.compete(now, cwnd.max(self.cwnd));
    }

    /// Others are there: as CUBIC that has grown since the queue was empty.
    fn compete(&mut self, now: Instant, cwnd: u64) {
        // Many of this kind that begin one after the other may look like others. But they leave a part to each.
        let may_be_kind = self.drains.met_kind(now) && cwnd <= MOST_OF_KIND * self.cwnd;
        let most = if may_be_kind { MOST_MORE * self.cwnd } else { u64::MAX };
        self.set_cwnd(cwnd);
        self.probation = None;
        self.spikes = Spikes::default();
        self.giving_way.begin_anew();
        let compete = Compete::new(&Begin {
            now,
            mtu: self.mtu,
            cwnd: self.cwnd.min(most),
            target_cwnd: self.cwnd,
            base: self.base.unwrap_or_default(),
            srtt: self.srtt,
            grows_since: self.drains.empty_at(),
            stands: self.stands,
        });
        self.mode = Mode::Compete(compete);
        self.only_gave_way = false;
        self.follow_cubic();
        self.drains.begin_late(now);
    }

    /// The path has become longer: its shortest round trip was `base`, and is `shortest` now.
    fn begin_anew(&mut self, now: Instant, base: Duration, shortest: Duration) {
        self.new_base = Some(shortest);
        // What fitted the shorter one.
        self.set_cwnd(self.cwnd.max(bytes_in(self.highest_rate, base)));
        self.mode = Mode::Startup(Startup::default());
        self.drains = Drains::new(now);
        self.long = LongQueue::default();
        self.probation = None;
        self.spikes = Spikes::default();
        self.was_alone = false;
    }

    fn delay_again(&mut self, cwnd: u64) {
        self.mode = Mode::Delay;
        self.long = LongQueue::default();
        // Its last rounds are those from before the others.
        self.longer_path = LongerPath::default();
        self.set_cwnd(cwnd);
    }

    /// Looks at the round trip that came with `acked`.
    fn add_sample(&mut self, acked: &Acked) {
        if !core::mem::take(&mut self.is_new) {
            return;
        }
        if let Some(base) = self.base {
            self.latest = self.ack_delay.correct(acked.now, base, self.latest, acked.segments);
            self.range.add(acked.now, self.latest.saturating_sub(base));
        }
        self.round.on_rtt(self.latest);
        self.recent.add(self.latest);
        if acked.segments >= PROMPT_SEGMENTS {
            self.bursts.add(self.latest);
        }
    }

    /// Lets CUBIC's window be the session's.
    fn follow_cubic(&mut self) {
        if let Mode::Compete(compete) = &self.mode
            && !self.drains.is_draining()
        {
            self.set_cwnd(compete.window());
        }
    }
}

/// Whether a round trip is that of an empty queue.
fn is_empty(base: Duration, rtt: Duration) -> bool {
    rtt <= base + QUEUE_TIME / 2 + base / 64
}
