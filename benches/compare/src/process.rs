//! Starting the two processes of a run, and reading what they say.

use std::{
    ffi::OsString,
    io,
    net::SocketAddr,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use kcp9_relay::Relay;
use kcp9_simulator::LinkSettings;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};

use crate::{
    OURS,
    cell::{Cell, Path, RELAY_RTT_MS, Work},
    figures::{Figures, Latency, Measured},
    go, machine,
    options::Run,
    peer,
};

/// One peer's program: `serve` and `drive` are its commands.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) version: String,
    path: PathBuf,
    /// What comes before the command, and what after it.
    around: (Vec<OsString>, Vec<OsString>),
}

impl Program {
    pub(crate) fn new(name: &str, version: String, path: PathBuf) -> Self {
        Self { name: name.to_owned(), version, path, around: Default::default() }
    }

    fn command(&self, command: &str, cell: &Cell) -> Command {
        let (before, after) = &self.around;
        let mut started = Command::new(&self.path);
        started
            .args(before)
            .arg(command)
            .args(after)
            .args(["--work", &cell.work.to_string(), "--crypt", &cell.crypt.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        started
    }
}

/// The name of kcp9 in the build that `--before` names.
const BEFORE: &str = "kcp9-before";

/// The peers that the command line asks for and that are available.
pub(crate) fn programs(options: &Run) -> io::Result<Vec<Program>> {
    let own = std::env::current_exe()?;
    let mut programs: Vec<_> = peer::ALL
        .iter()
        .map(|(name, package)| Program {
            around: (vec!["peer".into()], vec![name.into()]),
            ..Program::new(name, machine::version_of(package), own.clone())
        })
        .collect();
    programs.extend(options.before.iter().map(|path| Program {
        around: (vec!["peer".into()], vec![OURS.into()]),
        ..Program::new(BEFORE, "another build".to_owned(), path.clone())
    }));
    programs.extend(go::programs(|name| options.wants_peer(name)));
    programs.retain(|program| options.wants_peer(&program.name));
    if let Some(unknown) = options.peers.iter().find(|name| programs.iter().all(|known| known.name != **name))
    {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no peer called {unknown}")));
    }
    Ok(programs)
}

/// How much a run does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    /// Payload bytes of each connection.
    pub(crate) bytes: u64,
    /// How long pings go on.
    pub(crate) secs: f64,
    /// Seed of the relay.
    pub(crate) seed: u64,
}

/// Does a piece of work with one peer; the error says what went wrong.
pub(crate) async fn run(
    program: &Program,
    cell: &Cell,
    amount: Amount,
    limit: Duration,
) -> Result<Measured, String> {
    let run = async {
        let mut server = Process::start(program.command("serve", cell))?;
        let line = server.line().await?;
        let (addr, token) = listening(&line).ok_or_else(|| format!("the server says {line}"))?;
        let relay = match cell.path {
            Path::Loopback => None,
            Path::Relay(percent) => {
                let delay = Duration::from_millis(RELAY_RTT_MS) / 2;
                let path = LinkSettings::delay(delay).loss(f64::from(percent) / 100.0);
                Some(Relay::start(addr, &path, amount.seed).map_err(|error| error.to_string())?)
            }
        };
        let wire = || relay.as_ref().map_or(0, |relay| relay.counts().wire_bytes());

        let mut command = program.command("drive", cell);
        let addr = relay.as_ref().map_or(addr, Relay::addr);
        command.args(["--addr", &addr.to_string(), "--conns", &cell.conns.to_string()]);
        command.args(["--msg", &cell.msg.to_string(), "--bytes", &amount.bytes.to_string()]);
        command.args(["--secs", &amount.secs.to_string()]);
        if !token.is_empty() {
            command.args(["--token", token]);
        }
        let mut driver = Process::start(command)?;
        let line = driver.line().await?;
        if line != "started" {
            return Err(format!("the driver says {line}"));
        }
        let wire_before = wire();
        let driven = driver.figures().await?;
        let wire_bytes = wire() - wire_before;
        driver.end().await?;
        let served = server.end_and_figures().await?;
        measured(cell, driven, &served, relay.map(|_| wire_bytes))
    };
    match tokio::time::timeout(limit, run).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("not done after {} s", limit.as_secs())),
    }
}

fn measured(cell: &Cell, driven: Figures, served: &Figures, wire: Option<u64>) -> Result<Measured, String> {
    if driven.bytes == 0 || driven.secs <= 0.0 {
        return Err("nothing was moved".to_owned());
    }
    if served.bytes < driven.bytes {
        return Err(format!("the server got {} of {} bytes", served.bytes, driven.bytes));
    }
    let messages = driven.bytes.div_ceil(cell.msg as u64);
    let latency = Latency::of(driven.trips_ns);
    if (cell.work == Work::Ping) != latency.is_some() {
        return Err("pings have latencies, and other work has none".to_owned());
    }
    Ok(Measured {
        bytes: driven.bytes,
        messages,
        secs: driven.secs,
        cpu_s: driven.cpu_s + served.cpu_s,
        peak_kb: driven.peak_kb + served.peak_kb,
        latency,
        wire_bytes: wire.map(|bytes| bytes as f64 / messages as f64),
    })
}

/// The address and the token after `listening`.
fn listening(line: &str) -> Option<(SocketAddr, &str)> {
    let rest = line.strip_prefix("listening ")?;
    let (addr, token) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((addr.parse().ok()?, token))
}

/// A child, killed when it is dropped.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    complaints: Option<JoinHandle<String>>,
}

impl Process {
    fn start(mut command: Command) -> Result<Self, String> {
        let mut child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
        let (Some(output), Some(mut errors)) = (child.stdout.take(), child.stderr.take()) else {
            return Err("started without pipes".to_owned());
        };
        let complaints = tokio::spawn(async move {
            let mut text = Vec::new();
            let _ = errors.read_to_end(&mut text).await;
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self {
            input: child.stdin.take(),
            child,
            lines: BufReader::new(output).lines(),
            complaints: Some(complaints),
        })
    }

    async fn line(&mut self) -> Result<String, String> {
        match self.lines.next_line().await {
            Ok(Some(line)) => Ok(line.trim_end().to_owned()),
            Ok(None) => Err(self.complaint("ended early").await),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn figures(&mut self) -> Result<Figures, String> {
        let line = self.line().await?;
        serde_json::from_str(&line).map_err(|error| format!("{error} in {line}"))
    }

    async fn end(&mut self) -> Result<(), String> {
        let status: ExitStatus = self.child.wait().await.map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(self.complaint(&status.to_string()).await) }
    }

    async fn end_and_figures(&mut self) -> Result<Figures, String> {
        drop(self.input.take());
        let figures = self.figures().await?;
        self.end().await?;
        Ok(figures)
    }

    /// The last line of its standard error, or else `what`.
    async fn complaint(&mut self, what: &str) -> String {
        let Some(complaints) = self.complaints.take() else { return what.to_owned() };
        let text = complaints.await.unwrap_or_default();
        text.trim_end().lines().next_back().unwrap_or(what).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_may_follow_the_address() {
        let addr = "127.0.0.1:9".parse().unwrap();
        assert_eq!(listening("listening 127.0.0.1:9"), Some((addr, "")));
        assert_eq!(listening("listening 127.0.0.1:9 ab"), Some((addr, "ab")));
        assert_eq!(listening("listening nowhere"), None);
        assert_eq!(listening("127.0.0.1:9"), None);
    }
}
