//! The delay-based controller: queues that stay short, whoever shares them.

use std::time::Duration;

use kcp9::{CongestionControl, KcpConfig};

use kcp9_simulator::{CLIENT, Crowd, LinkSettings, Writer, ms};

use super::{SECOND, with};

/// 100 Mbit/s, and what is under way at that rate in a round trip of 50 ms.
const RATE: u64 = 12_500_000;
const UNDER_WAY: usize = RATE as usize / 20;

/// What sessions did from some time on.
#[derive(Debug)]
struct Outcome {
    /// Each session's part of the link's rate, as payload.
    shares: Vec<f64>,
    /// Packets that did not fit the queue, of those that came to it.
    dropped: f64,
    /// The same of the first second.
    dropped_at_first: f64,
    /// Longest queue, in milliseconds of the link.
    queue: f64,
}

impl Outcome {
    fn share(&self) -> f64 {
        self.shares.iter().sum()
    }

    /// Jain's index.
    fn fairness(&self) -> f64 {
        let squares: f64 = self.shares.iter().map(|share| share * share).sum();
        self.share().powi(2) / (self.shares.len() as f64 * squares)
    }
}

/// Sessions of `configs` on one link, which begin one after the other, and the last one `late` after that. What they do from
/// `begin` after the beginning on, for `time`.
fn run(
    seed: u64,
    configs: &[KcpConfig],
    link: &LinkSettings,
    late: Duration,
    [begin, time]: [Duration; 2],
) -> Outcome {
    let mut crowd = Crowd::of(seed, configs.iter(), link);
    let last = configs.len() - 1;
    for index in 0..last.max(1) {
        crowd.sessions[index].client().writer = Writer::bulk(u64::MAX);
        crowd.run_for(Duration::from_micros(17_300));
    }
    crowd.run_for(SECOND);
    let [dropped, offered] = packets(&mut crowd);
    crowd.run_for(late);
    crowd.sessions[last].client().writer = Writer::bulk(u64::MAX);
    crowd.run_for(begin);
    Outcome { dropped_at_first: dropped / offered, ..measure(&mut crowd, time) }
}

/// Packets that did not fit the queue, and those that came to it.
fn packets(crowd: &mut Crowd) -> [f64; 2] {
    let counts = crowd.sessions.iter_mut().map(|session| session.client().link.counts);
    counts.fold([0.0; 2], |[dropped, offered], counts| {
        [dropped + counts.overflowed as f64, offered + counts.offered as f64]
    })
}

/// What the sessions do in the next `time`.
fn measure(crowd: &mut Crowd, time: Duration) -> Outcome {
    crowd.take_longest_queue();
    let before = packets(crowd);
    let read = crowd.read_in(time);
    let after = packets(crowd);
    Outcome {
        shares: read.iter().map(|read| *read as f64 / (RATE as f64 * time.as_secs_f64())).collect(),
        dropped: (after[0] - before[0]) / (after[1] - before[1]),
        dropped_at_first: 0.0,
        queue: crowd.take_longest_queue() as f64 / RATE as f64 * 1e3,
    }
}

fn delay(count: usize) -> Vec<KcpConfig> {
    vec![with(CongestionControl::DelayBased); count]
}

/// Four, and four of CUBIC.
fn four_beside_cubic() -> Vec<KcpConfig> {
    [delay(4), vec![with(CongestionControl::Cubic); 4]].concat()
}

/// Each way 25 ms, behind a queue of `queue` times what is under way.
fn link(queue: f64) -> LinkSettings {
    let queue = (queue * UNDER_WAY as f64) as usize;
    LinkSettings { jitter: ms(1), ..LinkSettings::delay(ms(25)).rate(RATE, queue) }
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation delay -- --ignored"]
fn sessions_fill_a_link_evenly_and_its_queue_drops_nothing() {
    for (count, queue, longest, most_dropped) in [
        (1, 1.0, 6.0, 0.0),
        (2, 1.0, 12.0, 0.0),
        (8, 1.0, 25.0, 0.0),
        (8, 4.0, 25.0, 0.0),
        (8, 0.25, 12.5, 0.005),
    ] {
        for seed in 0..2 {
            let times = [5 * SECOND, 5 * SECOND];
            let outcome = run(seed, &delay(count), &link(queue), Duration::ZERO, times);
            let what = format!("seed {seed}, {count} sessions, queue {queue}: {outcome:.4?}");
            assert!(outcome.share() >= 0.93 && outcome.fairness() >= 0.93, "{what}");
            assert!(outcome.dropped <= most_dropped && outcome.queue <= longest, "{what}");
        }
    }
}

/// Startup ends before it overflows a queue that holds as much as is under way.
#[test]
fn a_session_that_begins_drops_nothing() {
    for seed in 0..4 {
        let outcome = run(seed, &delay(1), &link(1.0), Duration::ZERO, [SECOND, SECOND]);
        assert!(outcome.dropped_at_first <= 0.01, "seed {seed}: {outcome:.4?}");
    }
}

/// Wherever between two round trips of Startup the path is full.
#[test]
#[ignore = "seconds: cargo test --release --test simulation delay -- --ignored"]
fn a_session_that_begins_drops_nothing_on_any_path() {
    for rtt in [20, 40, 60, 80, 120] {
        let queue = RATE as usize * rtt as usize / 1_000;
        let link = LinkSettings { jitter: ms(1), ..LinkSettings::delay(ms(rtt) / 2).rate(RATE, queue) };
        for seed in 0..3 {
            let outcome = run(seed, &delay(1), &link, Duration::ZERO, [SECOND, SECOND]);
            assert!(outcome.dropped_at_first <= 0.01, "seed {seed}, {rtt} ms: {outcome:.4?}");
        }
    }
}

/// Losses at random take what is lost, and little more.
#[test]
#[ignore = "seconds: cargo test --release --test simulation delay -- --ignored"]
fn losses_at_random_do_not_slow_it_down() {
    for (loss, least) in [(0.01, 0.93), (0.05, 0.85), (0.1, 0.7)] {
        let times = [5 * SECOND, 10 * SECOND];
        for seed in 0..2 {
            let outcome = run(seed, &delay(1), &link(1.0).loss(loss), Duration::ZERO, times);
            let what = format!("seed {seed}, {loss} lost: {outcome:.4?}");
            assert!(outcome.share() >= least && outcome.dropped <= 0.01, "{what}");
        }
    }
    let outcome = run(0, &delay(8), &link(1.0).loss(0.05), Duration::ZERO, [5 * SECOND, 5 * SECOND]);
    assert!(outcome.share() >= 0.85 && outcome.dropped <= 0.01 && outcome.fairness() >= 0.9, "{outcome:.4?}");
}

/// Who comes late takes the queue of the others for a part of the path, until all empty it together.
#[test]
#[ignore = "seconds: cargo test --release --test simulation delay -- --ignored"]
fn a_late_session_gets_its_part_within_ten_seconds() {
    for seed in 0..2 {
        for count in [2, 5] {
            let times = [10 * SECOND, 5 * SECOND];
            let outcome = run(seed, &delay(count), &link(1.0), 5 * SECOND, times);
            let part = outcome.shares[count - 1] * count as f64 / outcome.share();
            let what = format!("seed {seed}, the last of {count}: {part:.2} of a fair part; {outcome:.4?}");
            assert!((0.6..=1.5).contains(&part) && outcome.dropped <= 0.001, "{what}");
        }
    }
}

/// A window that leaves at once is a queue of its own on a slow path, and the three round trips of a drain are long on a long one.
#[test]
#[ignore = "seconds: cargo test --release --test simulation delay -- --ignored"]
fn slow_and_long_paths_are_filled_too() {
    for rate in [500_000, 1_000_000, 3_000_000, 12_500_000] {
        for rtt in [20, 50, 100, 200, 400] {
            let queue = (rate * rtt / 500) as usize;
            let link = LinkSettings { jitter: ms(1), ..LinkSettings::delay(ms(rtt / 2)).rate(rate, queue) };
            let config =
                with(CongestionControl::DelayBased).to_builder().send_window(8_192).recv_window(8_192);
            let mut crowd = Crowd::new(0, 1, &config.build().unwrap(), &link);
            crowd.sessions[0].client().writer = Writer::bulk(u64::MAX);
            let shares = [10, 10].map(|seconds| {
                let read = crowd.read_in(seconds * SECOND)[0];
                read as f64 / (u64::from(seconds) * rate) as f64
            });
            let [dropped, offered] = packets(&mut crowd);
            let what =
                format!("{rate} bytes/s, {rtt} ms: {shares:.3?}, {dropped} of {offered} packets dropped");
            assert!(shares[0] >= 0.45 && shares[1] >= 0.88 && dropped / offered <= 0.02, "{what}");
        }
    }
}

/// CUBIC keeps the queue long, so that drains do not empty it.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn it_holds_its_own_beside_cubic() {
    for seed in 0..2 {
        let outcome = run(seed, &four_beside_cubic(), &link(1.0), Duration::ZERO, [10 * SECOND, 10 * SECOND]);
        let part = outcome.shares[..4].iter().sum::<f64>() / outcome.share();
        let what = format!("seed {seed}: {part:.2} of all; {outcome:.4?}");
        assert!((0.25..=0.75).contains(&part) && outcome.share() >= 0.93, "{what}");
    }
}

/// CUBIC that loses in its first second grows back behind a queue that drains find empty.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn it_holds_its_own_beside_cubic_that_lost_early() {
    for seed in 0..4 {
        let mut crowd = Crowd::of(seed, four_beside_cubic().iter(), &link(1.0));
        for session in &mut crowd.sessions[4..] {
            session.client().link.settings.loss = 0.02;
            session.client().writer = Writer::bulk(u64::MAX);
        }
        crowd.run_for(SECOND);
        for session in &mut crowd.sessions {
            session.client().link.settings.loss = 0.0;
            session.client().writer = Writer::bulk(u64::MAX);
        }
        crowd.run_for(9 * SECOND);
        let read = crowd.read_in(10 * SECOND);
        let part = read[..4].iter().sum::<u64>() as f64 / read.iter().sum::<u64>() as f64;
        assert!((0.35..=0.65).contains(&part), "seed {seed}: {part:.2} of all; {read:?}");
    }
}

/// A session begins every 700 ms. Some take the others' beginnings for BBR or CUBIC, and have much more than the others for a while. Sessions of
/// [`CongestionControl::BbrLike`] drop 36 to 40 % until all have begun.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn sessions_that_begin_one_after_the_other_drop_less_than_those_of_bbr() {
    const COUNT: usize = 16;
    for seed in 0..3 {
        let mut crowd = Crowd::of(seed, delay(COUNT).iter(), &link(1.0));
        for index in 0..COUNT {
            crowd.sessions[index].client().writer = Writer::bulk(u64::MAX);
            crowd.run_for(ms(700));
        }
        let outcome = measure(&mut crowd, 10 * SECOND);
        let [dropped, offered] = packets(&mut crowd);
        let what = format!("seed {seed}: {dropped} of {offered} packets dropped in all; {outcome:.4?}");
        assert!(dropped / offered <= 0.25 && outcome.share() >= 0.9, "{what}");
    }
}

/// The path becomes ten times slower, and ten times faster again.
#[test]
fn it_follows_the_rate_of_the_link() {
    let mut crowd = Crowd::of(0, delay(1).iter(), &link(1.0));
    crowd.sessions[0].client().writer = Writer::bulk(u64::MAX);
    crowd.run_for(5 * SECOND);
    for (rate, settled, least) in [(RATE / 10, 3, 0.85), (RATE, 2, 0.9)] {
        let settings = LinkSettings { rate: Some(rate), ..link(1.0) };
        crowd.sessions[0].client().link.settings = settings;
        crowd.run_for(settled * SECOND);
        let before = crowd.sessions[0].flows[CLIENT].read;
        crowd.run_for(3 * SECOND);
        let share = (crowd.sessions[0].flows[CLIENT].read - before) as f64 / (3 * rate) as f64;
        assert!(share >= least, "{rate} bytes a second: {share:.3} of the rate");
    }
}
