//! Both ends of an echo, over anything that reads and writes.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpListener, KcpStream, Stats};
use kcp9_relay::Relay;
use kcp9_tests::spawn;
use tokio::{
    io::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    task::JoinHandle,
};

use kcp9_simulator::payload::Payload;

/// How long one run may take.
pub const LIMIT: Duration = Duration::from_secs(30);
/// Bytes of a write: fewer than the 127 segments that tokio_kcp takes at once.
const WRITE: usize = 64 << 10;

/// The windows of every peer here: small, because some of the others scan all that is in flight for each segment.
pub const WINDOW: u16 = 512;

/// Our settings: the defaults, with the window of the peers.
pub fn config() -> KcpConfig {
    let window = u32::from(WINDOW);
    KcpConfig::builder().send_window(window).recv_window(window).build().unwrap()
}

/// `len` bytes that look random, others for each `len`.
pub fn payload(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Payload::new(len as u64).fill(0, &mut bytes);
    bytes
}

/// Fails with `what` when `run` takes longer than [`LIMIT`].
pub fn within<T>(what: &str, run: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
    kcp9_tests::within(LIMIT.as_secs(), what, run)
}

/// Sends `len` bytes and reads them back, at the same time; panics at the first byte that differs. Returns the writing half,
/// since dropping it could end the session.
pub async fn drive<W: AsyncWrite + Unpin + Send + 'static>(
    what: &str,
    mut reader: impl AsyncRead + Unpin,
    mut writer: W,
    len: usize,
) -> W {
    let begun = Instant::now();
    let sent = payload(len);
    let writing = spawn({
        let sent = sent.clone();
        async move {
            for piece in sent.chunks(WRITE) {
                writer.write_all(piece).await?;
            }
            writer.flush().await?;
            io::Result::Ok(writer)
        }
    });
    let mut buffer = vec![0; 64 << 10];
    let mut at = 0;
    while at < len {
        let read = tokio::time::timeout(LIMIT, reader.read(&mut buffer));
        let Ok(count) = read.await else { panic!("{what}: {at} of {len} bytes came back, then nothing") };
        let count = count.unwrap_or_else(|error| panic!("{what}: after {at} of {len} bytes: {error}"));
        assert!(count > 0, "{what}: end of stream after {at} of {len} bytes");
        assert!(at + count <= len, "{what}: more bytes came back than were sent");
        assert!(buffer[..count] == sent[at..at + count], "{what}: wrong bytes in {at}..{}", at + count);
        at += count;
    }
    let writer = writing.await.unwrap().unwrap_or_else(|error| panic!("{what}: write: {error}"));
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{what}: {:.1} MB there and back in {seconds:.2} s, {:.1} MB/s",
        len as f64 / 1e6,
        len as f64 / 1e6 / seconds
    );
    writer
}

/// Drives an echo from one of our streams; returns what happened on it.
pub async fn drive_ours(what: &str, addr: SocketAddr, config: KcpConfig, len: usize) -> Stats {
    let stream = KcpStream::connect(addr, config).await.unwrap();
    let (mut reader, writer) = stream.into_split();
    let _open = within(what, drive(what, &mut reader, writer, len)).await;
    reader.stats()
}

/// An echo server, until it is dropped.
pub struct Server {
    pub addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Server {
    /// One that `serve` makes. It counts the sessions that it accepts.
    pub fn new<F>(addr: SocketAddr, serve: impl FnOnce(Arc<AtomicUsize>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let accepted = Arc::new(AtomicUsize::new(0));
        let task = spawn(serve(Arc::clone(&accepted)));
        Self { addr, accepted, task }
    }

    /// Ours.
    pub async fn start(config: KcpConfig) -> Self {
        let listener = KcpListener::bind("127.0.0.1:0", config).await.unwrap();
        let addr = listener.local_addr().unwrap();
        Self::new(addr, |accepted| async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::Relaxed);
                spawn(async move {
                    let (mut reader, mut writer) = stream.into_split();
                    io::copy(&mut reader, &mut writer).await
                });
            }
        })
    }

    /// Sessions accepted so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Echoes what `stream` of another crate carries, until it ends.
pub async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
        stream.flush().await?;
    }
}

/// Another crate that speaks KCP.
pub trait OtherCrate {
    const NAME: &'static str;
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Its echo server.
    fn serve() -> impl Future<Output = Server> + Send;
    fn connect(addr: SocketAddr) -> impl Future<Output = Self::Stream> + Send;
}

/// Bytes that go there and back between us and another crate.
const LEN: usize = 10 << 20;

/// One of our streams drives the other crate's echo server, over a path that loses a part of all packets.
pub async fn drive_other<C: OtherCrate>(loss: f64) {
    let server = C::serve().await;
    let relay = Relay::lossy(server.addr, loss).unwrap();
    let addr = if loss > 0.0 { relay.addr() } else { server.addr };
    drive_ours(&format!("{} serves, loss {loss}", C::NAME), addr, config(), LEN).await;
    assert!(loss == 0.0 || relay.counts().dropped() > 1_000);
}

/// A stream of the other crate drives our echo server, over a path that loses a part of all packets.
pub async fn serve_other<C: OtherCrate>(loss: f64) {
    let server = Server::start(config()).await;
    let relay = Relay::lossy(server.addr, loss).unwrap();
    let addr = if loss > 0.0 { relay.addr() } else { server.addr };
    let what = format!("{} connects, loss {loss}", C::NAME);
    let (reader, writer) = io::split(C::connect(addr).await);
    within(&what, drive(&what, reader, writer, LEN)).await;
    assert!(loss == 0.0 || relay.counts().dropped() > 1_000);
}
