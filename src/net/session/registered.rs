//! A session among those whose counters are added up: see [`Registry`](crate::net::metrics::Registry).

use std::sync::atomic::Ordering;

use super::Session;
use crate::{net::error::KcpError, proto::Stats};

impl Session {
    /// Counters and gauges as they are now.
    pub(in crate::net) fn stats(&self) -> Stats {
        self.handover.locked(|state, _| state.connection.stats())
    }

    /// Notes the number that the registry has given it.
    pub(in crate::net) fn set_registered(&self, number: u32) {
        // Nobody else reads it before the session is dropped, which comes behind everything else.
        self.registered.store(number, Ordering::Relaxed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let number = *self.registered.get_mut();
        if number != NOWHERE {
            // One that has not ended is dropped with its driver.
            let reason = self.close_reason().unwrap_or(KcpError::RuntimeGone);
            self.shared.registry.remove(number, &self.stats(), &reason);
        }
    }
}

/// The number of a session that is not registered.
pub(super) const NOWHERE: u32 = u32::MAX;
