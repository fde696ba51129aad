//! Which congestion control a session has, if any.

use alloc::boxed::Box;
use core::time::Duration;

use super::{
    bandwidth::{Bandwidth, Newest, Snapshot},
    losses::LossCounts,
    reno::Reno,
};
use crate::proto::{
    config::{CongestionControl, NoDelay},
    time::Instant,
};

/// What the ACKs of one packet newly confirm; bytes are those of segments with their headers.
#[derive(Debug, Default)]
pub(super) struct Confirmed {
    pub(super) segments: u32,
    pub(super) bytes: u64,
    pub(super) newest: Option<Newest>,
    pub(super) losses: LossCounts,
    pub(super) now: Instant,
    pub(super) min_rtt: Duration,
}

impl Confirmed {
    pub(super) fn new(now: Instant, min_rtt: Duration) -> Self {
        Self { now, min_rtt, ..Self::default() }
    }

    /// Adds one segment.
    #[inline]
    pub(super) fn add(&mut self, bytes: u64, sent_at: Instant, snapshot: Snapshot) {
        self.segments += 1;
        self.bytes += bytes;
        if self.newest.is_none_or(|newest| newest.sent_at <= sent_at) {
            self.newest = Some(Newest { sent_at, snapshot });
        }
    }
}

/// What is under way: sent and not confirmed; bytes are those of segments with their headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlightTotal {
    pub(super) segments: u32,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) enum Congestion {
    /// `nc`: the peers' windows are the only limit.
    Off,
    Kcp(Reno),
    Bandwidth(Box<Bandwidth>),
}

impl Congestion {
    pub(super) fn new(nodelay: &NoDelay, control: CongestionControl, segment: usize) -> Self {
        match control {
            _ if nodelay.nc => Self::Off,
            CongestionControl::Kcp => Self::Kcp(Reno::new()),
            CongestionControl::Bandwidth => Self::Bandwidth(Box::new(Bandwidth::new(segment))),
        }
    }

    pub(super) const fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// Whether one more new segment may be sent.
    #[inline]
    pub(super) const fn permits(&self, in_flight: InFlightTotal) -> bool {
        match self {
            Self::Off => true,
            Self::Kcp(reno) => in_flight.segments < reno.window(),
            Self::Bandwidth(bandwidth) => in_flight.bytes < bandwidth.window(),
        }
    }

    /// Bytes that may be resent in a round trip because their RTO passed.
    pub(super) const fn timeout_allowance(&self) -> u64 {
        match self {
            Self::Off | Self::Kcp(_) => u64::MAX,
            Self::Bandwidth(bandwidth) => bandwidth.window(),
        }
    }

    #[inline]
    pub(super) fn on_send(&mut self, now: Instant, in_flight: InFlightTotal) -> Snapshot {
        match self {
            Self::Off | Self::Kcp(_) => Snapshot::default(),
            Self::Bandwidth(bandwidth) => bandwidth.on_send(now, in_flight.bytes),
        }
    }

    pub(super) const fn on_app_limited(&mut self, in_flight: InFlightTotal) {
        if let Self::Bandwidth(bandwidth) = self {
            bandwidth.on_app_limited(in_flight.bytes);
        }
    }

    /// `limit` is the smaller of the two peers' windows, in segments.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        confirmed: &Confirmed,
        in_flight: InFlightTotal,
        rtt: Option<Duration>,
        limit: u32,
    ) {
        match self {
            Self::Off => {}
            Self::Kcp(reno) => reno.on_ack(confirmed.segments, limit),
            Self::Bandwidth(bandwidth) => {
                if let Some(newest) = confirmed.newest {
                    bandwidth.on_ack(now, confirmed.segments, confirmed.bytes, in_flight.bytes, newest, rtt);
                }
            }
        }
    }

    /// `segments` were resent because later ones had been acknowledged.
    pub(super) fn on_fast_resend(&mut self, segments: u32, in_flight: u32, resend: u32) {
        match self {
            Self::Off => {}
            Self::Kcp(reno) => reno.on_fast_resend(in_flight, resend),
            Self::Bandwidth(bandwidth) => bandwidth.on_loss(segments),
        }
    }

    /// `segments` were resent because their RTO had passed.
    pub(super) fn on_timeout(&mut self, segments: u32, window: u32) {
        match self {
            Self::Off => {}
            Self::Kcp(reno) => reno.on_timeout(window),
            Self::Bandwidth(bandwidth) => bandwidth.on_loss(segments),
        }
    }

    /// By how much the control itself may lengthen round trips, which is no reason for a timeout.
    pub(super) fn probe_delay(&self) -> Duration {
        match self {
            Self::Off | Self::Kcp(_) => Duration::ZERO,
            Self::Bandwidth(bandwidth) => bandwidth.probe_delay(),
        }
    }

    /// The window in segments of `segment` bytes, for the statistics and KCP's own arithmetic.
    pub(super) fn window(&self, segment: usize) -> u32 {
        match self {
            Self::Off => u32::MAX,
            Self::Kcp(reno) => reno.window(),
            Self::Bandwidth(bandwidth) => {
                u32::try_from(bandwidth.window().div_ceil(segment as u64)).unwrap_or(u32::MAX)
            }
        }
    }

    /// Bytes a second that new segments are spread over, 0 for no limit.
    pub(super) fn pacing_rate(&self) -> u64 {
        match self {
            Self::Off | Self::Kcp(_) => 0,
            Self::Bandwidth(bandwidth) => bandwidth.pacing_rate(),
        }
    }

    /// The rate at which the path has delivered, in bytes a second; 0 where it is not measured.
    pub(super) fn rate(&self) -> u64 {
        match self {
            Self::Off | Self::Kcp(_) => 0,
            Self::Bandwidth(bandwidth) => bandwidth.rate(),
        }
    }
}
