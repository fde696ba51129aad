//! Listeners of several sockets: how sessions spread, where they stay, and how such a listener ends (here); sessions whose packets
//! arrive at another socket (`elsewhere`).

mod elsewhere;

use std::{io::ErrorKind, net::UdpSocket, time::Duration};

use kcp9::{
    EndpointStats, KcpConfig, KcpConfigBuilder, KcpError, KcpListener, KcpStream,
    crypto::{CipherKind, Framing},
};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    crypto::{KEY, crypto},
    support::{
        ANY, EchoServer, accept_session, assert_alive, echo_payload, ms, short_timeouts, until, within,
    },
};

fn sealed(shards: u16) -> KcpConfigBuilder {
    KcpConfig::builder().shards(shards).crypto(crypto(CipherKind::Aes128Gcm, Framing::KcpGo, KEY))
}

async fn listen(config: KcpConfigBuilder) -> (KcpListener, KcpConfig) {
    let config = config.build().unwrap();
    (KcpListener::bind(ANY, config.clone()).await.unwrap(), config)
}

/// Sessions between clients of a socket each and a listener.
async fn sessions(listener: &KcpListener, config: &KcpConfig, count: usize) -> Vec<(KcpStream, KcpStream)> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        let client = KcpStream::connect(listener.local_addr().unwrap(), config.clone()).await.unwrap();
        let (client, server) = accept_session(listener, client).await;
        within(5, "the server answers", client.connected(Duration::from_secs(5))).await.unwrap();
        sessions.push((client, server));
    }
    sessions
}

async fn assert_all_alive(sessions: &mut [(KcpStream, KcpStream)]) {
    for (client, server) in sessions {
        assert_alive(client, server).await;
    }
}

/// A figure of each shard.
fn each(listener: &KcpListener, figure: impl Fn(&EndpointStats) -> u64) -> Vec<u64> {
    listener.shard_stats().iter().map(figure).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_spread_over_the_shards_and_stay_there() {
    let (listener, config) = listen(KcpConfig::builder().shards(3)).await;
    let addr = listener.local_addr().unwrap();
    let listener = std::sync::Arc::new(listener);
    let task = spawn({
        let listener = std::sync::Arc::clone(&listener);
        async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (mut reader, mut writer) = stream.into_split();
                spawn(async move { tokio::io::copy(&mut reader, &mut writer).await });
            }
        }
    });
    let clients: Vec<_> = (0..60)
        .map(|_| {
            let config = config.clone();
            spawn(async move { echo_payload(KcpStream::connect(addr, config).await?, 200_000).await })
        })
        .collect();
    let mut streams = Vec::new();
    for client in clients {
        streams.push(within(30, "an echo", client).await.unwrap().unwrap());
    }
    let (spread, all) = (listener.shard_stats(), listener.endpoint_stats());
    assert!(
        spread.iter().all(|shard| shard.state.sessions > 5 && shard.socket.packets_received > 500),
        "{spread:?}"
    );
    assert_eq!((all.state.sessions, all.driver.accepted), (60, 60));
    assert_eq!(spread.iter().map(|shard| shard.state.sessions).sum::<u64>(), 60);
    assert_eq!(all.driver.handed_over, 0, "each packet arrived where its session is");
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_shards_stop_accepting_and_what_waits_is_accepted() {
    let (listener, config) = listen(KcpConfig::builder().shards(4)).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = KcpStream::connect(listener.local_addr().unwrap(), config.clone()).await.unwrap();
        client.write_u8(7).await.unwrap();
        clients.push(client);
    }
    until(5, "all wait", || listener.endpoint_stats().state.sessions == 20).await;
    listener.stop_accepting();
    let mut refused = KcpStream::connect(listener.local_addr().unwrap(), config.clone()).await.unwrap();
    assert_eq!(
        within(5, "a refusal", refused.read_u8()).await.unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    for _ in 0..20 {
        let (mut stream, _) = within(5, "one that waits", listener.accept()).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 7);
    }
    let error = within(5, "the end", listener.accept()).await.unwrap_err();
    assert_eq!(KcpError::find(&error), Some(KcpError::ListenerClosed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_wait_to_be_accepted_than_the_backlog_of_all() {
    let (listener, config) = listen(KcpConfig::builder().shards(4).accept_backlog(5)).await;
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let (addr, config) = (listener.local_addr().unwrap(), config.clone());
            spawn(async move {
                let mut client = KcpStream::connect(addr, config).await.unwrap();
                client.write_u8(7).await.unwrap();
                assert_eq!(client.read_u8().await.unwrap(), 8);
            })
        })
        .collect();
    // The first are unknown and have half of it; others return a cookie for the rest.
    let is_full =
        || listener.endpoint_stats().dropped.backlog > 10 && listener.endpoint_stats().state.sessions >= 5;
    until(5, "it is full", is_full).await;
    tokio::time::sleep(ms(100)).await;
    assert_eq!(listener.endpoint_stats().state.sessions, 5);
    let mut streams = Vec::new();
    for _ in 0..20 {
        let (mut stream, _) = within(10, "the next", listener.accept()).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 7);
        stream.write_u8(8).await.unwrap();
        streams.push(stream);
    }
    for client in clients {
        within(5, "an answer", client).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_sessions_live_than_the_limit_of_all() {
    let (listener, config) = listen(KcpConfig::builder().shards(4).max_sessions(10)).await;
    let mut live = sessions(&listener, &config, 10).await;
    let mut late = KcpStream::connect(listener.local_addr().unwrap(), config.clone()).await.unwrap();
    late.write_u8(7).await.unwrap();
    until(5, "it is turned away", || listener.endpoint_stats().dropped.max_sessions > 0).await;
    assert_eq!(listener.endpoint_stats().state.sessions, 10);
    // Whatever shard it was of.
    drop(live.remove(4));
    let (mut stream, _) = within(10, "there is room", listener.accept()).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 7);
    assert_all_alive(&mut live).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_delivers_what_was_written_and_waits_for_all_shards() {
    let (listener, config) = listen(KcpConfig::builder().shards(4)).await;
    let addr = listener.local_addr().unwrap();
    let mut sessions = sessions(&listener, &config, 16).await;
    let mut idle = Box::pin(listener.wait_idle());
    assert!(tokio::time::timeout(ms(50), &mut idle).await.is_err(), "there are sessions");
    for (_, server) in &mut sessions {
        server.write_all(&[7; 10_000]).await.unwrap();
    }
    let reading: Vec<_> = sessions
        .into_iter()
        .map(|(mut client, server)| {
            spawn(async move {
                let mut bytes = Vec::new();
                client.read_to_end(&mut bytes).await.unwrap();
                client.shutdown().await.unwrap();
                (bytes.len(), server)
            })
        })
        .collect();
    within(10, "the shutdown", listener.shutdown(Duration::from_secs(8))).await.unwrap();
    within(1, "nobody is left", idle).await;
    for reading in reading {
        assert_eq!(within(1, "the end", reading).await.unwrap().0, 10_000);
    }
    assert_eq!(each(&listener, |shard| shard.state.sessions), [0; 4]);
    drop(listener);
    until(5, "all sockets are closed", || UdpSocket::bind(addr).is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_ends_the_sessions_of_all_shards() {
    let (listener, config) = listen(KcpConfig::builder().shards(4)).await;
    let mut sessions = sessions(&listener, &config, 16).await;
    listener.abort();
    for (client, server) in &mut sessions {
        let error = within(5, "the server's end", server.read_u8()).await.unwrap_err();
        assert_eq!(KcpError::find(&error), Some(KcpError::EndpointClosed));
        let error = within(5, "the client's end", client.read_u8()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    within(5, "no session is left", listener.wait_idle()).await;
}

/// The drivers end together, and that only when the last session of the last shard does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_outlive_a_dropped_listener_in_whatever_shard_they_are() {
    let (listener, config) = listen(KcpConfig::builder().shards(4)).await;
    let addr = listener.local_addr().unwrap();
    let mut sessions = sessions(&listener, &config, 12).await;
    drop(listener);
    while let Some((mut client, mut server)) = sessions.pop() {
        assert_alive(&mut client, &mut server).await;
        assert_eq!(UdpSocket::bind(addr).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop((client, server));
    }
    until(10, "all sockets are closed", || UdpSocket::bind(addr).is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_replaced_in_all_shards() {
    let (listener, old) = listen(sealed(4)).await;
    let mut early = sessions(&listener, &old, 30).await;
    let new_crypto = crypto(CipherKind::Aes128Gcm, Framing::KcpGo, b"FEDCBA98765432100123456789abcdef");
    let new = old.clone().to_builder().crypto(new_crypto.clone()).build().unwrap();
    listener.rotate_key(new_crypto, ms(1_500)).unwrap();
    let mut late = sessions(&listener, &new, 30).await;
    assert_all_alive(&mut early).await;
    for (_, server) in &mut early {
        let error = within(5, "the key's end", server.read_u8()).await.unwrap_err();
        assert_eq!(KcpError::find(&error), Some(KcpError::KeyRetired));
    }
    assert_all_alive(&mut late).await;
    assert!(each(&listener, |shard| shard.driver.accepted).iter().all(|accepted| *accepted > 0));
}

/// A session may end for its peer's silence only when all shards have read their sockets, and three of them sleep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_peer_is_dead_in_time_although_other_shards_sleep() {
    let (listener, _) = listen(short_timeouts().shards(4).keep_alive(Some(ms(300)))).await;
    let relay = kcp9_relay::Relay::lossy(listener.local_addr().unwrap(), 0.0).unwrap();
    let client = KcpStream::connect(relay.addr(), KcpConfig::default()).await.unwrap();
    let (_client, mut server) = accept_session(&listener, client).await;
    tokio::time::sleep(ms(200)).await;
    relay.set_loss(1.0);
    let begun = std::time::Instant::now();
    let error = within(5, "the server's end", server.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(begun.elapsed() < ms(2_500), "after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_several_sockets_cannot_do_is_said() {
    let (listener, config) = listen(KcpConfig::builder().shards(2)).await;
    let endpoint = listener.endpoint();
    let reason = |error: std::io::Error| (KcpError::find(&error), error.kind());
    let sharded = (Some(KcpError::Sharded), ErrorKind::InvalidInput);
    assert_eq!(
        reason(endpoint.connect(listener.local_addr().unwrap(), config.clone()).unwrap_err()),
        sharded
    );
    assert_eq!(reason(endpoint.rebind(UdpSocket::bind(ANY).unwrap()).unwrap_err()), sharded);

    let sockets = || [UdpSocket::bind(ANY).unwrap(), UdpSocket::bind(ANY).unwrap()];
    let error = KcpListener::from_sockets(sockets(), config.clone()).unwrap_err();
    assert_eq!(reason(error), (Some(KcpError::OtherAddress), ErrorKind::InvalidInput));
    let none: [UdpSocket; 0] = [];
    assert_eq!(KcpListener::from_sockets(none, config).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_are_set_for_all_sockets() {
    let (listener, _) = listen(KcpConfig::builder().shards(3)).await;
    listener.socket().set_recv_buffer_size(50_000).unwrap();
    listener.socket().set_dscp(46).unwrap();
    let sockets = listener.endpoint().sockets();
    assert_eq!(sockets.len(), 3);
    for socket in sockets {
        assert_eq!(socket.recv_buffer_size().unwrap(), 100_000);
        assert_eq!(socket2::SockRef::from(&socket).tos_v4().unwrap(), 46 << 2);
        assert_eq!(socket.local_addr().unwrap(), listener.local_addr().unwrap());
    }
}

/// One shard is what every listener was so far.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_of_one_socket_shares_its_port_with_nobody() {
    let (listener, config) = listen(KcpConfig::builder().shards(1)).await;
    let addr = listener.local_addr().unwrap();
    assert_eq!(KcpListener::bind(addr, config).await.unwrap_err().kind(), ErrorKind::AddrInUse);
    let server = EchoServer::over(listener);
    echo_payload(KcpStream::connect(server.addr, KcpConfig::default()).await.unwrap(), 10_000).await.unwrap();
}
