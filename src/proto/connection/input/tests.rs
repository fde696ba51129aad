use alloc::{sync::Arc, vec, vec::Vec};
use core::time::Duration;

use super::Connection;
use crate::proto::{
    config::KcpConfig,
    time::Instant,
    wire::{Command, SegmentHeader},
};

/// A PUSH of `fill`, alone in its packet or with `more` behind it.
fn push(header: SegmentHeader, fill: u8, more: &[u8]) -> Vec<u8> {
    let payload = vec![fill; header.len as usize];
    [&header.to_bytes()[..], &payload, more].concat()
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
#[test]
fn a_batch_is_taken_in_as_its_packets_one_by_one() {
    let config = KcpConfig::builder().recv_window(32).build().unwrap();
    let mut most_of_a_batch = 0;
    for seed in 1_u64..if cfg!(miri) { 10 } else { 1_000 } {
        let mut state = seed;
        let mut below = |n: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % n
        };
        let mut now = Instant::ZERO;
        let mut together = Connection::new(7, &config, now);
        let mut one_by_one = Connection::new(7, &config, now);
        let mut next = 0;
        for _ in 0..20 {
            now += Duration::from_millis(below(40).into());
            let stride = [25, 200, 1_400][below(3) as usize];
            let mut header = SegmentHeader {
                conv: 7,
                cmd: Command::Push,
                frg: 0,
                wnd: 90 + below(2) as u16,
                ts: now.as_ts(),
                sn: next,
                una: below(3) / 2,
                len: stride - 24,
            };
            let mut batch = Vec::new();
            let packets = 1 + below(20);
            for index in 0..packets {
                let mut packet = header;
                // Now and then, something differs from what was before.
                match below(60) {
                    0 => packet.conv = 8,
                    1 => packet.cmd = Command::Wins,
                    2 => packet.wnd = 0,
                    3 => packet.una = 1,
                    4 => packet.ts += 1,
                    5 => packet.frg = 1,
                    6 => packet.sn = packet.sn.saturating_sub(below(3)),
                    7 => packet.sn += 1 + below(3),
                    8 => packet.len += 1,
                    9 if index + 1 == packets => packet.len /= 2,
                    10 if packet.len > 100 => packet.len -= 30,
                    _ => {}
                }
                let mut bytes =
                    push(packet, packet.sn as u8, &[1; 30][..30 * usize::from(packet.len + 54 == stride)]);
                bytes.truncate(stride as usize);
                header.sn = packet.sn.max(next) + 1;
                next = header.sn;
                batch.extend_from_slice(&bytes);
            }
            for packet in batch.clone().chunks_mut(stride as usize) {
                let _ = one_by_one.handle_packet(now, packet);
            }
            let before = together.stats().segments.push_received;
            let block = Arc::new(batch.into_boxed_slice());
            together.handle_batch(now, &block, 0..block.len(), stride as usize);
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
    }
    assert_eq!(most_of_a_batch, 20);
}
