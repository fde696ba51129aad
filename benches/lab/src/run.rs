//! Running scenarios.

use std::{
    io,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use tokio::time::sleep_until;

use crate::{
    bottleneck::Bottleneck,
    evaluate::{self, Conditions, Raw},
    machine,
    options::Run,
    process::{Flow, Programs},
    results::{Record, Results},
    scenario::{self, Scenario},
};

/// Until all processes have read when it begins.
const LEAD: Duration = Duration::from_millis(200);
/// MB/s that CUBIC alone reaches on any machine that is fast enough.
const CHECK_RATE: f64 = 11.0;
/// Microseconds that the shaper may be late on average.
const CHECK_LATENESS: f64 = 300.0;

/// Runs what the command line asks for; writes results after each scenario.
pub(crate) async fn all(options: &Run, programs: &Programs, folder: &Path) -> io::Result<()> {
    let scenarios = options.scenarios().map_err(io::Error::other)?;
    let mut results = Results::open(folder, options.some_only())?;
    let mut failures = 0;
    let check = scenario::self_check().map_err(io::Error::other)?;
    let check =
        measure(&check, scenario::QUICK_SECONDS, options.seed, programs).await.map_err(io::Error::other)?;
    println!("{}", check.line());
    if check.rate < CHECK_RATE {
        eprintln!(
            "\nWARNING: CUBIC alone reaches {:.2} MB/s of 12.1. This machine is too slow or too busy for the link: the \
             results are of the machine, not of the flows.\n",
            check.rate
        );
    }
    results.add(check)?;
    for scenario in scenarios {
        let seconds = options.seconds();
        if let Some(why) = skipped(&scenario, seconds, programs) {
            println!("{}: skipped: {why}", scenario.name);
            continue;
        }
        match measure(&scenario, seconds, options.seed, programs).await {
            Ok(record) => {
                println!("{}", record.line());
                results.add(record)?;
            }
            Err(why) => {
                eprintln!("{}: failed: {why}", scenario.name);
                failures += 1;
            }
        }
    }
    if failures > 0 {
        return Err(io::Error::other(format!("{failures} scenarios failed")));
    }
    Ok(())
}

fn skipped(scenario: &Scenario, seconds: u32, programs: &Programs) -> Option<String> {
    if scenario.last_start() + seconds.div_ceil(3) >= seconds {
        return Some(format!("{seconds} s are too few for a start at {} s", scenario.last_start()));
    }
    scenario.groups.iter().find_map(|group| programs.lacks(group.kind))
}

async fn measure(
    scenario: &Scenario,
    seconds: u32,
    seed: u64,
    programs: &Programs,
) -> Result<Record, String> {
    let kcp9_cc = programs.kcp9_cc.map(|controller| controller.name.to_owned());
    let conditions = Conditions { seconds, seed, kcp9_cc, machine: machine::describe() };
    let raw = run(scenario, seconds, seed, programs).await?;
    let record = evaluate::record(scenario, conditions, raw);
    for (way, lateness) in [("forward", record.lateness_forward), ("back", record.lateness_back)] {
        if lateness.mean_us > CHECK_LATENESS {
            eprintln!(
                "WARNING: {}: packets {way} were {:.0} us late on average",
                scenario.name, lateness.mean_us
            );
        }
    }
    if record.device_drops > 0 {
        eprintln!(
            "WARNING: {}: the shaper did not read {} packets in time",
            scenario.name, record.device_drops
        );
    }
    Ok(record)
}

async fn run(scenario: &Scenario, seconds: u32, seed: u64, programs: &Programs) -> Result<Raw, String> {
    let bottleneck =
        Bottleneck::create(&scenario.link, scenario.flows(), seed).map_err(|error| error.to_string())?;
    let mut flows = Vec::new();
    for group in &scenario.groups {
        for _ in 0..group.count {
            let flow = Flow::start(programs, &bottleneck, group.kind, flows.len()).await?;
            flows.push((flow, group.start));
        }
    }
    let wall =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|error| error.to_string())? + LEAD;
    let begin = Instant::now() + LEAD;
    bottleneck.begin(begin);
    for (flow, start) in &mut flows {
        flow.begin(wall.as_nanos(), *start, seconds).await?;
    }
    sleep_until((begin + Duration::from_secs(seconds.into())).into()).await;
    let mut received = Vec::new();
    for (flow, _) in flows {
        received.push(flow.finish().await?);
    }
    let outcome = bottleneck.finish().map_err(|error| error.to_string())?;
    Ok(Raw { received, outcome })
}
