use alloc::{sync::Arc, vec, vec::Vec};
use core::time::Duration;

use super::Connection;
use crate::{
    crypto::{NonceSource, OpenError, PacketCipher, PacketCrypto, SealError},
    proto::{
        config::KcpConfig,
        time::Instant,
        wire::{Command, SegmentHeader},
    },
};

/// It encrypts nothing. What is in front of the payload tells one packet from another.
#[derive(Debug)]
struct Numbered;

const HEAD: usize = 8;
const TAIL: usize = 3;
/// What is in front of the packets that are sealed here, none of which is received.
const SEALED: [u8; HEAD] = [0xff; HEAD];

impl PacketCipher for Numbered {
    fn header_len(&self) -> usize {
        HEAD
    }

    fn trailer_len(&self) -> usize {
        TAIL
    }

    fn nonce_len(&self) -> usize {
        0
    }

    fn identity(&self, packet: &[u8]) -> Option<u64> {
        packet.first_chunk().copied().map(u64::from_le_bytes)
    }

    fn sealed_identity(&self, packet: &[u8]) -> Option<u64> {
        self.identity(packet)
    }

    fn seal(&self, packet: &mut [u8]) -> Result<(), SealError> {
        packet.first_chunk_mut().map(|head| *head = SEALED).ok_or(SealError::TooShort)
    }

    fn open(&self, packet: &mut [u8]) -> Result<(), OpenError> {
        if packet.len() < HEAD + TAIL { Err(OpenError::TooShort) } else { Ok(()) }
    }
}

impl NonceSource for Numbered {
    fn fill(&self, _: &mut [u8]) {}
}

/// Everything that a connection sends now.
fn sent(connection: &mut Connection, now: Instant) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let mut sent = Vec::new();
    while let Some(transmit) = connection.poll_transmit(now, &mut buffer) {
        sent.extend_from_slice(&buffer[..transmit.len]);
    }
    sent
}

/// Packets of a batch that continue a run are taken in together. That is the same as if each had come alone: for what is counted, read
/// and sent, and for when something is due.
fn a_batch_is_its_packets(config: &KcpConfig, head: usize, tail: usize) {
    let (mut most_of_a_batch, mut replayed) = (0, 0);
    for seed in 1_u64..if cfg!(miri) { 10 } else { 1_000 } {
        let mut state = seed;
        let mut below = |n: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % n
        };
        let mut now = Instant::ZERO;
        let mut together = Connection::new(7, config, now);
        let mut one_by_one = Connection::new(7, config, now);
        let (mut next, mut number) = (0, 0_u64);
        for _ in 0..20 {
            now += Duration::from_millis(below(40).into());
            let stride = head + [25, 200, 1_400][below(3) as usize] + tail;
            let segments = (stride - head - tail) as u32;
            let mut header = SegmentHeader {
                conv: 7,
                cmd: Command::Push,
                frg: 0,
                wnd: 90 + below(2) as u16,
                ts: now.as_ts(),
                sn: next,
                una: below(3) / 2,
                len: segments - 24,
            };
            let mut batch = Vec::new();
            let packets = 1 + below(20);
            for index in 0..packets {
                let (mut segment, mut is_new) = (header, true);
                // Now and then, something differs from what was before.
                match below(60) {
                    0 => segment.conv = 8,
                    1 => segment.cmd = Command::Wins,
                    2 => segment.wnd = 0,
                    3 => segment.una = 1,
                    4 => segment.ts += 1,
                    5 => segment.frg = 1,
                    6 => segment.sn = segment.sn.saturating_sub(below(3)),
                    7 => segment.sn += 1 + below(3),
                    8 => segment.len += 1,
                    9 if index + 1 == packets => segment.len /= 2,
                    10 if segment.len > 100 => segment.len -= 30,
                    11 => is_new = false,
                    _ => {}
                }
                number += u64::from(is_new);
                next = segment.sn.max(next) + 1;
                header.sn = next;
                let start = batch.len();
                batch.extend_from_slice(&number.to_le_bytes()[..head]);
                batch.extend_from_slice(&segment.to_bytes());
                let len = segment.len.min(segments - 24) as usize;
                batch.resize(start + head + 24 + len, segment.sn as u8);
                // Only the last packet of a batch is shorter than the others.
                if index + 1 < packets {
                    batch.resize(start + stride - tail, 1);
                }
                batch.resize(batch.len() + tail, 2);
            }
            for packet in batch.clone().chunks_mut(stride) {
                let _ = one_by_one.handle_packet(now, packet);
            }
            let before = together.stats().segments.push_received;
            let block = Arc::new(batch.into_boxed_slice());
            together.handle_batch(now, &block, 0..block.len(), stride);
            most_of_a_batch = most_of_a_batch.max(together.stats().segments.push_received - before);
            let (mut out, mut expected) = (vec![0; 9_000], vec![0; 9_000]);
            assert_eq!(together.read(&mut out), one_by_one.read(&mut expected), "seed {seed}");
            assert_eq!(out, expected, "seed {seed}");
            let both = [&mut together, &mut one_by_one].map(|connection| {
                let heard = (connection.arq.last_payload(), connection.arq.unanswered_since());
                let _ = connection.write(now, &[seed as u8; 100]);
                let events: Vec<_> = core::iter::from_fn(|| connection.poll_event()).collect();
                let mut stats = connection.stats();
                // Payload that stays in the block takes other memory.
                stats.queues.memory_bytes = 0;
                (heard, sent(connection, now), events, stats, connection.poll_timeout())
            });
            assert_eq!(both[0], both[1], "seed {seed}");
            // What was lost comes no more: the next batch is in order again.
            next = together.arq.sequence_numbers().received;
        }
        replayed += together.stats().udp.replayed;
    }
    assert_eq!((most_of_a_batch, replayed > 0), (20, head > 0));
}

#[test]
fn a_batch_is_taken_in_as_its_packets_one_by_one() {
    a_batch_is_its_packets(&KcpConfig::builder().recv_window(32).build().unwrap(), 0, 0);
}

#[test]
fn an_encrypted_batch_is_taken_in_as_its_packets_one_by_one() {
    let crypto = PacketCrypto::new(Arc::new(Numbered), Arc::new(Numbered));
    let config = KcpConfig::builder().recv_window(32).crypto(crypto).build().unwrap();
    a_batch_is_its_packets(&config, HEAD, TAIL);
}
