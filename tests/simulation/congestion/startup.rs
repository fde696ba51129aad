//! The beginning of a transfer: finding out what the link carries.

use kcp9::KcpConfig;

use kcp9_simulator::{LinkSettings, Simulation, Writer, ms};

use super::{SECOND, kcp, none};

/// `bytes` over a link of 100 Mbit/s and 40 ms, behind a queue that a window fits; then as many more in both directions at
/// once. Returns the rate of each as a share of what the link carries as payload.
fn fill(config: &KcpConfig, bytes: u64) -> [f64; 2] {
    const RATE: u64 = 12_500_000;
    let link = LinkSettings::delay(ms(20)).rate(RATE, 3_000_000);
    let mut simulation = Simulation::new(2, config, &link);
    simulation.client().writer = Writer::bulk(bytes);
    // 24 bytes of 1,400 are headers.
    let ideal = RATE as f64 * 1_376.0 / 1_400.0;
    let alone = simulation.complete(60 * SECOND);
    let stats = simulation.client().connection.stats();
    // Nothing is lost; a few ACKs come late while the queue of the path first fills.
    assert!(stats.recovery.resends() * 100 < stats.segments.push_sent, "{stats:?}");
    simulation.client().writer.total += bytes;
    simulation.server().writer = Writer::bulk(bytes);
    let both = simulation.complete(60 * SECOND);
    [alone, both].map(|took| bytes as f64 / took.as_secs_f64() / ideal)
}

#[test]
fn the_default_settings_fill_a_link() {
    let [alone, both] = fill(&KcpConfig::default(), 50_000_000);
    // The first round trips find out how much the link carries.
    assert!(alone >= 0.93, "{alone:.3} of the rate");
    // With the queues of both directions full, ACKs take as long as data and some timeouts come too early.
    assert!(both >= 0.75, "{both:.3} of the rate");
}

/// It doubles its window until it loses, as the default does. But timeouts that come too early put it back to one segment.
#[test]
fn kcps_control_fills_a_link_that_loses_nothing() {
    let [alone, both] = fill(&kcp(), 25_000_000);
    assert!(alone >= 0.85 && both >= 0.4, "{alone:.3} of the rate, {both:.3} with both directions full");
}

/// It has nothing to find out.
#[test]
fn without_a_controller_a_link_is_full_at_once() {
    let [alone, both] = fill(&none(), 25_000_000);
    assert!(alone >= 0.93 && both >= 0.55, "{alone:.3} of the rate, {both:.3} with both directions full");
}
