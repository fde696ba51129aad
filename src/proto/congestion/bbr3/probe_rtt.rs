//! ProbeRTT: the path is emptied to measure its round-trip time (draft, section 5.3.4).

use core::time::Duration;

use super::{AckPhase, Bbr3, Sample, State};
use crate::proto::time::Instant;

/// `BBR.ProbeRTTDuration`.
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

impl Bbr3 {
    /// `CheckProbeRTT()`.
    pub(super) fn check_probe_rtt(&mut self, now: Instant, rs: &Sample) {
        if self.state != State::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd();
            self.state = State::ProbeRtt;
            self.probe_rtt_done_stamp = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(now);
        }
        if rs.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// `HandleProbeRTT()`.
    fn handle_probe_rtt(&mut self, now: Instant) {
        // MarkConnectionAppLimited(): rates are low as the window is.
        self.app_limited = self.delivered.saturating_add(self.inflight).max(1);
        if self.probe_rtt_done_stamp.is_none() {
            if self.inflight <= self.probe_rtt_cwnd() {
                self.probe_rtt_done_stamp = Some(now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                self.start_round();
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(now);
        }
    }

    /// `CheckProbeRTTDone()` and `ExitProbeRTT()`.
    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.probe_rtt_done_stamp.is_none_or(|done| now <= done) {
            return;
        }
        self.probe_rtt_min_stamp = now;
        self.restore_cwnd();
        self.reset_short_term_model();
        if self.full_bw_reached {
            self.start_probe_bw_down(now);
            self.start_probe_bw_cruise();
        } else {
            self.enter_startup();
        }
    }
}
