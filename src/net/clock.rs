//! Reads the operating system's monotonic clock, in the core's units.

use std::{sync::OnceLock, time::Instant as StdInstant};

use crate::proto::Instant;

/// The time at which the first call finds the clock. It is not zero, so that there is a time before it: what counts as sent long
/// ago must not seem to be sent just now.
const ORIGIN: Instant = Instant::from_millis(3_600_000);

/// The time that [`ORIGIN`] stands for in this process: that of the first call.
fn epoch() -> StdInstant {
    static EPOCH: OnceLock<StdInstant> = OnceLock::new();
    *EPOCH.get_or_init(StdInstant::now)
}

/// The present time.
pub(super) fn now() -> Instant {
    ORIGIN + epoch().elapsed()
}

/// The same time, for Tokio's timers.
pub(super) fn to_tokio(instant: Instant) -> tokio::time::Instant {
    (epoch() + (instant - ORIGIN)).into()
}
