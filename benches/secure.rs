//! Secure sessions on one thread: handshakes a second, both ends together, and sealing and opening of packets beside the AEADs with a
//! static key.
//!
//! Handshakes are whole: messages made and read at both ends, and a packet in each direction. Packets have 1,400 bytes with all that is
//! around their payloads.

use std::{hint::black_box, sync::Arc};

use criterion::{BatchSize, Criterion, Throughput};
use kcp9::{
    crypto::{CipherKind, Framing, Key, NonceSource, OsNonces},
    proto::{
        Instant, Random,
        noise::{
            AnswerNext, HEADER_LEN, Initiator, KeyPair, Pattern, Psk, Responder, SessionCipher, SessionKeys,
            TAG_LEN, Trust,
        },
    },
};

const PACKET: usize = 1_400;
const NOW: Instant = Instant::from_millis(5);

/// Randomness of the operating system, as the Tokio layer has it.
struct Entropy(OsNonces);

impl Random for Entropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

fn ends(pattern: Pattern, random: &mut Entropy) -> (Initiator, Responder) {
    let (keys, server) = (KeyPair::generate(random), KeyPair::generate(random));
    let (psk, public) = (Psk::from_bytes(&[7; 32]), *server.public());
    let pinned = || Trust::pinned([public]);
    match pattern {
        Pattern::NnPsk0 => (Initiator::nn_psk0(psk.clone()), Responder::nn_psk0(psk)),
        Pattern::NkPsk0 => (Initiator::nk_psk0(public, psk.clone()), Responder::nk_psk0(server, psk)),
        Pattern::Nk => (Initiator::nk(public), Responder::nk(server)),
        Pattern::Xx => (Initiator::xx(keys, pinned()), Responder::xx(server, Trust::any())),
        _ => (Initiator::xx_psk3(keys, pinned(), psk.clone()), Responder::xx_psk3(server, Trust::any(), psk)),
    }
}

fn handshake(initiator: &Initiator, responder: &Responder, random: &mut Entropy) -> [SessionKeys; 2] {
    let mut handshake = initiator.begin(b"context", random).expect("a first message");
    let answer = responder.answer(handshake.message(), b"context", b"", random).expect("an answer");
    let established = handshake.read_answer(&answer.message, b"").expect("a session");
    let server = match answer.next {
        AnswerNext::Session(session) => session,
        AnswerNext::Last(mut handshake) => {
            let last = established.last_message.expect("a third message");
            handshake.read_last(&last).expect("a session")
        }
    };
    [established.session, server]
}

/// Seals a packet at one end and opens it at the other.
fn pass(from: &mut SessionKeys, to: &mut SessionKeys) {
    let mut packet = [0; HEADER_LEN + TAG_LEN];
    from.seal(NOW, 1, &mut packet).expect("sealed");
    open(to, &mut packet);
}

/// Opens a packet as an end does that has many sessions: it finds the route first.
fn open(keys: &mut SessionKeys, packet: &mut [u8]) -> usize {
    let route = keys.route_key().route(packet).expect("a packet");
    keys.open(NOW, route, packet).expect("opened").len()
}

fn handshakes(criterion: &mut Criterion, random: &mut Entropy) {
    let mut group = criterion.benchmark_group("handshake");
    group.throughput(Throughput::Elements(1));
    for pattern in Pattern::all() {
        let (initiator, responder) = ends(pattern, random);
        group.bench_function(pattern.to_string(), |bencher| {
            bencher.iter(|| {
                let [mut client, mut server] = handshake(&initiator, &responder, random);
                pass(&mut client, &mut server);
                pass(&mut server, &mut client);
            });
        });
    }
    // What a flood costs a responder: first messages that are none.
    for pattern in [Pattern::NnPsk0, Pattern::Nk] {
        let (initiator, responder) = ends(pattern, random);
        let mut wrong = initiator.begin(b"context", random).expect("a first message").message().to_vec();
        let last = wrong.len() - 1;
        wrong[if pattern == Pattern::Nk { 4 } else { last }] ^= 1;
        group.bench_function(format!("{pattern}, refused"), |bencher| {
            bencher.iter(|| responder.answer(black_box(&wrong), b"context", b"", random).is_err());
        });
    }
    group.finish();
}

fn packets(criterion: &mut Criterion, random: &mut Entropy) {
    let (initiator, responder) = ends(Pattern::Nk, random);
    let ciphers = [
        (SessionCipher::ChaCha20Poly1305, CipherKind::ChaCha20Poly1305),
        (SessionCipher::Aes256Gcm, CipherKind::Aes256Gcm),
    ];
    for (cipher, kind) in ciphers {
        let mut group = criterion.benchmark_group(kind.to_string());
        group.throughput(Throughput::Bytes(PACKET as u64));
        let initiator = initiator.clone().with_cipher(cipher);
        let [mut client, mut server] = handshake(&initiator, &responder, random);
        let mut packet = vec![7; PACKET];
        group.bench_function("seal, session", |bencher| {
            bencher.iter(|| client.seal(NOW, 1, black_box(&mut packet)).expect("sealed"));
        });
        group.bench_function("open, session", |bencher| {
            let sealed = || {
                let mut packet = vec![7; PACKET];
                client.seal(NOW, 1, &mut packet).expect("sealed");
                packet
            };
            let open = |packet: &mut Vec<u8>| open(&mut server, black_box(packet));
            bencher.iter_batched_ref(sealed, open, BatchSize::NumIterations(1_000));
        });

        let key = Key::from_bytes(&[7; 32]);
        let fixed: Arc<_> = kind.build(&key, Framing::KcpGo).expect("a cipher that is built in");
        group.bench_function("seal, static key", |bencher| {
            bencher.iter(|| {
                random.fill(&mut packet[..fixed.nonce_len()]);
                fixed.seal(black_box(&mut packet)).expect("sealed");
            });
        });
        group.bench_function("open, static key", |bencher| {
            let sealed = || {
                let mut packet = vec![7; PACKET];
                random.fill(&mut packet[..fixed.nonce_len()]);
                fixed.seal(&mut packet).expect("sealed");
                packet
            };
            let open = |packet: &mut Vec<u8>| fixed.open(black_box(packet)).expect("opened");
            bencher.iter_batched_ref(sealed, open, BatchSize::NumIterations(1_000));
        });
        group.finish();
    }
}

fn main() {
    let mut random = Entropy(OsNonces::new().expect("randomness"));
    let mut criterion = Criterion::default().configure_from_args();
    handshakes(&mut criterion, &mut random);
    packets(&mut criterion, &mut random);
    criterion.final_summary();
}
