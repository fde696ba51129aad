//! What the program says, writes to files, and refuses.

use std::{fs, time::Duration};

use kcp9_tests::within;
use tokio::net::TcpStream;

use super::{
    chat, connect, echo, pair, start,
    support::{LIMIT, Program, target, unshared},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_and_messages_go_to_files() {
    let folder = tempfile::tempdir().unwrap();
    let (snmp, log) = (folder.path().join("snmp-2006.csv"), folder.path().join("log"));
    let server = start(&format!("server -l 127.0.0.1:0 -t {}", target(echo).await));
    let far = server.addr().await;
    let flags = format!("-snmplog {} -snmpperiod 1 -log {}", snmp.display(), log.display());
    let near = format!("{}:4000", unshared());
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

/// The last of the program's reports, once it says `words`.
async fn report(program: &Program, words: &str) -> String {
    let reported = async {
        loop {
            program.signal("USR1").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let said = program.said();
            let last = said.lines().rfind(|line| line.contains("KCP SNMP"));
            if let Some(last) = last.filter(|last| last.contains(words)) {
                return last.to_owned();
            }
        }
    };
    within(LIMIT, words, reported).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_have_ended_are_not_counted_as_live() {
    let target = target(echo).await;
    let (_client, server, near) = pair(target, "-mux none").await;
    for _ in 0..5 {
        chat(&mut connect(near).await).await.unwrap();
        report(&server, " CurrEstab:0 ").await;
    }
    let last = report(&server, " PassiveOpens:5 ").await;
    assert!(last.contains(" MaxConn:1 ") && last.contains("BytesReceived:"), "{last}");
    assert!(!last.contains("BytesReceived:0 "), "what they carried is forgotten: {last}");
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
        // It may be reset as early as that.
        if let Ok(mut stream) = TcpStream::connect(client.addr().await).await {
            assert!(chat(&mut stream).await.is_err());
        }
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
