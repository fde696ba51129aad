//! What most tests here need.

use std::{
    future::{Future, poll_fn},
    io::{self, ErrorKind},
    net::SocketAddr,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpConfigBuilder, KcpListener, KcpStream, proto::Extensions};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    task::JoinHandle,
};

use kcp9_simulator::{Rng, payload::Payload};

pub use kcp9_simulator::ms;
pub use kcp9_tests::{spawn, within};

/// Any free port of the loopback.
pub const ANY: &str = "127.0.0.1:0";
/// Any free port of a loopback address where no test listens. Once a socket there is closed, nobody answers any more; a port
/// of [`ANY`] may go to another test.
pub const ANY_UNSHARED: &str = "127.0.0.77:0";
/// The stream of bytes that most tests send.
pub const PAYLOAD: Payload = Payload::new(0x6b63_7039);

/// Waits until `condition` holds; panics with `what` when it does not within `seconds`.
pub async fn until(seconds: u64, what: &str, mut condition: impl FnMut() -> bool + Send) {
    let condition: &mut (dyn FnMut() -> bool + Send) = &mut condition;
    within(seconds, what, poll_until(condition)).await;
}

async fn poll_until(condition: &mut (dyn FnMut() -> bool + Send)) {
    while !condition() {
        tokio::time::sleep(ms(2)).await;
    }
}

/// Settings of an end without extensions, which the other end takes for a legacy peer.
pub fn without_extensions() -> KcpConfigBuilder {
    KcpConfig::builder().extensions(Extensions::Off)
}

/// Settings under which a dead peer is noticed within a test's time.
pub fn short_timeouts() -> KcpConfigBuilder {
    KcpConfig::builder().dead_timeout(Duration::from_secs(1)).linger(Duration::from_secs(2))
}

/// A listener at a free port of the loopback, with the default settings.
pub async fn listen() -> KcpListener {
    listen_with(KcpConfig::default()).await
}

pub async fn listen_with(config: KcpConfig) -> KcpListener {
    KcpListener::bind(ANY, config).await.unwrap()
}

/// A listener and one session between a client and it, over loopback.
pub struct Pair {
    pub listener: KcpListener,
    pub client: KcpStream,
    pub server: KcpStream,
}

pub async fn pair() -> Pair {
    pair_with(KcpConfig::default()).await
}

pub async fn pair_with(config: KcpConfig) -> Pair {
    let listener = listen_with(config.clone()).await;
    let client = KcpStream::connect(listener.local_addr().unwrap(), config).await.unwrap();
    let (client, server) = accept_session(&listener, client).await;
    Pair { listener, client, server }
}

/// A client that writes one byte, unless it is turned away before.
pub async fn knock(addr: SocketAddr) -> KcpStream {
    let mut client = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    let _ = client.write_all(b"!").await;
    client
}

/// Has `client` send one byte, and accepts its session.
pub async fn accept_session(listener: &KcpListener, mut client: KcpStream) -> (KcpStream, KcpStream) {
    let greeting = async {
        client.write_all(b"!").await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), b'!');
        server
    };
    let server = within(5, "a client is accepted", greeting).await;
    (client, server)
}

/// Whether a byte gets from `client` to `server` and back.
pub async fn assert_alive(client: &mut KcpStream, server: &mut KcpStream) {
    let round = async {
        client.write_u8(7).await?;
        let byte = server.read_u8().await?;
        server.write_u8(byte + 1).await?;
        client.read_u8().await
    };
    assert_eq!(within(5, "a byte there and back", round).await.unwrap(), 8);
}

/// Echoes every session of a listener, until it is dropped.
pub struct EchoServer {
    pub addr: SocketAddr,
    task: JoinHandle<()>,
}

impl EchoServer {
    pub async fn start() -> Self {
        Self::over(listen().await)
    }

    pub fn over(listener: KcpListener) -> Self {
        let addr = listener.local_addr().unwrap();
        let task = spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (mut reader, mut writer) = stream.into_split();
                spawn(async move { tokio::io::copy(&mut reader, &mut writer).await });
            }
        });
        Self { addr, task }
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes `len` bytes of [`PAYLOAD`], from its start.
pub async fn write_payload(writer: &mut (impl AsyncWrite + Unpin), len: usize) -> io::Result<()> {
    let mut piece = vec![0; len.min(48 << 10)];
    let mut at = 0;
    while at < len {
        let count = piece.len().min(len - at);
        PAYLOAD.fill(at as u64, &mut piece[..count]);
        writer.write_all(&piece[..count]).await?;
        at += count;
    }
    writer.flush().await
}

/// Reads `len` bytes and panics at the first that is not [`PAYLOAD`]'s.
pub async fn read_payload(reader: &mut (impl AsyncRead + Unpin), len: usize) -> io::Result<()> {
    let mut buffer = vec![0; len.min(48 << 10)];
    let mut at = 0;
    while at < len {
        let most = buffer.len().min(len - at);
        let count = reader.read(&mut buffer[..most]).await?;
        assert_payload(at, &buffer[..count]);
        at += count;
    }
    Ok(())
}

pub fn assert_payload(at: usize, bytes: &[u8]) {
    let wrong = PAYLOAD.first_difference(at as u64, bytes);
    assert_eq!(wrong.map(|offset| at + offset), None, "position of the first wrong byte");
}

/// Writes the payload and reads it back from an echo, at the same time.
pub async fn echo_payload(stream: KcpStream, len: usize) -> io::Result<KcpStream> {
    let (mut reader, mut writer) = stream.into_split();
    tokio::try_join!(write_payload(&mut writer, len), read_payload(&mut reader, len))?;
    Ok(reader.reunite(writer).unwrap())
}

/// `outcome`'s kind of error.
pub fn kind<T>(outcome: io::Result<T>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

/// Polls `future` until it is ready, or drops it: after its first poll, or a few wakes or milliseconds later.
pub async fn poll_or_drop<F: Future>(rng: &mut Rng, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let patience = if rng.chance(0.5) { Duration::ZERO } else { rng.duration(ms(2)) };
    let mut polls = rng.within(1..=3);
    let limited = poll_fn(|cx| {
        let outcome = future.as_mut().poll(cx).map(Some);
        polls -= 1;
        if outcome.is_pending() && polls == 0 { Poll::Ready(None) } else { outcome }
    });
    let outcome = tokio::time::timeout(patience, limited).await.ok().flatten();
    if outcome.is_none() {
        tokio::task::yield_now().await;
    }
    outcome
}

/// Has the system report ICMP errors to the calls of a socket that is not connected.
#[allow(unsafe_code)]
pub fn ask_for_icmp_errors(socket: &std::net::UdpSocket) {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the option's value is an int that lives across the call.
    let outcome = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(socket),
            libc::IPPROTO_IP,
            libc::IP_RECVERR,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    assert_eq!(outcome, 0);
}

/// Waits for the port of `addr` to be free, and takes it. The socket of a session that has ended stays for up to 3 s, to answer a peer
/// that has not heard of it.
pub async fn rebind(addr: SocketAddr) -> std::net::UdpSocket {
    let begun = Instant::now();
    loop {
        match std::net::UdpSocket::bind(addr) {
            Ok(socket) => return socket,
            Err(error) => {
                assert!(begun.elapsed() < Duration::from_secs(5), "{addr} is not free again: {error}");
                tokio::time::sleep(ms(2)).await;
            }
        }
    }
}

/// Writes the payload from `at` on until a write waits for 500 ms; returns how far it got.
pub(crate) async fn write_until_stalled(writer: &mut (impl AsyncWriteExt + Unpin), mut at: usize) -> usize {
    let mut piece = vec![0; 10_000];
    loop {
        PAYLOAD.fill(at as u64, &mut piece);
        match tokio::time::timeout(ms(500), writer.write(&piece)).await {
            Ok(count) => at += count.unwrap(),
            Err(_) => return at,
        }
        assert!(at < 64 << 20, "nothing holds the writer back");
    }
}

/// Set in the process that runs one of these tests by itself, so that nothing else changes its memory.
const ALONE: &str = "KCP9_TEST_ALONE";

/// Runs the test `name` in a process of its own, or returns true in that process.
///
/// One heap for all threads: glibc's others keep up to 13 MiB of what was freed, now and then.
pub fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env(ALONE, "1")
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "{name} did not run: {stdout}");
    print!("{stdout}");
    false
}

/// Bytes that the process occupies, once the allocator has given back what it only keeps.
#[allow(unsafe_code)]
pub fn resident_bytes() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}
