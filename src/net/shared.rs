//! What the streams, the listener or endpoint, and the driver of one socket share.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    vec::Vec,
};

#[cfg(feature = "metrics")]
use super::metrics::Registry;
use super::{
    accept_queue::AcceptQueue,
    control::Control,
    driver::Driver,
    entropy,
    error::KcpError,
    handover::RunQueue,
    session::{Session, is_refusal},
    shards::Place,
    socket::{Progress, Socket},
    stats::{Counters, EndpointStats},
    trace::EndpointTrace,
};
use crate::proto::{BufferMemory, SessionSeed, Transmit};

#[derive(Debug)]
pub(super) struct Shared {
    /// Another one takes its place by [`Shared::replace_socket`].
    socket: RwLock<Arc<Socket>>,
    /// Another one has taken its place, and the driver does not know yet.
    is_socket_new: AtomicBool,
    pub(super) counters: Counters,
    /// What the handles ask of the driver.
    pub(super) control: Control,
    pub(super) sharing: Sharing,
    /// What the buffers of all sessions share.
    pub(super) memory: BufferMemory,
    /// Calls that wait to be told that nobody listens where the socket sends to.
    refusal_listeners: AtomicUsize,
    /// The sessions that the driver is to look at.
    pub(super) run_queue: RunQueue<Session>,
    /// The sessions that wait to be accepted, if this is a listener's socket.
    pub(super) accept_queue: Option<Arc<AcceptQueue>>,
    /// Where the driver is one of several of the port.
    pub(super) shard: Option<Place>,
    /// Identities of packets that a listener's sessions sent and that would begin a session if somebody sent them back.
    /// The driver collects them.
    sent_first: Mutex<Vec<u64>>,
    /// Whether there are any. The driver reads it for every batch that it receives, so it is not under the lock.
    has_sent_first: AtomicBool,
    seeds: entropy::Seeds,
    /// The sessions, to add up what they count.
    #[cfg(feature = "metrics")]
    pub(super) registry: Arc<Registry>,
    pub(super) trace: EndpointTrace,
}

/// How many streams a socket has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// One: what befalls the socket befalls that stream.
    OneStream,
    /// Any number.
    Many,
}

impl Shared {
    /// Starts a driver for `socket`, with an `accept_queue` for that of a listener, and its place among the shards if it is one. The caller is the owner that the run
    /// queue begins with: it must call [`RunQueue::remove_owner`] in the end.
    ///
    /// # Errors
    /// When no Tokio runtime runs here, or the system has no randomness.
    pub(super) fn start(
        socket: Socket,
        accept_queue: Option<Arc<AcceptQueue>>,
        sharing: Sharing,
        memory: BufferMemory,
        shard: Option<Place>,
    ) -> io::Result<Arc<Self>> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let trace = EndpointTrace::new(socket.local_addr());
        let shared = Arc::new(Self {
            socket: RwLock::new(Arc::new(socket)),
            is_socket_new: AtomicBool::new(false),
            counters: Counters::default(),
            control: Control::default(),
            sharing,
            memory,
            refusal_listeners: AtomicUsize::new(0),
            run_queue: RunQueue::new(),
            accept_queue,
            shard,
            sent_first: Mutex::default(),
            has_sent_first: AtomicBool::new(false),
            seeds: entropy::Seeds::new()?,
            #[cfg(feature = "metrics")]
            registry: Arc::default(),
            trace,
        });
        runtime.spawn(shared.trace.around(Driver::new(Arc::clone(&shared))?));
        Ok(shared)
    }

    /// The counters and gauges as they are now.
    pub(super) fn stats(&self) -> EndpointStats {
        stats_of([self])
    }

    /// The socket as it is now. Tasks send over it at the same time; who wants to replace it waits for their system calls.
    #[inline]
    pub(super) fn socket(&self) -> RwLockReadGuard<'_, Arc<Socket>> {
        // Nothing panics while it holds this lock.
        self.socket.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// `socket` cannot reach the peers of the present one: their addresses are kept as that one has them.
    pub(super) fn check_family(&self, socket: &Socket) -> io::Result<()> {
        if socket.local_addr().is_ipv4() == self.socket().local_addr().is_ipv4() {
            Ok(())
        } else {
            Err(KcpError::OtherFamily.into())
        }
    }

    /// Sends over `socket` from here on, and has the driver receive from it. Nothing reads the socket before any more: who answers
    /// at the old address says that it is still the right one.
    pub(super) fn replace_socket(&self, socket: Socket) {
        let told = self.refusal_listeners.load(Ordering::Acquire) > 0;
        socket.tell_refusals(told);
        let mut place = self.socket.write().unwrap_or_else(PoisonError::into_inner);
        if place.reads_ecn() {
            socket.read_ecn();
        }
        let before = std::mem::replace(&mut *place, Arc::new(socket));
        drop(place);
        drop(before);
        self.is_socket_new.store(true, Ordering::Release);
        self.run_queue.wake_driver();
    }

    /// The socket that has taken the place of the one before since the last call. The driver reads it in every turn, and so not the
    /// socket itself.
    #[inline]
    pub(super) fn take_new_socket(&self) -> Option<Arc<Socket>> {
        let is_new =
            self.is_socket_new.load(Ordering::Acquire) && self.is_socket_new.swap(false, Ordering::AcqRel);
        is_new.then(|| Arc::clone(&self.socket()))
    }

    /// The randomness of a new session.
    pub(super) fn seed(&self) -> SessionSeed {
        SessionSeed::new(&mut self.seeds.clone())
    }

    /// Has the driver look at `session` soon. Without a driver the session fails.
    pub(super) fn schedule(&self, session: &Arc<Session>) {
        if self.run_queue.schedule(session).is_err() {
            session.fail(KcpError::RuntimeGone);
        }
    }

    /// Has the system tell, until the returned value is dropped, that nobody listens where the socket sends to.
    ///
    /// Only for a socket of one stream: what the system tells has no address, and takes the place of a packet that is sent next,
    /// perhaps to somebody else.
    pub(super) fn tell_refusals(&self) -> RefusalsTold<'_> {
        let alone = self.sharing == Sharing::OneStream;
        if alone && self.refusal_listeners.fetch_add(1, Ordering::AcqRel) == 0 {
            self.socket().tell_refusals(true);
        }
        RefusalsTold(alone.then_some(self))
    }

    /// Whether the system has told so by now: over loopback it does as soon as something is sent.
    pub(super) fn is_refused(&self) -> bool {
        let told = self.refusal_listeners.load(Ordering::Acquire) > 0;
        told && self.socket().options().take_error().ok().flatten().is_some_and(|error| is_refusal(&error))
    }

    /// Sends the packets of `transmit`, which lie in `bytes`, and counts them. `progress` begins as nothing.
    ///
    /// # Errors
    /// Those of [`Socket::try_send`].
    pub(super) fn send(
        &self,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
        transmit: Transmit,
        bytes: &[u8],
        progress: &mut Progress,
    ) -> io::Result<()> {
        let outcome = if transmit.may_fragment {
            self.send_as_fragments(peer, local_ip, transmit, bytes, progress)
        } else {
            self.socket().try_send(peer, local_ip, transmit, bytes, progress)
        };
        self.counters.socket.send_calls.add(progress.calls);
        self.counters.socket.packets_sent.add(progress.done.div_ceil(transmit.stride) - progress.lost);
        if progress.done < transmit.len || progress.errors > 0 {
            self.count_unsent(progress, transmit);
        }
        outcome
    }

    /// DF is an option of the socket. So nobody else sends meanwhile: a probe of the path's MTU without DF would prove nothing.
    #[cold]
    fn send_as_fragments(
        &self,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
        transmit: Transmit,
        bytes: &[u8],
        progress: &mut Progress,
    ) -> io::Result<()> {
        let socket = self.socket.write().unwrap_or_else(PoisonError::into_inner);
        socket.try_send_as_fragments(peer, local_ip, transmit, bytes, progress)
    }

    #[cold]
    fn count_unsent(&self, progress: &Progress, transmit: Transmit) {
        self.counters.socket.send_errors.add(progress.errors);
        if progress.done < transmit.len {
            self.counters.socket.send_blocked.add(1);
        }
    }

    /// Remembers, for a listener, the identities of packets that are being sent: see [`Shared::take_sent_first`].
    pub(super) fn note_sent_first(&self, identities: &[u64]) {
        if self.accept_queue.is_some() && !identities.is_empty() {
            if let Some(place) = &self.shard {
                // They may come back to any of them.
                return place.remember_sent(identities);
            }
            let mut sent = lock(&self.sent_first);
            if sent.len() >= MAX_SENT_FIRST {
                sent.drain(..MAX_SENT_FIRST / 2);
            }
            sent.extend_from_slice(identities);
            self.has_sent_first.store(true, Ordering::Release);
        }
    }

    /// Whether there are identities to collect.
    pub(super) fn has_sent_first(&self) -> bool {
        self.has_sent_first.load(Ordering::Acquire)
    }

    /// Takes the identities of what was sent since the last call. If such a packet comes back to this socket, somebody
    /// reflects it: it must not begin a session.
    pub(super) fn take_sent_first(&self) -> Vec<u64> {
        let mut sent = lock(&self.sent_first);
        self.has_sent_first.store(false, Ordering::Relaxed);
        std::mem::take(&mut sent)
    }
}

#[cfg(feature = "metrics")]
impl Drop for Shared {
    fn drop(&mut self) {
        self.registry.close(self.stats());
    }
}

/// From [`Shared::tell_refusals`].
pub(super) struct RefusalsTold<'a>(Option<&'a Shared>);

impl Drop for RefusalsTold<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0
            && shared.refusal_listeners.fetch_sub(1, Ordering::AcqRel) == 1
        {
            shared.socket().tell_refusals(false);
        }
    }
}

/// The counters and gauges of several shards as they are now, in all. They share one memory.
pub(super) fn stats_of<'a>(shards: impl IntoIterator<Item = &'a Shared>) -> EndpointStats {
    let mut all = EndpointStats::default();
    for shard in shards {
        all = all.add(&shard.counters.snapshot());
        all.state.buffer_memory = shard.memory.taken() as u64;
        all.memory.refused_segments = shard.memory.refused_segments() as u64;
        all.memory.refused_writes = shard.memory.refused_writes() as u64;
    }
    all
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds this lock, but for a lack of memory.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Identities kept until the driver collects them.
const MAX_SENT_FIRST: usize = 4_096;
