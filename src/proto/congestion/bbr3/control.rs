//! The pacing rate and the window (draft, section 5.6).

use core::time::Duration;

use super::{Bbr3, INFINITY, INITIAL_CWND, MIN_PIPE_CWND, Sample, State, bytes_in, percent};

/// `BBR.PacingMarginPercent`.
const PACING_MARGIN_PERCENT: u64 = 1;
/// The largest and, in full segments, the least `C.send_quantum`.
const MOST_SEND_QUANTUM: u64 = 64 * 1_024;
const LEAST_SEND_QUANTUM: u64 = 2;
/// `BBR.ProbeRTTCwndGain`, in percent.
const PROBE_RTT_CWND_GAIN: u64 = 50;

impl Bbr3 {
    /// `BBR.pacing_gain`, in percent.
    pub(super) const fn pacing_gain(&self) -> u64 {
        match self.state {
            State::Startup => 277,
            State::Drain => 50,
            State::Down => 90,
            State::Cruise | State::Refill | State::ProbeRtt => 100,
            State::Up => 125,
        }
    }

    /// `BBR.cwnd_gain`, in percent.
    pub(super) const fn cwnd_gain(&self) -> u64 {
        match self.state {
            State::Up => 225,
            State::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => 200,
        }
    }

    /// `InitPacingRate()`.
    pub(super) fn init_pacing_rate(&mut self) {
        let srtt = self.srtt.unwrap_or(Duration::from_millis(1)).as_micros().max(1);
        let nominal_bandwidth = u128::from(INITIAL_CWND * self.smss) * 1_000_000 / srtt;
        self.pacing_rate = percent(u64::try_from(nominal_bandwidth).unwrap_or(INFINITY), self.pacing_gain());
        self.set_send_quantum();
    }

    /// `SetPacingRateWithGain()`, with the gain in percent.
    pub(super) fn set_pacing_rate_with_gain(&mut self, pacing_gain: u64) {
        let rate = percent(percent(self.bw, pacing_gain), 100 - PACING_MARGIN_PERCENT);
        if self.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// `SetPacingRate()`.
    pub(super) fn set_pacing_rate(&mut self) {
        self.set_pacing_rate_with_gain(self.pacing_gain());
    }

    /// `SetSendQuantum()`.
    pub(super) fn set_send_quantum(&mut self) {
        let quantum = bytes_in(self.pacing_rate, Duration::from_millis(1));
        self.send_quantum = quantum.min(MOST_SEND_QUANTUM).max(LEAST_SEND_QUANTUM * self.smss);
    }

    pub(super) const fn min_pipe_cwnd(&self) -> u64 {
        MIN_PIPE_CWND * self.smss
    }

    /// `BDPMultiple()`, with the gain in percent.
    pub(super) fn bdp_multiple(&self, bw: u64, gain: u64) -> u64 {
        self.min_rtt.map_or(INITIAL_CWND * self.smss, |min_rtt| percent(bytes_in(bw, min_rtt), gain))
    }

    /// `QuantizationBudget()`, with `UpdateOffloadBudget()`.
    fn quantization_budget(&self, inflight_cap: u64) -> u64 {
        let cap = inflight_cap.max(self.send_quantum).max(self.min_pipe_cwnd());
        if self.state == State::Up { cap.saturating_add(2 * self.smss) } else { cap }
    }

    /// `Inflight()`, with the gain in percent.
    pub(super) fn inflight(&self, bw: u64, gain: u64) -> u64 {
        self.quantization_budget(self.bdp_multiple(bw, gain))
    }

    /// `TargetInflight()`.
    pub(super) fn target_inflight(&self) -> u64 {
        self.bdp_multiple(self.bw, 100).min(self.cwnd)
    }

    /// `UpdateMaxInflight()`.
    fn max_inflight(&self) -> u64 {
        let inflight_cap = self.bdp_multiple(self.bw, self.cwnd_gain());
        self.quantization_budget(inflight_cap.saturating_add(self.extra_acked.get()))
    }

    /// `ProbeRTTCwnd()`.
    pub(super) fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp_multiple(self.bw, PROBE_RTT_CWND_GAIN).max(self.min_pipe_cwnd())
    }

    /// `SetCwnd()`, with `BoundCwndForProbeRTT()`.
    pub(super) fn set_cwnd(&mut self, rs: &Sample) {
        let max_inflight = self.max_inflight();
        let grown = self.cwnd.saturating_add(rs.newly_acked);
        if self.full_bw_reached {
            self.cwnd = grown.min(max_inflight);
        } else if self.cwnd < max_inflight || self.delivered < INITIAL_CWND * self.smss {
            self.cwnd = grown;
        }
        self.cwnd = self.cwnd.max(self.min_pipe_cwnd());
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd_for_model();
    }

    /// `BoundCwndForModel()`.
    fn bound_cwnd_for_model(&mut self) {
        let cap = match self.state {
            State::Down | State::Refill | State::Up => self.inflight_longterm,
            State::ProbeRtt | State::Cruise => self.inflight_with_headroom(),
            State::Startup | State::Drain => INFINITY,
        };
        self.cwnd = self.cwnd.min(cap.min(self.inflight_shortterm).max(self.min_pipe_cwnd()));
    }
}
