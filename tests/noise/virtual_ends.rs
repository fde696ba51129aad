//! Ends of sessions with key agreement on virtual time: what they send is for the test to carry.

use std::{collections::HashMap, net::SocketAddr, ops::Range, sync::Arc};

use kcp9::{
    KcpConfig,
    proto::{Connection, Endpoint, Event, Handle, Instant, ReadError, Routed, SessionSeed},
};
use kcp9_simulator::Rng;

pub(super) const SERVER: ([u8; 4], u16) = ([10, 0, 0, 1], 443);

pub(super) fn address((ip, port): ([u8; 4], u16)) -> SocketAddr {
    SocketAddr::from((ip, port))
}

pub(super) fn client_address(nth: usize) -> SocketAddr {
    address(([10, 0, 1, nth as u8], 4_000))
}

/// Says which seed failed.
pub(super) struct SeedOnPanic(pub(super) u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

/// A server that echoes and then ends its stream.
pub(super) struct Server {
    /// If not, the test reads and writes.
    pub(super) echoes: bool,
    /// Whether what comes from elsewhere may be of a client that has moved. If not, it is a copy.
    pub(super) follows: bool,
    pub(super) endpoint: Endpoint,
    pub(super) config: KcpConfig,
    pub(super) rng: Rng,
    pub(super) sessions: HashMap<Handle, Connection>,
    pub(super) accepted: usize,
    /// Of these, with early data.
    pub(super) early: usize,
    /// And without any, but half-open: somebody has agreed on other keys since.
    pub(super) unsure: usize,
    pub(super) replies: Vec<(SocketAddr, Vec<u8>)>,
}

impl Server {
    pub(super) fn new(config: KcpConfig, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let endpoint = Endpoint::accepting(&config, &mut rng);
        Self {
            echoes: true,
            follows: false,
            endpoint,
            config,
            rng,
            sessions: HashMap::new(),
            accepted: 0,
            early: 0,
            unsure: 0,
            replies: Vec::new(),
        }
    }

    pub(super) fn receive(&mut self, now: Instant, source: SocketAddr, packet: &[u8]) {
        let stride = packet.len().max(1);
        let mut block = Arc::new(packet.to_vec().into_boxed_slice());
        self.endpoint.receive(source, Arc::get_mut(&mut block).unwrap(), stride);
        while let Some(routed) = self.endpoint.poll_routed(now, &block) {
            let run = match routed {
                Routed::Session(run) => run,
                Routed::Incoming(incoming) => {
                    let keys = self.endpoint.take_session_keys().unwrap();
                    let early = self.endpoint.take_early_data();
                    assert!(incoming.sealed);
                    self.unsure += usize::from(!incoming.validated && early.is_none());
                    self.early += usize::from(early.is_some());
                    let seed = SessionSeed::new(&mut self.rng);
                    let mut connection =
                        Connection::accept_with_keys(incoming.conv, &self.config, now, seed, keys, early);
                    if incoming.validated {
                        connection.set_validated();
                    }
                    connection.set_message_at(incoming.message_at);
                    let accepted = self.endpoint.accept(now).unwrap();
                    if let Some(evicted) = accepted.evicted {
                        self.sessions.remove(&evicted);
                    }
                    self.endpoint.follow(accepted.run.handle, &connection);
                    self.sessions.insert(accepted.run.handle, connection);
                    self.accepted += 1;
                    accepted.run
                }
                Routed::Reply(reply) => {
                    assert!(self.endpoint.reply().len() <= packet.len(), "longer than its cause");
                    self.replies.push((reply.to, self.endpoint.reply().to_vec()));
                    continue;
                }
                Routed::FromElsewhere(run, from) => {
                    let connection = self.sessions.get_mut(&run.handle).unwrap();
                    connection.handle_from_elsewhere(now, packet, stride, from);
                    let mut buffer = vec![0; 2_048];
                    while let Some((to, transmit)) = connection.poll_transmit_elsewhere(now, &mut buffer) {
                        assert!(self.follows, "a copy from elsewhere is asked for nothing");
                        self.replies.push((to, buffer[..transmit.len].to_vec()));
                    }
                    continue;
                }
                other => panic!("{other:?}"),
            };
            let connection = self.sessions.get_mut(&run.handle).unwrap();
            connection.handle_sealed_batch(now, &mut block, run.range, run.stride);
        }
    }

    pub(super) fn drive(&mut self, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut sent = std::mem::take(&mut self.replies);
        let mut ended = Vec::new();
        for (handle, connection) in &mut self.sessions {
            if self.echoes {
                echo(connection, now);
            }
            let packets = driven_with(connection, now, |event| match event {
                Event::Validated => self.endpoint.validated(*handle),
                Event::Moved(to) => assert_eq!(self.endpoint.moved(now, *handle, to), Ok(None)),
                _ => {}
            });
            let (peer, _) = self.endpoint.route(*handle).unwrap();
            sent.extend(packets.into_iter().map(|packet| (peer, packet)));
            if connection.close_reason().is_some() {
                ended.push(*handle);
            }
        }
        for handle in ended {
            let mut connection = self.sessions.remove(&handle).unwrap();
            let (record, keys) = (connection.record(), connection.take_session_keys());
            assert!(self.endpoint.close_sealed(now, handle, record, keys));
        }
        sent
    }
}

/// Writes what was read, and ends the stream behind its end.
fn echo(connection: &mut Connection, now: Instant) {
    let mut bytes = [0; 4_096];
    loop {
        match connection.read(&mut bytes) {
            Ok(len) => assert_eq!(connection.write(now, &bytes[..len]), Ok(len)),
            Err(ReadError::Finished) => break connection.shutdown(now),
            Err(_) => break,
        }
    }
}

/// What a connection sends now.
pub(super) fn driven(connection: &mut Connection, now: Instant) -> Vec<Vec<u8>> {
    driven_with(connection, now, |_| {})
}

pub(super) fn driven_with(
    connection: &mut Connection,
    now: Instant,
    mut heed: impl FnMut(Event),
) -> Vec<Vec<u8>> {
    if connection.poll_timeout().is_some_and(|at| at <= now) {
        connection.handle_timeout(now);
    }
    while let Some(event) = connection.poll_event() {
        heed(event);
    }
    let (mut buffer, mut packets) = (vec![0; 65_536], Vec::new());
    while let Some(transmit) = connection.poll_transmit(now, &mut buffer) {
        packets.extend(buffer[..transmit.len].chunks(transmit.stride).map(<[u8]>::to_vec));
    }
    packets
}

/// What a client at the first address sends now, and what comes back.
pub(super) fn exchange(now: Instant, server: &mut Server, client: &mut Connection) {
    for packet in driven(client, now) {
        server.receive(now, client_address(1), &packet);
    }
    for (_, packet) in server.drive(now) {
        let _ = client.handle_packet(now, &mut packet.clone());
    }
}

/// A client at the first address and its server, for a while.
pub(super) fn go_on(millis: Range<u64>, server: &mut Server, client: &mut Client) {
    for now in millis.map(Instant::from_millis) {
        client.work(now);
        exchange(now, server, &mut client.connection);
    }
}

/// A client that writes, ends its stream, and reads to the end.
pub(super) struct Client {
    pub(super) connection: Connection,
    pub(super) request: Vec<u8>,
    pub(super) answer: Vec<u8>,
    pub(super) written: usize,
}

impl Client {
    pub(super) fn new(config: &KcpConfig, now: Instant, conv: u32, len: usize, rng: &mut Rng) -> Self {
        Self::with_early_data(config, now, conv, 0, len, rng)
    }

    /// One whose first `early` bytes go with its first message.
    pub(super) fn with_early_data(
        config: &KcpConfig,
        now: Instant,
        conv: u32,
        early: usize,
        len: usize,
        rng: &mut Rng,
    ) -> Self {
        let seed = SessionSeed::new(rng);
        let request: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
        let connection =
            Connection::connect_with_early_data(conv, config, now, seed, &request[..early], rng).unwrap();
        Self { connection, request, answer: Vec::new(), written: early }
    }

    /// Returns whether all is done.
    pub(super) fn work(&mut self, now: Instant) -> bool {
        if self.written < self.request.len()
            && let Ok(len) = self.connection.write(now, &self.request[self.written..])
        {
            self.written += len;
        }
        if self.written == self.request.len() {
            self.connection.shutdown(now);
        }
        let mut bytes = [0; 4_096];
        while let Ok(len) = self.connection.read(&mut bytes) {
            self.answer.extend_from_slice(&bytes[..len]);
        }
        let reason = self.connection.close_reason();
        assert!(matches!(reason, None | Some(kcp9::proto::CloseReason::Finished)), "{reason:?}");
        reason.is_some()
    }
}
