//! One mode at one loss.

use std::time::Duration;

use kcp9::{
    KcpConfig, NoDelay,
    fec::AdaptiveFec,
    proto::{Instant, Stats},
};

use kcp9_simulator::{CLIENT, LinkSettings, Reader, SERVER, Simulation, Writer, ms};

const DELAY: Duration = ms(50);
const SEEDS: std::ops::Range<u64> = 0..3;
/// Messages of a run.
const MESSAGES: u64 = 10_000;
const MESSAGE: usize = 200;
const PACE: Duration = ms(20);
/// Messages at the start that are not counted: the adaptive modes do not know the losses yet.
const WARM_UP: usize = 2_500;
/// Time of a bulk transfer, and the part at its start that is not counted.
const BULK: Duration = Duration::from_secs(120);
const BULK_WARM_UP: Duration = Duration::from_secs(20);

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Off,
    Fixed,
    FixedFlush,
    Adaptive,
    AdaptiveFlush,
}

impl Mode {
    pub const ALL: [Self; 5] =
        [Self::Off, Self::Fixed, Self::FixedFlush, Self::Adaptive, Self::AdaptiveFlush];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Fixed => "10/3",
            Self::FixedFlush => "10/3, flush",
            Self::Adaptive => "adaptive to 10/8",
            Self::AdaptiveFlush => "adaptive to 10/8, flush",
        }
    }

    fn config(self) -> KcpConfig {
        let builder = KcpConfig::builder().nodelay(NoDelay::FAST3).send_window(256).recv_window(256);
        let flush = Some(ms(10));
        let builder = match self {
            Self::Off => builder,
            Self::Fixed => builder.fec(10, 3),
            Self::FixedFlush => builder.fec(10, 3).fec_flush(flush),
            Self::Adaptive => builder.fec(10, 8).fec_adaptive(Some(AdaptiveFec::default())),
            Self::AdaptiveFlush => {
                builder.fec(10, 8).fec_adaptive(Some(AdaptiveFec::default())).fec_flush(flush)
            }
        };
        builder.build().expect("settings in range")
    }
}

/// What was measured.
#[derive(Debug)]
pub struct Outcome {
    pub mode: Mode,
    /// In percent.
    pub loss: u32,
    /// Latencies of the messages, sorted.
    pub latencies: Vec<Duration>,
    /// Bytes of packets per byte of messages, from sender to receiver.
    pub message_cost: f64,
    /// Packets per message.
    pub packets: f64,
    /// Bytes a second that a bulk transfer delivers.
    pub goodput: f64,
    /// Bytes of packets per byte of bulk.
    pub bulk_cost: f64,
    /// Segments resent, in percent of those sent.
    pub bulk_resent: f64,
}

impl Outcome {
    /// The latency that `per_mille` of a thousand messages do not exceed.
    pub fn percentile(&self, per_mille: usize) -> Duration {
        self.latencies[(self.latencies.len() * per_mille).div_ceil(1_000) - 1]
    }
}

pub fn measure(mode: Mode, loss: u32) -> Outcome {
    let mut latencies = Vec::new();
    let (mut bytes, mut packets, mut written) = (0, 0, 0);
    for seed in SEEDS {
        let stats = messages(mode, loss, seed, &mut latencies);
        bytes += stats.udp.bytes_sent;
        packets += stats.udp.packets_sent;
        written += stats.stream.bytes_written;
    }
    latencies.sort_unstable();
    let (goodput, bulk_cost, bulk_resent) = bulk(mode, loss);
    Outcome {
        mode,
        loss,
        latencies,
        message_cost: bytes as f64 / written as f64,
        packets: packets as f64 * MESSAGE as f64 / written as f64,
        goodput,
        bulk_cost,
        bulk_resent,
    }
}

/// Sends messages at their pace; adds the time that each took.
fn messages(mode: Mode, loss: u32, seed: u64, latencies: &mut Vec<Duration>) -> Stats {
    let link = LinkSettings::delay(DELAY).loss(f64::from(loss) / 100.0);
    let mut simulation = Simulation::new(seed, &mode.config(), &link);
    simulation.client().writer = Writer { pace: Some(PACE), ..Writer::messages(MESSAGES, MESSAGE) };
    simulation.server().reader = Reader::messages();
    simulation.start();
    let mut sent: Vec<Instant> = Vec::new();
    let mut received = 0;
    let mut before = None;
    while received < MESSAGES as usize {
        let flow = &simulation.flows[CLIENT];
        sent.resize((flow.written / MESSAGE as u64) as usize, simulation.now);
        let count = (flow.read / MESSAGE as u64) as usize;
        for at in &sent[received.max(WARM_UP).min(count)..count] {
            latencies.push(simulation.now - *at);
        }
        received = count;
        if before.is_none() && count >= WARM_UP {
            before = Some(simulation.client().connection.stats());
        }
        assert!(simulation.step(), "stalled");
    }
    since(&simulation.client().connection.stats(), &before.unwrap_or_default())
}

/// Goodput in bytes a second, cost in bytes sent per byte delivered, and segments resent in percent.
fn bulk(mode: Mode, loss: u32) -> (f64, f64, f64) {
    let link = LinkSettings::delay(DELAY).loss(f64::from(loss) / 100.0).rate(2_000_000, 200_000);
    let config = mode.config().to_builder().nodelay(KcpConfig::default().nodelay());
    let config = config.send_window(2_048).recv_window(2_048).build().expect("settings in range");
    let mut simulation = Simulation::new(9, &config, &link);
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.run_for(BULK_WARM_UP);
    let read = |simulation: &Simulation| simulation.ends[SERVER].connection.stats().stream.bytes_read;
    let (before, read_before) = (simulation.client().connection.stats(), read(&simulation));
    simulation.run_for(BULK - BULK_WARM_UP);
    let delivered = (read(&simulation) - read_before) as f64;
    let stats = since(&simulation.client().connection.stats(), &before);
    (
        delivered / (BULK - BULK_WARM_UP).as_secs_f64(),
        stats.udp.bytes_sent as f64 / delivered,
        100.0 * stats.recovery.timeout_resends as f64 / stats.segments.push_sent as f64,
    )
}

/// The counters that are used here, since `before`; all resends under one of them.
fn since(stats: &Stats, before: &Stats) -> Stats {
    let mut since = *stats;
    since.udp.bytes_sent -= before.udp.bytes_sent;
    since.udp.packets_sent -= before.udp.packets_sent;
    since.stream.bytes_written -= before.stream.bytes_written;
    since.segments.push_sent -= before.segments.push_sent;
    since.recovery.timeout_resends = stats.recovery.resends() - before.recovery.resends();
    since
}
