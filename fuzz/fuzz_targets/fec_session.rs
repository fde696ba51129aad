//! Two sessions with forward error correction on a path that loses, duplicates and reorders what the fuzzer says, while
//! both change their settings.
//!
//! Proves that no byte is wrong, whatever was recovered around a change; that parity which follows the losses keeps to
//! its limits; that no call spins, and an idle session without keep-alive waits for nothing; and that all arrives once the path is sound.
//! `fec_input` has packets that nobody sent, `two_peers` all the other settings.

#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use kcp9::{
    KcpConfig, NoDelay,
    fec::AdaptiveFec,
    proto::{Connection, Instant},
};
use libfuzzer_sys::fuzz_target;

const MAX_OPERATIONS: usize = 200;
/// Bytes that one end writes at most.
const MAX_BYTES: u64 = 200_000;
/// Time on the way.
const DELAY: Duration = Duration::from_millis(20);
/// By when everything must have arrived on a sound path.
const LIMIT: Duration = Duration::from_secs(300);

#[derive(Debug, Arbitrary)]
struct Plan {
    ends: [Fec; 2],
    operations: Vec<(bool, Operation)>,
}

#[derive(Debug, Arbitrary, Clone, Copy)]
struct Fec {
    data: u8,
    parity: u8,
    adaptive: Option<(u8, u8)>,
    flush: Option<u8>,
}

#[derive(Debug, Arbitrary)]
enum Operation {
    Write(u16),
    Run(u8),
    Shards(u8, u8),
    Adaptive(Option<(u8, u8)>),
    Flush(Option<u8>),
    /// Which of the next packets are lost, come twice, and are overtaken, by bits; used again and again.
    Path {
        lost: u32,
        twice: u32,
        late: u32,
    },
    Trim,
}

/// Shards that exist: both 0, or both not.
fn shards(data: u8, parity: u8) -> (usize, usize) {
    let (data, parity) = (usize::from(data % 24), usize::from(parity % 12));
    if data == 0 || parity == 0 { (0, 0) } else { (data, parity) }
}

fn limits(choice: Option<(u8, u8)>) -> Option<AdaptiveFec> {
    choice.map(|(min, budget)| AdaptiveFec { min_parity: min.into(), budget: 1 + u32::from(budget) * 3 })
}

fn flush(choice: Option<u8>) -> Option<Duration> {
    choice.map(|millis| Duration::from_millis(1 + u64::from(millis) * 3))
}

fn byte_at(from: usize, position: u64) -> u8 {
    ((position ^ (from as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

struct End {
    connection: Connection,
    min_parity: usize,
    written: u64,
    read: u64,
    path: [u32; 3],
    sent: u32,
    under_way: Vec<(Instant, Vec<u8>)>,
}

impl End {
    fn new(fec: Fec) -> Self {
        let (data, parity) = shards(fec.data, fec.parity);
        let config = KcpConfig::builder()
            .mtu(200)
            .nodelay(NoDelay::FAST3)
            .dead_timeout(Duration::from_secs(3_600))
            .fec(data, parity)
            .fec_flush(flush(fec.flush))
            .keep_alive(None)
            .build()
            .expect("settings in range");
        let connection = Connection::new(7, &config, Instant::ZERO);
        let (min_parity, under_way) = (usize::MAX, Vec::new());
        let mut end = Self { connection, min_parity, written: 0, read: 0, path: [0; 3], sent: 0, under_way };
        end.adapt(limits(fec.adaptive));
        end
    }

    /// Has parity follow the losses, which is refused where the least parity is more than a group has.
    fn adapt(&mut self, limits: Option<AdaptiveFec>) {
        let (_, parity) = self.connection.settings().fec;
        let min_parity = limits.map_or(usize::MAX, |limits| limits.min_parity);
        let outcome = self.connection.update_settings(|settings| settings.fec_adaptive = limits);
        let allowed = limits.is_none() || parity == 0 || min_parity <= parity;
        assert_eq!(outcome.is_ok(), allowed);
        if allowed {
            self.min_parity = min_parity;
        }
    }

    fn send(&mut self, now: Instant, packet: &[u8]) {
        let [lost, twice, late] = self.path.map(|bits| bits >> (self.sent % 32) & 1 == 1);
        self.sent = self.sent.wrapping_add(1);
        let at = now + DELAY + if late { Duration::from_millis(7) } else { Duration::ZERO };
        for _ in 0..if lost { 0 } else { 1 + u8::from(twice) } {
            self.under_way.push((at, packet.to_vec()));
        }
    }

    fn check(&self) {
        let fec = self.connection.stats().fec_state;
        assert!(fec.current_parity <= fec.parity_shards);
        assert!(fec.current_parity as usize >= self.min_parity.min(fec.parity_shards as usize), "{fec:?}");
        assert!(fec.loss_ppm <= 1_000_000);
    }
}

struct World {
    ends: [End; 2],
    now: Instant,
    buffer: Vec<u8>,
}

impl World {
    fn operate(&mut self, at: usize, operation: &Operation) {
        let now = self.now;
        let end = &mut self.ends[at];
        match *operation {
            Operation::Write(len) => {
                let len = u64::from(len % 4_096).min(MAX_BYTES - end.written);
                let bytes: Vec<_> =
                    (end.written..end.written + len).map(|place| byte_at(at, place)).collect();
                end.written += end.connection.write(now, &bytes).unwrap_or(0) as u64;
            }
            Operation::Run(millis) => self.run(now + Duration::from_millis(u64::from(millis) * 4)),
            Operation::Shards(data, parity) => {
                // Refused while segments are queued that leave no room for its header, and where the least parity of a
                // group is more than it would have.
                let _ = end.connection.update_settings(|settings| settings.fec = shards(data, parity));
            }
            Operation::Adaptive(choice) => {
                end.adapt(limits(choice));
            }
            Operation::Flush(choice) => end
                .connection
                .update_settings(|settings| settings.fec_flush = flush(choice))
                .expect("a time in range"),
            Operation::Path { lost, twice, late } => end.path = [lost, twice, late],
            Operation::Trim => end.connection.trim(),
        }
        self.ends[at].check();
    }

    /// Runs until there is nothing left to do before `until`.
    fn run(&mut self, until: Instant) {
        loop {
            for at in 0..2 {
                self.settle(at);
            }
            let arrivals = self.ends.iter().flat_map(|end| end.under_way.iter().map(|(at, _)| *at));
            let timers = self.ends.iter().filter_map(|end| end.connection.poll_timeout());
            match arrivals.chain(timers).min().filter(|next| *next <= until) {
                Some(next) => self.now = next.max(self.now),
                None => break,
            }
        }
        self.now = until;
    }

    /// Takes in what has arrived at one end, reads, and sends.
    fn settle(&mut self, at: usize) {
        let now = self.now;
        let [first, second] = &mut self.ends;
        let (end, other) = if at == 0 { (first, second) } else { (second, first) };
        let mut place = 0;
        while place < other.under_way.len() {
            if other.under_way[place].0 > now {
                place += 1;
                continue;
            }
            let (_, mut packet) = other.under_way.remove(place);
            end.connection.handle_packet(now, &mut packet).expect("a packet of the peer's");
        }
        if end.connection.poll_timeout().is_some_and(|due| due <= now) {
            end.connection.handle_timeout(now);
        }
        let mut out = [0; 1_024];
        while let Ok(count) = end.connection.read(&mut out) {
            for byte in &out[..count] {
                assert_eq!(*byte, byte_at(1 - at, end.read), "not what was written");
                end.read += 1;
            }
        }
        assert!(end.read <= other.written);
        while let Some(transmit) = end.connection.poll_transmit(now, &mut self.buffer) {
            for packet in self.buffer[..transmit.len].chunks(transmit.stride) {
                end.send(now, packet);
            }
        }
        while end.connection.poll_event().is_some() {}
        assert!(end.connection.poll_timeout().is_none_or(|due| due > now), "it spins");
        end.check();
    }
}

fuzz_target!(|plan: Plan| {
    let ends = plan.ends.map(End::new);
    let mut world = World { ends, now: Instant::ZERO, buffer: vec![0; 65_536] };
    for (second, operation) in plan.operations.iter().take(MAX_OPERATIONS) {
        world.operate(usize::from(*second), operation);
    }
    for end in &mut world.ends {
        end.path = [0; 3];
    }
    world.run(world.now + LIMIT);
    for at in 0..2 {
        let (end, other) = (&world.ends[at], &world.ends[1 - at]);
        assert_eq!(end.read, other.written, "{:#?}", other.connection.stats());
        assert_eq!(end.connection.poll_timeout(), None, "at rest: {:#?}", end.connection.stats());
    }
});
