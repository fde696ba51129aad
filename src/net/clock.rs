//! Reads the operating system's monotonic clock, in the core's units.

use std::{sync::OnceLock, time::Instant as StdInstant};

use crate::proto::Instant;

/// The time that [`Instant::ZERO`] stands for in this process: that of the first call.
fn epoch() -> StdInstant {
    static EPOCH: OnceLock<StdInstant> = OnceLock::new();
    *EPOCH.get_or_init(StdInstant::now)
}

/// The present time.
pub(super) fn now() -> Instant {
    Instant::ZERO + epoch().elapsed()
}

/// The same time, for Tokio's timers.
pub(super) fn to_tokio(instant: Instant) -> tokio::time::Instant {
    (epoch() + (instant - Instant::ZERO)).into()
}
