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
    let now = ORIGIN + epoch().elapsed();
    #[cfg(test)]
    let now = jumps::moved(now);
    now
}

/// The same time, for Tokio's timers.
pub(super) fn to_tokio(instant: Instant) -> tokio::time::Instant {
    #[cfg(test)]
    let instant = jumps::unmoved(instant);
    (epoch() + (instant - ORIGIN)).into()
}

/// Jumps of the clock, for tests: that of one thread, as its tasks see it. Tokio's clock, which is the same one elsewhere, does not
/// jump with it: a test has to wake the drivers whose timers would have ended.
///
/// A jump forward is what a machine that was suspended sees, where its monotonic clock goes on meanwhile. No clock steps back that
/// the system calls monotonic; but some machines have had one that did.
#[cfg(test)]
pub(super) mod jumps {
    use std::{cell::Cell, time::Duration};

    use crate::proto::Instant;

    std::thread_local! {
        static AHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// From here on the clock is ahead by this much, and no longer by what was said before.
    pub(in crate::net) fn set_ahead(by: Duration) {
        AHEAD.set(by);
    }

    pub(super) fn moved(instant: Instant) -> Instant {
        instant + AHEAD.get()
    }

    pub(super) fn unmoved(instant: Instant) -> Instant {
        Instant::from_micros(instant.as_micros().saturating_sub(AHEAD.get().as_micros() as u64))
    }
}
