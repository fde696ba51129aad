//! What the driver does for the handles of its endpoint: see [`Control`](crate::net::control::Control).

use super::Driver;
use crate::net::control::Request;

impl Driver {
    /// Does what was asked since the last call.
    #[inline]
    pub(super) fn obey(&mut self) {
        let asked = self.shared.control.asked();
        if asked > self.obeyed {
            self.obey_new(asked);
        }
    }

    #[cold]
    fn obey_new(&mut self, asked: Request) {
        // Those that were begun here and are new to the driver end with the others. From then on, none is taken in.
        self.take_scheduled();
        self.obeyed = asked;
        self.endpoint.stop_accepting();
        if asked < Request::ShutDown {
            return;
        }
        for handle in self.endpoint.sessions() {
            let Some(slot) = self.sessions.get(handle) else { continue };
            match asked {
                Request::Abort => slot.session.abort_with_endpoint(),
                _ => slot.session.end_when_flushed(),
            }
            self.sessions.mark_dirty(handle);
        }
    }

    /// Whether a session that is begun now would have to end at once.
    pub(super) fn is_ending(&self) -> bool {
        self.obeyed >= Request::ShutDown
    }

    /// Tells those who wait for it that there is no session.
    #[inline]
    pub(super) fn announce_idle(&self) {
        if self.endpoint.is_empty() && self.shared.control.is_idle_awaited() {
            self.shared.control.announce_idle(|| !self.shared.run_queue.has_any());
        }
    }
}
