//! What it costs to look at counters: `stats()` of a session, and an export of all sessions of an endpoint.
//!
//! The export has no recorder: what a recorder does with a figure is its own. It is the same number of figures for any number of
//! sessions.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kcp9::{KcpConfig, KcpEndpoint, KcpListener, KcpMetrics, KcpStream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Runtime,
};

/// Sessions that have exchanged a byte, and their listener.
async fn sessions(count: usize) -> (KcpEndpoint, Vec<KcpStream>, KcpListener, Vec<KcpStream>) {
    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await.expect("a listener");
    let endpoint = KcpEndpoint::bind("127.0.0.1:0").await.expect("an endpoint");
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let addr = listener.local_addr().expect("an address");
        let mut stream = endpoint.connect(addr, KcpConfig::default()).expect("a session");
        stream.write_all(&[1]).await.expect("a write");
        let (mut peer, _) = listener.accept().await.expect("a peer");
        peer.read_exact(&mut [0]).await.expect("a read");
        here.push(stream);
        there.push(peer);
    }
    (endpoint, here, listener, there)
}

fn stats(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let (_endpoint, streams, _listener, _peers) = runtime.block_on(sessions(1));
    let handle = streams[0].handle();
    c.benchmark_group("stats").bench_function("session", |b| b.iter(|| black_box(handle.stats())));
}

fn export(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let mut group = c.benchmark_group("export");
    for count in [1, 1_000, 10_000] {
        let (endpoint, _streams, _listener, _peers) = runtime.block_on(sessions(count));
        let metrics = KcpMetrics::new();
        metrics.watch("bench", &endpoint);
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("sessions", count), |b| b.iter(|| metrics.export()));
    }
}

criterion_group!(benches, stats, export);
criterion_main!(benches);
