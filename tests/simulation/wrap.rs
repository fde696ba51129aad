//! Counters that pass 2^32 while traffic is under way.

use std::time::Duration;

use kcp9::{KcpConfig, proto::Stats};

use kcp9_simulator::{CLIENT, LinkSettings, Reader, SERVER, Simulation, Writer, ms};

fn lossy() -> LinkSettings {
    LinkSettings {
        reorder: 0.1,
        reorder_delay: ms(40),
        duplicate: 0.05,
        ..LinkSettings::delay(ms(30)).loss(0.2)
    }
}

fn transfer_both_ways(simulation: &mut Simulation) {
    for side in [CLIENT, SERVER] {
        simulation.ends[side].writer = Writer::messages(2_000, 900);
        simulation.ends[side].reader = Reader::messages();
    }
    simulation.complete(Duration::from_secs(600));
}

#[test]
fn sequence_numbers_wrap() {
    let config = KcpConfig::default();
    for first_sn in [u32::MAX, u32::MAX - 1, u32::MAX - 100, u32::MAX - 1_999, (1 << 31) - 1_000] {
        let clocks = [Duration::ZERO; 2];
        let mut simulation = Simulation::with(1, [&config, &config], [lossy(), lossy()], first_sn, clocks);
        transfer_both_ways(&mut simulation);
    }
}

#[test]
fn timestamps_wrap() {
    let config = KcpConfig::default();
    for before in [0, 1, 150, 1_000] {
        // Shortly before a multiple of 2^32 ms, and 2^31, where signed comparisons change sign.
        for wrap in [1_u64 << 32, 1 << 31, 7 << 32] {
            let clocks = [ms(wrap - before), ms(wrap - before / 2)];
            let mut simulation = Simulation::with(2, [&config, &config], [lossy(), lossy()], 0, clocks);
            transfer_both_ways(&mut simulation);
            let stats = simulation.client().connection.stats();
            assert!(
                stats.path.rtt > ms(50) && stats.path.rtt < ms(150),
                "before {before} wrap {wrap}: {stats:?}"
            );
        }
    }
}

#[test]
fn nothing_depends_on_where_the_counters_start() {
    // A run is deterministic, so the same path must do the same to every segment, whatever it is called.
    let run = |first_sn: u32, clocks: [Duration; 2]| -> (Duration, [Stats; 2]) {
        let config = KcpConfig::default();
        let mut simulation = Simulation::with(3, [&config, &config], [lossy(), lossy()], first_sn, clocks);
        transfer_both_ways(&mut simulation);
        let time = Duration::from_micros(simulation.now.as_micros());
        (time, simulation.ends.each_ref().map(|end| end.connection.stats()))
    };
    let expected = run(0, [Duration::ZERO; 2]);
    assert!(expected.1[CLIENT].recovery.fast_resends > 100, "{expected:?}");
    for first_sn in [u32::MAX, u32::MAX - 500, u32::MAX - 1_500, (1 << 31) - 700] {
        assert_eq!(run(first_sn, [Duration::ZERO; 2]), expected, "first sn {first_sn}");
    }
    for before in [1, 100, 400, 900] {
        let clocks = [ms((1 << 32) - before), ms((1 << 32) - before / 3)];
        assert_eq!(run(0, clocks), expected, "{before} ms before the clock's wrap");
    }
}
