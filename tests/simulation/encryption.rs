//! Encrypted sessions over paths that damage, duplicate and lose packets.

use std::{sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::Instant,
};

use kcp9_simulator::{CLIENT, LinkSettings, Nonces, Reader, SERVER, Simulation, Writer, ms};

const LIMIT: Duration = Duration::from_secs(3_600);

/// Every cipher with every framing that it takes.
fn ciphers() -> Vec<(CipherKind, Framing)> {
    let framings = [Framing::KcpGo, Framing::Highway];
    let all = CipherKind::all().flat_map(|kind| framings.map(|framing| (kind, framing)));
    all.filter(|(kind, framing)| !kind.is_aead() || *framing == Framing::KcpGo).collect()
}

pub(crate) fn encrypted((kind, framing): (CipherKind, Framing)) -> KcpConfigBuilder {
    let key = Key::from_bytes(&b"0123456789abcdefFEDCBA9876543210"[..kind.key_len()]);
    let cipher = kind.build(&key, framing).unwrap();
    KcpConfig::builder().crypto(PacketCrypto::new(cipher, Arc::new(Nonces::default())))
}

/// Whether packets of equal payload have the same identity (see [`Framing::Highway`]).
fn is_known_by_tag_alone((kind, framing): (CipherKind, Framing)) -> bool {
    use CipherKind::{Blowfish, Cast5, Tea, TripleDes, Xor, Xtea};
    framing == Framing::Highway && matches!(kind, Blowfish | Cast5 | Tea | TripleDes | Xor | Xtea)
}

/// Moves about 60 full packets each way.
fn transfer(seed: u64, config: &KcpConfig, link: &LinkSettings) -> Simulation {
    let mut simulation = Simulation::new(seed, config, link);
    let overhead =
        config.crypto().map_or(0, |crypto| crypto.cipher().header_len() + crypto.cipher().trailer_len());
    let bytes = 60 * (config.mtu() - overhead - 24) as u64;
    for side in [CLIENT, SERVER] {
        simulation.ends[side].writer = Writer::bulk(bytes);
        simulation.ends[side].reader = Reader::eager();
    }
    simulation.complete(LIMIT);
    simulation
}

/// A packet that the network duplicated is dropped before its segments are read.
#[test]
fn duplicates_are_dropped_as_replays() {
    let link = LinkSettings {
        duplicate: 0.3,
        loss: 0.05,
        jitter: ms(5),
        reorder: 0.1,
        ..LinkSettings::delay(ms(20))
    };
    let link = LinkSettings { reorder_delay: ms(30), ..link };
    for (seed, cipher) in ciphers().into_iter().enumerate() {
        let mut simulation = transfer(seed as u64, &encrypted(cipher).build().unwrap(), &link);
        for side in [CLIENT, SERVER] {
            let duplicated = simulation.ends[1 - side].link.counts.duplicated;
            let stats = simulation.ends[side].connection.stats();
            assert!(duplicated > 8, "{cipher:?}");
            // An ACK that is repeated in a packet of its own may equal the one before.
            let equal = if is_known_by_tag_alone(cipher) {
                stats.udp.replayed.saturating_sub(duplicated).min(1)
            } else {
                0
            };
            assert_eq!((stats.udp.replayed - equal, stats.udp.forged), (duplicated, 0), "{cipher:?}");
        }
        // Without a replay window the duplicates reach the segments.
        let open = encrypted(cipher).replay_window(0).build().unwrap();
        simulation = transfer(seed as u64, &open, &link);
        let stats = simulation.ends[SERVER].connection.stats();
        assert_eq!(stats.udp.replayed, 0, "{cipher:?}");
        assert!(stats.segments.duplicates > 5, "{cipher:?}");
    }
}

/// What is damaged is dropped and sent again, and nothing else changes.
#[test]
fn damaged_packets_are_dropped() {
    let link = LinkSettings { corrupt: 0.2, ..LinkSettings::delay(ms(20)) };
    for (seed, (kind, framing)) in ciphers().into_iter().enumerate() {
        // A flipped bit of a nonce may change nothing but the nonce.
        let covers_all = kind.is_aead();
        let simulation = transfer(seed as u64, &encrypted((kind, framing)).build().unwrap(), &link);
        for side in [CLIENT, SERVER] {
            let corrupted = simulation.ends[1 - side].link.counts.corrupted;
            let forged = simulation.ends[side].connection.stats().udp.forged;
            assert!(corrupted > 0, "{kind}, {framing:?}: {corrupted}");
            let harmless = corrupted - forged;
            assert!(
                harmless == 0 || !covers_all && harmless <= corrupted / 2,
                "{kind}, {framing:?}: {forged} of {corrupted}"
            );
        }
    }
}

/// Packets of an encrypted session are no longer than its mtu, and use all of it.
#[test]
fn packets_keep_to_the_mtu_with_what_encryption_adds() {
    for cipher in ciphers() {
        for mtu in [65, 100, 576, 1_500] {
            let config = encrypted(cipher).mtu(mtu).build();
            let Ok(config) = config else {
                let overhead = if cipher.0 == CipherKind::XChaCha20Poly1305 { 40 } else { 28 };
                assert!(mtu <= overhead + 24, "{cipher:?} with an mtu of {mtu}");
                continue;
            };
            let simulation = transfer(mtu as u64, &config, &LinkSettings::delay(ms(5)));
            let stats = simulation.ends[CLIENT].connection.stats();
            let full = stats.udp.bytes_sent / stats.udp.packets_sent;
            assert!(
                full as usize <= mtu && full as usize * 2 > mtu,
                "{cipher:?}: {full} of {mtu} bytes on average"
            );
        }
    }
}

/// Packets of a peer with another key, or with none, are dropped.
#[test]
fn packets_under_another_key_or_none_are_refused() {
    for cipher in ciphers().into_iter().filter(|(kind, _)| *kind != CipherKind::None) {
        let right = encrypted(cipher).build().unwrap();
        let wrong = {
            let key = Key::from_bytes(&b"another key, of the same length."[..cipher.0.key_len()]);
            let other = cipher.0.build(&key, cipher.1).unwrap();
            KcpConfig::builder()
                .crypto(PacketCrypto::new(other, Arc::new(Nonces::default())))
                .build()
                .unwrap()
        };
        for other in [&wrong, &KcpConfig::default()] {
            let link = LinkSettings::delay(ms(5));
            let mut simulation =
                Simulation::with(1, [&right, other], [link.clone(), link], 0, [Duration::ZERO; 2]);
            simulation.may_refuse = true;
            simulation.ends[CLIENT].writer = Writer::bulk(20_000);
            simulation.run_for(Duration::from_secs(2));
            let [client, server] = &simulation.ends;
            assert_eq!(server.connection.stats().segments.received, 0, "{cipher:?}");
            assert_eq!(server.connection.stats().stream.bytes_read, 0, "{cipher:?}");
            assert_eq!(client.connection.stats().udp.packets_received, 0, "{cipher:?}");
            let refused = server.connection.stats().udp.forged
                + server.connection.stats().udp.malformed
                + server.connection.stats().udp.wrong_conv;
            assert!(refused > 5, "{cipher:?}: {refused}");
        }
    }
}

/// Window probes and their answers carry nothing new, but are no replays.
#[test]
fn window_probes_are_not_taken_for_replays() {
    for cipher in ciphers() {
        let config = encrypted(cipher).recv_window(32).build().unwrap();
        let mut simulation = Simulation::new(3, &config, &LinkSettings::delay(ms(20)));
        simulation.ends[CLIENT].writer = Writer::bulk(200_000);
        simulation.ends[SERVER].reader =
            Reader { not_before: Instant::from_millis(300_000), ..Reader::eager() };
        simulation.complete(LIMIT);
        let stats = simulation.ends[CLIENT].connection.stats();
        assert!(stats.segments.window_probes > 3, "{cipher:?}");
        assert_eq!(
            stats.udp.replayed + simulation.ends[SERVER].connection.stats().udp.replayed,
            0,
            "{cipher:?}"
        );
    }
}
