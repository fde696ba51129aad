//! Flags that act on what leaves the program, as the other end and the system see it.

use std::{
    collections::HashMap,
    io::IoSliceMut,
    net::{SocketAddr, SocketAddrV4, UdpSocket},
    os::fd::AsRawFd,
    path::Path,
    time::{Duration, Instant},
};

use kcp9_tests::within;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt::IpRecvTos};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::process::Command;

use super::{
    chat, connect, echo, start,
    support::{LIMIT, Program, target, words},
};

const TUNNEL: &str = env!("CARGO_BIN_EXE_tunnel");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_may_be_in_the_environment() {
    let start_with_key =
        |flags: &str, key| Program::start_with_key(Path::new(TUNNEL), &words(flags, &HashMap::new()), key);
    let server = start_with_key(&format!("server -l 127.0.0.1:0 -t {}", target(echo).await), Some("words"));
    let far = server.addr().await;
    for (key, flags, good) in [
        (Some("words"), "", true),
        (None, "-key words", true),
        // As with kcptun, the flag is stronger.
        (Some("others"), "-key words", true),
        (Some("words"), "-key others", false),
        (Some("others"), "", false),
        (None, "", false),
    ] {
        let client = start_with_key(&format!("client -l 127.0.0.1:0 -r {far} {flags}"), key);
        let mut stream = connect(client.addr().await).await;
        let limit = if good { Duration::from_secs(LIMIT) } else { Duration::from_secs(1) };
        let served = tokio::time::timeout(limit, chat(&mut stream)).await;
        assert_eq!(
            matches!(served, Ok(Ok(()))),
            good,
            "variable {key:?}, flags {flags:?}: {}",
            client.said()
        );
    }
    assert!(!server.said().contains("default"), "{}", server.said());
}

/// What passes between a client and a server: each packet's DSCP, by its direction.
struct Tap {
    socket: UdpSocket,
    server: SocketAddr,
    client: Option<SocketAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sender {
    Client,
    Server,
}

impl Tap {
    fn new(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(LIMIT))).unwrap();
        setsockopt(&socket, IpRecvTos, &true).unwrap();
        Self { socket, server, client: None }
    }

    /// Passes a packet on.
    fn pass(&mut self) -> (Sender, u8) {
        let mut bytes = [0; 2_000];
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let mut control = nix::cmsg_space!(u8);
        let flags = MsgFlags::empty();
        let got = recvmsg::<SockaddrIn>(self.socket.as_raw_fd(), &mut slices, Some(&mut control), flags)
            .expect("packets of both ends");
        let from = SocketAddr::V4(SocketAddrV4::from(got.address.unwrap()));
        let tos = got.cmsgs().unwrap().find_map(|message| match message {
            ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
            _ => None,
        });
        let (len, tos) = (got.bytes, tos.expect("a TOS byte"));
        let from = if from == self.server {
            self.socket.send_to(&bytes[..len], self.client.expect("the client speaks first")).unwrap();
            Sender::Server
        } else {
            self.client = Some(from);
            self.socket.send_to(&bytes[..len], self.server).unwrap();
            Sender::Client
        };
        (from, tos >> 2)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dscp_is_on_every_packet() {
    let target = target(echo).await;
    for (client_flags, client_dscp, server_flags, server_dscp) in
        [("-dscp 46", 46, "-dscp 10", 10), ("", 0, "-dscp 46", 46)]
    {
        let server = start(&format!("server -l 127.0.0.1:0 -t {target} {server_flags}"));
        let mut tap = Tap::new(server.addr().await);
        let remote = tap.socket.local_addr().unwrap();
        let client = start(&format!("client -l 127.0.0.1:0 -r {remote} {client_flags}"));
        let near = client.addr().await;
        let tapping = std::thread::spawn(move || {
            let mut seen = HashMap::from([(Sender::Client, 0), (Sender::Server, 0)]);
            while seen.values().any(|packets| *packets < 20) {
                let (from, dscp) = tap.pass();
                let expected = if from == Sender::Client { client_dscp } else { server_dscp };
                assert_eq!(dscp, expected, "from the {from:?}");
                *seen.get_mut(&from).unwrap() += 1;
            }
        });
        let mut stream = connect(near).await;
        while !tapping.is_finished() {
            // The last ones come when the tap is done.
            let _ = tokio::time::timeout(Duration::from_secs(1), chat(&mut stream)).await;
        }
        tapping.join().unwrap();
    }
}

/// The sizes of the buffers of a UDP socket, to receive and to send, from the system's `sock_diag`, which `ss -m` asks as well.
fn buffers_of(port: u16) -> (usize, usize) {
    const INET_DIAG_SKMEMINFO: u16 = 7;
    const HEADER: usize = 16;
    const FIXED: usize = 72;
    const NETLINK: (i32, i32) = (16, 4);
    let socket = Socket::new(Domain::from(NETLINK.0), Type::DGRAM, Some(Protocol::from(NETLINK.1))).unwrap();
    // A header: length, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST and NLM_F_DUMP, number, sender.
    let mut question = Vec::new();
    question.extend(72_u32.to_ne_bytes());
    question.extend(20_u16.to_ne_bytes());
    question.extend(0x301_u16.to_ne_bytes());
    question.extend([0; 8]);
    // AF_INET, IPPROTO_UDP, what is wanted, in any state, whatever its addresses.
    question.extend([2, 17, 1 << (INET_DIAG_SKMEMINFO - 1), 0]);
    question.extend(u32::MAX.to_ne_bytes());
    question.extend([0; 48]);
    socket.send(&question).unwrap();
    let short = |bytes: &[u8], at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut answer = [0; 65_536];
    loop {
        let len = std::io::Read::read(&mut &socket, &mut answer).unwrap();
        let mut messages = &answer[..len];
        while messages.len() >= HEADER {
            let (message, rest) =
                messages.split_at(word(messages, 0).next_multiple_of(4).min(messages.len()));
            messages = rest;
            assert_eq!(
                short(message, 4),
                20,
                "no UDP socket has port {port}, or the system has no sock_diag"
            );
            if message[HEADER + 4..HEADER + 6] != port.to_be_bytes() {
                continue;
            }
            let mut attributes = &message[HEADER + FIXED..];
            while short(attributes, 2) != INET_DIAG_SKMEMINFO {
                attributes = &attributes[usize::from(short(attributes, 0)).next_multiple_of(4)..];
            }
            // Behind its own header: received, its limit, to be sent, its limit.
            return (word(attributes, 8), word(attributes, 16));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockbuf_is_the_size_of_both_buffers() {
    let target = target(echo).await;
    for bytes in [50_000, 100_000] {
        let server = start(&format!("server -l 127.0.0.1:0 -t {target} -sockbuf {bytes}"));
        let far = server.addr().await;
        let client = start(&format!("client -l 127.0.0.1:0 -r {far} -sockbuf {bytes}"));
        chat(&mut connect(client.addr().await).await).await.unwrap();
        // `session 127.0.0.1:PORT -> ...`
        let session = client.says("session ").await;
        let near: SocketAddr = session.split(' ').next().unwrap().parse().unwrap();
        for port in [far.port(), near.port()] {
            // Linux doubles what it is asked for.
            assert_eq!(buffers_of(port), (2 * bytes, 2 * bytes), "-sockbuf {bytes}");
        }
    }
}

/// How long the server takes for the ACK of a packet that is not its session's first, which is acknowledged at once.
fn time_of_ack(server: SocketAddr, limit: Duration) -> Option<Duration> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server).unwrap();
    let push = |number: u8, limit: Duration| {
        // smux's frame that says nothing.
        let frame = [1, 3, 0, 0, 0, 0, 0, 0];
        let mut packet = vec![1, 2, 3, 4, PUSH, 0, 0, 1];
        // Time, number, what was received before, length.
        packet.extend([[0; 4], [number, 0, 0, 0], [0; 4], [frame.len() as u8, 0, 0, 0]].concat());
        packet.extend(frame);
        let began = Instant::now();
        socket.send(&packet).unwrap();
        loop {
            socket.set_read_timeout(Some(limit.checked_sub(began.elapsed())?)).unwrap();
            let mut answer = [0; 2_000];
            let len = socket.recv(&mut answer).ok()?;
            assert!(len >= 24 && answer[..4] == [1, 2, 3, 4], "{:?}", &answer[..len]);
            // The other packets are for a peer that has extensions.
            if answer[4] == ACK && answer[12] == number {
                return Some(began.elapsed());
            }
        }
    };
    push(0, Duration::from_secs(LIMIT)).expect("the ACK of the first packet");
    push(1, limit)
}

const PUSH: u8 = 81;
const ACK: u8 = 82;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknodelay_has_every_packet_acknowledged_at_once() {
    let target = target(echo).await;
    // Else an ACK waits for `interval`, which is 5 s here.
    let flags = "-mode manual -interval 5000 -crypt null -ds 0 -ps 0 -nocomp";
    for (flag, at_once) in [("", false), ("-acknodelay", true)] {
        let server = start(&format!("server -l 127.0.0.1:0 -t {target} {flags} {flag}"));
        let far = server.addr().await;
        let limit = Duration::from_secs(if at_once { LIMIT } else { 2 });
        let took = tokio::task::spawn_blocking(move || time_of_ack(far, limit)).await.unwrap();
        assert_eq!(took.is_some_and(|took| took < Duration::from_secs(2)), at_once, "{flag}: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_has_its_help_and_its_version() {
    let version = format!(" {}\n", env!("CARGO_PKG_VERSION"));
    for (role, flag) in [("client", "--remoteaddr"), ("server", "--target")] {
        for (argument, words) in [
            ("-h", flag),
            ("--help", flag),
            ("-help", flag),
            ("-v", &*version),
            ("--version", &*version),
            ("-version", &*version),
        ] {
            let output = Command::new(TUNNEL).args([role, argument]).output();
            let output = within(LIMIT, "the answer", output).await.unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success() && said.contains(words), "{role} {argument}: {said}");
        }
    }
}
