//! Ends of connections, and the sockets at both ends.

use kcp9_tests::{spawn, within};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

use super::{
    answer, ask, connect, pair, start,
    support::{LIMIT, target},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closes_pass() {
    let target = target(answer).await;
    for flags in [
        "",
        "-nocomp",
        "-smuxver 2",
        "-mux none",
        "-mux none -nocomp",
        "-crypt aes-256-gcm -ps 0 -kdf argon2",
        "-crypt chacha20-poly1305 -smuxver 2 -mode fast3",
        "-crypt null",
    ] {
        let (_client, _server, near) = pair(target, flags).await;
        for _ in 0..3 {
            ask(connect(near).await).await;
        }
        println!("{flags}: answered");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_not_there_ends_the_connection() {
    let (_client, server, near) = pair("127.0.0.1:1".parse().unwrap(), "").await;
    let mut stream = connect(near).await;
    let mut nothing = Vec::new();
    // An end or a reset: there is no answer.
    let _ = within(LIMIT, "the end", stream.read_to_end(&mut nothing)).await;
    assert!(nothing.is_empty());
    server.says("target: 127.0.0.1:1: ").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ends_take_unix_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let (app, front) = (folder.path().join("app.sock"), folder.path().join("front.sock"));
    let listener = UnixListener::bind(&app).unwrap();
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(answer(stream));
        }
    });
    // What a process left that was killed.
    drop(UnixListener::bind(&front).unwrap());
    let server = start(&format!("server -l 127.0.0.1:0 -t {}", app.display()));
    let far = server.addr().await;
    let mut client = start(&format!("client -l {} -r {far}", front.display()));
    client.says("listening on: ").await;
    ask(UnixStream::connect(&front).await.unwrap()).await;
    client.signal("TERM").await;
    assert!(client.ended().await.success());
    assert!(!front.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_arrives_though_the_question_is_not_read() {
    const BRIEF: usize = 20_000;
    // Closed with most of the question unread, which the system tells as a reset.
    let target = target(|mut stream| async move {
        stream.read_u8().await.unwrap();
        stream.write_all(&[7; BRIEF]).await.unwrap();
    })
    .await;
    let (_client, _server, near) = pair(target, "").await;
    for _ in 0..20 {
        let (mut reader, mut writer) = connect(near).await.into_split();
        let asking = spawn(async move {
            // How much of it goes is not the question.
            let _ = writer.write_all(&vec![5; 3_000_000]).await;
        });
        let mut got = Vec::new();
        within(LIMIT, "the answer", reader.read_to_end(&mut got)).await.unwrap();
        assert!(got == [7; BRIEF], "{} bytes came", got.len());
        asking.abort();
    }
}
