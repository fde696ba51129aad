//! The `perf` example, as its users run it: what it prints, and that a run that went wrong is reported as failed.

#![cfg(feature = "tokio")]

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
};

use kcp9::{KcpConfig, KcpListener, KcpStream};
use kcp9_tests::{example, spawn};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// In the order in which they are printed.
const FIELDS: [&str; 11] =
    ["peer", "mode", "crypt", "fec", "conns", "bytes", "secs", "MBps", "cpu_s", "maxrss_kb", "failed"];

fn perf(arguments: &str) -> Command {
    let mut command = Command::new(example("perf"));
    command.args(arguments.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The one line of JSON that a run prints.
fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_else(|| panic!("{output:?}"));
    let report: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let mut at = 0;
    for field in FIELDS {
        let found = line.find(&format!("{field:?}:")).unwrap_or_else(|| panic!("no {field} in {line}"));
        assert!(found >= at, "{field} in {line}");
        at = found;
    }
    assert_eq!(report.as_object().unwrap().len(), FIELDS.len(), "{line}");
    report
}

/// The version of the library that the programs were built with.
fn library_version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains("name = \"kcp9\"\n")).unwrap();
    entry.lines().find_map(|line| line.strip_prefix("version = ")).unwrap().trim_matches('"')
}

#[test]
fn programs_print_the_version_of_the_library() {
    for program in ["perf", "transfer"] {
        let output = Command::new(example(program)).arg("--version").output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.trim(), format!("{program} {}", library_version()));
    }
}

/// Runs `perf drive` against a server of the test; returns its exit status and what it printed.
async fn drive(arguments: String) -> (Option<i32>, Value) {
    let run = tokio::task::spawn_blocking(move || perf(&format!("drive {arguments}")).output().unwrap());
    let output = run.await.unwrap();
    (output.status.code(), report(&output))
}

#[test]
fn both_ends_in_one_process_report_what_they_moved() {
    for (mode, flags, crypt, fec, conns) in [
        ("sink", "--key 0123456789abcdef --crypt null --fec 0/0", "null", "0/0", 1),
        ("echo", "--crypt aes-128 --key 0123456789abcdef --fec 3/2 --conns 3", "aes-128", "3/2", 3),
        (
            "echo",
            "--mtu 1200 --wnd 64 --nodelay 1,10,2,1 --stream false --timeout 50 --hold 0.1",
            "null",
            "0/0",
            1,
        ),
    ] {
        let output = perf(&format!("self --mode {mode} --bytes 1M --msg 5K {flags}")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{flags}: {output:?}");
        let report = report(&output);
        assert_eq!(
            (&report["mode"], &report["crypt"], &report["fec"]),
            (&mode.into(), &crypt.into(), &fec.into())
        );
        assert_eq!(
            (&report["conns"], &report["bytes"], &report["failed"]),
            (&conns.into(), &1_000_000.into(), &0.into())
        );
        assert!(report["MBps"].as_f64().unwrap() > 0.0 && report["secs"].as_f64().unwrap() > 0.0, "{report}");
        assert_eq!(report["peer"], format!("kcp9 {}", library_version()), "{report}");
    }
}

#[test]
fn congestion_control_is_chosen_by_name() {
    for name in ["bbr", "bbr3", "cubic", "delay", "kcp", "none"] {
        let output = perf(&format!("self --mode sink --bytes 300K --cc {name}")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {output:?}");
        assert_eq!(report(&output)["failed"], 0, "{name}");
    }
    let output = perf("self --cc reno").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("(bbr, bbr3, cubic, delay, kcp), nor none"), "{told}");
}

/// A running `perf serve`, ended when dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(flags: &str) -> Self {
        let mut child = perf(&format!("serve {flags}")).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening ").expect("an address").to_owned();
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn two_processes_move_all_bytes() {
    for mode in ["echo", "sink"] {
        let server = Server::start(&format!("--mode {mode}"));
        let (status, report) =
            drive(format!("--addr {} --mode {mode} --bytes 2M --conns 2", server.address)).await;
        assert_eq!((status, &report["bytes"]), (Some(0), &2_000_000.into()), "{report}");
    }
}

#[tokio::test]
async fn a_run_without_a_server_fails() {
    let nobody = std::net::UdpSocket::bind("127.0.0.78:0").unwrap();
    let addr = nobody.local_addr().unwrap();
    for mode in ["echo", "sink"] {
        let (status, report) =
            drive(format!("--addr {addr} --mode {mode} --bytes 10K --conns 2 --timeout 1")).await;
        assert_eq!(
            (status, &report["failed"], &report["bytes"]),
            (Some(1), &2.into(), &0.into()),
            "{report}"
        );
    }
}

/// Serves each session with `serve` until the runtime ends.
async fn serve<F: Future<Output = ()> + Send + 'static>(serve: fn(KcpStream) -> F) -> std::net::SocketAddr {
    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(serve(stream));
        }
    });
    addr
}

/// Echoes with one bit of the first byte flipped.
async fn flip(mut stream: KcpStream) {
    let mut buffer = vec![0; 65_536];
    let mut first = true;
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        buffer[0] ^= u8::from(std::mem::take(&mut first));
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Echoes all but the last byte.
async fn cut(mut stream: KcpStream) {
    let mut buffer = vec![0; 65_536];
    let mut left = 49_999;
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let take = left.min(count);
        left -= take;
        if stream.write_all(&buffer[..take]).await.is_err() {
            return;
        }
    }
}

/// A sink that reports one byte less than it got.
async fn miscount(mut stream: KcpStream) {
    let Ok(announced) = stream.read_u64_le().await else { return };
    let mut rest = vec![0; announced as usize];
    if stream.read_exact(&mut rest).await.is_ok() && stream.write_u64_le(announced - 1).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_wrong_or_missing_fail_the_run() {
    let flags = "--bytes 50000 --conns 1 --timeout 2";
    let servers = [("echo", serve(flip).await), ("echo", serve(cut).await), ("sink", serve(miscount).await)];
    for (mode, addr) in servers {
        let (status, report) = drive(format!("--addr {addr} --mode {mode} {flags}")).await;
        assert_eq!(
            (status, &report["failed"], &report["bytes"]),
            (Some(1), &1.into(), &0.into()),
            "{report}"
        );
    }
}
