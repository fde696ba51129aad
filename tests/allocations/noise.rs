//! Sealed packets: what a session takes, and that its packets take nothing.

use std::time::Duration;

use kcp9::proto::{
    Instant,
    noise::{
        AnswerNext, HEADER_LEN, Initiator, KeyPair, Psk, Responder, SessionCipher, SessionKeys, TAG_LEN,
        Trust,
    },
};
use kcp9_simulator::Rng;

const NOW: Instant = Instant::from_millis(5);

fn session(cipher: SessionCipher) -> [SessionKeys; 2] {
    let psk = || Psk::from_bytes(&[1; 32]);
    let keys = KeyPair::from_secret_bytes(&[2; 32]);
    let initiator = Initiator::nk_psk0(*keys.public(), psk()).with_cipher(cipher);
    let mut handshake = initiator.begin(b"", &mut Rng::new(1)).unwrap();
    let responder = Responder::nk_psk0(keys, psk());
    let answer = responder.answer(handshake.message(), b"", b"", &mut Rng::new(2)).unwrap();
    let client = handshake.read_answer(&answer.message, b"").unwrap().session;
    let AnswerNext::Session(server) = answer.next else { panic!("two messages") };
    [client, server]
}

#[test]
fn a_handshake_that_waits_takes_little() {
    let keys = |byte| KeyPair::from_secret_bytes(&[byte; 32]);
    let initiator = Initiator::xx(keys(1), Trust::any());
    let first = initiator.begin(b"", &mut Rng::new(1)).unwrap().message().to_vec();
    let responder = Responder::xx(keys(2), Trust::any());
    let mut waiting = Vec::with_capacity(100);
    let info = allocation_counter::measure(|| {
        let answers = (0..100).map(|seed| responder.answer(&first, b"", b"", &mut Rng::new(seed)).unwrap());
        waiting.extend(answers.map(Box::new));
    });
    let bytes = info.bytes_current / 100;
    assert!(bytes <= 3 << 10, "{bytes} bytes");
    println!("{bytes} bytes");
}

/// A packet from one end to the other.
fn pass(from: &mut SessionKeys, to: &mut SessionKeys, now: Instant) {
    let mut packet = [7; HEADER_LEN + 1_000 + TAG_LEN];
    from.seal(now, 9, &mut packet).unwrap();
    let route = to.route_key().route(&packet).unwrap();
    to.open(now, route, &mut packet).unwrap();
}

#[test]
fn sealed_packets_allocate_nothing_and_refused_ones_neither() {
    for cipher in [SessionCipher::ChaCha20Poly1305, SessionCipher::Aes256Gcm] {
        let [mut client, mut server] = session(cipher);
        let info = allocation_counter::measure(|| {
            for _ in 0..5_000 {
                pass(&mut client, &mut server, NOW);
                pass(&mut server, &mut client, NOW);
                let mut forged = [7; HEADER_LEN + 100 + TAG_LEN];
                client.seal(NOW, 9, &mut forged).unwrap();
                forged[HEADER_LEN + 100] ^= 1;
                assert!(server.open(NOW, 9, &mut forged).is_err());
            }
        });
        // A forgery with the other phase has the next key made: once.
        assert!(info.count_total <= 2, "{cipher:?}: {info:?}");
    }
}

#[test]
fn a_session_takes_little_and_changes_of_keys_take_no_more() {
    for cipher in [SessionCipher::ChaCha20Poly1305, SessionCipher::Aes256Gcm] {
        let mut idle = Vec::new();
        let mut now = NOW;
        let info = allocation_counter::measure(|| {
            let [mut client, mut server] = session(cipher);
            for changes in 0..100 {
                pass(&mut client, &mut server, now);
                pass(&mut server, &mut client, now);
                assert_eq!(client.key_changes(), changes);
                client.change_key();
                now += Duration::from_secs(61);
            }
            client.trim(now);
            server.trim(now);
            idle.extend([client, server].map(Box::new));
        });
        let bytes = info.bytes_current / 2;
        assert!(bytes <= 512, "{cipher:?}: {bytes} bytes");
        println!("{cipher:?}: {bytes} bytes");
    }
}
