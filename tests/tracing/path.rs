//! What is said of a path: how long packets may be, and whether it carries ECN.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kcp9::{
    CongestionControl, KcpConfig, KcpConfigBuilder,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{Connection, EcnCodepoint, EcnState, SessionSeed, Stats},
};
use kcp9_simulator::{CLIENT, EcnPath, LinkSettings, Nonces, Rng, SERVER, Simulation, Writer};
use kcp9_tests::collector::{Collector, Recorded};
use tracing::Level;

use crate::{count, ms, named, sum, table};

const LIMIT: Duration = Duration::from_secs(600);

/// Two ends with extensions.
fn simulation(seed: u64, config: KcpConfigBuilder, link: &LinkSettings) -> Simulation {
    let config = config.keep_alive(None).build().unwrap();
    let mut rng = Rng::new(!seed);
    let links = [link.clone(), LinkSettings::delay(ms(25))];
    Simulation::between(seed, links, [Duration::ZERO; 2], |side, conv, now| {
        let seed = SessionSeed::new(&mut rng);
        if side == CLIENT {
            Connection::connect(conv, &config, now, seed)
        } else {
            Connection::accept(conv, &config, now, seed)
        }
    })
}

fn stats(simulation: &Simulation) -> Stats {
    simulation.ends[CLIENT].connection.stats()
}

/// The client has this PLPMTU before long.
fn until_plpmtu(simulation: &mut Simulation, plpmtu: u32) {
    simulation.run_until(LIMIT, |simulation| stats(simulation).path.plpmtu == plpmtu);
}

/// A transfer over a path that carries less and less, and whose client changes its address and its mtu.
pub fn mtu() -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let cipher = CipherKind::Aes256Gcm.build(&Key::from_bytes(&[7; 32]), Framing::KcpGo).unwrap();
    let config = KcpConfig::builder().crypto(PacketCrypto::new(cipher, Arc::new(Nonces::default())));
    let link = LinkSettings { fragments: true, ..LinkSettings::delay(ms(25)).rate(2_000_000, 300_000) };
    let mut simulation = simulation(1, config, &link);
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.start();
    until_plpmtu(&mut simulation, 1_400);
    simulation.run_for(ms(500));
    simulation.client().link.settings.max_packet = Some(1_300);
    simulation.run_until(LIMIT, |simulation| stats(simulation).mtu.black_holes == 1);
    until_plpmtu(&mut simulation, 1_300);
    let refused = 1_300;
    simulation.call(CLIENT, |connection, now| connection.handle_too_long(now, refused));
    assert_eq!(stats(&simulation).path.plpmtu, 1_200);
    simulation.run_until(LIMIT, |simulation| stats(simulation).path.plpmtu > 1_250);
    simulation.call(CLIENT, |connection, now| connection.rebind(now)).unwrap();
    simulation.run_until(LIMIT, |simulation| stats(simulation).path.plpmtu == 1_200);
    simulation.client().link.settings.max_packet = None;
    until_plpmtu(&mut simulation, 1_400);
    // The mtu may be less once nothing longer is under way.
    simulation.client().writer.total = simulation.flows[CLIENT].written;
    simulation.run_until(LIMIT, |simulation| {
        let queues = stats(simulation).queues;
        queues.unsent_bytes == 0 && queues.in_flight == 0
    });
    simulation
        .call(CLIENT, |connection, _| connection.update_settings(|settings| settings.mtu = 1_350))
        .unwrap();
    let events = collector.take();
    table::check(&events);

    // Only the client sends enough to ask.
    let stats = stats(&simulation);
    let changes = named(&events, "plpmtu");
    assert_eq!(changes.first().unwrap().number("from"), 1_200, "where a search begins");
    for pair in changes.windows(2) {
        assert_eq!(pair[0].number("to"), pair[1].number("from"), "{pair:?}");
    }
    assert_eq!((changes.last().unwrap().number("to"), stats.path.plpmtu), (1_350, 1_350));
    let causes: Vec<_> = changes
        .iter()
        .map(|event| (event.field("cause"), event.number("from") < event.number("to")))
        .collect();
    let all = [("probe", true), ("timeouts", false), ("too_long", false), ("moved", false), ("mtu", false)];
    assert_eq!(causes.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from(all), "{causes:?}");
    for cause in ["timeouts", "too_long", "moved", "mtu"] {
        assert_eq!(count(&events, "plpmtu", "cause", cause), 1, "{cause}");
    }
    let [black_hole] = named(&events, "black_hole")[..] else { panic!("not one: {changes:?}") };
    assert_eq!((black_hole.number("size"), stats.mtu.black_holes), (1_400, 1));
    assert!(black_hole.number("plpmtu") <= 1_300, "{black_hole:?}");
    let fragmentable = named(&events, "fragmentable");
    assert_eq!(sum(&events, "fragmentable", "packets"), stats.mtu.fragmentable);
    assert!(
        stats.mtu.fragmentable > 20 && fragmentable.len() as u64 == stats.mtu.fragmentable,
        "one at a time"
    );
    for event in fragmentable {
        assert!(event.number("bytes") > event.number("plpmtu"), "{event:?}");
    }
    events
}

#[test]
fn sizes_of_packets_follow_each_other_and_say_why() {
    mtu();
}

fn ecn_config() -> KcpConfigBuilder {
    KcpConfig::builder().congestion_control(CongestionControl::Cubic)
}

/// A queue that marks packets: the counters of congestion are the numbers of their events.
pub fn marks() -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let link =
        LinkSettings { mark_above: Some(60_000), ..LinkSettings::delay(ms(25)).rate(2_000_000, 400_000) };
    let mut simulation = simulation(2, ecn_config(), &link);
    simulation.client().writer = Writer::bulk(20_000_000);
    simulation.complete(LIMIT);
    let events = collector.take();
    table::check(&events);
    let stats = stats(&simulation);
    assert_eq!((stats.path.ecn, named(&events, "ecn_failed").len()), (EcnState::Capable, 0));
    assert_eq!(named(&events, "ecn_capable").len(), 1);
    assert!(
        stats.ecn.congestion_events > 0 && stats.ecn.ce_reported > stats.ecn.congestion_events,
        "{stats:?}"
    );
    assert_eq!(sum(&events, "ecn_marked", "packets"), stats.ecn.ce_reported);
    assert_eq!(count(&events, "ecn_marked", "told", "true"), stats.ecn.congestion_events);
    events
}

#[test]
fn marks_are_as_many_as_the_counters_say() {
    marks();
}

/// A path that is well at first, where `validates`, and does `harm` from then on: why its ECN is turned off.
fn failure(seed: u64, validates: bool, mut harm: impl FnMut(&mut Simulation)) -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let mut simulation =
        simulation(seed, ecn_config(), &LinkSettings::delay(ms(25)).rate(2_000_000, 300_000));
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.start();
    if validates {
        simulation.run_until(LIMIT, |simulation| stats(simulation).path.ecn == EcnState::Capable);
    }
    let until = simulation.now + Duration::from_secs(30);
    while stats(&simulation).path.ecn != EcnState::Failed {
        assert!(simulation.now < until, "{:?}", stats(&simulation));
        harm(&mut simulation);
    }
    let events = collector.take();
    table::check(&events);
    assert_eq!(named(&events, "ecn_capable").len(), usize::from(validates));
    assert_eq!(named(&events, "ecn_failed").len(), 1);
    events
}

/// Paths that do something else to marks, and counts that cannot be.
pub fn ecn_failures() -> Vec<Recorded> {
    let path = |ecn| {
        move |simulation: &mut Simulation| {
            simulation.client().link.settings.ecn = ecn;
            simulation.run_for(ms(100));
        }
    };
    let counts = |packets: usize| {
        move |simulation: &mut Simulation| {
            simulation.call(SERVER, |connection, now| {
                connection.handle_ecn(now, EcnCodepoint::Ect0, packets);
            });
            simulation.run_for(ms(100));
        }
    };
    let mostly_bleached = |simulation: &mut Simulation| {
        for (ecn, time) in [(EcnPath::Bleached, 199), (EcnPath::Kept, 1)] {
            simulation.client().link.settings.ecn = ecn;
            simulation.run_for(ms(time));
        }
    };
    let failures = [
        ("no_reports", failure(1, false, path(EcnPath::Bleached))),
        ("no_reports", failure(2, true, path(EcnPath::Bleached))),
        ("ect1", failure(3, false, path(EcnPath::Remarked))),
        ("too_few", failure(4, true, mostly_bleached)),
        ("too_many", failure(5, true, counts(1_000_000))),
        ("fewer", failure(6, true, counts(3 << 30))),
    ];
    let mut all = Vec::new();
    for (cause, events) in failures {
        assert_eq!(named(&events, "ecn_failed")[0].field("cause"), cause);
        all.extend(events);
    }
    all
}

#[test]
fn why_ecn_is_turned_off_is_said() {
    ecn_failures();
}
