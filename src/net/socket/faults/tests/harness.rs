//! A session whose sockets fail as a test says, and what tests make faults and bytes of.

use std::{
    eprintln,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
    vec::Vec,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    super::{Call, Faults, errno::*},
    LIMIT,
};
use crate::{
    KcpConfig, KcpListener, KcpStream,
    net::{EndpointStats, KcpSocket},
};

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// SplitMix64, as the simulator has it.
#[derive(Debug, Clone)]
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether something happens that does in `percent` of all cases.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub(super) fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize]
    }
}

/// Says which seed a test had, if it fails.
pub(super) struct Seed(pub(super) u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed is {:#x}", self.0);
        }
    }
}

/// `len` bytes that differ with `salt`, and everywhere from those nearby.
pub(super) fn payload(salt: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(salt);
    (0..len.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).take(len).collect()
}

pub(super) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(output) => output,
        Err(_) => panic!("in time: {what}"),
    }
}

pub(super) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(ms(2)).await;
        }
    };
    within(what, poll).await;
}

/// The two ends of a session, and their sockets.
pub(super) struct Pair {
    _listener: KcpListener,
    pub(super) client: KcpStream,
    pub(super) server: KcpStream,
    pub(super) sockets: [KcpSocket; 2],
}

impl Pair {
    /// A session that has just begun, without any fault.
    pub(super) async fn new(config: KcpConfig) -> Self {
        let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await.unwrap();
        let server = listener.local_addr().unwrap();
        Self::connected_by(server, listener, config).await
    }

    /// A session that has just begun, whose client reaches its server by another address.
    pub(super) async fn connected_by(by: SocketAddr, listener: KcpListener, config: KcpConfig) -> Self {
        let mut client = KcpStream::connect(by, config).await.unwrap();
        client.write_u8(b'!').await.unwrap();
        let (mut server, _) = within("the session is accepted", listener.accept()).await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), b'!');
        within("the server answers", client.connected(LIMIT)).await.unwrap();
        let sockets = [client.socket(), listener.socket()];
        Self { _listener: listener, client, server, sockets }
    }

    pub(super) fn faults(&self) -> [&Faults; 2] {
        self.sockets.each_ref().map(KcpSocket::faults)
    }

    pub(super) fn stats(&self) -> [EndpointStats; 2] {
        self.sockets.each_ref().map(KcpSocket::stats)
    }

    /// Sends `len` bytes each way at the same time. They arrive as they were sent, and then comes the end. The sockets are left
    /// open, to look at.
    pub(super) async fn transfer(self, len: usize) -> [KcpSocket; 2] {
        let (to_server, to_client) = (payload(1, len), payload(2, len));
        let (mut client_reader, mut client_writer) = self.client.into_split();
        let (mut server_reader, mut server_writer) = self.server.into_split();
        let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
        let transfer = async {
            tokio::try_join!(
                async {
                    client_writer.write_all(&to_server).await?;
                    client_writer.shutdown().await
                },
                async {
                    server_writer.write_all(&to_client).await?;
                    server_writer.shutdown().await
                },
                server_reader.read_to_end(&mut at_server),
                client_reader.read_to_end(&mut at_client),
            )
        };
        within("everything arrives", transfer).await.unwrap();
        assert!(at_server == to_server, "the server read {} of {len} bytes", at_server.len());
        assert!(at_client == to_client, "the client read {} of {len} bytes", at_client.len());
        self.sockets
    }

    /// Whether a byte gets there and back.
    pub(super) async fn assert_alive(&mut self) {
        let round = async {
            self.client.write_u8(7).await?;
            let byte = self.server.read_u8().await?;
            self.server.write_u8(byte + 1).await?;
            self.client.read_u8().await
        };
        assert_eq!(within("a byte there and back", round).await.unwrap(), 8);
    }
}

/// Counts what a schedule did.
#[derive(Clone, Default)]
pub(super) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(super) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Faults of all kinds that pass, at random.
pub(super) fn random_faults(mut rng: Rng) -> impl FnMut(Call) -> Option<i32> + Send {
    /// The longest series of receive calls that fail: longer than the driver takes without a pause.
    const LONGEST: u64 = 50;
    let (mut failing, mut code) = (0, 0);
    move |call| match call {
        Call::Send { .. } if rng.chance(10) => Some(EAGAIN),
        Call::Send { .. } if rng.chance(5) => {
            Some(rng.choose(&[ENOBUFS, ENOMEM, EPERM, ENETDOWN, ENETUNREACH, ECONNREFUSED, EMSGSIZE]))
        }
        Call::Send { stride: Some(_), .. } if rng.chance(20) => Some(rng.choose(&[EIO, EINVAL])),
        Call::Send { .. } => None,
        Call::Receive => {
            if failing == 0 && rng.chance(20) {
                failing = 1 + rng.next() % LONGEST;
                code = rng.choose(&[ECONNREFUSED, ENOMEM, ENETDOWN, EIO]);
            }
            failing = u64::saturating_sub(failing, 1);
            (failing > 0).then_some(code)
        }
    }
}
