//! Streams over loopback sockets, both ends and their drivers in one thread.

use allocation_counter::AllocationInfo;
use kcp9::{KcpConfig, KcpListener, KcpStream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::{Builder, Runtime},
};

use crate::settings;

const WRITE: usize = 65_536;
/// Rounds until what grows with the packets seen, up to a limit, has grown.
const WARM_UP: usize = 60;
/// Allocations that do not come again: lists of waiting tasks grow when one first waits, which the system decides.
const ONCE: u64 = 8;
/// Measurements of which one must stay within `ONCE`.
const ATTEMPTS: usize = 5;

/// Two streams that move the same amount again and again.
struct Pair {
    runtime: Runtime,
    client: KcpStream,
    server: KcpStream,
    _listener: KcpListener,
    payload: Vec<u8>,
    out: Vec<u8>,
}

impl Pair {
    fn new(config: &KcpConfig) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (listener, client, server) = runtime.block_on(async {
            let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await.unwrap();
            let addr = listener.local_addr().unwrap();
            let mut client = KcpStream::connect(addr, config.clone()).await.unwrap();
            client.write_u8(1).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            server.read_u8().await.unwrap();
            (listener, client, server)
        });
        Self { runtime, client, server, _listener: listener, payload: vec![7; WRITE], out: vec![0; WRITE] }
    }

    /// Moves `WRITE` bytes in writes of `size` there, and a byte back.
    fn round(&mut self, size: usize) {
        let Self { runtime, client, server, payload, out, .. } = self;
        runtime.block_on(async {
            let there = async {
                for write in payload.chunks(size) {
                    client.write_all(write).await.unwrap();
                }
                client.read_u8().await.unwrap();
            };
            let back = async {
                server.read_exact(out).await.unwrap();
                server.write_u8(1).await.unwrap();
            };
            tokio::join!(there, back);
        });
        assert_eq!(payload, out);
    }

    /// What `rounds` rounds allocate, and how many segments arrived.
    fn measure(&mut self, rounds: usize, size: usize) -> (AllocationInfo, u64) {
        let before = self.server.stats().segments.push_received;
        let info = allocation_counter::measure(|| (0..rounds).for_each(|_| self.round(size)));
        (info, self.server.stats().segments.push_received - before)
    }
}

#[test]
fn a_bulk_transfer_allocates_nothing() {
    assert_nothing_allocated(80, WRITE);
}

#[test]
fn small_writes_allocate_nothing() {
    assert_nothing_allocated(60, 1_024);
}

fn assert_nothing_allocated(rounds: usize, size: usize) {
    for (name, config) in settings::all() {
        let mut pair = Pair::new(&config);
        pair.measure(WARM_UP, size);
        // Where the system stops a thread for long, something that has a limit grows once more. What is allocated for each segment
        // shows every time.
        for attempt in 1..=ATTEMPTS {
            let (info, segments) = pair.measure(rounds, size);
            assert!(segments >= 47 * rounds as u64, "{name}: {segments} segments");
            if info.count_total <= ONCE {
                break;
            }
            assert!(attempt < ATTEMPTS, "{name}: for {segments} segments: {info:?}");
        }
    }
}
