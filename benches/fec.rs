//! The erasure code at 10 data and 3 parity shards of 1,400 bytes, in bytes of data: 14,000 a group.
//!
//! * `encode`: parity of a whole group; `encode_one`: shard by shard, as a sender does it.
//! * `reconstruct_1`, `reconstruct_3`: one and three lost data shards, into memory at hand, from a pattern of losses
//!   seen before; `reconstruct_1_new`, `reconstruct_3_new`: from one never seen.
//!
//! Each by every kernel that runs here, against the crate `reed-solomon-erasure` (with `simd-accel` on x86-64), which
//! codes alike and also keeps what it computed for a pattern. Klauspost's codec, which is kcp-go's, has the program
//! `benches/go/fec`: `cd benches/go/fec && go run .` prints its figures under the same names. Run both in turns.
//!
//! * `session/encode`, `session/decode`: what kcp-go's `BenchmarkFECEncode` and `BenchmarkFECDecode` do, by the encoder
//!   and the decoder of a session: packets of 1,500 bytes, 10/3, in time and bytes of a packet. One data packet is encoded,
//!   every tenth time with its parity; any packet is decoded, but for one in 13, lost at random, which counts as decoded.
//!   Both have the memory of the packets at hand, where kcp-go's allocate it.
//!
//! Go's side of these is kcp-go's own, in the folder that
//! `go mod download -json github.com/xtaci/kcp-go/v5@v5.6.72` prints as `Dir`: `go test -run '^$' -bench FEC .`

use std::{hint::black_box, time::Duration};

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use kcp9::fec::{
    DecodeCache, Kernel, ParityAccumulator, ReedSolomon,
    bench::{SessionDecoder, SessionEncoder},
};
use reed_solomon_erasure::galois_8::ReedSolomon as Erasure;

const DATA: usize = 10;
const PARITY: usize = 3;
const LEN: usize = 1_400;
/// Bytes of a session's packet.
const PACKET: usize = 1_500;
const CONV: u32 = 7;

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

fn session(c: &mut Criterion) {
    let mut group = c.benchmark_group("fec/session");
    group.throughput(Throughput::Bytes(PACKET as u64));
    group.warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));

    let mut encoder = SessionEncoder::new(DATA, PARITY).expect("a code");
    let (mut packet, mut parity) = (packet(0), Vec::new());
    group.bench_function("encode", |b| {
        b.iter(|| {
            encoder.data(black_box(&mut packet), &mut parity, |parity| {
                black_box(parity);
            });
        });
    });

    // Each packet gets the next number. Numbers wrap only after more packets than a run has.
    let mut encoder = SessionEncoder::new(DATA, PARITY).expect("a code");
    let mut packets = Vec::new();
    for sn in 0..DATA as u32 {
        let (mut data, mut parity) = (self::packet(sn), Vec::new());
        let mut all = Vec::new();
        encoder.data(&mut data, &mut parity, |parity| all.push(parity.to_vec()));
        packets.push(data);
        packets.append(&mut all);
    }
    let mut decoder = SessionDecoder::default();
    let (mut seqid, mut state, mut recovered) = (0_u32, 1_u64, 0);
    group.bench_function("decode", |b| {
        b.iter(|| {
            let packet = &mut packets[seqid as usize % (DATA + PARITY)];
            packet[..4].copy_from_slice(&seqid.to_le_bytes());
            seqid += 1;
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (state >> 33) % (DATA + PARITY) as u64 == 0 {
                return;
            }
            recovered = decoder
                .input(black_box(packet), CONV, |segments| {
                    black_box(segments);
                })
                .expect("an FEC packet");
        });
    });
    // Seven of ten losses are of data packets, and nearly all of these are recovered.
    assert!(recovered * 20 > u64::from(seqid), "{recovered} of {seqid} packets");
}

/// A data packet of one PUSH segment.
fn packet(sn: u32) -> Vec<u8> {
    const PUSH: u32 = 81;
    let at = SessionEncoder::HEADER_LEN;
    let mut packet: Vec<u8> = (0..PACKET).map(|at| (sn as usize * 7 + at * 13) as u8).collect();
    let fields = [CONV, PUSH, 0, sn, 0, (PACKET - at - 24) as u32];
    for (bytes, field) in packet[at..].chunks_mut(4).zip(fields) {
        bytes.copy_from_slice(&field.to_le_bytes());
    }
    packet
}

criterion_group!(benches, groups, session);
criterion_main!(benches);
