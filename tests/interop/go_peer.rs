//! The program `go-peer`: building it, serving and driving with it.

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::OnceLock,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use crate::echo::within;

/// Where Debian puts Go packages.
const GOPATH: &str = "/usr/share/gocode";
/// The environment variable for a go-peer built elsewhere, for example with another release of kcp-go.
const OTHER: &str = "KCP9_GO_PEER";

/// The go-peers to test with: one built here from Debian's package, and the one that `KCP9_GO_PEER` names.
pub fn all() -> Vec<PathBuf> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let mut peers = vec![BUILT.get_or_init(|| build("go-peer")).clone()];
    peers.extend(env::var_os(OTHER).map(PathBuf::from));
    peers
}

/// Builds the Go program of this name.
///
/// # Panics
/// Without Go or its packages: whoever asks for these tests wants them run.
pub fn build(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop").join(name).join("main.go");
    let peer = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let go = std::process::Command::new("go")
        .args(["build", "-o"])
        .args([&peer, &source])
        .envs([("GO111MODULE", "off"), ("GOPATH", GOPATH), ("GOFLAGS", "")])
        .output()
        .unwrap_or_else(|error| panic!("cannot run `go` ({error}): these tests need Go"));
    let stderr = String::from_utf8_lossy(&go.stderr);
    assert!(
        go.status.success(),
        "{name} does not build; are golang-github-xtaci-kcp-dev and golang-github-xtaci-smux-dev installed?\n{stderr}"
    );
    peer
}

/// `go-peer serve`, killed when it is dropped.
pub struct Serving {
    pub addr: SocketAddr,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Serving {
    /// Ends it, and returns what it says of itself.
    pub async fn report(mut self) -> Report {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").arg(pid).status().await.unwrap().success());
        let line = within("go-peer reports", self.lines.next_line()).await.unwrap();
        Report(line.expect("go-peer serve ended without a report"))
    }
}

/// What a go-peer says when it is done: a line of JSON.
pub struct Report(String);

impl Report {
    /// Data packets that it recovered from parity.
    pub fn recovered(&self) -> u64 {
        self.number("fec_recovered")
    }

    /// Sessions that it has accepted.
    pub fn sessions(&self) -> u64 {
        self.number("conns")
    }

    /// Bytes that it has received or verified.
    pub fn bytes(&self) -> u64 {
        self.number("bytes")
    }

    /// Packets whose segments it did not understand.
    pub fn refused(&self) -> u64 {
        self.number("refused")
    }

    /// Segments that it has sent again.
    pub fn resent(&self) -> u64 {
        self.number("resent")
    }

    fn number(&self, name: &str) -> u64 {
        let line: serde_json::Value = serde_json::from_str(&self.0).unwrap();
        line[name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }
}

/// Serves an echo or a sink, with further flags.
pub async fn serve(peer: &Path, mode: &str, flags: &[&str]) -> Serving {
    let mut child = Command::new(peer)
        .args(["serve", "--mode", mode])
        .args(flags)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", peer.display()));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = within("go-peer begins to listen", lines.next_line()).await.unwrap();
    let line = line.expect("go-peer serve ended at once");
    let addr = line.strip_prefix("listening ").and_then(|addr| addr.parse().ok());
    Serving { addr: addr.unwrap_or_else(|| panic!("go-peer serve says {line}")), child, lines }
}

/// Drives an echo or a sink at `addr` to its end, with further flags; panics unless everything came and was right.
pub async fn drive(peer: &Path, mode: &str, addr: SocketAddr, flags: &[&str]) -> Report {
    let Output { status, stdout, stderr } = run_drive(peer, mode, addr, flags).await;
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "go-peer drive {mode}: {status}\n{stdout}\n{stderr}");
    println!("drive {mode} {flags:?}: {}", stdout.trim());
    Report(stdout.into_owned())
}

/// As [`drive`], for a run that is expected to fail.
pub async fn fail_to_drive(peer: &Path, mode: &str, addr: SocketAddr, flags: &[&str]) {
    let output = run_drive(peer, mode, addr, flags).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// As [`drive`], of a run that is killed when the returned process is dropped.
pub fn begin_to_drive(peer: &Path, mode: &str, addr: SocketAddr, flags: &[&str]) -> Child {
    drive_command(peer, mode, addr, flags).stdout(Stdio::null()).spawn().unwrap()
}

async fn run_drive(peer: &Path, mode: &str, addr: SocketAddr, flags: &[&str]) -> Output {
    within("go-peer drives", drive_command(peer, mode, addr, flags).output()).await.unwrap()
}

fn drive_command(peer: &Path, mode: &str, addr: SocketAddr, flags: &[&str]) -> Command {
    let mut command = Command::new(peer);
    command.args(["drive", "--mode", mode, "--addr", &addr.to_string(), "--timeout", "25"]).args(flags);
    command.kill_on_drop(true);
    command
}
