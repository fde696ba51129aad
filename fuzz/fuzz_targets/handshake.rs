//! A handshake and its packets, with everything between the ends in the fuzzer's hand.
//!
//! The input is a script: the pattern and the cipher, then operations (true messages, changed and spliced ones, any bytes, packets that
//! are sealed, opened, changed, late and doubled, time, changes of keys). Proves that
//! * nothing that is read panics;
//! * what opens was sealed by the other end of the same session, and opens once;
//! * who is through has read what its peer has written: keys are the same at both ends, and a true message is always read;
//! * the keys of both ends are never more than one change apart.

#![no_main]

mod script;

use std::{collections::HashSet, time::Duration};

use kcp9::proto::{
    Instant, Random,
    noise::{
        AnswerNext, HEADER_LEN, Initiator, InitiatorHandshake, KeyPair, NoiseError, Pattern, Psk, Responder,
        ResponderHandshake, SessionCipher, SessionKeys, TAG_LEN, Trust,
    },
};
use libfuzzer_sys::fuzz_target;

use script::Script;

const MAX_OPERATIONS: usize = 100;
const MAX_PACKETS: usize = 64;
/// A responder makes a handshake again this often.
const MAX_ALMOST_RIGHT: usize = 8;

/// Differs with each draw.
struct Counter(u8);

impl Random for Counter {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0 = self.0.wrapping_add(1);
        bytes.fill(self.0);
    }
}

struct Run {
    pattern: Pattern,
    random: Counter,
    now: Instant,
    responder: Responder,
    first: Vec<u8>,
    early_data_taken: bool,
    initiator: InitiatorHandshake,
    /// The answer to the true first message, and what is read next.
    answer: Vec<u8>,
    last_read: Option<ResponderHandshake>,
    almost_right: usize,
    last: Option<Vec<u8>>,
    /// The initiator's and the responder's.
    sessions: [Option<SessionKeys>; 2],
    /// What each end has sealed and what the other one has opened.
    packets: [Vec<Vec<u8>>; 2],
    opened: [HashSet<u32>; 2],
    sealed: [u32; 2],
}

impl Run {
    fn new(script: &mut Script<'_>) -> Self {
        let patterns: Vec<_> = Pattern::all().collect();
        let shape = script.byte();
        let pattern = patterns[usize::from(shape >> 1) % patterns.len()];
        let cipher = if shape & 1 == 0 { SessionCipher::ChaCha20Poly1305 } else { SessionCipher::Aes256Gcm };
        let client = KeyPair::from_secret_bytes(&[1; 32]);
        let server = KeyPair::from_secret_bytes(&[2; 32]);
        let (psk, public) = (Psk::from_bytes(&[3; 32]), *server.public());
        let pinned = (Trust::pinned([public]), Trust::pinned([*client.public()]));
        let (initiator, responder) = match pattern {
            Pattern::NnPsk0 => (Initiator::nn_psk0(psk.clone()), Responder::nn_psk0(psk)),
            Pattern::NkPsk0 => (Initiator::nk_psk0(public, psk.clone()), Responder::nk_psk0(server, psk)),
            Pattern::Nk => (Initiator::nk(public), Responder::nk(server)),
            Pattern::Xx => (Initiator::xx(client, pinned.0), Responder::xx(server, pinned.1)),
            _ => {
                (Initiator::xx_psk3(client, pinned.0, psk.clone()), Responder::xx_psk3(server, pinned.1, psk))
            }
        };
        let mut random = Counter(0);
        let has_early = pattern.takes_early_data() && shape & 128 != 0;
        let early: &[u8] = if has_early { &[9; 40] } else { &[] };
        let initiator = initiator.with_cipher(cipher);
        let initiator = initiator.begin_with_early_data(b"beside", early, &mut random).expect("keys");
        let first = initiator.message().to_vec();
        let read = responder.read_first(&first, b"beside", &mut random).expect("a true message");
        assert_eq!(read.early_data(), early);
        let early_data_taken = has_early && shape & 64 != 0;
        let answer = if early_data_taken {
            read.answer_early_data(b"answer").expect("an answer").0
        } else {
            read.answer(b"answer").expect("an answer")
        };
        let (responder_session, last_read) = match answer.next {
            AnswerNext::Session(session) => (Some(session), None),
            AnswerNext::Last(handshake) => (None, Some(handshake)),
        };
        Self {
            pattern,
            random,
            now: Instant::from_millis(7),
            responder,
            first,
            early_data_taken,
            initiator,
            answer: answer.message,
            last_read,
            almost_right: 0,
            last: None,
            sessions: [None, responder_session],
            packets: Default::default(),
            opened: Default::default(),
            sealed: [0; 2],
        }
    }

    fn operate(&mut self, script: &mut Script<'_>) {
        let operation = script.byte();
        let end = usize::from(operation >> 7);
        match operation & 15 {
            0 => {
                let first = near(script, &self.first);
                match self.responder.answer(&first, b"beside", b"answer", &mut self.random) {
                    Ok(answer) if first != self.first => {
                        assert_eq!(self.pattern, Pattern::Xx, "a changed first message opens");
                        if !self.initiator.is_over() {
                            assert!(self.initiator.read_answer(&answer.message, b"answer").is_err());
                        }
                    }
                    Ok(_) => {}
                    Err(error) => assert!(first != self.first && error != NoiseError::Over, "{error}"),
                }
            }
            1 | 2 => {
                let answer = near(script, &self.answer);
                let was_over = self.initiator.is_over();
                match self.initiator.read_answer(&answer, b"answer") {
                    Ok(established) => {
                        assert!(answer == self.answer && !was_over);
                        assert_eq!(established.early_data_taken, self.early_data_taken);
                        self.sessions[0] = Some(established.session);
                        self.last = established.last_message;
                    }
                    Err(error) => assert!(answer != self.answer || was_over, "{error}"),
                }
                assert_eq!(self.initiator.is_over(), self.sessions[0].is_some());
            }
            3 | 4 => {
                let (Some(handshake), Some(last)) = (&mut self.last_read, &self.last) else { return };
                let message = near(script, last);
                let was_over = handshake.is_over();
                match handshake.read_last(&message) {
                    Ok(session) => {
                        assert!(message == *last && !was_over);
                        self.sessions[1] = Some(session);
                    }
                    Err(error) => {
                        self.almost_right += 1;
                        assert!(message != *last || was_over, "{error}");
                        let may_be_over = was_over || self.almost_right > MAX_ALMOST_RIGHT;
                        assert!(may_be_over || !handshake.is_over(), "{error}");
                    }
                }
            }
            5..=7 => self.seal(end, script),
            8..=11 => self.open(end, script),
            12 => self.now += Duration::from_secs(script.short().into()),
            13 => {
                if let Some(session) = &mut self.sessions[end] {
                    session.change_key();
                }
            }
            14 => {
                if let Some(session) = &mut self.sessions[end] {
                    session.trim(self.now);
                }
            }
            _ => {
                let count = usize::from(script.byte());
                let bytes = script.bytes(count);
                let _ = self.responder.answer(&bytes, b"beside", b"answer", &mut self.random);
                if bytes != self.answer {
                    assert!(self.initiator.read_answer(&bytes, b"answer").is_err());
                }
                let route = self.responder.route_key().route(&bytes).unwrap_or(77);
                if let Some(session) = &mut self.sessions[end] {
                    assert!(session.open(self.now, route, &mut bytes.clone()).is_err());
                }
            }
        }
        self.check();
    }

    fn seal(&mut self, end: usize, script: &mut Script<'_>) {
        let Some(session) = &mut self.sessions[end] else { return };
        let padding = usize::from(script.byte());
        let number = self.sealed[end];
        let mut packet = vec![0x5a; HEADER_LEN + 5 + padding + TAG_LEN];
        packet[HEADER_LEN] = end as u8;
        packet[HEADER_LEN + 1..][..4].copy_from_slice(&number.to_le_bytes());
        session.seal(self.now, 77, &mut packet).expect("a key");
        assert_eq!(self.responder.route_key().route(&packet), Some(77));
        self.sealed[end] += 1;
        if self.packets[end].len() < MAX_PACKETS {
            self.packets[end].push(packet);
        }
    }

    /// Hands a packet of either end to `end`.
    fn open(&mut self, end: usize, script: &mut Script<'_>) {
        let Some(session) = &mut self.sessions[end] else { return };
        let from = usize::from(script.byte() & 1);
        let count = self.packets[from].len();
        if count == 0 {
            return;
        }
        let original = &self.packets[from][usize::from(script.byte()) % count];
        let mut packet = near(script, original);
        let is_true = packet == *original && from != end;
        let Some(route) = session.route_key().route(&packet) else { return };
        if let Ok(payload) = session.open(self.now, route, &mut packet) {
            assert!(is_true && usize::from(payload[0]) == from, "a forged packet opens");
            let number = u32::from_le_bytes(*payload[1..].first_chunk().expect("a number"));
            assert!(self.opened[end].insert(number), "a packet opens twice");
            assert!(session.is_peer_heard());
        }
    }

    fn check(&self) {
        if let [Some(initiator), Some(responder)] = &self.sessions {
            assert_eq!(initiator.handshake_hash(), responder.handshake_hash());
            assert!(initiator.key_changes().abs_diff(responder.key_changes()) <= 1);
        }
    }
}

/// The message, or one that is near to it.
fn near(script: &mut Script<'_>, message: &[u8]) -> Vec<u8> {
    let mut near = message.to_vec();
    match script.byte() & 7 {
        0 => {
            let at = usize::from(script.byte()) % near.len();
            near[at] ^= script.byte();
        }
        1 => near.truncate(usize::from(script.byte())),
        2 => {
            let count = usize::from(script.byte() & 31);
            near.extend(script.bytes(count));
        }
        3 => {
            let at = usize::from(script.byte()) % near.len();
            let bytes = script.bytes(near.len() - at);
            near[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        _ => {}
    }
    near
}

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let mut run = Run::new(&mut script);
    for _ in 0..MAX_OPERATIONS {
        if script.0.is_empty() {
            break;
        }
        run.operate(&mut script);
    }
});
