//! The operating system's monotonic clock, as the core wants it.

use std::{sync::OnceLock, time::Instant as StdInstant};

use crate::proto::Instant;

/// The origin of [`Instant`]s in this process.
fn epoch() -> StdInstant {
    static EPOCH: OnceLock<StdInstant> = OnceLock::new();
    *EPOCH.get_or_init(StdInstant::now)
}

/// Now.
pub(super) fn now() -> Instant {
    Instant::ZERO + epoch().elapsed()
}

/// The same point in time for Tokio's timers.
pub(super) fn to_tokio(instant: Instant) -> tokio::time::Instant {
    (epoch() + (instant - Instant::ZERO)).into()
}
