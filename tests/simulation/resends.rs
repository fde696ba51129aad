//! The exact times of all transmissions, against traces worked out by hand from KCP's rules.
//!
//! The path takes 50 ms each way and the server acknowledges at once, so a round trip is 100 ms. Numbers that recur:
//!
//! * before any sample the RTO is 200 ms;
//! * after one sample of 100 ms: srtt 100, rttvar 50, RTO = 100 + max(interval, 4 x 50) = 300 ms in every preset;
//! * further samples of 100 ms leave srtt and take a half, a third and then a quarter off rttvar: 25, 16.7, 12.5 ms;
//! * a thin stream, with less than four segments unconfirmed in no-delay mode, has an RTO without the guess of 50 and with half
//!   the interval from the second sample on: 100 + 20 / 2 (fast2), 100 + 10 / 2 (fast3);
//! * waits of a segment grow by a whole RTO each (no-delay off) or by half of one (on), not at the first timeout of a thin stream.

use std::time::Duration;

use kcp9::{
    CongestionControl, KcpConfig, NoDelay,
    proto::{Command, Segments},
};

use kcp9_simulator::{
    CLIENT, LinkSettings, Reader, SERVER, Simulation, Writer, ms,
    trace::{times_of, transmissions_of},
};

/// kcptun's four presets, all of which resend fast, after two skips.
const PRESETS: [NoDelay; 4] = [NoDelay::NORMAL, NoDelay::FAST, NoDelay::FAST2, NoDelay::FAST3];

fn session(nodelay: NoDelay) -> Simulation {
    let config = KcpConfig::builder().nodelay(nodelay).stream(false).ack_no_delay(true).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(50)));
    simulation.server().reader = Reader { messages: false, ..Reader::eager() };
    simulation.client().record();
    simulation.server().record();
    simulation
}

/// Sends one segment now, through the writer's flow so that the reader knows its bytes.
fn send(simulation: &mut Simulation) {
    let writer = &mut simulation.ends[CLIENT].writer;
    writer.sizes = 10..=10;
    writer.total += 10;
    simulation.drive(CLIENT);
}

/// Loses the first `count` transmissions of the PUSH `sn`.
fn lose(simulation: &mut Simulation, sn: u32, mut count: u32) {
    simulation.client().link.lose_if(move |_, packet| {
        let hit = pushes(packet).any(|push| push == sn);
        let lost = hit && count > 0;
        count -= u32::from(lost);
        lost
    });
}

/// Loses the first transmission of each of these PUSHes.
fn lose_each_once(simulation: &mut Simulation, sns: &[u32]) {
    let mut left = sns.to_vec();
    simulation.client().link.lose_if(move |_, packet| {
        let before = left.len();
        pushes(packet).for_each(|push| left.retain(|sn| *sn != push));
        left.len() < before
    });
}

fn pushes(packet: &[u8]) -> impl Iterator<Item = u32> {
    Segments::new(packet).flatten().filter(|(h, _)| h.cmd == Command::Push).map(|(h, _)| h.sn)
}

/// A session whose RTO comes from one sample, at 1,000 ms. The next segment is `sn` 1.
fn warm_session(nodelay: NoDelay) -> Simulation {
    let mut simulation = session(nodelay);
    send(&mut simulation);
    simulation.run_for(ms(1_000));
    let stats = simulation.client().connection.stats();
    assert_eq!(
        (stats.path.rtt, stats.path.rtt_var, stats.path.rto),
        (ms(100), ms(50), ms(300)),
        "{nodelay:?}"
    );
    simulation
}

fn transmissions(simulation: &Simulation, sn: u32) -> Vec<u64> {
    transmissions_of(simulation.ends[CLIENT].sent.as_ref().unwrap(), sn)
}

/// Sends `count` segments `gap` apart, and gives them time to be delivered whatever happens to them.
fn send_every(simulation: &mut Simulation, gap: Duration, count: u32) {
    for _ in 0..count {
        send(simulation);
        simulation.run_for(gap);
    }
    simulation.run_for(ms(4_000) - gap * count);
}

#[test]
fn timeouts_double_from_the_initial_rto_before_any_sample() {
    for nodelay in [NoDelay::NORMAL, NoDelay::FAST, NoDelay::IKCP] {
        let mut simulation = session(nodelay);
        lose(&mut simulation, 0, u32::MAX);
        send(&mut simulation);
        simulation.run_for(ms(3_000));
        // Waits 200, 400, 600, ...
        let expected = [0, 200_000, 600_000, 1_200_000, 2_000_000, 3_000_000];
        assert_eq!(transmissions(&simulation, 0), expected, "{nodelay:?}");
    }
    for nodelay in [NoDelay::FAST2, NoDelay::FAST3] {
        let mut simulation = session(nodelay);
        lose(&mut simulation, 0, u32::MAX);
        send(&mut simulation);
        simulation.run_for(ms(2_200));
        // Waits 200, 200, 300, 400, ...
        let expected = [0, 200_000, 400_000, 700_000, 1_100_000, 1_600_000, 2_200_000];
        assert_eq!(transmissions(&simulation, 0), expected, "{nodelay:?}");
    }
}

#[test]
fn timeouts_follow_the_rto_after_a_sample() {
    for nodelay in [NoDelay::NORMAL, NoDelay::FAST, NoDelay::IKCP] {
        let mut simulation = warm_session(nodelay);
        lose(&mut simulation, 1, u32::MAX);
        send(&mut simulation);
        simulation.run_for(ms(3_000));
        // Waits 300, 600, 900, 1,200.
        let expected = [1_000_000, 1_300_000, 1_900_000, 2_800_000, 4_000_000];
        assert_eq!(transmissions(&simulation, 1), expected, "{nodelay:?}");
    }
    for nodelay in [NoDelay::FAST2, NoDelay::FAST3] {
        let mut simulation = warm_session(nodelay);
        lose(&mut simulation, 1, u32::MAX);
        send(&mut simulation);
        simulation.run_for(ms(2_100));
        // Waits 300, 300, 450, 600.
        let expected = [1_000_000, 1_300_000, 1_600_000, 2_050_000, 2_650_000];
        assert_eq!(transmissions(&simulation, 1), expected, "{nodelay:?}");
    }
}

#[test]
fn the_wait_stops_growing_at_a_minute() {
    let config = KcpConfig::builder().dead_timeout(Duration::from_secs(86_400)).nodelay(NoDelay::NORMAL);
    let mut simulation = Simulation::new(1, &config.build().unwrap(), &LinkSettings::delay(ms(15_000)));
    simulation.client().record();
    send(&mut simulation);
    simulation.run_for(Duration::from_secs(600));
    lose(&mut simulation, 1, u32::MAX);
    let start = simulation.now.as_micros();
    send(&mut simulation);
    simulation.run_for(Duration::from_secs(600));
    let times = transmissions(&simulation, 1);
    let waits: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(times[0], start);
    assert!(waits.iter().all(|wait| *wait <= 60_000_000), "{waits:?}");
    assert_eq!(waits.last(), Some(&60_000_000));
}

#[test]
fn two_later_acks_resend_at_once() {
    for nodelay in PRESETS {
        let mut simulation = warm_session(nodelay);
        lose(&mut simulation, 1, 1);
        send_every(&mut simulation, ms(2), 3);
        // Segment 2, sent at 1,002, is acknowledged at 1,102: first skip. Segment 3 at 1,104: second.
        assert_eq!(transmissions(&simulation, 1), [1_000_000, 1_104_000], "{nodelay:?}");
        let stats = simulation.client().connection.stats();
        assert_eq!((stats.recovery.fast_resends, stats.recovery.resends()), (1, 1), "{nodelay:?}");
        assert_eq!(simulation.flows[CLIENT].read, 40);
    }
}

#[test]
fn one_later_ack_resends_early_when_nothing_new_is_sent() {
    for (nodelay, expected) in [
        // Segment 2 is acknowledged at 1,105. The wait from there is a quarter of srtt, 25 ms, or the interval.
        (NoDelay::NORMAL, 1_130_000),
        (NoDelay::FAST, 1_130_000),
        (NoDelay::FAST2, 1_125_000),
        (NoDelay::FAST3, 1_115_000),
    ] {
        let mut simulation = warm_session(nodelay);
        // Four unconfirmed are no thin stream, whose RTO would be first.
        lose_each_once(&mut simulation, &[1, 3, 4, 5]);
        for _ in 1..=5 {
            send(&mut simulation);
            simulation.run_for(ms(5));
        }
        simulation.run_for(ms(115));
        assert_eq!(transmissions(&simulation, 1), [1_000_000, expected], "{nodelay:?}");
        let stats = simulation.client().connection.stats();
        assert_eq!((stats.recovery.early_resends, stats.recovery.resends()), (1, 1), "{nodelay:?}");
    }
}

#[test]
fn reordering_within_the_early_wait_resends_nothing() {
    let mut simulation = warm_session(NoDelay::NORMAL);
    // Segment 1 is held up by 20 ms on its way; segment 2 overtakes it and is acknowledged first.
    simulation.client().link.settings.delay = ms(70);
    send(&mut simulation);
    simulation.run_for(ms(1));
    simulation.client().link.settings = LinkSettings { reorder: 1.0, ..LinkSettings::delay(ms(50)) };
    send(&mut simulation);
    simulation.run_for(ms(1_000));
    assert_eq!(simulation.client().connection.stats().recovery.resends(), 0);
    assert_eq!(simulation.flows[CLIENT].read, 30);
}

#[test]
fn without_resend_only_timeouts_resend() {
    let mut simulation = warm_session(NoDelay::IKCP);
    lose(&mut simulation, 1, 1);
    send_every(&mut simulation, ms(5), 3);
    // Samples at 1,105 and 1,110 leave rttvar at 16.7: RTO = 100 + max(100, 66.7).
    assert_eq!(transmissions(&simulation, 1), [1_000_000, 1_200_000]);
    let stats = simulation.client().connection.stats();
    assert_eq!((stats.recovery.timeout_resends, stats.recovery.resends()), (1, 1));
}

#[test]
fn a_segment_resent_fast_then_waits_for_its_rto() {
    for (nodelay, [third, fourth]) in [
        (NoDelay::NORMAL, [1_253_999, 1_553_998]),
        (NoDelay::FAST, [1_253_999, 1_553_998]),
        (NoDelay::FAST2, [1_214_000, 1_324_000]),
        (NoDelay::FAST3, [1_209_000, 1_314_000]),
    ] {
        let mut simulation = warm_session(nodelay);
        lose(&mut simulation, 1, 3);
        send_every(&mut simulation, ms(2), 4);
        // Fast at 1,104. Samples at 1,102, 1,104 and 1,106 leave rttvar just below 12.5: RTO = 100 + 50, from the second
        // transmission, and the next wait is twice that. A thin stream waits its shorter RTO, twice.
        assert_eq!(transmissions(&simulation, 1), [1_000_000, 1_104_000, third, fourth], "{nodelay:?}");
        let stats = simulation.client().connection.stats();
        assert_eq!(
            (stats.recovery.fast_resends, stats.recovery.timeout_resends, stats.recovery.resends()),
            (1, 2, 3),
            "{nodelay:?}"
        );
        assert_eq!(simulation.flows[CLIENT].read, 50);
    }
}

#[test]
fn each_hole_is_resent_on_its_own_evidence() {
    let mut simulation = warm_session(NoDelay::FAST3);
    // Segments 1, 3 and 5 of 1..=8 are lost once.
    lose_each_once(&mut simulation, &[1, 3, 5]);
    send_every(&mut simulation, ms(5), 8);
    // ACKs: 2 at 1,105, 4 at 1,115, 6 at 1,125, 7 at 1,130, 8 at 1,135. Segment 1 is skipped for the second time at 1,115.
    // Segment 3 is then skipped for the first time, and the early wait that began at 1,105 ends. Segment 5 is skipped at
    // 1,125 and 1,130.
    assert_eq!(transmissions(&simulation, 1), [1_000_000, 1_115_000]);
    assert_eq!(transmissions(&simulation, 3), [1_010_000, 1_115_000]);
    assert_eq!(transmissions(&simulation, 5), [1_020_000, 1_130_000]);
    let stats = simulation.client().connection.stats();
    assert_eq!(
        (stats.recovery.fast_resends, stats.recovery.early_resends, stats.recovery.timeout_resends),
        (2, 1, 0)
    );
}

#[test]
fn acks_wait_for_the_interval_unless_there_is_a_reason() {
    for nodelay in PRESETS {
        let mut simulation = session(nodelay);
        simulation.update_settings(SERVER, |settings| settings.ack_no_delay = false).unwrap();
        let acks =
            |simulation: &Simulation| times_of(simulation.ends[SERVER].sent.as_ref().unwrap(), Command::Ack);
        let interval = nodelay.interval.as_micros() as u64;
        // The first of a session does not wait.
        for _ in 0..2 {
            send(&mut simulation);
            simulation.run_for(ms(250));
        }
        assert_eq!(acks(&simulation), [50_000, 300_000 + interval], "{nodelay:?}");
        simulation.update_settings(SERVER, |settings| settings.ack_no_delay = true).unwrap();
        send(&mut simulation);
        simulation.run_for(ms(500));
        assert_eq!(acks(&simulation)[2..], [550_000], "{nodelay:?}");
        // A gap is reported at once.
        simulation.update_settings(SERVER, |settings| settings.ack_no_delay = false).unwrap();
        lose(&mut simulation, 3, 1);
        send(&mut simulation);
        send(&mut simulation);
        simulation.run_for(ms(100));
        assert_eq!(acks(&simulation)[3..4], [1_050_000], "{nodelay:?}");
    }
}

#[test]
fn delayed_writes_wait_for_the_interval_or_a_flush() {
    let config = KcpConfig::builder().write_delay(true).nodelay(NoDelay::FAST2).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(50)));
    simulation.client().record();
    send(&mut simulation);
    simulation.run_for(ms(7));
    send(&mut simulation);
    simulation.run_for(ms(993));
    assert_eq!(transmissions(&simulation, 0), [20_000]);
    send(&mut simulation);
    simulation.run_for(ms(3));
    simulation.call(CLIENT, |connection, _| connection.flush());
    simulation.run_for(ms(997));
    assert_eq!(transmissions(&simulation, 1), [1_003_000]);
    assert_eq!(simulation.flows[CLIENT].read, 30);
    // A full segment does not wait.
    simulation.client().writer.sizes = 2_000..=2_000;
    simulation.client().writer.total += 2_000;
    simulation.run_for(ms(500));
    assert_eq!(transmissions(&simulation, 2), [2_000_000]);
    assert_eq!(transmissions(&simulation, 3), [2_020_000]);
}

/// KCP's own congestion window: slow start, a fast resend, a timeout. No segment waits for another's packet.
#[test]
fn kcps_congestion_window_follows_the_c_library() {
    const MSS: usize = 1_376;
    let nodelay = NoDelay { nc: false, ..NoDelay::FAST3 };
    let config = KcpConfig::builder().nodelay(nodelay).congestion_control(CongestionControl::Kcp);
    let config = config.stream(false).ack_no_delay(true).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(50)));
    simulation.client().record();
    let gauges = |simulation: &Simulation| {
        let stats = simulation.ends[CLIENT].connection.stats();
        (stats.path.congestion_window, stats.queues.in_flight)
    };

    // Slow start: one more for each segment acknowledged, which doubles the window in every round trip.
    lose(&mut simulation, 30, 1);
    simulation.client().writer = Writer { sizes: MSS..=MSS, ..Writer::messages(10 + 20 + 40, MSS) };
    simulation.drive(CLIENT);
    assert_eq!(gauges(&simulation), (10, 10));
    simulation.run_for(ms(100));
    assert_eq!(gauges(&simulation), (20, 20));
    simulation.run_for(ms(100));
    assert_eq!(gauges(&simulation), (40, 40));

    // The first of those 40 is lost and resent when the others are acknowledged: half of them, and `resend` more.
    simulation.run_for(ms(100));
    assert_eq!(transmissions(&simulation, 30), [200_000, 300_000]);
    assert_eq!(simulation.client().connection.stats().recovery.fast_resends, 1);
    assert_eq!(gauges(&simulation).0, 40 / 2 + nodelay.resend);
    // Past ssthresh, one ACK earns no whole segment.
    simulation.run_for(ms(200));
    assert_eq!(gauges(&simulation), (22, 0));

    // A timeout: one segment, and slow start anew.
    lose(&mut simulation, 70, 1);
    simulation.client().writer.total += MSS as u64;
    simulation.drive(CLIENT);
    simulation.run_until(Duration::from_secs(5), |simulation| {
        simulation.ends[CLIENT].connection.stats().recovery.timeout_resends > 0
    });
    assert_eq!(gauges(&simulation), (1, 1));
    simulation.run_for(ms(100));
    assert_eq!(gauges(&simulation), (2, 0));
}
