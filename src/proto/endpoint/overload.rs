//! What becomes of packets while more come than can be received.

use alloc::boxed::Box;
use core::{hash::BuildHasher, net::SocketAddr};

use super::{
    Endpoint,
    limit::network,
    rations::{Rations, work_of},
};
use crate::proto::Instant;

impl Endpoint {
    /// Tells that packets are being lost because they come faster than they are received: to be called again and again while that is
    /// so, at least once in 25 ms.
    ///
    /// From here on, a source that sends more than its share has the rest dropped by [`receive`](Self::receive), unseen and counted as
    /// [`dropped_over_share`](super::RoutingStats::dropped_over_share), until nothing was lost for some seconds. Sessions whose peers
    /// have shown that they hear this end have equal shares, which shrink until no packet is lost, but not below twice what the median
    /// session sends. All other addresses together have one, of at least a quarter of what is worked on or a sixty-fourth of what
    /// comes. So who sends no more than others loses nothing.
    pub fn note_overload(&mut self, now: Instant) {
        match &mut self.rations {
            Some(rations) => rations.note_loss(now),
            None => self.rations = Some(Box::new(Rations::new(now))),
        }
    }

    /// Whether packets of `len` bytes in all are worked on. Those that are not are counted.
    #[cold]
    pub(super) fn takes(&mut self, source: SocketAddr, len: usize, stride: usize) -> bool {
        let Some(rations) = &mut self.rations else { return true };
        let packets = len.div_ceil(stride).max(1);
        let work = work_of(packets, len);
        let taken = match self.routes.sources_mut().find_mut(source) {
            Some(known) => rations.take_of_session(known, work),
            None => rations.take_of_stranger(self.key.hash_one(network(source.ip())), work),
        };
        if !taken {
            self.stats.dropped_over_share += packets as u64;
        }
        taken
    }

    /// Has what each source may send follow from what came.
    #[cold]
    pub(super) fn go_on_rationing(&mut self, now: Instant) {
        let any_established = !self.routes.sources_mut().is_empty();
        if self.rations.as_mut().is_some_and(|rations| !rations.go_on(now, any_established)) {
            self.rations = None;
        }
    }

    /// When the rations end, if nothing comes.
    pub(super) fn rations_end_at(&self) -> Option<Instant> {
        self.rations.as_ref().map(|rations| rations.ends_at())
    }

    pub(super) fn end_rations(&mut self, now: Instant) {
        self.rations.take_if(|rations| rations.is_over(now));
    }
}
