//! Every bit of each message is flipped, and each message is cut and made longer. Nothing comes of it, and the true message does its work
//! afterwards.

use kcp9::proto::noise::{AnswerNext, NoiseError, Pattern, SessionKeys};
use kcp9_simulator::Rng;

use crate::ends::{Keys, NOW, opened, sealed};

/// Each message that is not `message`, but near to it.
fn changed(message: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> {
    let flipped = (0..8 * message.len()).map(|bit| {
        let mut flipped = message.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        (format!("bit {bit}"), flipped)
    });
    let cut = (0..message.len()).map(|len| (format!("{len} bytes"), message[..len].to_vec()));
    let longer = [0, 0xff].map(|byte| ("a byte more".to_owned(), [message, &[byte]].concat()));
    flipped.chain(cut).chain(longer)
}

#[test]
fn a_changed_message_makes_no_session_and_is_in_nobodys_way() {
    for pattern in Pattern::all() {
        let keys = Keys::new(1);
        let mut rng = Rng::new(7);
        let (initiator, responder) = (keys.initiator(pattern), keys.responder(pattern));
        let mut handshake = initiator.begin(b"beside", &mut rng).unwrap();
        let first = handshake.message().to_vec();

        for (name, changed) in changed(&first) {
            match responder.answer(&changed, b"beside", b"beside the answer", &mut rng) {
                Err(error) => assert_ne!(error, NoiseError::Over, "{pattern}, {name}"),
                // In XX nothing vouches for the first message. Its answer does for both.
                Ok(answer) => {
                    assert_eq!(pattern, Pattern::Xx, "{name}");
                    let error = handshake.read_answer(&answer.message, b"beside the answer").unwrap_err();
                    // The cipher is said again in the answer.
                    assert!(matches!(error, NoiseError::Forged | NoiseError::Malformed), "{name}: {error}");
                }
            }
        }

        let answer = || responder.answer(&first, b"beside", b"beside the answer", &mut Rng::new(9)).unwrap();
        let (again, answer) = (answer, answer());
        for (name, changed) in changed(&answer.message) {
            let error = handshake.read_answer(&changed, b"beside the answer").unwrap_err();
            assert!(!handshake.is_over(), "{pattern}, {name}: {error}");
        }
        let mut established = handshake.read_answer(&answer.message, b"beside the answer").unwrap();
        let twice = handshake.read_answer(&answer.message, b"beside the answer");
        assert_eq!(twice.err(), Some(NoiseError::Over), "{pattern}");

        let mut server = match answer.next {
            AnswerNext::Session(session) => session,
            AnswerNext::Last(mut handshake) => {
                let last = established.last_message.unwrap();
                for (name, changed) in changed(&last) {
                    let AnswerNext::Last(mut handshake) = again().next else { panic!("the same answer") };
                    let error = handshake.read_last(&changed).unwrap_err();
                    assert!(!handshake.is_over(), "{pattern}, {name}: {error}");
                    handshake.read_last(&last).unwrap();
                }
                let session = handshake.read_last(&last).unwrap();
                assert_eq!(handshake.read_last(&last).err(), Some(NoiseError::Over));
                session
            }
        };
        assert_eq!(established.session.handshake_hash(), server.handshake_hash());

        let pass = |sender: &mut SessionKeys, receiver: &mut SessionKeys| {
            let packet = sealed(sender, NOW, 9, b"payload");
            for (name, changed) in changed(&packet) {
                assert!(opened(receiver, NOW, &changed).is_err(), "{pattern}, {name}");
            }
            assert_eq!(opened(receiver, NOW, &packet).unwrap(), b"payload");
        };
        pass(&mut established.session, &mut server);
        pass(&mut server, &mut established.session);
    }
}

#[test]
fn what_is_said_beside_messages_must_be_the_same() {
    for pattern in Pattern::all() {
        let keys = Keys::new(1);
        let mut rng = Rng::new(8);
        let (initiator, responder) = (keys.initiator(pattern), keys.responder(pattern));
        let mut handshake = initiator.begin(b"one", &mut rng).unwrap();
        match responder.answer(handshake.message(), b"other", b"", &mut rng) {
            Err(error) => {
                assert!(matches!(error, NoiseError::Forged | NoiseError::WrongPsk), "{pattern}: {error}")
            }
            Ok(answer) => {
                assert_eq!(pattern, Pattern::Xx);
                assert_eq!(handshake.read_answer(&answer.message, b"").err(), Some(NoiseError::Forged));
            }
        }
        let answer = responder.answer(handshake.message(), b"one", b"three", &mut rng).unwrap();
        let error = handshake.read_answer(&answer.message, b"four").unwrap_err();
        assert_eq!((error, handshake.is_over()), (NoiseError::Context, false), "{pattern}");
        let established = handshake.read_answer(&answer.message, b"three").unwrap();
        if let (AnswerNext::Last(mut handshake), Some(last)) = (answer.next, established.last_message) {
            handshake.read_last(&last).unwrap();
        }
    }
}
