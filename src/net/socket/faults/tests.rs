//! Sessions over loopback whose sockets fail: every byte arrives, and the driver recovers, or the session says why it ended.

use std::{
    eprintln,
    string::String,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
    vec,
    vec::Vec,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Call, Faults, errno::*};
use crate::{
    KcpConfig, KcpError, KcpListener, KcpStream,
    net::{EndpointStats, KcpSocket},
};

/// Bytes sent each way, where a test says no other number.
const LEN: usize = 1 << 20;
/// How long a test waits for anything.
const LIMIT: Duration = Duration::from_secs(20);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// SplitMix64, as the simulator has it.
#[derive(Debug, Clone)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether something happens that does in `percent` of all cases.
    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize]
    }
}

/// Says which seed a test had, if it fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed is {:#x}", self.0);
        }
    }
}

/// `len` bytes that differ with `salt`, and everywhere from those nearby.
fn payload(salt: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(salt);
    (0..len.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).take(len).collect()
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(output) => output,
        Err(_) => panic!("in time: {what}"),
    }
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(ms(2)).await;
        }
    };
    within(what, poll).await;
}

/// The two ends of a session, and their sockets.
struct Pair {
    _listener: KcpListener,
    client: KcpStream,
    server: KcpStream,
    sockets: [KcpSocket; 2],
}

impl Pair {
    /// A session that has just begun, without any fault.
    async fn new(config: KcpConfig) -> Self {
        let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await.unwrap();
        let mut client = KcpStream::connect(listener.local_addr().unwrap(), config).await.unwrap();
        client.write_u8(b'!').await.unwrap();
        let (mut server, _) = within("the session is accepted", listener.accept()).await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), b'!');
        within("the server answers", client.connected(LIMIT)).await.unwrap();
        let sockets = [client.socket(), listener.socket()];
        Self { _listener: listener, client, server, sockets }
    }

    fn faults(&self) -> [&Faults; 2] {
        self.sockets.each_ref().map(KcpSocket::faults)
    }

    fn stats(&self) -> [EndpointStats; 2] {
        self.sockets.each_ref().map(KcpSocket::stats)
    }

    /// Sends `len` bytes each way at the same time. They arrive as they were sent, and then comes the end. The sockets are left
    /// open, to look at.
    async fn transfer(self, len: usize) -> [KcpSocket; 2] {
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
    async fn assert_alive(&mut self) {
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
struct Count(Arc<AtomicUsize>);

impl Count {
    fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Faults of all kinds that pass, at random.
fn random_faults(mut rng: Rng) -> impl FnMut(Call) -> Option<i32> + Send {
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

#[tokio::test]
async fn no_byte_is_lost_whatever_fails_at_random() {
    for seed in 1..=6 {
        let _seed = Seed(seed);
        let mut rng = Rng(seed);
        let pair = Pair::new(KcpConfig::default()).await;
        for faults in pair.faults() {
            faults.set(random_faults(Rng(rng.next())));
        }
        let begun = Instant::now();
        for (socket, end) in pair.transfer(LEN).await.iter().zip(["client", "server"]) {
            let stats = socket.stats().socket;
            eprintln!("{end}: {:?} {stats:?}", begun.elapsed());
            assert!(stats.send_errors > 0, "{end}: {stats:?}");
            assert!(stats.send_blocked > 0, "{end}: {stats:?}");
            assert!(stats.recv_errors > 0, "{end}: {stats:?}");
        }
    }
}

/// Wakes for a socket that cannot be read are few: the driver pauses.
#[tokio::test]
async fn a_driver_does_not_spin_over_a_socket_that_fails() {
    let mut pair = Pair::new(KcpConfig::default()).await;
    let failed = Count::default();
    let count = failed.clone();
    pair.faults()[1].set(move |call| {
        (call == Call::Receive).then(|| {
            count.add();
            EBADF
        })
    });
    let before = pair.stats()[1];
    pair.client.write_all(&payload(1, 10_000)).await.unwrap();
    tokio::time::sleep(ms(500)).await;
    let after = pair.stats()[1];
    eprintln!("{} {}", failed.get(), after.driver.wakeups - before.driver.wakeups);
    assert!(failed.get() > 100);
    assert!(after.driver.wakeups - before.driver.wakeups < 200);
    pair.faults()[1].clear();
    let mut bytes = vec![0; 10_000];
    within("it arrives", pair.server.read_exact(&mut bytes)).await.unwrap();
    pair.assert_alive().await;
}

/// Segments do not fit the way, but PINGs do: the peer is heard, and the session would live for ever.
#[tokio::test]
async fn a_stream_whose_segments_are_too_long_ends_and_says_so() {
    let config = KcpConfig::builder().dead_timeout(ms(500)).build().unwrap();
    let mut pair = Pair::new(config).await;
    pair.faults()[0].set(|call| (call.packet_len() > 1_000).then_some(EMSGSIZE));
    let begun = Instant::now();
    pair.client.write_all(&payload(1, 100_000)).await.unwrap();
    let error = within("the session ends", pair.client.read_u8()).await.unwrap_err();
    let os_code = Some(EMSGSIZE);
    assert!(
        matches!(KcpError::find(&error), Some(KcpError::Network { os_code: code, .. }) if code == os_code),
        "{error:?}"
    );
    assert!(begun.elapsed() >= ms(500), "not before the way may have changed: {:?}", begun.elapsed());
    let stats = pair.stats()[0].socket;
    assert!((2..200).contains(&stats.send_errors), "resent, but not in a loop: {stats:?}");
}

/// The way takes long packets again in time: nothing is lost.
#[tokio::test]
async fn a_stream_goes_on_when_the_way_takes_long_packets_again() {
    let config = KcpConfig::builder().dead_timeout(ms(1_000)).build().unwrap();
    let pair = Pair::new(config).await;
    let begun = Instant::now();
    pair.faults()[0]
        .set(move |call| (call.packet_len() > 1_000 && begun.elapsed() < ms(600)).then_some(EMSGSIZE));
    let [client, _] = pair.transfer(LEN / 8).await;
    assert!(client.stats().socket.send_errors > 0);
}

/// A stream that goes on is not ended for other packets that are too long, however long they are refused.
#[tokio::test]
async fn long_datagrams_that_are_refused_do_not_end_a_stream_of_short_messages() {
    let config = KcpConfig::builder().dead_timeout(ms(200)).datagram_queue(1 << 20).build().unwrap();
    let mut pair = Pair::new(config).await;
    pair.faults()[0].set(|call| (call.packet_len() > 1_000).then_some(EMSGSIZE));
    let datagrams = pair.client.datagrams();
    for _ in 0..40 {
        datagrams.send(&[7; 1_200]).unwrap();
        pair.assert_alive().await;
        tokio::time::sleep(ms(20)).await;
    }
    assert!(pair.stats()[0].socket.send_errors >= 20, "{:?}", pair.stats()[0].socket);
}
