//! A driver that is one of several of a port: see [`shards`](crate::net::shards).

use std::{boxed::Box, sync::Arc, vec::Vec};

use super::{Driver, MAX_BACKLOG};
use crate::{
    net::{
        clock,
        error::KcpError,
        shards::{Parcel, Place},
        socket::Received,
    },
    proto::{HandOver, Instant, ReplacedElsewhere},
};

/// How far the other shards have read their sockets. It is asked when a session waits for that.
#[derive(Debug, Default)]
pub(super) struct OthersRead {
    until: Instant,
    asked: bool,
}

impl OthersRead {
    /// A session cannot end before they have read more.
    pub(super) const fn ask(&mut self) {
        self.asked = true;
    }
}

impl Driver {
    /// Leaves packets to the shard whose session they are for.
    #[cold]
    pub(super) fn hand_over(&self, packets: Box<HandOver>, received: &Received<'_>) {
        let bytes = received.bytes().get(packets.range.clone()).unwrap_or_default();
        let (Some(place), false) = (&self.shared.shard, bytes.is_empty()) else { return };
        let (shard, count) = (packets.shard, bytes.len().div_ceil(packets.stride));
        let (local_ip, ecn) = (received.local_ip, received.ecn);
        let parcel = || Parcel::Packets { packets, block: Arc::new(bytes.into()), local_ip, ecn };
        if !place.leave(shard, bytes.len(), parcel) {
            self.shared.counters.dropped.shard_busy.add(count);
        }
    }

    /// Takes in what other shards have left. `now` is set to the present time if there was any.
    #[inline]
    pub(super) fn take_parcels(&mut self, now: &mut Option<Instant>) {
        if self.shared.shard.is_some() {
            self.take_parcels_of_shard(now);
        }
    }

    #[inline(never)]
    fn take_parcels_of_shard(&mut self, now: &mut Option<Instant>) {
        let shared = Arc::clone(&self.shared);
        let Some(place) = &shared.shard else { return };
        if std::mem::take(&mut self.others_read.asked) {
            // Before what they have left is taken: then all is taken that they had read until then.
            self.others_read.until = place.others_read_until();
        }
        if !place.has_parcels() {
            return;
        }
        let now = *now.get_or_insert_with(|| {
            self.before_packets();
            clock::now()
        });
        for parcel in place.take_parcels() {
            match parcel {
                Parcel::Packets { packets, mut block, local_ip, ecn } => {
                    self.endpoint.receive_handed_over(&packets, &block);
                    let (peer, len, stride) = (packets.source(), block.len(), packets.stride);
                    self.route(now, &mut Received { peer, local_ip, block: &mut block, len, stride, ecn });
                }
                Parcel::Replaced(address) => {
                    let replaced = self.endpoint.replaced(now, address);
                    if let Some(session) = replaced.and_then(|handle| self.remove(handle)) {
                        session.fail(KcpError::Replaced);
                    }
                }
            }
        }
        self.count_routed();
    }

    /// Tells another shard that its session ends, if that has come out.
    #[cold]
    pub(super) fn tell_replaced(&mut self) {
        let Some(ReplacedElsewhere { shard, address }) = self.endpoint.take_replaced_elsewhere() else {
            return;
        };
        if let Some(place) = &self.shared.shard {
            place.leave(shard, 0, || Parcel::Replaced(address));
        }
    }

    /// What arrived before this has been read, here and by the other shards.
    #[inline]
    pub(super) fn read_until(&self, now: Instant) -> Instant {
        // Where the clock stepped back, no later time counts as read.
        let until = self.reading.until.min(now);
        if self.shared.shard.is_none() {
            return until;
        }
        // A driver that does not get to read at all keeps no session alive.
        let too_long_ago =
            Instant::from_micros(now.as_micros().saturating_sub(MAX_BACKLOG.as_micros() as u64));
        until.min(self.others_read.until.max(too_long_ago))
    }

    /// Tells the other shards how far this one has read its socket, and has them read theirs if a session waits for that.
    #[inline]
    pub(super) fn after_turn(&self) {
        if let Some(place) = &self.shared.shard {
            place.set_read_until(self.reading.until);
            if self.others_read.asked {
                place.wake_others();
            }
        }
    }

    /// The driver ends. What others know of its sessions is over, whether they were or not.
    pub(super) fn leave_port(&mut self) {
        let Some(place) = &self.shared.shard else { return };
        let sessions: Vec<_> = self.endpoint.sessions().collect();
        for handle in sessions {
            self.endpoint.close(clock::now(), handle, None);
        }
        place.end();
    }

    /// Whether no other shard has a session.
    #[inline]
    pub(super) fn others_are_empty(&self) -> bool {
        self.shared.shard.as_ref().is_none_or(|place| place.all().sessions() == 0)
    }

    /// A session has ended. If it was the last of all shards, and none can begin, the drivers of the others may end, too.
    #[inline]
    pub(super) fn wake_others_if_last(&self) {
        if let Some(place) = &self.shared.shard
            && place.all().sessions() == 0
            && self.shared.run_queue.is_abandoned()
        {
            Place::wake_others(place);
        }
    }
}
