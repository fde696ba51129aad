//! The task that serves one UDP socket.
//!
//! It receives packets and has the [`Endpoint`] find their sessions, keeps the sessions' deadlines, and sends what the
//! sessions could not send themselves.
//!
//! ```text
//! receive     packets from the socket into the sessions; new sessions into the accept queue
//! sessions    what the driver keeps of each session, and which are dirty
//! parcels     where several drivers serve one port: what they have for each other
//! lingering   those that still deliver after their streams were dropped
//! openings    those that this end connects, and how many of them begin at once
//! timers      the sessions' deadlines
//! idle        when idle sessions give their memory back
//! alarm       sleeping until the earliest of them
//! overload    whether packets are lost because more come than are received
//! rebind      another socket takes the place of the present one
//! control     what the handles of the endpoint ask for
//! rotation    another key for accepted sessions
//! ```
//!
//! The driver works in turns. In one turn it receives one batch, hands each run of packets to its session under one
//! lock, and then serves every dirty session once: it wakes the session's tasks, transmits, and plans the session's next
//! deadline. A session is dirty when packets came for it, when its deadline came, or when another task scheduled it
//! ([`Shared::schedule`]); one that was just accepted a little later, so that its first answer needs no system call of its own
//! ([`Sessions::defer`]). How much one turn may do is limited, and so are the turns and the bytes before the task yields to others. With
//! nothing to do, the driver sleeps until the earliest deadline. Without a deadline it sleeps until it is woken.
//!
//! A driver may be kept from its work, by a stopped process or a busy runtime. So no session ends for its peer's silence before
//! the socket was found empty behind the session's deadline: what arrived meanwhile is read first.
//!
//! Where packets come one at a time, other code has used the processor's caches since the last one. Most of the time that
//! such a packet takes goes into fetching the code that handles it. So the code for rare cases stands in functions of its
//! own, out of the way, here and in everything that is called from here.

mod alarm;
mod control;
mod idle;
mod lingering;
mod openings;
mod overload;
mod parcels;
#[cfg(feature = "noise")]
mod randomness;
mod rebind;
mod receive;
mod rotation;
mod sessions;
#[cfg(test)]
mod tests;
mod timers;

use std::{
    boxed::Box,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
    vec::Vec,
};

use self::{
    alarm::Alarm, idle::Idle, lingering::Lingering, openings::Openings, overload::Overload,
    parcels::OthersRead, receive::RecvErrors, rotation::Rotated, sessions::Sessions, timers::Timers,
};
use super::{
    clock,
    control::Request,
    entropy,
    error::KcpError,
    handover::{Look, Next},
    session::{Moving, Session},
    shards::Place,
    shared::Shared,
    socket::Socket,
};
use crate::proto::{ConnectError, Endpoint, Handle, Instant, RoutingStats, time::earliest};

/// Turns before the task yields.
const MAX_TURNS: usize = 16;
/// Bytes received before the task yields. So much fits into a processor's cache, and readers still find it there.
const MAX_BYTES: usize = 256 << 10;
/// Deadlines that one turn serves.
const MAX_TIMEOUTS: usize = 256;
/// The least that a turn serves in which packets were received. More may wait, and the ACK that makes a resend needless may be among
/// them: where many sessions begin at once, sending all of that again before reading on makes them wait for each other for seconds.
const MIN_TIMEOUTS: usize = 4;
/// For so many packets received, a turn serves one deadline more.
const PACKETS_FOR_A_TIMEOUT: usize = 4;
/// A session whose end has come is looked at again so much later, if what arrived before it is not read yet.
const UNREAD_RETRY: Duration = Duration::from_millis(10);
/// How long what the endpoint may forget is left to its next packet. Only then the driver wakes up for it.
const FORGET_LATE: Duration = Duration::from_secs(10);
/// How often a session that waits for room in the socket's buffer is served, even if the socket reports no room.
const BLOCKED_RETRY: Duration = Duration::from_millis(50);

/// How long what a socket's buffer holds may take to be read. What arrives in this time is at least as much.
const MAX_BACKLOG: Duration = Duration::from_secs(1);

pub(super) struct Driver {
    shared: Arc<Shared>,
    /// The one that the driver receives from.
    socket: Arc<Socket>,
    /// Decides which session a packet is for.
    endpoint: Endpoint,
    /// The endpoint's counters as [`Shared::counters`] have them.
    counted: RoutingStats,
    sessions: Sessions,
    lingering: Lingering,
    openings: Openings,
    timers: Timers,
    alarm: Alarm,
    /// The run queue's sessions while they are looked at. It is kept for its memory.
    scheduled: Vec<Arc<Session>>,
    /// Sessions that wait for room in the socket's buffer.
    blocked: Vec<Handle>,
    idle: Idle,
    /// When to have the endpoint forget what has expired.
    forget_at: Option<Instant>,
    recv_errors: RecvErrors,
    /// What was asked of the driver and done.
    obeyed: Request,
    /// What accepted sessions are configured with, once their key was replaced.
    rotated: Option<Box<Rotated>>,
    /// Until when the key before the current one is accepted, if it is.
    key_retires_at: Option<Instant>,
    reading: Reading,
    overload: Overload,
    others_read: OthersRead,
}

/// How far the socket has been read.
#[derive(Debug, Default)]
struct Reading {
    /// Everything that arrived before this has been read.
    until: Instant,
    /// When the socket was empty last, or so much was read since that the time below it is over.
    since: Instant,
}

impl Reading {
    /// A turn began at `now` in which the socket was found empty or not.
    fn note(&mut self, now: Instant, empty: bool) {
        if empty {
            *self = Self { until: now, since: now };
        } else if now - self.since >= MAX_BACKLOG {
            // Nor does a flood keep silent sessions alive, or a socket that cannot be read.
            *self = Self { until: self.since, since: now };
        }
    }
}

impl Driver {
    /// # Errors
    /// The operating system has no randomness to give.
    pub(super) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let mut random = entropy::draw::<{ Endpoint::RANDOM_BYTES }>()?;
        let mut endpoint = match (&shared.accept_queue, &shared.shard) {
            (Some(queue), Some(place)) => place.endpoint(&queue.config),
            (Some(queue), None) => Endpoint::accepting(&queue.config, &mut random),
            (None, _) => Endpoint::new(&mut random),
        };
        // A session that is not known here may be known to another socket of the port.
        let socket = Arc::clone(&shared.socket());
        endpoint.set_resets(!socket.shares_port());
        // Shards have what they draw in common, and no two may have the same keys.
        #[cfg(feature = "noise")]
        endpoint.reseed_noise(&mut entropy::draw::<{ Endpoint::NOISE_RANDOM_BYTES }>()?);
        let shards = shared.shard.as_ref().map_or(1, Place::shards);
        Ok(Self {
            shared,
            socket,
            endpoint,
            counted: RoutingStats::default(),
            sessions: Sessions::default(),
            lingering: Lingering::of_one_in(shards),
            openings: Openings::default(),
            timers: Timers::default(),
            alarm: Alarm::default(),
            scheduled: Vec::new(),
            blocked: Vec::new(),
            idle: Idle::default(),
            forget_at: None,
            recv_errors: RecvErrors::default(),
            obeyed: Request::None,
            rotated: None,
            key_retires_at: None,
            reading: Reading::default(),
            overload: Overload::default(),
            others_read: OthersRead::default(),
        })
    }

    /// Marks the sessions dirty that were scheduled. Those begun here since are new to the driver.
    fn take_scheduled(&mut self) {
        if self.shared.run_queue.has_any() {
            self.take_some_scheduled();
        }
    }

    #[inline(never)]
    fn take_some_scheduled(&mut self) {
        let mut scheduled = std::mem::take(&mut self.scheduled);
        self.shared.run_queue.take(&mut scheduled);
        // First: sessions that were begun after a rebind are not to move with those of before.
        self.take_socket();
        for session in scheduled.drain(..) {
            let released = session.is_released();
            let handle = match session.handle() {
                // It may have been forgotten since.
                Some(handle) => Some(handle).filter(|handle| self.sessions.is(*handle, &session)),
                None => self.add_connected(session),
            };
            if let Some(handle) = handle {
                self.sessions.mark_dirty(handle);
                if released {
                    self.begin_linger(handle);
                }
            }
        }
        self.scheduled = scheduled;
    }

    /// Takes in a session that was begun here.
    fn add_connected(&mut self, session: Arc<Session>) -> Option<Handle> {
        if self.is_ending() {
            session.fail(KcpError::EndpointClosed);
        }
        if session.is_over() {
            return None;
        }
        let mut outcome = self.connect(&session);
        if outcome.is_err() {
            // Sessions that are over may stand in its way: they may be behind it in the run queue.
            self.forget_over(session.peer());
            outcome = self.connect(&session);
        }
        match outcome {
            Ok(handle) => {
                #[cfg(feature = "noise")]
                let awaits_route_key = session.is_sealed();
                self.sessions.insert(handle, session, false);
                #[cfg(feature = "noise")]
                if let Some(slot) = self.sessions.get_mut(handle) {
                    slot.awaits_route_key = awaits_route_key;
                }
                self.hold(handle);
                self.shared.counters.state.sessions.set(self.endpoint.len());
                Some(handle)
            }
            Err(error) => {
                session.fail(match error {
                    ConnectError::ConvInUse(_) => KcpError::ConvInUse,
                    ConnectError::OtherCipher => KcpError::OtherCipher,
                    ConnectError::IsShard => KcpError::Sharded,
                });
                None
            }
        }
    }

    /// Has the endpoint route to a session that was begun here.
    fn connect(&mut self, session: &Session) -> Result<Handle, ConnectError> {
        #[cfg(feature = "noise")]
        if session.is_sealed() {
            return self.endpoint.connect_sealed(session.peer(), session.conv);
        }
        self.endpoint.connect(session.peer(), session.conv, session.crypto().as_ref())
    }

    /// Forgets the sessions with a peer that are over.
    fn forget_over(&mut self, peer: SocketAddr) {
        let sessions: Vec<_> = self.endpoint.sessions_with(peer).collect();
        for handle in sessions {
            if self.sessions.get(handle).is_some_and(|slot| slot.session.is_over()) {
                self.forget(clock::now(), handle);
            }
        }
    }

    fn forget(&mut self, now: Instant, handle: Handle) {
        #[cfg(feature = "noise")]
        if let Some(slot) = self.sessions.get(handle).filter(|slot| slot.session.is_sealed()) {
            let (record, keys) = (slot.session.record(), slot.session.take_keys());
            self.endpoint.close_sealed(now, handle, record, keys);
            self.remove(handle);
            return;
        }
        let record = self.sessions.get(handle).map(|slot| slot.session.record());
        self.endpoint.close(now, handle, record);
        self.remove(handle);
    }

    /// Removes what the driver itself has of a session.
    fn remove(&mut self, handle: Handle) -> Option<Arc<Session>> {
        self.timers.remove(handle.index() as u32);
        self.shared.counters.state.sessions.set(self.endpoint.len());
        self.shared.counters.state.half_open.set(self.endpoint.half_open());
        self.plan_forgetting();
        self.wake_others_if_last();
        self.end_linger(handle);
        if self.sessions.get(handle).is_some_and(|slot| slot.opening.is_under_way()) {
            self.openings.end();
        }
        let session = self.sessions.remove(handle)?;
        if let Some(queue) = &self.shared.accept_queue {
            queue.forget(&session);
        }
        Some(session)
    }

    /// The stream of a session was dropped, and the session has something to deliver.
    #[cold]
    fn begin_linger(&mut self, handle: Handle) {
        let Some(slot) = self.sessions.get_mut(handle).filter(|slot| slot.lingering.is_none()) else {
            return;
        };
        if slot.session.is_over() {
            return;
        }
        slot.lingering = Some(self.lingering.add(handle, slot.session.undelivered_bytes()));
        self.begin_at_once(clock::now(), handle);
        while let Some(oldest) = self.lingering.excess(|handle| self.sessions.lingers(handle)) {
            self.end_linger(oldest);
            if let Some(slot) = self.sessions.get(oldest) {
                slot.session.abandon();
                self.sessions.mark_dirty(oldest);
            }
        }
        self.shared.counters.state.lingering.set(self.lingering.count());
    }

    /// A session that lingered is about to end.
    fn end_linger(&mut self, handle: Handle) {
        let Some(slot) = self.sessions.get_mut(handle) else { return };
        let Some(cost) = slot.lingering.take() else { return };
        slot.session.count_abandoned();
        self.lingering.remove(cost, |handle| self.sessions.lingers(handle));
        self.shared.counters.state.lingering.set(self.lingering.count());
    }

    /// Marks the sessions dirty whose deadlines have come; few of them in a turn in which `packets` were received.
    fn expire_timers(&mut self, now: Instant, packets: Option<usize>) {
        let most = packets.map_or(MAX_TIMEOUTS, |packets| {
            (packets / PACKETS_FOR_A_TIMEOUT).clamp(MIN_TIMEOUTS, MAX_TIMEOUTS)
        });
        for _ in 0..most {
            let Some(index) = self.timers.pop_expired(now) else { break };
            self.shared.counters.driver.timeouts.add(1);
            if let Some(handle) = self.sessions.handle_at(index as usize) {
                self.sessions.mark_dirty(handle);
            }
        }
    }

    /// Has sessions that stayed idle give back the memory that they kept for further traffic.
    fn trim_idle(&mut self, now: Instant) {
        if self.idle.deadline().is_none_or(|at| at > now) {
            return;
        }
        while let Some(entry) = self.idle.pop_due(now) {
            if let Some(slot) = self.sessions.get_mut(entry.1)
                && self.idle.is_over(now, entry, &mut slot.rest)
            {
                slot.session.trim();
            }
        }
    }

    /// Has the endpoint give back the memory of sessions that ended long ago.
    fn forget_expired(&mut self, now: Instant) {
        if self.forget_at.is_some_and(|at| at <= now) {
            self.forget_at = None;
            self.endpoint.forget_expired(now);
            #[cfg(feature = "noise")]
            self.reseed_noise();
            self.plan_forgetting();
        }
    }

    fn plan_forgetting(&mut self) {
        if self.forget_at.is_none() {
            self.forget_at = self.endpoint.expires_at().map(|at| at + FORGET_LATE);
        }
    }

    /// Marks the sessions dirty that found the socket full, once it has room.
    fn retry_blocked(&mut self, cx: &mut Context<'_>) {
        if self.blocked.is_empty() || self.socket.poll_send_ready(cx).is_pending() {
            return;
        }
        self.unblock_all();
    }

    fn unblock_all(&mut self) {
        for handle in std::mem::take(&mut self.blocked) {
            if let Some(slot) = self.sessions.get_mut(handle) {
                slot.blocked = false;
            }
            self.sessions.mark_dirty(handle);
        }
    }

    /// Serves every dirty session once.
    fn serve_dirty(&mut self, now: Instant) {
        // A session that becomes dirty again meanwhile stands behind these, and is served in the next turn.
        let count = self.sessions.dirty_count();
        let read_until = self.read_until(now);
        for nth in 0..count {
            let Some((handle, slot)) = self.sessions.clean(nth) else { continue };
            let last = slot.rest.end(now);
            match slot.session.serve(Look { now, read_until, last }) {
                Next::Wait(deadline) => {
                    self.idle.add(handle, &mut slot.rest, deadline, || slot.session.keeps_little());
                    match deadline {
                        Some(at) if at <= now && read_until < now => {
                            self.others_read.ask();
                            self.timers.set(handle.index() as u32, now + UNREAD_RETRY);
                        }
                        Some(at) => self.timers.set(handle.index() as u32, at),
                        None => self.timers.remove(handle.index() as u32),
                    }
                }
                Next::Again => self.sessions.mark_dirty(handle),
                Next::Blocked => {
                    if !std::mem::replace(&mut slot.blocked, true) {
                        self.blocked.push(handle);
                    }
                    // A session that cannot send still dies at its deadline.
                    self.timers.set(handle.index() as u32, now + BLOCKED_RETRY);
                }
                Next::Remove => self.forget(now, handle),
            }
            self.after_serving(now, handle);
        }
        self.sessions.drop_served(count);
    }

    /// Has the endpoint know of a session that followed its peer to another address, or whose peer has shown that it hears this
    /// end.
    #[inline]
    fn after_serving(&mut self, now: Instant, handle: Handle) {
        let Some(slot) = self.sessions.get(handle) else { return };
        let (may_move, half_open, opening) = (slot.may_move, slot.half_open, slot.opening);
        if may_move {
            self.follow_if_moved(now, handle);
        }
        if half_open {
            self.note_if_validated(handle);
        }
        if opening.is_under_way() {
            self.note_if_answered(now, handle);
        }
    }

    #[cold]
    fn note_if_validated(&mut self, handle: Handle) {
        let Some(slot) = self.sessions.get_mut(handle).filter(|slot| slot.session.is_validated()) else {
            return;
        };
        slot.half_open = false;
        self.endpoint.validated(handle);
        self.shared.counters.state.half_open.set(self.endpoint.half_open());
    }

    #[cold]
    fn follow_if_moved(&mut self, now: Instant, handle: Handle) {
        let Some(slot) = self.sessions.get_mut(handle) else { return };
        let moving = slot.session.moving();
        slot.may_move = moving == Moving::Maybe;
        let Moving::Done(to) = moving else { return };
        match self.endpoint.moved(now, handle, to) {
            Ok(None) => self.tell_replaced(),
            Ok(Some(replaced)) => {
                if let Some(replaced) = self.remove(replaced) {
                    replaced.fail(KcpError::Replaced);
                }
            }
            Err(_) => {
                slot.session.fail(KcpError::ConvInUse);
                self.sessions.mark_dirty(handle);
            }
        }
    }

    /// Whether there is nothing to do any more, and never will be.
    fn is_done(&self) -> bool {
        self.is_abandoned() && self.endpoint.asked_until().is_none_or(|until| until <= clock::now())
    }

    /// Whether nobody has anything to do with the socket any more, but for peers that missed the answer to their last segment.
    fn is_abandoned(&self) -> bool {
        self.endpoint.is_empty() && self.shared.run_queue.is_abandoned() && self.others_are_empty()
    }

    /// Sleeps until the earliest deadline. `Ready` once it has come.
    fn poll_sleep(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let idle = self.idle.deadline();
        let retry = self.recv_errors.paused_until();
        let end = self.endpoint.asked_until().filter(|_| self.is_abandoned());
        let place = self.openings.deadline();
        let deadlines = [self.timers.next(), idle, retry, end, place, self.forget_at, self.key_retires_at];
        self.alarm.poll(cx, earliest(deadlines))
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.shared.counters.driver.wakeups.add(1);
        this.shared.run_queue.register_driver(cx.waker());
        if let Some(place) = &this.shared.shard {
            place.register_driver(cx.waker());
        }
        this.recv_errors.end_pause();
        this.take_socket();
        this.obey();
        this.take_keys();
        let mut bytes = 0;
        this.sessions.begin_poll();
        // A session that is scheduled after this wakes the task again.
        this.take_scheduled();
        let mut due = true;
        for _ in 0..MAX_TURNS {
            let mut now = None;
            let reads = this.recv_errors.paused_until().is_none();
            let received = if reads { this.receive(cx, &mut now) } else { None };
            if received.is_none() {
                this.overload.end();
            }
            this.take_parcels(&mut now);
            // If nothing came and no session is dirty, the turn before has done all this.
            if std::mem::take(&mut due) || received.is_some() || this.sessions.dirty_count() > 0 {
                // The clock is read once a turn. A deadline that comes meanwhile is the next turn's.
                let now = now.unwrap_or_else(clock::now);
                this.reading.note(now, reads && received.is_none());
                if received.is_some() && this.overload.note(now) {
                    this.look_for_overload(now);
                }
                this.expire_timers(now, received.as_ref().map(|batch| batch.packets));
                this.trim_idle(now);
                this.forget_expired(now);
                this.retire_key(now);
                this.begin_held(now);
                this.serve_dirty(now);
                this.begin_held(now);
                this.after_turn();
                this.retry_blocked(cx);
            }
            this.announce_idle();
            if received.is_some() || this.sessions.dirty_count() > 0 {
                bytes += received.map_or(0, |batch| batch.bytes);
                if bytes < MAX_BYTES {
                    continue;
                }
                break;
            }
            if this.is_done() {
                return Poll::Ready(());
            }
            if this.sessions.has_deferred() {
                break;
            }
            ready!(this.poll_sleep(cx));
            due = true;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The runtime shuts down, or there is nothing left to serve. Nobody may wait for this driver any more.
        self.shared.run_queue.close();
        self.take_scheduled();
        if let Some(queue) = &self.shared.accept_queue {
            queue.driver_gone();
            drop(queue.take());
        }
        for slot in self.sessions.iter() {
            slot.session.fail(KcpError::RuntimeGone);
            if slot.lingering.is_some() {
                slot.session.count_abandoned();
            }
        }
        self.shared.counters.state.lingering.set(0);
        self.leave_port();
        self.shared.control.end();
    }
}
