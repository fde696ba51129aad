//! A server that was restarted: all its clients come at once, each from a port of its own, and send more than its socket's buffer
//! holds. They are many and unknown, as a flood is, and must all be served.

use std::{io, time::Instant};

use kcp9::{KcpConfig, KcpStream};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::task::JoinSet;

use crate::support::{EchoServer, echo_payload, listen_with, within};

const CLIENTS: usize = 8_192;
const BYTES: usize = 1_024;
/// A quiet machine needs one or two. Where they are taken for a flood from the start, most are turned away for minutes.
const LIMIT: u64 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "opens 8,192 sockets: cargo test --release --test sockets storms -- --ignored"]
async fn a_storm_of_clients_with_sockets_of_their_own_is_served() {
    let files = CLIENTS as u64 + 1_000;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(most >= files, "a process may open {most} files, and the clients need {files}");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();

    // As many as come at once, all from one address.
    let config = KcpConfig::builder().max_half_open(2 * CLIENTS).max_half_open_of_network(2 * CLIENTS);
    let server = EchoServer::over(listen_with(config.accept_backlog(CLIENTS).build().unwrap()).await);
    let addr = server.addr;

    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(async move {
            let stream = KcpStream::connect(addr, KcpConfig::default()).await?;
            echo_payload(stream, BYTES).await
        });
    }
    // They stay until all are served, as clients do.
    let streams = within(LIMIT, "all have their echo", clients.join_all()).await;
    let failed: Vec<&io::Error> = streams.iter().filter_map(|stream| stream.as_ref().err()).collect();
    println!("{CLIENTS} clients in {:?}", begun.elapsed());
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed[0]);
}
