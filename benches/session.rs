//! Whole sessions over loopback sockets, by the names of kcp-go's benchmarks.
//!
//! `EchoSpeed*`: one connection writes the bytes and reads them back. `SinkSpeed*`: it writes them and waits until the server
//! has counted them; kcp-go's benchmark does not wait.

use std::{hint::black_box, io};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kcp9::{KcpConfig, KcpListener, KcpStream};
use kcp9_simulator::payload::Payload;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Runtime,
};

fn echo(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let stream = runtime.block_on(connect(serve_echo)).expect("a connection");
    let (mut reader, mut writer) = stream.into_split();
    for (name, size) in [
        ("EchoSpeed4K", 4 << 10),
        ("EchoSpeed64K", 64 << 10),
        ("EchoSpeed512K", 512 << 10),
        ("EchoSpeed1M", 1 << 20),
    ] {
        let message = payload(size);
        let mut back = vec![0; size];
        let mut group = c.benchmark_group("session");
        group.throughput(Throughput::Bytes(size as u64)).bench_function(name, |b| {
            b.iter(|| {
                // At the same time: more than both windows cannot be written before it is read.
                let both = async {
                    tokio::try_join!(writer.write_all(black_box(&message)), reader.read_exact(&mut back))
                };
                runtime.block_on(both).expect("the echo");
            });
        });
        assert_eq!(back, message);
    }
}

fn sink(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    for (name, size) in [
        ("SinkSpeed4K", 4 << 10),
        ("SinkSpeed64K", 64 << 10),
        ("SinkSpeed256K", 256 << 10),
        ("SinkSpeed1M", 1 << 20),
    ] {
        let message = payload(size);
        let mut stream =
            runtime.block_on(connect(move |stream| serve_sink(stream, size))).expect("a connection");
        let mut group = c.benchmark_group("session");
        group.throughput(Throughput::Bytes(size as u64)).bench_function(name, |b| {
            b.iter(|| {
                let counted = async {
                    stream.write_all(black_box(&message)).await?;
                    stream.read_u8().await
                };
                runtime.block_on(counted).expect("the sink's answer");
            });
        });
    }
}

/// A stream whose peer runs `serve`.
async fn connect<S, F>(serve: S) -> io::Result<KcpStream>
where
    S: FnOnce(KcpStream) -> F + Send + 'static,
    F: Future<Output = io::Result<()>> + Send,
{
    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        serve(stream).await
    });
    KcpStream::connect(addr, KcpConfig::default()).await
}

async fn serve_echo(mut stream: KcpStream) -> io::Result<()> {
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let count = stream.read(&mut buffer).await?;
        stream.write_all(&buffer[..count]).await?;
    }
}

/// Answers every `size` bytes with one.
async fn serve_sink(mut stream: KcpStream, size: usize) -> io::Result<()> {
    let mut buffer = vec![0; READ_SIZE];
    let mut left = size;
    loop {
        let room = left.min(READ_SIZE);
        left -= stream.read(&mut buffer[..room]).await?;
        if left == 0 {
            stream.write_all(&[1]).await?;
            left = size;
        }
    }
}

/// Bytes of which no two neighbouring segments are alike.
fn payload(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    Payload::new(1).fill(0, &mut bytes);
    bytes
}

/// Bytes that one read may take.
const READ_SIZE: usize = 256 << 10;

criterion_group!(benches, echo, sink);
criterion_main!(benches);
