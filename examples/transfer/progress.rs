//! Output for people: bars on a terminal, and a line now and then where there is none.

use std::{
    fmt::Display,
    io::Write,
    sync::Mutex,
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kcp9::Stats;

/// Where bars and lines go. Clones share it.
#[derive(Clone)]
pub(crate) struct Screen {
    bars: MultiProgress,
    silent: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { bars: MultiProgress::new(), silent: false }
    }

    /// Shows nothing.
    pub(crate) fn silent() -> Self {
        Self { bars: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()), silent: true }
    }

    /// A line of output.
    pub(crate) fn line(&self, text: impl Display) {
        if self.silent {
            return;
        }
        // A closed output is no reason to stop.
        self.bars.suspend(|| {
            let _ = writeln!(std::io::stdout(), "{text}");
        });
    }

    /// A line about what went wrong.
    pub(crate) fn error(&self, text: impl Display) {
        if self.silent {
            return;
        }
        self.bars.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{text}");
        });
    }

    /// A bar for a file of `size` bytes that goes on behind the first `offset`.
    pub(crate) fn file(&self, name: &str, size: u64, offset: u64) -> Bar {
        let bar = self.bars.add(ProgressBar::new(size).with_message(name.to_owned()));
        let template = "{msg:24!} {wide_bar} {percent:>3} % {bytes:>11} {binary_bytes_per_sec:>13} {eta:>4}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_position(offset);
        bar.reset_eta();
        Bar { bar, screen: self.clone(), told: Mutex::new(Instant::now()) }
    }
}

/// The bar of one file; gone when dropped.
pub(crate) struct Bar {
    bar: ProgressBar,
    screen: Screen,
    /// When the last line was printed, without a terminal.
    told: Mutex<Instant>,
}

impl Bar {
    pub(crate) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
        if self.screen.silent || !self.bar.is_hidden() {
            return;
        }
        let Ok(mut told) = self.told.lock() else { return };
        if told.elapsed() >= LINE_EVERY {
            *told = Instant::now();
            let (done, size) = (self.bar.position(), self.bar.length().unwrap_or(0));
            self.screen.line(format_args!(
                "{}: {} of {}",
                self.bar.message(),
                HumanBytes(done),
                HumanBytes(size)
            ));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What became of the files of a session, or of several.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) transferred: usize,
    pub(crate) already_there: usize,
    pub(crate) failed: usize,
    /// Bytes of the files transferred.
    pub(crate) bytes: u64,
    /// Bytes of these that an earlier transfer had left at the receiver.
    pub(crate) resumed: u64,
}

impl Tally {
    pub(crate) fn transferred(&mut self, bytes: u64, resumed: u64) {
        self.transferred += 1;
        self.bytes += bytes;
        self.resumed += resumed;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.transferred += other.transferred;
        self.already_there += other.already_there;
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.resumed += other.resumed;
    }

    /// One line on all of it.
    pub(crate) fn summary(&self, time: Duration) -> String {
        let Self { transferred, already_there, failed, .. } = self;
        let rate = rate(self.bytes - self.resumed, self.resumed, time);
        format!("total     {transferred} transferred: {rate}; {already_there} already there, {failed} failed")
    }
}

/// `5.0 MiB in 1.2 s (4.2 MiB/s)`, and what was there before if anything was.
pub(crate) fn rate(bytes: u64, resumed: u64, time: Duration) -> String {
    let per_second = bytes as f64 / time.as_secs_f64().max(1e-6);
    let resumed = if resumed > 0 { format!(", resumed after {resumed} bytes") } else { String::new() };
    let (bytes, per_second) = (HumanBytes(bytes), HumanBytes(per_second as u64));
    format!("{bytes} in {:.1} s ({per_second}/s){resumed}", time.as_secs_f64())
}

/// A session in a few lines: round-trip time, what was resent and why, and how many bytes that took.
pub(crate) fn session_report(stats: &Stats) -> String {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    format!(
        "rtt       {:.1} ms (least {:.1}, deviation {:.1})\n\
         resent    {} of {} segments ({:.1} %): {} fast, {} early, {} timeout\n\
         on wire   {} in {} packets sent, for {} of payload ({:.3} x); {} in {} packets received",
        millis(stats.path.rtt),
        millis(stats.path.min_rtt),
        millis(stats.path.rtt_var),
        stats.recovery.resends(),
        stats.segments.push_sent,
        percent(stats.recovery.resends(), stats.segments.push_sent),
        stats.recovery.fast_resends,
        stats.recovery.early_resends,
        stats.recovery.timeout_resends,
        HumanBytes(stats.udp.bytes_sent),
        stats.udp.packets_sent,
        HumanBytes(stats.stream.bytes_written),
        stats.udp.bytes_sent as f64 / stats.stream.bytes_written.max(1) as f64,
        HumanBytes(stats.udp.bytes_received),
        stats.udp.packets_received,
    )
}

/// What forward error correction did at a receiver, if the peer sent any.
pub(crate) fn fec_report(stats: &Stats) -> Option<String> {
    let (fec, shards) = (&stats.fec, &stats.fec_state);
    (shards.peer_data_shards > 0).then(|| {
        format!(
            "FEC {}/{} recovered {} lost packets from {} of parity; {} were too many for it",
            shards.peer_data_shards,
            shards.peer_parity_shards,
            fec.recovered,
            fec.parity_received,
            fec.unrecoverable
        )
    })
}

/// How often a line about a file is printed, without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
