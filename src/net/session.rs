//! One session between its stream and its driver.
//!
//! Both work on the [`Connection`] under one short lock. Whoever changes it also sends what that makes sendable, outside the
//! lock. What cannot be done on the spot (a full socket, an earlier deadline, a session to be forgotten) is left to the
//! driver: the session is scheduled. [`handover`](super::handover) has the rules of that; here is what both sides do.

mod control;
mod datagrams;
mod moves;
#[cfg(feature = "metrics")]
mod registered;
mod state;
mod stream_side;
mod transmit;

pub(super) use self::{
    moves::Moving,
    state::{PeerAddress, is_refusal},
};
use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use self::state::State;
use super::{
    clock,
    error::KcpError,
    handover::{Handover, Look, Next, Scheduled},
    shared::Shared,
    trace::{Role, SessionTrace},
    wake_list::WakeList,
};
use crate::{
    crypto::PacketCrypto,
    proto::{AbortReason, Block, ClosedRecord, Connection, EcnCodepoint, Handle, Instant},
};

/// A session, held by its stream, by the driver's table, and by the run queue while it is scheduled.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) conv: u32,
    pub(super) shared: Arc<Shared>,
    scheduled: Scheduled,
    /// It waits in the accept queue.
    pub(super) is_waiting: AtomicBool,
    /// No stream refers to it any more, and the driver is to know. The state under the lock says so too.
    released: AtomicBool,
    /// The driver's name for it, once the driver knows it.
    handle: OnceLock<Handle>,
    /// Its number in the registry, or [`registered::NOWHERE`].
    #[cfg(feature = "metrics")]
    registered: std::sync::atomic::AtomicU32,
    handover: Handover<State>,
    trace: SessionTrace,
}

/// The lock of a session's state.
type Guard<'a> = super::handover::Guard<'a, State>;

impl Session {
    pub(super) fn new(
        shared: Arc<Shared>,
        mut connection: Connection,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
        role: Role,
    ) -> Self {
        connection.set_buffer_memory(&shared.memory);
        let trace = shared.trace.session(&connection, peer, role);
        let state = State::new(connection, PeerAddress { peer, local_ip }, shared.trace.state());
        Self {
            conv: state.connection.conv(),
            shared,
            scheduled: Scheduled::new(),
            is_waiting: AtomicBool::new(false),
            released: AtomicBool::new(false),
            handle: OnceLock::new(),
            #[cfg(feature = "metrics")]
            registered: registered::NOWHERE.into(),
            handover: Handover::new(state),
            trace,
        }
    }

    /// Looks at or changes the connection, in a task of the application. Sends what that makes sendable if `transmit`.
    pub(super) fn with<R>(self: &Arc<Self>, transmit: bool, work: impl FnOnce(&mut Connection) -> R) -> R {
        self.act(|mut state, wakes| {
            let result = work(&mut state.connection);
            let next = if transmit { self.transmit(state, wakes, false) } else { Next::Wait(None) };
            (result, next)
        })
    }

    /// Runs `work` under the lock, in a task of the application. Then, without the lock, wakes the tasks that `work` listed,
    /// and leaves to the driver what `work` says is to be done next.
    fn act<R>(self: &Arc<Self>, work: impl FnOnce(Guard<'_>, &mut WakeList) -> (R, Next)) -> R {
        let _entered = self.trace.enter();
        self.handover.act(work, || self.shared.schedule(self))
    }

    /// Whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.handover.locked(|state, _| state.connection.close_reason().is_some())
    }

    /// Whether something has arrived that was not read.
    pub(super) fn has_unread(&self) -> bool {
        self.handover.locked(|state, _| state.connection.has_unread())
    }

    /// Whether its peer has shown that it hears this end.
    pub(super) fn is_validated(&self) -> bool {
        self.handover.locked(|state, _| state.connection.is_validated())
    }

    /// Has it send nothing before [`begin`](Self::begin).
    pub(super) fn hold(&self) {
        self.handover.locked(|mut state, _| state.held = true);
    }

    /// Has it send from here on.
    pub(super) fn begin(&self) {
        self.handover.locked(|mut state, _| state.held = false);
    }

    /// Whether anything was heard from its peer.
    pub(super) fn is_answered(&self) -> bool {
        self.handover.locked(|state, _| state.connection.has_heard())
    }

    /// Whether no stream refers to it any more.
    pub(super) fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// Bytes written that the peer has not acknowledged.
    pub(super) fn undelivered_bytes(&self) -> usize {
        self.handover.locked(|state, _| state.connection.undelivered_bytes())
    }

    /// Counts what the dropped stream had not delivered as the session ended.
    pub(super) fn count_abandoned(&self) {
        self.shared.counters.driver.bytes_abandoned.add(self.undelivered_bytes());
    }

    /// Gives up what is still to be delivered after the stream was dropped.
    pub(super) fn abandon(&self) {
        let _entered = self.trace.enter();
        self.handover.locked(|mut state, wakes| {
            state.connection.abort(clock::now(), AbortReason::TimedOut);
            state.collect_events(wakes);
        });
    }

    /// Ends the session: everything pending fails with `failure`.
    pub(super) fn fail(&self, failure: KcpError) {
        let _entered = self.trace.enter();
        self.handover.locked(|mut state, wakes| {
            state.fail(failure);
            state.collect_events(wakes);
        });
    }

    // ---- The driver's side ----

    /// Takes in the decrypted packets in `block[range]`, `stride` bytes each (the last may be shorter), which came with this ECN field,
    /// and counts those dropped.
    pub(super) fn receive(
        &self,
        now: Instant,
        block: &mut Block,
        range: Range<usize>,
        stride: usize,
        ecn: EcnCodepoint,
    ) {
        let _entered = self.trace.enter();
        let (drops, expects_ecn) = self.handover.locked(|mut state, _| {
            let (connection, len) = (&mut state.connection, range.len());
            #[cfg(feature = "noise")]
            let drops = connection.handle_sealed_batch(now, block, range, stride);
            #[cfg(not(feature = "noise"))]
            let drops = connection.handle_batch(now, block, range, stride);
            if ecn != EcnCodepoint::NotEct {
                let dropped = drops.replayed + drops.malformed;
                connection.handle_ecn(now, ecn, len.div_ceil(stride.max(1)).saturating_sub(dropped));
            }
            (drops, connection.begins_to_expect_ecn())
        });
        if expects_ecn {
            self.shared.socket().read_ecn();
        }
        let counters = &self.shared.counters;
        if drops.replayed > 0 {
            counters.dropped.replayed.add(drops.replayed);
        }
        if drops.malformed > 0 {
            counters.dropped.malformed.add(drops.malformed);
        }
    }

    /// How its packets are encrypted.
    pub(super) fn crypto(&self) -> Option<PacketCrypto> {
        self.handover.locked(|state, _| state.connection.crypto().cloned())
    }

    /// What is left of it for the endpoint.
    pub(super) fn record(&self) -> ClosedRecord {
        self.handover.locked(|state, _| state.connection.record())
    }

    /// Whether its packets are opened by its connection.
    #[cfg(feature = "noise")]
    pub(super) fn is_sealed(&self) -> bool {
        self.handover.locked(|state, _| state.connection.is_sealed())
    }

    /// What hides the routes of its packets, once it has agreed on keys.
    #[cfg(feature = "noise")]
    pub(super) fn route_key(&self) -> Option<crate::proto::noise::RouteKey> {
        self.handover.locked(|state, _| state.connection.route_key().cloned())
    }

    /// Its keys, once it has ended: it sends and receives nothing more.
    #[cfg(feature = "noise")]
    pub(super) fn take_keys(&self) -> Option<std::boxed::Box<crate::proto::noise::SessionKeys>> {
        self.handover.locked(|mut state, _| state.connection.take_session_keys())
    }

    /// The static public key of its peer.
    #[cfg(feature = "noise")]
    pub(super) fn peer_key(&self) -> Option<crate::proto::noise::PublicKey> {
        self.handover.locked(|state, _| state.connection.peer_key())
    }

    /// Whether what was read so far may be a recording.
    #[cfg(feature = "noise")]
    pub(super) fn may_be_replayed(&self) -> bool {
        self.handover.locked(|state, _| state.connection.may_be_replayed())
    }

    /// What ties something to it.
    #[cfg(feature = "noise")]
    pub(super) fn handshake_hash(&self) -> Option<[u8; 32]> {
        self.handover.locked(|state, _| state.connection.handshake_hash())
    }

    /// Does what is due, wakes the tasks that it concerns, and sends.
    pub(super) fn serve(&self, look: Look) -> Next {
        let _entered = self.trace.enter();
        self.handover.serve(look, |state| self.send_batches(state, clock::now(), false))
    }

    /// Whether it keeps so little memory for further traffic that [`trim`](Self::trim) can wait.
    pub(super) fn keeps_little(&self) -> bool {
        self.handover.locked(|state, _| state.connection.keeps_little())
    }

    /// Gives back the memory kept for further traffic.
    pub(super) fn trim(&self) {
        let _entered = self.trace.enter();
        self.handover.locked(|mut state, _| state.trim());
    }
}

impl AsRef<Scheduled> for Session {
    fn as_ref(&self) -> &Scheduled {
        &self.scheduled
    }
}
