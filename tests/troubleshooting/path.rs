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

use kcp9::{Extensions, KcpConfig, KcpError, KcpStream, proto::CloseReason};
use kcp9_relay::Relay;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{DEAD_TIMEOUT, accept, failure, impatient, listen, ms, until, within};

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

/// Short packets show that the peer lives, with keep-alive or without, so the session does not end, and nothing arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mtu_black_hole() {
    let settings = || impatient().linger(Duration::from_secs(2));
    tokio::join!(
        assert_stuck(settings().keep_alive(Some(ms(300))).build().unwrap()),
        assert_stuck(settings().keep_alive(None).build().unwrap()),
        assert_stuck(settings().keep_alive(None).extensions(Extensions::Off).build().unwrap()),
    );
}

async fn assert_stuck(config: KcpConfig) {
    let listener = listen(KcpConfig::default()).await;
    let (relay, dropped) = black_hole(listener.local_addr().unwrap());
    let client = KcpStream::connect(relay.addr(), config).await.unwrap();
    let (mut client, mut server) = accept(&listener, client).await;
    client.connected(Duration::from_secs(5)).await.expect("connecting works");
    client.write_all(&[7; 100_000]).await.expect("what fits the window is taken");

    let read = tokio::time::timeout(3 * DEAD_TIMEOUT, server.read_u8()).await;
    assert!(read.is_err(), "nothing of it arrives: {read:?}");
    assert_eq!(client.close_reason(), None, "no error comes of it");
    let stats = client.stats();
    let path_dropped = dropped.load(Ordering::Relaxed);
    assert!(path_dropped > 50 && stats.recovery.timeout_resends > 50, "{path_dropped}, {stats:?}");
    assert_eq!((stats.recovery.fast_resends, stats.segments.acks_received), (0, 1), "{stats:?}");
    assert!(stats.queues.in_flight > 0 && stats.queues.peer_window > 0, "{stats:?}");
    assert!(stats.udp.packets_received > 2, "short answers come: {stats:?}");

    let (kind, reason, took) = failure(5, "the shutdown", client.shutdown()).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::Closed(CloseReason::LingerTimeout))));
    assert!(took >= ms(1_950), "after {took:?} already");
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
