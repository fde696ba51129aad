//! A network namespace with a TUN device, by `ip` of iproute2.

use std::{ffi::OsStr, fs, io, process, process::Command, thread};

use nix::sched::{CloneFlags, setns};
use tun_rs::{DeviceBuilder, SyncDevice};

/// The device of each namespace.
const DEVICE: &str = "lab0";
/// Packets that may wait in the device until the shaper reads them: it must be the shaper that drops.
const DEVICE_QUEUE: &str = "20000";
/// What TCP may use of memory: `net.ipv4.tcp_rmem` and `tcp_wmem`. 32 MB are more than any queue here with its path.
const TCP_MEMORY: [(&str, &str); 2] =
    [("tcp_rmem", "4096 131072 33554432"), ("tcp_wmem", "4096 65536 33554432")];

/// Which end of the bottleneck.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    /// Of the senders.
    Left,
    /// Of the receivers.
    Right,
}

impl Side {
    pub(crate) fn address(self) -> &'static str {
        match self {
            Self::Left => "10.99.0.1",
            Self::Right => "10.99.0.2",
        }
    }
}

/// Removed when it is dropped.
#[derive(Debug)]
pub(super) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes it and its device.
    pub(super) fn create(side: Side) -> io::Result<(Self, SyncDevice)> {
        let name = format!(
            "kcp9-lab-{}-{}",
            process::id(),
            if matches!(side, Side::Left) { "left" } else { "right" }
        );
        ip(&["netns", "add", &name]).map_err(|error| {
            io::Error::other(format!("no network namespace (root and iproute2 are needed): {error}"))
        })?;
        let namespace = Self { name };
        let device = namespace.enter(|| {
            for (file, value) in TCP_MEMORY {
                setting(file, value)?;
            }
            // A flow must not begin with what an earlier one learnt.
            setting("tcp_no_metrics_save", "1")?;
            let device = DeviceBuilder::new().name(DEVICE).build_sync();
            device.map_err(|error| {
                io::Error::new(error.kind(), format!("no TUN device (/dev/net/tun): {error}"))
            })
        })?;
        device.set_nonblocking(true)?;
        let address = format!("{}/30", side.address());
        namespace.ip(&["address", "add", &address, "dev", DEVICE])?;
        namespace.ip(&["link", "set", DEVICE, "mtu", "1500", "txqueuelen", DEVICE_QUEUE, "up"])?;
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok((namespace, device))
    }

    /// What runs a program inside.
    pub(super) fn command(&self, program: &OsStr) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Packets that the device itself has dropped because the shaper did not read them in time.
    pub(super) fn device_drops(&self) -> io::Result<u64> {
        let counters = self.enter(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
        let drops = counters.lines().find_map(|line| {
            let values = line.trim_start().strip_prefix(DEVICE)?.strip_prefix(':')?;
            // Eight of what is received, then bytes, packets, errors and drops of what is sent.
            values.split_whitespace().nth(11)?.parse().ok()
        });
        drops.ok_or_else(|| io::Error::other(format!("{DEVICE} has no counters")))
    }

    /// Does something in a thread inside.
    fn enter<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let namespace = fs::File::open(format!("/run/netns/{}", self.name))?;
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                setns(namespace, CloneFlags::CLONE_NEWNET)?;
                work()
            });
            inside.join().unwrap_or_else(|_| Err(io::Error::other("a thread in a namespace panicked")))
        })
    }

    fn ip(&self, arguments: &[&str]) -> io::Result<()> {
        ip(&[&["-n", &self.name], arguments].concat())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = ip(&["netns", "delete", &self.name]) {
            eprintln!("lab: the namespace {} stays: {error}", self.name);
        }
    }
}

/// A setting of the namespace that the thread is in.
fn setting(name: &str, value: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/ipv4/{name}");
    fs::write(&path, value).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let words = || format!("ip {}", arguments.join(" "));
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", words())))?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{}: {}", words(), String::from_utf8_lossy(&output.stderr).trim())))
}
