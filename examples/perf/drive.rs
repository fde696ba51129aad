//! The client's end, which checks what arrives.

use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpEndpoint, KcpStream};
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    task::JoinSet,
};

use crate::{
    options::{Drive, Mode},
    payload::Payload,
    serve::READ_SIZE,
    sleep_or_forever,
};

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Bytes of the connections that did not fail.
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    pub(crate) failed: usize,
}

/// Runs all connections, and keeps them open for as long as `--hold` says.
pub(crate) async fn drive(options: &Drive) -> io::Result<Outcome> {
    let config = options.session.config(None)?;
    let peer = resolve(&options.addr).await?;
    let dial = Arc::new(if options.one_socket {
        let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        Dial::Shared(KcpEndpoint::bind(any).await?, peer)
    } else {
        Dial::Own(peer)
    });

    let start = Instant::now();
    let mut running = JoinSet::new();
    for index in 0..options.conns {
        let (dial, config, task) = (Arc::clone(&dial), config.clone(), Task::new(options, index));
        running.spawn(async move {
            let outcome = match dial.connect(config).await {
                Ok(stream) => task.run(stream).await,
                Err(error) => Err(error),
            };
            outcome.map(|stream| (stream, task.bytes)).map_err(|error| (index, error))
        });
    }

    let mut expired = pin!(sleep_or_forever(options.session.timeout(60.0)));
    let mut finished = Vec::new();
    let mut bytes = 0;
    let mut failed = 0;
    loop {
        let joined = tokio::select! {
            joined = running.join_next() => joined,
            () = &mut expired => {
                eprintln!("perf: timed out");
                failed += running.len();
                break;
            }
        };
        match joined {
            None => break,
            Some(Ok(Ok((stream, count)))) => {
                bytes += count;
                finished.push(stream);
            }
            Some(Ok(Err((index, error)))) => {
                failed += 1;
                eprintln!("perf: connection {index}: {error}");
            }
            Some(Err(error)) => {
                failed += 1;
                eprintln!("perf: {error}");
            }
        }
    }
    let elapsed = start.elapsed();
    if let Some(hold) = options.hold() {
        tokio::time::sleep(hold).await;
    }
    if options.session.stats {
        for stream in &finished {
            eprintln!("client: {:#?}\nclient: {:#?}", stream.stats(), stream.endpoint_stats());
        }
    }
    Ok(Outcome { bytes, elapsed, failed })
}

async fn resolve(addr: &str) -> io::Result<SocketAddr> {
    let mut addrs = tokio::net::lookup_host(addr).await?;
    addrs.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such address"))
}

/// How connections are opened.
enum Dial {
    /// Each over a socket of its own.
    Own(SocketAddr),
    /// All over one.
    Shared(KcpEndpoint, SocketAddr),
}

impl Dial {
    async fn connect(&self, config: KcpConfig) -> io::Result<KcpStream> {
        match self {
            Self::Own(peer) => KcpStream::connect(peer, config).await,
            Self::Shared(endpoint, peer) => endpoint.connect(*peer, config),
        }
    }
}

/// What one connection has to do.
struct Task {
    mode: Mode,
    bytes: u64,
    msg: usize,
    payload: Payload,
}

impl Task {
    fn new(options: &Drive, index: usize) -> Self {
        let conns = options.conns as u64;
        let bytes = options.bytes / conns + u64::from((index as u64) < options.bytes % conns);
        let payload = Payload::new(options.seed, index);
        Self { mode: options.session.mode, bytes, msg: options.msg, payload }
    }

    /// Moves the bytes and returns the stream, still open.
    async fn run(&self, mut stream: KcpStream) -> io::Result<KcpStream> {
        match self.mode {
            Mode::Sink => self.sink(&mut stream).await?,
            Mode::Echo => {
                let (mut reader, mut writer) = stream.into_split();
                // In a task of its own, so that each direction may use a core.
                let (payload, bytes, msg) = (self.payload.clone(), self.bytes, self.msg);
                let writing = tokio::spawn(async move {
                    write_payload(&mut writer, payload, bytes, msg).await?;
                    Ok::<_, io::Error>(writer)
                });
                let writing = AbortOnDrop(writing);
                let (writer, ()) = tokio::try_join!(writing.join(), self.read_echo(&mut reader))?;
                stream = reader.reunite(writer).map_err(io::Error::other)?;
            }
        }
        Ok(stream)
    }

    async fn sink(&self, stream: &mut KcpStream) -> io::Result<()> {
        stream.write_all(&self.bytes.to_le_bytes()).await?;
        write_payload(stream, self.payload.clone(), self.bytes, self.msg).await?;
        let counted = stream.read_u64_le().await?;
        if counted != self.bytes {
            return Err(wrong(format!("the sink counted {counted} bytes, not {}", self.bytes)));
        }
        Ok(())
    }

    async fn read_echo(&self, reader: &mut kcp9::OwnedReadHalf) -> io::Result<()> {
        let mut expected = self.payload.clone();
        let mut buffer = vec![0; READ_SIZE];
        let mut left = self.bytes;
        while left > 0 {
            let count = reader.read(&mut buffer).await?;
            if !expected.check(&buffer[..count]) {
                let at = self.bytes - left;
                return Err(wrong(format!("the echo differs in the {count} bytes at {at}")));
            }
            left = left
                .checked_sub(count as u64)
                .ok_or_else(|| wrong("more bytes came back than were sent".to_owned()))?;
        }
        Ok(())
    }
}

async fn write_payload(
    writer: &mut (impl AsyncWrite + Unpin),
    mut payload: Payload,
    bytes: u64,
    msg: usize,
) -> io::Result<()> {
    let mut left = usize::try_from(bytes).map_err(io::Error::other)?;
    let mut buffer = vec![0; msg.min(left)];
    while left > 0 {
        let message = &mut buffer[..msg.min(left)];
        payload.fill(message);
        writer.write_all(message).await?;
        left -= message.len();
    }
    Ok(())
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A task that ends when nobody waits for it any more.
struct AbortOnDrop<R>(tokio::task::JoinHandle<R>);

impl<R> AbortOnDrop<io::Result<R>> {
    async fn join(mut self) -> io::Result<R> {
        (&mut self.0).await?
    }
}

impl<R> Drop for AbortOnDrop<R> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
