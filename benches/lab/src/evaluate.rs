//! From what was counted to the figures of a scenario.

use crate::{
    bottleneck::{Outcome, Shaped},
    kind::Group,
    link::{
        Direction, Service,
        queue::SAMPLE,
        tally::{BIN, FlowTally, Tally, bin_at},
    },
    results::{FirstSecond, FlowRecord, GroupRecord, LateComer, Record},
    scenario::Scenario,
};

/// Bins of received bytes in a step of what is drawn.
const BINS_OF_STEP: usize = 2;
/// Seconds of it.
const STEP: f64 = BIN * BINS_OF_STEP as f64;

/// What was counted.
pub(crate) struct Raw {
    /// Payload of each flow by bins.
    pub(crate) received: Vec<Vec<u64>>,
    pub(crate) outcome: Outcome,
}

/// How it was counted.
pub(crate) struct Conditions {
    pub(crate) seconds: u32,
    pub(crate) seed: u64,
    pub(crate) kcp9_cc: Option<String>,
    pub(crate) machine: String,
}

pub(crate) fn record(scenario: &Scenario, conditions: Conditions, raw: Raw) -> Record {
    let Conditions { seconds, seed, kcp9_cc, machine } = conditions;
    let Raw { received, outcome } = raw;
    let Outcome { forward, back, device_drops } = outcome;
    let end = f64::from(seconds);
    let from = warm_up(seconds);
    let Shaped { flows: tallies, queue, lateness, realtime } = forward;
    let delays = queue.into_delays(end);
    let evaluated = &delays[((from / SAMPLE) as usize).min(delays.len())..];

    let mut flows = Vec::new();
    for group in &scenario.groups {
        for index in flows.len()..flows.len() + group.count {
            let rate = rate(&received[index], from, end);
            flows.push(flow_record(group, rate, &tallies[index], from, end));
        }
    }
    let rate = flows.iter().map(|flow| flow.rate).sum();
    let (mut all, mut first_second) = (Tally::default(), Tally::default());
    for tally in &tallies {
        all += tally.between(from, end);
        first_second += tally.first_second;
    }
    let Direction { shape, rate: link_rate, .. } = scenario.link.forward;
    let capacity = Service::capacity(shape, link_rate, seed, from, end);
    Record {
        name: scenario.name.clone(),
        link: scenario.link.name.clone(),
        seconds,
        from,
        seed,
        kcp9_cc,
        late_comer: late_comer(scenario, seconds, &received),
        groups: group_records(scenario, rate, &flows, &received),
        rate: rounded(rate),
        link_percent: rounded(all.departed_bytes as f64 / capacity * 100.0),
        jain: rounded(jain(flows.iter().map(|flow| flow.rate))),
        flows,
        queue_drops_percent: rounded(percent(all.dropped, all.offered())),
        random_drops_percent: rounded(percent(all.lost, all.all())),
        queue_mean_ms: rounded(mean(evaluated) * 1e3),
        queue_p95_ms: rounded(percentile(evaluated, 0.95) * 1e3),
        first_second: first(first_second),
        lateness_forward: lateness,
        lateness_back: back.lateness,
        realtime: realtime && back.realtime,
        device_drops,
        step: STEP,
        queue_ms: delays
            .chunks((STEP / SAMPLE).round() as usize)
            .map(|step| rounded(mean(step) * 1e3))
            .collect(),
        machine,
    }
}

fn flow_record(group: &Group, rate: f64, tally: &FlowTally, from: f64, end: f64) -> FlowRecord {
    let Tally { passed, lost, dropped, departed_bytes } = tally.between(from, end);
    FlowRecord {
        kind: group.kind.to_string(),
        start: group.start,
        rate: rounded(rate),
        passed,
        lost,
        dropped,
        departed_bytes,
        queue_drops_percent: rounded(percent(dropped, passed + dropped)),
        first_second: first(tally.first_second),
    }
}

/// The groups' parts of the rate of all flows.
fn group_records(
    scenario: &Scenario,
    rate: f64,
    mut flows: &[FlowRecord],
    mut received: &[Vec<u64>],
) -> Vec<GroupRecord> {
    let mut groups = Vec::new();
    for group in &scenario.groups {
        let (own, received_by_own);
        (own, flows) = flows.split_at(group.count);
        (received_by_own, received) = received.split_at(group.count);
        let sum: f64 = own.iter().map(|flow| flow.rate).sum();
        groups.push(GroupRecord {
            name: group.to_string(),
            kind: group.kind.to_string(),
            count: group.count,
            start: group.start,
            share_percent: if rate > 0.0 { rounded(sum / rate * 100.0) } else { 0.0 },
            rates: steps(received_by_own),
        });
    }
    groups
}

/// When what is evaluated begins: a third is left to starting up.
fn warm_up(seconds: u32) -> f64 {
    (f64::from(seconds) / 3.0 / BIN).round() * BIN
}

/// The last group's rate for each flow over that of all flows, once it had as long to start up as the others.
fn late_comer(scenario: &Scenario, seconds: u32, received: &[Vec<u64>]) -> Option<LateComer> {
    let last = scenario.groups.last().filter(|last| last.start > 0)?;
    let from = f64::from(last.start) + warm_up(seconds);
    let mean_rate = |flows: &[Vec<u64>]| {
        flows.iter().map(|bins| rate(bins, from, seconds.into())).sum::<f64>() / flows.len() as f64
    };
    let own = mean_rate(&received[received.len() - last.count..]);
    Some(LateComer { from, of_fair_share: rounded(own / mean_rate(received).max(f64::MIN_POSITIVE)) })
}

/// MB/s between two times.
fn rate(bins: &[u64], from: f64, to: f64) -> f64 {
    let bytes: u64 = bins.iter().take(bin_at(to)).skip(bin_at(from)).sum();
    bytes as f64 / (to - from) / 1e6
}

/// MB/s of all of them together in each step.
fn steps(flows: &[Vec<u64>]) -> Vec<f64> {
    let bins = flows.iter().map(Vec::len).max().unwrap_or(0);
    let bytes = |bin: usize| flows.iter().filter_map(|flow| flow.get(bin)).sum::<u64>();
    let bins: Vec<_> = (0..bins).map(bytes).collect();
    let of_step = |step: &[u64]| step.iter().sum::<u64>() as f64 / (step.len() as f64 * BIN) / 1e6;
    bins.chunks(BINS_OF_STEP).map(|step| rounded(of_step(step))).collect()
}

/// Jain's index: 1 if all are alike, `1 / n` if one of `n` has it all.
fn jain(rates: impl Iterator<Item = f64>) -> f64 {
    let (count, sum, squares) = rates.fold((0.0, 0.0, 0.0), |(count, sum, squares), rate| {
        (count + 1.0, sum + rate, squares + rate * rate)
    });
    if squares > 0.0 { sum * sum / (count * squares) } else { 0.0 }
}

fn first(tally: Tally) -> FirstSecond {
    let packets = tally.all();
    FirstSecond { packets, drops: tally.dropped, drops_percent: rounded(percent(tally.dropped, packets)) }
}

fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 * 100.0 }
}

fn mean(values: &[f32]) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len() as f64
    }
}

fn percentile(values: &[f32], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).map_or(0.0, |value| f64::from(*value))
}

/// Figures of a measurement have no more digits than these.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bottleneck::Lateness,
        link::{Link, queue::Queue},
        scenario::Scenario,
    };

    const MB: u64 = 100_000;

    fn outcome(link: &Link, flows: Vec<FlowTally>) -> Outcome {
        let shaped = |direction, flows| Shaped {
            flows,
            queue: Queue::new(direction, 1),
            lateness: Lateness::default(),
            realtime: true,
        };
        Outcome {
            forward: shaped(&link.forward, flows),
            back: shaped(&link.back, Vec::new()),
            device_drops: 0,
        }
    }

    fn scenario(flows: &str) -> Scenario {
        let link = Link::fixed(1.0, 0.0);
        Scenario { name: flows.to_owned(), groups: crate::kind::groups(flows).unwrap(), link }
    }

    fn conditions(seconds: u32) -> Conditions {
        Conditions { seconds, seed: 1, kcp9_cc: None, machine: String::new() }
    }

    fn evaluated(flows: &str, seconds: u32, received: Vec<Vec<u64>>) -> Record {
        let scenario = scenario(flows);
        let tallies = vec![FlowTally::default(); received.len()];
        let outcome = outcome(&scenario.link, tallies);
        record(&scenario, conditions(seconds), Raw { received, outcome })
    }

    #[test]
    fn jains_index_tells_how_even_rates_are() {
        assert_eq!(jain([3.0, 3.0, 3.0].into_iter()), 1.0);
        assert_eq!(jain([3.0, 0.0, 0.0, 0.0].into_iter()), 0.25);
        assert_eq!(jain([0.0].into_iter()), 0.0);
    }

    #[test]
    fn the_first_third_does_not_count() {
        let mut bins = vec![9 * MB; 100];
        bins.extend([3 * MB; 200]);
        let record = evaluated("1 kcp9", 30, vec![bins]);
        assert_eq!((record.from, record.rate), (10.0, 3.0));
        assert_eq!(record.groups[0].rates.len(), 150);
        assert_eq!((record.groups[0].rates[49], record.groups[0].rates[50]), (9.0, 3.0));
    }

    #[test]
    fn shares_are_of_groups_and_a_late_comers_of_a_fair_share() {
        let mut late = vec![0; 100];
        late.extend([2 * MB; 100]);
        late.extend([MB; 100]);
        let record = evaluated("2 kcp9 + 1 cubic@10", 30, vec![vec![4 * MB; 300], vec![4 * MB; 300], late]);
        assert_eq!(record.groups[1].share_percent, rounded(1.5 / 9.5 * 100.0));
        let late = record.late_comer.unwrap();
        assert_eq!((late.from, late.of_fair_share), (20.0, rounded(1.0 / 3.0)));
    }

    #[test]
    fn percentiles_are_of_sorted_values() {
        let values: Vec<_> = (0..100).rev().map(|value| value as f32).collect();
        assert_eq!(percentile(&values, 0.95), 95.0);
        assert_eq!(percentile(&[], 0.95), 0.0);
    }

    #[test]
    fn drops_are_of_what_came_to_the_queue() {
        use crate::link::queue::Fate;
        let mut flow = FlowTally::default();
        for fate in [Fate::Departs(0.0), Fate::Departs(0.0), Fate::Departs(0.0), Fate::Dropped, Fate::Lost] {
            flow.count(2.5, fate, 1_500);
        }
        let scenario = scenario("1 kcp9");
        let outcome = outcome(&scenario.link, vec![flow]);
        let record = record(&scenario, conditions(3), Raw { received: vec![vec![0; 30]], outcome });
        assert_eq!((record.queue_drops_percent, record.random_drops_percent), (25.0, 20.0));
        assert_eq!(record.first_second, FirstSecond { packets: 5, drops: 1, drops_percent: 20.0 });
        assert_eq!(record.flows[0].passed, 3);
    }
}
