//! One socket for all: it accepts and connects, is the caller's, has addresses of every kind.

use std::{
    io::ErrorKind,
    net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
};

use kcp9::{KcpConfig, KcpEndpoint, KcpListener, KcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    ANY, accept_session, assert_alive, echo_payload, kind, read_payload, within, write_payload,
};

async fn accepting(addr: &str) -> KcpEndpoint {
    KcpEndpoint::bind_accepting(addr, KcpConfig::default()).await.unwrap()
}

/// Every one of several programs has one port, and sessions with all others in both directions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_port_accepts_and_connects() {
    const PEERS: usize = 4;
    let mut endpoints = Vec::new();
    for _ in 0..PEERS {
        endpoints.push(accepting(ANY).await);
    }
    let addrs: Vec<_> = endpoints.iter().map(|endpoint| endpoint.local_addr().unwrap()).collect();
    let mut all = tokio::task::JoinSet::new();
    for (index, endpoint) in endpoints.iter().enumerate() {
        for peer in (0..PEERS).filter(|peer| *peer != index) {
            let (endpoint, peer) = (endpoint.clone(), addrs[peer]);
            all.spawn(async move {
                let stream = endpoint.connect(peer, KcpConfig::default()).unwrap();
                echo_payload(stream, 200_000).await.unwrap();
            });
        }
        let (endpoint, addrs) = (endpoint.clone(), addrs.clone());
        all.spawn(async move {
            for _ in 1..PEERS {
                let (mut stream, peer) = endpoint.accept().await.unwrap();
                assert!(addrs.contains(&peer), "it comes from the port that listens");
                tokio::spawn(async move {
                    let mut bytes = vec![0; 200_000];
                    stream.read_exact(&mut bytes).await.unwrap();
                    stream.write_all(&bytes).await.unwrap();
                    stream.shutdown().await.unwrap();
                });
            }
        });
    }
    within(20, "every pair, in both directions", all.join_all()).await;
    for endpoint in &endpoints {
        assert_eq!(endpoint.endpoint_stats().driver.accepted, PEERS as u64 - 1);
    }
}

/// Both connect at the same time with the conv that they agreed on: one session, whoever's packet comes first. On one thread,
/// so that no HELLO comes before the other end has connected: it would begin a session to accept.
#[tokio::test]
async fn two_that_connect_to_each_other_have_one_session() {
    for round in 0..20 {
        let (here, there) = (accepting(ANY).await, accepting(ANY).await);
        let (here_addr, there_addr) = (here.local_addr().unwrap(), there.local_addr().unwrap());
        let mut one = here.connect_with_conv(there_addr, 77, KcpConfig::default()).unwrap();
        let mut other = there.connect_with_conv(here_addr, 77, KcpConfig::default()).unwrap();
        let both = async {
            tokio::try_join!(
                async {
                    write_payload(&mut one, 50_000).await?;
                    read_payload(&mut one, 50_000).await
                },
                async {
                    write_payload(&mut other, 50_000).await?;
                    read_payload(&mut other, 50_000).await
                }
            )
        };
        within(10, "both directions", both).await.unwrap();
        for endpoint in [&here, &there] {
            let stats = endpoint.endpoint_stats();
            assert_eq!((stats.state.sessions, stats.driver.accepted), (1, 0), "round {round}");
        }
    }
}

/// A listener's port connects, too: its peers see one address for all.
#[tokio::test]
async fn a_listener_connects_from_its_port() {
    let listener = KcpListener::bind(ANY, KcpConfig::default()).await.unwrap();
    let other = KcpListener::bind(ANY, KcpConfig::default()).await.unwrap();
    let client = listener.endpoint().connect(other.local_addr().unwrap(), KcpConfig::default()).unwrap();
    let (mut client, mut server) = accept_session(&other, client).await;
    assert_eq!(server.peer_addr(), listener.local_addr().unwrap());
    assert_alive(&mut client, &mut server).await;
}

#[tokio::test]
async fn sockets_may_be_tokios() {
    let socket = tokio::net::UdpSocket::bind(ANY).await.unwrap();
    let listener = KcpListener::from_socket(socket, KcpConfig::default()).unwrap();
    let addr = listener.local_addr().unwrap();
    let socket = tokio::net::UdpSocket::bind(ANY).await.unwrap();
    let client = KcpStream::from_socket(socket, addr, 5, KcpConfig::default()).unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    assert_alive(&mut client, &mut server).await;
    let socket = tokio::net::UdpSocket::bind(ANY).await.unwrap();
    let endpoint = KcpEndpoint::from_socket_accepting(socket, KcpConfig::default()).unwrap();
    let client = endpoint.connect(addr, KcpConfig::default()).unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    assert_alive(&mut client, &mut server).await;
}

/// The descriptor is the socket's own.
#[cfg(unix)]
#[tokio::test]
async fn the_socket_has_a_descriptor() {
    use std::os::fd::{AsFd, AsRawFd};

    let socket = UdpSocket::bind(ANY).unwrap();
    let (fd, addr) = (socket.as_raw_fd(), socket.local_addr().unwrap());
    let listener = KcpListener::from_socket(socket, KcpConfig::default()).unwrap();
    let below = listener.socket();
    assert_eq!((below.as_raw_fd(), listener.endpoint().socket().as_raw_fd()), (fd, fd));
    let again: UdpSocket = below.as_fd().try_clone_to_owned().unwrap().into();
    assert_eq!((again.local_addr().unwrap(), listener.socket().local_addr().unwrap()), (addr, addr));
    let stream = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    let below: UdpSocket = stream.socket().as_fd().try_clone_to_owned().unwrap().into();
    assert_eq!(below.local_addr().unwrap(), stream.local_addr().unwrap());
}

/// A flow label that the caller sets, and a scope where there is none, make no other peer.
#[tokio::test]
async fn an_ipv6_peer_is_the_same_with_another_flow_label() {
    let listener = KcpListener::bind("[::1]:0", KcpConfig::default()).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let labelled = SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0x5_4321, 0);
    let scoped = SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 1);
    for addr in [labelled, scoped] {
        let client = KcpStream::connect(SocketAddr::from(addr), KcpConfig::default()).await.unwrap();
        let (mut client, mut server) = accept_session(&listener, client).await;
        assert_alive(&mut client, &mut server).await;
        let endpoint = accepting("[::]:0").await;
        let client = endpoint.connect(addr.into(), KcpConfig::default()).unwrap();
        let (mut client, mut server) = accept_session(&listener, client).await;
        assert_alive(&mut client, &mut server).await;
    }
}

/// The link-local addresses of this machine, with their scopes.
#[cfg(target_os = "linux")]
fn link_local_addresses() -> Vec<SocketAddrV6> {
    let table = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let address = |line: &str| {
        let mut fields = line.split_whitespace();
        let ip = Ipv6Addr::from(u128::from_str_radix(fields.next()?, 16).ok()?);
        let scope = u32::from_str_radix(fields.next()?, 16).ok()?;
        ip.is_unicast_link_local().then(|| SocketAddrV6::new(ip, 0, 0, scope))
    };
    table.lines().filter_map(address).collect()
}

/// On machines that have such an address: an interface is up, and IPv6 is not turned off.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn addresses_of_a_link_work_with_their_scope() {
    for addr in link_local_addresses() {
        let any = SocketAddrV6::new(*addr.ip(), 0, 0, addr.scope_id());
        let Ok(listener) = KcpListener::bind(any, KcpConfig::default()).await else { continue };
        let addr = SocketAddrV6::new(*addr.ip(), listener.local_addr().unwrap().port(), 0, addr.scope_id());
        let client = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
        let (mut client, mut server) = accept_session(&listener, client).await;
        assert_alive(&mut client, &mut server).await;
        // A socket that is bound to the link needs no scope for a peer on it.
        let endpoint = KcpEndpoint::bind(any).await.unwrap();
        let unscoped = SocketAddrV6::new(*addr.ip(), addr.port(), 0, 0);
        let client = endpoint.connect(unscoped.into(), KcpConfig::default()).unwrap();
        let (mut client, mut server) = accept_session(&listener, client).await;
        assert_alive(&mut client, &mut server).await;
        // Another one cannot know which link is meant.
        let elsewhere = KcpEndpoint::bind("[::]:0").await.unwrap();
        let outcome = elsewhere.connect(unscoped.into(), KcpConfig::default());
        assert_eq!(kind(outcome), Some(ErrorKind::InvalidInput));
    }
}
