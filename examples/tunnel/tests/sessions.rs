//! Sessions: how connections spread over them, and how they are replaced.

use std::time::Duration;

use kcp9_tests::{spawn, within};
use tokio::io::AsyncReadExt;

use super::{
    answer, ask, chat, connect, echo, start,
    support::{LIMIT, target, unshared},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_spread_over_a_range_of_ports() {
    let target = target(answer).await;
    let ip = unshared();
    let range = format!("{ip}:4000-4003");
    let server = start(&format!("server -l {range} -t {target}"));
    server.says("(4 ports)").await;
    let client = start(&format!("client -l 127.0.0.1:0 -r {range} -conn 16"));
    let near = client.addr().await;
    let asking: Vec<_> = (0..16).map(|_| spawn(async move { ask(connect(near).await).await })).collect();
    for one in asking {
        one.await.unwrap();
    }
    let said = client.said();
    let used = (4000..=4003).filter(|port| said.contains(&format!("-> {ip}:{port}"))).count();
    assert!(used > 1, "{said}");
    assert_eq!(said.matches("session ").count(), 16, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_sessions_are_replaced_and_finish_their_connections() {
    let server = start(&format!("server -l 127.0.0.1:0 -t {}", target(echo).await));
    let far = server.addr().await;
    let client = start(&format!("client -l 127.0.0.1:0 -r {far} -autoexpire 1 -scavengettl 2"));
    let near = client.addr().await;
    let mut long = connect(near).await;
    chat(&mut long).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    chat(&mut connect(near).await).await.unwrap();
    assert_eq!(client.said().matches(" -> ").count(), 2, "{}", client.said());
    chat(&mut long).await.unwrap();
    // Its time is up.
    let mut rest = Vec::new();
    let _ = within(LIMIT, "the end", long.read_to_end(&mut rest)).await;
    client.says("ended: the session was closed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_take_the_sessions_in_turn() {
    let server = start(&format!("server -l 127.0.0.1:0 -t {}", target(echo).await));
    let client = start(&format!("client -l 127.0.0.1:0 -r {} -conn 3", server.addr().await));
    let near = client.addr().await;
    let mut open = Vec::new();
    for _ in 0..6 {
        let mut stream = connect(near).await;
        chat(&mut stream).await.unwrap();
        open.push(stream);
    }
    let said = client.said();
    assert_eq!(said.matches("session ").count(), 3, "{said}");
    // Each has two streams, whose ids are 3 and 5.
    assert_eq!((said.matches("(3)").count(), said.matches("(5)").count()), (3, 3), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_is_found_again() {
    let target = target(echo).await;
    let far = format!("{}:4000", unshared());
    let server = start(&format!("server -l {far} -t {target}"));
    server.says("listening on: ").await;
    let client = start(&format!("client -l 127.0.0.1:0 -r {far}"));
    let near = client.addr().await;
    let mut before = connect(near).await;
    chat(&mut before).await.unwrap();
    // Killed: nobody is told.
    drop(server);
    let server = loop {
        let mut server = start(&format!("server -l {far} -t {target}"));
        tokio::select! {
            // The port may not be free at once.
            _ = server.ended() => tokio::time::sleep(Duration::from_millis(50)).await,
            _ = tokio::time::sleep(Duration::from_millis(500)) => break server,
        }
    };
    // What was open ends, and what comes next goes to the new server.
    assert!(chat(&mut before).await.is_err(), "{}", client.said());
    client.says(" ended: ").await;
    chat(&mut connect(near).await).await.unwrap();
    server.says("session of ").await;
}

/// As with kcptun, silence for 30 s ends the session, and with it the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a minute of silence: cargo test -p kcp9-tunnel -- --ignored"]
async fn a_wrong_key_ends_connections_after_a_while() {
    let server = start(&format!("server -l 127.0.0.1:0 -t {} -key a", target(echo).await));
    let far = server.addr().await;
    let client = start(&format!("client -l 127.0.0.1:0 -r {far} -key b"));
    let mut stream = connect(client.addr().await).await;
    assert!(chat(&mut stream).await.is_err());
    client.says("nothing came from there: is there a server with the same crypt and key?").await;
}
