//! What an ordinary packet costs the driver of a real socket: processor time of the thread that receives, in the kernel and outside, for
//! each packet that it has received over loopback. The reader and the ACKs are in it, and waking up where the driver had to.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::mpsc,
    thread,
    time::Duration,
};

use kcp9::{EndpointStats, KcpConfig, KcpListener, KcpStream};
use nix::sys::resource::{UsageWho, getrusage};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::{Builder, Runtime},
    time::sleep,
};

/// Bytes of a write: a full packet.
const PACKET: usize = 1_376;
/// Packets that are sent one at a time.
const PACED: usize = 4_000;
/// Between two of them: the driver sleeps again before the next one comes.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes of the busy flow.
const BUSY: usize = 400_000_000;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Processor time of this thread, in microseconds: outside of the kernel and in it.
fn used() -> (i64, i64) {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the system tells");
    let micros = |time: nix::sys::time::TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
    (micros(usage.user_time()), micros(usage.system_time()))
}

async fn write(addr: SocketAddr, total: usize, pause: Option<Duration>) -> io::Result<()> {
    let mut stream = KcpStream::connect(addr, KcpConfig::default()).await?;
    let bytes = vec![7; if pause.is_some() { PACKET } else { 65_536 }];
    for _ in 0..total / bytes.len() {
        stream.write_all(&bytes).await?;
        if let Some(pause) = pause {
            stream.flush().await?;
            sleep(pause).await;
        }
    }
    stream.shutdown().await
}

fn flow(name: &str, total: usize, pause: Option<Duration>) {
    let (told, listens) = mpsc::channel();
    let server = thread::spawn(move || {
        runtime().block_on(async {
            let listener = KcpListener::bind((Ipv4Addr::LOCALHOST, 0), KcpConfig::default()).await?;
            told.send(listener.local_addr()?).expect("somebody listens");
            let (mut stream, _) = listener.accept().await?;
            let mut buffer = vec![0; 65_536];
            // Not what it takes to begin.
            stream.read_exact(&mut buffer[..PACKET]).await?;
            let (before, begun) = (used(), listener.endpoint_stats());
            while stream.read(&mut buffer).await? > 0 {}
            let (after, ended) = (used(), listener.endpoint_stats());
            io::Result::Ok((before, after, begun, ended))
        })
    });
    let addr = listens.recv().expect("it listens");
    runtime().block_on(write(addr, total, pause)).expect("a transfer");
    let (before, after, begun, ended) = server.join().expect("no panic").expect("a transfer");
    let of = |get: fn(&EndpointStats) -> u64| get(&ended) - get(&begun);
    let (packets, calls) = (of(|stats| stats.socket.packets_received), of(|stats| stats.socket.recv_calls));
    let each = |micros: i64| micros as f64 * 1_000.0 / packets as f64;
    println!(
        "driver, {name}: {:.0} ns a packet ({:.0} of them in the kernel), {packets} packets, {:.1} of them a receive call",
        each(after.0 - before.0 + after.1 - before.1),
        each(after.1 - before.1),
        packets as f64 / calls as f64,
    );
}

pub(crate) fn measure() {
    for _ in 0..3 {
        flow("one packet at a time", PACED * PACKET, Some(PAUSE));
        flow("busy", BUSY, None);
    }
}
