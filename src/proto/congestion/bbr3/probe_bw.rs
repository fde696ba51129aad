//! ProbeBW: the cycle of DOWN, CRUISE, REFILL and UP (draft, section 5.3.3).

use core::time::Duration;

use super::{AckPhase, Bbr3, INFINITY, Sample, State, percent};
use crate::proto::time::Instant;

/// `BBR.Headroom`: 0.15, in percent.
const HEADROOM: u64 = 15;
/// As often as Reno would have grown by what is in flight, but no more seldom than after so many rounds.
const MOST_RENO_ROUNDS: u64 = 63;
/// The least time between two probes for bandwidth. It is up to a second longer.
const LEAST_PROBE_WAIT: Duration = Duration::from_secs(2);
/// The slope of what ProbeBW_UP adds doubles this often.
const MOST_PROBE_UP_ROUNDS: u32 = 30;

impl Bbr3 {
    /// `StartProbeBW_DOWN()`. As gains follow the state, it is `EnterProbeBW()` too.
    pub(super) fn start_probe_bw_down(&mut self, now: Instant) {
        self.reset_congestion_signals();
        self.probe_up_acked_per_inc = INFINITY;
        self.pick_probe_wait(now);
        self.cycle_stamp = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.state = State::Down;
    }

    /// `StartProbeBW_CRUISE()`.
    pub(super) const fn start_probe_bw_cruise(&mut self) {
        self.state = State::Cruise;
    }

    /// `StartProbeBW_REFILL()`.
    pub(super) const fn start_probe_bw_refill(&mut self) {
        self.reset_short_term_model();
        self.bw_probe_up_rounds = 0;
        self.bw_probe_up_acked = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.state = State::Refill;
    }

    /// `StartProbeBW_UP()`.
    fn start_probe_bw_up(&mut self, rs: &Sample) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.reset_full_bw();
        self.full_bw = rs.delivery_rate;
        self.state = State::Up;
        self.raise_inflight_longterm_slope();
    }

    /// `UpdateProbeBWCyclePhase()`.
    pub(super) fn update_probe_bw_cycle_phase(&mut self, now: Instant, rs: &Sample) {
        if !self.full_bw_reached || self.adapt_long_term_model(rs) {
            return;
        }
        let state = self.state;
        match state {
            State::Down | State::Cruise if self.is_time_to_probe_bw(now) => self.start_probe_bw_refill(),
            State::Down if self.is_time_to_cruise() => self.start_probe_bw_cruise(),
            State::Refill if self.round_start => {
                self.is_bw_probe_sample = true;
                self.start_probe_bw_up(rs);
            }
            State::Up if self.is_time_to_go_down(rs) => {
                self.prev_probe_too_high = false;
                self.start_probe_bw_down(now);
            }
            _ => {}
        }
    }

    /// `IsTimeToProbeBW()`, with `HasElapsedInPhase()` and `IsRenoCoexistenceProbeTime()`.
    fn is_time_to_probe_bw(&self, now: Instant) -> bool {
        let reno_rounds = self.target_inflight() / self.smss;
        now > self.cycle_stamp + self.bw_probe_wait
            || self.rounds_since_probe_up >= reno_rounds.min(MOST_RENO_ROUNDS)
    }

    /// `PickProbeWait()`.
    fn pick_probe_wait(&mut self, now: Instant) {
        self.rounds_since_probe_up = self.random.bit(now);
        self.bw_probe_wait = LEAST_PROBE_WAIT + self.random.part_of_a_second(now);
    }

    /// `IsTimeToCruise()`.
    fn is_time_to_cruise(&self) -> bool {
        self.inflight <= self.inflight_with_headroom() && self.inflight <= self.inflight(self.max_bw, 100)
    }

    /// `IsTimeToGoDown()`.
    const fn is_time_to_go_down(&mut self, rs: &Sample) -> bool {
        if self.prev_probe_too_high && self.inflight >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if self.is_cwnd_limited() && self.cwnd >= self.inflight_longterm {
            // The rate is limited by inflight_longterm.
            self.reset_full_bw();
            self.full_bw = rs.delivery_rate;
            return false;
        }
        self.full_bw_now
    }

    /// `InflightWithHeadroom()`.
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == INFINITY {
            return INFINITY;
        }
        let headroom = percent(self.inflight_longterm, HEADROOM).max(self.smss);
        self.inflight_longterm.saturating_sub(headroom).max(self.min_pipe_cwnd())
    }

    /// `RaiseInflightLongtermSlope()`.
    fn raise_inflight_longterm_slope(&mut self) {
        let growth_this_round = 1 << self.bw_probe_up_rounds;
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(MOST_PROBE_UP_ROUNDS);
        self.probe_up_acked_per_inc = (self.cwnd / growth_this_round).max(self.smss);
    }

    /// `ProbeInflightLongtermUpward()`.
    fn probe_inflight_longterm_upward(&mut self, rs: &Sample) {
        if !self.is_cwnd_limited() || self.cwnd < self.inflight_longterm {
            return;
        }
        self.bw_probe_up_acked = self.bw_probe_up_acked.saturating_add(rs.newly_acked);
        if self.bw_probe_up_acked >= self.probe_up_acked_per_inc {
            let delta = self.bw_probe_up_acked / self.probe_up_acked_per_inc;
            self.bw_probe_up_acked -= delta * self.probe_up_acked_per_inc;
            self.inflight_longterm = self.inflight_longterm.saturating_add(delta.saturating_mul(self.smss));
        }
        if self.round_start {
            self.raise_inflight_longterm_slope();
        }
    }

    /// `AdaptLongTermModel()`: returns whether it has chosen the next state.
    fn adapt_long_term_model(&mut self, rs: &Sample) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.is_in_a_probe_bw_state() && !rs.is_app_limited {
                self.max_bw_filter.advance();
            }
            if self.is_in_a_probe_bw_state() && self.prev_probe_precautionary && !self.prev_probe_too_high {
                self.start_probe_bw_refill();
                return true;
            }
        }
        if rs.is_inflight_too_high() || self.inflight_longterm == INFINITY {
            return false;
        }
        self.inflight_longterm = self.inflight_longterm.max(rs.tx_in_flight);
        if self.state == State::Up {
            self.probe_inflight_longterm_upward(rs);
        }
        false
    }
}
