//! Sessions that pause, and give back their memory meanwhile: with it the congestion controller, where another can go on for it.

use kcp9::{CongestionControl, KcpConfig};

use kcp9_simulator::{LinkSettings, Simulation, Writer, ms};

use super::{SECOND, with};

/// What is sent behind the pause.
const BURST: u64 = 3_000_000;

/// A session sends `first` bytes and pauses for three seconds: how many seconds the next [`BURST`] takes. `trim`: it has given back its
/// memory.
fn behind_a_pause(seed: u64, config: &KcpConfig, link: &LinkSettings, first: u64, trim: bool) -> f64 {
    let mut simulation = Simulation::new(seed, config, link);
    simulation.client().writer = Writer::bulk(first);
    simulation.complete(20 * SECOND);
    simulation.run_for(3 * SECOND);
    if trim {
        let before = simulation.client().connection.stats().path;
        simulation.ends.iter_mut().for_each(|end| end.connection.trim());
        let after = simulation.client().connection.stats().path;
        assert_eq!(after, before, "what is known of the path stays known");
    }
    simulation.client().writer = Writer::bulk(first + BURST);
    simulation.run_until(20 * SECOND, Simulation::is_complete).as_secs_f64()
}

#[test]
fn a_session_that_gave_its_memory_back_is_as_fast_as_one_that_did_not() {
    const SEEDS: u64 = 7;
    for control in [CongestionControl::DelayBased, CongestionControl::BbrLike] {
        let (name, config) = (control.name(), with(control));
        for loss in [0.0, 0.05] {
            let link = LinkSettings::delay(ms(25)).rate(12_500_000, 625_000).loss(loss);
            let median = |first, trim| {
                let mut times: Vec<f64> =
                    (0..SEEDS).map(|seed| behind_a_pause(seed, &config, &link, first, trim)).collect();
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            };
            // Nothing is known of the path; startup has begun; the path is known.
            for first in [64, 300_000, 10_000_000] {
                let (kept, given_back) = (median(first, false), median(first, true));
                assert!(
                    given_back <= 1.05 * kept,
                    "{name}, {loss} lost, behind {first} bytes: {kept:.3} s, {given_back:.3} s with its memory given back"
                );
            }
            // What is known is of use.
            assert!(median(10_000_000, true) < 0.8 * median(64, true), "{name}, {loss} lost");
        }
    }
}
