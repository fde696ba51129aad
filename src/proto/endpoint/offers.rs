//! Sessions that peers begin, as the caller is asked about them: it accepts each or refuses it.

use core::{net::IpAddr, ops::Range};

use super::{
    Accepted, Endpoint, Handle, Incoming, Refusal, Routed, Run, admission::Beginning, record::FirstPush,
    routes::Role,
};
use crate::proto::{Instant, trace::tell};

/// A session that the caller may accept.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) incoming: Incoming,
    pub(super) range: Range<usize>,
    pub(super) first_push: FirstPush,
    /// The session that gives way to it.
    pub(super) gives_way: Option<Handle>,
    /// Where it has early data: its keys, and that.
    #[cfg(feature = "noise")]
    pub(super) early_keys: Option<alloc::boxed::Box<crate::proto::noise::SessionKeys>>,
    #[cfg(feature = "noise")]
    pub(super) early_data: Option<crate::proto::EarlyData>,
    /// And what tells its message from others.
    #[cfg(feature = "noise")]
    pub(super) early_message: Option<u64>,
}

impl Endpoint {
    /// Offers a run of an unknown conversation to the caller, if it begins a session.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        conv: u32,
        bytes: &[u8],
        range: Range<usize>,
    ) -> Option<Routed> {
        let source = self.batch.source;
        let packets = range.len().div_ceil(self.batch.stride);
        let dropped = packets as u64;
        let admission = self.admission.as_mut().filter(|admission| admission.open);
        // Where sessions were begun with the address under another cipher, none is accepted under this one.
        let is_acceptable = self.decryptor.may_be_of_accepted(source, self.batch.run_phase);
        let Some(admission) = admission.filter(|_| is_acceptable) else {
            self.stats.dropped_no_session += dropped;
            return None;
        };
        let run = &bytes[range.clone()];
        match admission.judge(run, &self.batch, &mut self.decryptor) {
            Beginning::New { by_hello } => {
                let validated = match self.look_for_cookie(now, conv, run, by_hello) {
                    Ok(validated) => validated,
                    Err(reply) => return reply.map(Routed::Reply),
                };
                let gives_way = self.make_room(now, conv, validated, dropped).ok()?;
                self.reserve(&(source, conv), gives_way.is_some(), dropped).ok()?;
                let first_push = FirstPush::find(self.key, self.batch.payloads(run));
                let retiring_key =
                    self.batch.run_phase.is_some_and(|phase| phase != self.decryptor.accepted().phase());
                let message_at = self.message_at(now, source.ip(), validated, &range);
                let incoming = Incoming {
                    source,
                    conv,
                    packets,
                    by_hello,
                    validated,
                    message_at,
                    retiring_key,
                    #[cfg(feature = "noise")]
                    sealed: false,
                };
                self.offered = Some(Offer {
                    incoming,
                    range,
                    first_push,
                    gives_way,
                    #[cfg(feature = "noise")]
                    early_keys: None,
                    #[cfg(feature = "noise")]
                    early_data: None,
                    #[cfg(feature = "noise")]
                    early_message: None,
                });
                Some(Routed::Incoming(incoming))
            }
            Beginning::None { replayed } => {
                if replayed > 0 {
                    tell!(refused(source, conv, "replayed", replayed as u64));
                }
                self.stats.dropped_replayed += replayed as u64;
                self.stats.dropped_no_session += dropped - replayed as u64;
                None
            }
            Beginning::NoHello => {
                self.stats.dropped_no_hello += dropped;
                tell!(refused(source, conv, "no_hello", dropped));
                None
            }
        }
    }

    /// When a session that the packets in `range` begin may send a message beyond three times their bytes.
    pub(super) fn message_at(
        &self,
        now: Instant,
        ip: IpAddr,
        validated: bool,
        range: &Range<usize>,
    ) -> Instant {
        if validated { now } else { self.half_open.message_at(now, ip, range.len()) }
    }

    /// Drops what the caller was offered and did not answer.
    pub(super) fn drop_offered(&mut self) {
        if self.offered.is_some() {
            self.refuse(Refusal::Unwanted);
        }
    }

    /// Accepts the session that [`poll_routed`](Self::poll_routed) has just returned as [`Routed::Incoming`]. The caller
    /// makes a [`Connection`](crate::proto::Connection) for it, with the configuration given to [`accepting`](Self::accepting).
    ///
    /// `None` when there is no such session, or it was accepted or refused before.
    pub fn accept(&mut self, now: Instant) -> Option<Accepted> {
        let offer = self.offered.take()?;
        #[cfg(feature = "noise")]
        let message = offer.early_message;
        let Offer { incoming, range, first_push, gives_way, .. } = offer;
        let route = (incoming.source, incoming.conv);
        let admission = self.admission.as_mut()?;
        if self.routes.find(&route).is_some_and(|there| gives_way != Some(there)) {
            // A session was begun here meanwhile.
            self.unreserve(&route);
            self.stats.dropped_no_session += incoming.packets as u64;
            return None;
        }
        self.stats.accepted += 1;
        #[cfg(feature = "noise")]
        let is_sealed = incoming.sealed;
        #[cfg(not(feature = "noise"))]
        let is_sealed = false;
        // What a sealed session's packets hold is not known here.
        let early_packets = if is_sealed { 0 } else { admission.early_packets(first_push) };
        let handle = self.routes.insert(route, Role::Accepted, early_packets, first_push);
        if let Some(shard) = &self.shard {
            // The session has it itself from here on.
            shard.release_route(&route);
        }
        self.routes.set_phase(handle, self.batch.run_phase.unwrap_or_default());
        let replaced = admission.replace(incoming.source, handle);
        // Its peer has begun anew, and waits for nothing of the old session.
        let replaced = replaced.filter(|replaced| self.close(now, *replaced, None));
        let evicted = gives_way.filter(|handle| self.evict(*handle));
        if !incoming.validated && self.routes.set_half_open(handle, true) {
            self.half_open.insert(now, handle, incoming.source.ip());
            self.half_open.take_message_turn(now, incoming.source.ip(), range.len());
        }
        #[cfg(feature = "noise")]
        if is_sealed {
            self.after_accepting_sealed(&route, handle, incoming.validated, message);
        }
        Some(Accepted { run: Run { handle, range, stride: self.batch.stride }, replaced, evicted })
    }

    /// Refuses the session that [`poll_routed`](Self::poll_routed) has just returned as [`Routed::Incoming`], and counts
    /// its packets as dropped.
    pub fn refuse(&mut self, refusal: Refusal) {
        let Some(Offer { incoming, .. }) = self.offered.take() else { return };
        self.unreserve(&(incoming.source, incoming.conv));
        let (counter, cause) = match refusal {
            Refusal::QueueFull => (&mut self.stats.dropped_queue_full, "backlog"),
            Refusal::Unwanted => (&mut self.stats.dropped_no_session, "unwanted"),
        };
        *counter += incoming.packets as u64;
        tell!(refused(incoming.source, incoming.conv, cause, incoming.packets as u64));
    }

    /// Accepts no sessions from here on. Those that live go on.
    pub fn stop_accepting(&mut self) {
        if let Some(admission) = &mut self.admission {
            admission.open = false;
        }
    }

    /// Whether new sessions are accepted.
    #[must_use]
    pub fn is_accepting(&self) -> bool {
        self.admission.as_ref().is_some_and(|admission| admission.open)
    }
}
