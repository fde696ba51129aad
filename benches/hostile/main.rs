//! What a packet costs the end that it is sent to, made to cost as much as it can: nanoseconds for each, from the endpoint that routes
//! it over the session that takes it in, timers, reads and what is sent in answer, without system calls. Honest ones are beside them.
//!
//! * `one`: each packet is a turn of the driver, as when it wakes for each.
//! * `sixteen`: 16 packets of a sender are received at once.
//!
//! Packets are made beforehand, and are not measured. Those of FEC are in `fec_hostile`. Before that, what an ordinary packet and the
//! dearest ones cost the driver of a real socket is said, in processor time: Linux tells that of a thread.

#[cfg(target_os = "linux")]
mod driver;
mod packets;
#[cfg(target_os = "linux")]
mod raw;
mod victim;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kcp9::proto::Block;

use self::{packets::Pattern, victim::Victim};

/// Packets that are taken in before anything is measured.
const WARM_UP: u32 = 4_096;

/// A pattern on its way into a session, `batch` packets at a time.
struct Flood {
    pattern: Pattern,
    victim: Victim,
    batch: usize,
    number: u32,
    blocks: Vec<(Block, usize, usize)>,
}

impl Flood {
    fn new(pattern: Pattern, batch: usize) -> Self {
        let mut victim = (pattern.victim)();
        (pattern.prepare)(&mut victim);
        Self { pattern, victim, batch, number: 0, blocks: Vec::new() }
    }

    /// Makes packets, and measures how long it takes to take them in. Returns how many.
    fn run(&mut self) -> (u64, Duration) {
        let ahead = self.pattern.ahead.max(self.batch);
        let turns = ahead / self.batch;
        let first = self.number;
        for turn in 0..turns {
            let (mut bytes, mut stride) = (Vec::new(), 0);
            for _ in 0..self.batch {
                let packet = (self.pattern.make)(&mut self.victim, self.number);
                stride = packet.len();
                bytes.extend(packet);
                self.number += 1;
            }
            // One packet by itself is a small part of a driver's block, so that its payload is copied out of it.
            let room = if self.batch == 1 { 4_096 } else { bytes.len() };
            if self.blocks.len() <= turn {
                self.blocks.push((Arc::new(vec![0; room].into_boxed_slice()), 0, 0));
            }
            let (block, len, of_each) = &mut self.blocks[turn];
            if block.len() < room {
                *block = Arc::new(vec![0; room].into_boxed_slice());
            }
            Arc::get_mut(block).expect("everything was read")[..bytes.len()].copy_from_slice(&bytes);
            (*len, *of_each) = (bytes.len(), stride);
        }
        let begin = Instant::now();
        for (turn, (block, len, stride)) in self.blocks.iter_mut().take(turns).enumerate() {
            let from = (self.pattern.from)(first + (turn * self.batch) as u32);
            self.victim.turn(from, block, *len, *stride);
        }
        (ahead as u64, begin.elapsed())
    }
}

fn measure(c: &mut Criterion, patterns: fn() -> Vec<Pattern>) {
    for (batch, name) in [(1, "hostile/one"), (16, "hostile/sixteen")] {
        let mut group = c.benchmark_group(name);
        group
            .warm_up_time(Duration::from_millis(50))
            .measurement_time(Duration::from_millis(400))
            .sample_size(20);
        group.throughput(Throughput::Elements(1));
        for pattern in patterns() {
            if batch > pattern.ahead {
                continue;
            }
            let name = pattern.name;
            let mut flood = Flood::new(pattern, batch);
            let mut done = 0;
            while done < WARM_UP {
                done += flood.run().0 as u32;
            }
            let before = (flood.victim.taken, flood.victim.sent, flood.victim.sent_bytes);
            while done < 2 * WARM_UP {
                done += flood.run().0 as u32;
            }
            let taken = (flood.victim.taken - before.0) as f64;
            println!(
                "{name}: {:.3} packets are sent for each, {:.0} bytes",
                (flood.victim.sent - before.1) as f64 / taken,
                (flood.victim.sent_bytes - before.2) as f64 / taken,
            );
            group.bench_function(name, |b| {
                b.iter_custom(|packets| {
                    let (mut measured, mut count) = (Duration::ZERO, 0);
                    while count < packets {
                        let (more, time) = flood.run();
                        count += more;
                        measured += time;
                    }
                    measured.mul_f64(packets as f64 / count as f64)
                });
            });
            assert_eq!(flood.victim.connection.close_reason(), None, "{name}");
        }
    }
}

fn hostile(c: &mut Criterion) {
    // Without a name to filter by, or asked for by name.
    #[cfg(target_os = "linux")]
    if std::env::args().skip(1).all(|argument| argument.starts_with('-') || argument.contains("driver")) {
        for _ in 0..3 {
            driver::measure();
            raw::measure();
        }
    }
    measure(c, packets::honest);
    measure(c, packets::of_acks);
    measure(c, packets::of_pushes);
    measure(c, packets::of_extensions);
    measure(c, packets::of_strangers_in_all);
}

criterion_group!(benches, hostile);
criterion_main!(benches);
