//! What the feature costs where nobody listens.

use std::hint::black_box;

use kcp9::KcpConfig;
use kcp9_simulator::{LinkSettings, Simulation, Writer};
use kcp9_tests::collector::Collector;
use tracing::Level;

use crate::ms;

/// Whoever listens, the same packets are sent at the same times.
#[test]
fn listening_changes_nothing() {
    let run = || {
        let config = KcpConfig::builder().fec(10, 3).build().unwrap();
        let mut simulation = Simulation::new(8, &config, &LinkSettings::delay(ms(20)).loss(0.05));
        simulation.client().writer = Writer::bulk(500_000);
        let took = simulation.complete(ms(600_000));
        (took, simulation.client().connection.stats(), simulation.server().connection.stats())
    };
    let alone = run();
    let collector = Collector::begin(Level::TRACE);
    let heard = black_box(run());
    assert!(!collector.take().is_empty());
    assert_eq!(alone, heard);
}
