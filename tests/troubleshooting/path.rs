//! Paths that treat long packets otherwise than short ones, and ports at which something else arrives.

use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kcp9::{Extensions, KcpConfig, KcpEndpoint, KcpError, KcpStream, proto::CloseReason};
use kcp9_relay::Relay;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{accept, failure, impatient, listen, until, within};

/// The longest UDP payload that the path carries: a tunnel that takes 1,280 bytes, less 28 for IPv4 and UDP.
const LONGEST: usize = 1_252;

/// A path that drops longer packets without a word, and how many it has dropped.
fn black_hole(server: SocketAddr) -> (Relay, Arc<AtomicU64>) {
    let dropped = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&dropped);
    let rewrite = move |_, packet: &[u8], out: &mut Vec<Vec<u8>>| {
        if packet.len() <= LONGEST {
            out.push(packet.to_vec());
        } else {
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    (Relay::rewriting(server, Box::new(rewrite)).unwrap(), dropped)
}

/// The sessions find out what the path carries. It takes a transfer of some round trips.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mtu_black_hole() {
    let config = KcpConfig::default();
    let listener = listen(config.clone()).await;
    let (relay, dropped) = black_hole(listener.local_addr().unwrap());
    let client = KcpStream::connect(relay.addr(), config).await.unwrap();
    let (mut client, mut server) = accept(&listener, client).await;
    let exchange = async {
        for _ in 0..4 {
            client.write_all(&[7; 500_000]).await.unwrap();
            server.read_exact(&mut vec![0; 500_000]).await.unwrap();
            server.write_all(&[8; 500_000]).await.unwrap();
            client.read_exact(&mut vec![0; 500_000]).await.unwrap();
        }
    };
    within(60, "2 MB each way", exchange).await;
    let path_dropped = dropped.load(Ordering::Relaxed);
    assert!((1..100).contains(&path_dropped), "{path_dropped}");
    for stats in [client.stats(), server.stats()] {
        assert!((1_200..=LONGEST as u32).contains(&stats.path.plpmtu), "{stats:?}");
    }
}

/// A session without extensions begins at its mtu. What it has sent before it knows better can only go as fragments; where nothing
/// carries these, the stream ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mtu_black_hole_that_drops_fragments() {
    let listener = listen(KcpConfig::default()).await;
    let (relay, dropped) = black_hole(listener.local_addr().unwrap());
    let config = impatient().keep_alive(None).extensions(Extensions::Off).build().unwrap();
    let client = KcpStream::connect(relay.addr(), config).await.unwrap();
    let (mut client, _server) = accept(&listener, client).await;
    client.write_all(&[7; 100_000]).await.expect("what fits the window is taken");
    let (kind, reason, _) = failure(30, "a read", client.read_u8()).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::Closed(CloseReason::DeadLink))));
    let stats = client.stats();
    assert!(dropped.load(Ordering::Relaxed) > 50 && stats.recovery.timeout_resends > 50, "{stats:?}");
    assert!(stats.mtu.fragmentable > 50, "{stats:?}");
    assert!(stats.path.plpmtu < 1_400 && stats.queues.in_flight > 0, "{stats:?}");
}

/// The same path with a smaller mtu at both ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mtu_black_hole_and_a_smaller_mtu() {
    let config = KcpConfig::builder().mtu(1_200).build().unwrap();
    let listener = listen(config.clone()).await;
    let (relay, dropped) = black_hole(listener.local_addr().unwrap());
    let client = KcpStream::connect(relay.addr(), config).await.unwrap();
    let (mut client, mut server) = accept(&listener, client).await;
    let exchange = async {
        client.write_all(&[7; 100_000]).await.unwrap();
        server.read_exact(&mut vec![0; 100_000]).await.unwrap();
        server.write_all(&[8; 100_000]).await.unwrap();
        client.read_exact(&mut vec![0; 100_000]).await.unwrap();
    };
    within(20, "100 kB each way", exchange).await;
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
}

/// Something else speaks to the port.
#[tokio::test]
async fn something_else_arrives() {
    let listener = listen(KcpConfig::default()).await;
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..5 {
        stranger.send_to(b"ping", listener.local_addr().unwrap()).unwrap();
        stranger.send_to(&[0x16; 200], listener.local_addr().unwrap()).unwrap();
    }
    until(5, "it is dropped", || {
        let dropped = listener.endpoint_stats().dropped;
        dropped.short == 5 && dropped.no_session == 5
    })
    .await;
    assert_eq!(listener.endpoint_stats().driver.accepted, 0);
}

/// Both ends connect, as through two NATs, and did not agree on the conv.
#[tokio::test]
async fn both_ends_connect_with_other_convs() {
    let ends =
        [KcpEndpoint::bind("127.0.0.1:0").await.unwrap(), KcpEndpoint::bind("127.0.0.1:0").await.unwrap()];
    let addrs = [0, 1].map(|end: usize| ends[end].local_addr().unwrap());
    let connect =
        |end: usize, conv| ends[end].connect_with_conv(addrs[1 - end], conv, KcpConfig::default()).unwrap();
    let _streams = [connect(0, 7), connect(1, 8)];
    until(5, "they are dropped", || ends.iter().all(|end| end.endpoint_stats().dropped.no_session >= 2))
        .await;
    // With the same, they are one session.
    let streams = [connect(0, 9), connect(1, 9)];
    streams[0].connected(Duration::from_secs(5)).await.unwrap();
}
