//! The four knobs of `ikcp_nodelay`.

use core::{str::FromStr, time::Duration};

use super::limits::{check, check_duration};
use crate::proto::error::{ConfigError, UnknownPreset};

/// The four knobs of `ikcp_nodelay`, by their usual names.
///
/// The presets are those of kcptun (`normal` to `fast3`) and the defaults of the C library ([`IKCP`](Self::IKCP)).
/// [`FromStr`] takes a preset's name or the four numbers, as `1,10,2,1`.
///
/// ```
/// use kcp9::NoDelay;
///
/// assert_eq!("fast3".parse(), Ok(NoDelay::FAST3));
/// assert_eq!("1,10,2,1".parse(), Ok(NoDelay::FAST3));
/// assert!("faster".parse::<NoDelay>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoDelay {
    /// Short timeouts. The RTO is at least 30 ms (otherwise 100 ms) and grows by half of it with each timeout (otherwise by
    /// all of it). While fewer than four segments are unacknowledged, it does not grow at the first timeout, and its margin over
    /// the RTT is half.
    pub nodelay: bool,
    /// How long an ACK or a delayed write may wait, which is also the least margin of the RTO over the RTT. 1 ms to 5 s.
    pub interval: Duration,
    /// Resend a segment once this many later ones were acknowledged, at most 255; 0 turns fast and early resend off.
    pub resend: u32,
    /// No congestion control: only the send window and the peer's receive window limit what is in flight.
    pub nc: bool,
}

impl NoDelay {
    /// kcptun's `normal`: 0,40,2,1.
    pub const NORMAL: Self = Self::new(false, 40, 2, true);
    /// kcptun's `fast`: 0,30,2,1.
    pub const FAST: Self = Self::new(false, 30, 2, true);
    /// kcptun's `fast2`: 1,20,2,1.
    pub const FAST2: Self = Self::new(true, 20, 2, true);
    /// kcptun's `fast3`: 1,10,2,1.
    pub const FAST3: Self = Self::new(true, 10, 2, true);
    /// The knobs of the C library's defaults: 0,100,0,0. With [`CongestionControl::Kcp`](crate::CongestionControl::Kcp) it also has that library's
    /// congestion control.
    pub const IKCP: Self = Self::new(false, 100, 0, false);

    const fn new(nodelay: bool, interval_ms: u64, resend: u32, nc: bool) -> Self {
        Self { nodelay, interval: Duration::from_millis(interval_ms), resend, nc }
    }

    /// The least retransmission timeout.
    pub(crate) const fn min_rto(&self) -> Duration {
        Duration::from_millis(if self.nodelay { 30 } else { 100 })
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        check("nodelay.resend", self.resend.into(), 0, 255)?;
        check_duration("nodelay.interval", self.interval, Duration::from_millis(1), Duration::from_secs(5))
    }
}

impl FromStr for NoDelay {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, UnknownPreset> {
        match name {
            "normal" => return Ok(Self::NORMAL),
            "fast" => return Ok(Self::FAST),
            "fast2" => return Ok(Self::FAST2),
            "fast3" => return Ok(Self::FAST3),
            "ikcp" => return Ok(Self::IKCP),
            _ => {}
        }
        let mut numbers = name.split(',').map(|number| number.trim().parse::<u32>().ok());
        let mut next = || numbers.next().flatten().ok_or(UnknownPreset);
        let preset = Self::new(next()? != 0, next()?.into(), next()?, next()? != 0);
        match numbers.next() {
            None => Ok(preset),
            Some(_) => Err(UnknownPreset),
        }
    }
}
