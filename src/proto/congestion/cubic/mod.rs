//! CUBIC (RFC 9438), with HyStart++ (RFC 9406) in slow start: [`CongestionControl::Cubic`](super::CongestionControl::Cubic).
//!
//! It is after what most of TCP does, so that a session shares a link with TCP as another TCP connection would. A loss is a
//! sign of a full queue: the window shrinks to 0.7, and then grows along a cubic curve of time, fast back to near where the
//! loss was, slowly past it, and fast again. It fills queues, and is slow where packets are lost at random.
//!
//! Each rule names its section. Windows are in bytes: where the RFC has segments, full segments are meant.
//!
//! # How it differs from the RFCs
//!
//! * **A reduction a round trip.** ACKs of KCP name each segment, so there is no fast recovery that ends with a cumulative
//!   ACK. As in QUIC (RFC 9002, section 7.3.2), losses of what was sent before a reduction belong to it, and what was sent
//!   before it makes nothing grow.
//! * **Timeouts.** Each segment of KCP has an RTO of its own, where TCP has one timer that each ACK of new data begins again
//!   (RFC 6298, section 5.3). So an RTO that passes is a timeout (section 4.8) if nothing was confirmed since the segment was
//!   sent, and a loss as any other otherwise: nothing tells of an idle path while ACKs come.
//! * **Samples of HyStart++.** One packet of ACKs tells one round-trip time for all that it confirms. So
//!   `N_RTT_SAMPLE` counts segments that are confirmed, as TCP counts ACKs.
//! * **ECN.** A mark in congestion avoidance leaves 0.85 of the window (RFC 8511), in slow start as much as a loss does. It belongs to
//!   the same reduction as the losses of its round trip, and what had a mark is not undone.
//!
//! # Pacing
//!
//! At twice the window a round trip in slow start and 1.2 times later, as Linux's TCP does: bursts do not overflow queues,
//! and the window stays the limit.

mod curve;
mod hystart;
#[cfg(test)]
mod tests;

use core::time::Duration;

use self::{
    curve::{Curve, beta, beta_ecn},
    hystart::HyStart,
};
use super::{Acked, Controller, LossCause, Lost, Marked, Metrics, MinRtt, RttSample, Sent};
use crate::proto::time::Instant;

/// The window of a new session, in full segments: RFC 6928's.
const INITIAL_WINDOW: u64 = 10;
/// The least value of `ssthresh`, and of the window after a loss, in full segments (section 4.6).
const MIN_WINDOW: u64 = 2;

/// The controller.
#[derive(Debug)]
pub(super) struct Cubic {
    mtu: u64,
    cwnd: u64,
    /// `None` until the first loss or until HyStart++ ends slow start: arbitrarily high (RFC 5681, section 3.1).
    ssthresh: Option<u64>,
    /// The window just before the last reduction.
    cwnd_prior: u64,
    /// What the next congestion avoidance grows towards; `None` if slow start ended without a loss (section 4.10), or
    /// after a timeout (section 4.8).
    w_max: Option<u64>,
    /// The congestion avoidance that is under way.
    curve: Option<Curve>,
    hystart: HyStart,
    srtt: Option<Duration>,
    /// When something was confirmed last.
    last_ack: Option<Instant>,
    /// When the window was full last.
    full_at: Option<Instant>,
    reduction: Option<Reduction>,
}

/// The last reduction of the window.
#[derive(Debug, Clone, Copy)]
struct Reduction {
    at: Instant,
    /// Bytes whose losses belong to it, less those that were not lost after all.
    lost: u64,
    is_timeout: bool,
    /// Packets were marked, too: there was congestion, whatever became of what was found lost.
    is_marked: bool,
    before: Before,
}

/// Why the window is reduced.
#[derive(Debug, Clone, Copy)]
struct Cause {
    now: Instant,
    /// When what was lost, or the newest of what may have been marked, was sent.
    sent_time: Instant,
    /// Bytes lost.
    lost: u64,
    is_timeout: bool,
    is_marked: bool,
}

impl Cause {
    const fn of(lost: &Lost) -> Self {
        let &Lost { now, sent_time, bytes, .. } = lost;
        Self { now, sent_time, lost: bytes, is_timeout: false, is_marked: false }
    }
}

/// What a reduction that was not needed is undone to.
#[derive(Debug, Clone, Copy)]
struct Before {
    cwnd: u64,
    ssthresh: Option<u64>,
    cwnd_prior: u64,
    w_max: Option<u64>,
    curve: Option<Curve>,
}

impl Cubic {
    pub(super) fn new(mtu: usize) -> Self {
        let mtu = mtu as u64;
        Self {
            mtu,
            cwnd: INITIAL_WINDOW * mtu,
            ssthresh: None,
            cwnd_prior: 0,
            w_max: None,
            curve: None,
            hystart: HyStart::default(),
            srtt: None,
            last_ack: None,
            full_at: None,
            reduction: None,
        }
    }

    /// One that goes on in congestion avoidance with a window of `cwnd` bytes, to which it has grown since `since` without a loss.
    pub(super) fn in_avoidance(now: Instant, mtu: u64, cwnd: u64, srtt: Duration, since: Instant) -> Self {
        let curve = Curve::grown(now, since, cwnd, mtu);
        Self { cwnd, ssthresh: Some(cwnd), srtt: Some(srtt), curve: Some(curve), ..Self::new(mtu as usize) }
    }

    fn is_slow_start(&self) -> bool {
        self.ssthresh.is_none_or(|ssthresh| self.cwnd < ssthresh)
    }

    /// Whether the window is what limits the sender, so that more of it would be used (RFC 9438, section 5.8).
    fn is_cwnd_limited(&self, acked: &Acked) -> bool {
        if self.is_slow_start() {
            // It has doubled since what is confirmed now was sent.
            return acked.in_flight.bytes.saturating_add(acked.bytes) >= self.cwnd / 2;
        }
        // Within the round trip of what is confirmed: after each ACK the pacer lets the window fill only in a while.
        self.full_at.is_some_and(|at| at >= acked.rate.sent_time)
    }

    fn slow_start(&mut self, acked: &Acked) {
        // What is past ssthresh does not count: congestion avoidance begins with the next ACK.
        let limit = self.ssthresh.unwrap_or(u64::MAX);
        let increase = self.hystart.increase(acked.bytes);
        self.cwnd = self.cwnd.saturating_add(increase).min(limit.max(self.cwnd));
    }

    fn congestion_avoidance(&mut self, acked: &Acked) {
        let (cwnd, cwnd_prior, w_max) = (self.cwnd, self.cwnd_prior, self.w_max);
        let curve =
            self.curve.get_or_insert_with(|| Curve::new(acked.now, cwnd, cwnd_prior, w_max, self.mtu));
        self.cwnd = curve.grow(acked.now, acked.bytes, cwnd, self.srtt.unwrap_or_default(), self.mtu);
    }

    /// The window is about to become smaller, after a loss or a mark.
    fn reduce(&mut self, cause: &Cause) {
        let &Cause { now, sent_time, lost, is_timeout, is_marked } = cause;
        let before = Before {
            cwnd: self.cwnd,
            ssthresh: self.ssthresh,
            cwnd_prior: self.cwnd_prior,
            w_max: self.w_max,
            curve: self.curve,
        };
        // A timeout behind a reduction for the same losses keeps what that remembers.
        let (lost_before, before) = match self.reduction {
            Some(last) if sent_time < last.at && last.lost > 0 => (last.lost, last.before),
            _ => (0, before),
        };
        // What was marked stays so, if the timeout is for the same packets.
        let is_marked = is_marked || self.reduction.is_some_and(|last| sent_time < last.at && last.is_marked);
        let lost = lost_before.saturating_add(lost);
        self.reduction = Some(Reduction { at: now, lost, is_timeout, is_marked, before });
        self.curve = None;
        self.hystart.stop();
    }

    /// Section 4.6, with the window in place of the flight size, as that section allows: the window does not grow while it is
    /// not used.
    fn multiplicative_decrease(&mut self, cause: &Cause) {
        let is_abe = cause.is_marked && !self.is_slow_start();
        self.reduce(cause);
        self.w_max = Some(match self.w_max {
            // Fast convergence (section 4.7): whoever is on the way down leaves room to others.
            Some(w_max) if self.cwnd < w_max => self.cwnd / 20 * 17,
            _ => self.cwnd,
        });
        self.cwnd_prior = self.cwnd;
        let less = if is_abe { beta_ecn(self.cwnd) } else { beta(self.cwnd) };
        let ssthresh = less.max(MIN_WINDOW * self.mtu);
        self.ssthresh = Some(ssthresh);
        self.cwnd = ssthresh;
    }

    /// Section 4.8.
    fn timeout(&mut self, lost: &Lost) {
        // RFC 5681, section 3.1: what is lost again, or was before, does not lower `ssthresh` once more.
        let repeated = self
            .reduction
            .is_some_and(|last| self.last_ack.is_none_or(|at| at <= last.at) && last.is_timeout);
        let reduced = self.reduction.is_some_and(|last| lost.sent_time < last.at);
        let cwnd = self.cwnd;
        self.reduce(&Cause { is_timeout: true, ..Cause::of(lost) });
        if !repeated && !reduced {
            self.cwnd_prior = cwnd;
            self.ssthresh = Some(beta(cwnd).max(MIN_WINDOW * self.mtu));
        }
        // The curve that follows begins where slow start will have ended, with K = 0.
        self.w_max = None;
        self.cwnd = self.mtu;
    }

    /// Whether the RTO of TCP would have passed.
    fn is_timeout(&self, lost: &Lost) -> bool {
        lost.cause == LossCause::Timeout && self.last_ack.is_none_or(|at| at <= lost.sent_time)
    }
}

impl Controller for Cubic {
    fn on_sent(&mut self, sent: &Sent) {
        if sent.in_flight.bytes.saturating_add(self.mtu) > self.cwnd {
            self.full_at = Some(sent.now);
        }
    }

    fn on_ack(&mut self, acked: &Acked, _min_rtt: &mut MinRtt) {
        let since_last = self.last_ack.map_or(Duration::ZERO, |at| acked.now - at);
        self.last_ack = Some(acked.now);
        let slow_start = self.is_slow_start();
        if self.ssthresh.is_none() && self.hystart.on_ack(acked) {
            // RFC 9406, section 4.2: the path is full. Only the first slow start has this (section 4.3).
            self.ssthresh = Some(self.cwnd);
            return;
        }
        let in_recovery = self.reduction.is_some_and(|last| acked.rate.sent_time < last.at);
        if in_recovery || !self.is_cwnd_limited(acked) {
            // Section 5.8: time in which the window could not grow is none for the curve.
            if let Some(curve) = &mut self.curve {
                curve.pause(since_last);
            }
        } else if slow_start {
            self.slow_start(acked);
        } else {
            self.congestion_avoidance(acked);
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        let last = self.reduction;
        let is_counted = last.is_some_and(|last| lost.sent_time < last.at);
        let is_timeout = self.is_timeout(lost) && !last.is_some_and(|last| is_counted && last.is_timeout);
        match &mut self.reduction {
            _ if is_timeout => self.timeout(lost),
            Some(last) if is_counted => last.lost = last.lost.saturating_add(lost.bytes),
            _ => self.multiplicative_decrease(&Cause::of(lost)),
        }
    }

    /// Section 4.6, last paragraph; RFC 8511.
    fn on_ecn(&mut self, marked: &Marked) {
        match &mut self.reduction {
            Some(last) if marked.sent_time < last.at => last.is_marked = true,
            _ => self.multiplicative_decrease(&Cause {
                now: marked.now,
                sent_time: marked.sent_time,
                lost: 0,
                is_timeout: false,
                is_marked: true,
            }),
        }
    }

    fn supports_ecn(&self) -> bool {
        true
    }

    /// Section 4.9.2: if nothing of what the last reduction was for was lost, it is undone.
    fn on_spurious_loss(&mut self, now: Instant, bytes: u64) {
        let Some(last) = &mut self.reduction else { return };
        if last.lost == 0 || last.is_marked {
            return;
        }
        last.lost = last.lost.saturating_sub(bytes);
        if last.lost > 0 {
            return;
        }
        let Before { cwnd, ssthresh, cwnd_prior, w_max, mut curve } = last.before;
        if let Some(curve) = &mut curve {
            curve.pause(now - last.at);
        }
        // A window that has grown past it meanwhile stays.
        self.cwnd = self.cwnd.max(cwnd);
        (self.ssthresh, self.cwnd_prior, self.w_max, self.curve) = (ssthresh, cwnd_prior, w_max, curve);
    }

    fn on_rtt(&mut self, _: Instant, rtt: &RttSample) {
        self.srtt = Some(rtt.smoothed);
        if self.ssthresh.is_none() {
            self.hystart.on_rtt(rtt.latest);
        }
    }

    fn on_mtu_change(&mut self, mtu: usize) {
        self.mtu = mtu as u64;
        self.cwnd = self.cwnd.max(self.mtu);
    }

    fn window(&self) -> u64 {
        self.cwnd
    }

    fn pacing_rate(&self) -> Option<u64> {
        let srtt = self.srtt?.as_micros().max(1);
        let doubles = self.ssthresh.is_none_or(|ssthresh| self.cwnd < ssthresh / 2) && !self.hystart.is_css();
        let window = if doubles { self.cwnd.saturating_mul(2) } else { self.cwnd.saturating_mul(6) / 5 };
        u64::try_from(u128::from(window) * 1_000_000 / srtt).ok().filter(|rate| *rate > 0)
    }

    /// In slow start a round trip may double the queue's part of the next. Without this, RTOs would pass for that.
    fn probing_delay(&self) -> Duration {
        let srtt = self.srtt.unwrap_or_default();
        if self.is_slow_start() { srtt } else { srtt / 4 }
    }

    fn mode(&self) -> Option<&'static str> {
        Some(if !self.is_slow_start() {
            "congestion_avoidance"
        } else if self.hystart.is_css() {
            "conservative_slow_start"
        } else {
            "slow_start"
        })
    }

    fn metrics(&self) -> Metrics {
        let rate = self.srtt.map_or(0, |srtt| u128::from(self.cwnd) * 1_000_000 / srtt.as_micros().max(1));
        Metrics::of_delivery_rate(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}
