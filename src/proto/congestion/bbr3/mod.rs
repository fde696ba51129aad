//! BBR version 3, as in draft-ietf-ccwg-bbr with precautionary probing (section 5.3.3.6):
//! [`CongestionControl::Bbr3`](super::CongestionControl::Bbr3).
//!
//! A path is modelled by the rate at which it delivers and by its minimum round-trip time, as in the
//! [default](super::bbr_like), and by what may be in flight before more than 2 % are lost. It probes for more every two to three
//! seconds, or every 62 to 63 round trips, slows down for losses in between, and so leaves room to CUBIC and Reno. On a path that
//! loses more than 2 % at random it is slow, where the default is not.
//!
//! Fields, functions and constants have the draft's names; each file is one of its sections:
//!
//! * `startup.rs`: Startup and Drain. `probe_bw.rs`: the cycle of DOWN, CRUISE, REFILL and UP. `probe_rtt.rs`: the path is
//!   emptied for 200 ms where no shorter round trip was seen for five seconds.
//! * `model.rs`: `max_bw`, `min_rtt`, `extra_acked` and the bounds of the short term. `losses.rs`: what losses do to the model,
//!   and how that is undone.
//! * `control.rs`: the pacing rate and the window.
//!
//! # How it differs from the draft
//!
//! * **Bytes in flight** are those sent and not confirmed, as KCP resends what is lost at once and regardless of the window.
//! * **Losses are told after the ACKs that show them**, so the draft's steps for an ACK see them with the next ACK.
//! * **Loss recovery** has no end that ACKs show. It is over after a round trip without a loss, and what it is undone to is what
//!   was before the first of its losses, also where a probe for bandwidth ended meanwhile. As for a timeout of TCP, see
//!   [CUBIC's page](super::cubic).
//! * **Randomness** comes from a small generator that is seeded with the time of the session's beginning and stirred with the time
//!   of each use. It only keeps sessions from probing in step.
//! * **ECN**, of which the draft says nothing. A mark counts as a loss in its round, and as more than 2 % of what is in flight: it ends
//!   Startup and a probe for bandwidth, and lowers the bounds of the short term else. What had a mark is not undone.

mod control;
mod losses;
mod model;
mod probe_bw;
mod probe_rtt;
mod random;
mod startup;
#[cfg(test)]
mod tests;

use core::time::Duration;

use self::{
    losses::Undo,
    model::{ExtraAcked, MaxBwFilter},
    random::SplitMix,
};
use super::{Acked, Controller, Lost, Marked, Metrics, MinRtt, RttSample, Sent};
use crate::proto::time::Instant;

/// More than any rate or volume: not limited.
const INFINITY: u64 = u64::MAX;
/// `BBR.LossThresh`: 2 %, in percent.
const LOSS_THRESH: u64 = 2;
/// `BBR.Beta`: 0.7, in percent.
const BETA: u64 = 70;
/// `C.InitialCwnd` and `BBR.MinPipeCwnd`, in full segments (RFC 6928; draft, section 2.8).
const INITIAL_CWND: u64 = 10;
const MIN_PIPE_CWND: u64 = 4;

/// `BBR.state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

/// `BBR.ack_phase`: what ACKs tell of the probing for bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The draft's `RS`, as far as it is used. It is taken from the segment sent last among those just confirmed, or from one that
/// was found lost.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    delivery_rate: u64,
    delivered: u64,
    newly_acked: u64,
    prior_delivered: u64,
    tx_in_flight: u64,
    lost: u64,
    is_app_limited: bool,
    rtt: Option<Duration>,
}

/// The controller.
#[derive(Debug)]
pub(super) struct Bbr3 {
    // What the draft calls C.
    smss: u64,
    cwnd: u64,
    pacing_rate: u64,
    send_quantum: u64,
    delivered: u64,
    inflight: u64,
    /// The window was full in this round trip, and in the one before.
    is_cwnd_limited: [bool; 2],
    /// Samples up to so many bytes delivered are those of a window that was small on purpose.
    app_limited: u64,
    srtt: Option<Duration>,
    rtt: Option<Duration>,
    last_ack: Option<Instant>,

    state: State,
    random: SplitMix,

    // Rounds.
    next_round_delivered: u64,
    round_start: bool,
    round_count: u64,
    drain_start_round: u64,
    idle_restart: bool,

    // The model.
    max_bw_filter: MaxBwFilter,
    max_bw: u64,
    bw: u64,
    bw_shortterm: u64,
    inflight_longterm: u64,
    inflight_shortterm: u64,
    extra_acked: ExtraAcked,
    min_rtt: Option<Duration>,
    min_rtt_stamp: Instant,
    bw_latest: u64,
    inflight_latest: u64,

    // Losses.
    loss_round_delivered: u64,
    loss_round_start: bool,
    is_loss_in_round: bool,
    /// Ranges of sequence numbers lost in this round, and the last of them.
    loss_ranges_in_round: u32,
    last_lost_sn: u32,
    in_loss_recovery: bool,
    prior_cwnd: u64,
    undo: Undo,

    // Startup.
    full_bw_reached: bool,
    full_bw_now: bool,
    full_bw: u64,
    full_bw_count: u8,

    // ProbeBW.
    ack_phase: AckPhase,
    is_bw_probe_sample: bool,
    bw_probe_up_acked: u64,
    probe_up_acked_per_inc: u64,
    bw_probe_up_rounds: u32,
    rounds_since_probe_up: u64,
    bw_probe_wait: Duration,
    cycle_stamp: Instant,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,

    // ProbeRTT.
    probe_rtt_min_delay: Option<Duration>,
    probe_rtt_min_stamp: Instant,
    probe_rtt_expired: bool,
    probe_rtt_done_stamp: Option<Instant>,
    probe_rtt_round_done: bool,
}

impl Bbr3 {
    /// `OnInit()`.
    pub(super) fn new(now: Instant, mtu: usize) -> Self {
        let smss = mtu as u64;
        let mut bbr = Self {
            smss,
            cwnd: INITIAL_CWND * smss,
            pacing_rate: 0,
            send_quantum: 0,
            delivered: 0,
            inflight: 0,
            is_cwnd_limited: [false; 2],
            app_limited: 0,
            srtt: None,
            rtt: None,
            last_ack: None,
            state: State::Startup,
            random: SplitMix::new(now),
            next_round_delivered: 0,
            round_start: false,
            round_count: 0,
            drain_start_round: 0,
            idle_restart: false,
            max_bw_filter: MaxBwFilter::default(),
            max_bw: 0,
            bw: 0,
            bw_shortterm: INFINITY,
            inflight_longterm: INFINITY,
            inflight_shortterm: INFINITY,
            extra_acked: ExtraAcked::new(now),
            min_rtt: None,
            min_rtt_stamp: now,
            bw_latest: 0,
            inflight_latest: 0,
            loss_round_delivered: 0,
            loss_round_start: false,
            is_loss_in_round: false,
            loss_ranges_in_round: 0,
            last_lost_sn: 0,
            in_loss_recovery: false,
            prior_cwnd: 0,
            undo: Undo::default(),
            full_bw_reached: false,
            full_bw_now: false,
            full_bw: 0,
            full_bw_count: 0,
            ack_phase: AckPhase::Init,
            is_bw_probe_sample: false,
            bw_probe_up_acked: 0,
            probe_up_acked_per_inc: INFINITY,
            bw_probe_up_rounds: 0,
            rounds_since_probe_up: 0,
            bw_probe_wait: Duration::ZERO,
            cycle_stamp: now,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            probe_rtt_min_delay: None,
            probe_rtt_min_stamp: now,
            probe_rtt_expired: false,
            probe_rtt_done_stamp: None,
            probe_rtt_round_done: false,
        };
        bbr.init_pacing_rate();
        bbr
    }

    const fn is_in_a_probe_bw_state(&self) -> bool {
        matches!(self.state, State::Down | State::Cruise | State::Refill | State::Up)
    }

    const fn is_probing_bw(&self) -> bool {
        matches!(self.state, State::Startup | State::Refill | State::Up)
    }

    /// `UpdateModelAndState()`.
    fn update_model_and_state(&mut self, now: Instant, rs: &Sample) {
        self.update_latest_delivery_signals(rs);
        self.update_congestion_signals(rs);
        self.update_ack_aggregation(now, rs);
        self.check_full_bw_reached(rs);
        self.check_startup_done(rs);
        self.check_drain_done(now);
        self.update_probe_bw_cycle_phase(now, rs);
        self.update_min_rtt(now, rs);
        self.check_probe_rtt(now, rs);
        self.advance_latest_delivery_signals(rs);
        self.bw = self.max_bw.min(self.bw_shortterm);
    }
}

impl Controller for Bbr3 {
    /// `HandleRestartFromIdle()`. Nothing in flight means that there was nothing to send, or that the peer's window was
    /// closed, which is the same here.
    fn on_sent(&mut self, sent: &Sent) {
        self.inflight = sent.in_flight.bytes;
        if self.inflight.saturating_add(self.smss) > self.cwnd {
            self.is_cwnd_limited[0] = true;
        }
        if sent.is_restart() {
            self.idle_restart = true;
            self.extra_acked.restart(sent.now);
            if self.is_in_a_probe_bw_state() {
                self.set_pacing_rate_with_gain(100);
            } else if self.state == State::ProbeRtt {
                self.check_probe_rtt_done(sent.now);
            }
        }
    }

    fn on_ack(&mut self, acked: &Acked, _min_rtt: &mut MinRtt) {
        self.delivered = acked.total_delivered;
        self.inflight = acked.in_flight.bytes;
        self.last_ack = Some(acked.now);
        let rate = &acked.rate;
        let rs = Sample {
            delivery_rate: rate.delivery_rate,
            delivered: rate.delivered,
            newly_acked: acked.bytes,
            prior_delivered: rate.prior_delivered,
            tx_in_flight: rate.tx_in_flight,
            lost: rate.lost,
            is_app_limited: rate.is_app_limited || rate.prior_delivered < self.app_limited,
            rtt: self.rtt.take(),
        };
        self.update_model_and_state(acked.now, &rs);
        self.set_pacing_rate();
        self.set_send_quantum();
        self.set_cwnd(&rs);
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.handle_lost_packet(lost);
    }

    fn on_spurious_loss(&mut self, _: Instant, bytes: u64) {
        if self.undo.on_spurious(bytes) {
            self.handle_spurious_loss_detection();
        }
    }

    fn on_ecn(&mut self, marked: &Marked) {
        self.handle_ecn(marked);
    }

    fn supports_ecn(&self) -> bool {
        true
    }

    fn on_rtt(&mut self, _: Instant, rtt: &RttSample) {
        self.rtt = Some(rtt.latest);
        if self.srtt.replace(rtt.smoothed).is_none() {
            self.init_pacing_rate();
        }
    }

    fn on_mtu_change(&mut self, mtu: usize) {
        self.smss = mtu as u64;
        self.cwnd = self.cwnd.max(self.min_pipe_cwnd());
    }

    fn window(&self) -> u64 {
        self.cwnd
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.pacing_rate.max(1))
    }

    /// The queue of ProbeBW_UP, a quarter of what fits the path; in Startup, as much as fits.
    fn probing_delay(&self) -> Duration {
        let min_rtt = self.min_rtt.unwrap_or_default();
        if self.state == State::Startup { min_rtt } else { min_rtt / 4 }
    }

    fn mode(&self) -> Option<&'static str> {
        Some(match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::Down => "probe_bw_down",
            State::Cruise => "probe_bw_cruise",
            State::Refill => "probe_bw_refill",
            State::Up => "probe_bw_up",
            State::ProbeRtt => "probe_rtt",
        })
    }

    fn metrics(&self) -> Metrics {
        Metrics::of_delivery_rate(self.max_bw)
    }
}

/// So many percent of `value`.
const fn percent(value: u64, percent: u64) -> u64 {
    if value == INFINITY {
        return INFINITY;
    }
    let scaled = value as u128 * percent as u128 / 100;
    if scaled > INFINITY as u128 { INFINITY } else { scaled as u64 }
}

/// What `rate` bytes a second are in `time`.
fn bytes_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_micros() / 1_000_000;
    u64::try_from(bytes).unwrap_or(INFINITY)
}
