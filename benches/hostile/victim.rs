//! The end that packets are sent to: an endpoint with one established session, driven as a socket's driver does it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    crypto::{CipherKind, Framing, Key, PacketCipher, PacketCrypto},
    proto::{
        Block, Command, Connection, Endpoint, Handle, Instant, Random, Refusal, Routed, SegmentHeader,
        Segments, SessionSeed,
    },
};

pub(crate) const CONV: u32 = 7;
/// Virtual time between two packets.
const STEP: Duration = Duration::from_micros(2);
/// Subtypes of the extensions.
const HELLO: u8 = 0x01;
const ANSWER: u8 = 0x02;

/// The same every run.
struct Entropy(u64);

impl Random for Entropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 56) as u8
        });
    }
}

pub(crate) fn settings() -> KcpConfigBuilder {
    // What nobody answers here must not end the session, and nothing is asked beside what is measured.
    KcpConfig::builder().keep_alive(None).dead_timeout(Duration::from_secs(14_400)).datagram_queue(1 << 18)
}

pub(crate) fn with_aead(settings: KcpConfigBuilder) -> KcpConfigBuilder {
    let key = Key::from_bytes(b"a key of 16 byte");
    let cipher = CipherKind::Aes128Gcm.build(&key, Framing::KcpGo).expect("a cipher");
    settings.crypto(PacketCrypto::with_os_nonces(cipher).expect("the system has randomness"))
}

pub(crate) const PEER: ([u8; 4], u16) = ([198, 51, 100, 1], 5_000);

/// An address of nobody.
pub(crate) fn stranger(number: u32) -> SocketAddr {
    SocketAddr::from(((0x0a00_0000 | number >> 8).to_be_bytes(), 1_000 + (number & 0xff) as u16))
}

pub(crate) struct Victim {
    endpoint: Endpoint,
    pub(crate) connection: Connection,
    handle: Handle,
    pub(crate) now: Instant,
    cipher: Option<PacketCrypto>,
    buffer: Vec<u8>,
    /// The tag of the victim, which is on all extension segments that are for it, and that of its peer.
    pub(crate) tag: u32,
    pub(crate) peer_tag: u32,
    /// The next `sn` of the peer, and of the victim.
    pub(crate) peer_sn: u32,
    pub(crate) sn: u32,
    /// `ts` of the victim's last packet.
    pub(crate) ts: u32,
    /// Packets that were taken in, and those sent while they were.
    pub(crate) taken: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    /// A packet that a pattern keeps.
    pub(crate) last: Vec<u8>,
    number: u64,
}

impl Victim {
    pub(crate) fn new(settings: KcpConfigBuilder) -> Self {
        let config = settings.build().expect("settings in range");
        let mut now = Instant::from_millis(1_000);
        let mut endpoint = Endpoint::accepting(&config, &mut Entropy(1));
        let mut peer = Connection::connect(CONV, &config, now, SessionSeed::new(&mut Entropy(2)));
        let mut connection = Connection::accept(CONV, &config, now, SessionSeed::new(&mut Entropy(3)));
        let mut handle = None;
        let mut buffer = vec![0; 65_536];
        let cipher = config.crypto().cloned();
        let (mut tag, mut peer_tag, mut sn, mut peer_sn, mut ts) = (0, 0, 0, 0, 0);
        peer.write(now, b"question").expect("room");
        for round in 0..200 {
            now += Duration::from_millis(1);
            let mut to_victim = Vec::new();
            while let Some(transmit) = peer.poll_transmit(now, &mut buffer) {
                to_victim.extend(buffer[..transmit.len].chunks(transmit.stride).map(<[u8]>::to_vec));
            }
            for packet in to_victim {
                for (header, _) in segments(cipher.as_ref(), &packet) {
                    match header.cmd {
                        Command::Extension if header.frg == HELLO => peer_tag = header.sn,
                        Command::Push => peer_sn = header.sn.wrapping_add(1),
                        _ => {}
                    }
                }
                let stride = packet.len();
                let mut block: Block = Arc::new(packet.into_boxed_slice());
                endpoint.receive(SocketAddr::from(PEER), Arc::get_mut(&mut block).expect("new"), stride);
                while let Some(routed) = endpoint.poll_routed(now, &block) {
                    let run = match routed {
                        Routed::Session(run) => run,
                        Routed::Incoming(_) => {
                            let accepted = endpoint.accept(now).expect("offered");
                            endpoint.follow(accepted.run.handle, &connection);
                            handle = Some(accepted.run.handle);
                            accepted.run
                        }
                        Routed::Reply(_) => {
                            let _ = peer.handle_packet(now, &mut endpoint.reply().to_vec());
                            continue;
                        }
                        _ => continue,
                    };
                    connection.handle_batch(now, &block, run.range, run.stride);
                }
            }
            if round == 20 {
                connection.write(now, b"answer").expect("room");
            }
            connection.handle_timeout(now);
            peer.handle_timeout(now);
            while connection.read(&mut [0; 64]).is_ok() {}
            while let Some(transmit) = connection.poll_transmit(now, &mut buffer) {
                endpoint.remember_sent(&mut connection);
                for packet in buffer[..transmit.len].to_vec().chunks(transmit.stride) {
                    for (header, body) in segments(cipher.as_ref(), packet) {
                        match header.cmd {
                            Command::Extension if header.frg == ANSWER => {
                                tag = u32::from_le_bytes(body[12..16].try_into().expect("4 bytes"));
                            }
                            Command::Push => sn = header.sn.wrapping_add(1),
                            _ => {}
                        }
                        ts = header.ts;
                    }
                    let _ = peer.handle_packet(now, &mut packet.to_vec());
                }
            }
            while connection.poll_event().is_some() {}
            while peer.poll_event().is_some() {}
        }
        // The peer is silent from here on: others speak for it.
        assert!(connection.is_validated() && connection.is_peer_confirmed() && tag != 0);
        let handle = handle.expect("accepted");
        endpoint.validated(handle);
        Self {
            endpoint,
            connection,
            handle,
            now,
            cipher,
            buffer,
            tag,
            peer_tag,
            peer_sn,
            sn,
            ts,
            taken: 0,
            sent: 0,
            sent_bytes: 0,
            last: Vec::new(),
            number: 0,
        }
    }

    /// The packet, encrypted if the session is.
    pub(crate) fn sealed(&mut self, packet: Vec<u8>) -> Vec<u8> {
        let Some(crypto) = &self.cipher else { return packet };
        self.number += 1;
        let cipher: &dyn PacketCipher = crypto.cipher();
        let mut sealed = vec![0; cipher.header_len()];
        sealed[..8].copy_from_slice(&self.number.to_le_bytes());
        sealed.extend_from_slice(&packet);
        sealed.resize(sealed.len() + cipher.trailer_len(), 0);
        cipher.seal(&mut sealed).expect("a packet");
        sealed
    }

    /// Writes `count` segments with `len` bytes each and sends them. Returns their headers.
    pub(crate) fn send(&mut self, count: usize, len: usize) -> Vec<SegmentHeader> {
        let mut headers = Vec::new();
        for _ in 0..count {
            assert_eq!(self.connection.write(self.now, &vec![7; len]), Ok(len));
            while let Some(transmit) = self.connection.poll_transmit(self.now, &mut self.buffer) {
                for packet in self.buffer[..transmit.len].chunks(transmit.stride) {
                    let pushes = Segments::new(packet).flatten().map(|(header, _)| header);
                    headers.extend(pushes.filter(|header| header.cmd == Command::Push));
                }
            }
        }
        if let Some(last) = headers.last() {
            (self.sn, self.ts) = (last.sn.wrapping_add(1), last.ts);
        }
        headers
    }

    /// Lets time pass in which nothing comes.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
        self.connection.handle_timeout(self.now);
        self.serve();
    }

    /// A driver's turn with the packets of one sender that were received at once: into the session, to the reader, and out.
    pub(crate) fn turn(&mut self, from: SocketAddr, block: &mut Block, len: usize, stride: usize) {
        self.now += STEP;
        self.taken += len.div_ceil(stride) as u64;
        let bytes = Arc::get_mut(block).expect("everything was read");
        self.endpoint.receive(from, &mut bytes[..len], stride);
        let mut dirty = false;
        while let Some(routed) = self.endpoint.poll_routed(self.now, block) {
            match routed {
                Routed::Session(run) => {
                    assert_eq!(run.handle, self.handle);
                    self.connection.handle_batch(self.now, block, run.range, run.stride);
                    dirty = true;
                }
                Routed::FromElsewhere(run, from) => {
                    self.connection.handle_from_elsewhere(self.now, &block[run.range], run.stride, from);
                    while let Some((_, transmit)) =
                        self.connection.poll_transmit_elsewhere(self.now, &mut self.buffer)
                    {
                        self.sent += 1;
                        self.sent_bytes += transmit.len as u64;
                    }
                    dirty = true;
                }
                Routed::Reply(_) => {
                    self.sent += 1;
                    self.sent_bytes += self.endpoint.reply().len() as u64;
                }
                // Openings are bounded otherwise: here there is never room for one.
                Routed::Incoming(_) => self.endpoint.refuse(Refusal::QueueFull),
                _ => {}
            }
        }
        if dirty {
            self.serve();
        }
    }

    fn serve(&mut self) {
        if self.connection.poll_timeout().is_some_and(|due| due <= self.now) {
            self.connection.handle_timeout(self.now);
        }
        while self.connection.read(&mut self.buffer).is_ok() {}
        while self.connection.recv_datagram().is_some() {}
        while let Some(transmit) = self.connection.poll_transmit(self.now, &mut self.buffer) {
            self.endpoint.remember_sent(&mut self.connection);
            self.sent += transmit.len.div_ceil(transmit.stride) as u64;
            self.sent_bytes += transmit.len as u64;
        }
        while self.connection.poll_event().is_some() {}
        std::hint::black_box(self.connection.poll_timeout());
    }
}

/// The segments of a packet that was sealed.
fn segments(crypto: Option<&PacketCrypto>, packet: &[u8]) -> Vec<(SegmentHeader, Vec<u8>)> {
    let mut packet = packet.to_vec();
    let payload = match crypto {
        None => &packet[..],
        Some(crypto) => {
            let cipher = crypto.cipher();
            cipher.open(&mut packet).expect("under its key");
            &packet[cipher.header_len()..packet.len() - cipher.trailer_len()]
        }
    };
    Segments::new(payload).flatten().map(|(header, body)| (header, body.to_vec())).collect()
}
