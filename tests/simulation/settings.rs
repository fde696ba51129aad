//! Settings that change while traffic flows.

use std::time::Duration;

use kcp9::{KcpConfig, NoDelay, SessionSettings, fec::AdaptiveFec, proto::SettingError};

use kcp9_simulator::{CLIENT, LinkSettings, Rng, SERVER, Simulation, Writer, ms};

fn change_something(simulation: &mut Simulation, rng: &mut Rng) {
    let side = rng.size(CLIENT..=SERVER);
    let presets = [NoDelay::NORMAL, NoDelay::FAST, NoDelay::FAST2, NoDelay::FAST3, NoDelay::IKCP];
    let (send, recv) = (rng.magnitude(1..=1_024) as u32, rng.magnitude(1..=1_024) as u32);
    let (mtu, preset, on) = (rng.size(64..=1_500), *rng.choose(&presets), rng.chance(0.5));
    let change = rng.within(0..=6);
    simulation.call(side, |connection, _| match change {
        0 => match connection.update_settings(|settings| settings.mtu = mtu) {
            Ok(()) => assert_eq!(connection.mtu(), mtu),
            Err(SettingError::MtuBelowQueued { min }) => {
                assert!(min > mtu);
                connection.update_settings(|settings| settings.mtu = min).expect("the mtu it names is taken");
            }
            Err(error) => panic!("mtu {mtu}: {error}"),
        },
        1 => connection.trim(),
        change => {
            let outcome = connection.update_settings(|settings| match change {
                2 => (settings.send_window, settings.recv_window) = (send, recv),
                3 => settings.nodelay = preset,
                4 => settings.stream = on,
                5 => settings.ack_no_delay = on,
                _ => settings.write_delay = on,
            });
            outcome.expect("settings within their limits");
        }
    });
}

#[test]
fn changes_at_any_time_lose_nothing() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let config = KcpConfig::builder().mtu(rng.size(64..=1_500)).build().unwrap();
        let link = LinkSettings::delay(rng.duration(ms(50))).loss(0.1);
        let mut simulation = Simulation::new(seed, &config, &link);
        for end in &mut simulation.ends {
            end.writer = Writer { sizes: 1..=3_000, pace: Some(ms(2)), ..Writer::bulk(200_000) };
        }
        simulation.start();
        for _ in 0..200 {
            change_something(&mut simulation, &mut rng);
            simulation.run_for(rng.duration(ms(20)));
        }
        simulation.complete(Duration::from_secs(3_600));
    }
}

#[test]
fn a_window_raised_from_closed_is_announced() {
    let config = KcpConfig::builder().recv_window(8).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(10)));
    simulation.client().writer = Writer::bulk(100_000);
    simulation.server().reader.not_before = kcp9::proto::Instant::from_millis(1_000_000);
    simulation.run_for(ms(400));
    assert_eq!(simulation.client().connection.stats().queues.peer_window, 0);
    simulation
        .update_settings(SERVER, |settings| (settings.send_window, settings.recv_window) = (8, 1_024))
        .unwrap();
    simulation.run_for(ms(11));
    // Announced within the time of one packet, before the client would probe.
    let stats = simulation.client().connection.stats();
    assert!(stats.queues.peer_window > 500, "{stats:?}");
    assert_eq!(stats.segments.window_probes, 0);
}

/// A name and a change of settings.
type Change = (&'static str, fn(&mut SessionSettings));

/// Each of these has one field outside its limits.
const REFUSED: [Change; 9] = [
    ("mtu", |settings| settings.mtu = 63),
    ("send_window", |settings| settings.send_window = 0),
    ("recv_window", |settings| settings.recv_window = 65_536),
    ("nodelay.interval", |settings| settings.nodelay.interval = Duration::ZERO),
    ("nodelay.resend", |settings| settings.nodelay.resend = 256),
    ("fec data", |settings| settings.fec = (0, 1)),
    ("fec parity", |settings| settings.fec = (200, 57)),
    ("fec min_parity", |settings| {
        let limits = AdaptiveFec { min_parity: 4, ..AdaptiveFec::default() };
        (settings.fec, settings.fec_adaptive) = ((10, 3), Some(limits));
    }),
    ("fec_flush", |settings| settings.fec_flush = Some(ms(1_001))),
];

#[test]
fn a_refused_change_changes_nothing() {
    let mut simulation = Simulation::new(1, &KcpConfig::default(), &LinkSettings::delay(ms(10)));
    let connection = &mut simulation.client().connection;
    let before = (connection.settings(), connection.stats());
    assert_eq!(before.0, KcpConfig::default().settings());
    for (field, refused) in REFUSED {
        let error = connection.update_settings(|settings| {
            settings.mtu = 900;
            settings.stream = false;
            settings.nodelay = NoDelay::NORMAL;
            settings.fec = (5, 2);
            settings.send_window = 7;
            refused(settings);
        });
        assert!(matches!(error, Err(SettingError::Config(error)) if error.field == field), "{field}");
        assert_eq!((connection.settings(), connection.stats()), before, "{field}");
    }
}

/// The values are within their limits, but segments are queued that need larger packets.
#[test]
fn an_mtu_below_what_is_queued_changes_nothing() {
    let mut simulation = Simulation::new(1, &KcpConfig::default(), &LinkSettings::delay(ms(10)));
    let full = simulation.call(CLIENT, |connection, now| {
        connection.write(now, &[7; 5_000]).unwrap();
        connection.settings()
    });
    let refused = simulation.update_settings(CLIENT, |settings| {
        settings.send_window = 7;
        settings.fec = (10, 3);
    });
    assert_eq!(refused, Err(SettingError::MtuBelowQueued { min: 1_408 }), "room for the header of FEC");
    assert_eq!(simulation.client().connection.settings(), full);
    // Both changes at once are accepted: larger packets have room for the segments.
    let taken = simulation.update_settings(CLIENT, |settings| {
        settings.mtu = 1_408;
        settings.fec = (10, 3);
    });
    assert_eq!(taken, Ok(()));
    let stats = simulation.client().connection.stats();
    assert_eq!((stats.fec_state.data_shards, stats.fec_state.parity_shards), (10, 3));
    assert_eq!(simulation.client().connection.mtu(), 1_408);
}
