//! What a session's lock protects: the connection and the tasks that wait for it.

use std::{
    boxed::Box,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::transmit::Blocked;
use crate::{
    net::{
        clock,
        error::KcpError,
        handle::End,
        handover::{Due, Look, Next, SessionState},
        socket::{Progress, is_too_long},
        trace::StateTrace,
        waiters::{RareWaiters, Waiters},
        wake_list::WakeList,
    },
    proto::{AbortReason, CloseReason, Connection, Event, Instant, ReadError, Transmit},
};

#[derive(Debug)]
pub(super) struct State {
    pub(super) connection: Connection,
    pub(super) address: PeerAddress,
    /// Where packets of the session came from last that did not come from there.
    pub(super) elsewhere: Option<Box<PeerAddress>>,
    /// The peer's address has changed, and the driver is to know.
    pub(super) moved: bool,
    /// A batch that found the socket full. It goes before all others.
    pub(super) blocked: Option<Box<Blocked>>,
    /// It sends nothing yet.
    pub(super) held: bool,
    /// Every send has failed for a while.
    failing: Option<Box<Failing>>,
    /// Packets are too long for the way to the peer, and the stream stands still.
    stuck: Option<Box<Stuck>>,
    /// Why calls fail, when it is not for the connection's own reason. Few sessions end so: it takes memory only then.
    failure: Option<Box<KcpError>>,
    /// The peer has acknowledged everything that was written before the shutdown.
    pub(super) flushed: bool,
    pub(super) readers: Waiters,
    pub(super) datagram_readers: RareWaiters,
    pub(super) writers: Waiters,
    /// Tasks that wait for a shutdown to complete.
    pub(super) closers: RareWaiters,
    /// Tasks that wait for the peer's first answer, or for the end of the session.
    pub(super) watchers: RareWaiters,
    /// A task waits for the peer's first answer.
    pub(super) seeks: bool,
    /// The network says that nobody listens at the peer's address.
    pub(super) refused: bool,
    /// The session ends once a shutdown is done.
    pub(super) ends_when_flushed: bool,
    /// A read found nothing, and nothing has come since: not even if half of a message is there.
    pub(super) read_blocked: bool,
    /// Everything that the peer wrote has arrived, and it has said so.
    pub(super) read_closed: bool,
    /// Where the end of the session is noted, if somebody has a handle that stays.
    pub(super) end: Option<Arc<End>>,
    trace: StateTrace,
}

/// Where a session's packets are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) struct PeerAddress {
    pub(in crate::net) peer: SocketAddr,
    /// The local address that the peer talks to, where the socket is bound to all. Answers must come from it.
    pub(in crate::net) local_ip: Option<IpAddr>,
}

/// Sends that fail, one after the other.
#[derive(Debug, Clone, Copy)]
struct Failing {
    since: Instant,
    count: u32,
    /// Why the last one did.
    last: KcpError,
}

/// A stream that stands still while packets are refused as too long.
#[derive(Debug, Clone, Copy)]
struct Stuck {
    /// The oldest segment in flight.
    oldest: u32,
    /// When a packet was refused first.
    since: Instant,
    /// Why.
    failure: KcpError,
}

impl State {
    pub(super) fn new(connection: Connection, address: PeerAddress, trace: StateTrace) -> Self {
        Self {
            connection,
            address,
            elsewhere: None,
            moved: false,
            blocked: None,
            held: false,
            failing: None,
            stuck: None,
            failure: None,
            flushed: false,
            readers: Waiters::default(),
            datagram_readers: RareWaiters::default(),
            writers: Waiters::default(),
            closers: RareWaiters::default(),
            watchers: RareWaiters::default(),
            seeks: false,
            refused: false,
            ends_when_flushed: false,
            read_blocked: false,
            read_closed: false,
            end: None,
            trace,
        }
    }

    /// Gives back the memory kept for further traffic.
    pub(super) fn trim(&mut self) {
        self.connection.trim();
        for waiters in [&mut self.datagram_readers, &mut self.closers, &mut self.watchers] {
            waiters.trim();
        }
    }

    /// What is to be done next, once there is no further batch.
    #[inline]
    pub(super) fn next(&self, corked: bool) -> Next {
        if corked && self.connection.has_sendable() {
            return Next::Again;
        }
        Next::Wait(self.connection.poll_timeout())
    }

    /// Lists the tasks that the connection's events concern.
    #[inline]
    pub(super) fn collect_events(&mut self, wakes: &mut WakeList) {
        if self.connection.has_events() {
            self.take_events(wakes);
        }
        if self.seeks {
            self.wake_seekers(wakes);
        }
    }

    fn take_events(&mut self, wakes: &mut WakeList) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Readable => {
                    self.read_blocked = false;
                    self.readers.take_into(wakes);
                }
                Event::DatagramReadable => self.datagram_readers.take_into(wakes),
                Event::Writable => self.writers.take_into(wakes),
                Event::Flushed => {
                    self.flushed = true;
                    self.closers.take_into(wakes);
                    self.after_shutdown();
                }
                Event::Finished => {
                    self.read_blocked = false;
                    self.read_closed = true;
                    self.readers.take_into(wakes);
                }
                Event::NoReader => {
                    self.writers.take_into(wakes);
                    self.closers.take_into(wakes);
                    self.after_shutdown();
                }
                // Nobody waits for these. The stats show them.
                Event::Connected | Event::Validated => {}
                Event::Fec(event) => self.trace.peer_fec(event, &self.connection, self.address.peer),
                Event::Moved(peer) => self.follow(peer),
                Event::Closed(reason) => {
                    // Nobody answers what could not be sent: that is the better reason.
                    if reason == CloseReason::DeadLink && self.failure.is_none() {
                        let too_long = || self.stuck.as_ref().map(|stuck| stuck.failure);
                        self.failure = self
                            .failing
                            .as_ref()
                            .map(|failing| failing.last)
                            .filter(is_of_network)
                            .or_else(too_long)
                            .map(Box::new);
                    }
                    self.readers.take_into(wakes);
                    self.datagram_readers.take_into(wakes);
                    self.writers.take_into(wakes);
                    self.closers.take_into(wakes);
                    self.watchers.take_into(wakes);
                    if let (Some(end), Some(reason)) = (&self.end, self.close_reason()) {
                        end.set(reason, self.connection.stats());
                    }
                }
            }
        }
    }

    #[cold]
    fn follow(&mut self, peer: SocketAddr) {
        let local_ip = self.elsewhere.as_deref().copied().filter(|elsewhere| elsewhere.peer == peer);
        self.address = local_ip.unwrap_or(PeerAddress { peer, ..self.address });
        self.moved = true;
        if let Some(end) = &self.end {
            end.set_peer(peer);
        }
    }

    /// Has a reader wait, or tells it why it cannot.
    pub(super) fn wait_to_read<R>(
        &mut self,
        cx: &mut Context<'_>,
        error: ReadError,
        wakes: &mut WakeList,
    ) -> Poll<io::Result<R>> {
        if error == ReadError::Blocked {
            self.read_blocked = true;
            self.readers.add(cx.waker(), wakes);
            return Poll::Pending;
        }
        Poll::Ready(Err(self.error_or(error)))
    }

    /// Whether a reader that finds nothing is at the end of the stream. If this end has given up reading, it is not.
    pub(super) const fn is_eof(&self) -> bool {
        self.read_closed || self.failure.is_none()
    }

    /// Why the session failed, or `error`.
    pub(super) fn error_or(&self, error: impl Into<KcpError>) -> io::Error {
        self.reason_or(error.into()).into()
    }

    fn reason_or(&self, error: KcpError) -> KcpError {
        self.failure
            .as_deref()
            .filter(|_| self.connection.close_reason().is_some())
            .map_or(error, |failure| *failure)
    }

    /// Why the session has ended. It has.
    pub(super) fn close_error(&self) -> io::Error {
        self.close_reason().unwrap_or(CloseReason::Aborted.into()).into()
    }

    /// Why the session has ended, if it has.
    pub(super) fn close_reason(&self) -> Option<KcpError> {
        Some(self.reason_or(self.connection.close_reason()?.into()))
    }

    /// Ends the session for a reason that is not the connection's own.
    pub(super) fn fail(&mut self, failure: KcpError) {
        if self.connection.close_reason().is_none() {
            self.note_failure(failure);
            self.connection.close(CloseReason::Aborted);
        }
    }

    /// Ends the session at once, and tells the peer: for a reason that is not the connection's own, if there is a `failure`.
    pub(super) fn abort(&mut self, now: Instant, failure: Option<KcpError>, reason: AbortReason) {
        if self.connection.close_reason().is_none() {
            match failure {
                Some(failure) => self.note_failure(failure),
                None => self.failure = None,
            }
            self.connection.abort(now, reason);
        }
    }

    fn note_failure(&mut self, failure: KcpError) {
        self.failure = Some(Box::new(failure));
        self.trace.failed(failure);
    }

    /// The writing direction is done. If the endpoint ends, the other direction is given up, and then the session is done.
    pub(super) fn after_shutdown(&mut self) {
        if self.ends_when_flushed && self.connection.close_reason().is_none() {
            self.note_failure(KcpError::EndpointClosed);
            self.connection.drop_reader(clock::now());
        }
    }

    /// Takes note of how a batch of the connection was sent.
    #[inline]
    pub(super) fn note_transmit(
        &mut self,
        now: Instant,
        transmit: Transmit,
        progress: &Progress,
        outcome: io::Result<()>,
    ) {
        // What has its size already tells nothing new.
        if progress.too_long && !transmit.may_fragment {
            self.connection.handle_too_long(now, transmit.stride);
        }
        self.note_send(now, outcome);
    }

    /// Takes note of how a send went. One that failed lost its packets, as any may be lost: the session goes on.
    ///
    /// Most errors are those of a network that is about to change: no route, an interface that is down, no buffers, a firewall
    /// that is being set up, a peer that restarts. They end nothing; the peer does, if it stays silent for `dead_timeout`, and
    /// then the error says why. Others will not pass, because of the socket or the address. They end the session when no send
    /// has succeeded for a while. A packet that is too long is a matter of its own: see [`State::note_too_long`].
    #[inline]
    pub(super) fn note_send(&mut self, now: Instant, outcome: io::Result<()>) {
        match outcome {
            Ok(()) => self.failing = None,
            Err(error) => self.note_send_error(now, &error),
        }
    }

    #[cold]
    fn note_send_error(&mut self, now: Instant, error: &io::Error) {
        let last = KcpError::network(error);
        self.refused |= is_refusal(error);
        let failing = self.failing.get_or_insert_with(|| Box::new(Failing { since: now, count: 0, last }));
        failing.count += 1;
        failing.last = last;
        let Failing { since, count, .. } = **failing;
        if is_lasting(error) && now - since >= SEND_FAILURE_LIMIT && count >= MIN_SEND_FAILURES {
            self.fail(last);
        }
        if is_too_long(error) {
            self.note_too_long(now, last);
        }
    }

    /// Packets go over another socket or another network from here on: what failed before says nothing of it.
    pub(super) fn forget_failures(&mut self) {
        self.failing = None;
        self.stuck = None;
    }

    /// A packet was longer than what the next hop takes, as far as the system knows (`EMSGSIZE`). The way may be another one soon,
    /// or the packet a datagram that the stream does not need.
    ///
    /// But nothing else would end a session whose segments do not fit: shorter packets pass, above all PINGs and their answers,
    /// and so the peer is never silent. It ends when the same segment has stopped the stream for `dead_timeout`.
    fn note_too_long(&mut self, now: Instant, failure: KcpError) {
        let Some(oldest) = self.connection.oldest_in_flight() else {
            self.stuck = None;
            return;
        };
        match self.stuck.as_deref().filter(|stuck| stuck.oldest == oldest) {
            None => self.stuck = Some(Box::new(Stuck { oldest, since: now, failure })),
            Some(Stuck { since, .. }) if now - *since >= self.connection.dead_timeout() => self.fail(failure),
            Some(_) => {}
        }
    }
}

/// Whether a send failed for the network, and not for what a peer did. A socket may report another session's peer.
const fn is_of_network(failure: &KcpError) -> bool {
    let KcpError::Network { kind, .. } = failure else { return false };
    !matches!(kind, io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
}

/// Whether an error of a send will not pass by itself.
fn is_lasting(error: &io::Error) -> bool {
    match error.kind() {
        // `EACCES`: the socket may not broadcast. `EPERM` comes from a firewall, and Windows has one error for both.
        io::ErrorKind::PermissionDenied => cfg!(unix) && error.raw_os_error() != Some(EPERM),
        // The socket cannot send to such an address.
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => true,
        _ => false,
    }
}

impl SessionState for State {
    #[inline]
    fn handle_timeout(&mut self, look: Look, pause: Option<Duration>, wakes: &mut WakeList) -> Due {
        if let Some(pause) = pause {
            self.connection.handle_pause(look.now, pause);
        }
        self.connection.handle_timeout_unread(look.now, look.read_until);
        self.collect_events(wakes);
        let quiet =
            self.blocked.is_none() && self.connection.close_reason().is_none() && self.connection.is_quiet();
        Due { quiet, deadline: self.connection.poll_timeout() }
    }

    fn collect_wakes(&mut self, wakes: &mut WakeList) {
        self.collect_events(wakes);
    }

    fn let_go(&mut self, wakes: &mut WakeList) {
        self.connection.drop_reader(clock::now());
        // Tasks may wait for its datagrams: their handle does not keep the stream.
        self.datagram_readers.take_into(wakes);
        self.collect_events(wakes);
    }

    fn is_over(&self) -> bool {
        self.connection.close_reason().is_some()
    }
}

/// Whether the network says that nobody listens where something was sent. Windows calls it a reset.
pub(in crate::net) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
}

/// The system's number for "operation not permitted", on every Unix.
const EPERM: i32 = 1;
/// How long every send may fail, for a reason that will not pass, before the session ends: longer than a change of network takes.
const SEND_FAILURE_LIMIT: Duration = Duration::from_secs(5);
/// How many sends must have failed by then.
const MIN_SEND_FAILURES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        net::{socket::EMSGSIZE, wake_list::WakeMutex},
        proto::KcpConfig,
    };

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(1_000 * seconds)
    }

    /// A state whose session has sent something, at time 0, that nobody acknowledges.
    fn waiting() -> State {
        let mut connection = Connection::new(7, &KcpConfig::default(), at(0));
        connection.write(at(0), b"anybody?").unwrap();
        assert!(connection.poll_transmit(at(0), &mut [0; 2_048]).is_some());
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        State::new(connection, PeerAddress { peer, local_ip: None }, StateTrace::none())
    }

    /// A driver's look at it.
    fn look(state: &mut State, now: Instant) {
        WakeMutex::new(()).locked(|_, wakes| {
            let look = Look { now, read_until: now, last: now };
            state.handle_timeout(look, None, wakes);
        });
    }

    /// Errors that a network and a firewall may cause, by their numbers.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const PASSING: [(&str, i32); 9] = [
        ("EPERM", EPERM),
        ("ENOMEM", 12),
        ("EADDRNOTAVAIL", 99),
        ("ENETDOWN", 100),
        ("ENETUNREACH", 101),
        ("ENOBUFS", 105),
        ("ECONNRESET", 104),
        ("ECONNREFUSED", 111),
        ("EHOSTUNREACH", 113),
    ];

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn errors_of_the_network_end_nothing_before_the_peer_counts_as_dead() {
        for (name, code) in PASSING {
            let error = || io::Error::from_raw_os_error(code);
            let mut state = waiting();
            for second in 0..30 {
                state.note_send(at(second), Err(error()));
                look(&mut state, at(second));
                assert_eq!(state.connection.close_reason(), None, "{name} for {second} s");
            }
            look(&mut state, at(30));
            assert_eq!(state.connection.close_reason(), Some(CloseReason::DeadLink), "{name}");
            if name.starts_with("ECONN") {
                assert_eq!(
                    state.close_error().kind(),
                    io::ErrorKind::TimedOut,
                    "{name} may be of another peer"
                );
            } else {
                assert_eq!(
                    state.close_reason(),
                    Some(KcpError::network(&error())),
                    "{name} says why nobody answered"
                );
            }
        }
    }

    #[test]
    fn packets_that_are_too_long_end_a_session_when_its_peer_would_count_as_dead() {
        let too_long = || Err(io::Error::from_raw_os_error(EMSGSIZE));
        let mut state = waiting();
        for second in 0..30 {
            state.note_send(at(second), too_long());
            // Shorter ones pass.
            state.note_send(at(second), Ok(()));
            assert_eq!(state.connection.close_reason(), None, "for {second} s");
        }
        state.note_send(at(30), too_long());
        assert_eq!(state.close_reason(), Some(KcpError::network(&too_long().unwrap_err())));

        let mut state = waiting();
        state.note_send(at(0), too_long());
        state.forget_failures();
        state.note_send(at(29), too_long());
        state.note_send(at(58), too_long());
        assert_eq!(state.connection.close_reason(), None, "it had another network at 29 s");
    }

    /// If any send succeeds, what had failed before is not the reason.
    #[test]
    fn a_peer_that_is_silent_after_errors_passed_has_timed_out() {
        let mut state = waiting();
        state.note_send(at(1), Err(io::ErrorKind::NetworkUnreachable.into()));
        state.note_send(at(2), Ok(()));
        look(&mut state, at(30));
        assert_eq!(state.close_error().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn an_error_that_will_not_pass_ends_the_session_after_a_while() {
        for kind in [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported] {
            let mut state = waiting();
            for second in 0..5 {
                state.note_send(at(second), Err(kind.into()));
                assert_eq!(state.connection.close_reason(), None, "{kind:?} for {second} s");
            }
            state.note_send(at(5), Err(kind.into()));
            assert_eq!(state.close_error().kind(), kind);
        }
    }
}
