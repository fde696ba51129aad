//! Forward error correction over real sockets.

use std::{io, time::Duration};

use kcp9::{KcpConfig, KcpEndpoint, KcpStream, fec::AdaptiveFec};
use kcp9_relay::Relay;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    ANY, EchoServer, echo_payload, listen_with, read_payload, until, within, write_payload,
};

const LOSS: f64 = 0.08;

fn config(data: usize, parity: usize) -> KcpConfig {
    KcpConfig::builder().send_window(256).recv_window(256).fec(data, parity).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_packets_are_recovered() {
    let server = EchoServer::over(listen_with(config(10, 3)).await);
    let relay = Relay::lossy(server.addr, LOSS).unwrap();
    // The ends may have different settings.
    for client in [config(10, 3), config(3, 2), config(0, 0)] {
        let sends = client.fec();
        let stream = KcpStream::connect(relay.addr(), client).await.unwrap();
        let stream = within(30, "an echo", echo_payload(stream, 3_000_000)).await.unwrap();
        let (fec, peer) = (stream.stats().fec, stream.stats().fec_state);
        assert_eq!((peer.peer_data_shards, peer.peer_parity_shards), (10, 3));
        assert_eq!(fec.peer_changes, u64::from(sends != (10, 3)), "what differs is told: {fec:?}");
        assert!(fec.recovered > 50, "{fec:?}");
        assert_eq!(fec.parity_sent > 0, sends != (0, 0), "{fec:?}");
        assert_eq!(stream.endpoint_stats().dropped.malformed, 0);
    }
}

/// Parity for the first packets of a session reaches it, although all of them come in one batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parity_of_the_first_flight_reaches_its_session() {
    let listener = listen_with(config(10, 3)).await;
    for _ in 0..10 {
        let mut client = KcpStream::connect(listener.local_addr().unwrap(), config(10, 3)).await.unwrap();
        // More than is sent before the first ACK.
        write_payload(&mut client, 60_000).await.unwrap();
        let (mut server, _) = within(5, "a session", listener.accept()).await.unwrap();
        within(5, "the payload", read_payload(&mut server, 60_000)).await.unwrap();
        client.shutdown().await.unwrap();
        let sent = client.stats().fec.parity_sent;
        assert!(sent >= 6, "{sent} parity packets were sent");
        until(5, "all parity arrives", || server.stats().fec.parity_received == sent).await;
    }
    assert_eq!(listener.endpoint_stats().dropped.short, 0);
}

/// A live stream turns on parity that follows the losses, and copies of small messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adaptive_parity_and_copies_work_over_sockets() {
    let server = EchoServer::over(listen_with(config(10, 6)).await);
    let relay = Relay::lossy(server.addr, LOSS).unwrap();
    let stream = KcpStream::connect(relay.addr(), config(10, 6)).await.unwrap();
    let changed = stream.update_settings(|settings| {
        settings.fec_adaptive = Some(AdaptiveFec::default());
        settings.fec_flush = Some(Duration::from_millis(2));
    });
    changed.unwrap();
    let refused = stream.update_settings(|settings| settings.fec_flush = Some(Duration::from_secs(9)));
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let mut stream = within(30, "an echo", echo_payload(stream, 1_000_000)).await.unwrap();
    let stats = stream.stats();
    let (bulk, parity) = (stats.recovery.fec_flush_copies, stats.fec.parity_sent);
    let data = stats.udp.packets_sent - parity;
    assert!(parity > 0 && parity < data * 6 / 10 && stats.fec_state.loss_ppm > 0, "{stats:?}");
    relay.set_delay(Duration::from_millis(20));
    let mut answer = [0; 100];
    for _ in 0..10 {
        stream.write_all(&[7; 100]).await.unwrap();
        within(30, "an answer", stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(answer, [7; 100]);
    }
    assert!(stream.stats().recovery.fec_flush_copies >= bulk + 5, "{:?}", stream.stats());
}

/// Parity carries no conversation number. It reaches the right one of two sessions of one address all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_one_address_have_their_own_parity() {
    let server = EchoServer::over(listen_with(config(10, 3)).await);
    let relay = Relay::lossy(server.addr, LOSS).unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let open = || endpoint.connect(relay.addr(), config(10, 3)).unwrap();
    let both =
        async { tokio::try_join!(echo_payload(open(), 3_000_000), echo_payload(open(), 3_000_000)).unwrap() };
    let (first, second) = within(30, "two echoes", both).await;
    for stream in [first, second] {
        let fec = stream.stats().fec;
        assert!(fec.recovered > 20, "{fec:?}");
    }
}
