//! The beginning of a transfer: finding out what the link carries.

use kcp9::KcpConfig;

use kcp9_simulator::{LinkSettings, Simulation, Writer, ms};

use super::SECOND;

#[test]
fn the_default_settings_fill_a_link() {
    // 12.5 MB/s (100 Mbit/s) over 40 ms, behind a queue that a window fits.
    const RATE: u64 = 12_500_000;
    let link = LinkSettings::delay(ms(20)).rate(RATE, 3_000_000);
    let mut simulation = Simulation::new(2, &KcpConfig::default(), &link);
    simulation.client().writer = Writer::bulk(50_000_000);
    let took = simulation.complete(60 * SECOND);
    let rate = 50_000_000.0 / took.as_secs_f64();
    // 24 bytes of 1,400 are headers.
    let ideal = RATE as f64 * 1_376.0 / 1_400.0;
    // The first round trips find out how much the link carries.
    assert!(rate >= 0.93 * ideal, "{rate:.0} B/s of {ideal:.0} over {took:?}");
    let stats = simulation.client().connection.stats();
    // Nothing is lost; a few ACKs come late while the queue of the path first fills.
    assert!(stats.recovery.resends() * 100 < stats.segments.push_sent, "{stats:?}");
    // With the queues of both directions full, ACKs take as long as data and some timeouts come too early.
    simulation.client().writer.total += 50_000_000;
    simulation.server().writer = Writer::bulk(50_000_000);
    let took = simulation.complete(60 * SECOND);
    let rate = 50_000_000.0 / took.as_secs_f64();
    assert!(rate >= 0.75 * ideal, "{rate:.0} B/s of {ideal:.0} over {took:?}");
}
