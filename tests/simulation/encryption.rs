//! Encrypted sessions over paths that damage, duplicate and lose packets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    crypto::{CipherKind, Framing, Key, OpenError, PacketCipher, PacketCrypto, SealError},
    proto::{CloseReason, Connection, Instant, WriteError},
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

/// A cipher under whose key few packets may be sealed.
#[derive(Debug)]
struct Limited {
    cipher: Arc<dyn PacketCipher>,
    limit: u64,
}

impl PacketCipher for Limited {
    fn header_len(&self) -> usize {
        self.cipher.header_len()
    }

    fn trailer_len(&self) -> usize {
        self.cipher.trailer_len()
    }

    fn nonce_len(&self) -> usize {
        self.cipher.nonce_len()
    }

    fn nonce_limit(&self) -> Option<u64> {
        Some(self.limit)
    }

    fn seal(&self, packet: &mut [u8]) -> Result<(), SealError> {
        self.cipher.seal(packet)
    }

    fn open(&self, packet: &mut [u8]) -> Result<(), OpenError> {
        self.cipher.open(packet)
    }
}

/// One end sends until its key may seal no more. The other one has a key of the same bytes and a count of its own.
#[test]
fn a_session_warns_in_the_midst_of_sending_at_half_of_its_nonces_and_ends_when_they_are_used_up() {
    const LIMIT: u64 = 100;
    let sealed = || CipherKind::Aes128Gcm.build(&Key::from_bytes(&[7; 16]), Framing::KcpGo).unwrap();
    let nonces = || Arc::new(Nonces::default());
    let limited = Arc::new(Limited { cipher: sealed(), limit: LIMIT });
    let (warnings, warned_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let crypto = PacketCrypto::new(limited, nonces()).with_warning({
        let (warnings, warned_at) = (Arc::clone(&warnings), Arc::clone(&warned_at));
        move |budget| {
            assert_eq!(budget.limit, LIMIT);
            warnings.fetch_add(1, Relaxed);
            warned_at.store(budget.sealed, Relaxed);
        }
    });
    let config = KcpConfig::builder().crypto(crypto.clone()).build().unwrap();
    let other = KcpConfig::builder().crypto(PacketCrypto::new(sealed(), nonces())).build().unwrap();
    let mut ends = [&config, &other].map(|config| Connection::new(7, config, Instant::ZERO));
    // Room for one packet at a time.
    let (mut buffer, mut sent, mut read) = (vec![0; 1_400], 0, 0);
    for millis in 0..10_000 {
        let now = Instant::from_millis(millis);
        while ends[0].write(now, &[7; 1_000]).is_ok() {}
        for from in [0, 1] {
            if ends[from].poll_timeout().is_some_and(|due| due <= now) {
                ends[from].handle_timeout(now);
            }
            while let Some(transmit) = ends[from].poll_transmit(now, &mut buffer) {
                for packet in buffer[..transmit.len].chunks_mut(transmit.stride) {
                    sent += u64::from(from == 0);
                    ends[1 - from].handle_packet(now, packet).unwrap();
                }
                if from == 0 && ends[0].close_reason().is_none() {
                    let warned = u64::from(sent >= LIMIT / 2);
                    assert_eq!(warnings.load(Relaxed), warned, "once {sent} are sealed");
                }
            }
        }
        while let Ok(count) = ends[1].read(&mut buffer) {
            read += count;
        }
        if ends[0].close_reason().is_some() {
            break;
        }
    }
    assert_eq!(ends[0].close_reason(), Some(CloseReason::NonceLimit));
    assert_eq!(
        ends[0].write(Instant::from_millis(10_000), b"!"),
        Err(WriteError::Closed(CloseReason::NonceLimit))
    );
    assert_eq!((warnings.load(Relaxed), crypto.nonce_budget().unwrap().sealed), (1, sent));
    assert_eq!((warned_at.load(Relaxed), sent), (LIMIT / 2, LIMIT));
    assert!(read > 40_000, "what was sealed has arrived: {read}");
}
