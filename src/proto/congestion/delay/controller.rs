//! What the path tells the controller, and what it answers.

use core::time::Duration;

use super::{
    super::{Acked, Controller, Lost, Marked, Metrics, MinRtt, Parked, RttSample, Sent, Stage},
    DelayBased, MIN_RTT_MEMORY, Mode,
    fast::QUEUE_TIME,
    is_empty,
    startup::Startup,
};
use crate::proto::time::Instant;

impl Controller for DelayBased {
    fn on_sent(&mut self, sent: &Sent) {
        if let Mode::Compete(compete) = &mut self.mode {
            compete.on_sent(sent);
        }
    }

    fn on_ack(&mut self, acked: &Acked, min_rtt: &mut MinRtt) {
        let now = acked.now;
        if self.competes() && min_rtt.is_expired(now) {
            if now - self.drains.empty_at() < MIN_RTT_MEMORY { min_rtt.hold() } else { min_rtt.renew(now) }
        }
        self.base = min_rtt.get();
        self.add_sample(acked);
        self.round.on_ack(acked);
        self.drains.on_ack(acked);
        self.settle(acked);
        if let Some(base) = self.base {
            if self.recent.shortest().is_some_and(|rtt| is_empty(base, self.bursts.correct(rtt))) {
                self.drains.on_empty_queue(now);
            }
            if let Mode::Startup(startup) = &mut self.mode
                && acked.in_flight.bytes <= 2 * self.cwnd
                && let Some(rtt) = self.recent.shortest()
                && Startup::is_queue(base, rtt.saturating_sub(self.bursts.height()))
                && let Some(rate) = self.round.rate(now)
                && Startup::is_window_of_path(self.cwnd, base, rate, now - self.round.began)
            {
                startup.on_rate(acked.rate.delivery_rate);
                self.end_startup(now, base, without_queue(acked.rate.tx_in_flight, base, rtt));
            }
        }
        // A segment that was sent again just before the ACK of its first transmission came would end a round at once.
        let is_over =
            self.base.is_none_or(|base| now >= self.round.began + base.max(self.bursts.least_round()));
        if is_over && acked.rate.prior_delivered >= self.next_round_delivered {
            self.end_round(acked);
        }
        if let Some(rtt) = self.new_base.take() {
            min_rtt.replace(now, rtt);
            self.base = Some(rtt);
        }
        match &mut self.mode {
            // Only what the window held back proves that it is too small.
            Mode::Startup(_) if acked.in_flight.bytes.saturating_add(acked.bytes) >= self.cwnd / 2 => {
                self.cwnd = self.cwnd.saturating_add(Startup::growth(acked.bytes));
            }
            Mode::Compete(compete) if !self.drains.is_draining() => {
                compete.on_ack(acked, min_rtt);
                self.follow_cubic();
            }
            _ => {}
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.round.on_lost(lost, self.reduced_at);
        let Some(base) = self.base else { return };
        // The latest sample is of what was sent just after the lost segment.
        let delay = self.latest.saturating_sub(base);
        if !self.range.is_long(delay) {
            self.drains.on_lost(lost);
        }
        if let Mode::Compete(compete) = &mut self.mode
            && (!self.range.is_short(delay) || self.round.is_lossy())
        {
            compete.on_lost(lost);
            self.follow_cubic();
        }
    }

    fn on_ecn(&mut self, marked: &Marked) {
        self.round.marked = true;
        if let Mode::Compete(compete) = &mut self.mode {
            compete.on_ecn(marked);
            self.follow_cubic();
        }
    }

    fn supports_ecn(&self) -> bool {
        true
    }

    fn on_spurious_loss(&mut self, now: Instant, bytes: u64) {
        let segments = bytes.div_ceil(self.mtu);
        self.losses.forgive(segments);
        self.drains.forgive(segments);
        if let Mode::Startup(startup) = &mut self.mode {
            startup.forgive(segments);
        }
        if let Mode::Compete(compete) = &mut self.mode {
            compete.on_spurious_loss(now, bytes);
            self.follow_cubic();
        }
    }

    fn on_rtt(&mut self, now: Instant, rtt: &RttSample) {
        (self.latest, self.srtt, self.is_new) = (rtt.latest, rtt.smoothed, true);
        if let Mode::Compete(compete) = &mut self.mode {
            compete.on_rtt(now, rtt);
        }
    }

    fn on_mtu_change(&mut self, mtu: usize) {
        self.mtu = mtu as u64;
        self.set_cwnd(self.cwnd);
        if let Mode::Compete(compete) = &mut self.mode {
            compete.on_mtu_change(mtu);
        }
    }

    fn window(&self) -> u64 {
        self.cwnd
    }

    /// A quarter more than the window in a round trip; half more in Startup, where more than it grows by would wait in the queue.
    fn pacing_rate(&self) -> Option<u64> {
        let quarters = if self.is_growing() { 6 } else { 5 };
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
            _ if self.probation.is_some() => "hold",
            Mode::Startup(_) => "startup",
            Mode::Delay => "delay",
            Mode::Compete(ref compete) if compete.stands() => "stand",
            Mode::Compete(_) => "compete",
        })
    }

    fn metrics(&self) -> Metrics {
        Metrics::of_delivery_rate(self.rate).with_random_loss(self.losses.own_ppm())
    }

    /// Whether others are there is soon found again.
    fn park(&self) -> Option<Stage> {
        match self.mode {
            // Its window is not that of the path.
            _ if self.drains.is_draining() => None,
            Mode::Startup(_) => Some(Stage::Startup),
            Mode::Delay | Mode::Compete(_) => Some(Stage::Steady),
        }
    }

    fn resume(&mut self, _now: Instant, parked: &Parked) {
        if parked.stage == Stage::Steady {
            self.mode = Mode::Delay;
        }
        self.cwnd = parked.window;
        let Metrics { delivery_rate, random_loss_ppm } = parked.metrics;
        (self.rate, self.highest_rate) = (delivery_rate, delivery_rate);
        self.losses.resume(random_loss_ppm);
        self.base = parked.min_rtt;
        // Until there is a sample: the window is to be paced.
        self.srtt = parked.min_rtt.unwrap_or_default();
    }
}

/// What the path holds of `in_flight` bytes that took `rtt`: the others waited (Little's law).
fn without_queue(in_flight: u64, base: Duration, rtt: Duration) -> u64 {
    let bytes = (u128::from(in_flight) * base.as_micros()).checked_div(rtt.as_micros());
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(in_flight)
}
