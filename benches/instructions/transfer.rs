//! Transfers between two ends of a session on virtual time, the same instruction by instruction every run.
//!
//! The simulator's [`Link`] decides what becomes of a packet. The rest of the simulator would be counted too: its heap, its
//! traces and its checks of every byte. Here, everything but the library is a copy of each packet and what its link does.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{Connection, Extensions, Instant, SessionSeed},
};

use kcp9_simulator::{LinkSettings, Nonces, Rng, link::Link, ms};

/// Each way.
const DELAY: Duration = ms(5);
const LOSS: f64 = 0.01;
const SEED: u64 = 0x6b63_7039;
/// Room for a packet of any transfer. A search of the path's MTU makes later ones longer, which is not to move those that are here.
const MAX_PACKET: usize = 1_500;
/// One GSO send.
const BUFFER: usize = 65_536;
/// Virtual time in which the slowest of them is long done.
const LIMIT: Duration = Duration::from_secs(600);

/// A transfer to be counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) name: &'static str,
    /// Bytes in all, and of each write.
    bytes: usize,
    write: usize,
    settings: fn() -> KcpConfigBuilder,
    /// Packets are handed in as a receive call leaves them: many in one block of memory, where payload may stay.
    in_batches: bool,
}

impl Transfer {
    pub(crate) fn all() -> [Self; 6] {
        let settings = KcpConfig::builder;
        let bulk = Self { name: "plain", bytes: 8 << 20, write: 65_536, settings, in_batches: false };
        [
            bulk,
            Self { name: "plain-in-batches", in_batches: true, ..bulk },
            Self { name: "plain-64-byte-writes", bytes: 1 << 20, write: 64, ..bulk },
            Self { name: "aes-128-gcm", settings: encrypted, ..bulk },
            Self { name: "fec-10-3", settings: || KcpConfig::builder().fec(10, 3), ..bulk },
            Self {
                name: "plain-extensions",
                settings: || KcpConfig::builder().extensions(Extensions::Preferred),
                ..bulk
            },
        ]
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|transfer| transfer.name == name)
    }

    /// # Panics
    /// If it does not come to its end.
    pub(crate) fn run(self) {
        let config = (self.settings)().build().expect("settings in range");
        let mut session = Session::new(&config, self.in_batches);
        let payload = vec![0x5a; self.write];
        let mut out = vec![0; BUFFER];
        let (mut written, mut read) = (0, 0);
        while read < self.bytes {
            let [sender, receiver] = &mut session.ends;
            while written < self.bytes {
                match sender.write(session.now, &payload[..self.write.min(self.bytes - written)]) {
                    Ok(count) => written += count,
                    Err(_) => break,
                }
            }
            while let Ok(count) = receiver.read(&mut out) {
                read += count;
            }
            session.step();
            assert!(session.now - Instant::ZERO < LIMIT, "{}: {read} of {} bytes", self.name, self.bytes);
        }
        assert_eq!(read, self.bytes, "{}", self.name);
        let lost: u64 = session.links.iter().map(|link| link.counts.lost).sum();
        assert!(lost > 0, "{}: nothing was lost", self.name);
    }
}

fn encrypted() -> KcpConfigBuilder {
    let kind = CipherKind::Aes128Gcm;
    let key = Key::from_bytes(&[7; 16]);
    let cipher = kind.build(&key, Framing::KcpGo).expect("a key of the right length");
    KcpConfig::builder().crypto(PacketCrypto::new(cipher, Arc::new(Nonces::default())))
}

/// Two ends and the packets between them.
struct Session {
    now: Instant,
    ends: [Connection; 2],
    /// The path from each end.
    links: [Link; 2],
    /// All are equally long under way: in the order of sending.
    under_way: VecDeque<(Instant, usize, Vec<u8>)>,
    /// Of packets that have arrived.
    spare: Vec<Vec<u8>>,
    in_batches: bool,
    /// What packets are received into, and may stay in for a while.
    blocks: Vec<Arc<Box<[u8]>>>,
    buffer: Vec<u8>,
}

impl Session {
    fn new(config: &KcpConfig, in_batches: bool) -> Self {
        let now = Instant::ZERO;
        let path = LinkSettings::delay(DELAY).loss(LOSS);
        let mut rng = Rng::new(SEED);
        let ends = if config.extensions() == Extensions::Off {
            [Connection::new(7, config, now), Connection::new(7, config, now)]
        } else {
            let seeds = &mut Rng::new(1);
            [
                Connection::connect(7, config, now, SessionSeed::new(seeds)),
                Connection::accept(7, config, now, SessionSeed::new(seeds)),
            ]
        };
        Self {
            now,
            ends,
            links: [(); 2].map(|()| Link::new(path.clone(), rng.fork())),
            under_way: VecDeque::new(),
            spare: Vec::new(),
            in_batches,
            blocks: Vec::new(),
            buffer: vec![0; BUFFER],
        }
    }

    /// Sends what there is to send, goes to what happens next, and lets it happen.
    fn step(&mut self) {
        for from in [0, 1] {
            self.transmit(from);
        }
        let arrival = self.under_way.front().map(|(at, ..)| *at);
        let deadlines = self.ends.each_ref().map(Connection::poll_timeout);
        let next = [arrival, deadlines[0], deadlines[1]].into_iter().flatten().min();
        self.now = next.expect("something is under way or due").max(self.now);
        while self.under_way.front().is_some_and(|(at, ..)| *at <= self.now) {
            if self.in_batches {
                self.arrive_in_block();
                continue;
            }
            let Some((_, to, mut packet)) = self.under_way.pop_front() else { break };
            self.ends[to].handle_packet(self.now, &mut packet).expect("a packet of the peer");
            self.spare.push(packet);
        }
        for (end, deadline) in self.ends.iter_mut().zip(deadlines) {
            if deadline.is_some_and(|at| at <= self.now) {
                end.handle_timeout(self.now);
            }
            while end.poll_event().is_some() {}
        }
    }

    /// Has packets arrive in a block as GRO leaves them: those of one size that are due for one end and fit it, the last
    /// perhaps shorter.
    fn arrive_in_block(&mut self) {
        let free = self.blocks.iter().position(|block| Arc::strong_count(block) == 1);
        let mut block =
            free.map_or_else(|| Arc::new(vec![0; BUFFER].into()), |index| self.blocks.swap_remove(index));
        let memory = Arc::get_mut(&mut block).expect("nobody else's");
        let (_, to, first) = self.under_way.front().expect("a packet is under way");
        let (to, stride, mut len) = (*to, first.len(), 0_usize);
        while let Some((at, other, packet)) = self.under_way.front()
            && (*at <= self.now && *other == to)
            && len.is_multiple_of(stride)
            && (packet.len() <= stride && len + packet.len() <= BUFFER)
        {
            memory[len..len + packet.len()].copy_from_slice(packet);
            len += packet.len();
            self.spare.extend(self.under_way.pop_front().map(|(_, _, packet)| packet));
        }
        let drops = self.ends[to].handle_batch(self.now, &block, 0..len, stride);
        assert_eq!((drops.replayed, drops.malformed), (0, 0));
        self.blocks.push(block);
    }

    fn transmit(&mut self, from: usize) {
        while let Some(transmit) = self.ends[from].poll_transmit(self.now, &mut self.buffer) {
            for sent in self.buffer[..transmit.len].chunks(transmit.stride) {
                // The link doubles nothing.
                let [Some(arrival), None] = self.links[from].send(self.now, sent) else { continue };
                let mut packet = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(MAX_PACKET));
                packet.clear();
                packet.extend_from_slice(sent);
                self.under_way.push_back((arrival, 1 - from, packet));
            }
        }
    }
}
