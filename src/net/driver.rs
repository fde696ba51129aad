//! The task that serves one UDP socket: it receives, routes by (address, conv), keeps the timers, and sends what its
//! sessions could not send themselves.
//!
//! One turn is: look at the sessions scheduled, receive a batch, take each run of packets into its session under one
//! lock, then serve every session touched once (wake its tasks, transmit, plan its next deadline). A turn is bounded, and
//! so are the turns and the bytes before the task yields to others. With nothing to do it sleeps until the earliest
//! deadline, or, with none, until it is woken.
//!
//! Where packets come one by one, others have used the caches since the last: the time that one takes is above all that of
//! fetching the code which it runs. So what is rare stands in functions of its own, here and in all that is called from
//! here.

mod runs;

use std::{
    boxed::Box,
    collections::{HashMap, VecDeque},
    future::Future,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
    vec::Vec,
};

use tokio::{task::coop, time::Sleep};

use super::{
    accept_queue::{AcceptQueue, Admission, Ended},
    clock,
    error::Failure,
    opener::{Opened, Opener},
    recently_closed::RecentlyClosed,
    session::{Next, Session},
    shared::Shared,
    table::{Route, Table},
    timers::Timers,
};
use crate::proto::{
    Connection, Instant, KcpConfig, pipeline::begins_session, replay::ReplayWindow, time::earliest,
};

/// Turns before the task yields.
const MAX_TURNS: usize = 16;
/// Bytes received before the task yields: so much of a processor's cache that readers still find it there.
const MAX_BYTES: usize = 256 << 10;
/// Sessions served for their deadlines in one turn.
const MAX_TIMEOUTS: usize = 256;
/// Failing receive calls in a row before the driver waits a little: no error keeps it from trying again.
const MAX_RECV_ERRORS: u32 = 16;
const RECV_ERROR_WAIT: Duration = Duration::from_millis(10);
/// How long a session keeps memory for further traffic after it went idle.
const IDLE_MEMORY: Duration = Duration::from_secs(1);

/// How far a deadline moves before its timer does: less than that Tokio's timers do not tell apart.
const TIMER_GRAIN: Duration = Duration::from_millis(1);

/// How often a session that waits for room in the socket's buffer is looked at, whatever the socket says.
const BLOCKED_LOOK: Duration = Duration::from_millis(50);

/// Packets that began a session which a listener remembers, so that none begins a second; at most 512 KiB.
const FIRST_PACKETS: usize = 16_384;

pub(super) struct Driver {
    shared: Arc<Shared>,
    table: Table,
    /// The session that packets were last for.
    found_last: u32,
    timers: Timers,
    closed: RecentlyClosed,
    /// When the timer ends, and the timer, which was polled when it was set.
    sleep: Option<(Instant, Pin<Box<Sleep>>)>,
    /// Sessions to be served in this turn.
    touched: Vec<u32>,
    scheduled: Vec<Arc<Session>>,
    /// Sessions that wait for room in the socket's buffer.
    blocked: Vec<u32>,
    /// Sessions that went idle, and when to look whether they still are.
    idle: VecDeque<(Instant, u32)>,
    recv_errors: u32,
    opener: Opener,
    /// The packets that began a session, or could have.
    first_packets: ReplayWindow,
    /// Whether only the conversation begun last from an address lives.
    one_per_address: bool,
    /// That conversation, where it is so.
    only: HashMap<SocketAddr, u32>,
    listener_closed: bool,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let listener = shared.accept_queue.as_ref().map(|queue| &queue.config);
        let one_per_address = listener.is_some_and(KcpConfig::one_session_per_address);
        let opener = match listener {
            Some(config) => Opener::of_listener(config.crypto().cloned()),
            None => Opener::of_endpoint(),
        };
        Self {
            shared,
            table: Table::default(),
            found_last: 0,
            timers: Timers::default(),
            closed: RecentlyClosed::default(),
            sleep: None,
            touched: Vec::new(),
            scheduled: Vec::new(),
            blocked: Vec::new(),
            idle: VecDeque::new(),
            recv_errors: 0,
            opener,
            first_packets: ReplayWindow::new(FIRST_PACKETS),
            one_per_address,
            only: HashMap::new(),
            listener_closed: false,
        }
    }

    /// Takes note of new sessions, and of those that want something.
    fn look_at_scheduled(&mut self) {
        if self.shared.has_scheduled() {
            self.take_scheduled();
        }
    }

    #[inline(never)]
    fn take_scheduled(&mut self) {
        let mut scheduled = std::mem::take(&mut self.scheduled);
        self.shared.take_scheduled(&mut scheduled);
        for session in scheduled.drain(..) {
            let known = self.table.find(&(session.peer, session.conv));
            let known = known
                .filter(|key| self.table.get(*key).is_some_and(|slot| Arc::ptr_eq(&slot.session, &session)));
            if let Some(key) = known.or_else(|| self.adopt(session)) {
                self.touch(key);
            }
        }
        self.scheduled = scheduled;
    }

    /// Takes a session that was opened here into the table.
    fn adopt(&mut self, session: Arc<Session>) -> Option<u32> {
        if session.is_over() {
            return None;
        }
        if let Some(key) = self.table.find(&(session.peer, session.conv)) {
            // One that is over only waits to be forgotten: it may be on the same list as its successor.
            if !self.table.get(key).is_some_and(|slot| slot.session.is_over()) {
                session.fail(Failure::ConvInUse);
                return None;
            }
            self.forget(clock::now(), key);
        }
        if !self.opener.add(session.peer, session.crypto()) {
            // The cipher may be that of sessions that only wait to be forgotten.
            self.forget_ended(session.peer);
            if !self.opener.add(session.peer, session.crypto()) {
                session.fail(Failure::OtherCipher);
                return None;
            }
        }
        let key = self.table.insert(session, false);
        self.shared.counters.sessions.set(self.table.len());
        Some(key)
    }

    /// Forgets the sessions of a peer that are over.
    fn forget_ended(&mut self, peer: SocketAddr) {
        for key in self.table.keys_of(peer) {
            if self.table.get(key).is_some_and(|slot| slot.session.is_over()) {
                self.forget(clock::now(), key);
            }
        }
    }

    fn touch(&mut self, key: u32) {
        if let Some(slot) = self.table.get(key)
            && !slot.touched
        {
            slot.touched = true;
            self.touched.push(key);
        }
    }

    /// Receives one batch and returns its bytes, `None` if there was none. `now` is set to when the first of it was there.
    fn receive(&mut self, cx: &mut Context<'_>, now: &mut Option<Instant>) -> Option<usize> {
        let shared = Arc::clone(&self.shared);
        let (mut count, mut bytes) = (0, 0);
        let outcome = shared.socket.poll_recv(cx, |received| {
            let now = *now.get_or_insert_with(|| {
                // A session opened before its peer answered must be in the table by now.
                self.look_at_scheduled();
                clock::now()
            });
            count += received.len.div_ceil(received.size).max(1);
            bytes += received.len;
            self.route(now, received);
        });
        match outcome {
            Poll::Pending => return None,
            Poll::Ready(Ok(())) => {
                self.recv_errors = 0;
                shared.counters.recv_calls.add(1);
                shared.counters.packets_received.add(count);
            }
            Poll::Ready(Err(_)) => {
                // An ICMP answer to something sent, or a shortage of memory: the socket itself is fine.
                self.recv_errors += 1;
                shared.counters.recv_errors.add(1);
            }
        }
        Some(bytes)
    }

    /// Remembers the packets that begin a session which has begun: a replay of one from elsewhere begins none.
    fn note_first_packets(&mut self, key: u32, run: &[u8], opened: &Opened) {
        let Some(slot) = self.table.get(key).filter(|slot| slot.first_packets > 0) else { return };
        slot.first_packets = slot.first_packets.saturating_sub(run.len().div_ceil(opened.size));
        for packet in run.chunks(opened.size) {
            if begins_session(opened.payload(packet))
                && let Some(identity) = opened.authentic_identity(packet)
            {
                self.first_packets.insert(identity);
            }
        }
    }

    /// Whether a run of packets begins a session, and how many of it are replays of what began one.
    fn begins_session(&mut self, run: &[u8], opened: &Opened) -> (bool, usize) {
        let (mut begins, mut replayed) = (false, 0);
        // What a session here has sent is known when it comes back.
        for identity in self.shared.take_sent_first() {
            self.first_packets.insert(identity);
        }
        for packet in run.chunks(opened.size) {
            if !begins_session(opened.payload(packet)) {
                continue;
            }
            if opened.authentic_identity(packet).is_none_or(|identity| self.first_packets.insert(identity)) {
                begins = true;
            } else {
                replayed += 1;
            }
        }
        (begins, replayed)
    }

    /// Opens a session for packets of a new peer or a new conversation, if they begin one and it is wanted.
    fn open(
        &mut self,
        now: Instant,
        route: Route,
        local_ip: Option<IpAddr>,
        run: &[u8],
        opened: &Opened,
    ) -> Option<u32> {
        let shared = Arc::clone(&self.shared);
        let packets = run.len().div_ceil(opened.size);
        let Some(queue) = &shared.accept_queue else {
            shared.counters.dropped_no_session.add(packets);
            return None;
        };
        let (begins, replayed) = self.begins_session(run, opened);
        // Nothing can be sent to port 0: the system answers `EINVAL`, which quinn-udp takes for a lack of GSO.
        if !begins || route.0.port() == 0 || self.closed.contains(&route, now) {
            shared.counters.dropped_replayed.add(replayed);
            shared.counters.dropped_no_session.add(packets - replayed);
            return None;
        }
        match queue.admission() {
            Admission::Room => {}
            Admission::Full => {
                shared.counters.dropped_backlog.add(packets);
                return None;
            }
            Admission::Ended => {
                shared.counters.dropped_no_session.add(packets);
                return None;
            }
        }
        // Nothing can be sent from what many listen to.
        let local_ip = local_ip.filter(|ip| !ip.is_multicast() && *ip != IpAddr::V4(Ipv4Addr::BROADCAST));
        let connection = Connection::new(route.1, &queue.config, now);
        let session = Arc::new(Session::new(Arc::clone(&shared), connection, route.0, local_ip));
        if !queue.push(Arc::clone(&session)) {
            shared.counters.dropped_no_session.add(packets);
            return None;
        }
        if self.one_per_address {
            self.replace(now, route.0, route.1);
        }
        let key = self.table.insert(session, true);
        shared.counters.accepted.add(1);
        shared.counters.sessions.set(self.table.len());
        Some(key)
    }

    /// kcp-go's rule: a conversation ends the one before it from the same address.
    fn replace(&mut self, now: Instant, peer: SocketAddr, conv: u32) {
        let Some(before) = self.only.insert(peer, conv) else { return };
        let Some(key) = self.table.find(&(peer, before)) else { return };
        if let Some(slot) = self.table.get(key) {
            slot.session.fail(Failure::Replaced);
        }
        self.forget(now, key);
    }

    fn forget(&mut self, now: Instant, key: u32) {
        self.timers.remove(key);
        let Some(slot) = self.table.remove(key) else { return };
        let Session { peer, conv, .. } = *slot.session;
        if slot.accepted {
            self.closed.insert((peer, conv), now);
            if self.only.get(&peer) == Some(&conv) {
                self.only.remove(&peer);
            }
        } else {
            self.opener.remove(peer);
        }
        self.shared.counters.sessions.set(self.table.len());
    }

    /// Serves the sessions whose deadlines have come.
    fn look_at_timers(&mut self, now: Instant) {
        for _ in 0..MAX_TIMEOUTS {
            let Some(key) = self.timers.pop_expired(now) else { break };
            self.shared.counters.timeouts.add(1);
            self.touch(key);
        }
    }

    /// Has sessions that stayed idle give back the memory that they kept for further traffic.
    fn look_at_idle(&mut self, now: Instant) {
        if self.idle.front().is_some_and(|(at, _)| *at <= now) {
            self.trim_idle(now);
        }
    }

    #[cold]
    fn trim_idle(&mut self, now: Instant) {
        while let Some((at, key)) = self.idle.front().copied().filter(|(at, _)| *at <= now) {
            self.idle.pop_front();
            let Some(slot) = self.table.get(key).filter(|slot| slot.idle) else { continue };
            if slot.served_at + IDLE_MEMORY > at {
                self.idle.push_back((slot.served_at + IDLE_MEMORY, key));
            } else {
                slot.idle = false;
                slot.session.trim();
            }
        }
        if self.idle.is_empty() {
            self.idle = VecDeque::new();
        }
    }

    /// Tries the sessions that found the socket full again, if it is not any more.
    fn look_at_blocked(&mut self, cx: &mut Context<'_>) {
        if self.blocked.is_empty() || self.shared.socket.poll_send_ready(cx).is_pending() {
            return;
        }
        for key in std::mem::take(&mut self.blocked) {
            if let Some(slot) = self.table.get(key) {
                slot.blocked = false;
            }
            self.touch(key);
        }
    }

    /// Serves every session touched.
    fn serve_touched(&mut self, now: Instant) {
        let count = self.touched.len();
        for index in 0..count {
            let key = self.touched[index];
            let Some(slot) = self.table.get(key) else { continue };
            slot.touched = false;
            slot.served_at = now;
            match slot.session.serve(now) {
                Next::Wait(deadline) => {
                    if !slot.idle && deadline.is_none_or(|at| at > now + IDLE_MEMORY) {
                        slot.idle = true;
                        self.idle.push_back((now + IDLE_MEMORY, key));
                    }
                    match deadline {
                        Some(at) => self.timers.set(key, at),
                        None => self.timers.remove(key),
                    }
                }
                Next::Again => self.touch(key),
                Next::Blocked => {
                    if !std::mem::replace(&mut slot.blocked, true) {
                        self.blocked.push(key);
                    }
                    // A session that cannot send still dies at its deadline.
                    self.timers.set(key, now + BLOCKED_LOOK);
                }
                Next::Remove => self.forget(now, key),
            }
        }
        // What asked for another look was put behind them.
        self.touched.drain(..count);
    }

    /// Whether nothing can come any more.
    fn is_done(&self) -> bool {
        // In this order: who opens a session schedules it before it stops being an owner.
        self.table.len() == 0 && !self.shared.has_owners() && !self.shared.has_scheduled()
    }

    /// Ends the sessions of a listener that was closed.
    fn look_at_listener(&mut self) {
        if self.listener_closed || !self.shared.accept_queue.as_ref().is_some_and(AcceptQueue::is_closed) {
            return;
        }
        self.listener_closed = true;
        for slot in self.table.iter().filter(|slot| slot.accepted) {
            slot.session.fail(Failure::ListenerClosed);
        }
    }

    /// Sleeps until the earliest deadline; returns whether it has come.
    fn poll_sleep(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let idle = self.idle.front().map(|(at, _)| *at);
        let mut deadline = earliest([self.timers.next(), idle]);
        if self.recv_errors >= MAX_RECV_ERRORS {
            let retry = clock::now() + RECV_ERROR_WAIT;
            deadline = Some(deadline.map_or(retry, |at| at.min(retry)));
        }
        let Some(deadline) = deadline else {
            self.sleep = None;
            return Poll::Pending;
        };
        // Moving the timer for every packet would cost too much. So does never moving it: to wake early and look again,
        // and before that, to have each wait in the kernel end at a time so near that its own timer must be set and
        // taken back, 5 us each on a virtual machine.
        let near = |at: Instant| (at..at + TIMER_GRAIN).contains(&deadline);
        if let Some((at, sleep)) = &self.sleep
            && near(*at)
            && !sleep.is_elapsed()
            && !cfg!(tokio_unstable)
        {
            // It wakes this task, whose waker stays what it is. (A runtime that traces tasks polls some for no effect.)
            return Poll::Pending;
        }
        // Anew: one that is moved keeps the end of the runtime's next wait where it was.
        let sleep_until = tokio::time::sleep_until(clock::to_tokio(deadline));
        let sleep = match &mut self.sleep {
            Some((at, sleep)) => {
                *at = deadline;
                sleep.as_mut().set(sleep_until);
                sleep
            }
            none => &mut none.insert((deadline, Box::pin(sleep_until))).1,
        };
        // Whatever is left of the task's budget: the timer must be registered.
        Pin::new(&mut coop::unconstrained(sleep.as_mut())).poll(cx)
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.shared.counters.wakeups.add(1);
        this.shared.register_driver(cx.waker());
        if this.recv_errors >= MAX_RECV_ERRORS {
            this.recv_errors = 0;
        }
        this.look_at_listener();
        let mut bytes = 0;
        // What is scheduled from here on wakes this task again.
        this.look_at_scheduled();
        let mut due = true;
        for _ in 0..MAX_TURNS {
            let mut now = None;
            let mut received = None;
            if this.recv_errors < MAX_RECV_ERRORS {
                received = this.receive(cx, &mut now);
            }
            // With nothing received since, the turn before has done the rest.
            if std::mem::take(&mut due) || received.is_some() || !this.touched.is_empty() {
                // One reading serves the turn. A deadline that comes during it is the next turn's.
                let now = now.unwrap_or_else(clock::now);
                this.look_at_timers(now);
                this.look_at_idle(now);
                this.serve_touched(now);
                this.look_at_blocked(cx);
            }
            if received.is_some() || !this.touched.is_empty() {
                bytes += received.unwrap_or(0);
                if bytes < MAX_BYTES {
                    continue;
                }
                break;
            }
            if this.is_done() {
                return Poll::Ready(());
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
        // The runtime is shutting down, or there is nothing left: nobody may wait for this driver any more.
        self.shared.close_run_queue();
        self.look_at_scheduled();
        if let Some(queue) = &self.shared.accept_queue {
            drop(queue.end(Ended::DriverGone));
        }
        for slot in self.table.iter() {
            slot.session.fail(Failure::DriverGone);
        }
    }
}
