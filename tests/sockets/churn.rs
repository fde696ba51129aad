//! Thousands of sessions come and go and leave nothing behind: no session, no route, no task, no memory.

use std::time::Instant;

use kcp9::{KcpConfig, KcpEndpoint, KcpListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ANY, is_alone, listen_with, resident_bytes, until, within};

const ENDPOINTS: usize = 4;
/// Sessions that an endpoint begins before it waits for their answers: as many as the sockets' buffers hold.
const BURST: usize = 250;

/// Sessions of the short test, whose records are not waited for.
const SHORT: usize = 15_000;

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Begins `sessions` sessions, has each carry a message both ways, and drops them all at once.
///
/// Their convs are consecutive, from `conv` on: of so many random ones, two would be equal now and then.
async fn wave(listener: &KcpListener, endpoints: &[KcpEndpoint], sessions: usize, conv: usize) {
    let addr = listener.local_addr().unwrap();
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    while clients.len() < sessions {
        for endpoint in endpoints {
            let from = clients.len();
            for _ in 0..BURST {
                let conv = (conv + clients.len()) as u32;
                let mut client = endpoint.connect_with_conv(addr, conv, KcpConfig::default()).unwrap();
                client.write_all(b"sixteen bytes...").await.unwrap();
                clients.push(client);
            }
            for _ in 0..BURST {
                let (mut server, _) = within(10, "a session is accepted", listener.accept()).await.unwrap();
                let mut message = [0; 16];
                within(10, "its message", server.read_exact(&mut message)).await.unwrap();
                server.write_all(&message).await.unwrap();
                servers.push(server);
            }
            for client in &mut clients[from..] {
                let mut message = [0; 16];
                within(10, "its answer", client.read_exact(&mut message)).await.unwrap();
                assert_eq!(&message, b"sixteen bytes...");
            }
        }
    }
    assert_eq!(listener.endpoint_stats().state.sessions as usize, sessions);
}

async fn churn(sessions: usize, waves: usize) {
    let config = KcpConfig::builder().accept_backlog(4 * BURST).build().unwrap();
    let listener = listen_with(config).await;
    let mut endpoints = Vec::new();
    for _ in 0..ENDPOINTS {
        endpoints.push(KcpEndpoint::bind(ANY).await.unwrap());
    }
    let alive = tasks();
    let gone = async || {
        until(10, "every session is gone", || {
            listener.endpoint_stats().state.sessions == 0
                && endpoints.iter().all(|endpoint| endpoint.endpoint_stats().state.sessions == 0)
        })
        .await;
    };
    // What sockets, maps and the allocator keep from then on.
    wave(&listener, &endpoints, ENDPOINTS * BURST, 0).await;
    gone().await;
    let base = resident_bytes();
    println!("warm-up: {} KiB", base >> 10);
    let begun = Instant::now();
    for number in 0..waves {
        wave(&listener, &endpoints, sessions / waves, ENDPOINTS * BURST + number * sessions / waves).await;
        gone().await;
        println!("wave {number}: {} KiB, {:?}", resident_bytes() >> 10, begun.elapsed());
    }
    assert_eq!(listener.endpoint_stats().driver.accepted as usize, ENDPOINTS * BURST + sessions);
    assert_eq!(tasks(), alive, "tasks");
    // A wave takes 100 MiB. What the allocator keeps in pieces comes and goes. The records of a few thousand sessions fit into the
    // 8 MiB; those of many are waited for: they stay for a minute.
    let seconds = if sessions > SHORT { 80 } else { 5 };
    until(seconds, "memory is back where it was after the warm-up", || resident_bytes() < base + (8 << 20))
        .await;
    drop((listener, endpoints));
    until(10, "the five drivers have ended", || tasks() + ENDPOINTS < alive).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifteen_thousand_sessions_leave_nothing_behind() {
    if is_alone("churn::fifteen_thousand_sessions_leave_nothing_behind") {
        churn(SHORT, 3).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute and a half: cargo test --release --test sockets -- --ignored a_hundred_thousand"]
async fn a_hundred_thousand_sessions_leave_nothing_behind() {
    if is_alone("churn::a_hundred_thousand_sessions_leave_nothing_behind") {
        churn(100_000, 20).await;
    }
}
