//! Everything at once, for minutes: 2,000 sessions through loss, servers that restart, NATs that forget, clients that are killed, and
//! floods beside them.
//!
//! Proves that no byte is wrong, that what was written before a clean end arrives, that memory stays flat in a long run, and that nothing
//! is left in the end: no session, no task and nothing of the heap.
//!
//! Two servers echo: one encrypted, whose clients change their addresses, and one plain, whose port is flooded with forged packets.
//! Each session's task lives one life after the other, drawn from a seed: it sends, checks the echo byte by byte, pauses, and ends
//! in one of the ways in which streams end.

#![cfg(all(target_os = "linux", feature = "tokio", feature = "aead"))]

mod clients;
mod flood;
mod memory;
mod servers;
mod tally;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kcp9::KcpConfig;
use kcp9_relay::Relay;
use kcp9_simulator::{LinkSettings, Rng};

use self::{clients::Clients, flood::Flood, memory::Memory, servers::Server, tally::Tally};

/// Sessions at any time, of both servers together.
const SESSIONS: usize = 2_000;
/// How long the test runs by default; `KCP9_SOAK_SECONDS` says otherwise.
const SECONDS: u64 = 120;
const LOSS: f64 = 0.03;
/// How often the world is changed: by turns a server restarts, the NATs forget, clients are killed, and the other server restarts.
const STEP: Duration = Duration::from_secs(5);
const CYCLE: Duration = Duration::from_secs(20);

/// The settings of both ends. The dead are found within the test's time.
fn settings() -> kcp9::KcpConfigBuilder {
    KcpConfig::builder()
        .dead_timeout(Duration::from_secs(8))
        .linger(Duration::from_secs(8))
        .keep_alive(Some(Duration::from_secs(4)))
}

#[test]
#[ignore = "two minutes; half an hour: KCP9_SOAK_SECONDS=1800 cargo test --release --test soak -- --ignored --nocapture"]
fn nothing_is_wrong_and_nothing_is_left() {
    let seconds = std::env::var("KCP9_SOAK_SECONDS").map_or(SECONDS, |seconds| seconds.parse().unwrap());
    let seed = std::env::var("KCP9_SOAK_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("{seconds} s, seed {seed} (KCP9_SOAK_SEED)");
    memory::share_arenas();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (length, mut memory) = (Duration::from_secs(seconds), Memory::start());
    runtime.block_on(soak(length, Rng::new(seed), &mut memory));
    // With its threads goes what the allocator keeps for each.
    drop(runtime);
    memory.check(length);
}

async fn soak(length: Duration, mut rng: Rng, memory: &mut Memory) {
    let tally = Arc::new(Tally::default());
    let encrypted = settings().crypto(clients::crypto()).build().unwrap();
    let plain = settings().build().unwrap();
    let mut servers = [Server::start(encrypted.clone()).await, Server::start(plain.clone()).await];
    let path = LinkSettings { delay: Duration::from_millis(10), ..LinkSettings::default().loss(LOSS) };
    let relays =
        [0, 1].map(|index: usize| Relay::start(servers[index].addr, &path, 1 + index as u64).unwrap());
    let mut clients = [
        Clients::start(servers[0].addr, relays[0].addr(), &encrypted, SESSIONS / 2, &mut rng, &tally),
        Clients::start(servers[1].addr, relays[1].addr(), &plain, SESSIONS / 2, &mut rng, &tally),
    ];
    let flood = Flood::start(servers[1].addr, rng.fork());

    let began = Instant::now();
    let mut next_step = STEP;
    for step in 0.. {
        while began.elapsed() < next_step {
            tokio::time::sleep(Duration::from_secs(1)).await;
            memory.sample(began.elapsed());
        }
        if began.elapsed() >= length {
            break;
        }
        next_step += STEP;
        match step % 4 {
            0 => servers[0].restart().await,
            1 => relays[0].change_ports(),
            2 => {
                clients::kill_some(servers[step / 4 % 2].addr, [&encrypted, &plain][step / 4 % 2], &tally)
                    .await
            }
            _ => servers[1].restart().await,
        }
    }

    let all_stop = async {
        for clients in &mut clients {
            clients.tell_to_stop();
        }
        for clients in &mut clients {
            clients.stopped().await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(60), all_stop).await;
    tally.assert_none_lives();
    let flooded = flood.stop();
    for server in servers {
        server.stop().await;
    }
    println!("{tally}, {flooded} packets of the flood");
    println!("{memory}");
    tally.check(length);
    assert!(flooded > 0, "there was no flood");
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let patience = Instant::now() + Duration::from_secs(30);
    while tasks() > 0 && Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(tasks(), 0, "tasks are left");
}
