//! What the keys of accepted sessions are drawn from is made anew again and again: copies of a machine that was saved while it ran are not to
//! agree on keys with the same secrets for long.

use std::time::Duration;

use super::Driver;
use crate::{
    net::entropy,
    proto::{Endpoint, Instant, time::earliest},
};

/// How long the randomness that the keys of a session were drawn from may stay. With an agreement that waited for its peer, it goes when
/// that is forgotten; one with early data waits for nobody.
const RESEED_AFTER: Duration = Duration::from_secs(40);

impl Driver {
    /// A session has keys that were agreed on here.
    #[cold]
    pub(super) fn plan_reseeding(&mut self, now: Instant) {
        self.forget_at = earliest([self.forget_at, Some(now + RESEED_AFTER)]);
    }

    #[cold]
    pub(super) fn reseed_noise(&mut self) {
        // Without randomness it goes on with what it has.
        if let Ok(mut random) = entropy::draw::<{ Endpoint::NOISE_RANDOM_BYTES }>() {
            self.endpoint.reseed_noise(&mut random);
        }
    }
}
