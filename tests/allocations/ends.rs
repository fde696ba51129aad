//! What sessions hold goes back when they end, and not a timeout later.

use std::time::{Duration, Instant};

use kcp9::{KcpConfig, KcpEndpoint, KcpListener, KcpStream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Builder,
    time::{sleep, timeout},
};

const SESSIONS: usize = 48;
const WINDOW: u32 = 64;
/// What a full session holds at least, in both ends: 64 segments unread there, and as many that wait here.
const FULL: u64 = 2 * WINDOW as u64 * 1_200;
/// What may be left of each: the record that says for a minute that it has ended, and its place in tables.
const LEFT_OF_EACH: i64 = 512;
/// What the socket's driver keeps for the next: lists and buffers that have grown.
const LEFT: i64 = 64 << 10;
/// Sooner than any timeout: `linger` is 30 s, and an answer to a lost packet would take 3 s.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Round trips that are more than as many receive calls as it takes to free the blocks that a thread keeps.
const CALLS: usize = 80;

#[derive(Debug, Clone, Copy)]
enum How {
    Abort,
    /// Without linger.
    Drop,
}

/// Opens sessions, fills both windows of each, and ends all of them.
async fn fill_and_end(listener: &KcpListener, endpoint: &KcpEndpoint, config: &KcpConfig, how: How) {
    let addr = listener.local_addr().unwrap();
    let mut streams: Vec<(KcpStream, KcpStream)> = Vec::new();
    for _ in 0..SESSIONS {
        let mut client = endpoint.connect(addr, config.clone()).unwrap();
        client.write_u8(1).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.read_u8().await.unwrap();
        streams.push((client, server));
    }
    let bytes = [7; 16_384];
    for (client, _) in &mut streams {
        // The server reads nothing.
        while timeout(Duration::from_millis(5), client.write_all(&bytes)).await.is_ok() {}
    }
    let (_, server) = &streams[0];
    assert!(server.stats().queues.unread_segments >= WINDOW / 2, "{:?}", server.stats().queues);
    let begun = Instant::now();
    if let How::Abort = how {
        for (client, server) in &streams {
            client.abort();
            server.abort();
        }
    }
    drop(streams);
    while endpoint.endpoint_stats().state.sessions + listener.endpoint_stats().state.sessions > 0 {
        assert!(begun.elapsed() < AT_ONCE, "sessions are left: {:?}", listener.endpoint_stats().state);
        sleep(Duration::from_millis(1)).await;
    }
    give_blocks_back(listener, endpoint, config).await;
}

/// A thread keeps up to 128 blocks of 64 KiB that sessions held, for the receive calls to come, and frees them after 64 calls that found
/// none held. How many a cycle leaves is how many were held at a time, which is not what this test is about. So that many packets are
/// received here that nobody holds.
async fn give_blocks_back(listener: &KcpListener, endpoint: &KcpEndpoint, config: &KcpConfig) {
    let mut client = endpoint.connect(listener.local_addr().unwrap(), config.clone()).unwrap();
    client.write_u8(1).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.read_u8().await.unwrap();
    for _ in 0..CALLS {
        client.write_u8(1).await.unwrap();
        server.read_u8().await.unwrap();
        server.write_u8(1).await.unwrap();
        client.read_u8().await.unwrap();
    }
    client.abort();
    drop((client, server));
    while endpoint.endpoint_stats().state.sessions + listener.endpoint_stats().state.sessions > 0 {
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn ended_sessions_give_everything_back_at_once() {
    for how in [How::Abort, How::Drop] {
        let builder = KcpConfig::builder().send_window(WINDOW).recv_window(WINDOW).linger(Duration::ZERO);
        let config = builder.build().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (listener, endpoint) = runtime.block_on(async {
            let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await.unwrap();
            (listener, KcpEndpoint::bind("127.0.0.1:0").await.unwrap())
        });
        let cycle = || {
            allocation_counter::measure(|| {
                runtime.block_on(fill_and_end(&listener, &endpoint, &config, how));
            })
        };
        // What grows once has grown then.
        cycle();
        let most = SESSIONS as i64 * LEFT_OF_EACH + LEFT;
        let cycles = [(); 4].map(|()| {
            let info = cycle();
            assert!(info.bytes_max >= SESSIONS as u64 * FULL, "{how:?}: they were not full: {info:?}");
            info
        });
        // A list that many sessions share may grow once more, where more of them than before were in it at a time.
        let clean = cycles.iter().filter(|info| info.bytes_current <= most).count();
        assert!(clean >= 3, "{how:?}: {cycles:?}");
    }
}
