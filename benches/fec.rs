//! The erasure code at 10 data and 3 parity shards of 1,400 bytes, in bytes of data: 14,000 a group.
//!
//! * `encode`: parity of a whole group; `encode_one`: shard by shard, as a sender does it.
//! * `reconstruct_1`, `reconstruct_3`: one and three lost data shards, into memory at hand, from a pattern of losses
//!   seen before; `reconstruct_1_new`, `reconstruct_3_new`: from one never seen.
//!
//! Each by every kernel that runs here, against the crate `reed-solomon-erasure` (with `simd-accel` on x86-64), which
//! codes alike and also keeps what it computed for a pattern. Klauspost's codec, which is kcp-go's, has the program
//! `benches/go/fec`: `cd benches/go/fec && go run .` prints its figures under the same names. Run both in turns.

use std::{hint::black_box, time::Duration};

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use kcp9::fec::{DecodeCache, Kernel, ParityAccumulator, ReedSolomon};
use reed_solomon_erasure::galois_8::ReedSolomon as Erasure;

const DATA: usize = 10;
const PARITY: usize = 3;
const LEN: usize = 1_400;

fn groups(c: &mut Criterion) {
    let mut group = c.benchmark_group("fec");
    group.throughput(Throughput::Bytes((DATA * LEN) as u64));
    group.warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    let mut shards: Vec<Vec<u8>> =
        (0..DATA + PARITY).map(|n| (0..LEN).map(|at| (n * 7 + at * 13) as u8).collect()).collect();
    Erasure::new(DATA, PARITY).expect("a code").encode(&mut shards).expect("parity");

    for kernel in Kernel::available() {
        encode(&mut group, kernel, &shards);
    }
    let code = Erasure::new(DATA, PARITY).expect("a code");
    let (data, mut parity) = (&shards[..DATA], vec![vec![0; LEN]; PARITY]);
    group.bench_function("encode/reed-solomon-erasure", |b| {
        b.iter(|| code.encode_sep(black_box(data), black_box(&mut parity)));
    });
    group.bench_function("encode_one/reed-solomon-erasure", |b| {
        b.iter(|| {
            for (index, shard) in data.iter().enumerate() {
                code.encode_single_sep(index, black_box(shard), black_box(&mut parity)).expect("parity");
            }
        });
    });

    for lost in [1, 3] {
        for kernel in Kernel::available() {
            reconstruct(&mut group, kernel, &shards, lost);
        }
        let mut marked: Vec<_> = shards.iter().map(|shard| (shard.clone(), true)).collect();
        group.bench_function(format!("reconstruct_{lost}/reed-solomon-erasure"), |b| {
            b.iter(|| {
                marked.iter_mut().step_by(2).take(lost).for_each(|shard| shard.1 = false);
                code.reconstruct_data(black_box(&mut marked)).expect("enough shards");
            });
        });
    }
}

fn encode(group: &mut BenchmarkGroup<'_, WallTime>, kernel: Kernel, shards: &[Vec<u8>]) {
    let code = ReedSolomon::with_kernel(DATA, PARITY, kernel).expect("a code");
    let (data, mut parity) = (&shards[..DATA], vec![vec![0; LEN]; PARITY]);
    code.encode(data, &mut parity).expect("parity");
    assert_eq!(parity, shards[DATA..]);
    group.bench_function(format!("encode/{}", kernel.name()), |b| {
        b.iter(|| code.encode(black_box(data), black_box(&mut parity)));
    });
    let mut parity = ParityAccumulator::new();
    group.bench_function(format!("encode_one/{}", kernel.name()), |b| {
        b.iter(|| {
            parity.clear();
            for (index, shard) in data.iter().enumerate() {
                parity.add(&code, index, black_box(shard)).expect("parity");
            }
        });
    });
}

fn reconstruct(group: &mut BenchmarkGroup<'_, WallTime>, kernel: Kernel, shards: &[Vec<u8>], lost: usize) {
    let code = ReedSolomon::with_kernel(DATA, PARITY, kernel).expect("a code");
    let mut received: Vec<_> = shards.iter().map(|shard| Some(shard.as_slice())).collect();
    received.iter_mut().step_by(2).take(lost).for_each(|shard| *shard = None);
    let mut out = vec![vec![0; LEN]; lost];
    let mut cache = DecodeCache::new();
    code.reconstruct_data_into(&mut cache, &received, &mut out).expect("enough shards");
    assert!(out.iter().eq(shards.iter().step_by(2).take(lost)));
    group.bench_function(format!("reconstruct_{lost}/{}", kernel.name()), |b| {
        b.iter(|| code.reconstruct_data_into(&mut cache, black_box(&received), black_box(&mut out)));
    });
    group.bench_function(format!("reconstruct_{lost}_new/{}", kernel.name()), |b| {
        b.iter(|| {
            let mut cache = DecodeCache::new();
            code.reconstruct_data_into(&mut cache, black_box(&received), black_box(&mut out))
        });
    });
}

criterion_group!(benches, groups);
criterion_main!(benches);
