//! Datagrams beside a stream, over bad paths: some arrive, all of them undamaged, and the stream goes on.

use std::{collections::BTreeMap, time::Duration};

use kcp9::{KcpConfig, KcpConfigBuilder};

use kcp9_simulator::{CLIENT, LinkSettings, Reader, Rng, SERVER, Simulation, Writer, ms, payload::Payload};

const LIMIT: Duration = Duration::from_secs(3_600);

fn config() -> KcpConfigBuilder {
    KcpConfig::builder().datagram_queue(65_536)
}

fn bad(loss: f64) -> LinkSettings {
    LinkSettings {
        jitter: ms(8),
        reorder: 0.1,
        reorder_delay: ms(20),
        duplicate: 0.1,
        ..LinkSettings::delay(ms(20)).loss(loss)
    }
}

/// The datagram number `n` of an end: its number, and bytes that no other has.
fn datagram(from: usize, n: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; 8 + len];
    Payload::new(from as u64).fill(n * 4_096, &mut bytes);
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes
}

/// How often each datagram arrived, in each direction, beside streams of `bytes` each way.
fn exchange(seed: u64, config: &KcpConfig, link: &LinkSettings, bytes: u64) -> [BTreeMap<u64, u32>; 2] {
    const COUNT: u64 = 600;
    let mut simulation = Simulation::new(seed, config, link);
    let mut rng = Rng::new(seed);
    for side in [CLIENT, SERVER] {
        simulation.ends[side].writer = Writer { pace: Some(ms(3)), sizes: 1..=3_000, ..Writer::bulk(bytes) };
        simulation.ends[side].reader = Reader::eager();
    }
    let mut arrived = [BTreeMap::new(), BTreeMap::new()];
    for n in 0..COUNT + 100 {
        for side in [CLIENT, SERVER] {
            let max = simulation.ends[side].connection.max_datagram_len().unwrap();
            if n < COUNT {
                // One or several at once, of equal or different lengths, with equal chances.
                let mut sent = vec![datagram(side, n, rng.size(0..=max - 8))];
                if rng.chance(0.5) {
                    sent.push(datagram(side, COUNT + n, sent[0].len() - 8));
                }
                for datagram in &sent {
                    simulation.ends[side].connection.send_datagram(datagram).unwrap();
                }
            }
            simulation.drive(side);
        }
        simulation.run_for(ms(3));
        for side in [CLIENT, SERVER] {
            while let Some(found) = simulation.ends[side].connection.recv_datagram() {
                let number = u64::from_le_bytes(*found.first_chunk().unwrap());
                assert_eq!(
                    found,
                    datagram(1 - side, number, found.len() - 8),
                    "seed {seed}: a wrong datagram"
                );
                *arrived[1 - side].entry(number).or_default() += 1;
            }
        }
    }
    simulation.complete(LIMIT);
    for side in [CLIENT, SERVER] {
        let sent = simulation.ends[side].connection.stats().datagrams;
        let received = simulation.ends[1 - side].connection.stats().datagrams;
        let count: u32 = arrived[side].values().sum();
        assert!(sent.sent > COUNT * 5 / 4, "seed {seed}: {sent:?}");
        assert_eq!(received.received, u64::from(count), "seed {seed}: {received:?}");
        let dropped = [sent.dropped_unsent, received.dropped_unread, received.unwanted];
        assert_eq!(dropped, [0; 3], "seed {seed}: {sent:?}, {received:?}");
        let share = arrived[side].len() as f64 / sent.sent as f64;
        let expected = 1.0 - link.loss * (1.0 - link.duplicate);
        assert!((share - expected).abs() < 0.07, "seed {seed}: {share} arrived of {expected}");
    }
    arrived
}

#[test]
fn a_bad_path_delivers_datagrams_undamaged_or_not_at_all() {
    for (seed, (data, parity)) in [(0, 0), (10, 3), (1, 1), (3, 2)].into_iter().enumerate() {
        for loss in [0.0, 0.2] {
            let config = config().fec(data, parity).build().unwrap();
            let arrived = exchange(seed as u64, &config, &bad(loss), 200_000);
            assert!(
                arrived[CLIENT].values().any(|count| *count > 1),
                "nobody tells duplicates without a cipher"
            );
        }
    }
}

#[cfg(all(feature = "kcptun-ciphers", feature = "aead", feature = "highway"))]
#[test]
fn encrypted_datagrams_arrive_once_despite_duplicates() {
    use kcp9::crypto::{CipherKind, Framing};

    use crate::encryption::encrypted;
    let ciphers = [
        (CipherKind::Aes256, Framing::KcpGo),
        (CipherKind::Salsa20, Framing::Highway),
        (CipherKind::None, Framing::KcpGo),
        (CipherKind::Aes256Gcm, Framing::KcpGo),
        (CipherKind::XChaCha20Poly1305, Framing::KcpGo),
    ];
    for (seed, cipher) in ciphers.into_iter().enumerate() {
        for (data, parity) in [(0, 0), (10, 3)] {
            let config = encrypted(cipher).datagram_queue(65_536).fec(data, parity).build().unwrap();
            for arrived in exchange(seed as u64, &config, &bad(0.15), 200_000) {
                assert!(arrived.values().all(|count| *count == 1), "{cipher:?}: a replay got through");
            }
        }
    }
}

/// Two datagrams with the same bytes are no replay, and the peer's is not taken for the own one sent back.
#[cfg(all(feature = "kcptun-ciphers", feature = "highway"))]
#[test]
fn equal_datagrams_all_arrive() {
    use kcp9::crypto::{CipherKind, Framing};

    use crate::encryption::encrypted;
    for kind in [CipherKind::Aes256, CipherKind::Twofish, CipherKind::Salsa20, CipherKind::None] {
        let config = encrypted((kind, Framing::Highway)).datagram_queue(65_536).build().unwrap();
        let mut simulation = Simulation::new(6, &config, &LinkSettings::delay(ms(20)));
        for _ in 0..20 {
            for side in [CLIENT, SERVER] {
                simulation.call(side, |connection, _| connection.send_datagram(b"still here")).unwrap();
            }
            simulation.run_for(ms(100));
        }
        for side in [CLIENT, SERVER] {
            let arrived = std::iter::from_fn(|| simulation.ends[side].connection.recv_datagram()).count();
            assert_eq!(arrived, 20, "{kind}");
        }
    }
}

/// Datagrams that take half of what the path carries arrive, and the stream has the rest.
#[test]
fn datagrams_get_through_beside_a_bulk_transfer() {
    let config = config().build().unwrap();
    let link = LinkSettings::delay(ms(20)).rate(1_000_000, 50_000);
    let mut simulation = Simulation::new(5, &config, &link);
    simulation.client().writer = Writer::bulk(1 << 30);
    simulation.server().reader = Reader::eager();
    let (count, seconds) = (2_500, 5);
    for n in 0..count {
        let datagram = datagram(CLIENT, n, 980);
        simulation.call(CLIENT, |connection, _| connection.send_datagram(&datagram)).unwrap();
        simulation.run_for(ms(2));
        while simulation.ends[SERVER].connection.recv_datagram().is_some() {}
    }
    let stats = simulation.ends[SERVER].connection.stats();
    assert!(stats.datagrams.received > count * 8 / 10, "{stats:?}");
    assert!(stats.stream.bytes_read > 300_000 * seconds, "{stats:?}");
}
