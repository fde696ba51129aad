//! The threads of one direction: one reads packets from a device and asks the queue what becomes of them, the other writes them
//! to the other device when they are due.

use std::{
    io,
    os::fd::AsFd,
    process::{Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::prctl::set_timerslack,
    unistd::gettid,
};
use serde::{Deserialize, Serialize};
use tun_rs::SyncDevice;

use crate::link::{
    DELAY, Direction,
    packet::{Way, flow_of},
    queue::{Fate, Queue},
    tally::FlowTally,
};

/// How long a thread may take to see that it is to stop.
const PATIENCE_MS: u16 = 50;
/// Above those of kernel threads that do nothing here, below its watchdogs.
const PRIORITY: &str = "10";
/// Later than this counts as late.
const LATE: f64 = 0.001;

/// How much later than computed packets were delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lateness {
    pub(crate) mean_us: f64,
    pub(crate) max_us: f64,
    /// Packets that were more than a millisecond late, percent.
    pub(crate) late_percent: f64,
}

/// What one direction did.
pub(crate) struct Shaped {
    pub(crate) flows: Vec<FlowTally>,
    pub(crate) queue: Queue,
    pub(crate) lateness: Lateness,
    /// Whether both threads had real-time priority.
    pub(crate) realtime: bool,
}

/// What both directions share.
#[derive(Clone, Default)]
pub(super) struct Shared {
    /// When the scenario began; what comes before is no flow's.
    pub(super) begin: Arc<OnceLock<Instant>>,
    pub(super) stop: Arc<AtomicBool>,
}

pub(super) struct Shaper {
    reader: JoinHandle<io::Result<(Vec<FlowTally>, Queue, bool)>>,
    writer: JoinHandle<(Lateness, bool)>,
}

/// A packet and when it is due, in seconds since the beginning.
type Due = (f64, Vec<u8>);

impl Shaper {
    pub(super) fn start(
        direction: &Direction,
        way: Way,
        flows: usize,
        seed: u64,
        devices: (Arc<SyncDevice>, Arc<SyncDevice>),
        shared: &Shared,
    ) -> Self {
        let (sender, receiver) = mpsc::channel();
        let queue = Queue::new(direction, seed);
        let (from, to) = devices;
        let (reading, writing) = (shared.clone(), shared.clone());
        let reader = move || {
            let realtime = raise_priority();
            let (flows, queue) = read(&from, way, flows, queue, &reading, &sender)?;
            Ok((flows, queue, realtime))
        };
        let writer = move || {
            let realtime = raise_priority();
            (write(&to, &writing, &receiver), realtime)
        };
        Self { reader: thread::spawn(reader), writer: thread::spawn(writer) }
    }

    /// Waits for the threads, which were told to stop.
    pub(super) fn finish(self) -> io::Result<Shaped> {
        let panicked = |_| io::Error::other("a thread of the shaper panicked");
        let (flows, queue, reader_realtime) = self.reader.join().map_err(panicked)??;
        let (lateness, writer_realtime) = self.writer.join().map_err(panicked)?;
        Ok(Shaped { flows, queue, lateness, realtime: reader_realtime && writer_realtime })
    }
}

fn read(
    device: &SyncDevice,
    way: Way,
    flows: usize,
    mut queue: Queue,
    shared: &Shared,
    sender: &mpsc::Sender<Due>,
) -> io::Result<(Vec<FlowTally>, Queue)> {
    let mut tallies = vec![FlowTally::default(); flows];
    let mut buffer = [0; 2_048];
    loop {
        let bytes = match device.recv(&mut buffer) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if shared.stop.load(Ordering::Relaxed) {
                    return Ok((tallies, queue));
                }
                match poll(
                    &mut [PollFd::new(device.as_fd(), PollFlags::POLLIN)],
                    PollTimeout::from(PATIENCE_MS),
                ) {
                    // Signals tell of children that have ended.
                    Ok(_) | Err(Errno::EINTR) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let Some(begin) = shared.begin.get() else { continue };
        // Neighbour discovery and the like takes no part.
        let Some(flow) = flow_of(&buffer[..bytes], way, flows) else { continue };
        let now = begin.elapsed().as_secs_f64();
        let fate = queue.offer(now, bytes);
        tallies[flow].count(now, fate, bytes);
        if let Fate::Departs(departure) = fate {
            // The other thread only ends before this one when both are to stop.
            let _ = sender.send((departure + DELAY, buffer[..bytes].to_vec()));
        }
    }
}

fn write(device: &SyncDevice, shared: &Shared, receiver: &mpsc::Receiver<Due>) -> Lateness {
    let (mut count, mut sum, mut max, mut late) = (0_u64, 0.0, 0.0_f64, 0_u64);
    for (due, packet) in receiver {
        // Packets come only after the beginning.
        let Some(begin) = shared.begin.get() else { continue };
        let mut ahead = due - begin.elapsed().as_secs_f64();
        while ahead > 0.0 {
            if shared.stop.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(Duration::from_secs_f64(ahead));
            ahead = due - begin.elapsed().as_secs_f64();
        }
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        count += 1;
        sum -= ahead;
        max = max.max(-ahead);
        late += u64::from(-ahead > LATE);
        // It fails when the device has no room or the receiver's end is gone: the packet is lost, as on a wire.
        let _ = device.send(&packet);
    }
    let share = |part: f64| if count == 0 { 0.0 } else { part / count as f64 };
    Lateness { mean_us: share(sum) * 1e6, max_us: max * 1e6, late_percent: share(late as f64) * 100.0 }
}

/// So that flows, of which there may be many more than cores, do not delay the wire. Where that is not allowed, the lateness shows
/// what it costs.
fn raise_priority() -> bool {
    // A nanosecond in place of 50 us; it has no effect on real-time threads, which have none.
    let _ = set_timerslack(1);
    Command::new("chrt")
        .args(["--fifo", "--pid", PRIORITY, &gettid().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
