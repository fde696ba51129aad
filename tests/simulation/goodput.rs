//! What a transfer gets through at each loss and round-trip time, kept as a table.
//!
//! A change of the core that moves a number shows here, for better or worse, and the new table is committed with it.

use std::{fmt::Write as _, time::Duration};

use kcp9::{CongestionControl, KcpConfig, NoDelay, proto::Instant};

use kcp9_simulator::{LinkSettings, SERVER, Simulation, Writer, ms};

use crate::snapshot;

const LOSSES: [u32; 5] = [0, 1, 5, 10, 20];
const ROUND_TRIPS: [u64; 3] = [10, 50, 200];
const TOTAL: u64 = 8_000_000;
const LIMIT: Duration = Duration::from_secs(60);
const SEED: u64 = 9;

/// Goodput in kB/s, and resent segments in percent of those sent first.
fn measure(config: &KcpConfig, loss: u32, round_trip: u64) -> (f64, f64) {
    let link = LinkSettings::delay(ms(round_trip) / 2).loss(f64::from(loss) / 100.0);
    let mut simulation = Simulation::new(SEED, config, &link);
    simulation.client().writer = Writer::bulk(TOTAL);
    simulation.start();
    while simulation.step_within(Instant::ZERO + LIMIT) {
        if simulation.ends[SERVER].connection.stats().stream.bytes_read == TOTAL {
            break;
        }
    }
    let read = simulation.ends[SERVER].connection.stats().stream.bytes_read;
    let stats = simulation.client().connection.stats();
    let millis = simulation.now.as_micros() as f64 / 1_000.0;
    (read as f64 / millis, 100.0 * stats.recovery.resends() as f64 / stats.segments.push_sent as f64)
}

fn table(name: &str, config: &KcpConfig) -> String {
    let mut table = format!("{name}\n{:>8}", "loss");
    for round_trip in ROUND_TRIPS {
        write!(table, " | {:>6} ms, resent", round_trip).unwrap();
    }
    table.push('\n');
    for loss in LOSSES {
        write!(table, "{loss:>6} %").unwrap();
        for round_trip in ROUND_TRIPS {
            let (goodput, resent) = measure(config, loss, round_trip);
            write!(table, " | {goodput:>9.0} {resent:>5.1} %").unwrap();
        }
        table.push('\n');
    }
    table
}

fn config(nodelay: NoDelay, window: u32) -> KcpConfig {
    KcpConfig::builder().nodelay(nodelay).send_window(window).recv_window(window).build().unwrap()
}

#[test]
fn goodput_by_loss_and_round_trip() {
    let mut found = format!(
        "Goodput in kB/s of one transfer of {} MB (or {} s of it) by loss, both ways, and round-trip time.\n\
         No limit on the rate of the path; packets of 1,400 bytes.\n",
        TOTAL / 1_000_000,
        LIMIT.as_secs()
    );
    let with = |control| KcpConfig::builder().congestion_control(control).build().unwrap();
    let reno = config(NoDelay { nc: false, ..NoDelay::FAST3 }, 2_048)
        .to_builder()
        .congestion_control(CongestionControl::Kcp)
        .build()
        .unwrap();
    let cases = [
        ("default: fast3 with congestion control after BBR, windows 2,048", KcpConfig::default()),
        ("the same with the delay-based controller", with(CongestionControl::DelayBased)),
        ("the same with BBR version 3", with(CongestionControl::Bbr3)),
        ("the same with CUBIC", with(CongestionControl::Cubic)),
        ("fast3, windows 2,048", config(NoDelay::FAST3, 2_048)),
        ("fast3, windows 256", config(NoDelay::FAST3, 256)),
        ("fast3 with KCP's congestion control, windows 2,048", reno),
        ("normal, windows 256", config(NoDelay::NORMAL, 256)),
        ("ikcp's knobs, windows 128", config(NoDelay::IKCP, 128)),
    ];
    for (name, config) in cases {
        found += "\n";
        found += &table(name, &config);
    }
    snapshot::check("goodput.txt", SEED, &found);
}
