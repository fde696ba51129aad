//! Sockets: those of the caller, options, host names, IPv6.

use std::{
    io::ErrorKind,
    mem::MaybeUninit,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use kcp9::{KcpConfig, KcpEndpoint, KcpListener, KcpStream};
use socket2::{MaybeUninitSlice, MsgHdrMut, SockRef};

use crate::support::{
    ANY, ANY_UNSHARED, EchoServer, accept_session, assert_alive, echo_payload, kind, listen, within,
    without_extensions, write_payload,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_and_a_client_use_sockets_of_the_caller() {
    let listener = KcpListener::from_socket(UdpSocket::bind(ANY).unwrap(), KcpConfig::default()).unwrap();
    let addr = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(ANY).unwrap();
    let port = socket.local_addr().unwrap();
    let client = KcpStream::from_socket(socket, addr, 42, KcpConfig::default()).unwrap();
    assert_eq!((client.conv(), client.local_addr().unwrap(), client.peer_addr()), (42, port, addr));
    let (mut client, mut server) = accept_session(&listener, client).await;
    assert_eq!((server.conv(), server.peer_addr()), (42, port));
    assert_alive(&mut client, &mut server).await;

    let endpoint = KcpEndpoint::from_socket(UdpSocket::bind(ANY).unwrap()).unwrap();
    let client = endpoint.connect(addr, KcpConfig::default()).unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    assert_alive(&mut client, &mut server).await;
}

/// A connected socket receives its peer's packets only, and gets an error when the peer is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_uses_a_connected_socket() {
    let server = EchoServer::start().await;
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.connect(server.addr).unwrap();
    let client = KcpStream::from_socket(socket, server.addr, 7, KcpConfig::default()).unwrap();
    within(10, "an echo over a connected socket", echo_payload(client, 1 << 20)).await.unwrap();

    let nobody = UdpSocket::bind(ANY_UNSHARED).unwrap().local_addr().unwrap();
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.connect(nobody).unwrap();
    let config = crate::support::short_timeouts().build().unwrap();
    let mut client = KcpStream::from_socket(socket, nobody, 7, config).unwrap();
    let run = async {
        write_payload(&mut client, 100).await?;
        tokio::io::AsyncReadExt::read_u8(&mut client).await
    };
    let end = kind(within(3, "nobody is there", run).await);
    assert!(matches!(end, Some(ErrorKind::TimedOut | ErrorKind::ConnectionRefused)), "{end:?}");
}

#[tokio::test]
async fn buffers_are_set_on_the_socket() {
    let listener = listen().await;
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let stream = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    // Linux doubles the size it is asked for.
    for bytes in [64 << 10, 1 << 20] {
        listener.socket().set_recv_buffer_size(bytes).unwrap();
        listener.socket().set_send_buffer_size(bytes).unwrap();
        endpoint.socket().set_recv_buffer_size(bytes).unwrap();
        endpoint.socket().set_send_buffer_size(bytes).unwrap();
        stream.socket().set_recv_buffer_size(bytes).unwrap();
        stream.socket().set_send_buffer_size(bytes).unwrap();
        let sizes = [
            listener.socket().recv_buffer_size(),
            listener.socket().send_buffer_size(),
            endpoint.socket().recv_buffer_size(),
            endpoint.socket().send_buffer_size(),
            stream.socket().recv_buffer_size(),
            stream.socket().send_buffer_size(),
        ];
        for size in sizes {
            let size = size.unwrap();
            assert!(size == bytes || size == 2 * bytes, "{bytes} asked for, {size} granted");
        }
    }
}

/// The smallest buffers that the system gives: slow, but nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_completes_with_tiny_socket_buffers() {
    let listener = listen().await;
    listener.socket().set_recv_buffer_size(1).unwrap();
    listener.socket().set_send_buffer_size(1).unwrap();
    let server = EchoServer::over(listener);
    let config = KcpConfig::builder().send_window(16).build().unwrap();
    let client = KcpStream::connect(server.addr, config).await.unwrap();
    client.socket().set_recv_buffer_size(1).unwrap();
    client.socket().set_send_buffer_size(1).unwrap();
    within(20, "100 kB through tiny buffers", echo_payload(client, 100_000)).await.unwrap();
}

/// Receives a packet and the TOS byte it came with.
#[allow(unsafe_code)]
fn recv_with_tos(socket: &UdpSocket) -> Option<(usize, u8)> {
    let mut bytes = [0; 65_536];
    let mut control = [MaybeUninit::new(0); 128];
    let mut slices = [MaybeUninitSlice::new(uninit(&mut bytes))];
    let mut message = MsgHdrMut::new().with_buffers(&mut slices).with_control(&mut control);
    let len = SockRef::from(socket).recvmsg(&mut message, 0).ok()?;
    assert!(message.control_len() > 16, "no TOS came along");
    // A cmsghdr: its length (a word), level and type (an int each), then the byte.
    // SAFETY: the array was initialised with zeros.
    let [level, kind, tos] = [8, 12, 16].map(|at| unsafe { control[at].assume_init() });
    assert_eq!((i32::from(level), i32::from(kind)), (libc::IPPROTO_IP, libc::IP_TOS));
    Some((len, tos))
}

#[allow(unsafe_code)]
fn uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the two have the same layout, and the system writes initialised bytes only.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dscp_is_on_every_packet() {
    const LEN: usize = 40_000;
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    SockRef::from(&socket).set_recv_tos_v4(true).unwrap();
    SockRef::from(&socket).set_recv_buffer_size(1 << 20).unwrap();
    let addr = socket.local_addr().unwrap();
    // A dropped stream sends no more. With extensions, HELLO leaves before the option is set.
    let config = without_extensions().linger(Duration::ZERO).build().unwrap();
    for dscp in [0, 46, 10, 63, 0] {
        let mut client = KcpStream::connect(addr, config.clone()).await.unwrap();
        client.socket().set_dscp(dscp).unwrap();
        // One batch, sent with GSO: as much as goes out before the first ACK.
        write_payload(&mut client, LEN).await.unwrap();
        let conv = client.conv().to_le_bytes();
        let mut bytes = 0;
        while bytes < LEN {
            let (len, tos) = recv_with_tos(&socket).expect("the packets of 40 kB");
            assert!((25..=1_400).contains(&len), "a packet of {len} bytes: the batch was not cut");
            assert_eq!(tos >> 2, dscp, "DSCP of a packet");
            bytes += len - 24;
        }
        assert!(client.endpoint_stats().socket.send_errors == 0);
        drop(client);
        // Packets that were resent in the meantime.
        socket.set_nonblocking(true).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let mut rest = [0; 2_000];
        while let Ok(len) = socket.recv(&mut rest) {
            assert_eq!(rest[..4], conv, "of {len} bytes");
        }
        socket.set_nonblocking(false).unwrap();
    }
    let listener = listen().await;
    assert_eq!(kind(listener.socket().set_dscp(64)), Some(ErrorKind::InvalidInput));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_echo_with_a_dscp_at_both_ends() {
    for addr in [ANY, "[::1]:0", "[::]:0"] {
        let listener = KcpListener::bind(addr, KcpConfig::default()).await.unwrap();
        listener.socket().set_dscp(46).unwrap();
        let server = EchoServer::over(listener);
        let mut peers = vec![SocketAddr::new(server.addr.ip(), server.addr.port())];
        if server.addr.ip().is_unspecified() {
            peers = vec![
                (std::net::Ipv4Addr::LOCALHOST, server.addr.port()).into(),
                (std::net::Ipv6Addr::LOCALHOST, server.addr.port()).into(),
            ];
        }
        for peer in peers {
            let client = KcpStream::connect(peer, KcpConfig::default()).await.unwrap();
            client.socket().set_dscp(10).unwrap();
            within(10, "1 MB with a DSCP", echo_payload(client, 1 << 20)).await.unwrap();
        }
    }
}

/// A listener on all addresses answers from the address that the client sent to, with a DSCP as without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_come_from_the_address_that_was_called() {
    for dscp in [0, 46] {
        let listener = KcpListener::bind("0.0.0.0:0", KcpConfig::default()).await.unwrap();
        listener.socket().set_dscp(dscp).unwrap();
        let server = EchoServer::over(listener);
        let client =
            KcpStream::connect(("127.0.0.2", server.addr.port()), KcpConfig::default()).await.unwrap();
        let what = format!("an echo of 127.0.0.2, DSCP {dscp}");
        within(5, &what, echo_payload(client, 10_000)).await.unwrap();
    }
}

#[tokio::test]
async fn host_names_are_resolved() {
    let server = EchoServer::over(KcpListener::bind("localhost:0", KcpConfig::default()).await.unwrap());
    assert!(server.addr.ip().is_loopback());
    let name = format!("localhost:{}", server.addr.port());
    let client = KcpStream::connect(name.as_str(), KcpConfig::default()).await.unwrap();
    assert_eq!(client.peer_addr(), server.addr, "both ends take the first address of the name");
    within(5, "an echo by name", echo_payload(client, 1_000)).await.unwrap();
    // Nothing can be sent to the first of these addresses.
    let addrs = [SocketAddr::from(([255, 255, 255, 255], server.addr.port())), server.addr];
    let client = KcpStream::connect(&addrs[..], KcpConfig::default()).await.unwrap();
    assert_eq!(client.peer_addr(), server.addr);
    assert!(KcpStream::connect(&addrs[..1], KcpConfig::default()).await.is_err());
    let none: &[SocketAddr] = &[];
    assert_eq!(kind(KcpStream::connect(none, KcpConfig::default()).await), Some(ErrorKind::InvalidInput));
    assert_eq!(kind(KcpListener::bind(none, KcpConfig::default()).await), Some(ErrorKind::InvalidInput));
    assert!(KcpStream::connect("no port", KcpConfig::default()).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_echo_over_ipv6() {
    let server = EchoServer::over(KcpListener::bind("[::1]:0", KcpConfig::default()).await.unwrap());
    let client = KcpStream::connect(server.addr, KcpConfig::default()).await.unwrap();
    assert_eq!(client.peer_addr(), server.addr);
    assert!(client.local_addr().unwrap().is_ipv6());
    within(10, "1 MB over IPv6", echo_payload(client, 1 << 20)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_listener_serves_ipv4_and_ipv6() {
    let listener = KcpListener::bind("[::]:0", KcpConfig::default()).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "::1"] {
        let addr = SocketAddr::new(host.parse().unwrap(), port);
        let mut client = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
        write_payload(&mut client, 100).await.unwrap();
        let (server, peer) = within(5, "a client of either kind", listener.accept()).await.unwrap();
        assert_eq!(peer.ip(), addr.ip(), "an IPv4 peer is named as such");
        assert_eq!(peer, server.peer_addr());
        let (mut client, mut server) = (client, server);
        within(5, "its bytes", crate::support::read_payload(&mut server, 100)).await.unwrap();
        assert_alive(&mut client, &mut server).await;
    }
    let endpoint = KcpEndpoint::bind("[::]:0").await.unwrap();
    let addr = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
    let client = endpoint.connect(addr, KcpConfig::default()).unwrap();
    assert_eq!(client.peer_addr(), addr, "named as the application named it");
    let (mut client, mut server) = accept_session(&listener, client).await;
    assert_alive(&mut client, &mut server).await;
}

#[tokio::test]
async fn an_ipv4_socket_refuses_an_ipv6_peer() {
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let peer = "[::1]:9".parse().unwrap();
    assert_eq!(kind(endpoint.connect(peer, KcpConfig::default())), Some(ErrorKind::InvalidInput));
}
