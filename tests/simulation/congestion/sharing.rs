//! Sessions that share a link and the queue before it, as those of one household or of one tunnel do.

use std::{fmt::Write as _, time::Duration};

use kcp9::{CongestionControl, KcpConfig, NoDelay};

use kcp9_simulator::{Crowd, LinkSettings, Writer, ms};

use super::SECOND;
use crate::snapshot;

/// 100 Mbit/s.
const RATE: u64 = 12_500_000;
/// What is under way at that rate in a round trip of 50 ms.
const UNDER_WAY: usize = RATE as usize / 20;

/// Each way, behind a queue of `queue` bytes.
fn link(queue: usize) -> LinkSettings {
    LinkSettings { jitter: ms(1), ..LinkSettings::delay(ms(25)).rate(RATE, queue) }
}

/// What sessions did.
struct Outcome {
    /// Of the link's rate, as payload.
    share: f64,
    /// Jain's index: 1 where all got as much, 1 / n where one got all.
    fairness: f64,
    /// Most that waited for the link, of what is under way without a queue.
    queue: f64,
    /// Segments resent, of those sent first.
    resent: f64,
}

/// Segments that the clients have resent, and those that they have sent first.
fn sends(crowd: &mut Crowd) -> [u64; 2] {
    crowd.sessions.iter_mut().fold([0, 0], |[resends, sent], session| {
        let stats = session.client().connection.stats();
        [resends + stats.recovery.resends(), sent + stats.segments.push_sent]
    })
}

/// `count` sessions, which begin one after the other, on the same link of 50 ms behind a queue of `queue` bytes: what they do
/// from 10 s on, for 20.
fn run(seed: u64, config: &KcpConfig, count: usize, queue: usize) -> Outcome {
    let time = 20 * SECOND;
    let mut crowd = Crowd::new(seed, count, config, &link(queue));
    for index in 0..count {
        crowd.sessions[index].client().writer = Writer::bulk(u64::MAX);
        crowd.run_for(Duration::from_micros(17_300));
    }
    crowd.run_for(10 * SECOND);
    crowd.take_longest_queue();
    let before = sends(&mut crowd);
    let read = crowd.read_in(time);
    let after = sends(&mut crowd);
    let sum = read.iter().sum::<u64>() as f64;
    let squares: f64 = read.iter().map(|read| (*read as f64).powi(2)).sum();
    Outcome {
        share: sum / (RATE as f64 * time.as_secs_f64()),
        fairness: sum.powi(2) / (count as f64 * squares),
        queue: crowd.take_longest_queue() as f64 / UNDER_WAY as f64,
        resent: (after[0] - before[0]) as f64 / (after[1] - before[1]) as f64,
    }
}

/// Behind startup each gets about as much, and the queue stays short however long they go on: none sees the path empty by
/// itself.
#[test]
fn sessions_that_share_a_link_do_not_fill_its_queue() {
    for (count, longest) in [(2, 1.1), (8, 2.2)] {
        for seed in 0..2 {
            let Outcome { share, fairness, queue, resent } =
                run(seed, &KcpConfig::default(), count, 10 * UNDER_WAY);
            let what = format!(
                "seed {seed}, {count} sessions: {share:.3} of the rate, fairness {fairness:.3}, queue {queue:.2}, \
                 {resent:.4} resent"
            );
            assert!(share >= 0.96 && fairness >= 0.95, "{what}");
            assert!(queue <= longest && resent < 0.001, "{what}");
        }
    }
}

/// A queue that holds as much as is under way does not overflow for two, and for eight seldom.
#[test]
fn sessions_that_share_a_short_queue_seldom_overflow_it() {
    for (count, seeds, most, most_on_average) in [(2, 2, 0.02, 0.02), (8, 4, 0.12, 0.081)] {
        let mut sum = 0.0;
        for seed in 0..seeds {
            let Outcome { share, fairness, resent, .. } = run(seed, &KcpConfig::default(), count, UNDER_WAY);
            sum += resent;
            let what = format!(
                "seed {seed}, {count} sessions: {share:.3} of the rate, fairness {fairness:.3}, {resent:.4} resent"
            );
            assert!(share >= 0.95 && fairness >= 0.95 && resent <= most, "{what}");
        }
        let mean = sum / f64::from(seeds as u32);
        assert!(mean <= most_on_average, "{count} sessions: {mean:.4} resent on average");
    }
}

/// Here packets come in batches, as at a receiver that gets the processor only now and then, and so do their ACKs. Eight
/// sessions that all take room for their batches would overflow the buffer before it again and again.
#[test]
fn sessions_whose_acks_come_in_batches_seldom_overflow_a_shared_buffer() {
    const RATE: u64 = 200_000_000;
    let link = LinkSettings {
        jitter: ms(10),
        jitter_hold: ms(10),
        ..LinkSettings::delay(ms(1)).rate(RATE, 1_000_000)
    };
    for seed in 0..2 {
        let mut crowd = Crowd::new(seed, 8, &KcpConfig::default(), &link);
        for index in 0..8 {
            crowd.sessions[index].client().writer = Writer::bulk(u64::MAX);
            crowd.run_for(Duration::from_micros(173));
        }
        crowd.run_for(SECOND / 2);
        let before = sends(&mut crowd);
        let read: u64 = crowd.read_in(SECOND).iter().sum();
        let after = sends(&mut crowd);
        let share = read as f64 / RATE as f64;
        let resent = (after[0] - before[0]) as f64 / (after[1] - before[1]) as f64;
        assert!(share >= 0.95 && resent <= 0.08, "seed {seed}: {share:.3} of the rate, {resent:.4} resent");
    }
}

/// Applications that each send too little to fill a window, but together more than the link carries. A window that went on
/// growing would be no limit when the link's queue is full: nearly everything would be sent twice.
#[test]
fn sessions_with_little_to_send_each_do_not_flood_a_link_together() {
    const COUNT: u32 = 32;
    const WRITE: usize = 1_800;
    let pace = ms(4);
    assert!(u64::from(COUNT) * WRITE as u64 * 250 > RATE);
    for seed in 0..2 {
        let mut crowd = Crowd::new(seed, COUNT as usize, &KcpConfig::default(), &link(4 * UNDER_WAY));
        for index in 0..COUNT as usize {
            crowd.sessions[index].client().writer =
                Writer { sizes: WRITE..=WRITE, pace: Some(pace), ..Writer::bulk(u64::MAX) };
            crowd.run_for(Duration::from_micros(173));
        }
        crowd.run_for(5 * SECOND);
        let before = sends(&mut crowd);
        let read: u64 = crowd.read_in(5 * SECOND).iter().sum();
        let after = sends(&mut crowd);
        let share = read as f64 / (5 * RATE) as f64;
        let resent = (after[0] - before[0]) as f64 / (after[1] - before[1]) as f64;
        assert!(share >= 0.95 && resent <= 0.05, "seed {seed}: {share:.3} of the rate, {resent:.4} resent");
    }
}

/// One that comes late finds the queue of the others, which it takes for a part of the path until they empty it.
#[test]
fn a_late_session_gets_its_part() {
    for seed in 0..2 {
        for after in [5, 13] {
            let mut crowd = Crowd::new(seed, 4, &KcpConfig::default(), &link(4 * UNDER_WAY));
            for session in &mut crowd.sessions[..3] {
                session.client().writer = Writer::bulk(u64::MAX);
            }
            crowd.run_for(after * SECOND);
            crowd.sessions[3].client().writer = Writer::bulk(u64::MAX);
            crowd.run_for(15 * SECOND);
            let read = crowd.read_in(10 * SECOND);
            let part = read[3] as f64 / read.iter().sum::<u64>() as f64;

            assert!(
                (0.15..=0.35).contains(&part),
                "seed {seed}, after {after} s: {part:.3} of all, {read:?}"
            );
        }
    }
}

#[test]
#[ignore = "36 links for 30 s: cargo test --release --test simulation -- --ignored sharing_by_queue"]
fn sharing_by_queue_and_sessions() {
    const SEED: u64 = 0;
    let kcp = KcpConfig::builder().congestion_control(CongestionControl::Kcp);
    let cases = [
        ("default: congestion control after BBR", KcpConfig::builder()),
        ("KCP's congestion control", kcp),
        ("fast3, windows 2,048: none", KcpConfig::builder().nodelay(NoDelay::FAST3)),
    ];
    let mut found = String::from(
        "Sessions that share 100 Mbit/s and 50 ms, by the queue before the link, from 10 to 30 s after they began: their share\n\
         of its rate as payload, Jain's index of fairness, and segments resent for each sent first. Queues are of a tenth, half,\n\
         all and ten times of what is under way without one.\n",
    );
    for (name, config) in cases {
        let config = config.build().unwrap();
        write!(found, "\n{name}\n   queue").unwrap();
        for count in [2, 8, 32] {
            write!(found, " | {count:>4} sessions, resent").unwrap();
        }
        found.push('\n');
        for (part, queue) in
            [(0.1, UNDER_WAY / 10), (0.5, UNDER_WAY / 2), (1.0, UNDER_WAY), (10.0, 10 * UNDER_WAY)]
        {
            write!(found, "{part:>8}").unwrap();
            for count in [2, 8, 32] {
                let Outcome { share, fairness, resent, .. } = run(SEED, &config, count, queue);
                write!(found, " | {share:>6.3} {fairness:>6.3} {resent:>8.4}").unwrap();
            }
            found.push('\n');
        }
    }
    snapshot::check("sharing.txt", SEED, &found);
}
