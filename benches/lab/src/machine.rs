//! The machine that was measured on, in a line.

use std::{fs, thread};

/// What the kernel has of TCP's controllers.
pub(crate) fn tcp_controllers() -> Vec<String> {
    let names = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    names.split_whitespace().map(str::to_owned).collect()
}

/// With the load of the last minute: above zero, something else was busy.
pub(crate) fn describe() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = model.map_or(std::env::consts::ARCH, |(_, name)| name);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (kernel, load) = (first_line("/proc/sys/kernel/osrelease"), first_line("/proc/loadavg"));
    format!("{cpu}, {cores} cores, Linux {kernel}, load {}", load.split(' ').next().unwrap_or_default())
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}
