//! ECN over real sockets: which packets carry ECT(0), as a socket of the standard library sees them on the way.

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kcp9::{KcpConfig, KcpListener, KcpStream, proto::EcnState};

use super::support::*;

/// The lowest two bits of the `TOS`.
const NOT_ECT: u8 = 0b00;
const ECT0: u8 = 0b10;
const CE: u8 = 0b11;
/// Bytes that are sent each way.
const LEN: usize = 500_000;

/// Sets an option of a socket whose value is an int.
#[allow(unsafe_code)]
fn set_option(socket: &UdpSocket, level: i32, name: i32, value: i32) {
    // SAFETY: the descriptor is open, and the option's value is an int that lives across the call.
    let outcome = unsafe {
        let (value, len) = ((&raw const value).cast(), size_of::<i32>() as libc::socklen_t);
        libc::setsockopt(socket.as_raw_fd(), level, name, value, len)
    };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}

/// Receives a packet: its length, its source, and the `TOS` that the system tells beside it.
#[allow(unsafe_code)]
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, u8)> {
    let mut control = [0_u64; 16];
    let mut slice = IoSliceMut::new(buffer);
    // SAFETY: all zeros is a value of both.
    let (mut source, mut message): (libc::sockaddr_in, libc::msghdr) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    message.msg_name = (&raw mut source).cast();
    message.msg_namelen = size_of_val(&source) as libc::socklen_t;
    message.msg_iov = (&raw mut slice).cast();
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the descriptor is open, and everything that the message points to lives across the call. An `IoSliceMut` is an `iovec`.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    if len < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut tos = None;
    // SAFETY: the message is as the system left it, with its control messages in `control`, which is aligned for them. A `TOS` has a byte.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::IPPROTO_IP, libc::IP_TOS) {
                tos = Some(*libc::CMSG_DATA(header));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let ip = u32::from_be(source.sin_addr.s_addr).to_be_bytes();
    let source = SocketAddr::from((ip, u16::from_be(source.sin_port)));
    Ok((len as usize, source, tos.expect("the system tells the TOS")))
}

/// A packet that has passed.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// From the end that connects.
    from_client: bool,
    tos: u8,
    /// It holds a PUSH with payload, and is not encrypted.
    has_payload: bool,
}

/// A path between one client and a server: it notes the `TOS` of each packet, and passes the packet on with the `TOS` that `change`
/// makes of it.
struct Path {
    addr: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    over: Arc<AtomicBool>,
}

impl Path {
    fn to(server: SocketAddr, change: fn(u8) -> u8) -> Self {
        let socket = UdpSocket::bind(ANY).unwrap();
        set_option(&socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
        set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20);
        socket.set_read_timeout(Some(ms(100))).unwrap();
        let path = Self { addr: socket.local_addr().unwrap(), seen: Arc::default(), over: Arc::default() };
        let (seen, over) = (Arc::clone(&path.seen), Arc::clone(&path.over));
        std::thread::spawn(move || {
            let mut client = None;
            let mut buffer = [0; 2_048];
            let mut last_tos = 0;
            while !over.load(Ordering::Relaxed) {
                let Ok((len, source, tos)) = receive(&socket, &mut buffer) else { continue };
                let from_client = source != server;
                if from_client {
                    client = Some(source);
                }
                let packet = &buffer[..len];
                let has_payload = packet.get(4) == Some(&81) && len > 24;
                seen.lock().unwrap().push(Seen { from_client, tos, has_payload });
                let tos = change(tos);
                if tos != last_tos {
                    set_option(&socket, libc::IPPROTO_IP, libc::IP_TOS, tos.into());
                    last_tos = tos;
                }
                let Some(to) = (if from_client { Some(server) } else { client }) else { continue };
                let _ = socket.send_to(packet, to);
            }
        });
        path
    }

    /// Those that were sent by the client, or by the server.
    fn of(&self, from_client: bool) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.from_client == from_client).copied().collect()
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// What ends and path have come to, after a transfer both ways.
struct Outcome {
    path: Path,
    client: KcpStream,
    server: KcpStream,
    _listener: KcpListener,
}

/// A transfer both ways.
async fn exchange(client: &mut KcpStream, server: &mut KcpStream) {
    let (mut client_reader, mut client_writer) = tokio::io::split(client);
    let (mut server_reader, mut server_writer) = tokio::io::split(server);
    let both = async {
        tokio::try_join!(
            write_payload(&mut client_writer, LEN),
            write_payload(&mut server_writer, LEN),
            read_payload(&mut client_reader, LEN),
            read_payload(&mut server_reader, LEN),
        )
    };
    within(30, "a transfer both ways", both).await.unwrap();
}

/// Goes on until both ends know what becomes of the marks. Where a report was lost, the next packets that are to be reported go a second
/// later.
async fn settle(client: &mut KcpStream, server: &mut KcpStream) {
    let begun = std::time::Instant::now();
    while [&*client, &*server].iter().any(|stream| stream.stats().path.ecn == EcnState::Testing) {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}, {:?}", client.stats(), server.stats());
        assert_alive(client, server).await;
        tokio::time::sleep(ms(20)).await;
    }
}

async fn transfer(configs: [KcpConfig; 2], dscp: u8, change: fn(u8) -> u8) -> Outcome {
    let [of_client, of_server] = configs;
    let listener = listen_with(of_server).await;
    let path = Path::to(listener.local_addr().unwrap(), change);
    let client = KcpStream::connect(path.addr, of_client).await.unwrap();
    client.socket().set_dscp(dscp).unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    exchange(&mut client, &mut server).await;
    Outcome { path, client, server, _listener: listener }
}

impl Outcome {
    fn states(&self) -> [EcnState; 2] {
        [&self.client, &self.server].map(|stream| stream.stats().path.ecn)
    }
}

fn default() -> KcpConfig {
    KcpConfig::default()
}

fn without_ecn() -> KcpConfig {
    KcpConfig::builder().ecn(false).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payload_to_a_peer_of_ours_carries_ect0_and_nothing_else_does() {
    for dscp in [0, 46] {
        let mut outcome = transfer([default(), default()], dscp, |tos| tos).await;
        settle(&mut outcome.client, &mut outcome.server).await;
        assert_eq!(outcome.states(), [EcnState::Capable; 2]);
        // Half of all are sent from here on, at least.
        exchange(&mut outcome.client, &mut outcome.server).await;
        for from_client in [true, false] {
            let seen = outcome.path.of(from_client);
            // HELLO, ANSWER and what was sent before the peer was known.
            assert_eq!(seen[0].tos & CE, NOT_ECT, "the first of {from_client}");
            assert!(seen.iter().all(|seen| matches!(seen.tos & CE, NOT_ECT | ECT0)));
            let marked = seen.iter().filter(|seen| seen.tos & CE == ECT0).count();
            let payload = seen.iter().filter(|seen| seen.has_payload).count();
            assert!(marked > payload / 3, "{marked} of {payload} packets, client {from_client}");
            assert!(
                seen.iter().filter(|seen| seen.tos & CE == ECT0 && !seen.has_payload).count() <= marked / 10,
                "packets without payload carry none"
            );
            if from_client {
                assert!(seen.iter().skip(1).all(|seen| seen.tos >> 2 == dscp), "the DSCP stays");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_carries_ect_unless_both_ends_want_it_and_know_the_extensions() {
    let legacy = || without_extensions().build().unwrap();
    for configs in
        [[without_ecn(), default()], [default(), without_ecn()], [legacy(), default()], [default(), legacy()]]
    {
        let what = format!("{:?}", configs.each_ref().map(|config| (config.ecn(), config.extensions())));
        let outcome = transfer(configs, 0, |tos| tos).await;
        assert_eq!(outcome.states(), [EcnState::Off; 2], "{what}");
        let seen = outcome.path.seen.lock().unwrap();
        assert!(seen.len() > 100 && seen.iter().all(|seen| seen.tos == 0), "{what}");
    }
}

/// Every packet that may be marked is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_are_reported_and_answered() {
    let mut outcome = transfer([default(), default()], 0, |tos| if tos == ECT0 { CE } else { tos }).await;
    settle(&mut outcome.client, &mut outcome.server).await;
    exchange(&mut outcome.client, &mut outcome.server).await;
    assert_eq!(outcome.states(), [EcnState::Capable; 2]);
    let stats = [&outcome.client, &outcome.server].map(|stream| stream.stats().ecn);
    for (own, peers) in [(stats[0], stats[1]), (stats[1], stats[0])] {
        assert!(own.ce_received > 10 && own.ect0_received == 0, "{own:?}");
        assert!(
            own.reports_sent > 0 && own.ce_reported > 0 && own.ce_reported <= peers.ce_received,
            "{own:?}"
        );
        assert!(own.congestion_events > 0 && own.congestion_events <= own.reports_received, "{own:?}");
    }
}

/// A path that clears the marks, as many do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_clears_the_marks_is_no_harm() {
    let mut outcome = transfer([default(), default()], 0, |_| NOT_ECT).await;
    // It takes three seconds and three RTOs until that is certain.
    settle(&mut outcome.client, &mut outcome.server).await;
    assert_eq!(outcome.states()[0], EcnState::Failed);
    let marked = outcome.path.of(true).iter().filter(|seen| seen.tos == ECT0).count();
    assert!((1..100).contains(&marked), "{marked} packets");
}

/// A sender that speaks IPv6, and one whose IPv4 address is in the form of IPv6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_over_ipv6_and_mapped_addresses() {
    let Ok(listener) = KcpListener::bind("[::]:0", default()).await else { return };
    let port = listener.local_addr().unwrap().port();
    for addr in [format!("[::1]:{port}"), format!("127.0.0.1:{port}")] {
        let addr: SocketAddr = addr.parse().unwrap();
        let client = KcpStream::connect(addr, default()).await.unwrap();
        let (mut client, mut server) = accept_session(&listener, client).await;
        exchange(&mut client, &mut server).await;
        settle(&mut client, &mut server).await;
        for stream in [&client, &server] {
            let stats = stream.stats();
            assert_eq!(stats.path.ecn, EcnState::Capable, "{addr}");
            assert!(stats.ecn.ect0_received > 10, "{addr}: {:?}", stats.ecn);
        }
    }
}
