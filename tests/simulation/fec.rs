//! Forward error correction between two connections: what it saves, and changes while a session lives.

use std::time::Duration;

use kcp9::{KcpConfig, NoDelay};

use kcp9_simulator::{CLIENT, LinkSettings, Reader, Rng, SERVER, Simulation, Writer, ms};

const LIMIT: Duration = Duration::from_secs(3_600);
const TOTAL: u64 = 3_000_000;

fn bulk(data: usize, parity: usize, loss: f64) -> Simulation {
    let config = KcpConfig::builder()
        .nodelay(NoDelay::FAST3)
        .send_window(256)
        .recv_window(256)
        .fec(data, parity)
        .build()
        .unwrap();
    let mut simulation = Simulation::new(9, &config, &LinkSettings::delay(ms(50)).loss(loss));
    simulation.client().writer = Writer::bulk(TOTAL);
    simulation.server().reader = Reader::eager();
    simulation.complete(LIMIT);
    simulation
}

/// Resends of segments that were lost, in percent of all segments.
fn resent(simulation: &Simulation) -> f64 {
    let stats = simulation.ends[CLIENT].connection.stats();
    100.0 * stats.recovery.resends() as f64 / stats.segments.push_sent as f64
}

#[test]
fn parity_replaces_resends() {
    for loss in [0.01, 0.05, 0.1] {
        let (without, with) = (bulk(0, 0, loss), bulk(10, 3, loss));
        let fec = with.ends[SERVER].connection.stats().fec;
        assert!(fec.recovered as f64 > 0.5 * loss * TOTAL as f64 / 1_368.0, "{fec:?}");
        assert!(
            resent(&with) < resent(&without) * 0.6,
            "{loss}: {} % of segments resent, {} % without FEC",
            resent(&with),
            resent(&without)
        );
        let counters = [fec.mismatches, fec.late];
        assert_eq!(counters, [0, 0], "{fec:?}");
    }
}

/// A server without FEC keeps less of a client's that has it, and repairs its losses all the same.
#[test]
fn parity_that_the_receiver_did_not_expect_replaces_resends_too() {
    let config = |data, parity| {
        let windows = KcpConfig::builder().nodelay(NoDelay::FAST3).send_window(256).recv_window(256);
        windows.fec(data, parity).build().unwrap()
    };
    let link = LinkSettings { reorder: 0.05, reorder_delay: ms(5), ..LinkSettings::delay(ms(50)).loss(0.05) };
    let run = |client: (usize, usize), server: (usize, usize)| {
        let configs = [config(client.0, client.1), config(server.0, server.1)];
        let links = [link.clone(), link.clone()];
        let mut simulation = Simulation::with(9, [&configs[0], &configs[1]], links, 0, [Duration::ZERO; 2]);
        simulation.client().writer = Writer::bulk(TOTAL);
        simulation.server().reader = Reader::eager();
        simulation.complete(LIMIT);
        (simulation.ends[SERVER].connection.stats().fec.recovered, resent(&simulation))
    };
    let (none, expected, unexpected) = (run((0, 0), (0, 0)), run((10, 3), (10, 3)), run((10, 3), (0, 0)));
    assert!(unexpected.0 as f64 > 0.95 * expected.0 as f64, "{unexpected:?}, {expected:?}");
    // Its ACKs have no parity, so that a few more segments are resent.
    assert!(unexpected.1 < 0.6 * none.1, "{unexpected:?}, {none:?}");
}

#[test]
fn without_losses_fec_costs_only_its_parity() {
    let simulation = bulk(10, 3, 0.0);
    let (client, server) =
        (simulation.ends[CLIENT].connection.stats(), simulation.ends[SERVER].connection.stats());
    assert_eq!(client.recovery.resends(), 0);
    assert_eq!((server.fec.recovered, server.fec.unrecoverable), (0, 0));
    let data = client.udp.packets_sent - client.fec.parity_sent;
    assert_eq!(client.fec.parity_sent, data / 10 * 3);
    assert!(server.fec.groups_complete >= data / 10 - 1, "{server:?}");
    assert_eq!((server.fec_state.peer_data_shards, server.fec_state.peer_parity_shards), (10, 3));
}

/// The receiver follows a sender that changes its shards, and no byte is wrong meanwhile.
#[test]
fn shards_change_while_the_session_lives() {
    let config = KcpConfig::builder().fec(10, 3).build().unwrap();
    let link = LinkSettings {
        jitter: ms(5),
        reorder: 0.05,
        reorder_delay: ms(10),
        ..LinkSettings::delay(ms(30)).loss(0.05).rate(6_000_000, 300_000)
    };
    let mut simulation = Simulation::new(4, &config, &link);
    for side in [CLIENT, SERVER] {
        simulation.ends[side].writer = Writer::bulk(40_000_000);
        simulation.ends[side].reader = Reader::eager();
    }
    let shards = [(5, 2), (0, 0), (20, 4), (1, 1), (0, 0), (10, 3), (3, 3)];
    for (data, parity) in shards {
        simulation.run_for(ms(400));
        simulation.update_settings(CLIENT, |settings| settings.fec = (data, parity)).unwrap();
        simulation.run_for(ms(400));
        let client = simulation.ends[CLIENT].connection.stats().fec_state;
        assert_eq!((client.data_shards as usize, client.parity_shards as usize), (data, parity));
        let seen = simulation.ends[SERVER].connection.stats().fec_state;
        if data > 0 {
            assert_eq!(
                (seen.peer_data_shards as usize, seen.peer_parity_shards as usize),
                (data, parity),
                "{seen:?}"
            );
        }
    }
    simulation.complete(LIMIT);
    assert!(simulation.ends[SERVER].connection.stats().fec.recovered > 100);
}

/// However early the shards change and whatever is lost around it: recovered packets are those that were sent.
#[test]
fn a_change_of_shards_at_the_start_loses_nothing_over_a_lossy_path() {
    let mut rng = Rng::new(77);
    for seed in 0..150_u64 {
        let mut shards = || (rng.size(1..=20), rng.size(1..=20));
        let (before, after) = (shards(), shards());
        let config =
            KcpConfig::builder().nodelay(NoDelay::FAST3).mtu(150).fec(before.0, before.1).build().unwrap();
        let link = LinkSettings::delay(ms(5)).loss(0.2);
        let mut simulation = Simulation::new(seed, &config, &link);
        simulation.client().writer = Writer::bulk(60_000);
        simulation.server().reader = Reader::eager();
        simulation.drive(CLIENT);
        simulation.update_settings(CLIENT, |settings| settings.fec = after).unwrap();
        simulation.complete(LIMIT);
    }
}

/// The parity of a group with longer packets no longer fits the mtu.
#[test]
fn a_smaller_mtu_within_a_group_does_not_stop_delivery() {
    let config = KcpConfig::builder().stream(false).fec(10, 3).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(5)));
    simulation.server().reader = Reader::eager();
    simulation.client().writer = Writer { sizes: 1_300..=1_300, ..Writer::bulk(1_300) };
    simulation.complete(LIMIT);
    simulation.update_settings(CLIENT, |settings| settings.mtu = 500).unwrap();
    simulation.client().writer.sizes = 100..=100;
    simulation.client().writer.total += 30_000;
    simulation.complete(LIMIT);
    assert!(simulation.ends[CLIENT].connection.stats().fec.parity_sent > 0);
}
