//! Congestion control by bandwidth and round-trip time, after BBR (Cardwell et al., 2016).
//!
//! A path is modelled by the highest rate at which it has delivered lately and by its shortest round trip. Their
//! product is what fits the path without queueing, and the window stays close to it: losses by themselves do not shrink
//! it, so a lossy link stays fast, and a full queue does not either fill up further, so an ordinary one is not flooded.
//!
//! * **Startup** adds what is acknowledged to the window, doubling it every round trip, until three rounds in a row have
//!   not raised the rate by a quarter, or two with losses or with round trips of twice the shortest, those of a queue. Such
//!   rounds count even if the application had too little to send to fill the window: it would go on growing, and many
//!   sessions that begin together in one process have little each.
//! * From then on the window is the model's product times a gain that cycles: a quarter more for a round trip, to find
//!   out whether the path can carry more; an eighth less, to drain what that queued; then six of just so. On top comes
//!   what ACKs are batched by, measured: peers hold ACKs back for up to their `interval`. A receiver that is slow to get the
//!   processor looks the same, and sessions that meet in one socket would fill its buffer for that: where losses go with
//!   round trips that even at best are twice the path's, this part is halved, and grows back slowly: by a 64th a round
//!   trip, and in no less than a second to nearly three times as much, from what it is where startup ends with a queue.
//!   Faster, on round trips of 2 ms, eight sessions lost 4 % of all that they sent to a full buffer.
//!
//! * A path that has become longer ([`Detour`]) is a new one: startup begins again. It may have been the queue of many
//!   sessions after all, which another overflow would make longer still: so the window grows to no more than the rate from
//!   before fills. Where the longer path is faster too, the cycle of gains finds that out.
//!
//! * Where the shortest round trip has not been seen for a while ([`MinRtt`]), the path is emptied to measure it: half the
//!   product, and no batches, until what was sent with no more than that in flight is acknowledged.
//!
//! Simpler than BBR: the window is the limit, and pacing only breaks bursts.

use core::time::Duration;

use super::{
    detour::Detour,
    min_rtt::{MinRtt, Sample},
};
use crate::proto::time::Instant;

/// Rounds that the highest rate, and the largest batch of ACKs, are remembered for.
const ROUNDS: usize = 10;
/// Round trips below this tell more of schedulers than of paths.
const LEAST_RTT: Duration = Duration::from_millis(1);
/// What may be in flight because a round trip counts for more than it is, in full segments: 1 ms at 1.4 Gbit/s. At higher
/// rates it would not fit the caches if many sessions did so.
const SHORT_PATH_WINDOW: u64 = 128;
/// More than one segment in so many lost makes a round lossy enough to ask whether a queue overflows.
const LOSSY: u64 = 200;
/// Round trips of twice this, where the path's own are shorter, are those of a queue.
const LEAST_QUEUE_RTT: Duration = Duration::from_micros(250);
/// What may come on top for batches of ACKs whatever is lost, in full segments: random losses on a short path to a peer
/// that holds ACKs back look like an overflowing queue, and 10 ms of ACKs at 140 Mbit/s are as many.
const MIN_ALLOWANCE: u64 = 128;
/// Gains of the phases, in eighths.
const GAINS: [u64; 8] = [10, 7, 8, 8, 8, 8, 8, 8];
/// The phase at first and behind one that empties the path, which drains. It is long over when startup is, and the one
/// behind it follows.
const DRAINING: usize = 1;
/// Rounds without growth that end startup.
const FULL_ROUNDS: u8 = 3;
/// Window at first, and at least but while it is halved for a [`Detour`], in full segments.
const INITIAL_WINDOW: u64 = 32;
const MIN_WINDOW: u64 = 16;

/// How delivery stood when a segment was sent; kept with it, and small for it: times are microseconds before `sent_at`,
/// `u32::MAX` for longer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Snapshot {
    delivered: u64,
    /// Since the last delivery before.
    since_delivery: u32,
    /// Since the last segment acknowledged by then had been sent.
    since_first_sent: u32,
    /// The application, not the window, limited the sender.
    app_limited: bool,
}

/// The segment sent last among those that a packet acknowledges.
#[derive(Debug, Clone, Copy)]
pub(super) struct Newest {
    pub(super) sent_at: Instant,
    pub(super) snapshot: Snapshot,
}

#[derive(Debug)]
pub(super) struct Bandwidth {
    segment: u64,
    window: u64,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Segments sent before more than this is delivered were sent while the application had no more to send; 0 for none.
    app_limited_until: u64,
    /// The round ends when a segment sent after this much was delivered is acknowledged.
    round_end: u64,
    round: usize,
    /// Highest rate of each of the last rounds, in bytes a second.
    rates: [u64; ROUNDS],
    /// Largest batch of ACKs of each of the last rounds: bytes beyond what the rate explains.
    batches: [u64; ROUNDS],
    batch_began: Instant,
    batch: u64,
    min_rtt: MinRtt,
    startup: bool,
    /// What startup may grow the window to.
    startup_limit: u64,
    /// The rate, remembered for longer than [`rate`](Self::rate) does: that before it was asked whether the path is longer.
    usual_rate: Option<u64>,
    full_rate: u64,
    full_rounds: u8,
    /// Segments acknowledged in this round.
    confirmed: u64,
    /// Segments resent in this round.
    resent: u64,
    /// Shortest round trip of this round.
    round_rtt: Option<Duration>,
    /// Most that may come on top for batches of ACKs.
    allowance: u64,
    detour: Detour,
    phase: usize,
    phase_began: Instant,
}

impl Bandwidth {
    pub(super) fn new(segment: usize) -> Self {
        let segment = segment as u64;
        Self {
            segment,
            window: INITIAL_WINDOW * segment,
            delivered: 0,
            delivered_at: Instant::ZERO,
            first_sent_at: Instant::ZERO,
            app_limited_until: 0,
            round_end: 0,
            round: 0,
            rates: [0; ROUNDS],
            batches: [0; ROUNDS],
            batch_began: Instant::ZERO,
            batch: 0,
            min_rtt: MinRtt::default(),
            startup: true,
            startup_limit: u64::MAX,
            usual_rate: None,
            full_rate: 0,
            full_rounds: 0,
            confirmed: 0,
            resent: 0,
            round_rtt: None,
            allowance: u64::MAX,
            detour: Detour::default(),
            phase: DRAINING,
            phase_began: Instant::ZERO,
        }
    }

    /// Bytes that may be in flight.
    pub(super) const fn window(&self) -> u64 {
        self.window
    }

    /// The highest rate at which the path has delivered lately, in bytes a second.
    pub(super) fn rate(&self) -> u64 {
        self.rates.into_iter().max().unwrap_or(0)
    }

    /// Bytes a second that new segments are spread over: enough for the window to be what limits the sender, little
    /// enough that a window opened at once does not leave at once. 0 before the first sample.
    pub(super) fn pacing_rate(&self) -> u64 {
        let rate = self.rate();
        if self.startup { rate.saturating_mul(3) } else { rate / 8 * GAINS[self.phase].max(10) }
    }

    /// A segment is sent with `in_flight` bytes under way before it.
    pub(super) fn on_send(&mut self, now: Instant, in_flight: u64) -> Snapshot {
        if in_flight == 0 {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Snapshot {
            delivered: self.delivered,
            since_delivery: micros_since(self.delivered_at, now),
            since_first_sent: micros_since(self.first_sent_at, now),
            app_limited: self.is_app_limited(),
        }
    }

    /// Until something is acknowledged that was sent after the application had run out: what is sent into an empty
    /// path counts as well, or a request a round trip would pass for all that the path can carry.
    const fn is_app_limited(&self) -> bool {
        self.app_limited_until > 0 && self.app_limited_until >= self.delivered
    }

    /// The application has no more to send with `in_flight` bytes under way.
    pub(super) const fn on_app_limited(&mut self, in_flight: u64) {
        if in_flight < self.window {
            self.app_limited_until = self.delivered + in_flight;
            if self.app_limited_until == 0 {
                self.app_limited_until = 1;
            }
        }
    }

    /// `segments` are resent.
    pub(super) fn on_loss(&mut self, segments: u32) {
        self.resent += u64::from(segments);
    }

    /// By how much the control itself may lengthen round trips: the queue of its probing phase.
    pub(super) fn probe_delay(&self) -> Duration {
        self.min_rtt.get().filter(|_| !self.is_app_limited()).map_or(Duration::ZERO, |rtt| rtt / 4)
    }

    /// `segments` of `acked` bytes are newly acknowledged, `in_flight` still under way.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        segments: u32,
        acked: u64,
        in_flight: u64,
        newest: Newest,
        rtt: Option<Duration>,
    ) {
        self.delivered += acked;
        self.confirmed += u64::from(segments);
        self.delivered_at = now;
        self.first_sent_at = newest.sent_at;
        if let Some(rtt) = rtt {
            self.round_rtt = Some(self.round_rtt.map_or(rtt, |shortest| shortest.min(rtt)));
            self.sample_rtt(now, rtt, in_flight, newest);
        }
        if newest.snapshot.delivered >= self.round_end {
            self.begin_round(now, newest.snapshot.app_limited);
        }
        self.sample_rate(now, newest);
        self.sample_batch(now, acked);
        self.update_window(now, acked, in_flight);
    }

    fn sample_rtt(&mut self, now: Instant, rtt: Duration, in_flight: u64, newest: Newest) {
        let sample = Sample {
            rtt,
            sent_at: newest.sent_at,
            limited: !self.startup && !newest.snapshot.app_limited,
            emptied: self.min_rtt.is_emptying() && in_flight <= self.emptied_window(),
        };
        if self.min_rtt.sample(now, sample) {
            // The window opens at once.
            self.phase = DRAINING;
            self.phase_began = now;
        }
    }

    fn begin_round(&mut self, now: Instant, app_limited: bool) {
        self.round_end = self.delivered;
        let confirmed = core::mem::take(&mut self.confirmed);
        let resent = core::mem::take(&mut self.resent);
        let round_rtt = self.round_rtt.take();
        let alone = self.min_rtt.get().map_or(LEAST_RTT, |shortest| shortest.max(LEAST_QUEUE_RTT));
        let queued = round_rtt.is_some_and(|rtt| rtt >= 2 * alone);
        let overflows = queued && resent * LOSSY > confirmed;
        if app_limited {
            if self.detour.is_asked()
                && let Some((rtt, shortest)) = round_rtt.zip(self.min_rtt.get())
            {
                self.detour.on_app_limited_round(now, shortest, rtt);
            }
            // A round in which the application had little to send says nothing of the path but that it has a queue, and
            // forgets nothing.
            if !(if self.startup { queued } else { overflows }) {
                return;
            }
        }
        let rate = self.rate();
        // Nor does one that was to empty the path.
        if !app_limited && !self.min_rtt.is_emptying() {
            self.round = (self.round + 1) % ROUNDS;
            self.rates[self.round] = 0;
            self.batches[self.round] = 0;
        }
        if !self.startup {
            self.adapt_allowance(round_rtt, overflows);
            if !app_limited {
                self.look_for_detour(now, round_rtt);
            }
            return;
        }
        if rate >= self.full_rate + self.full_rate / 4 {
            self.full_rate = rate;
            self.full_rounds = 0;
            return;
        }
        // Losses or a queue, with no more rate to show for them: the path is full.
        self.full_rounds += if resent > 0 || queued { 2 } else { 1 };
        if self.full_rounds >= FULL_ROUNDS {
            self.startup = false;
            if queued {
                // Or every window acknowledged at once would make room for a larger one.
                self.allowance = self.largest_batch();
            }
            self.adapt_allowance(round_rtt, overflows);
        }
    }

    /// After a round whose round trips took `rtt` at best.
    fn look_for_detour(&mut self, now: Instant, rtt: Option<Duration>) {
        if let Some((rtt, shortest)) = rtt.zip(self.min_rtt.get())
            && self.detour.on_round(now, shortest, rtt, self.window)
        {
            self.min_rtt.set(now, rtt);
            self.startup_limit =
                self.usual_rate.map_or(u64::MAX, |usual| bytes_in(usual.max(self.rate()), rtt));
            self.rates = [0; ROUNDS];
            self.phase = DRAINING;
            self.startup = true;
            (self.full_rate, self.full_rounds) = (0, 0);
        } else if !self.detour.is_asked() {
            let usual = self.usual_rate.unwrap_or(0);
            self.usual_rate = Some(self.rate().max(usual - usual / 256));
        }
    }

    /// After a round whose round trips took `rtt` at best.
    fn adapt_allowance(&mut self, rtt: Option<Duration>, overflows: bool) {
        let Some(rtt) = rtt else { return };
        self.allowance = if overflows {
            (self.allowance.min(self.largest_batch()) / 2).max(MIN_ALLOWANCE * self.segment)
        } else {
            let rounds_a_second = 1_000_000 / u64::from(micros(rtt).max(1));
            self.allowance.saturating_add(self.allowance / rounds_a_second.max(64))
        };
    }

    fn sample_rate(&mut self, now: Instant, newest: Newest) {
        let Snapshot { delivered, since_delivery, since_first_sent, app_limited } = newest.snapshot;
        let since_sent = (now - newest.sent_at).as_micros() as u64;
        let elapsed = (since_sent + u64::from(since_delivery)).max(since_first_sent.into());
        let shortest = self.min_rtt.get().map_or(0, |rtt| rtt.as_micros() as u64);
        if elapsed == 0 || elapsed < shortest {
            return;
        }
        // Sent before this control took over from another, it says nothing.
        let Some(delivered) = self.delivered.checked_sub(delivered) else { return };
        let rate = delivered.saturating_mul(1_000_000) / elapsed;
        if !app_limited || rate > self.rate() {
            let best = &mut self.rates[self.round];
            *best = rate.max(*best);
        }
    }

    /// Measures by how much ACKs come in batches: how far they are ahead of the rate since a batch began.
    fn sample_batch(&mut self, now: Instant, acked: u64) {
        let expected = bytes_in(self.rate(), now - self.batch_began);
        if self.batch <= expected {
            self.batch = 0;
            self.batch_began = now;
            self.batch = acked;
            self.note_batch(acked);
            return;
        }
        self.batch += acked;
        self.note_batch(self.batch.saturating_sub(expected));
    }

    fn note_batch(&mut self, bytes: u64) {
        let largest = &mut self.batches[self.round];
        *largest = bytes.min(self.window).max(*largest);
    }

    fn largest_batch(&self) -> u64 {
        self.batches.into_iter().max().unwrap_or(0)
    }

    /// Bytes that fit the path without queueing.
    fn product(&self) -> u64 {
        let rate = self.rate();
        let measured = self.min_rtt.get().map_or(0, |rtt| bytes_in(rate, rtt));
        measured.max(bytes_in(rate, LEAST_RTT).min(SHORT_PATH_WINDOW * self.segment))
    }

    /// Bytes that may be in flight while the path is emptied.
    fn emptied_window(&self) -> u64 {
        (self.product() / 2).max(MIN_WINDOW * self.segment)
    }

    /// What the shortest round trip tells of the path.
    fn path_rtt(&self) -> Duration {
        self.min_rtt.get().map_or(LEAST_RTT, |rtt| rtt.max(LEAST_RTT))
    }

    fn update_window(&mut self, now: Instant, acked: u64, in_flight: u64) {
        if self.startup {
            // Only what the window held back proves that it is too small.
            if in_flight + acked >= self.window / 2 && self.window < self.startup_limit {
                self.window += acked;
            }
            return;
        }
        let rtt = self.path_rtt();
        if now - self.phase_began >= rtt {
            self.phase = (self.phase + 1) % GAINS.len();
            self.phase_began = now;
        }
        if self.min_rtt.is_emptying() {
            self.window = self.window.min(self.emptied_window());
            return;
        }
        let product = self.product();
        let batch = self.largest_batch().min(self.allowance);
        let window = (product / 8 * GAINS[self.phase] + batch).max(MIN_WINDOW * self.segment);
        self.window = window.min(self.detour.limit());
    }
}

/// What `rate` bytes a second are in `time`.
fn bytes_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_micros() / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX / 8)
}

fn micros_since(earlier: Instant, now: Instant) -> u32 {
    micros(now - earlier)
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1_376;
    const SENT: u32 = 1_000;

    /// Sends [`SENT`] segments a round, which are all acknowledged at once `rtt` later, `resent` of them as resends.
    fn rounds(bandwidth: &mut Bandwidth, now: &mut Instant, count: u32, rtt: Duration, resent: u32) {
        for _ in 0..count {
            let sent_at = *now;
            let snapshot = bandwidth.on_send(sent_at, 0);
            *now += rtt;
            bandwidth.on_loss(resent);
            let acked = u64::from(SENT) * SEGMENT;
            bandwidth.on_ack(*now, SENT, acked, 0, Newest { sent_at, snapshot }, Some(rtt));
        }
    }

    /// A path of 1 ms whose ACKs then come in batches of a window.
    fn behind_startup() -> (Bandwidth, Instant) {
        let (mut bandwidth, mut now) = (Bandwidth::new(SEGMENT as usize), Instant::ZERO);
        rounds(&mut bandwidth, &mut now, 30, LEAST_RTT, 0);
        assert!(!bandwidth.startup);
        (bandwidth, now)
    }

    /// Of an application with too little to send, only round trips like those of a queue tell that the path is full.
    #[test]
    fn startup_ends_with_a_queue_whatever_the_application_has_to_send() {
        for (rtt, resent, ends) in [
            (3 * LEAST_RTT / 2, 0, false),
            (3 * LEAST_RTT / 2, SENT / 10, false),
            (5 * LEAST_RTT, 0, true),
            (5 * LEAST_RTT, SENT / 10, true),
        ] {
            let (mut bandwidth, mut now) = (Bandwidth::new(SEGMENT as usize), Instant::ZERO);
            rounds(&mut bandwidth, &mut now, 2, LEAST_RTT, 0);
            for _ in 0..4 {
                bandwidth.on_app_limited(0);
                rounds(&mut bandwidth, &mut now, 1, rtt, resent);
            }
            assert_eq!(!bandwidth.startup, ends, "{rtt:?}, {resent} resent");
            let most =
                if ends { bandwidth.largest_batch() + bandwidth.largest_batch() / 16 } else { u64::MAX };
            assert!(bandwidth.allowance <= most, "{rtt:?}, {resent} resent");
        }
    }

    #[test]
    fn losses_with_long_round_trips_take_the_allowance_for_batches_away() {
        let (mut bandwidth, mut now) = behind_startup();
        rounds(&mut bandwidth, &mut now, 20, 5 * LEAST_RTT, 0);
        let before = bandwidth.window();
        rounds(&mut bandwidth, &mut now, 20, 5 * LEAST_RTT, SENT / 40);
        let after = bandwidth.window();
        assert_eq!(bandwidth.allowance, MIN_ALLOWANCE * SEGMENT);
        assert!(after <= before / 2, "{before} to {after}");
        // 3 s.
        rounds(&mut bandwidth, &mut now, 600, 5 * LEAST_RTT, 0);
        assert!(bandwidth.window() >= before, "{} of {before}", bandwidth.window());
    }

    /// It might be a queue that other sessions keep full.
    #[test]
    fn startup_on_a_longer_path_expects_no_higher_rate() {
        let (mut bandwidth, mut now) = behind_startup();
        let before = bandwidth.rate();
        let longer = 20 * LEAST_RTT;
        for _ in 0..20 {
            rounds(&mut bandwidth, &mut now, 1, longer, 0);
            if bandwidth.startup {
                break;
            }
        }
        assert!(bandwidth.startup && bandwidth.rate() < before / 2);
        let limit = bytes_in(before, longer);
        assert!((limit * 9 / 10..=limit).contains(&bandwidth.startup_limit), "{}", bandwidth.startup_limit);
        let limit = bandwidth.window() + SEGMENT;
        bandwidth.startup_limit = limit;
        for _ in 0..FULL_ROUNDS {
            let sent_at = now;
            let snapshot = bandwidth.on_send(sent_at, bandwidth.window());
            now += longer;
            let acked = SEGMENT;
            bandwidth.on_ack(now, 1, acked, bandwidth.window(), Newest { sent_at, snapshot }, Some(longer));
            assert!(bandwidth.window() <= limit);
        }
    }

    /// A smaller window measures a lower rate, which says nothing of the path.
    #[test]
    fn the_rate_is_remembered_while_the_path_is_emptied() {
        let (mut bandwidth, mut now) = behind_startup();
        let (before, rate) = (bandwidth.window(), bandwidth.rate());
        now += Duration::from_secs(11);
        for _ in 0..3 * ROUNDS {
            let sent_at = now;
            let snapshot = bandwidth.on_send(sent_at, 0);
            now += 3 * LEAST_RTT / 2;
            let acked = u64::from(SENT) / 4 * SEGMENT;
            bandwidth.on_ack(now, SENT / 4, acked, before, Newest { sent_at, snapshot }, Some(now - sent_at));
            assert_eq!((bandwidth.min_rtt.is_emptying(), bandwidth.rate()), (true, rate));
            assert_eq!(bandwidth.window(), bandwidth.product() / 2);
        }
        rounds(&mut bandwidth, &mut now, 2, LEAST_RTT, 0);
        assert!(!bandwidth.min_rtt.is_emptying());
        assert!(bandwidth.window() >= bandwidth.product() / 8 * 7);
    }

    /// What a round trip below a millisecond counts for more than it is does not fill windows at high rates.
    #[test]
    fn a_short_path_has_little_more_in_flight_than_fits_it() {
        let (mut bandwidth, mut now) = (Bandwidth::new(SEGMENT as usize), Instant::ZERO);
        rounds(&mut bandwidth, &mut now, 30, LEAST_RTT / 10, 0);
        assert!(!bandwidth.startup);
        let sent = u64::from(SENT) * SEGMENT;
        assert_eq!(bandwidth.product(), sent);
        // Where a twentieth of that fits it, schedulers get their part.
        bandwidth.rates = [bandwidth.rate() / 20; ROUNDS];
        assert_eq!(bandwidth.product(), SHORT_PATH_WINDOW * SEGMENT);
    }

    #[test]
    fn few_losses_and_those_of_short_round_trips_take_nothing() {
        for (rtt, resent) in [(5 * LEAST_RTT, SENT / 250), (3 * LEAST_RTT / 2, SENT / 4)] {
            let (mut bandwidth, mut now) = behind_startup();
            rounds(&mut bandwidth, &mut now, 40, rtt, resent);
            assert_eq!(bandwidth.allowance, u64::MAX, "{resent} resent, {rtt:?}");
        }
    }
}
