//! Sessions that share a link and the queue before it, as those of one household or of one tunnel do.

use std::{fmt::Write as _, time::Duration};

use kcp9::{CongestionControl, KcpConfig, NoDelay};

use kcp9_simulator::{Crowd, LinkSettings, Simulation, Writer, ms};

use super::{SECOND, kcp, none, with};
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
    sends_of(&mut crowd.sessions)
}

fn sends_of<'a>(sessions: impl IntoIterator<Item = &'a mut Simulation>) -> [u64; 2] {
    sessions.into_iter().fold([0, 0], |[resends, sent], session| {
        let stats = session.client().connection.stats();
        [resends + stats.recovery.resends(), sent + stats.segments.push_sent]
    })
}

/// `count` sessions, which begin one after the other, on the same link of 50 ms behind a queue of `queue` bytes: what they do
/// from 10 s on, for 20.
fn run(seed: u64, config: &KcpConfig, count: usize, queue: usize) -> Outcome {
    run_within(seed, config, count, queue, [10 * SECOND, 20 * SECOND])
}

/// As [`run`], with other times.
fn run_within(
    seed: u64,
    config: &KcpConfig,
    count: usize,
    queue: usize,
    [begin, time]: [Duration; 2],
) -> Outcome {
    let mut crowd = Crowd::new(seed, count, config, &link(queue));
    for index in 0..count {
        crowd.sessions[index].client().writer = Writer::bulk(u64::MAX);
        crowd.run_for(Duration::from_micros(17_300));
    }
    crowd.run_for(begin);
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
#[ignore = "seconds: cargo test --release --test simulation sharing -- --ignored"]
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
fn seldom_overflow_a_short_queue(runs: [(usize, u64, f64, f64); 2]) {
    for (count, seeds, most, most_on_average) in runs {
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

#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn sessions_that_share_a_short_queue_seldom_overflow_it() {
    seldom_overflow_a_short_queue([(2, 1, 0.02, 0.02), (8, 1, 0.12, 0.12)]);
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation sharing -- --ignored"]
fn sessions_that_share_a_short_queue_seldom_overflow_it_on_average() {
    seldom_overflow_a_short_queue([(2, 2, 0.02, 0.02), (8, 4, 0.12, 0.081)]);
}

/// It shares by chance: who lost last has least, and may not catch up for long. Two that lost early leave most of the link
/// empty. But it never floods.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn kcps_control_shares_badly_but_resends_little() {
    for (count, queue, least) in [(2, 10, 0.12), (8, 10, 0.6), (2, 1, 0.12), (8, 1, 0.6)] {
        for seed in 0..2 {
            let times = [2 * SECOND, 4 * SECOND];
            let Outcome { share, resent, .. } = run_within(seed, &kcp(), count, queue * UNDER_WAY, times);
            let what = format!(
                "seed {seed}, {count} sessions, queue {queue}: {share:.3} of the rate, {resent:.4} resent"
            );
            assert!(share >= least && resent <= 0.025, "{what}");
        }
    }
}

/// Two fill the longest queue here and share the link evenly. What does not fit the queue is lost and sent again, several times.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn without_a_controller_sessions_fill_any_queue_and_flood_it() {
    for (count, queue, resends) in [(2, 10, 0.1..1.0), (8, 10, 1.0..3.0), (2, 1, 1.0..3.0), (8, 1, 4.0..15.0)]
    {
        let times = [SECOND, 2 * SECOND];
        let Outcome { share, fairness, queue: waiting, resent } =
            run_within(0, &none(), count, queue * UNDER_WAY, times);
        let what = format!(
            "{count} sessions, queue {queue}: {share:.3} of the rate, fairness {fairness:.3}, queue {waiting:.2}, \
             {resent:.4} resent"
        );
        assert!(waiting >= 0.98 * queue as f64 && resends.contains(&resent), "{what}");
        assert!(share >= 0.6 && (count > 2 || fairness >= 0.95), "{what}");
    }
}

/// Eight sessions on a fast link whose packets come in batches, as at a receiver that gets the processor only now and then, and
/// so do their ACKs: their share of the rate from `begin` on, for twice as long, and segments resent, of those sent first.
fn in_batches(seed: u64, config: &KcpConfig, begin: Duration) -> [f64; 2] {
    const RATE: u64 = 200_000_000;
    let link = LinkSettings {
        jitter: ms(10),
        jitter_hold: ms(10),
        ..LinkSettings::delay(ms(1)).rate(RATE, 1_000_000)
    };
    let mut crowd = Crowd::new(seed, 8, config, &link);
    for index in 0..8 {
        crowd.sessions[index].client().writer = Writer::bulk(u64::MAX);
        crowd.run_for(Duration::from_micros(173));
    }
    crowd.run_for(begin);
    shares(&mut crowd, 2 * begin, RATE)
}

/// What sessions do from now on, for `time`: their share of `rate`, and segments resent, of those sent first.
fn shares(crowd: &mut Crowd, time: Duration, rate: u64) -> [f64; 2] {
    let before = sends(crowd);
    let read: u64 = crowd.read_in(time).iter().sum();
    let after = sends(crowd);
    let share = read as f64 / (rate as f64 * time.as_secs_f64());
    [share, (after[0] - before[0]) as f64 / (after[1] - before[1]) as f64]
}

/// If all took room for their batches, they would overflow the buffer before the link again and again.
#[test]
#[ignore = "seconds: cargo test --release --test simulation sharing -- --ignored"]
fn sessions_whose_acks_come_in_batches_seldom_overflow_a_shared_buffer() {
    for seed in 0..2 {
        let [share, resent] = in_batches(seed, &KcpConfig::default(), SECOND / 2);
        assert!(share >= 0.95 && resent <= 0.08, "seed {seed}: {share:.3} of the rate, {resent:.4} resent");
    }
}

#[test]
fn kcps_control_seldom_overflows_a_shared_buffer_when_acks_come_in_batches() {
    for seed in 0..2 {
        let [share, resent] = in_batches(seed, &kcp(), SECOND / 8);
        assert!(share >= 0.7 && resent <= 0.06, "seed {seed}: {share:.3} of the rate, {resent:.4} resent");
    }
}

#[test]
fn without_a_controller_batches_overflow_a_shared_buffer_all_the_time() {
    let [share, resent] = in_batches(0, &none(), SECOND / 8);
    assert!(share >= 0.7 && (1.0..3.0).contains(&resent), "{share:.3} of the rate, {resent:.4} resent");
}

/// Applications that each send too little to fill a window, but together more than the link carries: what they do from `begin`
/// on, for as long.
fn with_little_each(seed: u64, config: &KcpConfig, begin: Duration) -> [f64; 2] {
    const COUNT: u32 = 32;
    const WRITE: usize = 1_800;
    let pace = ms(4);
    assert!(u64::from(COUNT) * WRITE as u64 * 250 > RATE);
    let mut crowd = Crowd::new(seed, COUNT as usize, config, &link(4 * UNDER_WAY));
    for index in 0..COUNT as usize {
        crowd.sessions[index].client().writer =
            Writer { sizes: WRITE..=WRITE, pace: Some(pace), ..Writer::bulk(u64::MAX) };
        crowd.run_for(Duration::from_micros(173));
    }
    crowd.run_for(begin);
    shares(&mut crowd, begin, RATE)
}

/// A window that went on growing would be no limit when the link's queue is full: nearly everything would be sent twice.
#[test]
#[ignore = "seconds: cargo test --release --test simulation sharing -- --ignored"]
fn sessions_with_little_to_send_each_do_not_flood_a_link_together() {
    for seed in 0..2 {
        let [share, resent] = with_little_each(seed, &KcpConfig::default(), 5 * SECOND);
        assert!(share >= 0.95 && resent <= 0.05, "seed {seed}: {share:.3} of the rate, {resent:.4} resent");
    }
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn kcps_control_does_not_flood_a_link_with_little_from_each() {
    for seed in 0..2 {
        let [share, resent] = with_little_each(seed, &kcp(), 2 * SECOND);
        assert!(share >= 0.95 && resent <= 0.03, "seed {seed}: {share:.3} of the rate, {resent:.4} resent");
    }
}

/// A fourth session begins `after` the others: its part of all that they carry from `settled` after that on, for `time`.
fn part_of_a_late_session(
    seed: u64,
    config: &KcpConfig,
    after: Duration,
    settled: Duration,
    time: Duration,
) -> f64 {
    let mut crowd = Crowd::new(seed, 4, config, &link(4 * UNDER_WAY));
    for session in &mut crowd.sessions[..3] {
        session.client().writer = Writer::bulk(u64::MAX);
    }
    crowd.run_for(after);
    crowd.sessions[3].client().writer = Writer::bulk(u64::MAX);
    crowd.run_for(settled);
    let read = crowd.read_in(time);
    read[3] as f64 / read.iter().sum::<u64>() as f64
}

/// One that comes late finds the queue of the others, which it takes for a part of the path until they empty it.
#[test]
#[ignore = "seconds: cargo test --release --test simulation sharing -- --ignored"]
fn a_late_session_gets_its_part() {
    for seed in 0..2 {
        for after in [5, 13] {
            let config = KcpConfig::default();
            let part = part_of_a_late_session(seed, &config, after * SECOND, 15 * SECOND, 10 * SECOND);
            assert!((0.15..=0.35).contains(&part), "seed {seed}, after {after} s: {part:.3} of all");
        }
    }
}

/// With KCP's control that may be most or little: see above.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn a_late_session_with_kcps_control_gets_something() {
    for seed in 0..3 {
        let part = part_of_a_late_session(seed, &kcp(), 5 * SECOND, 5 * SECOND, 5 * SECOND);
        assert!((0.015..0.85).contains(&part), "seed {seed}: {part:.3} of all");
    }
}

/// What all sessions of a kind do: their share of the link's rate as payload, and segments resent, of those sent first.
type Kind = [f64; 2];

/// `count` sessions of each of two kinds, which begin in turns, on the same link of 50 ms behind a queue of `queue` bytes: what
/// they do from `begin` on, for `time`.
fn compete(
    seed: u64,
    configs: [&KcpConfig; 2],
    count: usize,
    queue: usize,
    [begin, time]: [Duration; 2],
) -> [Kind; 2] {
    let mut crowd = Crowd::of(seed, configs.into_iter().cycle().take(2 * count), &link(queue));
    for index in 0..2 * count {
        crowd.sessions[index].client().writer = Writer::bulk(u64::MAX);
        crowd.run_for(Duration::from_micros(17_300));
    }
    crowd.run_for(begin);
    let sends =
        |crowd: &mut Crowd| [0, 1].map(|kind| sends_of(crowd.sessions.iter_mut().skip(kind).step_by(2)));
    let before = sends(&mut crowd);
    let read = crowd.read_in(time);
    let after = sends(&mut crowd);
    [0, 1].map(|kind| {
        let sum: u64 = read.iter().skip(kind).step_by(2).sum();
        let [resends, sent] = [0, 1].map(|index| (after[kind][index] - before[kind][index]) as f64);
        [sum as f64 / (RATE as f64 * time.as_secs_f64()), resends / sent]
    })
}

/// Each kind gets a part that it can work with: none starves the other.
#[test]
#[ignore = "seconds: cargo test --release --test simulation sharing -- --ignored"]
fn controllers_leave_room_to_each_other() {
    for (pair, least) in [
        ([CongestionControl::BbrLike, CongestionControl::Cubic], 0.15),
        ([CongestionControl::Bbr3, CongestionControl::Cubic], 0.15),
        ([CongestionControl::BbrLike, CongestionControl::Bbr3], 0.15),
    ] {
        let names = pair.each_ref().map(CongestionControl::name);
        let configs = pair.map(with);
        for queue in [1, 4] {
            let times = [5 * SECOND, 10 * SECOND];
            let kinds = compete(0, configs.each_ref(), 2, queue * UNDER_WAY, times);
            let [one, other] = kinds.map(|[share, _]| share);
            let what = format!("{names:?}, queue {queue}: {kinds:.3?}");
            assert!(one.min(other) >= least && one + other >= 0.94, "{what}");
        }
    }
}

/// Those of one kind share evenly, and resend little where the queue holds as much as is under way.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn sessions_of_cubic_and_of_bbr3_share_a_link() {
    for (control, fairness, most) in
        [(CongestionControl::Cubic, 0.8, 0.01), (CongestionControl::Bbr3, 0.8, 0.02)]
    {
        let name = control.name();
        let config = with(control);
        let outcome = run_within(0, &config, 4, UNDER_WAY, [5 * SECOND, 10 * SECOND]);
        let Outcome { share, fairness: index, resent, .. } = outcome;
        let what = format!("{name}: {share:.3} of the rate, fairness {index:.3}, {resent:.4} resent");
        assert!(share >= 0.94 && index >= fairness && resent <= most, "{what}");
    }
}

/// What sessions of different controllers on one link get, by the queue before it.
fn competition(seed: u64) -> String {
    let mut found = String::from(
        "\nAs many sessions of another controller on the same link: the share of its rate that all of each kind have as\n\
         payload, and segments resent for each sent first.\n",
    );
    for pair in [
        [CongestionControl::BbrLike, CongestionControl::Cubic],
        [CongestionControl::Bbr3, CongestionControl::Cubic],
        [CongestionControl::DelayBased, CongestionControl::Cubic],
        [CongestionControl::BbrLike, CongestionControl::Bbr3],
        [CongestionControl::BbrLike, CongestionControl::DelayBased],
        [CongestionControl::Kcp, CongestionControl::Cubic],
    ] {
        found.push_str("\n   queue");
        for count in [1, 4] {
            for control in &pair {
                write!(found, " | {:>9}, resent", format!("{count} {}", control.name())).unwrap();
            }
        }
        found.push('\n');
        let configs = pair.map(with);
        for queue in [1, 4] {
            write!(found, "{queue:>8}").unwrap();
            for count in [1, 4] {
                let times = [10 * SECOND, 10 * SECOND];
                for [share, resent] in compete(seed, configs.each_ref(), count, queue * UNDER_WAY, times) {
                    write!(found, " | {share:>9.3} {resent:>7.4}").unwrap();
                }
            }
            found.push('\n');
        }
    }
    found
}

/// What sessions of one controller get, by their number and the queue before the link.
fn grid(seed: u64) -> String {
    let control = |control| KcpConfig::builder().congestion_control(control);
    // Without a controller many times what the link carries is sent, which takes long to simulate.
    let (settled, at_once) = ([10 * SECOND, 10 * SECOND], [SECOND, 2 * SECOND]);
    let cases = [
        ("default: congestion control after BBR", KcpConfig::builder(), settled),
        ("BBR version 3", control(CongestionControl::Bbr3), settled),
        ("CUBIC", control(CongestionControl::Cubic), settled),
        ("delay-based", control(CongestionControl::DelayBased), settled),
        ("KCP's congestion control", control(CongestionControl::Kcp), settled),
        ("fast3, windows 2,048: none; from 1 to 3 s", KcpConfig::builder().nodelay(NoDelay::FAST3), at_once),
    ];
    let mut found = String::from(
        "Sessions that share 100 Mbit/s and 50 ms, by the queue before the link, from 10 to 20 s after they began: their share\n\
         of its rate as payload, Jain's index of fairness, and segments resent for each sent first. Queues are of a tenth, half,\n\
         all and ten times of what is under way without one.\n",
    );
    for (name, config, times) in cases {
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
                let Outcome { share, fairness, resent, .. } = run_within(seed, &config, count, queue, times);
                write!(found, " | {share:>6.3} {fairness:>6.3} {resent:>8.4}").unwrap();
            }
            found.push('\n');
        }
    }
    found
}

#[test]
#[ignore = "96 links, most for 20 s: cargo test --release --test simulation -- --ignored sharing_by_queue"]
fn sharing_by_queue_and_sessions() {
    const SEED: u64 = 0;
    let found = std::thread::scope(|scope| {
        let competition = scope.spawn(|| competition(SEED));
        grid(SEED) + &competition.join().unwrap()
    });
    snapshot::check("sharing.txt", SEED, &found);
}
