//! Batches of packets that are handed to a connection at once, and the memory in which their payload may stay.
#![allow(missing_docs, reason = "a test")]

use std::{sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{BatchDrops, Block, CloseReason, Connection, Instant},
};
use kcp9_simulator::Rng;

const CONV: u32 = 0x6b63_7039;
const BLOCK: usize = 65_536;

fn connection(config: &KcpConfig) -> Connection {
    let mut connection = Connection::new(CONV, config, Instant::ZERO);
    // Payload stays in blocks for an application that reads bytes.
    assert!(connection.read(&mut [0; 1]).is_err());
    connection
}

fn plain() -> KcpConfigBuilder {
    KcpConfig::builder().send_window(256).recv_window(256)
}

#[cfg(feature = "aead")]
fn encrypted() -> KcpConfigBuilder {
    use kcp9::crypto::{CipherKind, Framing, Key, PacketCrypto};
    let cipher = CipherKind::Aes128Gcm.build(&Key::from_bytes(&[7; 16]), Framing::KcpGo).unwrap();
    plain().crypto(PacketCrypto::new(cipher, Arc::new(kcp9_simulator::Nonces::default())))
}

/// What one call transmits: the packets, and the bytes of each but the last.
fn transmit(connection: &mut Connection, now: Instant) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut buffer = vec![0; BLOCK];
    let transmit = connection.poll_transmit(now, &mut buffer)?;
    let packets = buffer[..transmit.len].chunks(transmit.stride).map(<[u8]>::to_vec);
    Some((packets.collect(), transmit.stride))
}

/// The packets back to back in a block with room for nothing else, decrypted.
fn block(config: &KcpConfig, packets: &[Vec<u8>]) -> Block {
    let mut packets = packets.to_vec();
    if let Some(crypto) = config.crypto() {
        packets.iter_mut().for_each(|packet| crypto.cipher().open(packet).expect("a packet that opens"));
    }
    Arc::new(packets.concat().into_boxed_slice())
}

/// The bytes of a stream from `position` on, each different from those around it.
fn bytes_from(position: usize, len: usize) -> Vec<u8> {
    (position..position + len).map(|at| (at % 251) as u8).collect()
}

fn is_held(block: &Block) -> bool {
    Arc::strong_count(block) > 1
}

fn read_all(connection: &mut Connection) -> Vec<u8> {
    let mut out = vec![0; connection.readable_bytes()];
    assert_eq!(connection.read(&mut out).unwrap_or(0), out.len());
    out
}

/// One receiver takes packets one by one, the other one takes the same packets in batches.
fn both_ways_are_the_same(name: &str, builder: KcpConfigBuilder) {
    let config = builder.build().unwrap();
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mut sender = connection(&config);
        let (mut single, mut batched) = (connection(&config), connection(&config));
        let mut now = Instant::ZERO;
        let (mut written, mut read) = (Vec::new(), 0);
        let mut held = 0;
        for step in 0..200 {
            let context = format!("{name}, seed {seed}, step {step}");
            now += Duration::from_millis(rng.within(1..=20));
            let bytes = bytes_from(written.len(), rng.within(0..=40_000) as usize);
            let count = sender.write(now, &bytes).unwrap_or(0);
            written.extend(&bytes[..count]);
            while let Some((mut packets, stride)) = transmit(&mut sender, now) {
                packets.retain(|_| !rng.chance(0.1));
                let block = block(&config, &packets);
                let drops = batched.handle_batch(now, &block, 0..block.len(), stride);
                let mut dropped = 0;
                for mut packet in packets {
                    dropped += usize::from(single.handle_packet(now, &mut packet).is_err());
                }
                assert_eq!(drops.replayed + drops.malformed, dropped, "{context}");
                held += u32::from(is_held(&block));
            }
            for end in [&mut sender, &mut single, &mut batched] {
                end.handle_timeout(now);
            }
            if rng.chance(0.5) {
                let bytes = read_all(&mut single);
                assert!(bytes == read_all(&mut batched), "{context}");
                assert!(bytes == written[read..read + bytes.len()], "{context}");
                read += bytes.len();
            }
            // What only one of them sends is lost.
            while let Some((packets, _)) = transmit(&mut single, now) {
                let (others, _) = transmit(&mut batched, now).expect("as much as the other one");
                assert_eq!(packets.len(), others.len(), "{context}");
                for mut packet in packets {
                    sender.handle_packet(now, &mut packet).unwrap();
                }
            }
            // Payload that stays where it was received takes other memory than a copy of it.
            let [single, batched] = [&single, &batched].map(|end| {
                let mut stats = end.stats();
                stats.queues.memory_bytes = 0;
                stats
            });
            assert_eq!(single, batched, "{context}");
        }
        assert!(read > 100_000 && held > 10, "{name}, seed {seed}: {read} bytes read, {held} blocks held");
    }
}

#[test]
fn a_batch_does_what_its_packets_do_one_by_one() {
    both_ways_are_the_same("plain", plain());
    both_ways_are_the_same("fec", plain().fec(10, 3));
}

#[cfg(feature = "aead")]
#[test]
fn a_decrypted_batch_does_what_its_packets_do_one_by_one() {
    both_ways_are_the_same("aead", encrypted());
    both_ways_are_the_same("aead and fec", encrypted().fec(3, 2));
}

#[test]
fn each_malformed_packet_of_a_batch_is_counted_and_the_others_are_taken_in() {
    let config = plain().build().unwrap();
    let (mut sender, mut receiver) = (connection(&config), connection(&config));
    let now = Instant::ZERO;
    let payload = bytes_from(0, 6 * 1_376);
    sender.write(now, &payload).unwrap();
    let (packets, stride) = transmit(&mut sender, now).unwrap();
    assert_eq!((packets.len(), stride), (6, 1_400));
    let mut broken = packets.clone();
    broken[1][0] ^= 1; // Another conversation.
    broken[3][4] = 0x60; // No command of the protocol.
    broken[4][22] = 1; // A segment longer than the packet.
    let batch = block(&config, &broken);
    let drops = receiver.handle_batch(now, &batch, 0..batch.len(), stride);
    assert_eq!((drops.malformed, drops.replayed), (3, 0));
    let udp = receiver.stats().udp;
    assert_eq!((udp.packets_received, udp.bytes_received), (6, batch.len() as u64));
    assert_eq!((udp.wrong_conv, udp.malformed), (1, 2));
    assert_eq!(read_all(&mut receiver), payload[..1_376]);
    let batch = block(&config, &packets);
    assert_eq!(receiver.handle_batch(now, &batch, 0..batch.len(), stride), BatchDrops::default());
    assert_eq!(read_all(&mut receiver), payload[1_376..]);
}

#[cfg(feature = "aead")]
#[test]
fn each_replayed_packet_of_a_batch_is_counted() {
    let config = encrypted().build().unwrap();
    let (mut sender, mut receiver) = (connection(&config), connection(&config));
    let now = Instant::ZERO;
    sender.write(now, &[7; 5_000]).unwrap();
    let (mut packets, stride) = transmit(&mut sender, now).unwrap();
    let count = packets.len();
    packets.insert(0, packets[0].clone());
    packets.insert(3, packets[2].clone());
    let batch = block(&config, &packets);
    let drops = receiver.handle_batch(now, &batch, 0..batch.len(), stride);
    assert_eq!((drops.malformed, drops.replayed), (0, 2));
    let stats = receiver.stats();
    assert_eq!((stats.udp.replayed, stats.segments.duplicates), (2, 0));
    assert_eq!(stats.udp.packets_received, count as u64 + 2);
    assert_eq!(read_all(&mut receiver), [7; 5_000]);
}

#[test]
fn a_range_outside_of_the_block_and_a_stride_of_zero_do_no_harm() {
    let config = plain().build().unwrap();
    let (mut sender, mut receiver) = (connection(&config), connection(&config));
    let now = Instant::ZERO;
    sender.write(now, b"hello").unwrap();
    let (packets, stride) = transmit(&mut sender, now).unwrap();
    let batch = block(&config, &packets);
    let len = batch.len();
    #[expect(clippy::reversed_empty_ranges, reason = "what a caller may get wrong")]
    for range in [0..0, len..len, len + 1..len + 9, usize::MAX..usize::MAX, 9..3] {
        assert_eq!(receiver.handle_batch(now, &batch, range, stride), BatchDrops::default());
    }
    assert_eq!(receiver.stats().udp.packets_received, 0);
    let _ = receiver.handle_batch(now, &batch, 0..len, 0);
    assert!(!receiver.is_readable(), "packets of one byte");
    assert_eq!(receiver.handle_batch(now, &batch, 0..usize::MAX, stride), BatchDrops::default());
    assert_eq!(read_all(&mut receiver), b"hello");
}

#[test]
fn a_closed_session_takes_nothing_in_and_holds_no_block() {
    let config = plain().build().unwrap();
    let (mut sender, mut receiver) = (connection(&config), connection(&config));
    let now = Instant::ZERO;
    sender.write(now, &[1; 3_000]).unwrap();
    let (packets, stride) = transmit(&mut sender, now).unwrap();
    let batch = block(&config, &packets);
    receiver.close(CloseReason::Aborted);
    assert_eq!(receiver.handle_batch(now, &batch, 0..batch.len(), stride), BatchDrops::default());
    assert!(!is_held(&batch) && receiver.stats().udp.packets_received == 0);
}

#[test]
fn what_fec_recovers_is_copied_and_holds_no_block() {
    let config = plain().fec(3, 1).build().unwrap();
    let (mut sender, mut receiver) = (connection(&config), connection(&config));
    let mut now = Instant::ZERO;
    // The receiver learns the numbers of shards from whole groups.
    let mut written = 0;
    let mut last = Vec::new();
    for _ in 0..8 {
        now += Duration::from_millis(10);
        written += sender.write(now, &bytes_from(written, 3 * 1_368)).unwrap();
        while let Some((packets, _)) = transmit(&mut sender, now) {
            let blocks: Vec<_> =
                packets.iter().map(|packet| block(&config, std::slice::from_ref(packet))).collect();
            // The second packet of each later group is lost, until parity recovers it.
            for (index, batch) in blocks.iter().enumerate() {
                if written <= 6 * 3 * 1_368 || index != 1 {
                    let drops = receiver.handle_batch(now, batch, 0..batch.len(), batch.len());
                    assert_eq!(drops, BatchDrops::default());
                }
            }
            last.extend(blocks);
        }
        while let Some((packets, _)) = transmit(&mut receiver, now) {
            for mut packet in packets {
                sender.handle_packet(now, &mut packet).unwrap();
            }
        }
    }
    assert!(receiver.stats().fec.recovered > 0, "{:?}", receiver.stats().fec);
    assert!(last.iter().any(is_held));
    assert!(read_all(&mut receiver) == bytes_from(0, written));
    assert!(!last.iter().any(is_held));
}
