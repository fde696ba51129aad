//! The shards of a listener: several sockets with one port, a driver each.
//!
//! The system gives each packet to one of the sockets, by the addresses that it comes from and goes to (`SO_REUSEPORT`). So a peer's
//! packets arrive at one driver, which accepts its session and serves it for its whole life, as a driver does that is alone: it has
//! endpoint, timers and run queue to itself. What the drivers have in common is little, and none of it is touched by a packet of
//! a session that arrives where the session is:
//!
//! ```text
//! owners       which shard has a route, how many sessions there are, what began one before: the core's ShardTable
//! inbox        what other shards have for a driver: packets of its sessions, decrypted, in memory of their own
//! accept queue one, for all
//! read_until   how far each socket was read
//! ```
//!
//! **Packets that arrive at another shard.** The system's choice changes when a peer's address does, and when a socket joins the port or
//! leaves it: another process may begin to listen there, or end. The shard that gets a packet of no session of its own
//! asks the table for the owner, copies the packet, and puts it into the owner's inbox. An inbox has room for a megabyte. What finds it
//! full is lost, and counted ([`DropStats::shard_busy`](super::DropStats)), so that a flood of one shard neither takes memory nor
//! holds up another. What is in an inbox is never handed over again: a packet goes from shard to shard once at most.
//! The session then sends over the socket of its own shard, which has the same port, so its peer sees no difference.
//!
//! **Silence.** No session ends for its peer's silence before what arrived meanwhile was read: see [`driver`](super::driver). Its packets
//! may be in another shard's socket, so all have to be read for that. Each driver tells how far it has read its own, after
//! it has handed over what it found. Who has a session to end wakes the others, and looks at it again after a moment. A driver that does
//! not tell for a second is not waited for.
//!
//! **The end.** The drivers end together, when there is no session in any shard and nobody can begin one. A socket that is still
//! open after its driver has ended would go on getting packets of other shards' sessions, and nobody would read them.
//!
//! **Other processes.** The port may be shared with them, too, as in an upgrade where the new process listens before the old one ends. Neither
//! knows the other's sessions, and a RESET would end one that lives. So nobody who shares a port sends any
//! ([`Endpoint::set_resets`](crate::proto::Endpoint::set_resets)).

mod inbox;
mod owners;

use std::{
    boxed::Box,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    vec::Vec,
};

use tokio::net::{ToSocketAddrs, lookup_host};

use self::{inbox::Inbox, owners::Owners};
use super::{
    accept_queue::AcceptQueue,
    entropy::{self, Drawn},
    error::KcpError,
    shared::{Shared, Sharing},
    socket::Socket,
};
use crate::proto::{Block, BufferMemory, EcnCodepoint, Endpoint, HandOver, Instant, KcpConfig, ShardTable};

/// What the drivers of a listener have in common.
#[derive(Debug)]
pub(super) struct Shards {
    owners: Arc<Owners>,
    /// The randomness of every endpoint.
    random: Drawn<{ Endpoint::RANDOM_BYTES }>,
    inboxes: Box<[Inbox<Parcel>]>,
    /// Everything that arrived at the socket of a shard before this, in microseconds, has been read and handed over.
    read_until: Box<[AtomicU64]>,
}

/// What one driver has for another.
#[derive(Debug)]
pub(super) enum Parcel {
    /// Packets for a session of that one.
    Packets {
        packets: Box<HandOver>,
        block: Block,
        /// The address that the peer sent to.
        local_ip: Option<IpAddr>,
        /// The ECN field of all of them.
        ecn: EcnCodepoint,
    },
    /// The session with this address ends: another session has followed its peer to there.
    Replaced(SocketAddr),
}

/// Which of the shards a driver is.
#[derive(Debug, Clone)]
pub(super) struct Place {
    index: u16,
    all: Arc<Shards>,
}

impl Shards {
    fn new(shards: u16) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            owners: Arc::new(Owners::new(shards)),
            random: entropy::draw()?,
            inboxes: (0..shards).map(|_| Inbox::new()).collect(),
            read_until: (0..shards).map(|_| AtomicU64::new(0)).collect(),
        }))
    }

    /// Sessions of all shards.
    pub(super) fn sessions(&self) -> usize {
        self.owners.sessions()
    }
}

impl Place {
    pub(super) fn all(&self) -> &Arc<Shards> {
        &self.all
    }

    /// How many shards there are.
    pub(super) fn shards(&self) -> usize {
        self.all.inboxes.len()
    }

    /// An endpoint for this shard.
    pub(super) fn endpoint(&self, config: &KcpConfig) -> Endpoint {
        let table = Arc::clone(&self.all.owners);
        Endpoint::accepting_as_shard(config, &mut self.all.random.clone(), table, self.index)
    }

    /// Notes how to wake the driver.
    #[inline]
    pub(super) fn register_driver(&self, waker: &Waker) {
        self.inbox().register_driver(waker);
    }

    /// Whether other shards have left something for the driver.
    #[inline]
    pub(super) fn has_parcels(&self) -> bool {
        self.inbox().has_any()
    }

    pub(super) fn take_parcels(&self) -> Vec<Parcel> {
        self.inbox().take()
    }

    /// Leaves a parcel of so many bytes to another shard. Returns whether there was room for it.
    pub(super) fn leave(&self, shard: u16, bytes: usize, parcel: impl FnOnce() -> Parcel) -> bool {
        self.all.inboxes.get(usize::from(shard)).is_some_and(|inbox| inbox.push(bytes, parcel))
    }

    /// Remembers packets that are about to be sent, and that would begin a session if somebody sent them back.
    pub(super) fn remember_sent(&self, identities: &[u64]) {
        identities.iter().for_each(|identity| self.all.owners.remember_sent(*identity));
    }

    /// Tells that everything that arrived before was read and handed over.
    pub(super) fn set_read_until(&self, until: Instant) {
        self.all.read_until[usize::from(self.index)].store(until.as_micros(), Ordering::Release);
    }

    /// Until when all other shards have read what arrived. What they found for this one was left to it before.
    pub(super) fn others_read_until(&self) -> Instant {
        let until = self.others(&self.all.read_until).map(|until| until.load(Ordering::Acquire)).min();
        Instant::from_micros(until.unwrap_or(u64::MAX))
    }

    /// Has the drivers of the others look at what there is for them.
    pub(super) fn wake_others(&self) {
        self.others(&self.all.inboxes).for_each(Inbox::wake_driver);
    }

    /// The driver has ended.
    pub(super) fn end(&self) {
        self.inbox().close();
        // So that the others see that nobody is left.
        self.wake_others();
    }

    fn inbox(&self) -> &Inbox<Parcel> {
        &self.all.inboxes[usize::from(self.index)]
    }

    fn others<'a, T>(&self, of_all: &'a [T]) -> impl Iterator<Item = &'a T> {
        let own = usize::from(self.index);
        of_all.iter().enumerate().filter(move |(index, _)| *index != own).map(|(_, other)| other)
    }
}

/// Binds `shards` sockets to the first address that they can be bound to.
pub(super) async fn bind_first<A: ToSocketAddrs>(addr: A, shards: u16) -> io::Result<Vec<Socket>> {
    let mut outcome = Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to bind to"));
    for addr in lookup_host(addr).await? {
        outcome = if shards > 1 {
            bind(addr, shards)
        } else {
            Socket::bind(addr).map(|socket| Vec::from([socket]))
        };
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn bind(mut addr: SocketAddr, shards: u16) -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::new();
    for _ in 0..shards {
        let socket = Socket::bind_shared(addr)?;
        // The first one may choose the port.
        addr.set_port(socket.local_addr().port());
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Starts a driver for each of `sockets`, which accept sessions with the configuration `config`. The caller is the owner that the
/// run queues begin with.
pub(super) fn start(sockets: Vec<Socket>, config: KcpConfig) -> io::Result<Box<[Arc<Shared>]>> {
    let count = u16::try_from(sockets.len()).ok().filter(|count| (1..=MAX_SHARDS).contains(count));
    let count = count.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not 1 to 256 sockets"))?;
    #[cfg(feature = "noise")]
    if config.noise().is_some_and(|noise| !noise.accepts()) {
        return Err(KcpError::of_noise(crate::proto::noise::NoiseError::Unconfigured).into());
    }
    let memory = BufferMemory::new(config.max_buffer_memory());
    let queue = Arc::new(AcceptQueue::new(config));
    let all = if count > 1 { Some(Shards::new(count)?) } else { None };
    let mut started = Vec::new();
    for (index, socket) in sockets.into_iter().enumerate() {
        let place = all.as_ref().map(|all| Place { index: index as u16, all: Arc::clone(all) });
        match Shared::start(socket, Some(Arc::clone(&queue)), Sharing::Many, memory.clone(), place) {
            Ok(shared) => started.push(shared),
            Err(error) => {
                queue.stop();
                started.iter().for_each(|shared: &Arc<Shared>| shared.run_queue.remove_owner());
                return Err(error);
            }
        }
    }
    Ok(started.into())
}

/// Checks that sockets can be the shards of one listener: they have one address.
pub(super) fn check_addresses(sockets: &[Socket]) -> io::Result<()> {
    let Some((first, others)) = sockets.split_first() else { return Ok(()) };
    if others.iter().any(|other| other.local_addr() != first.local_addr()) {
        return Err(KcpError::OtherAddress.into());
    }
    Ok(())
}

/// Sockets of one listener, at most: as [`shards`](crate::KcpConfigBuilder::shards).
const MAX_SHARDS: u16 = 256;
