//! Clients that take another socket while their sessions go on.

use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use kcp9::{
    KcpConfig, KcpEndpoint, KcpError, KcpListener, KcpStream,
    crypto::{CipherKind, Framing},
};
use kcp9_relay::Relay;
use kcp9_simulator::LinkSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    crypto::{KEY, crypto},
    support::{
        ANY, accept_session, assert_alive, kind, listen_with, ms, read_payload, until, within, write_payload,
    },
};

/// Another address of the loopback: another network of the client's.
const ELSEWHERE: &str = "127.0.0.2:0";

fn sealed() -> KcpConfig {
    KcpConfig::builder().crypto(crypto(CipherKind::Aes128Gcm, Framing::KcpGo, KEY)).build().unwrap()
}

fn socket(addr: impl std::net::ToSocketAddrs) -> UdpSocket {
    UdpSocket::bind(addr).unwrap()
}

/// Waits until the port of `addr` can be bound by somebody else.
async fn is_free(addr: SocketAddr) {
    let any_ip = SocketAddr::from(([127, 0, 0, 1], addr.port()));
    until(5, "the old socket is closed", || UdpSocket::bind(any_ip).is_ok()).await;
}

/// 4 MB each way, while the client takes another socket twice. `to` is where it connects.
async fn transfer_while_rebinding(listener: &KcpListener, to: SocketAddr) {
    const LEN: usize = 4_000_000;
    let client = KcpStream::connect(to, sealed()).await.unwrap();
    let (client, server) = accept_session(listener, client).await;
    client.connected(Duration::from_secs(5)).await.unwrap();
    let (handle, client_handle) = (server.handle(), client.handle());
    let (mut from_client, mut to_client) = server.into_split();
    let (mut from_server, mut to_server) = client.into_split();
    let rebinding = async {
        for moves in 1..=2 {
            tokio::time::sleep(ms(100)).await;
            let before = client_handle.local_addr();
            let next = socket(ELSEWHERE);
            let addr = next.local_addr()?;
            client_handle.rebind(next)?;
            assert_eq!(client_handle.local_addr(), addr);
            is_free(before).await;
            until(20, "the server follows", || handle.stats().extensions.moves == moves).await;
        }
        Ok(())
    };
    let transfer = async {
        tokio::try_join!(
            write_payload(&mut to_server, LEN),
            write_payload(&mut to_client, LEN),
            read_payload(&mut from_server, LEN),
            read_payload(&mut from_client, LEN),
            rebinding,
        )
    };
    within(60, "everything arrives", transfer).await.unwrap();
    to_server.shutdown().await.unwrap();
    assert_eq!(within(10, "the end", from_client.read(&mut [0])).await.unwrap(), 0);
    assert_eq!(listener.endpoint_stats().driver.accepted, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_in_both_directions_goes_on_over_another_socket() {
    let listener = listen_with(sealed()).await;
    transfer_while_rebinding(&listener, listener.local_addr().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_goes_on_over_another_socket_although_a_tenth_is_lost() {
    let listener = listen_with(sealed()).await;
    let path = LinkSettings::delay(ms(5)).rate(8_000_000, 400_000).loss(0.1);
    let relay = Relay::start(listener.local_addr().unwrap(), &path, 1).unwrap();
    transfer_while_rebinding(&listener, relay.addr()).await;
}

/// Nobody writes, nobody asks: the server must be told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_client_is_followed_and_its_server_speaks_first() {
    let config = KcpConfig::builder().keep_alive(None).crypto(sealed().crypto().cloned()).build().unwrap();
    let listener = listen_with(config.clone()).await;
    let client = KcpStream::connect(listener.local_addr().unwrap(), config).await.unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    client.connected(Duration::from_secs(5)).await.unwrap();
    client.rebind(tokio::net::UdpSocket::bind(ELSEWHERE).await.unwrap()).unwrap();
    until(10, "the server follows", || server.stats().extensions.moves == 1).await;
    assert_eq!(server.peer_addr(), client.local_addr().unwrap());
    server.write_u8(9).await.unwrap();
    assert_eq!(within(5, "a byte", client.read_u8()).await.unwrap(), 9);
}

/// All of an endpoint's sessions go on, but for those that nobody follows. These end at once: from the new address a listener of
/// kcp-go would take their packets for another session's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_takes_its_sessions_to_another_socket() {
    let config = sealed();
    let (listener, plain) = (listen_with(config.clone()).await, listen_with(KcpConfig::default()).await);
    let endpoint = KcpEndpoint::bind_accepting(ANY, KcpConfig::default()).await.unwrap();
    let mut followed = Vec::new();
    for _ in 0..20 {
        let client = endpoint.connect(listener.local_addr().unwrap(), config.clone()).unwrap();
        let pair = accept_session(&listener, client).await;
        pair.0.connected(Duration::from_secs(5)).await.unwrap();
        followed.push(pair);
    }
    let left = endpoint.connect(plain.local_addr().unwrap(), KcpConfig::default()).unwrap();
    let (mut left, _left_server) = accept_session(&plain, left).await;
    let here = endpoint.local_addr().unwrap();
    let mut visitor = KcpStream::connect(here, KcpConfig::default()).await.unwrap();
    visitor.write_u8(1).await.unwrap();
    let (mut visited, _) = within(5, "it is accepted", endpoint.accept()).await.unwrap();
    assert_eq!(visited.read_u8().await.unwrap(), 1);

    let error = followed[0].0.rebind(socket(ELSEWHERE)).unwrap_err();
    assert_eq!(KcpError::find(&error), Some(KcpError::SocketShared));
    endpoint.rebind(socket(ELSEWHERE)).unwrap();
    // Begun over the new socket, whether or not the driver has it already.
    let begun = endpoint.connect(plain.local_addr().unwrap(), KcpConfig::default()).unwrap();
    is_free(here).await;
    for stream in [&mut left, &mut visited] {
        let error = within(5, "it ends", stream.read_u8()).await.unwrap_err();
        assert_eq!(KcpError::find(&error), Some(KcpError::NotFollowed));
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
    for (client, server) in &mut followed {
        assert_alive(client, server).await;
        assert_eq!(server.peer_addr(), endpoint.local_addr().unwrap());
    }
    let (mut begun, mut server) = accept_session(&plain, begun).await;
    assert_alive(&mut begun, &mut server).await;
    // Whoever knows the new address gets in there.
    let mut visitor = KcpStream::connect(endpoint.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    visitor.write_u8(2).await.unwrap();
    let (mut visited, _) = within(5, "it is accepted", endpoint.accept()).await.unwrap();
    assert_eq!(visited.read_u8().await.unwrap(), 2);
}

#[tokio::test]
async fn a_stream_that_nobody_follows_keeps_its_socket() {
    let listener = listen_with(KcpConfig::default()).await;
    let client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    let addr = client.local_addr().unwrap();
    let error = client.rebind(socket(ELSEWHERE)).unwrap_err();
    assert_eq!(KcpError::find(&error), Some(KcpError::NotFollowed));
    let error = client.rebind(socket("[::1]:0")).unwrap_err();
    assert_eq!(KcpError::find(&error), Some(KcpError::OtherFamily));
    assert_eq!(client.local_addr().unwrap(), addr);
    assert_alive(&mut client, &mut server).await;
    client.abort();
    assert_eq!(kind(client.rebind(socket(ELSEWHERE))), Some(ErrorKind::ConnectionAborted));
}
