//! What memory the process occupies, second by second: what is resident, and what of the heap is in use.
//!
//! The first also has what the allocator cannot give back, as something in the same page is still in use. glibc has eight arenas for
//! each processor, and each has such pages: with them, what is resident grew by 0.8 to 3.2 % in half an hour, while what is in use did
//! not grow. So threads get no arenas of their own here.

use std::{fmt, time::Duration};

use crate::CYCLE;

/// How much the last third of a run may have more than the first behind the warm-up, in percent. A single cycle varies with what
/// else the machine does, by a tenth: a run that has few shows only what grows much.
const MAX_GROWTH: f64 = 2.0;
const MAX_GROWTH_OF_FEW: f64 = 25.0;
const FEW: usize = 9;
/// Bytes of the heap that may be left in the end: what the runtime, the sockets' buffers and the allocator keep for each thread, 5.9 to
/// 6.7 MB whether the run takes 45 s or half an hour. Tens of thousands of sessions have ended by then, so a hundred bytes that each
/// leaves behind are found.
const MAX_LEFT: usize = 8 << 20;
/// A cycle counts with as many samples: a machine that is busy, and what is done between them, take some.
const LEAST_SAMPLES: usize = CYCLE.as_secs() as usize * 2 / 3;
/// Until then memory grows: sessions that have ended are remembered for a minute, and in the first cycle there are few of them.
const WARM_UP: Duration = Duration::from_secs(60 + CYCLE.as_secs());

/// Bytes.
#[derive(Debug, Clone, Copy)]
struct Sample {
    resident: usize,
    in_use: usize,
}

pub(crate) struct Memory {
    in_use_before: usize,
    samples: Vec<(Duration, Sample)>,
}

impl Memory {
    pub(crate) fn start() -> Self {
        Self { in_use_before: in_use(), samples: Vec::new() }
    }

    pub(crate) fn sample(&mut self, at: Duration) {
        self.samples.push((at, Sample { resident: resident(), in_use: in_use() }));
    }

    /// The mean of each whole cycle behind the warm-up, in MiB. Within a cycle it rises and falls.
    fn cycles(&self, bytes: fn(&Sample) -> usize) -> Vec<f64> {
        let mut cycles: Vec<(usize, usize)> = Vec::new();
        for (at, sample) in &self.samples {
            let Some(at) = at.checked_sub(WARM_UP) else { continue };
            let cycle = (at.as_secs() / CYCLE.as_secs()) as usize;
            cycles.resize(cycles.len().max(cycle + 1), (0, 0));
            cycles[cycle].0 += bytes(sample);
            cycles[cycle].1 += 1;
        }
        cycles.retain(|(_, samples)| *samples >= LEAST_SAMPLES);
        cycles.iter().map(|(bytes, samples)| (bytes / samples) as f64 / f64::from(1 << 20)).collect()
    }

    /// A run of `length`, of which nothing is alive, has let memory grow no further and has left nothing of the heap in use.
    pub(crate) fn check(&self, length: Duration) {
        let left = in_use().saturating_sub(self.in_use_before);
        println!("{left} bytes of the heap are left");
        assert!(left <= MAX_LEFT, "{left} bytes of the heap are left: {self}");
        let is_short = self.cycles(|sample| sample.resident).len() < FEW;
        let most = 1.0 + if is_short { MAX_GROWTH_OF_FEW } else { MAX_GROWTH } / 100.0;
        for (what, bytes) in [
            ("resident", (|sample| sample.resident) as fn(&Sample) -> usize),
            ("in use", |sample| sample.in_use),
        ] {
            let Some([first, last]) = self.thirds(bytes) else {
                assert!(length < WARM_UP + 2 * CYCLE, "too few samples in {length:?}: {self}");
                return;
            };
            assert!(last <= first * most, "what is {what} grew from {first:.1} to {last:.1} MiB: {self}");
        }
    }

    /// The means of the first and the last third of the cycles.
    fn thirds(&self, bytes: fn(&Sample) -> usize) -> Option<[f64; 2]> {
        let cycles = self.cycles(bytes);
        let third = cycles.len().div_ceil(3);
        let mean = |cycles: &[f64]| cycles.iter().sum::<f64>() / cycles.len() as f64;
        (cycles.len() >= 2).then(|| [mean(&cycles[..third]), mean(&cycles[cycles.len() - third..])])
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [resident, in_use] = [self.cycles(|sample| sample.resident), self.cycles(|sample| sample.in_use)];
        write!(
            f,
            "MiB in each cycle of {CYCLE:?} behind the first {WARM_UP:?}: resident {resident:.1?}, in use {in_use:.1?}"
        )
    }
}

/// Bytes that the process occupies, once the allocator has given back what it only keeps.
#[allow(unsafe_code)]
fn resident() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// Has threads that begin from now on share the arenas that there are.
#[allow(unsafe_code)]
pub(crate) fn share_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Bytes of the heap that are in use, of all threads. Zero where the C library does not say.
#[allow(unsafe_code)]
fn in_use() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called at any time.
    return unsafe { libc::mallinfo2() }.uordblks;
    #[cfg(not(target_env = "gnu"))]
    0
}
