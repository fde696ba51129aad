//! Random ends: who ends when and how, and what the path does to it, follow from a seed. What must hold of any of them is checked.

use std::time::Duration;

use kcp9::proto::{AbortReason, CloseReason, Connection, Event, Instant};
use kcp9_simulator::{Burst, CLIENT, LinkSettings, Rng, SERVER, Simulation, Writer, batches, ms};

use super::{Know, SECOND, reason, session_at, when};

/// How an end ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Shutdown,
    Drop,
    Abort,
}

/// When it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Everything is written.
    Written,
    /// Everything is written, and the peer's stream was read to its end.
    Read,
    /// At this time, whatever was written.
    At(Instant),
}

/// What one end means to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    bytes: u64,
    when: When,
    how: How,
    pub(super) done: bool,
}

/// No run may need longer, in virtual time.
const LIMIT: Duration = Duration::from_secs(3_600);
/// No session may be left so long after both ends were told to end.
const LAST: Duration = Duration::from_secs(120);

pub(super) struct Run {
    pub(super) simulation: Simulation,
    know: Know,
    pub(super) plans: [Plan; 2],
    /// When the later end was told to end.
    told: Instant,
}

impl Run {
    fn new(seed: u64, know: Know) -> Self {
        let mut rng = Rng::new(seed);
        let plans = plans(&mut rng, know);
        let links = [random_link(&mut rng), random_link(&mut rng)];
        let fec = *rng.choose(&[(0, 0), (0, 0), (4, 2), (10, 3)]);
        let windows = (rng.magnitude(2..=256) as u32, rng.magnitude(2..=256) as u32);
        let stream = rng.chance(0.7);
        let crypto = random_cipher(&mut rng);
        let first_sn = if rng.chance(0.3) { u32::MAX - rng.within(0..=100) as u32 } else { 0 };
        let mut simulation = session_at(seed, know, links, first_sn, |mut config| {
            if let Some(crypto) = &crypto {
                config = config.crypto(crypto.clone());
            }
            let config = config.fec(fec.0, fec.1).send_window(windows.0).recv_window(windows.1);
            config.stream(stream).keep_alive(Some(20 * SECOND))
        });
        for side in [CLIENT, SERVER] {
            let end = &mut simulation.ends[side];
            let pace = rng.chance(0.4).then(|| rng.duration(ms(30)));
            // The server is there when the first packet has come.
            let bytes = if side == CLIENT { plans[side].bytes } else { 0 };
            end.writer = Writer { sizes: 1..=rng.size(1..=9_000), pace, ..Writer::bulk(bytes) };
            end.reader.pace = rng.chance(0.3).then(|| rng.duration(ms(20)));
            end.reader.size = rng.size(2_000..=65_536);
            end.one_by_one = rng.chance(0.5);
        }
        Self { simulation, know, plans, told: Instant::ZERO }
    }

    /// A session whose ends are told to end by [`end`](Self::end).
    pub(super) fn of(simulation: Simulation, know: Know) -> Self {
        let plan = Plan { bytes: u64::MAX, when: When::Written, how: How::Shutdown, done: false };
        Self { simulation, know, plans: [plan; 2], told: Instant::ZERO }
    }

    fn run(&mut self) {
        let limit = Instant::ZERO + LIMIT;
        self.simulation.start();
        let mut begun = false;
        loop {
            let server = &mut self.simulation.ends[SERVER];
            if !begun && server.connection.stats().udp.packets_received > 0 {
                begun = true;
                server.writer.total = self.plans[SERVER].bytes;
                self.simulation.drive(SERVER);
            }
            for side in [CLIENT, SERVER].into_iter().filter(|side| begun || *side == CLIENT) {
                self.act(side);
            }
            let next = self.plans.iter().filter(|plan| !plan.done).filter_map(|plan| match plan.when {
                When::At(at) if at > self.simulation.now => Some(at),
                _ => None,
            });
            let until = next.min().unwrap_or(limit);
            if !self.simulation.step_within(until) {
                if until == limit {
                    break;
                }
                self.simulation.run_for(until - self.simulation.now);
            }
        }
        self.check();
    }

    fn act(&mut self, side: usize) {
        let simulation = &mut self.simulation;
        let plan = &mut self.plans[side];
        let end = &simulation.ends[side];
        let written = simulation.flows[side].written == plan.bytes || end.writer.refused.is_some();
        let closed = end.connection.close_reason().is_some();
        let is_time = match plan.when {
            When::Written => written,
            When::Read => written && end.reader.finished,
            When::At(at) => at <= simulation.now,
        };
        if plan.done || !(is_time || closed) {
            return;
        }
        let how = plan.how;
        self.end(side, how);
    }

    /// Tells an end to end. It may have been told before; then this is what it does at last.
    pub(super) fn end(&mut self, side: usize, how: How) {
        let (simulation, plan) = (&mut self.simulation, &mut self.plans[side]);
        let is_closed = simulation.ends[side].connection.close_reason().is_some();
        if plan.done && (is_closed || how == How::Shutdown) {
            return;
        }
        *plan = Plan { how, done: true, ..*plan };
        self.told = simulation.now;
        simulation.ends[side].writer.total = simulation.flows[side].written;
        simulation.call(side, |connection: &mut Connection, now| match how {
            How::Shutdown => connection.shutdown(now),
            How::Drop => connection.drop_reader(now),
            How::Abort => connection.abort(now, AbortReason::Application),
        });
    }

    /// What holds however a session ends.
    pub(super) fn check(&self) {
        for side in [CLIENT, SERVER] {
            let (end, flow) = (&self.simulation.ends[side], &self.simulation.flows[side]);
            let peer = &self.simulation.ends[1 - side];
            let dropped = peer.connection.is_reader_dropped();
            let reason = reason(&self.simulation, side);
            let what = format!("end {side}, {:?}, {:?}, {reason:?}", self.know, self.plans);

            let arrived = {
                let stats = peer.connection.stats();
                stats.stream.bytes_read + stats.queues.unread_bytes as u64
            };
            let result = end.connection.shutdown_result();
            if result == Some(Ok(())) && !dropped {
                assert_eq!(arrived, flow.written, "a shutdown that was done: {what}");
            }
            if peer.reader.finished && !dropped {
                assert_eq!(flow.read, flow.written, "the end of a stream before its last byte: {what}");
            }
            if end.connection.stats().udp.packets_received == 0 && side == SERVER {
                // It is not there: nothing has begun it.
                continue;
            }
            // Nothing tells such a session of its peer's end. It lives as long as its peer answers.
            let lives_on = !self.plans[side].done || self.plans[side].how == How::Shutdown;
            if self.know != Know::Both && lives_on {
                continue;
            }
            assert!(self.plans[side].done, "it never came to its end: {what}");
            let ended = reason.and_then(|reason| when(&self.simulation, side, Event::Closed(reason)));
            let latest = self.told - Instant::ZERO + LAST;
            assert!(ended.is_some_and(|at| at <= latest), "a session is left: {what}, {:?}", self.told);
            if self.know == Know::Both {
                self.check_agreement(side, &what);
            } else {
                assert!(!end.reader.finished || dropped || reason == Some(CloseReason::Finished), "{what}");
            }
        }
    }

    /// What two ends that know the extensions come to.
    fn check_agreement(&self, side: usize, what: &str) {
        let [own, peers] = [side, 1 - side].map(|side| reason(&self.simulation, side));
        let aborts = self.plans.iter().any(|plan| plan.how == How::Abort);
        match own {
            Some(CloseReason::Finished) => {
                let end = &self.simulation.ends[side];
                assert!(end.reader.finished || end.connection.is_reader_dropped(), "{what}");
            }
            Some(CloseReason::Aborted) => assert_eq!(self.plans[side].how, How::Abort, "{what}"),
            Some(CloseReason::AbortedByPeer(AbortReason::Application)) => {
                assert_eq!(peers, Some(CloseReason::Aborted), "{what}");
            }
            // The peer was done, and something was still under way to it.
            Some(CloseReason::AbortedByPeer(AbortReason::Unspecified)) => {
                assert_eq!(peers, Some(CloseReason::Finished), "{what}");
            }
            // Nobody is left who could answer: it was aborted before it knew this end's tag, or it had no sign that anybody is there.
            _ => {
                let client = self.simulation.ends[CLIENT].connection.stats();
                // A server that never had a HELLO, and nothing to send, was dropped: there is no tag to tell its client with.
                let unknown = !self.simulation.ends[SERVER].connection.is_peer_confirmed();
                assert!(aborts || client.udp.packets_received == 0 || unknown, "{what}");
            }
        }
    }
}

fn plans(rng: &mut Rng, know: Know) -> [Plan; 2] {
    let mut plan = |both: bool| {
        let how = match rng.within(0..=9) {
            0..=4 => How::Shutdown,
            5..=7 => How::Drop,
            _ => How::Abort,
        };
        let when = match rng.within(0..=9) {
            0..=3 => When::Written,
            4..=6 if both => When::Read,
            _ => {
                let latest = ms(if rng.chance(0.5) { 300 } else { 5_000 });
                When::At(Instant::ZERO + rng.duration(latest))
            }
        };
        let bytes = if rng.chance(0.2) { 0 } else { rng.magnitude(1..=200_000) };
        Plan { bytes, when, how, done: false }
    };
    let client = plan(know == Know::Both);
    // One of both ends first.
    [client, plan(know == Know::Both && client.when != When::Read)]
}

/// None, one that authenticates, or one that does not.
#[cfg(all(feature = "kcptun-ciphers", feature = "aead", feature = "highway"))]
fn random_cipher(rng: &mut Rng) -> Option<kcp9::crypto::PacketCrypto> {
    use kcp9::crypto::{CipherKind, Framing};
    let cipher = *rng.choose(&[None, None, Some(CipherKind::Aes128Gcm), Some(CipherKind::Aes128)]);
    let config = crate::encryption::encrypted((cipher?, Framing::KcpGo)).build().unwrap();
    config.crypto().cloned()
}

#[cfg(not(all(feature = "kcptun-ciphers", feature = "aead", feature = "highway")))]
fn random_cipher(_: &mut Rng) -> Option<kcp9::crypto::PacketCrypto> {
    None
}

fn random_link(rng: &mut Rng) -> LinkSettings {
    let sometimes = |rng: &mut Rng, max: f64| {
        if rng.chance(0.6) { max * rng.within(0..=1_000) as f64 / 1_000.0 } else { 0.0 }
    };
    LinkSettings {
        loss: sometimes(rng, 0.3),
        burst: rng.chance(0.1).then_some(Burst { begin: 0.01, end: 0.2, loss: 0.8 }),
        delay: Duration::from_micros(rng.magnitude(0..=200_000)),
        jitter: Duration::from_micros(rng.magnitude(0..=50_000)),
        reorder: sometimes(rng, 0.3),
        reorder_delay: ms(rng.magnitude(1..=200)),
        duplicate: sometimes(rng, 0.2),
        rate: rng.chance(0.2).then(|| rng.within(50_000..=5_000_000)),
        queue: rng.size(10_000..=200_000),
        ..LinkSettings::default()
    }
}

fn run(seed: u64) {
    // Two ends of ours in most of the runs.
    let know = [Know::Both, Know::Both, Know::Both, Know::Client, Know::Server, Know::Neither];
    Run::new(seed, know[(seed % 6) as usize]).run();
}

/// Seeds in each of the tests below; they run in parallel.
const SEEDS: u64 = 120;

batches! {
    run, SEEDS;
    sessions_end_in_agreement_0: 0;
    sessions_end_in_agreement_1: 1;
    sessions_end_in_agreement_2: 2;
    sessions_end_in_agreement_3: 3;
}

/// `cargo test --release --test simulation -- --ignored ten_thousand_sessions_end_in_agreement`
#[test]
#[ignore = "minutes: cargo test --release --test simulation end -- --ignored"]
fn ten_thousand_sessions_end_in_agreement() {
    (1_000_000..1_010_000).for_each(run);
}
