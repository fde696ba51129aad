//! What a packet costs a receiver of FEC that somebody made to be costly: nanoseconds for each packet, all its groups' work among
//! them, by pattern.
//!
//! * `unexpected`: at a session without FEC of its own, which anybody can send FEC packets to all the same.
//! * `expected`: at one whose own groups have 10 and 3 packets.
//!
//! Among the patterns are two honest ones, to compare with. What a driver does for each packet besides is measured by `hostile`.

mod patterns;

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use kcp9::fec::bench::SessionDecoder;

use self::patterns::{CONV, Pattern};

/// Packets after which a decoder holds what it will hold.
const WARM_UP: u32 = 2_000;

fn hostile(c: &mut Criterion) {
    for (expected, name) in [(false, "fec_hostile/unexpected"), (true, "fec_hostile/expected")] {
        let mut group = c.benchmark_group(name);
        group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
        for mut pattern in patterns::all() {
            let mut decoder =
                if expected { SessionDecoder::expecting((10, 3)) } else { SessionDecoder::default() };
            let mut input = |pattern: &mut Pattern| {
                let outcome = decoder.input(black_box(pattern.next()), CONV, |segments| {
                    black_box(segments);
                });
                black_box(outcome.is_ok())
            };
            for _ in 0..pattern.lead + WARM_UP {
                input(&mut pattern);
            }
            group.bench_function(pattern.name, |b| b.iter(|| input(&mut pattern)));
        }
    }
}

criterion_group!(benches, hostile);
criterion_main!(benches);
