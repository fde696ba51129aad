//! Every byte arrives, once and in order, over any path and with any settings.

use std::time::Duration;

use kcp9::{CongestionControl, KcpConfig, NoDelay};

use kcp9_simulator::{Burst, CLIENT, LinkSettings, Reader, Rng, SERVER, Simulation, Writer, batches, ms};

/// Seeds in each of the tests below; they run in parallel.
const SEEDS: u64 = 125;
/// No run may need longer, in virtual time.
const LIMIT: Duration = Duration::from_secs(4 * 3_600);

fn random_link(rng: &mut Rng) -> LinkSettings {
    let sometimes = |rng: &mut Rng, max: f64| {
        if rng.chance(0.5) { max * rng.within(0..=1_000) as f64 / 1_000.0 } else { 0.0 }
    };
    LinkSettings {
        loss: sometimes(rng, 0.3),
        burst: rng.chance(0.2).then_some(Burst { begin: 0.01, end: 0.2, loss: 0.8 }),
        delay: Duration::from_micros(rng.magnitude(0..=300_000)),
        jitter: Duration::from_micros(rng.magnitude(0..=50_000)),
        reorder: sometimes(rng, 0.3),
        reorder_delay: ms(rng.magnitude(1..=200)),
        duplicate: sometimes(rng, 0.2),
        rate: rng.chance(0.25).then(|| rng.within(50_000..=5_000_000)),
        queue: rng.size(10_000..=200_000),
        ..LinkSettings::default()
    }
}

fn random_config(rng: &mut Rng, control: CongestionControl) -> KcpConfig {
    let presets = [NoDelay::NORMAL, NoDelay::FAST, NoDelay::FAST2, NoDelay::FAST3, NoDelay::IKCP];
    let custom = NoDelay {
        nodelay: rng.chance(0.5),
        interval: ms(rng.within(1..=100)),
        resend: rng.within(0..=4) as u32,
        nc: rng.chance(0.7),
    };
    let nodelay = if rng.chance(0.2) { custom } else { *rng.choose(&presets) };
    KcpConfig::builder()
        .mtu(if rng.chance(0.3) { rng.size(64..=200) } else { rng.size(200..=1_500) })
        .send_window(rng.magnitude(1..=1_024) as u32)
        .recv_window(rng.magnitude(1..=1_024) as u32)
        .nodelay(nodelay)
        .congestion_control(control)
        .stream(rng.chance(0.6))
        .ack_no_delay(rng.chance(0.3))
        .write_delay(rng.chance(0.3))
        .dead_timeout(Duration::from_secs(3_600))
        .build()
        .unwrap()
}

/// About `segments` segments' worth of traffic.
fn random_writer(rng: &mut Rng, config: &KcpConfig, segments: u64) -> Writer {
    let mss = config.mtu() - 24 - if config.fec() == (0, 0) { 0 } else { 8 };
    let messages = rng.chance(0.4);
    let largest = mss * if messages { rng.magnitude(1..=254) as usize } else { 40 };
    let smallest = if rng.chance(0.5) { 1 } else { largest.min(mss) };
    Writer {
        sizes: smallest..=largest,
        messages,
        pace: rng.chance(0.2).then(|| Duration::from_micros(rng.magnitude(100..=20_000))),
        ..Writer::bulk(segments * mss as u64 / if smallest == 1 && !config.stream() { 2 } else { 1 })
    }
}

fn random_reader(rng: &mut Rng, from: &Writer) -> Reader {
    let slow = rng.chance(0.2);
    Reader {
        messages: from.messages,
        size: if slow { rng.size(1_000..=20_000) } else { 65_536 },
        pace: slow.then(|| rng.duration(ms(20))),
        ..Reader::eager()
    }
}

fn deliver(seed: u64) {
    let mut rng = Rng::new(seed);
    // From a generator of its own, so that the congestion control changes nothing else of a seed.
    let mut controls = Rng::new(!seed);
    let configs = [0, 1].map(|_| {
        let control = controls
            .choose(&[
                CongestionControl::Kcp,
                CongestionControl::BbrLike,
                CongestionControl::Cubic,
                CongestionControl::Bbr3,
                CongestionControl::DelayBased,
            ])
            .clone();
        let config = random_config(&mut rng, control);
        let (data, parity) = *controls.choose(&[(0, 0), (0, 0), (10, 3), (1, 1), (3, 2), (2, 6), (30, 15)]);
        config.to_builder().fec(data, parity).build().unwrap()
    });
    let links = [random_link(&mut rng), random_link(&mut rng)];
    let first_sn = if rng.chance(0.3) { u32::MAX - rng.within(0..=300) as u32 } else { 0 };
    let clocks = [0, 1].map(|_| match rng.chance(0.3) {
        true => Duration::from_millis((1 << 32) - rng.within(0..=5_000)),
        false => rng.duration(Duration::from_secs(1_000)),
    });
    let mut simulation = Simulation::with(seed, [&configs[0], &configs[1]], links, first_sn, clocks);
    for side in [CLIENT, SERVER] {
        let segments = rng.within(20..=400);
        let writer = random_writer(&mut rng, &configs[side], segments);
        simulation.ends[1 - side].reader = random_reader(&mut rng, &writer);
        simulation.ends[side].writer = writer;
        simulation.ends[side].one_by_one = rng.chance(0.5);
    }
    simulation.complete(LIMIT);
}

batches! {
    deliver, SEEDS;
    random_sessions_deliver_everything_0: 0;
    random_sessions_deliver_everything_1: 1;
    random_sessions_deliver_everything_2: 2;
    random_sessions_deliver_everything_3: 3;
    random_sessions_deliver_everything_4: 4;
    random_sessions_deliver_everything_5: 5;
    random_sessions_deliver_everything_6: 6;
    random_sessions_deliver_everything_7: 7;
}
