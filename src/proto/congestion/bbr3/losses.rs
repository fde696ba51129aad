//! What losses do to the model, and how that is undone (draft, sections 5.5.10 and 5.5.11).

use super::{BETA, Bbr3, INFINITY, LOSS_THRESH, Sample, State, percent};
use crate::proto::{
    congestion::{LossCause, Lost, Marked},
    time::Instant,
};

/// What a recovery that was for nothing is undone to.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// The state that a loss has ended.
    pub(super) state: Option<State>,
    bw_shortterm: u64,
    inflight_shortterm: u64,
    inflight_longterm: u64,
    /// Bytes lost since it was saved, less those that were not lost after all.
    lost: u64,
    /// Packets had marks of ECN since: there was congestion.
    marked: bool,
}

impl Undo {
    /// Bytes that had been found lost were not; returns whether that is so of all, and nothing else was wrong.
    pub(super) const fn on_spurious(&mut self, bytes: u64) -> bool {
        let all = self.lost > 0 && bytes >= self.lost && !self.marked;
        self.lost = self.lost.saturating_sub(bytes);
        all
    }
}

impl Sample {
    /// `IsInflightTooHigh()`.
    pub(super) const fn is_inflight_too_high(&self) -> bool {
        self.lost > percent(self.tx_in_flight, LOSS_THRESH)
    }
}

impl Bbr3 {
    /// `HandleLostPacket()`, with `NoteLoss()` and, for a timeout, `OnEnterRTO()`.
    pub(super) fn handle_lost_packet(&mut self, lost: &Lost) {
        if lost.cause == LossCause::Timeout && self.last_ack.is_none_or(|at| at <= lost.sent_time) {
            self.save_cwnd();
            self.note_loss(lost);
            // One segment, as nothing is in flight that has not been lost.
            self.cwnd = self.smss;
        } else {
            self.note_loss(lost);
        }
        if !self.is_bw_probe_sample || lost.tx_in_flight == 0 {
            return;
        }
        let mut rs = Sample {
            tx_in_flight: lost.tx_in_flight,
            lost: lost.lost,
            is_app_limited: lost.is_app_limited,
            ..Sample::default()
        };
        if rs.is_inflight_too_high() {
            rs.tx_in_flight = inflight_at_loss(&rs, lost.bytes);
            self.handle_inflight_too_high(lost.now, &rs);
        }
    }

    /// Packets were marked, and not lost: see the module's page.
    pub(super) fn handle_ecn(&mut self, marked: &Marked) {
        self.note_congestion();
        self.undo.marked = true;
        if self.state == State::Startup {
            self.full_bw_reached = true;
            self.inflight_longterm = self.bdp_multiple(self.bw, 100).max(self.inflight_latest);
        }
        if self.is_bw_probe_sample {
            let rs = Sample { tx_in_flight: marked.in_flight.bytes, ..Sample::default() };
            self.handle_inflight_too_high(marked.now, &rs);
        }
    }

    fn note_congestion(&mut self) {
        if !self.is_loss_in_round {
            self.loss_round_delivered = self.delivered;
        }
        // Not with each round: what ends a probe forgets the losses of the round.
        if !self.in_loss_recovery {
            self.save_state_upon_loss();
        }
        self.is_loss_in_round = true;
        self.in_loss_recovery = true;
    }

    fn note_loss(&mut self, lost: &Lost) {
        self.note_congestion();
        self.undo.lost = self.undo.lost.saturating_add(lost.bytes);
        if self.loss_ranges_in_round == 0 || lost.sn != self.last_lost_sn.wrapping_add(1) {
            self.loss_ranges_in_round = self.loss_ranges_in_round.saturating_add(1);
        }
        self.last_lost_sn = lost.sn;
    }

    /// `HandleInflightTooHigh()`.
    fn handle_inflight_too_high(&mut self, now: Instant, rs: &Sample) {
        self.prev_probe_too_high = true;
        self.is_bw_probe_sample = false;
        if !rs.is_app_limited {
            self.inflight_longterm = rs.tx_in_flight.max(percent(self.target_inflight(), BETA));
        }
        if self.state == State::Up {
            self.undo.state = Some(State::Up);
            self.start_probe_bw_down(now);
        }
    }

    /// `SaveStateUponLoss()`.
    fn save_state_upon_loss(&mut self) {
        self.save_cwnd();
        self.undo = Undo {
            state: None,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
            lost: 0,
            marked: false,
        };
    }

    /// `HandleSpuriousLossDetection()`.
    pub(super) fn handle_spurious_loss_detection(&mut self) {
        self.in_loss_recovery = false;
        self.restore_cwnd();
        self.is_loss_in_round = false;
        self.reset_full_bw();
        self.bw_shortterm = self.bw_shortterm.max(self.undo.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(self.undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(self.undo.inflight_longterm);
        match self.undo.state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_bw_reached = false;
                if self.state != State::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(State::Up) if self.state != State::Up && self.state != State::ProbeRtt => {
                self.start_probe_bw_refill();
            }
            _ => {}
        }
    }

    /// `SaveCwnd()`.
    pub(super) fn save_cwnd(&mut self) {
        self.prior_cwnd = if self.in_loss_recovery || self.state == State::ProbeRtt {
            self.prior_cwnd.max(self.cwnd)
        } else {
            self.cwnd
        };
    }

    /// `RestoreCwnd()`.
    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }
}

/// `InflightAtLoss()`: at what was in flight losses crossed the threshold, within a segment of `size` bytes.
fn inflight_at_loss(rs: &Sample, size: u64) -> u64 {
    let inflight_prev = rs.tx_in_flight.saturating_sub(size);
    let lost_prev = rs.lost.saturating_sub(size);
    let lost_prefix = percent(inflight_prev, LOSS_THRESH).saturating_sub(lost_prev).saturating_mul(100)
        / (100 - LOSS_THRESH);
    if inflight_prev == INFINITY { INFINITY } else { inflight_prev.saturating_add(lost_prefix) }
}
