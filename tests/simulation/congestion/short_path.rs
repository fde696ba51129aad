//! Paths of well below a millisecond, between processors that have other work too.

use std::time::Duration;

use kcp9::{CongestionControl, KcpConfig};

use kcp9_simulator::{CLIENT, LinkSettings, Simulation, Writer, ms};

use super::{SECOND, kcp, none, rate, with};

const RATE: u64 = 200_000_000;

/// A session's share of such a path's rate from `begin` on, for as long.
fn share(config: KcpConfig, begin: Duration) -> f64 {
    let delay = Duration::from_micros(50);
    let link = LinkSettings {
        jitter: ms(1),
        jitter_hold: ms(1),
        ..LinkSettings::delay(delay).rate(RATE, 2_000_000)
    };
    let mut simulation = Simulation::new(1, &config, &link);
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.run_for(begin);
    let share = rate(&mut simulation, begin) / RATE as f64;
    let path = simulation.ends[CLIENT].connection.stats().path;
    assert!(path.min_rtt < ms(1), "{path:?}");
    share
}

/// The minimum round-trip time is a tenth of a millisecond, but most take as long as a scheduler lets packets wait. A
/// window that fits the minimum alone gets less than a third of this link.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn a_short_path_is_filled_although_its_ends_wait_for_the_processor() {
    for control in [CongestionControl::BbrLike, CongestionControl::DelayBased] {
        for ack_no_delay in [true, false] {
            let config = with(control.clone()).to_builder().ack_no_delay(ack_no_delay).build().unwrap();
            let share = share(config, SECOND / 2);
            assert!(share >= 0.95, "{}: {share:.3} of the rate", control.name());
        }
    }
}

/// Its window knows no round trips, only losses: those of a queue that holds many times what is under way.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn kcps_control_fills_a_short_path_as_well() {
    for ack_no_delay in [true, false] {
        let config = kcp().to_builder().ack_no_delay(ack_no_delay).build().unwrap();
        let share = share(config, SECOND / 4);
        assert!(share >= 0.88, "{share:.3} of the rate");
    }
}

/// The windows hold more than the path and its queue: what does not fit is lost again and again.
#[test]
fn without_a_controller_a_short_path_is_half_wasted() {
    let share = share(none(), SECOND / 4);
    assert!((0.45..0.8).contains(&share), "{share:.3} of the rate");
}
