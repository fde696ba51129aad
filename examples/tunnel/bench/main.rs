//! This program's two ends beside kcptun's, in turn: `cargo bench -p kcp9-tunnel`, a few minutes; `-- --quick` for three rounds in
//! place of seven, `-- WORDS` for the cases whose names contain one of these.
//!
//! `-- --bars` is for CI: a third of the bytes, only the cases that have a bar, and an exit code of 1 if one does not reach it: our
//! rate must be its multiple of kcptun's or more, our processor time and memory less than kcptun's. 3DES and Twofish have none: they
//! are known to be slower. The bars are far below what is measured, so that a machine with other work does not fail them.
//!
//! Bytes go up one connection (or down, where it says so) and are counted at the other end. A case gives both pairs the same flags,
//! unless it names others for ours. Processor time and the peak of memory are those of a pair's two processes together; the program
//! that sends and counts is a third one. Needs Linux and Debian's package kcptun.

#![allow(unreachable_pub, reason = "a file of the tests is part of it")]

#[path = "../tests/support.rs"]
mod support;

use std::{
    collections::HashMap,
    fs, io,
    net::SocketAddr,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use kcp9_relay::Relay;
use kcp9_simulator::LinkSettings;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use self::support::{Program, target, unshared, words};

struct Case {
    name: &'static str,
    path: PathBetween,
    /// Both ends of both pairs.
    flags: &'static str,
    /// Of our pair in place of `flags`.
    ours: Option<&'static str>,
    megabytes: usize,
    down: bool,
    /// The least ratio of our rate to kcptun's that is good enough.
    bar: Option<f64>,
}

#[derive(Clone, Copy)]
enum PathBetween {
    Loopback,
    /// 5 % of the packets are lost and all take 20 ms, each way.
    Lossy,
}

const WIDE: &str = "-mode fast3 -sndwnd 1024 -rcvwnd 1024 -nocomp";

const CASES: [Case; 12] = [
    Case::new("loopback, aes, FEC 10/3", PathBetween::Loopback, WIDE, 300),
    Case { down: true, ..Case::new("loopback, aes, FEC 10/3, down", PathBetween::Loopback, WIDE, 300) },
    Case::new(
        "loopback, salsa20, no FEC",
        PathBetween::Loopback,
        "-mode fast3 -sndwnd 1024 -rcvwnd 1024 -nocomp -crypt salsa20 -ds 0 -ps 0",
        300,
    ),
    Case::new(
        "loopback, none, no FEC, smux 2",
        PathBetween::Loopback,
        "-mode fast3 -sndwnd 1024 -rcvwnd 1024 -nocomp -crypt none -ds 0 -ps 0 -smuxver 2",
        300,
    ),
    Case::new(
        "loopback, aes, FEC 10/3, compressed",
        PathBetween::Loopback,
        "-mode fast3 -sndwnd 1024 -rcvwnd 1024",
        300,
    ),
    Case {
        bar: None,
        ..Case::new(
            "loopback, twofish, no FEC",
            PathBetween::Loopback,
            "-mode fast3 -sndwnd 1024 -rcvwnd 1024 -nocomp -crypt twofish -ds 0 -ps 0",
            100,
        )
    },
    Case {
        bar: None,
        ..Case::new(
            "loopback, 3des, no FEC",
            PathBetween::Loopback,
            "-mode fast3 -sndwnd 1024 -rcvwnd 1024 -nocomp -crypt 3des -ds 0 -ps 0",
            40,
        )
    },
    Case::new("loopback, all by default", PathBetween::Loopback, "", 100),
    Case::new("lossy, aes, FEC 10/3", PathBetween::Lossy, WIDE, 60),
    Case::new("lossy, all by default", PathBetween::Lossy, "", 20),
    Case {
        ours: Some("-mode auto"),
        bar: Some(2.0),
        ..Case::new("lossy, kcptun by default, ours with mode auto", PathBetween::Lossy, "", 20)
    },
    Case {
        ours: Some("-mode auto -nocomp"),
        bar: None,
        ..Case::new(
            "lossy, kcptun with fast3 and FEC 10/3, ours with mode auto",
            PathBetween::Lossy,
            WIDE,
            60,
        )
    },
];

impl Case {
    const fn new(name: &'static str, path: PathBetween, flags: &'static str, megabytes: usize) -> Self {
        let bar = match path {
            PathBetween::Loopback => 3.0,
            PathBetween::Lossy => 1.0,
        };
        Self { name, path, flags, ours: None, megabytes, down: false, bar: Some(bar) }
    }

    /// Says what is not good enough; whether all is.
    fn reaches(&self, bar: f64, ratio: Run) -> bool {
        let good = [
            (ratio.megabytes_a_second >= bar, format!("the rate is less than {bar} times kcptun's")),
            (ratio.cpu_seconds < 1.0, "it takes as much processor time as kcptun, or more".to_owned()),
            (ratio.memory < 1.0, "it takes as much memory as kcptun, or more".to_owned()),
        ];
        for (_, why) in good.iter().filter(|(good, _)| !good) {
            println!("  FAILED: {}: {why}", self.name);
        }
        good.iter().all(|(good, _)| *good)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Kcptuns,
}

/// What one run took.
#[derive(Clone, Copy)]
struct Run {
    megabytes_a_second: f64,
    cpu_seconds: f64,
    /// MB.
    memory: f64,
}

#[tokio::main]
async fn main() -> io::Result<ExitCode> {
    let (mut rounds, mut judge) = (ROUNDS, false);
    let mut wanted = Vec::new();
    for argument in std::env::args().skip(1) {
        match &*argument {
            // Cargo's own.
            "--bench" => {}
            "--quick" => rounds = QUICK,
            "--bars" => judge = true,
            _ => wanted.push(argument),
        }
    }
    let cases: Vec<Case> = CASES
        .into_iter()
        .filter(|case| wanted.is_empty() || wanted.iter().any(|word| case.name.contains(word.as_str())))
        .filter(|case| !judge || case.bar.is_some())
        .map(|case| Case { megabytes: if judge { case.megabytes / 3 } else { case.megabytes }, ..case })
        .collect();
    if cases.is_empty() {
        return Err(io::Error::other("no case has such a name"));
    }
    println!("medians of {rounds} rounds in turn: MB/s, CPU seconds, MB of memory at the peak");
    let mut good = true;
    for case in &cases {
        let ratio = compare(case, rounds).await?;
        if let (true, Some(bar)) = (judge, case.bar) {
            good &= case.reaches(bar, ratio);
        }
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Both pairs in turn. What ours took, as multiples of what kcptun's took.
async fn compare(case: &Case, rounds: usize) -> io::Result<Run> {
    let (mut ours, mut kcptuns) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut order = [Whose::Ours, Whose::Kcptuns];
        order.rotate_left(round % 2);
        for whose in order {
            let run = run(case, whose).await?;
            if whose == Whose::Ours { ours.push(run) } else { kcptuns.push(run) }
        }
    }
    let (ours, kcptuns) = (medians(&ours), medians(&kcptuns));
    let ratio = Run {
        megabytes_a_second: ours.megabytes_a_second / kcptuns.megabytes_a_second,
        cpu_seconds: ours.cpu_seconds / kcptuns.cpu_seconds,
        memory: ours.memory / kcptuns.memory,
    };
    println!("{}, {} MB", case.name, case.megabytes);
    print("ours", ours);
    print("kcptun's", kcptuns);
    let Run { megabytes_a_second, cpu_seconds, memory } = ratio;
    println!("  ratio    {megabytes_a_second:8.2} {cpu_seconds:8.2} {memory:8.2}");
    Ok(ratio)
}

fn print(name: &str, run: Run) {
    println!("  {name:8} {:8.1} {:8.2} {:8.1}", run.megabytes_a_second, run.cpu_seconds, run.memory);
}

fn medians(runs: &[Run]) -> Run {
    let median = |of: fn(&Run) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Run {
        megabytes_a_second: median(|run| run.megabytes_a_second),
        cpu_seconds: median(|run| run.cpu_seconds),
        memory: median(|run| run.memory),
    }
}

async fn run(case: &Case, whose: Whose) -> io::Result<Run> {
    let len = case.megabytes * 1_000_000;
    let down = case.down;
    let target = target(move |mut stream| async move {
        // A first byte says that the connection is there.
        let served = async {
            stream.read_u8().await?;
            stream.write_u8(0).await?;
            if down { send(&mut stream, len).await } else { count(&mut stream, len).await }
        };
        // What fails here fails at the other end as well, which ends the measurement. At its end it cuts this off.
        let _ = served.await;
    })
    .await;
    let flags = match whose {
        Whose::Ours => case.ours.unwrap_or(case.flags),
        Whose::Kcptuns => case.flags,
    };
    let far = SocketAddr::from((unshared(), 4000));
    let relay = match case.path {
        PathBetween::Loopback => None,
        PathBetween::Lossy => {
            let path = LinkSettings::delay(Duration::from_millis(20)).loss(0.05);
            Some(Relay::start(far, &path, 1)?)
        }
    };
    let remote = relay.as_ref().map_or(far, Relay::addr);
    let server = start(whose, &format!("server -l {far} -t {target} {flags}"));
    let client = start(whose, &format!("client -l 127.0.0.1:0 -r {remote} {flags}"));
    let mut stream = TcpStream::connect(client.addr().await).await?;
    stream.write_u8(0).await?;
    stream.read_u8().await?;

    let before = cpu_seconds(&client)? + cpu_seconds(&server)?;
    let began = Instant::now();
    if down {
        count(&mut stream, len).await?
    } else {
        send(&mut stream, len).await?
    }
    let took = began.elapsed().as_secs_f64();
    Ok(Run {
        megabytes_a_second: case.megabytes as f64 / took,
        cpu_seconds: cpu_seconds(&client)? + cpu_seconds(&server)? - before,
        memory: peak_memory(&client)? + peak_memory(&server)?,
    })
}

fn start(whose: Whose, flags: &str) -> Program {
    let words = words(flags, &HashMap::new());
    match whose {
        Whose::Ours => Program::start(Path::new(env!("CARGO_BIN_EXE_tunnel")), &words),
        Whose::Kcptuns => {
            Program::start(&Path::new("/usr/bin").join(format!("kcptun-{}", words[0])), &words[1..])
        }
    }
}

/// Sends bytes that no compression makes less, and waits until they are counted.
async fn send(stream: &mut TcpStream, len: usize) -> io::Result<()> {
    let mut state = 1_u64;
    let block: Vec<u8> = (0..1 << 20)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect();
    let mut left = len;
    while left > 0 {
        let piece = &block[..left.min(block.len())];
        stream.write_all(piece).await?;
        left -= piece.len();
    }
    stream.read_u8().await.map(drop)
}

async fn count(stream: &mut TcpStream, len: usize) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    let mut left = len;
    while left > 0 {
        match stream.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => left -= count,
        }
    }
    stream.write_u8(0).await
}

/// Processor time of a program until now, in its own code and in the system's.
fn cpu_seconds(program: &Program) -> io::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", program.pid()))?;
    // The name, in brackets, may have anything in it.
    let behind_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: u64 =
        behind_name.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    Ok(ticks as f64 / TICKS_A_SECOND)
}

/// In MB.
fn peak_memory(program: &Program) -> io::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", program.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    let kib: f64 = line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    Ok(kib * 1_024.0 / 1e6)
}

const ROUNDS: usize = 7;
const QUICK: usize = 3;
/// `USER_HZ`, which is the same on every Linux that has kcptun's package.
const TICKS_A_SECOND: f64 = 100.0;
