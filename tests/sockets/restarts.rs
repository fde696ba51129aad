//! Servers that are gone all at once, and others in their place.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use kcp9::{
    KcpConfig, KcpListener, KcpStream,
    proto::{Command, Extensions, SegmentHeader},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UdpSocket,
    runtime::Runtime,
};

use crate::support::{ANY, kind, listen_with, ms, rebind, within};

fn config() -> KcpConfig {
    KcpConfig::builder()
        .extensions(Extensions::Preferred)
        .keep_alive(Some(Duration::from_millis(500)))
        .build()
        .unwrap()
}

/// A server whose runtime is its process: it ends without another word.
struct Process {
    runtime: Option<Runtime>,
    addr: SocketAddr,
    /// What it has accepted. The streams go after the driver: tasks of the runtime might drop theirs before, which the peers would be
    /// told.
    accepted: Arc<Mutex<Vec<KcpStream>>>,
}

impl Process {
    /// Accepts sessions, and says nothing.
    fn start(socket: std::net::UdpSocket) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let addr = socket.local_addr().unwrap();
        let accepted = Arc::<Mutex<Vec<_>>>::default();
        runtime.spawn({
            let accepted = Arc::clone(&accepted);
            async move {
                let listener = KcpListener::from_socket(socket, config()).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    accepted.lock().unwrap().push(stream);
                }
            }
        });
        Self { runtime: Some(runtime), addr, accepted }
    }

    async fn kill(mut self) -> SocketAddr {
        let runtime = self.runtime.take().unwrap();
        let ending = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(5)));
        ending.await.unwrap();
        self.accepted.lock().unwrap().clear();
        self.addr
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_learn_of_a_restart_by_a_reset() {
    let server = Process::start(std::net::UdpSocket::bind(ANY).unwrap());
    let mut reader = KcpStream::connect(server.addr, config()).await.unwrap();
    let mut writer = KcpStream::connect(server.addr, config()).await.unwrap();
    writer.write_all(b"hello").await.unwrap();
    tokio::time::sleep(ms(300)).await;
    let addr = server.kill().await;
    let restarted = Process::start(rebind(addr).await);
    writer.write_all(b"are you there?").await.unwrap();
    for (stream, what) in [(&mut reader, "the end of who only reads"), (&mut writer, "the end of who writes")]
    {
        let outcome = within(10, what, stream.read_u8()).await;
        assert_eq!(kind(outcome), Some(std::io::ErrorKind::ConnectionReset), "{what}");
    }
    restarted.kill().await;
}

fn ping() -> Vec<u8> {
    let cmd = Command::Extension;
    let header = SegmentHeader { conv: 7, cmd, frg: 8, wnd: 9, ts: 11, sn: 5, una: 0, len: 8 };
    [&header.to_bytes()[..], &[3; 8]].concat()
}

/// Whether a PING of an unknown session is answered.
async fn is_reset(addr: SocketAddr) -> bool {
    let socket = UdpSocket::bind(ANY).await.unwrap();
    socket.send_to(&ping(), addr).await.unwrap();
    let mut answer = [0; 64];
    let outcome = tokio::time::timeout(ms(500), socket.recv(&mut answer)).await;
    outcome.is_ok_and(|len| len.unwrap() == 32 && answer[4..6] == [0x60, 7])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_is_alone_on_its_port_resets_what_it_does_not_know() {
    let listener = listen_with(config()).await;
    assert!(is_reset(listener.local_addr().unwrap()).await);
    let stats = listener.endpoint_stats();
    assert_eq!((stats.driver.replies, stats.dropped.no_session), (1, 1), "{stats:?}");
    let off = listen_with(KcpConfig::builder().extensions(Extensions::Off).build().unwrap()).await;
    assert!(!is_reset(off.local_addr().unwrap()).await);
}

/// The other one may know the session.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_shares_its_port_resets_nothing() {
    use socket2::{Domain, Socket, Type};

    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&ANY.parse::<SocketAddr>().unwrap().into()).unwrap();
    let listener = KcpListener::from_socket(std::net::UdpSocket::from(socket), config()).unwrap();
    assert!(!is_reset(listener.local_addr().unwrap()).await);
}
