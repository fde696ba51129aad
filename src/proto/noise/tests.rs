//! Known answers: the framework's for what snow computes with, and our own, which `tests/vectors/noise.py` has made without this crate.

use alloc::{boxed::Box, vec, vec::Vec};

use kcp9_vectors::Vector;
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::{resolver::Resolver, *};
use crate::{
    crypto::{CipherKind, detached_key},
    proto::{Instant, Random},
};

/// Randomness that is known.
struct Known(Vec<u8>);

impl Random for Known {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0);
    }
}

fn key(vector: &Vector, name: &str) -> [u8; 32] {
    vector.bytes(name).try_into().unwrap()
}

/// snow's handshake of one end of a vector of the framework.
fn framework(vector: &Vector, is_initiator: bool) -> HandshakeState {
    let name = |field: &str| alloc::format!("{}_{field}", if is_initiator { "init" } else { "resp" });
    let resolver = Resolver { ephemeral: Zeroizing::new(key(vector, &name("ephemeral"))), keys: None };
    let params = vector.text("protocol_name").parse().unwrap();
    let prologue = vector.bytes(&name("prologue"));
    let mut builder = Builder::with_resolver(params, Box::new(resolver)).prologue(&prologue).unwrap();
    let own = vector.has(&name("static")).then(|| key(vector, &name("static")));
    if let Some(own) = &own {
        builder = builder.local_private_key(own).unwrap();
    }
    let remote = vector.has(&name("remote_static")).then(|| key(vector, &name("remote_static")));
    if let Some(remote) = &remote {
        builder = builder.remote_public_key(remote).unwrap();
    }
    let psk: Option<[u8; 32]> =
        vector.has(&name("psks")).then(|| vector.byte_strings(&name("psks"))[0].clone().try_into().unwrap());
    if let Some(psk) = &psk {
        let position = if vector.text("protocol_name").contains("psk3") { 3 } else { 0 };
        builder = builder.psk(position, psk).unwrap();
    }
    if is_initiator { builder.build_initiator().unwrap() } else { builder.build_responder().unwrap() }
}

#[test]
fn handshakes_equal_those_of_the_framework() {
    let vectors = kcp9_vectors::noise_framework();
    let mut names: Vec<_> = vectors.iter().map(|vector| vector.text("protocol_name")).collect();
    let mut ours: Vec<_> = Pattern::all().map(Pattern::protocol_name).collect();
    names.sort_unstable();
    ours.sort_unstable();
    assert_eq!(names, ours);
    for vector in &vectors {
        let name = vector.text("protocol_name");
        let mut ends = [framework(vector, true), framework(vector, false)];
        let mut keys = Vec::new();
        for (number, message) in vector.vectors("messages").iter().enumerate() {
            let (payload, wire) = (message.bytes("payload"), message.bytes("ciphertext"));
            let sender = number % 2;
            if ends.iter().all(HandshakeState::is_handshake_finished) {
                // The packets behind it: the counters are those of a direction.
                if keys.is_empty() {
                    let [initiator, responder] = &mut ends;
                    let (one, other) = initiator.dangerously_get_raw_split();
                    assert_eq!((one, other), responder.dangerously_get_raw_split(), "{name}");
                    keys = vec![(one, 0_u64), (other, 0)];
                }
                let (key, counter) = &mut keys[sender];
                let mut nonce = [0; 12];
                nonce[4..].copy_from_slice(&counter.to_le_bytes());
                *counter += 1;
                let mut sealed = payload;
                let tag = detached_key(CipherKind::ChaCha20Poly1305, key).unwrap().seal(&nonce, &mut sealed);
                sealed.extend_from_slice(&tag.unwrap());
                assert_eq!(sealed, wire, "{name}, message {number}");
                continue;
            }
            let (mut written, mut read) = ([0; 512], [0; 512]);
            let len = ends[sender].write_message(&payload, &mut written).unwrap();
            assert_eq!(written[..len], wire, "{name}, message {number}");
            let len = ends[1 - sender].read_message(&wire, &mut read).unwrap();
            assert_eq!(read[..len], payload, "{name}, message {number}");
        }
        assert!(!keys.is_empty(), "{name}");
        for end in &ends {
            assert_eq!(end.get_handshake_hash(), vector.bytes("handshake_hash"), "{name}");
        }
    }
}

/// Both ends of one of our vectors.
fn ends(vector: &Vector) -> (Initiator, Responder) {
    let pair = |end: &str| {
        let pair = KeyPair::from_secret_bytes(&key(vector, &alloc::format!("{end}_s")));
        assert_eq!(*pair.public(), PublicKey::from_bytes(key(vector, &alloc::format!("{end}_public"))));
        pair
    };
    let psk = || Psk::from_bytes(&key(vector, "psk"));
    let pinned = |end| Trust::pinned([*pair(end).public()]);
    match vector.text("pattern") {
        "NNpsk0" => (Initiator::nn_psk0(psk()), Responder::nn_psk0(psk())),
        "NK" => (Initiator::nk(*pair("responder").public()), Responder::nk(pair("responder"))),
        "NKpsk0" => (
            Initiator::nk_psk0(*pair("responder").public(), psk()),
            Responder::nk_psk0(pair("responder"), psk()),
        ),
        "XX" => (
            Initiator::xx(pair("initiator"), pinned("responder")),
            Responder::xx(pair("responder"), pinned("initiator")),
        ),
        _ => (
            Initiator::xx_psk3(pair("initiator"), pinned("responder"), psk()),
            Responder::xx_psk3(pair("responder"), pinned("initiator"), psk()),
        ),
    }
}

#[test]
fn messages_and_packets_equal_the_known_answers() {
    let vectors = kcp9_vectors::noise();
    for pattern in Pattern::all() {
        let is_of = |vector: &&Vector| vector.text("pattern") == alloc::format!("{pattern}");
        assert_eq!(vectors.iter().filter(is_of).count(), 2, "{pattern}");
    }
    for vector in &vectors {
        let name = (vector.text("pattern"), vector.text("cipher"));
        let cipher = match name.1 {
            "aes-256-gcm" => SessionCipher::Aes256Gcm,
            _ => SessionCipher::ChaCha20Poly1305,
        };
        let (context, answer_context) = (vector.bytes("context"), vector.bytes("answer_context"));
        let messages = vector.byte_strings("messages");
        let (initiator, responder) = ends(vector);
        let peer = core::net::SocketAddr::from(([192, 0, 2, 1], 4_000));
        let reset_key = vector.has("reset_key").then(|| vector.bytes("reset_key"));
        let made = responder.reset_key(peer, 0x1122_3344);
        assert_eq!(made.map(|key| key.to_vec()), reset_key, "{name:?}");
        if let Some(key) = made {
            let wire = vector.bytes("reset");
            let mut known = Known(wire[..wire.len() - TAG_LEN].to_vec());
            let reset = write_reset(&key, responder.route_key(), 0x1122_3344, wire.len() + 1, &mut known);
            assert_eq!(reset, wire, "{name:?}");
        }
        let mut known = Known(vector.bytes("initiator_e"));
        let early = vector.bytes("early");
        let begun = initiator.with_cipher(cipher).begin_with_early_data(&context, &early, &mut known);
        if !cipher.is_built() {
            assert_eq!(begun.err(), Some(NoiseError::Cipher));
            continue;
        }
        let mut handshake = begun.unwrap();
        assert_eq!(handshake.message(), messages[0], "{name:?}");
        let mut known = Known(vector.bytes("responder_e"));
        let first = responder.read_first(&messages[0], &context, &mut known);
        let first = first.unwrap_or_else(|error| panic!("{name:?}: {error}"));
        let (answer, data) = first.answer_early_data(&answer_context).unwrap();
        assert_eq!((&answer.message, &*data), (&messages[1], early.as_slice()), "{name:?}");
        let established = handshake.read_answer(&messages[1], &answer_context).unwrap();
        assert_eq!(established.early_data_taken, !early.is_empty(), "{name:?}");
        assert_eq!(established.last_message.as_ref(), messages.get(2), "{name:?}");
        let server = match (answer.next, messages.get(2)) {
            (AnswerNext::Session(session), None) => session,
            (AnswerNext::Last(mut handshake), Some(last)) => handshake.read_last(last).unwrap(),
            _ => panic!("{name:?} has another number of messages"),
        };
        let mut sessions = [established.session, server];
        for (session, peer) in sessions.iter().zip(["responder_public", "initiator_public"]) {
            assert_eq!(session.handshake_hash()[..], vector.bytes("handshake_hash"), "{name:?}");
            let shown = vector.has(peer).then(|| PublicKey::from_bytes(key(vector, peer)));
            assert_eq!(session.peer(), shown.as_ref(), "{name:?}");
        }
        let now = Instant::from_millis(3);
        for (number, packet) in vector.vectors("packets").iter().enumerate() {
            let (from, payload) = (packet.number::<usize>("from"), packet.bytes("payload"));
            if packet.number::<u8>("change") == 1 {
                sessions[from].change_key();
            }
            let mut wire = [&[0; HEADER_LEN], payload.as_slice(), &[0; TAG_LEN]].concat();
            sessions[from].seal(now, packet.number("route"), &mut wire).unwrap();
            assert_eq!(wire, packet.bytes("wire"), "{name:?}, packet {number}");
            let route = packet.number("route");
            assert_eq!(sessions[1 - from].route_key().route(&wire), Some(route), "{name:?}, packet {number}");
            assert_eq!(
                sessions[1 - from].open(now, route, &mut wire).unwrap(),
                payload,
                "{name:?}, packet {number}"
            );
        }
        assert_eq!(sessions.map(|session| session.key_changes()), [2, 2], "{name:?}");
    }
}

/// X25519 takes no heed of the highest bit.
#[test]
fn a_key_that_is_shown_in_another_form_is_not_trusted() {
    let mut random = Known(alloc::vec![7; 32]);
    let keys = KeyPair::from_secret_bytes(&[5; 32]);
    let mut other = *keys.public().as_bytes();
    other[31] |= 0x80;
    let shown = PublicKey::from_bytes(other);
    let server = Responder::xx(KeyPair::from_secret_bytes(&[6; 32]), Trust::any());
    for (keys, expected) in
        [(keys.clone(), Ok(*keys.public())), (keys.showing(shown), Err(NoiseError::UntrustedKey(shown)))]
    {
        let mut handshake = Initiator::xx(keys, Trust::any()).begin(b"", &mut random).unwrap();
        let answer = server.answer(handshake.message(), b"", b"", &mut random).unwrap();
        let last = handshake.read_answer(&answer.message, b"").unwrap().last_message.unwrap();
        let AnswerNext::Last(mut waiting) = answer.next else { panic!("no third message") };
        assert_eq!(waiting.read_last(&last).map(|session| *session.peer().unwrap()), expected);
    }
}

#[test]
fn numbers_from_the_curves_prime_on_are_other_forms_of_smaller_ones() {
    let number = |lowest: u8, middle: u8, highest: u8| {
        let mut bytes = [middle; 32];
        (bytes[0], bytes[31]) = (lowest, highest);
        PublicKey::from_bytes(bytes).is_canonical()
    };
    assert!(
        number(0xec, 0xff, 0x7f) && number(0xff, 0xfe, 0x7f) && number(0xff, 0xff, 0x7e) && number(9, 0, 0)
    );
    assert!(!number(0xed, 0xff, 0x7f) && !number(0xff, 0xff, 0x7f) && !number(9, 0, 0x80));
}
