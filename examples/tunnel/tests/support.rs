//! Programs of a tunnel as processes, and the connections through them.

use std::{
    collections::HashMap,
    ffi::OsStr,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use kcp9_tests::{spawn, within};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};

/// How long one step may take.
pub const LIMIT: u64 = 60;

/// A program that runs, killed when it is dropped. What it says is kept.
pub struct Program {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Program {
    pub fn start(program: &Path, arguments: &[impl AsRef<OsStr>]) -> Self {
        Self::start_with_key(program, arguments, None)
    }

    /// With a key in kcptun's environment variable.
    pub fn start_with_key(program: &Path, arguments: &[impl AsRef<OsStr>], key: Option<&str>) -> Self {
        let mut command = Command::new(program);
        command.envs(key.map(|key| ("KCPTUN_KEY", key)));
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let said = Arc::default();
        hear(child.stdout.take().unwrap(), &said);
        hear(child.stderr.take().unwrap(), &said);
        Self { child, said }
    }

    /// All that it has said.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().join("\n")
    }

    /// Waits until it says `words`; returns what comes behind them in that line.
    pub async fn says(&self, words: &str) -> String {
        let search = async {
            loop {
                let found = self.said.lock().unwrap().iter().find_map(|line| {
                    let at = line.find(words)?;
                    Some(line[at + words.len()..].to_owned())
                });
                match found {
                    Some(rest) => return rest,
                    None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        match tokio::time::timeout(Duration::from_secs(LIMIT), search).await {
            Ok(rest) => rest,
            Err(_) => panic!("it does not say `{words}` but\n{}", self.said()),
        }
    }

    /// Where it listens, of those that say so.
    pub async fn addr(&self) -> SocketAddr {
        let addr = self.says("listening on: ").await;
        addr.parse().unwrap_or_else(|error| panic!("{addr}: {error}"))
    }

    #[allow(dead_code, reason = "not every user asks")]
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    #[allow(dead_code, reason = "not every test sends signals")]
    pub async fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().await.unwrap().success());
    }

    #[allow(dead_code, reason = "not every test waits for that")]
    pub async fn ended(&mut self) -> ExitStatus {
        within(LIMIT, "the program ends", self.child.wait()).await.unwrap()
    }
}

/// Keeps the lines that come.
fn hear(from: impl AsyncRead + Send + Unpin + 'static, said: &Arc<Mutex<Vec<String>>>) {
    let (mut lines, said) = (BufReader::new(from).lines(), Arc::clone(said));
    spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            said.lock().unwrap().push(line);
        }
    });
}

/// Calls `serve` for each connection that comes to the address returned.
pub async fn target<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(serve(stream));
        }
    });
    addr
}

/// An address of the loopback that nobody else has, so that each of its ports is free until the program takes it.
pub fn unshared() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 + high % 64, low, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Flags as words, of which some are filled in.
pub fn words(flags: &str, fill: &HashMap<&str, String>) -> Vec<String> {
    let fill = |word: &str| fill.get(word).cloned().unwrap_or_else(|| word.to_owned());
    flags.split_whitespace().map(fill).collect()
}
