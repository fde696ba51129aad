//! The program as two processes, one on each end: ends of connections, addresses, signals, keys and files.
//!
//! With kcptun on one end: `tests/interop`.
#![cfg(unix)]
#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod support;

use std::{collections::HashMap, fs, io, net::SocketAddr, path::Path, time::Duration};

use kcp9_tests::{spawn, within};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixListener, UnixStream},
};

use self::support::{LIMIT, Program, free_ports, target, words};

fn start(flags: &str) -> Program {
    Program::start(Path::new(env!("CARGO_BIN_EXE_tunnel")), &words(flags, &HashMap::new()))
}

/// Both ends in front of `target`, with the same flags.
async fn pair(target: SocketAddr, flags: &str) -> (Program, Program, SocketAddr) {
    let server = start(&format!("server -l 127.0.0.1:0 -t {target} {flags}"));
    let far = server.addr().await;
    let client = start(&format!("client -l 127.0.0.1:0 -r {far} {flags}"));
    let near = client.addr().await;
    (client, server, near)
}

const ANSWER: usize = 1_000_000;

/// Reads a question to its end, then answers.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut question = Vec::new();
    // A connection that was cut off has no answer.
    if stream.read_to_end(&mut question).await.is_ok() {
        let answer: Vec<u8> = question.iter().copied().cycle().take(ANSWER).collect();
        stream.write_all(&answer).await.unwrap();
        stream.shutdown().await.unwrap();
    }
}

/// Asks, ends its own direction, and reads the answer.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin + Send) {
    let question = b"What is longer than its question?";
    stream.write_all(question).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    within(LIMIT, "the answer", stream.read_to_end(&mut answer)).await.unwrap();
    let expected: Vec<u8> = question.iter().copied().cycle().take(ANSWER).collect();
    assert!(answer == expected, "an answer of {} bytes", answer.len());
}

/// Sends words to and fro over a connection that stays open, so that it has a life of its own.
async fn chat(stream: &mut TcpStream) -> io::Result<()> {
    let mut back = [0; 5];
    stream.write_all(b"hello").await?;
    within(LIMIT, "the echo", stream.read_exact(&mut back)).await?;
    assert_eq!(&back, b"hello");
    Ok(())
}

async fn echo(mut stream: TcpStream) {
    let (mut reader, mut writer) = stream.split();
    // A connection that was cut off is no failure of the target.
    let _ = tokio::io::copy(&mut reader, &mut writer).await;
}

async fn connect(addr: SocketAddr) -> TcpStream {
    TcpStream::connect(addr).await.unwrap()
}

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
async fn sessions_spread_over_a_range_of_ports() {
    let target = target(answer).await;
    let first = free_ports(4).await;
    let range = format!("127.0.0.1:{first}-{}", first + 3);
    let server = start(&format!("server -l {range} -t {target}"));
    server.says("(4 ports)").await;
    let client = start(&format!("client -l 127.0.0.1:0 -r {range} -conn 16"));
    let near = client.addr().await;
    let asking: Vec<_> = (0..16).map(|_| spawn(async move { ask(connect(near).await).await })).collect();
    for one in asking {
        one.await.unwrap();
    }
    let said = client.said();
    let used = (first..first + 4).filter(|port| said.contains(&format!("-> 127.0.0.1:{port}"))).count();
    assert!(used > 1, "{said}");
    assert_eq!(said.matches("session ").count(), 16, "{said}");
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
async fn counters_and_messages_go_to_files() {
    let folder = tempfile::tempdir().unwrap();
    let (snmp, log) = (folder.path().join("snmp-2006.csv"), folder.path().join("log"));
    let server = start(&format!("server -l 127.0.0.1:0 -t {}", target(echo).await));
    let far = server.addr().await;
    let flags = format!("-snmplog {} -snmpperiod 1 -log {}", snmp.display(), log.display());
    let near = format!("127.0.0.1:{}", free_ports(1).await);
    let client = start(&format!("client -l {near} -r {far} -quiet {flags}"));
    let mut stream = loop {
        match TcpStream::connect(&near).await {
            Ok(stream) => break stream,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    chat(&mut stream).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
    let csv = files.iter().find(|file| file.extension().is_some()).expect("a file of counters");
    let lines: Vec<_> = fs::read_to_string(csv).unwrap().lines().map(str::to_owned).collect();
    assert!(!csv.ends_with("snmp-2006.csv"), "{}", csv.display());
    assert!(lines[0].starts_with("Unix,BytesSent,BytesReceived,MaxConn,"), "{lines:?}");
    assert!(lines.len() >= 2 && lines[1].split(',').count() == 25, "{lines:?}");
    client.signal("USR1").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("CurrEstab:1") && !log.contains("stream opened"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_that_do_not_agree_are_told_why() {
    let target = target(echo).await;
    for (server_flags, client_flags, reason) in [
        ("-nocomp", "", "nocomp must be the same at both ends"),
        ("", "-nocomp", "is nocomp set there?"),
        ("-nocomp -smuxver 2", "-nocomp", "smuxver must be the same at both ends"),
    ] {
        let server = start(&format!("server -l 127.0.0.1:0 -t {target} {server_flags}"));
        let far = server.addr().await;
        let client = start(&format!("client -l 127.0.0.1:0 -r {far} {client_flags}"));
        let mut stream = connect(client.addr().await).await;
        assert!(chat(&mut stream).await.is_err());
        server.says(reason).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_said_by_its_name() {
    for (flags, reason) in [
        ("client -tcp", "tunnel: tcp: "),
        ("server --pprof=true", "tunnel: pprof: "),
        ("client -mtu 9000", "tunnel: mtu: is 9000, outside 64..=1500"),
        ("client -c /nowhere/at.json", "tunnel: /nowhere/at.json: "),
        ("server -l 192.0.2.1:5", "tunnel: listen: 192.0.2.1:5, port 5: "),
    ] {
        let mut program = start(flags);
        assert!(!program.ended().await.success(), "{flags}");
        program.says(reason).await;
    }
}
