//! Cost of the segment on the wire: headers read and written one at a time, packets walked as the input path does.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kcp9::proto::{Command, HEADER_LEN, SegmentHeader, Segments};

fn header(cmd: Command, sn: u32, len: u32) -> SegmentHeader {
    SegmentHeader { conv: 0x1234_5678, cmd, frg: 0, wnd: 2_048, ts: 1_000 + sn, sn, una: sn / 2, len }
}

/// `count` segments of `len` payload bytes each.
fn packet(cmd: Command, count: u32, len: u32) -> Vec<u8> {
    let mut packet = Vec::new();
    for sn in 0..count {
        packet.extend_from_slice(&header(cmd, sn, len).to_bytes());
        packet.resize(packet.len() + len as usize, sn as u8);
    }
    packet
}

fn one_header(c: &mut Criterion) {
    let mut group = c.benchmark_group("wire/header");
    group.throughput(Throughput::Elements(1));
    let header = header(Command::Push, 77, 1_376);
    let bytes = header.to_bytes();
    group.bench_function("parse", |b| b.iter(|| SegmentHeader::parse(black_box(&bytes))));
    let mut out = [0; HEADER_LEN];
    group.bench_function("emit", |b| {
        b.iter(|| {
            out.copy_from_slice(&black_box(header).to_bytes());
            black_box(&mut out);
        });
    });
    group.finish();
}

fn walk(c: &mut Criterion) {
    let mut group = c.benchmark_group("wire/walk");
    // 58 ACKs fill a packet of 1,400 bytes, as do 15 PUSHes of 64 bytes.
    for (name, cmd, count, len) in [("58_acks", Command::Ack, 58, 0), ("15_pushes", Command::Push, 15, 64)] {
        let packet = packet(cmd, count, len);
        assert!(packet.len() <= 1_400);
        group.throughput(Throughput::Elements(count.into()));
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut sum = 0_u32;
                for segment in Segments::new(black_box(&packet)) {
                    let (header, payload) = segment.expect("a segment");
                    sum = sum
                        .wrapping_add(header.sn ^ header.una ^ header.ts)
                        .wrapping_add(payload.len() as u32);
                }
                sum
            });
        });
    }
    group.finish();
}

criterion_group!(benches, one_header, walk);
criterion_main!(benches);
