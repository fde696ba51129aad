//! Paths that drop long packets, over real sockets: behind a relay, and behind a router of the kernel's own.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use kcp9::{KcpConfig, KcpListener, KcpStream};
use kcp9_relay::Relay;
use kcp9_simulator::LinkSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LIMIT: Duration = Duration::from_secs(60);
/// Bytes sent each way: so many that a search is over before.
const LEN: usize = 4_000_000;

/// Sends bytes each way, one after the other.
async fn exchange(client: &mut KcpStream, server: &mut KcpStream, len: usize) {
    let sent: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let mut received = vec![0; len];
    let (from, to) = tokio::join!(client.write_all(&sent), server.read_exact(&mut received));
    from.unwrap();
    to.unwrap();
    assert!(received == sent, "to the server");
    let (from, to) = tokio::join!(server.write_all(&sent), client.read_exact(&mut received));
    from.unwrap();
    to.unwrap();
    assert!(received == sent, "to the client");
}

fn plpmtu(stream: &KcpStream) -> u32 {
    stream.stats().path.plpmtu
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_of_1300_bytes_is_found_both_ways() {
    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await.unwrap();
    let path = LinkSettings { max_packet: Some(1_300), ..LinkSettings::delay(Duration::from_millis(5)) };
    let relay = Relay::start(listener.local_addr().unwrap(), &path, 7).unwrap();
    let mut client = KcpStream::connect(relay.addr(), KcpConfig::default()).await.unwrap();
    let all = async {
        client.write_u8(1).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.read_u8().await.unwrap();
        while [&client, &server].iter().any(|stream| plpmtu(stream) != 1_300) {
            exchange(&mut client, &mut server, LEN / 8).await;
        }
        exchange(&mut client, &mut server, LEN / 8).await;
        for stream in [&client, &server] {
            assert_eq!((plpmtu(stream), stream.stats().mtu.black_holes), (1_300, 0), "{:?}", stream.stats());
        }
    };
    tokio::time::timeout(LIMIT, all).await.expect("in time");
}

/// A path that carries the mtu costs nothing but the first flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clear_path_is_used_at_once() {
    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await.unwrap();
    let mut client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    let all = async {
        client.write_u8(1).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.read_u8().await.unwrap();
        exchange(&mut client, &mut server, LEN / 8).await;
        assert_eq!([plpmtu(&client), plpmtu(&server)], [1_400; 2]);
    };
    tokio::time::timeout(LIMIT, all).await.expect("in time");
}

// ---- A router ----

/// What a child is to do, and where.
const ROLE: &str = "KCP9_MTU_ROLE";

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("`ip` runs");
    assert!(status.success(), "ip {arguments}");
}

/// Namespaces of the names that begin so, which end with this.
struct Namespaces(String);

impl Drop for Namespaces {
    fn drop(&mut self) {
        for end in ["c", "r", "s"] {
            let _ = Command::new("ip").args(["netns", "del", &format!("{}{end}", self.0)]).status();
        }
    }
}

/// The test `namespace_end` in a namespace.
fn child(namespace: &str, role: &str) -> Child {
    let exe = std::env::current_exe().unwrap();
    Command::new("ip")
        .args(["netns", "exec", namespace])
        .arg(exe)
        .args(["--exact", "mtu::namespace_end", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::null())
        .spawn()
        .expect("a child")
}

/// A client, a router and a server. The link from the router to the server takes 1,328 bytes, which are 1,300 of UDP payload over
/// IPv4, and 1,280 over IPv6. In the midst of the transfer the client's way to it becomes as narrow: before, the link takes 1,500.
#[test]
#[ignore = "needs root: it makes network namespaces"]
fn a_router_whose_next_link_takes_less() {
    let name = format!("k9m{}", std::process::id());
    let namespaces = Namespaces(name.clone());
    for end in ["c", "r", "s"] {
        ip(&format!("netns add {name}{end}"));
        ip(&format!("-n {name}{end} link set lo up"));
    }
    ip(&format!("-n {name}c link add kn0 type veth peer name cr netns {name}r"));
    ip(&format!("-n {name}s link add kn0 type veth peer name sr netns {name}r"));
    for (end, net) in [("c", 1), ("s", 2)] {
        ip(&format!("-n {name}{end} addr add 10.99.{net}.2/24 dev kn0"));
        ip(&format!("-n {name}{end} addr add fd99:{net}::2/64 dev kn0 nodad"));
        ip(&format!("-n {name}{end} link set kn0 up"));
        ip(&format!("-n {name}r addr add 10.99.{net}.1/24 dev {end}r"));
        ip(&format!("-n {name}r addr add fd99:{net}::1/64 dev {end}r nodad"));
        ip(&format!("-n {name}r link set {end}r up"));
        ip(&format!("-n {name}{end} route add default via 10.99.{net}.1"));
        ip(&format!("-n {name}{end} -6 route add default via fd99:{net}::1"));
    }
    for option in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
        let status = Command::new("ip")
            .args(["netns", "exec", &format!("{name}r"), "sysctl", "-qw", option])
            .status()
            .unwrap();
        assert!(status.success(), "{option}");
    }
    for (server, expected) in [("10.99.2.2:7000", 1_300), ("[fd99:2::2]:7000", 1_280)] {
        // From the beginning, and while it runs.
        for narrow_at in [0, 1_500] {
            let mtu = |mtu| ip(&format!("-n {name}r link set sr mtu {mtu}"));
            mtu(if narrow_at == 0 { 1_328 } else { 1_500 });
            let mut listening = child(&format!("{name}s"), &format!("server {server}"));
            std::thread::sleep(Duration::from_millis(500));
            let mut client = child(&format!("{name}c"), &format!("client {server} {expected}"));
            if narrow_at > 0 {
                std::thread::sleep(Duration::from_millis(narrow_at));
                mtu(1_328);
            }
            let outcome = client.wait().unwrap();
            let _ = listening.kill();
            let _ = listening.wait();
            assert!(outcome.success(), "{server}, narrow after {narrow_at} ms");
        }
    }
    drop(namespaces);
}

/// One end of that, in its namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is a part of another test"]
async fn namespace_end() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let role: Vec<_> = role.split(' ').collect();
    let addr: SocketAddr = role[1].parse().unwrap();
    if role[0] == "server" {
        let listener = KcpListener::bind(addr, KcpConfig::default()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 65_536];
        let mut received = 0_usize;
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            assert!(
                buffer[..count].iter().enumerate().all(|(at, byte)| *byte == ((received + at) % 251) as u8)
            );
            received += count;
        }
        return;
    }
    let expected: u32 = role[2].parse().unwrap();
    let mut stream = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    let (mut sent, begun) = (0_usize, std::time::Instant::now());
    // A little at a time, so that it is under way for as long as the path changes and the search takes.
    while begun.elapsed() < Duration::from_secs(10) {
        let bytes: Vec<u8> = (sent..sent + 20_000).map(|at| (at % 251) as u8).collect();
        tokio::time::timeout(Duration::from_secs(8), stream.write_all(&bytes))
            .await
            .expect("it goes on")
            .unwrap();
        sent += bytes.len();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stats = stream.stats();
    eprintln!("{addr}: {sent} bytes, {:?}, {:?}, {:?}", stats.path, stats.udp, stats.recovery);
    tokio::time::timeout(Duration::from_secs(10), stream.shutdown())
        .await
        .expect("everything arrives")
        .unwrap();
    let found = stats.path.plpmtu;
    assert!((expected - 32..=expected).contains(&found), "{found} of {expected}: {stats:?}");
}
