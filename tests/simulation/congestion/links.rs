//! Links that are no plain wire: the bursts of Wi-Fi, the rates of a moving phone, a policer.

use std::time::Duration;

use kcp9::{CongestionControl, KcpConfig};

use kcp9_simulator::{Crowd, LinkSettings, SERVER, Shape, Writer, ms};

use super::{SECOND, with};

/// 100 Mbit/s, and what is under way at that rate in a round trip of 50 ms.
const RATE: u64 = 12_500_000;
const UNDER_WAY: usize = RATE as usize / 20;

/// What sessions did.
#[derive(Debug)]
struct Outcome {
    /// Payload, MB/s.
    rate: f64,
    /// Jain's index.
    fairness: f64,
    /// Packets that the link dropped, of those that came to it.
    dropped: f64,
}

/// Sessions on a link of that shape, with a queue of what is under way. ACKs come back over a wire, or in bursts, too.
fn run(seed: u64, count: usize, config: &KcpConfig, shape: &Shape, [begin, time]: [Duration; 2]) -> Outcome {
    let way = LinkSettings {
        shape: shape.clone(),
        jitter: ms(1),
        ..LinkSettings::delay(ms(25)).rate(RATE, UNDER_WAY)
    };
    let mut crowd = Crowd::new(seed, count, config, &way);
    for index in 0..count {
        let session = &mut crowd.sessions[index];
        if !matches!(shape, Shape::Bursts(_)) {
            session.ends[SERVER].link.settings.shape = Shape::Fixed;
        }
        session.client().writer = Writer::bulk(u64::MAX);
        crowd.run_for(Duration::from_micros(17_300));
    }
    crowd.run_for(begin);
    let packets = |crowd: &mut Crowd| {
        let counts = crowd.sessions.iter_mut().map(|session| session.client().link.counts);
        counts.fold([0.0; 2], |[dropped, offered], counts| {
            [dropped + counts.overflowed as f64, offered + counts.offered as f64]
        })
    };
    let before = packets(&mut crowd);
    let read: Vec<f64> = crowd.read_in(time).iter().map(|read| *read as f64).collect();
    let after = packets(&mut crowd);
    let sum: f64 = read.iter().sum();
    Outcome {
        rate: sum / time.as_secs_f64() / 1e6,
        fairness: sum.powi(2) / (count as f64 * read.iter().map(|read| read * read).sum::<f64>()),
        dropped: (after[0] - before[0]) / (after[1] - before[1]),
    }
}

/// Bounds for the delay-based controller with so many sessions: the least rate, the least fairness, and the most that is dropped.
fn holds(shape: &Shape, bounds: &[(usize, f64, f64, f64)]) {
    for &(count, rate, fairness, dropped) in bounds {
        for seed in 0..3 {
            let outcome =
                run(seed, count, &with(CongestionControl::DelayBased), shape, [SECOND, 20 * SECOND]);
            let what = format!("seed {seed}, {count} sessions: {outcome:.4?}");
            assert!(outcome.rate >= rate && outcome.fairness >= fairness, "{what}");
            assert!(outcome.dropped <= dropped, "{what}");
        }
    }
}

/// Packets and ACKs wait up to 10 ms for their bursts, which is no queue.
#[test]
#[ignore = "seconds: cargo test --release --test simulation links -- --ignored"]
fn the_bursts_of_wifi_are_no_queue() {
    holds(&Shape::Bursts(4_000..=10_000), &[(1, 11.0, 0.99, 0.001), (8, 11.5, 0.8, 0.01)]);
}

/// Eight sessions of the default have 4.7 to 6.1 MB/s there.
#[test]
#[ignore = "seconds: cargo test --release --test simulation links -- --ignored"]
fn a_link_whose_rate_changes_tenfold_is_used() {
    holds(&Shape::Changing(200_000..=800_000), &[(1, 3.0, 0.99, 0.1), (8, 4.0, 0.4, 0.2)]);
}

/// A session alone. Each of several takes what the others lose for its own, and they drop a third to a half.
#[test]
#[ignore = "seconds: cargo test --release --test simulation links -- --ignored"]
fn what_a_policer_lets_pass_is_found() {
    holds(&Shape::Policer(UNDER_WAY as u64 / 8), &[(1, 9.0, 0.99, 0.02)]);
}
