//! What does not match is told by its name, at the end that notices and, if that end says so, at the other.

use std::sync::{Arc, Mutex};

use kcp9::{
    KcpConfig,
    proto::{
        CloseReason, Connection, HandshakeError, Instant, SessionSeed,
        noise::{
            AnswerNext, Initiator, NoiseError, NoiseFailure, Pattern, Psk, PublicKey, Refusal, Responder,
            SessionCipher, Trust, VERSION,
        },
    },
};
use kcp9_simulator::Rng;

use crate::{
    ends::{Keys, NOW, opened, sealed},
    virtual_ends::{Server, exchange},
};

/// What the responder says of the initiator's first message, and what the initiator says when it is told.
fn refused(initiator: &Initiator, responder: &Responder) -> (NoiseError, Option<NoiseError>) {
    let mut rng = Rng::new(3);
    let mut handshake = initiator.begin(b"", &mut rng).unwrap();
    let error = responder.answer(handshake.message(), b"", b"", &mut rng).unwrap_err();
    let told = error.refusal().map(|refusal| {
        let message = refusal.to_message();
        assert!(message.len() < handshake.message().len());
        handshake.read_answer(&message, b"").unwrap_err()
    });
    assert!(!handshake.is_over());
    (error, told)
}

#[test]
fn a_server_with_another_key_is_told_from_a_wrong_psk() {
    let (keys, other) = (Keys::new(1), Keys::new(2));
    for pattern in [Pattern::Nk, Pattern::NkPsk0] {
        assert_eq!(
            refused(&keys.initiator(pattern), &other.responder(pattern)),
            (NoiseError::UnknownServerKey, Some(NoiseError::Refused(Refusal::UnknownServerKey))),
            "{pattern}"
        );
    }
    let wrong_psk = (NoiseError::WrongPsk, Some(NoiseError::Refused(Refusal::WrongPsk)));
    let responder = Responder::nk_psk0(keys.responder.clone(), other.psk.clone());
    assert_eq!(refused(&keys.initiator(Pattern::NkPsk0), &responder), wrong_psk);
    assert_eq!(refused(&keys.initiator(Pattern::NnPsk0), &other.responder(Pattern::NnPsk0)), wrong_psk);
}

#[test]
fn another_pattern_is_named() {
    let keys = Keys::new(1);
    for own in Pattern::all() {
        for peer in Pattern::all().filter(|peer| *peer != own) {
            let expected = NoiseError::Pattern { own, peer: Some(peer) };
            let told = Some(NoiseError::Refused(Refusal::Pattern));
            assert_eq!(refused(&keys.initiator(peer), &keys.responder(own)), (expected, told));
        }
    }
    let mut rng = Rng::new(3);
    let mut first = keys.initiator(Pattern::Xx).begin(b"", &mut rng).unwrap().message().to_vec();
    first[2] = 200;
    let error = keys.responder(Pattern::Xx).answer(&first, b"", b"", &mut rng).unwrap_err();
    assert_eq!(error, NoiseError::Pattern { own: Pattern::Xx, peer: None });
}

#[test]
fn another_version_is_told_whatever_is_behind_it() {
    let keys = Keys::new(1);
    let mut rng = Rng::new(3);
    let mut handshake = keys.initiator(Pattern::Nk).begin(b"", &mut rng).unwrap();
    let responder = keys.responder(Pattern::Nk);
    for version in (0..=255).filter(|version| *version != VERSION) {
        let error = responder.answer(&[version, 1, 77, 78, 79], b"", b"", &mut rng).unwrap_err();
        assert_eq!(error, NoiseError::Version { peer: version });
        let refusal = error.refusal().unwrap();
        assert_eq!(refusal, Refusal::Version { peer: VERSION });
        let mut message = refusal.to_message();
        message[0] = version;
        let told = handshake.read_answer(&message, b"").unwrap_err();
        assert_eq!(told, NoiseError::Refused(Refusal::Version { peer: version }));
    }
    // A version that was changed on its way is no other version: nothing is agreed on with it.
    let mut first = handshake.message().to_vec();
    first[0] = 0;
    assert!(responder.answer(&first, b"", b"", &mut rng).is_err());
    let answer = responder.answer(handshake.message(), b"", b"", &mut rng).unwrap();
    handshake.read_answer(&answer.message, b"").unwrap();
}

#[test]
fn an_unknown_cipher_is_named() {
    let keys = Keys::new(1);
    let mut rng = Rng::new(3);
    let mut first = keys.initiator(Pattern::Nk).begin(b"", &mut rng).unwrap().message().to_vec();
    first[3] = 9;
    let error = keys.responder(Pattern::Nk).answer(&first, b"", b"", &mut rng).unwrap_err();
    assert_eq!((error, error.refusal()), (NoiseError::Cipher, Some(Refusal::Cipher)));
}

#[test]
fn keys_that_are_shown_must_be_trusted_at_both_ends() {
    let (keys, other) = (Keys::new(1), Keys::new(2));
    for pattern in [Pattern::Xx, Pattern::XxPsk3] {
        let with = |keys: &Keys, trust: Trust| match pattern {
            Pattern::Xx => Initiator::xx(keys.initiator.clone(), trust),
            _ => Initiator::xx_psk3(keys.initiator.clone(), trust, Psk::from_bytes(&[1; 32])),
        };
        let mut rng = Rng::new(3);
        let mut run = |initiator: Initiator| {
            let mut handshake = initiator.begin(b"", &mut rng).unwrap();
            let responder = keys.responder(pattern);
            let answer = responder.answer(handshake.message(), b"", b"", &mut rng).unwrap();
            let established = handshake.read_answer(&answer.message, b"")?;
            let AnswerNext::Last(mut last) = answer.next else { panic!("no third message") };
            last.read_last(&established.last_message.unwrap()).map(|session| *session.peer().unwrap())
        };
        let server = *keys.responder.public();
        assert_eq!(run(with(&keys, Trust::pinned([server]))), Ok(*keys.initiator.public()));
        let error = run(with(&keys, Trust::pinned([*other.responder.public()]))).unwrap_err();
        assert_eq!(error, NoiseError::UntrustedKey(server), "the client trusts another server");
        assert!(error.to_string().contains(&server.to_string()));
        let error = run(with(&other, Trust::any())).unwrap_err();
        assert_eq!(
            error,
            NoiseError::UntrustedKey(*other.initiator.public()),
            "the server trusts another client"
        );
        assert_eq!(error.refusal(), Some(Refusal::UntrustedKey));
    }
}

#[test]
fn a_wrong_psk_in_the_third_message_is_named_and_a_right_one_may_follow() {
    let keys = Keys::new(1);
    let trust = Trust::pinned([*keys.responder.public()]);
    let wrong = Initiator::xx_psk3(keys.initiator.clone(), trust, Psk::from_bytes(&[9; 32]));
    // With the same ephemeral key, so that they differ in the shared key only.
    let mut wrong = wrong.begin(b"", &mut Rng::new(3)).unwrap();
    let mut right = keys.initiator(Pattern::XxPsk3).begin(b"", &mut Rng::new(3)).unwrap();
    assert_eq!(wrong.message(), right.message());
    let responder = keys.responder(Pattern::XxPsk3);
    let first = right.message().to_vec();
    let answer = responder.answer(right.message(), b"", b"", &mut Rng::new(4)).unwrap();
    let wrong = wrong.read_answer(&answer.message, b"").unwrap().last_message.unwrap();
    let right = right.read_answer(&answer.message, b"").unwrap().last_message.unwrap();
    let AnswerNext::Last(mut last) = answer.next else { panic!("no third message") };
    for _ in 0..3 {
        let error = last.read_last(&wrong).unwrap_err();
        assert_eq!((error, last.is_over()), (NoiseError::WrongPsk, false));
    }
    last.read_last(&right).unwrap();

    // It takes as much as an answer, so nobody has it done for ever.
    let answer = responder.answer(&first, b"", b"", &mut Rng::new(4)).unwrap();
    let AnswerNext::Last(mut last) = answer.next else { panic!("no third message") };
    let tries = (0..20).take_while(|_| last.read_last(&wrong).err() == Some(NoiseError::WrongPsk)).count();
    assert_eq!((tries, last.is_spent(), last.is_over()), (9, true, false));
    assert_eq!(last.read_last(&right).err(), Some(NoiseError::Over));
    last.renew();
    assert_eq!(last.read_last(&wrong).err(), Some(NoiseError::WrongPsk));
    assert!(last.is_spent());
    last.renew();
    last.read_last(&right).unwrap();
    last.renew();
    assert!(last.is_over(), "nothing is made again of what has done its work");
}

#[test]
fn the_cipher_is_the_one_that_the_initiator_has_chosen() {
    let keys = Keys::new(1);
    let mut rng = Rng::new(3);
    let [mut one, _] = keys.session(Pattern::Nk, &mut rng);
    for cipher in [SessionCipher::Aes256Gcm, SessionCipher::ChaCha20Poly1305] {
        let initiator = keys.initiator(Pattern::Nk).with_cipher(cipher);
        let mut handshake = initiator.begin(b"", &mut rng).unwrap();
        // Whoever changes it on its way changes what both ends have hashed.
        let mut changed = handshake.message().to_vec();
        changed[3] ^= 1;
        let responder = keys.responder(Pattern::Nk);
        let error = responder.answer(&changed, b"", b"", &mut rng).unwrap_err();
        assert_eq!(error, NoiseError::Forged);
        let answer = responder.answer(handshake.message(), b"", b"", &mut rng).unwrap();
        let mut client = handshake.read_answer(&answer.message, b"").unwrap().session;
        let AnswerNext::Session(mut server) = answer.next else { panic!("two messages") };
        let packet = sealed(&mut client, NOW, 4, b"payload");
        assert!(opened(&mut one, NOW, &packet).is_err(), "of another session");
        assert_eq!(opened(&mut server, NOW, &packet).unwrap(), b"payload");
    }
}

/// Who has recorded a whole session and sends all of it again, to both ends and to a new session, opens nothing.
#[test]
fn a_recording_opens_nothing() {
    for pattern in Pattern::all() {
        let keys = Keys::new(1);
        let mut rng = Rng::new(3);
        let [mut client, mut server] = keys.session(pattern, &mut rng);
        let mut recording = Vec::new();
        for number in 0..100_u8 {
            if number == 50 {
                client.change_key();
            }
            let packet = sealed(&mut client, NOW, 1, &[number]);
            assert_eq!(opened(&mut server, NOW, &packet), Ok(vec![number]));
            recording.push(packet);
            let packet = sealed(&mut server, NOW, 2, &[number]);
            assert_eq!(opened(&mut client, NOW, &packet), Ok(vec![number]));
            recording.push(packet);
        }
        assert_eq!((client.key_changes(), server.key_changes()), (1, 1));
        let [mut other_client, mut other_server] = keys.session(pattern, &mut rng);
        for packet in &recording {
            for end in [&mut client, &mut server, &mut other_client, &mut other_server] {
                assert!(opened(end, NOW, packet).is_err(), "{pattern}");
            }
        }
        assert_eq!(opened(&mut server, NOW, &sealed(&mut client, NOW, 1, b"new")).unwrap(), b"new");
    }
}

/// A server decides by a list that changes while it runs. It sees each client's key, and who is refused is told so and has no session.
#[test]
fn a_server_refuses_clients_by_their_keys_and_takes_them_once_it_has_changed_its_mind() {
    #[derive(Default)]
    struct Users {
        allowed: Vec<PublicKey>,
        seen: Vec<PublicKey>,
    }
    let (keys, stranger) = (Keys::new(1), Keys::new(2).initiator);
    for pattern in [Pattern::Xx, Pattern::XxPsk3] {
        let users = Arc::new(Mutex::new(Users { allowed: vec![*keys.initiator.public()], seen: Vec::new() }));
        let by_list = Trust::by({
            let users = Arc::clone(&users);
            move |key| {
                let mut users = users.lock().unwrap();
                users.seen.push(*key);
                users.allowed.contains(key)
            }
        });
        let psk = || Psk::from_bytes(&[1; 32]);
        let responder = match pattern {
            Pattern::Xx => Responder::xx(keys.responder.clone(), by_list),
            _ => Responder::xx_psk3(keys.responder.clone(), by_list, psk()),
        };
        let mut server = Server::new(KcpConfig::builder().noise(responder).build().unwrap(), 1);
        let mut rng = Rng::new(3);
        let mut ask = |server: &mut Server, own: &kcp9::proto::noise::KeyPair, from: u64| {
            let trust = Trust::pinned([*keys.responder.public()]);
            let initiator = match pattern {
                Pattern::Xx => Initiator::xx(own.clone(), trust),
                _ => Initiator::xx_psk3(own.clone(), trust, psk()),
            };
            let config = KcpConfig::builder().noise(initiator).build().unwrap();
            let (start, seed) = (Instant::from_millis(from), SessionSeed::new(&mut rng));
            let conv = from as u32;
            let mut client = Connection::connect_with_noise(conv, &config, start, seed, &mut rng).unwrap();
            client.write(start, b"ask").unwrap();
            for now in (from..from + 5_000).map(Instant::from_millis) {
                exchange(now, server, &mut client);
            }
            (client.read(&mut [0; 10]).ok(), client.close_reason())
        };
        let refused = NoiseFailure::Refused(Refusal::UntrustedKey);
        let refused = (None, Some(CloseReason::HandshakeFailed(HandshakeError::Noise(refused))));
        assert_eq!(ask(&mut server, &keys.initiator, 10_000), (Some(3), None), "{pattern}");
        assert_eq!(ask(&mut server, &stranger, 20_000), refused, "{pattern}");
        assert_eq!(server.accepted, 1);
        let peers = server.sessions.values().map(Connection::peer_key).collect::<Vec<_>>();
        assert_eq!(peers, [Some(*keys.initiator.public())]);
        assert_eq!(
            std::mem::take(&mut users.lock().unwrap().seen),
            [*keys.initiator.public(), *stranger.public()],
            "{pattern}: each once"
        );
        users.lock().unwrap().allowed = vec![*stranger.public()];
        assert_eq!(ask(&mut server, &stranger, 60_000), (Some(3), None), "{pattern}");
        assert_eq!(ask(&mut server, &keys.initiator, 70_000), refused, "{pattern}");
        assert_eq!(server.accepted, 2);
    }
}
