//! The processes of a flow's ends: starting them, and reading what they say.

use std::{ffi::OsString, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    bottleneck::{Bottleneck, Side},
    flow::Received,
    kind::{Controller, Kind},
    link::packet::FIRST_PORT,
};

/// How long an end may take to get ready, or to report.
const PATIENCE: Duration = Duration::from_secs(20);

/// The programs that flows are.
#[derive(Debug)]
pub(crate) struct Programs {
    /// This one, which runs itself again.
    pub(crate) own: OsString,
    /// That of kcp-go, or why there is none.
    pub(crate) kcp_go: Result<OsString, String>,
    /// What the kernel has of TCP's controllers.
    pub(crate) tcp: Vec<String>,
    /// The controller of plain kcp9.
    pub(crate) kcp9_cc: Option<Controller>,
}

impl Programs {
    /// Why there are no such flows on this machine.
    pub(crate) fn lacks(&self, kind: Kind) -> Option<String> {
        match kind {
            Kind::Tcp(name) if self.tcp.iter().all(|known| known != name) => {
                Some(format!("the kernel has no {name} (modprobe tcp_{name})"))
            }
            Kind::KcpGo => self.kcp_go.as_ref().err().cloned(),
            _ => None,
        }
    }

    fn command(&self, bottleneck: &Bottleneck, side: Side, kind: Kind, flow: usize, token: &str) -> Command {
        let verb = if matches!(side, Side::Left) { "send" } else { "receive" };
        let addr = format!("{}:{}", Side::Right.address(), usize::from(FIRST_PORT) + flow);
        if let (Kind::KcpGo, Ok(program)) = (kind, &self.kcp_go) {
            let mut command = bottleneck.command(side, program);
            command.args([verb, &addr]);
            return command;
        }
        let mut command = bottleneck.command(side, &self.own);
        command.args(["flow", verb, &kind.to_string(), &addr]);
        if let Some(controller) = &self.kcp9_cc {
            command.args(["--kcp9-cc", controller.name]);
        }
        if !token.is_empty() {
            command.args(["--token", token]);
        }
        command
    }
}

/// Both ends of a flow.
pub(crate) struct Flow {
    name: String,
    receiver: Process,
    sender: Process,
}

impl Flow {
    /// Starts both, and waits until they are ready.
    pub(crate) async fn start(
        programs: &Programs,
        bottleneck: &Bottleneck,
        kind: Kind,
        flow: usize,
    ) -> Result<Self, String> {
        let mut receiver = Process::start(programs.command(bottleneck, Side::Right, kind, flow, ""))?;
        let token = receiver.ready().await.map_err(|why| format!("receiver of {kind}: {why}"))?;
        let mut sender = Process::start(programs.command(bottleneck, Side::Left, kind, flow, &token))?;
        sender.ready().await.map_err(|why| format!("sender of {kind}: {why}"))?;
        Ok(Self { name: kind.to_string(), receiver, sender })
    }

    /// Tells both when the scenario begins, in nanoseconds of the wall clock, and when the flow starts and ends, in seconds
    /// after that.
    pub(crate) async fn begin(&mut self, begin: u128, start: u32, end: u32) -> Result<(), String> {
        let times = format!("{begin} {} {}\n", u64::from(start) * 1_000, u64::from(end) * 1_000);
        for process in [&mut self.receiver, &mut self.sender] {
            process
                .input
                .write_all(times.as_bytes())
                .await
                .map_err(|error| format!("{}: {error}", self.name))?;
        }
        Ok(())
    }

    /// What the receiver has counted, and whether the sender has come to its end.
    pub(crate) async fn finish(mut self) -> Result<Vec<u64>, String> {
        let name = &self.name;
        let received = self.receiver.received().await.map_err(|why| format!("receiver of {name}: {why}"))?;
        self.sender.end().await.map_err(|why| format!("sender of {name}: {why}"))?;
        Ok(received.bins)
    }
}

/// A child, killed when it is dropped.
struct Process {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    complaints: JoinHandle<String>,
}

impl Process {
    fn start(mut command: Command) -> Result<Self, String> {
        let command =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
        let (Some(input), Some(output), Some(mut errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("started without pipes".to_owned());
        };
        let complaints = tokio::spawn(async move {
            let mut text = Vec::new();
            let _ = errors.read_to_end(&mut text).await;
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self { child, input, lines: BufReader::new(output).lines(), complaints })
    }

    /// The token of its line.
    async fn ready(&mut self) -> Result<String, String> {
        let line = self.line().await?;
        match line.strip_prefix("ready") {
            Some(token) => Ok(token.trim().to_owned()),
            None => Err(format!("says {line}")),
        }
    }

    async fn received(&mut self) -> Result<Received, String> {
        let line = self.line().await?;
        serde_json::from_str(&line).map_err(|error| format!("{error} in {line}"))
    }

    async fn line(&mut self) -> Result<String, String> {
        match timeout(PATIENCE, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(Ok(None)) => Err(self.complaint("ended early").await),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("said nothing for {} s", PATIENCE.as_secs())),
        }
    }

    async fn end(&mut self) -> Result<(), String> {
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(self.complaint(&status.to_string()).await),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("did not end".to_owned()),
        }
    }

    /// The last line of its standard error, or else `what`.
    async fn complaint(&mut self, what: &str) -> String {
        let text = (&mut self.complaints).await.unwrap_or_default();
        text.trim_end().lines().next_back().unwrap_or(what).to_owned()
    }
}
