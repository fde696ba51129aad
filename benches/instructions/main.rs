//! Instructions that fixed transfers take, against what they took before: a check of speed that a busy machine cannot
//! disturb.
//!
//! ```text
//! cargo bench --bench instructions              # prints before, now and their ratio; fails above 1.05
//! cargo bench --bench instructions -- --bless   # what is now is the baseline from here on
//! ```
//!
//! Each transfer of [`transfer`] runs once under valgrind's callgrind, which counts the instructions of the process. They
//! are the same every run: time is virtual, losses and nonces come from seeds, and which instructions ciphers, FEC and
//! `memcpy` choose is decided by the processor that valgrind pretends to be, one with AVX2 and AES but no AVX-512, on
//! any host that has these. What else changes them is the compiler: bless after an update of Rust, in a
//! commit of its own. The baseline says which one it was made with.
//!
//! What a transfer spends its instructions on: `callgrind_annotate` on the file that the check names when it fails.
//!
//! Beside them stand the instructions of a segment by how much is in flight ([`window`]), and those that an endpoint takes for
//! a packet by how many sessions it has ([`routing`]): these are compared with each other.
//!
//! Without `--bench`, as under `cargo test --benches`, the transfers just run.

mod routing;
#[path = "../arq/sender.rs"]
mod sender;
mod transfer;
mod window;

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use self::{
    transfer::Transfer,
    window::{Acknowledged, WINDOWS},
};

/// More than this share above the baseline is a failure.
const LIMIT: f64 = 1.05;
/// As far below it, the baseline is due to be made anew: it would hide a loss of what was won.
const STALE: f64 = 0.95;
/// glibc copies and clears what is large by one repeated instruction, which valgrind counts once for each byte: a copy of
/// a write would weigh as much as all else. By vectors, it has the weight that it has on a processor.
const TUNABLES: &str =
    "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if let [command, name] = arguments.as_slice()
        && command == "run"
    {
        return match Transfer::named(name) {
            Some(transfer) => {
                transfer.run();
                ExitCode::SUCCESS
            }
            None if Acknowledged::run_named(name) || routing::run_named(name) => ExitCode::SUCCESS,
            None => ExitCode::FAILURE,
        };
    }
    if !has("--bench") {
        Transfer::all().into_iter().for_each(Transfer::run);
        routing::run(16, 64);
        return ExitCode::SUCCESS;
    }
    match check(has("--bless")).and_then(|holds| Ok(holds & check_windows()? & check_routing()?)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Counts all transfers. Returns whether none takes more than it may.
fn check(bless: bool) -> io::Result<bool> {
    let file = baseline_file();
    let baseline = match fs::read_to_string(&file) {
        Ok(text) => parse(&text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error),
    };
    let mut text =
        format!("# Instructions of each transfer: {}, {}\n", version("rustc")?, version("valgrind")?);
    let mut holds = true;
    println!("{:<22} {:>14} {:>14} {:>7}", "instructions", "before", "now", "ratio");
    for transfer in Transfer::all() {
        let name = transfer.name;
        let now = count(name)?;
        text += &format!("{name} {now}\n");
        let Some(before) = baseline.get(name).copied() else {
            println!("{name:<22} {:>14} {now:>14}", "-");
            continue;
        };
        let ratio = now as f64 / before as f64;
        let verdict = if ratio > LIMIT {
            holds &= bless;
            format!("  too many: callgrind_annotate {}", profile(name).display())
        } else if ratio < STALE {
            "  fewer: --bless makes it the baseline".to_owned()
        } else {
            String::new()
        };
        println!("{name:<22} {before:>14} {now:>14} {ratio:>7.3}{verdict}");
    }
    if bless {
        fs::write(&file, text)?;
    } else if baseline.is_empty() {
        println!("There is no baseline for {}.", env::consts::ARCH);
    }
    Ok(holds)
}

/// Counts a segment's with little and with much in flight. Returns whether it is about the same.
fn check_windows() -> io::Result<bool> {
    let [small, large] = WINDOWS;
    let mut holds = true;
    println!("{:<22} {small:>14} {large:>14} {:>7}", "a segment in flight of", "ratio");
    for kind in Acknowledged::all() {
        let (few, many) = (kind.measure(small, count)?, kind.measure(large, count)?);
        let ratio = many / few;
        holds &= ratio <= window::LIMIT;
        let verdict = if ratio <= window::LIMIT { "" } else { "  too many" };
        println!("{:<22} {few:>14.1} {many:>14.1} {ratio:>7.3}{verdict}", kind.name);
    }
    Ok(holds)
}

/// Counts a packet's among few and among many sessions. Returns whether it is about the same.
fn check_routing() -> io::Result<bool> {
    let [few, many] = routing::SESSIONS;
    println!("{:<22} {few:>14} {many:>14} {:>7}", "a packet, sessions:", "ratio");
    let (few, many) = (routing::measure(few, count)?, routing::measure(many, count)?);
    let ratio = many / few;
    let holds = ratio <= routing::LIMIT;
    let verdict = if holds { "" } else { "  too many" };
    println!("{:<22} {few:>14.1} {many:>14.1} {ratio:>7.3}{verdict}", "routed");
    Ok(holds)
}

/// Where what `name` took is found.
fn profile(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("callgrind.{name}"))
}

/// Instructions that the run `name` takes, start of the process included.
fn count(name: &str) -> io::Result<u64> {
    let mut out_file = std::ffi::OsString::from("--callgrind-out-file=");
    out_file.push(profile(name));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--error-exitcode=1"])
        .arg(out_file)
        .arg(env::current_exe()?)
        .args(["run", name])
        // What is set differs from shell to shell, and reading it takes instructions.
        .env_clear()
        .envs(env::var_os("PATH").map(|path| ("PATH", path)))
        .env("GLIBC_TUNABLES", TUNABLES)
        .output()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("cannot run valgrind, which this needs: {error}"))
        })?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    match collected {
        Some(count) if output.status.success() => Ok(count),
        _ => Err(io::Error::other(format!("{name} under valgrind: {}\n{said}", output.status))),
    }
}

fn parse(text: &str) -> io::Result<BTreeMap<String, u64>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    });
    entries
        .collect::<Option<_>>()
        .ok_or_else(|| io::Error::other("the baseline is not lines of a name and a count"))
}

fn version(program: &str) -> io::Result<String> {
    let output = Command::new(program).arg("--version").output();
    let output =
        output.map_err(|error| io::Error::new(error.kind(), format!("cannot run {program}: {error}")))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn baseline_file() -> PathBuf {
    let name = format!("baseline-{}.txt", env::consts::ARCH);
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions").join(name)
}
