//! The machine and the versions that were measured.

use std::{fs, process::Command, thread};

use serde::{Deserialize, Serialize};

use crate::process::Program;

/// Everything in a result but the figures.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    system: String,
    /// Largest socket buffer that the system allows, bytes.
    rmem_max: String,
    compiler: String,
    /// Load of the minute before it began: above zero, something else was busy.
    load: String,
    /// Names and versions.
    peers: Vec<(String, String)>,
    command: String,
}

pub(crate) fn describe(programs: &[Program]) -> Machine {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    Machine {
        cpu: cpu(),
        cores: thread::available_parallelism().map_or(1, usize::from),
        system: format!("{} {}", std::env::consts::OS, first_line("/proc/sys/kernel/osrelease")),
        rmem_max: first_line("/proc/sys/net/core/rmem_max"),
        compiler: compiler(),
        load: first_line("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
        peers: programs.iter().map(|program| (program.name.clone(), program.version.clone())).collect(),
        command: ["compare"]
            .into_iter()
            .chain(arguments.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

impl Machine {
    pub(crate) fn markdown(&self) -> String {
        let Self { cpu, cores, system, rmem_max, compiler, load, peers, command } = self;
        let peers: Vec<_> = peers.iter().map(|(name, version)| format!("{name} {version}")).collect();
        format!(
            "* {cpu}, {cores} cores, {system}, socket buffers of up to {rmem_max} bytes, {compiler}; load of the minute \
             before: {load}\n* {}\n* `{command}`\n",
            peers.join("; ")
        )
    }
}

/// The version of a package that this program is built with.
pub(crate) fn version_of(package: &str) -> String {
    let lock = include_str!("../Cargo.lock");
    let version = lock.split("[[package]]").find_map(|entry| {
        let field = |name: &str| entry.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        (field("name")?.trim_matches('"') == package).then(|| field("version"))?
    });
    version.map_or_else(String::new, |version| version.trim_matches('"').to_owned())
}

fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    output.map_or_else(|_| "rustc".to_owned(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn first_line(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default().lines().next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_version() {
        for (name, package) in crate::peer::ALL {
            let version = version_of(package);
            assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{name}: {version}");
        }
        assert_eq!(version_of("no such package"), "");
    }
}
