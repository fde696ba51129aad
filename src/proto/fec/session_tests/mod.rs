//! Encoder and decoder against kcp-go's packets, and against each other.

mod receiver;
mod robustness;
mod sender;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec,
    vec::Vec,
};

use kcp9_vectors::fec_packets;

use super::{
    Decoder, Encoder, FecEvent, Kind, OUT_OF_BAND_HEADER_LEN, ReedSolomon,
    detector::Detector,
    packet::{self, HEADER_LEN, OutOfBand, Packet, peek_conv},
    segments_of, write_out_of_band_header,
};
use crate::proto::{
    Connection, KcpConfig, PacketError,
    arq::Origin,
    time::Instant,
    wire::{Command, SegmentHeader},
};

fn code(data: usize, parity: usize) -> Arc<ReedSolomon> {
    Arc::new(ReedSolomon::new(data, parity).unwrap())
}

/// The packets that an encoder makes of a payload: its data packet, and the group's parity after the last one of a group.
fn encode(encoder: &mut Encoder, now: Instant, payload: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = vec![[&[0; HEADER_LEN], payload].concat()];
    encoder.data(now, &mut packets[0]);
    while let Some(len) = encoder.parity_len() {
        let mut parity = vec![0; len];
        encoder.parity(&mut parity);
        packets.push(parity);
    }
    packets
}

const CONV: u32 = 7;

/// The segment `sn` with `len` payload bytes. These are not a linear function of `sn`, since otherwise a combination of segments
/// would pass for another segment.
fn segment(sn: u32, len: usize) -> Vec<u8> {
    let header =
        SegmentHeader { conv: CONV, cmd: Command::Push, frg: 0, wnd: 9, ts: 1, sn, una: 0, len: len as u32 };
    [&header.to_bytes()[..], &vec![(sn.wrapping_mul(0x9e37_79b9) >> 24) as u8; len]].concat()
}

fn sn_of(segments: &[u8]) -> u32 {
    SegmentHeader::parse(segments).unwrap().sn
}

/// A small generator, the same every run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Gives `packet` to the decoder. `deliver` gets the segments that it hands over. It is one function so that it is compiled once.
fn input(
    decoder: &mut Decoder,
    packet: &[u8],
    deliver: &mut dyn FnMut(&[u8], Origin),
) -> Result<(), PacketError> {
    decoder.input(&Packet::parse(packet).unwrap(), CONV, |segments, origin| {
        deliver(segments, origin);
        Ok(())
    })
}

/// Sends `count` segments over a path that loses and reorders packets. Returns those that arrived and those that were recovered.
fn transfer(
    encoder: &mut Encoder,
    decoder: &mut Decoder,
    count: u32,
    loss: u64,
    state: &mut u64,
) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let mut packets = Vec::new();
    for sn in 0..count {
        let len = 1 + random(state) as usize % 600;
        packets.extend(encode(encoder, Instant::ZERO, &segment(sn, len)));
    }
    packets.retain(|_| random(state) % 100 >= loss);
    for at in 3..packets.len() {
        packets.swap(at, at - random(state) as usize % 3);
    }
    let (mut direct, mut recovered) = (BTreeSet::new(), BTreeSet::new());
    for packet in &packets {
        let outcome = input(decoder, packet, &mut |segments, origin| {
            let sn = sn_of(segments);
            assert_eq!(segments, segment(sn, segments.len() - 24), "the very segment that was sent");
            match origin {
                Origin::Received => assert!(direct.insert(sn)),
                Origin::Recovered => assert!(recovered.insert(sn)),
            }
        });
        assert_eq!(outcome, Ok(()));
    }
    (direct, recovered)
}

/// A packet of `kind` with a shard of `len` bytes that are not segments.
fn raw(seqid: u32, kind: u8, len: usize) -> Vec<u8> {
    let size = (len as u16).to_le_bytes();
    [&seqid.to_le_bytes()[..], &[kind, 0], &size, &CONV.to_le_bytes(), &vec![0; len - 6]].concat()
}

/// A decoder of a session that has FEC.
fn receiver() -> Decoder {
    Decoder::expecting(Some((10, 3)))
}

/// A decoder that knows the group size of its peer, and the number at which the peer's next group begins.
fn experienced(data: usize, parity: usize) -> (Decoder, u32) {
    let mut decoder = receiver();
    let first = teach(&mut decoder, data, parity);
    (decoder, first)
}

/// Has a decoder find out a group size. Returns the number at which the next group begins.
fn teach(decoder: &mut Decoder, data: usize, parity: usize) -> u32 {
    let group = (data + parity) as u32;
    let mut seqid = 0;
    while decoder.shards().is_none() || seqid % group != 0 {
        assert!(seqid < 5 * group);
        let kind = if seqid % group < data as u32 { 0xf1 } else { 0xf2 };
        let _ = input(decoder, &raw(seqid, kind, 40), &mut |_, _| ());
        seqid += 1;
    }
    assert_eq!(decoder.shards(), Some((data, parity)));
    seqid
}
