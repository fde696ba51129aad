//! The figures of a run: one line of JSON.

use std::{
    io::{self, Write},
    time::Duration,
};

use serde::Serializer as _;
use serde_json::json;

use crate::options::Session;

#[derive(Debug)]
pub(crate) struct Report {
    peer: &'static str,
    mode: &'static str,
    crypt: String,
    fec: String,
    conns: usize,
    /// Payload bytes that arrived and were checked; an echo's count once.
    bytes: u64,
    secs: f64,
    mbps: f64,
    /// Processor time of the whole process, user and system.
    cpu_s: f64,
    maxrss_kb: u64,
    failed: usize,
}

impl Report {
    pub(crate) fn new(session: &Session, conns: usize, bytes: u64, elapsed: Duration, failed: usize) -> Self {
        let usage = usage();
        Self {
            peer: concat!("kcp9 ", env!("CARGO_PKG_VERSION")),
            mode: session.mode.name(),
            crypt: session.crypt(),
            fec: session.fec(),
            conns,
            bytes,
            secs: round(elapsed.as_secs_f64()),
            mbps: round(bytes as f64 / 1e6 / elapsed.as_secs_f64()),
            cpu_s: round(usage.cpu.as_secs_f64()),
            maxrss_kb: usage.maxrss_kb,
            failed,
        }
    }

    pub(crate) fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let fields = [
            ("peer", json!(self.peer)),
            ("mode", json!(self.mode)),
            ("crypt", json!(self.crypt)),
            ("fec", json!(self.fec)),
            ("conns", json!(self.conns)),
            ("bytes", json!(self.bytes)),
            ("secs", json!(self.secs)),
            ("MBps", json!(self.mbps)),
            ("cpu_s", json!(self.cpu_s)),
            ("maxrss_kb", json!(self.maxrss_kb)),
            ("failed", json!(self.failed)),
        ];
        serde_json::Serializer::new(&mut out).collect_map(fields)?;
        writeln!(out)?;
        out.flush()
    }
}

fn round(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}

/// What the process has used so far; zero where the system does not tell.
#[derive(Debug, Default)]
struct Usage {
    cpu: Duration,
    maxrss_kb: u64,
}

#[cfg(unix)]
fn usage() -> Usage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a `rusage` of our own, which the call fills in; all of its fields are integers, so that
    // the zeroes are valid even if it does not.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    // The unit of `ru_maxrss` is 1 KiB, on Apple's systems 1 byte.
    let unit = if cfg!(target_vendor = "apple") { 1_024 } else { 1 };
    Usage {
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        maxrss_kb: usage.ru_maxrss as u64 / unit,
    }
}

#[cfg(not(unix))]
fn usage() -> Usage {
    Usage::default()
}
