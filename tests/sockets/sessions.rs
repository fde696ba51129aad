//! Addresses and conversation numbers: several a socket, peers that come back, servers that restart.

use std::{collections::HashSet, io::ErrorKind, net::UdpSocket};

use kcp9::{KcpConfig, KcpEndpoint, KcpListener, KcpStream, proto::Extensions};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    ANY, EchoServer, accept_session, assert_alive, echo_payload, kind, listen, listen_with, ms, rebind,
    short_timeouts, until, within, without_extensions,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_conversations_share_an_address() {
    let listener = listen().await;
    let addr = listener.local_addr().unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let mut pairs = Vec::new();
    for conv in [0, 1, 2, u32::MAX] {
        let client = endpoint.connect_with_conv(addr, conv, KcpConfig::default()).unwrap();
        pairs.push(accept_session(&listener, client).await);
    }
    for _ in 0..10 {
        for (client, server) in &mut pairs {
            assert_eq!(client.conv(), server.conv());
            assert_alive(client, server).await;
        }
    }
    assert_eq!(endpoint.endpoint_stats().state.sessions, 4);
    assert_eq!(listener.endpoint_stats().state.sessions, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_serves_several_peers() {
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    let mut servers = Vec::new();
    for _ in 0..4 {
        let server = EchoServer::start().await;
        for _ in 0..2 {
            let stream = endpoint.connect(server.addr, KcpConfig::default()).unwrap();
            tasks.spawn(echo_payload(stream, 500_000));
        }
        servers.push(server);
    }
    drop(endpoint);
    let all = async {
        while let Some(outcome) = tasks.join_next().await {
            outcome.unwrap().unwrap();
        }
    };
    within(20, "eight echoes over one socket", all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_in_use_is_refused() {
    let listener = listen().await;
    let addr = listener.local_addr().unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let client = endpoint.connect_with_conv(addr, 5, KcpConfig::default()).unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    let mut second = endpoint.connect_with_conv(addr, 5, KcpConfig::default()).unwrap();
    let refused = within(2, "the second one's read fails", second.read_u8()).await;
    assert_eq!(kind(refused), Some(ErrorKind::AddrInUse));
    assert_eq!(kind(second.write(b"x").await), Some(ErrorKind::AddrInUse));
    assert_alive(&mut client, &mut server).await;
    drop(client);
    until(2, "the first is gone", || endpoint.endpoint_stats().state.sessions == 0).await;
    drop(second);
    let third = endpoint.connect_with_conv(addr, 5, KcpConfig::default()).unwrap();
    tokio::time::sleep(ms(50)).await;
    assert_eq!(endpoint.endpoint_stats().state.sessions, 1, "the conv is free again");
    drop(third);
}

#[tokio::test]
async fn random_convs_differ() {
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let peer = "127.0.0.1:9".parse().unwrap();
    let mut convs = HashSet::new();
    for _ in 0..500 {
        convs.insert(endpoint.connect(peer, KcpConfig::default()).unwrap().conv());
    }
    assert_eq!(convs.len(), 500, "different convs of 500");
    assert!(!convs.contains(&0), "tokio_kcp takes 0 for a question");
}

/// A client's socket. The client comes back from the same port later.
fn socket() -> (UdpSocket, std::net::SocketAddr) {
    let socket = UdpSocket::bind(ANY).unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_comes_back_from_the_same_port() {
    // Without extensions, nobody tells the server that they ended.
    clients_come_back(Extensions::Off, 5).await;
    clients_come_back(Extensions::Preferred, 0).await;
}

async fn clients_come_back(extensions: Extensions, open: u64) {
    let config = KcpConfig::builder().extensions(extensions).build().unwrap();
    let listener = listen_with(config.clone()).await;
    let addr = listener.local_addr().unwrap();
    let (mut udp, port) = socket();
    let mut old_servers = Vec::new();
    for conv in 1..=5 {
        let client = KcpStream::from_socket(udp, addr, conv, config.clone()).unwrap();
        let (mut client, mut server) = accept_session(&listener, client).await;
        assert_eq!((server.peer_addr(), server.conv()), (port, conv));
        assert_alive(&mut client, &mut server).await;
        old_servers.push(server);
        drop(client);
        udp = rebind(port).await;
    }
    until(2, "those that are told end", || listener.endpoint_stats().state.sessions == open).await;
}

/// With the same conv it has to wait a few seconds: packets still under way must not begin the old conversation again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_comes_back_with_the_same_conv_after_a_while() {
    let listener = listen().await;
    let addr = listener.local_addr().unwrap();
    let (udp, port) = socket();
    let client = KcpStream::from_socket(udp, addr, 9, KcpConfig::default()).unwrap();
    let (client, server) = accept_session(&listener, client).await;
    drop((client, server));
    until(2, "the first session is gone", || listener.endpoint_stats().state.sessions == 0).await;

    let mut client = KcpStream::from_socket(rebind(port).await, addr, 9, KcpConfig::default()).unwrap();
    client.write_all(b"again").await.unwrap();
    let (mut server, _) = within(8, "it is accepted after a while", listener.accept()).await.unwrap();
    let mut again = [0; 5];
    within(2, "its words", server.read_exact(&mut again)).await.unwrap();
    assert_eq!(&again, b"again");
    assert_alive(&mut client, &mut server).await;
}

/// No session is accepted for packets that a peer without extensions still sends to a session that was dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_is_accepted_for_late_packets_of_a_dropped_one() {
    let listener = listen_with(without_extensions().build().unwrap()).await;
    let config = short_timeouts().extensions(Extensions::Off).build().unwrap();
    let client = KcpStream::connect(listener.local_addr().unwrap(), config).await.unwrap();
    let (mut client, server) = accept_session(&listener, client).await;
    drop(server);
    client.write_all(b"anybody?").await.unwrap();
    let outcome = within(4, "the client times out", client.read_u8()).await;
    assert_eq!(kind(outcome), Some(ErrorKind::TimedOut));
    let stats = listener.endpoint_stats();
    assert_eq!((stats.driver.accepted, stats.state.sessions), (1, 0), "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_session_per_address_resets_the_one_before() {
    let listener = listen_with(KcpConfig::builder().one_session_per_address(true).build().unwrap()).await;
    let addr = listener.local_addr().unwrap();
    let (udp, port) = socket();
    // It cannot tell the server that its first session has ended.
    let client = KcpStream::from_socket(udp, addr, 1, without_extensions().build().unwrap()).unwrap();
    let (client, mut old) = accept_session(&listener, client).await;
    let bystander = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    let (mut bystander, mut bystander_server) = accept_session(&listener, bystander).await;
    let reading = spawn(async move { (kind(old.read_u8().await), old) });
    drop(client);

    let client = KcpStream::from_socket(rebind(port).await, addr, 2, KcpConfig::default()).unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    let (read, mut old) = within(2, "the old session's read fails", reading).await.unwrap();
    assert_eq!(read, Some(ErrorKind::ConnectionReset));
    assert_eq!(kind(old.write(b"x").await), Some(ErrorKind::ConnectionReset));
    assert_alive(&mut client, &mut server).await;
    assert_alive(&mut bystander, &mut bystander_server).await;
    assert_eq!(listener.endpoint_stats().state.sessions, 2);
    drop(old);
    assert_alive(&mut client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restarts_on_the_same_port() {
    let first = listen().await;
    let addr = first.local_addr().unwrap();
    // Without extensions, nobody tells it.
    let config = short_timeouts().extensions(Extensions::Off).build().unwrap();
    let client = KcpStream::connect(addr, config).await.unwrap();
    let (mut old_client, mut server) = accept_session(&first, client).await;
    assert_alive(&mut old_client, &mut server).await;
    // In the middle of a transfer.
    let writing = spawn(async move {
        let outcome = crate::support::write_payload(&mut old_client, 64 << 20).await;
        (kind(outcome), kind(old_client.read_u8().await))
    });
    let mut some = vec![0; 1 << 20];
    within(5, "some of it", server.read_exact(&mut some)).await.unwrap();
    drop((first, server));

    let second = KcpListener::from_socket(rebind(addr).await, KcpConfig::default()).unwrap();
    let client = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    let (mut client, mut server) = accept_session(&second, client).await;
    assert_alive(&mut client, &mut server).await;
    // No session is accepted for what the old client goes on sending. So it finds out that its session is gone.
    let outcome = within(10, "the end of the old session", writing).await.unwrap();
    assert_eq!(outcome, (Some(ErrorKind::TimedOut), Some(ErrorKind::TimedOut)));
    let counters = second.endpoint_stats();
    assert!(counters.dropped.no_session > 0, "{counters:?}");
    assert_eq!((counters.driver.accepted, counters.state.sessions), (1, 1));
    drop(server);
    let client = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    let server = EchoServer::over(second);
    within(10, "an echo of the new server", echo_payload(client, 1 << 20)).await.unwrap();
    drop(server);
}
