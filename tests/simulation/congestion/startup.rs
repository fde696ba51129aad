//! The beginning of a transfer: finding out what the link carries.

use kcp9::{CongestionControl, KcpConfig};

use kcp9_simulator::{LinkSettings, Simulation, Writer, ms};

use super::{SECOND, kcp, none, with};

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
fn the_default_settings_and_the_delay_based_controller_fill_a_link() {
    for config in [KcpConfig::default(), with(CongestionControl::DelayBased)] {
        let name = config.congestion_control().name();
        let [alone, both] = fill(&config, 50_000_000);
        // The first round trips find out how much the link carries.
        assert!(alone >= 0.93, "{name}: {alone:.3} of the rate");
        // With the queues of both directions full, ACKs take as long as data and some timeouts come too early.
        assert!(both >= 0.75, "{name}: {both:.3} of the rate");
    }
}

/// It doubles its window until it loses, as the default does. But timeouts that come too early put it back to one segment.
#[test]
fn kcps_control_fills_a_link_that_loses_nothing() {
    let [alone, both] = fill(&kcp(), 25_000_000);
    assert!(alone >= 0.85 && both >= 0.4, "{alone:.3} of the rate, {both:.3} with both directions full");
}

/// HyStart++ sees the queue and ends slow start before it overflows. With both directions full some timeouts come too early, and
/// each begins with one segment.
#[test]
fn cubic_fills_a_link_that_loses_nothing() {
    let [alone, both] = fill(&with(CongestionControl::Cubic), 25_000_000);
    assert!(alone >= 0.85 && both >= 0.5, "{alone:.3} of the rate, {both:.3} with both directions full");
}

#[test]
fn bbr3_fills_a_link_that_loses_nothing() {
    let [alone, both] = fill(&with(CongestionControl::Bbr3), 25_000_000);
    assert!(alone >= 0.85 && both >= 0.6, "{alone:.3} of the rate, {both:.3} with both directions full");
}

/// What is sent again in the first two seconds on 100 Mbit/s and 50 ms, of what is sent first, where `queue` times what is
/// under way may wait.
fn resent_at_the_start(config: &KcpConfig, queue: usize) -> f64 {
    const RATE: u64 = 12_500_000;
    let link =
        LinkSettings { jitter: ms(1), ..LinkSettings::delay(ms(25)).rate(RATE, queue * RATE as usize / 20) };
    let mut simulation = Simulation::new(0, config, &link);
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.run_for(2 * SECOND);
    let stats = simulation.client().connection.stats();
    stats.recovery.resends() as f64 / stats.segments.push_sent as f64
}

/// A start that doubles has twice as much in flight as fits before it knows.
#[test]
fn a_start_overflows_a_queue_that_holds_less_than_it_needs() {
    for (control, queue, most) in [
        (CongestionControl::Cubic, 1, 0.06),
        (CongestionControl::Cubic, 2, 0.03),
        (CongestionControl::Cubic, 4, 0.0),
        (CongestionControl::Bbr3, 1, 0.02),
        (CongestionControl::Bbr3, 2, 0.0),
    ] {
        let name = control.name();
        let resent = resent_at_the_start(&with(control), queue);
        assert!(resent <= most, "{name}, queue {queue}: {resent:.4} resent");
    }
}

/// It has nothing to find out.
#[test]
fn without_a_controller_a_link_is_full_at_once() {
    let [alone, both] = fill(&none(), 25_000_000);
    assert!(alone >= 0.93 && both >= 0.55, "{alone:.3} of the rate, {both:.3} with both directions full");
}
