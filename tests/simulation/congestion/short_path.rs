//! Paths of well below a millisecond, between processors that have other work too.

use std::time::Duration;

use kcp9::KcpConfig;

use kcp9_simulator::{LinkSettings, Simulation, Writer, ms};

use super::{SECOND, rate};

/// The minimum round-trip time is a tenth of a millisecond, but most take as long as a scheduler lets packets wait. A
/// window that fits the minimum alone gets less than a third of this link.
#[test]
fn a_short_path_is_filled_although_its_ends_wait_for_the_processor() {
    const RATE: u64 = 200_000_000;
    for ack_no_delay in [true, false] {
        let delay = Duration::from_micros(50);
        let link = LinkSettings {
            jitter: ms(1),
            jitter_hold: ms(1),
            ..LinkSettings::delay(delay).rate(RATE, 2_000_000)
        };
        let config = KcpConfig::builder().ack_no_delay(ack_no_delay).build().unwrap();
        let mut simulation = Simulation::new(1, &config, &link);
        simulation.client().writer = Writer::bulk(u64::MAX);
        simulation.run_for(SECOND / 2);
        let share = rate(&mut simulation, SECOND / 2) / RATE as f64;
        let path = simulation.client().connection.stats().path;
        assert!(path.min_rtt < ms(1) && share >= 0.95, "{share:.3} of the rate, {path:?}");
    }
}
