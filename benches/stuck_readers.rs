//! Whether readers that are stuck delay others: `cargo bench --bench stuck_readers`, about a minute; `-- --quick` for three rounds in
//! place of nine.
//!
//! 16 sessions send 64 bytes to and fro as fast as they can. Beside them, on the same two sockets and so in the same two drivers,
//! are 1,000 sessions or none, whose servers never read: their clients have filled both windows, wait to write, and ask again and
//! again whether there is room. Rounds with and without them take turns. The bar for the p99 is 1.2.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpEndpoint, KcpListener};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
};

const PINGS: usize = 16;
const STUCK: usize = 1_000;
const WINDOW: u32 = 64;
const ROUNDS: usize = 9;
const QUICK: usize = 3;
const MEASURE: Duration = Duration::from_secs(2);
const ANY: &str = "127.0.0.1:0";
/// The first byte of a session says whether its server reads on.
const ECHO: u8 = 1;
const STICK: u8 = 2;

#[tokio::main]
async fn main() -> io::Result<()> {
    let rounds = if std::env::args().any(|argument| argument == "--quick") { QUICK } else { ROUNDS };
    // p50 and p99 of each round.
    let [mut without, mut beside] = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        // The first round warms up.
        let kinds = if round % 2 == 0 { [0, STUCK] } else { [STUCK, 0] };
        for stuck in kinds {
            let times = one_round(stuck).await?;
            if round > 0 {
                if stuck == 0 { &mut without } else { &mut beside }.push(times);
            }
        }
    }
    println!("{PINGS} sessions of pings, medians of {rounds} rounds in turn, in us:");
    for (name, of) in [("p50", 0), ("p99", 1)] {
        let [without, beside] = [&without, &beside].map(|rounds| {
            median(rounds.iter().map(|times: &[Duration; 2]| times[of]).collect()).as_secs_f64() * 1e6
        });
        println!(
            "{name}: {without:.0} alone, {beside:.0} beside {STUCK} stuck readers, ratio {:.2}",
            beside / without
        );
    }
    Ok(())
}

fn config() -> io::Result<KcpConfig> {
    let config =
        KcpConfig::builder().send_window(WINDOW).recv_window(WINDOW).max_half_open_of_network(2 * STUCK);
    config.build().map_err(io::Error::other)
}

/// The p50 and p99 of the pings.
async fn one_round(stuck: usize) -> io::Result<[Duration; 2]> {
    let listener = KcpListener::bind(ANY, config()?).await?;
    let addr = listener.local_addr()?;
    let server = tokio::spawn(serve(listener));
    let endpoint = KcpEndpoint::bind(ANY).await?;
    let mut writers = JoinSet::new();
    for _ in 0..stuck {
        let mut stream = endpoint.connect(addr, config()?)?;
        stream.write_all(&[STICK]).await?;
        writers.spawn(async move {
            // Full windows end that, and nothing else: the server never reads.
            let bytes = [7; 16_384];
            while stream.write_all(&bytes).await.is_ok() {}
        });
    }
    // The windows fill, until little more is sent than questions whether there is room.
    loop {
        let before = endpoint.endpoint_stats().socket.packets_sent;
        tokio::time::sleep(Duration::from_secs(1)).await;
        if endpoint.endpoint_stats().socket.packets_sent - before <= 3 * stuck as u64 {
            break;
        }
    }
    if let Some(ended) = writers.try_join_next() {
        return Err(io::Error::other(format!("a stuck session has ended: {ended:?}")));
    }
    let asked = endpoint.endpoint_stats().socket.packets_sent;
    let mut pings = JoinSet::new();
    for _ in 0..PINGS {
        pings.spawn(ping(endpoint.clone(), addr));
    }
    let mut times = Vec::new();
    while let Some(one) = pings.join_next().await {
        times.extend(one.map_err(io::Error::other)??);
    }
    let others = endpoint.endpoint_stats().socket.packets_sent.saturating_sub(asked + times.len() as u64);
    if stuck > 0 && others == 0 {
        return Err(io::Error::other("nobody asks for room"));
    }
    if std::env::args().any(|argument| argument == "--verbose") {
        println!("beside {stuck}: {} pings, {others} other packets", times.len());
    }
    writers.abort_all();
    server.abort();
    times.sort();
    Ok([times[times.len() / 2], times[times.len() * 99 / 100]])
}

async fn serve(listener: KcpListener) -> io::Result<()> {
    let mut stuck = Vec::new();
    loop {
        let (mut stream, _) = listener.accept().await?;
        if stream.read_u8().await? == STICK {
            stuck.push(stream);
            continue;
        }
        tokio::spawn(async move {
            let mut bytes = [0; 64];
            while stream.read_exact(&mut bytes).await.is_ok() && stream.write_all(&bytes).await.is_ok() {}
        });
    }
}

async fn ping(endpoint: KcpEndpoint, addr: SocketAddr) -> io::Result<Vec<Duration>> {
    let mut stream = endpoint.connect(addr, config()?)?;
    stream.write_all(&[ECHO]).await?;
    let (mut times, mut bytes) = (Vec::new(), [9; 64]);
    let begun = Instant::now();
    while begun.elapsed() < MEASURE {
        let sent = Instant::now();
        stream.write_all(&bytes).await?;
        stream.read_exact(&mut bytes).await?;
        times.push(sent.elapsed());
    }
    Ok(times)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
