//! The least that a path is taken to hold, where round trips are short. This is our own.
//!
//! Round trips below a millisecond tell more of the schedulers at both ends than of the path. A window that fits such a
//! round trip would leave the sender idle whenever its peer waits for the processor. So a round trip counts as at least
//! [`LEAST_RTT`], up to [`MAX_SEGMENTS`] in flight.
//!
//! What it is worth shows in `tests/simulation/congestion/short_path.rs`: three to six times the throughput.

use core::time::Duration;

use super::bytes_in;

/// Round trips count as at least this.
pub(super) const LEAST_RTT: Duration = Duration::from_millis(1);
/// What may be in flight for that, in full segments: 1 ms at 1.4 Gbit/s. At higher rates more would not fit the caches if many
/// sessions did so.
pub(super) const MAX_SEGMENTS: u64 = 128;

/// The least bandwidth-delay product at `bw` bytes a second.
pub(super) fn bdp(bw: u64, mtu: u64) -> u64 {
    bytes_in(bw, LEAST_RTT).min(MAX_SEGMENTS * mtu)
}
