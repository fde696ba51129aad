//! Updating the model with each ACK (draft, section 5.5).

use core::time::Duration;

use super::{BETA, Bbr3, INFINITY, Sample, bytes_in, percent};
use crate::proto::time::Instant;

/// `BBR.MinRTTFilterLen` and `BBR.ProbeRTTInterval`.
const MIN_RTT_FILTER_LEN: Duration = Duration::from_secs(10);
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// `BBR.ExtraAckedFilterLen`, in rounds.
const EXTRA_ACKED_FILTER_LEN: usize = 10;

/// `BBR.max_bw_filter`: the largest rate of the previous cycle of ProbeBW and of this one (`BBR.MaxBwFilterLen` = 2).
#[derive(Debug, Default)]
pub(super) struct MaxBwFilter {
    previous: u64,
    current: u64,
}

impl MaxBwFilter {
    fn update(&mut self, rate: u64) -> u64 {
        self.current = self.current.max(rate);
        self.previous.max(self.current)
    }

    /// `AdvanceMaxBwFilter()`. A cycle without samples makes the filter forget nothing.
    pub(super) const fn advance(&mut self) {
        if self.current > 0 {
            (self.previous, self.current) = (self.current, 0);
        }
    }
}

/// `BBR.extra_acked`: by how much ACKs come in batches.
#[derive(Debug)]
pub(super) struct ExtraAcked {
    interval_start: Instant,
    delivered: u64,
    /// The largest of each of the last rounds.
    filter: [u64; EXTRA_ACKED_FILTER_LEN],
    round: u64,
}

impl ExtraAcked {
    pub(super) const fn new(now: Instant) -> Self {
        Self { interval_start: now, delivered: 0, filter: [0; EXTRA_ACKED_FILTER_LEN], round: 0 }
    }

    /// Sending begins again after a pause.
    pub(super) const fn restart(&mut self, now: Instant) {
        self.interval_start = now;
    }

    pub(super) fn get(&self) -> u64 {
        self.filter.into_iter().max().unwrap_or(0)
    }

    pub(super) fn update(&mut self, now: Instant, newly_acked: u64, bw: u64, cwnd: u64) {
        let mut expected = bytes_in(bw, now - self.interval_start);
        if self.delivered <= expected {
            (self.interval_start, self.delivered, expected) = (now, 0, 0);
        }
        self.delivered = self.delivered.saturating_add(newly_acked);
        let extra = self.delivered.saturating_sub(expected).min(cwnd);
        let slot = &mut self.filter[self.round as usize % EXTRA_ACKED_FILTER_LEN];
        *slot = extra.max(*slot);
    }

    /// The next round begins. In Startup only one is remembered.
    pub(super) fn advance(&mut self, is_startup: bool) {
        self.round += 1;
        if is_startup {
            self.filter = [0; EXTRA_ACKED_FILTER_LEN];
        }
        self.filter[self.round as usize % EXTRA_ACKED_FILTER_LEN] = 0;
    }
}

impl Bbr3 {
    /// `UpdateLatestDeliverySignals()`.
    pub(super) fn update_latest_delivery_signals(&mut self, rs: &Sample) {
        self.loss_round_start = false;
        self.bw_latest = self.bw_latest.max(rs.delivery_rate);
        self.inflight_latest = self.inflight_latest.max(rs.delivered);
        if rs.prior_delivered >= self.loss_round_delivered {
            self.loss_round_delivered = self.delivered;
            self.loss_round_start = true;
        }
    }

    /// `AdvanceLatestDeliverySignals()`.
    pub(super) const fn advance_latest_delivery_signals(&mut self, rs: &Sample) {
        if self.loss_round_start {
            self.bw_latest = rs.delivery_rate;
            self.inflight_latest = rs.delivered;
            self.loss_ranges_in_round = 0;
        }
    }

    /// `ResetCongestionSignals()`.
    pub(super) const fn reset_congestion_signals(&mut self) {
        self.is_loss_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    /// `UpdateCongestionSignals()`.
    pub(super) fn update_congestion_signals(&mut self, rs: &Sample) {
        self.update_max_bw(rs);
        if !self.loss_round_start {
            return;
        }
        self.adapt_lower_bounds_from_congestion();
        if !self.is_loss_in_round && self.in_loss_recovery {
            self.in_loss_recovery = false;
            self.restore_cwnd();
        }
        self.is_loss_in_round = false;
    }

    /// `UpdateMaxBw()`.
    fn update_max_bw(&mut self, rs: &Sample) {
        self.update_round(rs);
        if rs.delivery_rate > 0 && (rs.delivery_rate >= self.max_bw || !rs.is_app_limited) {
            self.max_bw = self.max_bw_filter.update(rs.delivery_rate);
        }
    }

    /// `UpdateRound()`.
    fn update_round(&mut self, rs: &Sample) {
        self.round_start = rs.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round();
            self.round_count += 1;
            self.rounds_since_probe_up += 1;
            self.is_cwnd_limited = [false, self.is_cwnd_limited[0]];
            self.extra_acked.advance(!self.full_bw_reached);
        }
    }

    /// `StartRound()`.
    pub(super) const fn start_round(&mut self) {
        self.next_round_delivered = self.delivered;
    }

    /// `C.is_cwnd_limited`.
    pub(super) const fn is_cwnd_limited(&self) -> bool {
        self.is_cwnd_limited[0] || self.is_cwnd_limited[1]
    }

    /// `AdaptLowerBoundsFromCongestion()`, with `InitLowerBounds()` and `LossLowerBounds()`.
    fn adapt_lower_bounds_from_congestion(&mut self) {
        if self.is_probing_bw() || !self.is_loss_in_round {
            return;
        }
        if self.bw_shortterm == INFINITY {
            self.bw_shortterm = self.max_bw;
        }
        if self.inflight_shortterm == INFINITY {
            self.inflight_shortterm = self.cwnd;
        }
        self.bw_shortterm = self.bw_latest.max(percent(self.bw_shortterm, BETA));
        self.inflight_shortterm = self.inflight_latest.max(percent(self.inflight_shortterm, BETA));
    }

    /// `ResetShortTermModel()`.
    pub(super) const fn reset_short_term_model(&mut self) {
        self.bw_shortterm = INFINITY;
        self.inflight_shortterm = INFINITY;
    }

    /// `UpdateACKAggregation()`.
    pub(super) fn update_ack_aggregation(&mut self, now: Instant, rs: &Sample) {
        self.extra_acked.update(now, rs.newly_acked, self.bw, self.cwnd);
    }

    /// `UpdateMinRTT()`.
    pub(super) fn update_min_rtt(&mut self, now: Instant, rs: &Sample) {
        self.probe_rtt_expired = now > self.probe_rtt_min_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = rs.rtt
            && (self.probe_rtt_expired || self.probe_rtt_min_delay.is_none_or(|shortest| rtt < shortest))
        {
            self.probe_rtt_min_delay = Some(rtt);
            self.probe_rtt_min_stamp = now;
        }
        let Some(delay) = self.probe_rtt_min_delay else { return };
        let min_rtt_expired = now > self.min_rtt_stamp + MIN_RTT_FILTER_LEN;
        if min_rtt_expired || self.min_rtt.is_none_or(|min_rtt| delay < min_rtt) {
            self.min_rtt = Some(delay);
            self.min_rtt_stamp = self.probe_rtt_min_stamp;
        }
    }
}
