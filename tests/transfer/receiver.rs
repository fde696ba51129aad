//! The program `transfer` as a receiver, and others of it that send to it.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use kcp9::{
    KcpConfig, KcpStream,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
};
use kcp9_tests::example;
use tempfile::TempDir;

use crate::transfer::channel::Channel;

/// A running `transfer receive`, ended when dropped.
pub(crate) struct Receiver {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) folder: Arc<TempDir>,
    pub(crate) lines: mpsc::Receiver<String>,
}

impl Receiver {
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_in(TempDir::new().unwrap(), options)
    }

    pub(crate) fn start_in(folder: impl Into<Arc<TempDir>>, options: &[&str]) -> Self {
        Self::spawn(command(&[]), folder, "127.0.0.1:0", options)
    }

    pub(crate) fn spawn(
        mut command: Command,
        folder: impl Into<Arc<TempDir>>,
        listen: &str,
        options: &[&str],
    ) -> Self {
        let folder = folder.into();
        command.args(["receive", "--listen", listen]).args(options).arg(folder.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for output in outputs {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    println!("receiver: {line}");
                    let _ = sender.send(line);
                }
            });
        }
        let mut receiver = Self { child, address: String::new(), folder, lines };
        receiver.address = receiver.wait_for_line("listening on ").split_off("listening on ".len());
        receiver
    }

    pub(crate) fn send(&self, files: &[String]) -> Output {
        self.sender(files, &[]).output().unwrap()
    }

    pub(crate) fn sender(&self, files: &[String], options: &[&str]) -> Command {
        let mut command = command(&["send"]);
        command.args(options).args(files).arg(&self.address);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A sender that is slow, some 800 kB/s: its window is so small that the receiver does not acknowledge it at once.
    pub(crate) fn start_slow_sender(&self, file: &str) -> Child {
        self.sender(&[file.to_owned()], &["--window", "6"]).spawn().unwrap()
    }

    pub(crate) async fn connect(&self) -> Channel<kcp9::OwnedReadHalf, kcp9::OwnedWriteHalf> {
        let stream = KcpStream::connect(&*self.address, config()).await.unwrap();
        let (reader, writer) = stream.into_split();
        Channel::new(reader, writer, Duration::from_secs(5))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// How many unfinished files there are.
    pub(crate) fn unfinished(&self) -> usize {
        self.parts().len()
    }

    pub(crate) fn parts(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let is_part = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "kcp9-part");
        entries.map(|entry| entry.unwrap().path()).filter(is_part).collect()
    }

    /// Waits until an unfinished file has `bytes`; returns how many it has.
    pub(crate) fn wait_for_part(&self, bytes: u64) -> u64 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sizes = self.parts().into_iter().filter_map(|path| Some(path.metadata().ok()?.len()));
            if let Some(size) = sizes.max().filter(|size| *size >= bytes) {
                return size;
            }
            assert!(Instant::now() < deadline, "no unfinished file of {bytes} bytes");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn wait_for_line(&self, part: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no line with {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    pub(crate) fn stop(mut self) -> Arc<TempDir> {
        self.child.kill().unwrap();
        self.wait().1
    }

    pub(crate) fn wait(mut self) -> (ExitStatus, Arc<TempDir>) {
        let status = self.child.wait().unwrap();
        (status, Arc::clone(&self.folder))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(example("transfer"));
    command.args(arguments).env("KCP9_KEY", KEY);
    command
}

/// Every program here is given this key.
pub(crate) const KEY: &str = "thirty-two bytes of a secret key";

/// The settings of a session with one of them.
pub(crate) fn config() -> KcpConfig {
    let cipher = CipherKind::Aes256Gcm.build(&Key::from_bytes(KEY.as_bytes()), Framing::KcpGo).unwrap();
    KcpConfig::builder().crypto(PacketCrypto::with_os_nonces(cipher).unwrap()).build().unwrap()
}

/// A limit for what should take far less.
const PATIENCE: Duration = Duration::from_secs(10);
