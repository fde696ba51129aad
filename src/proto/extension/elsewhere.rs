//! What a session does about other addresses than those of its path: see [`moves`](super::moves) for the rules.

use alloc::boxed::Box;
use core::{net::SocketAddr, time::Duration};

use super::{
    Conditions, Extension, Written,
    handshake::Verdict,
    moves::{Follower, Move, Rebind},
    segment::{Caps, Envelope, Segment, Subtype},
};
use crate::proto::{
    time::{Instant, earliest},
    wire::{Command, SegmentHeader},
};

/// The tag of a PING or a PONG.
pub(in crate::proto) fn probe_tag(header: &SegmentHeader) -> Option<u32> {
    let is_probe = matches!(Subtype::from_byte(header.frg), Some(Subtype::Ping | Subtype::Pong));
    (header.cmd == Command::Extension && is_probe).then_some(header.sn)
}

impl Extension {
    /// The tag by which the peer's PINGs are found from wherever they come.
    pub(in crate::proto) const fn tag(&self) -> u32 {
        self.handshake.tag()
    }

    /// Whether this end follows its peer.
    pub(in crate::proto) const fn follows(&self) -> bool {
        self.handshake.caps().has(Caps::MOVE)
    }

    /// Whether the peer follows this end.
    pub(in crate::proto) fn is_followed(&self) -> bool {
        self.is_confirmed() && self.handshake.peer().is_some_and(|peer| peer.caps.has(Caps::MOVE))
    }

    /// Takes in an extension segment of this conversation that came from another address than the peer's, in a packet that
    /// only a holder of the key can have made. `is_fresh` tells whether a PING with this `ts` was sent later than what came
    /// before. Only PING and PONG count (R52).
    #[cold]
    pub(in crate::proto) fn input_from(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &SegmentHeader,
        body: &[u8],
        conditions: &Conditions,
        is_fresh: impl FnOnce(u32) -> bool,
    ) {
        let subtype = Subtype::from_byte(header.frg).filter(|_| header.sn == self.tag() && self.follows());
        let segment = subtype.and_then(|subtype| Segment::parse(subtype, header, body).ok());
        // Its PONG of the handshake may have been lost with its address: who knows the tag has heard this end all the same.
        let is_peers = match segment {
            Some(Segment::Pong(token)) if self.handshake.on_pong(token) => true,
            Some(Segment::Ping(_) | Segment::Pong(_)) => {
                self.handshake.on_tagged(now, conditions) == Verdict::Taken
            }
            _ => false,
        };
        let taken = match segment.filter(|_| is_peers && self.is_confirmed()) {
            Some(Segment::Ping(token)) if is_fresh(header.ts) => {
                let secret = self.handshake.secret();
                let follower = self.follower.get_or_insert_with(|| Box::new(Follower::new(secret)));
                follower.on_ping_from(now, from, token, conditions.rto)
            }
            Some(Segment::Pong(token)) => {
                self.follower.as_mut().is_some_and(|follower| follower.on_pong_from(now, from, token))
            }
            _ => false,
        };
        *(if taken { &mut self.stats.received } else { &mut self.stats.dropped }) += 1;
    }

    /// Writes the PING that is to be sent to another address than the peer's. Returns where to, and its length.
    #[cold]
    pub(in crate::proto) fn write_elsewhere(
        &mut self,
        envelope: Envelope,
        out: &mut [u8],
    ) -> Option<(SocketAddr, usize)> {
        let (to, token) = self.follower.as_mut()?.take_new()?;
        let len = envelope.write_ping(token, self.handshake.peer_tag()?, out)?;
        self.stats.sent += 1;
        Some((to, len))
    }

    /// Whether it is open where the peer is.
    #[cfg(feature = "tokio")]
    pub(in crate::proto) fn may_move(&self) -> bool {
        self.follower.as_ref().is_some_and(|follower| follower.deadline().is_some())
    }

    /// Whether [`take_moved`](Self::take_moved) has an address.
    pub(in crate::proto) const fn has_moved(&self) -> bool {
        self.moved.is_some()
    }

    /// The session goes on at this address from now on.
    pub(in crate::proto) fn take_moved(&mut self) -> Option<SocketAddr> {
        self.moved.take().map(|to| *to)
    }

    /// This end is at another address: the peer is to learn it.
    pub(in crate::proto) fn rebind(&mut self) {
        self.stats.moves += 1;
        self.ping.forget_mtu_probes();
        self.rebind = Some(Box::new(Rebind::new(self.handshake.secret(), self.stats.moves)));
    }

    pub(super) fn follow(&mut self, Move { to, pong }: Move) {
        self.stats.moves += 1;
        self.ping.forget_mtu_probes();
        self.moved = Some(Box::new(to));
        self.ping.answer(pong);
    }

    pub(super) fn move_deadline(&self) -> Option<Instant> {
        let follower = self.follower.as_ref().and_then(|follower| follower.deadline());
        let rebind = self.rebind.as_ref().and_then(|rebind| rebind.deadline());
        earliest([follower, rebind])
    }

    pub(super) fn on_move_timeout(&mut self, now: Instant, conditions: &Conditions) {
        if let Some(follower) = &mut self.follower
            && let Some(moved) = follower.on_timeout(now, conditions.read_until, conditions.last_heard)
        {
            self.follow(moved);
        }
        if let Some(rebind) = &mut self.rebind {
            rebind.on_timeout(now);
        }
    }

    /// Whether a PING is to be sent over the session's path because one of the two ends may have moved.
    pub(super) fn has_move_question(&self) -> bool {
        self.follower.as_ref().is_some_and(|follower| follower.asks_old())
            || self.rebind.as_ref().is_some_and(|rebind| rebind.asks())
    }

    /// Writes that PING. Returns its length, and whether the peer owes an answer.
    #[cold]
    pub(super) fn write_move_question(
        &mut self,
        now: Instant,
        envelope: Envelope,
        out: &mut [u8],
        rto: Duration,
    ) -> Option<Written> {
        // Who may have left the old address owes no answer there.
        let own = self.rebind.as_mut().and_then(|rebind| rebind.take(now, rto));
        let token = own.or_else(|| self.follower.as_mut()?.take_old())?;
        let len = envelope.write_ping(token, self.handshake.peer_tag()?, out)?;
        Some(Written { len, begins: false, owed: own.is_some() })
    }
}
