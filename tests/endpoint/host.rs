//! A program that serves many sessions through one [`Endpoint`], and packets made by hand to try it with.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc};

use kcp9::{
    KcpConfig,
    proto::{
        BufferMemory, Command, Connection, Endpoint, Event, HandOver, Handle, Incoming, Instant, MoveError,
        Random, Refusal, ReplacedElsewhere, Routed, RoutingStats, Run, SegmentHeader, SessionSeed,
    },
};
use kcp9_simulator::Rng;

/// The endpoints' randomness: the same every run.
pub(crate) struct Entropy(pub Rng);

impl Random for Entropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.0.next() as u8);
    }
}

pub(crate) fn address(host: u32, port: u16) -> SocketAddr {
    SocketAddr::from((host.to_be_bytes(), port))
}

/// An address of a client: any number is one, and no two are the same.
pub(crate) fn client(number: u32) -> SocketAddr {
    address(0x0a00_0000 | number >> 8, 1_000 + (number & 0xff) as u16)
}

/// No two addresses have the same randomness.
fn entropy_of(address: SocketAddr) -> u64 {
    let SocketAddr::V4(v4) = address else { return 0 };
    u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port())
}

/// A segment without payload.
pub(crate) fn segment(conv: u32, cmd: Command, sn: u32) -> Vec<u8> {
    SegmentHeader { conv, cmd, frg: 0, wnd: 128, ts: 1, sn, una: 0, len: 0 }.to_bytes().to_vec()
}

/// The first packet of a session without encryption: a PUSH with one byte.
pub(crate) fn first_packet(conv: u32) -> Vec<u8> {
    push(conv, 0, 0, b"!")
}

/// A packet with one PUSH, without encryption.
pub(crate) fn push(conv: u32, sn: u32, una: u32, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    let header = SegmentHeader { conv, cmd: Command::Push, frg: 0, wnd: 128, ts: 1, sn, una, len };
    [&header.to_bytes()[..], payload].concat()
}

/// Packets that lie back to back.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
    pub(crate) stride: usize,
}

/// An endpoint and its sessions. It checks what every caller relies on.
pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) endpoint: Endpoint,
    config: KcpConfig,
    /// What the buffers of all sessions share.
    memory: BufferMemory,
    /// Of sessions under the key before that of `config`.
    retiring: Option<KcpConfig>,
    entropy: Entropy,
    sessions: Vec<Option<(Handle, Connection)>>,
    /// Sessions that were accepted by the endpoint and not yet by the application.
    waiting: VecDeque<Handle>,
    /// Sessions that ended by another one of their address.
    pub(crate) replaced: Vec<Handle>,
    /// Sessions that gave way to others.
    pub(crate) evicted: Vec<Handle>,
    /// What the endpoint itself has to send.
    pub(crate) replies: Vec<Batch>,
    /// Packets for other shards.
    pub(crate) handed_over: Vec<(HandOver, Vec<u8>)>,
    /// Sessions of other shards that end.
    pub(crate) replaced_elsewhere: Vec<ReplacedElsewhere>,
    buffer: Vec<u8>,
}

impl Host {
    /// A host that accepts sessions of this configuration.
    pub(crate) fn accepting(address: SocketAddr, config: &KcpConfig) -> Self {
        let endpoint = Endpoint::accepting(config, &mut Entropy(Rng::new(1)));
        Self::new(address, endpoint, config.clone())
    }

    /// As others of the same address and another life: what is random in it differs from theirs.
    #[cfg(feature = "aead")]
    pub(crate) fn in_its_life(self, life: u64, config: Option<&KcpConfig>) -> Self {
        let mut entropy = Entropy(Rng::new(entropy_of(self.address) ^ life << 48));
        let endpoint = match config {
            Some(config) => Endpoint::accepting(config, &mut entropy),
            None => Endpoint::new(&mut entropy),
        };
        Self { endpoint, entropy, ..self }
    }

    /// With so much memory for the buffers of all sessions.
    #[cfg(feature = "aead")]
    pub(crate) fn with_memory(self, bytes: usize) -> Self {
        Self { memory: BufferMemory::new(bytes), ..self }
    }

    /// A host that is one of several of one address.
    #[cfg(feature = "aead")]
    pub(crate) fn shard(
        address: SocketAddr,
        config: &KcpConfig,
        table: Arc<dyn kcp9::proto::ShardTable>,
        index: u16,
    ) -> Self {
        let endpoint = Endpoint::accepting_as_shard(config, &mut Entropy(Rng::new(1)), table, index);
        let host = Self::new(address, endpoint, config.clone());
        Self { entropy: Entropy(Rng::new(entropy_of(address) ^ u64::from(index) << 48)), ..host }
    }

    /// A host that accepts none.
    pub(crate) fn connecting(address: SocketAddr) -> Self {
        Self::new(address, Endpoint::new(&mut Entropy(Rng::new(2))), KcpConfig::default())
    }

    fn new(address: SocketAddr, endpoint: Endpoint, config: KcpConfig) -> Self {
        let memory = BufferMemory::new(config.max_buffer_memory());
        Self {
            memory,
            address,
            endpoint,
            config,
            retiring: None,
            entropy: Entropy(Rng::new(entropy_of(address))),
            sessions: Vec::new(),
            waiting: VecDeque::new(),
            replaced: Vec::new(),
            evicted: Vec::new(),
            replies: Vec::new(),
            handed_over: Vec::new(),
            replaced_elsewhere: Vec::new(),
            buffer: vec![0; 65_536],
        }
    }

    /// Accepts sessions under the key of `config` from here on, and under the one before for `keep`.
    #[cfg(feature = "aead")]
    pub(crate) fn rotate(&mut self, now: Instant, config: &KcpConfig, keep: std::time::Duration) {
        self.endpoint.rotate_key(now, config.crypto().unwrap().clone(), keep).unwrap();
        self.retiring = Some(std::mem::replace(&mut self.config, config.clone()));
    }

    /// Begins a session.
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        conv: u32,
        config: &KcpConfig,
    ) -> Handle {
        let handle = self.endpoint.connect(peer, conv, config.crypto()).unwrap();
        let seed = SessionSeed::new(&mut self.entropy);
        self.insert(handle, Connection::connect(conv, config, now, seed));
        handle
    }

    fn insert(&mut self, handle: Handle, mut connection: Connection) {
        connection.set_buffer_memory(&self.memory);
        if self.sessions.len() <= handle.index() {
            self.sessions.resize_with(handle.index() + 1, || None);
        }
        let before = self.sessions[handle.index()].replace((handle, connection));
        assert!(before.is_none(), "{handle:?} has the index of {:?}", before.map(|session| session.0));
    }

    /// Takes in one packet.
    pub(crate) fn receive_one(&mut self, now: Instant, source: SocketAddr, packet: &[u8]) {
        let stride = packet.len();
        self.receive(now, source, packet.to_vec(), stride);
    }

    /// Takes in a batch of packets, and accepts the sessions that they begin while there is room.
    pub(crate) fn receive(&mut self, now: Instant, source: SocketAddr, bytes: Vec<u8>, stride: usize) {
        let mut block = Arc::new(bytes.into_boxed_slice());
        self.endpoint.receive(source, Arc::get_mut(&mut block).unwrap(), stride);
        self.route(now, source, &block, stride);
    }

    /// Takes in what another shard has handed over.
    #[cfg(feature = "aead")]
    pub(crate) fn receive_handed_over(&mut self, now: Instant, packets: &HandOver, bytes: Vec<u8>) {
        let block = Arc::new(bytes.into_boxed_slice());
        self.endpoint.receive_handed_over(packets, &block);
        self.route(now, packets.source(), &block, packets.stride);
    }

    fn route(&mut self, now: Instant, source: SocketAddr, block: &Arc<Box<[u8]>>, stride: usize) {
        let mut behind = 0;
        while let Some(routed) = self.endpoint.poll_routed(now, block) {
            let run = match routed {
                Routed::Session(run) => run,
                Routed::Incoming(incoming) => match self.accept(now, source, incoming) {
                    Some(run) => run,
                    None => continue,
                },
                Routed::Reply(reply) => {
                    let bytes = self.endpoint.reply().to_vec();
                    assert!(
                        !bytes.is_empty() && bytes.len() <= stride.min(block.len()),
                        "longer than its cause"
                    );
                    assert_eq!(reply.to, source);
                    self.replies.push(Batch { to: source, stride: bytes.len(), bytes });
                    continue;
                }
                Routed::FromElsewhere(run, from) => {
                    assert_eq!(from, source);
                    self.receive_from_elsewhere(now, &block[run.range.clone()], &run, from);
                    continue;
                }
                Routed::OtherShard(packets) => {
                    let bytes = block[packets.range.clone()].to_vec();
                    self.handed_over.push((*packets, bytes));
                    continue;
                }
                other => panic!("{other:?}"),
            };
            assert!(run.range.start >= behind && !run.range.is_empty() && run.range.end <= block.len());
            assert!(run.range.start % stride == 0 && run.stride == stride, "{run:?} of {stride}");
            behind = run.range.end;
            let (peer, conv) = self.endpoint.route(run.handle).unwrap();
            let connection = self.connection(run.handle);
            assert_eq!((peer, conv), (source, connection.conv()), "{run:?}");
            connection.handle_batch(now, block, run.range, run.stride);
        }
        assert_eq!(self.endpoint.len(), self.sessions.iter().flatten().count());
        assert!(self.memory.taken() <= self.memory.limit(), "{:?}", self.memory);
    }

    fn receive_from_elsewhere(&mut self, now: Instant, packets: &[u8], run: &Run, source: SocketAddr) {
        let (session, connection) = self.sessions[run.handle.index()].as_mut().unwrap();
        assert_eq!(*session, run.handle);
        connection.handle_from_elsewhere(now, packets, run.stride, source);
        let mut sent = 0;
        while let Some((to, transmit)) = connection.poll_transmit_elsewhere(now, &mut self.buffer) {
            assert_eq!(to, source, "nobody else has asked");
            sent += transmit.len;
            let bytes = self.buffer[..transmit.len].to_vec();
            self.replies.push(Batch { to, bytes, stride: transmit.stride });
        }
        assert!(sent <= packets.len(), "more than came");
    }

    fn accept(&mut self, now: Instant, source: SocketAddr, incoming: Incoming) -> Option<Run> {
        assert_eq!(incoming.source, source);
        assert_eq!(self.endpoint.find(source, incoming.conv), None);
        if self.waiting.len() >= self.config.accept_backlog() {
            self.endpoint.refuse(Refusal::QueueFull);
            return None;
        }
        let accepted = self.endpoint.accept(now).unwrap();
        assert_eq!(self.endpoint.accept(now), None, "accepted twice");
        self.replaced_elsewhere.extend(self.endpoint.take_replaced_elsewhere());
        if let Some(replaced) = accepted.replaced {
            self.remove(replaced);
            self.replaced.push(replaced);
        }
        if let Some(evicted) = accepted.evicted {
            self.remove(evicted);
            self.evicted.push(evicted);
        }
        let seed = SessionSeed::new(&mut self.entropy);
        let retiring = self.retiring.as_ref().filter(|_| incoming.retiring_key);
        let config = retiring.unwrap_or(&self.config);
        let mut connection = Connection::accept(incoming.conv, config, now, seed);
        if incoming.validated {
            connection.set_validated();
        }
        connection.set_message_at(incoming.message_at);
        self.endpoint.follow(accepted.run.handle, &connection);
        self.insert(accepted.run.handle, connection);
        self.waiting.push_back(accepted.run.handle);
        Some(accepted.run)
    }

    /// The application takes a session from the accept queue.
    pub(crate) fn take_accepted(&mut self) -> Option<Handle> {
        while let Some(handle) = self.waiting.pop_front() {
            if self.endpoint.route(handle).is_some() {
                return Some(handle);
            }
        }
        None
    }

    /// Ends a session.
    pub(crate) fn close(&mut self, now: Instant, handle: Handle) {
        let record = self.connection(handle).record();
        assert!(self.endpoint.close(now, handle, Some(record)));
        self.remove(handle);
    }

    /// Another shard's session has taken the address of one here.
    #[cfg(feature = "aead")]
    pub(crate) fn end_replaced(&mut self, now: Instant, replaced: &ReplacedElsewhere) {
        if let Some(handle) = self.endpoint.replaced(now, replaced.address) {
            self.remove(handle);
            self.replaced.push(handle);
        }
    }

    fn remove(&mut self, handle: Handle) {
        assert_eq!(self.endpoint.route(handle), None);
        let removed = self.sessions[handle.index()].take();
        assert_eq!(removed.map(|session| session.0), Some(handle));
        assert!(self.memory.taken() == 0 || self.sessions.iter().any(Option::is_some), "{:?}", self.memory);
    }

    pub(crate) fn connection(&mut self, handle: Handle) -> &mut Connection {
        let session = self.sessions[handle.index()].as_mut().unwrap();
        assert_eq!(session.0, handle);
        &mut session.1
    }

    pub(crate) fn connections(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.sessions.iter_mut().flatten().map(|session| &mut session.1)
    }

    /// As [`drive`](Self::drive), with each packet by itself, as a network delivers them.
    pub(crate) fn drive_packets(&mut self, now: Instant) -> Vec<Batch> {
        let packets = |Batch { to, bytes, stride }: Batch| {
            let packets = bytes.chunks(stride.max(1)).map(<[u8]>::to_vec);
            packets.map(|bytes| Batch { to, stride: bytes.len(), bytes }).collect::<Vec<_>>()
        };
        self.drive(now).into_iter().flat_map(packets).collect()
    }

    /// Does what is due, and returns what is to be sent.
    pub(crate) fn drive(&mut self, now: Instant) -> Vec<Batch> {
        let mut batches = std::mem::take(&mut self.replies);
        let mut replaced = Vec::new();
        for (handle, connection) in self.sessions.iter_mut().flatten() {
            if connection.poll_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
            while let Some(event) = connection.poll_event() {
                match event {
                    Event::Moved(to) => match self.endpoint.moved(now, *handle, to) {
                        Ok(other) => {
                            replaced.extend(other);
                            self.replaced_elsewhere.extend(self.endpoint.take_replaced_elsewhere());
                        }
                        Err(error) => {
                            assert_ne!(error, MoveError::Unknown);
                            assert!(self.endpoint.close(now, *handle, None));
                            replaced.push(*handle);
                        }
                    },
                    Event::Validated => self.endpoint.validated(*handle),
                    _ => {}
                }
            }
            if replaced.contains(handle) {
                continue;
            }
            let (to, _) = self.endpoint.route(*handle).unwrap();
            while let Some(transmit) = connection.poll_transmit(now, &mut self.buffer) {
                let bytes = self.buffer[..transmit.len].to_vec();
                batches.push(Batch { to, bytes, stride: transmit.stride });
            }
            self.endpoint.remember_sent(connection);
        }
        for handle in replaced {
            self.remove(handle);
            self.replaced.push(handle);
        }
        batches
    }

    /// When [`drive`](Self::drive) has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.sessions.iter().flatten().filter_map(|session| session.1.poll_timeout()).min()
    }

    /// Everything that has arrived for a session.
    pub(crate) fn read(&mut self, handle: Handle) -> Vec<u8> {
        let mut bytes = vec![0; 65_536];
        let count = self.connection(handle).read(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }

    pub(crate) fn stats(&self) -> RoutingStats {
        *self.endpoint.stats()
    }
}
