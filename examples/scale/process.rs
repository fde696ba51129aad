//! What this process takes of the machine.

use std::time::Duration;

/// Resident memory in bytes; 0 where the system does not say.
pub(crate) fn resident() -> u64 {
    let Ok(statm) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * page_size()
}

fn page_size() -> u64 {
    // SAFETY: it reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4_096)
}

/// Processor time of all threads.
pub(crate) fn cpu() -> Duration {
    // SAFETY: zeroes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to `usage` only, which is of the type that it expects.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
