//! Startup and Drain (draft, sections 5.3.1 and 5.3.2).

use super::{Bbr3, Sample, State};
use crate::proto::time::Instant;

/// Rounds without growth by a quarter that tell that the path is full.
const FULL_BW_ROUNDS: u8 = 3;
/// `BBRStartupFullLossCnt`: ranges of segments lost in a round.
const STARTUP_FULL_LOSS_CNT: u32 = 6;
/// Drain lasts no more rounds than this.
const DRAIN_ROUNDS: u64 = 3;

impl Bbr3 {
    /// `ResetFullBW()`.
    pub(super) const fn reset_full_bw(&mut self) {
        self.full_bw = 0;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }

    /// `CheckFullBWReached()`: in Startup and in ProbeBW_UP.
    pub(super) const fn check_full_bw_reached(&mut self, rs: &Sample) {
        if self.full_bw_now || !self.round_start || rs.is_app_limited {
            return;
        }
        if rs.delivery_rate >= self.full_bw.saturating_add(self.full_bw / 4) {
            self.reset_full_bw();
            self.full_bw = rs.delivery_rate;
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= FULL_BW_ROUNDS;
        self.full_bw_reached |= self.full_bw_now;
    }

    /// `CheckStartupDone()`.
    pub(super) fn check_startup_done(&mut self, rs: &Sample) {
        self.check_startup_high_loss(rs);
        if self.state == State::Startup && self.full_bw_reached {
            self.enter_drain();
        }
    }

    /// `CheckStartupHighLoss()`: a whole round in recovery that lost more than the threshold, in several places.
    fn check_startup_high_loss(&mut self, rs: &Sample) {
        let is_high_loss = self.state == State::Startup
            && self.in_loss_recovery
            && self.loss_round_start
            && self.loss_ranges_in_round >= STARTUP_FULL_LOSS_CNT
            && rs.is_inflight_too_high();
        if is_high_loss {
            self.undo.state = Some(State::Startup);
            self.full_bw_reached = true;
            self.inflight_longterm = self.bdp_multiple(self.bw, 100).max(self.inflight_latest);
        }
    }

    /// `EnterStartup()`.
    pub(super) const fn enter_startup(&mut self) {
        self.state = State::Startup;
    }

    /// `EnterDrain()`.
    const fn enter_drain(&mut self) {
        self.state = State::Drain;
        self.drain_start_round = self.round_count;
    }

    /// `CheckDrainDone()`.
    pub(super) fn check_drain_done(&mut self, now: Instant) {
        let is_done = self.state == State::Drain
            && (self.inflight <= self.inflight(self.bw, 100)
                || self.round_count > self.drain_start_round + DRAIN_ROUNDS);
        if is_done {
            self.start_probe_bw_down(now);
        }
    }
}
