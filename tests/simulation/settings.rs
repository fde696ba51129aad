//! Settings that change while traffic flows.

use std::time::Duration;

use kcp9::{KcpConfig, NoDelay, proto::SettingError};

use kcp9_simulator::{CLIENT, LinkSettings, Rng, SERVER, Simulation, Writer, ms};

fn change_something(simulation: &mut Simulation, rng: &mut Rng) {
    let side = rng.size(CLIENT..=SERVER);
    let presets = [NoDelay::NORMAL, NoDelay::FAST, NoDelay::FAST2, NoDelay::FAST3, NoDelay::IKCP];
    let (send, recv) = (rng.magnitude(1..=1_024) as u32, rng.magnitude(1..=1_024) as u32);
    let (mtu, preset, on) = (rng.size(64..=1_500), *rng.choose(&presets), rng.chance(0.5));
    let change = rng.within(0..=6);
    simulation.call(side, |connection, _| match change {
        0 => connection.set_windows(send, recv).unwrap(),
        1 => connection.set_nodelay(preset).unwrap(),
        2 => match connection.set_mtu(mtu) {
            Ok(()) => assert_eq!(connection.mtu(), mtu),
            Err(SettingError::MtuBelowQueued { min }) => {
                assert!(min > mtu);
                connection.set_mtu(min).expect("the mtu it names is taken");
            }
            Err(error) => panic!("mtu {mtu}: {error}"),
        },
        3 => connection.set_stream(on),
        4 => connection.set_ack_no_delay(on),
        5 => connection.set_write_delay(on),
        _ => connection.trim(),
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
fn a_window_raised_from_closed_is_told() {
    let config = KcpConfig::builder().recv_window(8).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(10)));
    simulation.client().writer = Writer::bulk(100_000);
    simulation.server().reader.not_before = kcp9::proto::Instant::from_millis(1_000_000);
    simulation.run_for(ms(400));
    assert_eq!(simulation.client().connection.stats().queues.peer_window, 0);
    simulation.call(SERVER, |connection, _| connection.set_windows(8, 1_024)).unwrap();
    simulation.run_for(ms(11));
    // Told within the time a packet takes, before the client would ask.
    let stats = simulation.client().connection.stats();
    assert!(stats.queues.peer_window > 500, "{stats:?}");
    assert_eq!(stats.segments.window_probes, 0);
}
