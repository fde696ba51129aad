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
/// Bytes of the heap that may be left in the end, when the runtime is gone, too: 2.4 to 3.1 MB were, whether the run took 45 s or two
/// minutes. Tens of thousands of sessions have ended by then, so a hundred bytes that each leaves behind are found.
const MAX_LEFT: usize = 4 << 20;
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
    fn cycles(&self, bytes: impl Fn(&Sample) -> usize) -> Vec<f64> {
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
        let resident = self.cycles(|sample| sample.resident);
        let in_use = self.cycles(|sample| sample.in_use);
        if resident.len() < 2 {
            assert!(length < WARM_UP + 2 * CYCLE, "too few samples in {length:?}: {self}");
            return;
        }
        let max = if resident.len() < FEW { MAX_GROWTH_OF_FEW } else { MAX_GROWTH };
        for (what, cycles) in [("resident", resident), ("in use", in_use)] {
            let growth = growth(&cycles);
            assert!(growth <= max, "what is {what} grew by {growth:.1} %: {self}");
        }
    }
}

/// How much more the last third of the cycles has than the first, in percent.
fn growth(cycles: &[f64]) -> f64 {
    let third = cycles.len().div_ceil(3);
    let mean = |cycles: &[f64]| cycles.iter().sum::<f64>() / cycles.len() as f64;
    (mean(&cycles[cycles.len() - third..]) / mean(&cycles[..third]) - 1.0) * 100.0
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
