//! What this process has used so far.

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};

use crate::figures::Figures;

/// Puts processor time and peak memory into `figures`.
pub(crate) fn add(figures: &mut Figures) -> nix::Result<()> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    figures.cpu_s = micros as f64 / 1e6;
    // `getrusage` begins with the size of the process that forked; the kernel's own figure does not.
    figures.peak_kb = high_water_mark().unwrap_or_else(|| u64::try_from(usage.max_rss()).unwrap_or(0));
    Ok(())
}

/// KiB, where there is `/proc`.
fn high_water_mark() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
