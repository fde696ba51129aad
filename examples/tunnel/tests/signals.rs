//! SIGTERM, SIGINT and SIGHUP.

use std::{fs, time::Duration};

use kcp9_relay::Relay;
use kcp9_simulator::LinkSettings;
use kcp9_tests::within;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    chat, connect, echo, pair, start,
    support::{LIMIT, target},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_is_finished_after_sigterm() {
    let target = target(echo).await;
    for client_first in [true, false] {
        let (mut client, mut server, near) = pair(target, "").await;
        let mut stream = connect(near).await;
        chat(&mut stream).await.unwrap();
        let first = if client_first { &mut client } else { &mut server };
        first.signal("TERM").await;
        first.says("stopping: ").await;
        if client_first {
            assert!(TcpStream::connect(near).await.is_err(), "it still accepts");
        } else {
            let mut refused = connect(near).await;
            assert!(chat(&mut refused).await.is_err(), "it still accepts");
        }
        chat(&mut stream).await.unwrap();
        drop(stream);
        assert!(first.ended().await.success(), "{}", first.said());
        assert!(!first.said().contains("cut off"), "{}", first.said());
        if client_first {
            // It was told, and does not wait until the client has been silent for long.
            server.says(" ended: ").await;
        } else {
            client.says(" ended: ").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_finish_in_time_is_cut_off() {
    let (mut client, _server, near) = pair(target(echo).await, "-drain 1").await;
    let mut stream = connect(near).await;
    chat(&mut stream).await.unwrap();
    client.signal("INT").await;
    assert!(client.ended().await.success());
    client.says("cut off").await;
    assert!(chat(&mut stream).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_brings_a_new_key() {
    let target = target(echo).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tunnel.json");
    let key =
        |key: &str| fs::write(&file, format!("{{\"key\": \"{key}\", \"crypt\": \"aes-128-gcm\"}}")).unwrap();
    key("old");
    let (client, server, near) = pair(target, &format!("-c {}", file.display())).await;
    let mut stream = connect(near).await;
    chat(&mut stream).await.unwrap();
    key("new");
    for program in [&server, &client] {
        program.signal("HUP").await;
        program.says("sessions begin under the new key").await;
    }
    // The old session goes on, and another begins.
    chat(&mut stream).await.unwrap();
    chat(&mut connect(near).await).await.unwrap();
    assert_eq!(client.said().matches(" -> ").count(), 2, "{}", client.said());
    chat(&mut stream).await.unwrap();

    fs::write(&file, "{").unwrap();
    client.signal("HUP").await;
    client.says("the key stays as it is: ").await;
    chat(&mut connect(near).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_under_way_arrives_whole_after_sigterm() {
    const LEN: usize = 30_000_000;
    let target = target(|mut stream| async move {
        // Whether all of it arrives, the test looks at.
        let _ = stream.write_all(&vec![9; LEN]).await;
    })
    .await;
    for flags in ["-nocomp", "-mux none -nocomp", "-smuxver 2"] {
        for client_first in [true, false] {
            let (mut client, mut server, near) = pair(target, flags).await;
            let mut stream = connect(near).await;
            let first_bytes = within(LIMIT, "the first bytes", stream.read_u8());
            assert_eq!(first_bytes.await.unwrap(), 9);
            let first = if client_first { &mut client } else { &mut server };
            first.signal("TERM").await;
            first.says("stopping: ").await;
            let mut rest = Vec::new();
            within(LIMIT, "the rest", stream.read_to_end(&mut rest)).await.unwrap();
            assert_eq!(rest.len(), LEN - 1, "{flags}, client first: {client_first}");
            drop(stream);
            assert!(first.ended().await.success(), "{}", first.said());
            assert!(!first.said().contains("cut off"), "{}", first.said());
        }
    }
}

/// Connections are done at once, as the server's session holds all that they sent. The path takes seconds for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_bytes_arrive_over_a_slow_path_after_sigterm() {
    const LEN: usize = 450_000;
    let target = target(|mut stream| async move { stream.write_all(&vec![9; LEN]).await.unwrap() }).await;
    let flags = "-nocomp -datashard 0 -parityshard 0";
    let mut server = start(&format!("server -l 127.0.0.1:0 -t {target} {flags}"));
    let slow = LinkSettings::delay(Duration::from_millis(20)).rate(150_000, 100_000);
    let relay = Relay::start(server.addr().await, &slow, 1).unwrap();
    let client = start(&format!("client -l 127.0.0.1:0 -r {} {flags}", relay.addr()));
    let mut stream = connect(client.addr().await).await;
    within(LIMIT, "the first byte", stream.read_u8()).await.unwrap();
    // The other direction has ended, too: nothing but the session is left to wait for.
    stream.shutdown().await.unwrap();
    server.says("stream closed").await;
    server.signal("TERM").await;
    let mut rest = Vec::new();
    within(LIMIT, "the rest", stream.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest.len(), LEN - 1, "{}", server.said());
    assert!(server.ended().await.success(), "{}", server.said());
    assert!(!server.said().contains("not everything"), "{}", server.said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_key_is_good_for_a_while() {
    let target = target(echo).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.json");
    let key = |key: &str| fs::write(&file, format!("{{\"key\": \"{key}\"}}")).unwrap();
    for (ttl, good) in [(600, true), (0, false)] {
        key("old");
        let path = file.display();
        let server = start(&format!("server -l 127.0.0.1:0 -t {target} -c {path} -oldkeyttl {ttl}"));
        let far = server.addr().await;
        key("new");
        server.signal("HUP").await;
        server.says("sessions begin under the new key").await;
        for (key, good) in [("old", good), ("new", true)] {
            let client = start(&format!("client -l 127.0.0.1:0 -r {far} -key {key}"));
            let mut stream = connect(client.addr().await).await;
            let served = tokio::time::timeout(Duration::from_secs(3), chat(&mut stream)).await.is_ok();
            assert_eq!(served, good, "the {key} key, oldkeyttl {ttl}");
        }
    }
}
