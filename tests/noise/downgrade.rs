//! Somebody on the path, and servers that have other settings, try to have a session go on with less than its client asks for: without
//! keys of its own, or with those of another pattern. The client says nothing but its first message then.

use std::{net::SocketAddr, sync::Arc};

use kcp9::{
    KcpConfig,
    crypto::{CipherKind, Framing, Key, NonceSource, PacketCrypto},
    proto::{
        CloseReason, Connection, Endpoint, Instant, Routed, SessionSeed,
        noise::{Noise, Pattern},
    },
};
use kcp9_simulator::{Nonces, Rng, ms};

use crate::{
    ends::Keys,
    virtual_ends::{Server, client_address, driven},
};

const START: Instant = Instant::from_millis(5_000);
const SECRET: &[u8] = b"what nobody else may read";
const CONV: u32 = 7;
/// What stands in front of a HELLO's message: header, fixed body, and the head of the field.
const MESSAGE_AT: usize = 24 + 24 + 3;

fn client(noise: impl Into<Noise>) -> Connection {
    let config = KcpConfig::builder().noise(noise.into()).build().unwrap();
    let mut rng = Rng::new(2);
    let seed = SessionSeed::new(&mut rng);
    let mut client = Connection::connect_with_noise(CONV, &config, START, seed, &mut rng).unwrap();
    client.write(START, SECRET).unwrap();
    client.shutdown(START);
    client
}

/// What a client without keys sends now: HELLOs, and nothing of what was written.
fn asked(client: &mut Connection, now: Instant) -> Vec<Vec<u8>> {
    let packets = driven(client, now);
    for packet in &packets {
        assert_eq!(packet[4..6], [0x60, 0x01], "it is a HELLO");
        assert_eq!(packet[48], 0xa0, "with a message");
        assert!(!packet.windows(8).any(|bytes| bytes == &SECRET[..8]));
    }
    assert_eq!(client.handshake_hash(), None);
    packets
}

fn cipher(kind: CipherKind) -> PacketCrypto {
    let key = Key::from_bytes(&[7; 32]);
    PacketCrypto::new(kind.build(&key, Framing::KcpGo).unwrap(), Arc::new(Nonces::starting_at(1)))
}

fn seal(crypto: &PacketCrypto, nonces: &Nonces, segments: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; crypto.cipher().header_len()];
    nonces.fill(&mut packet[..crypto.cipher().nonce_len()]);
    packet.extend_from_slice(segments);
    packet.resize(packet.len() + crypto.cipher().trailer_len(), 0);
    crypto.cipher().seal(&mut packet).unwrap();
    packet
}

/// A server that takes sessions without keys of their own.
struct StaticServer {
    endpoint: Endpoint,
    /// Of its sessions.
    config: KcpConfig,
    rng: Rng,
    sessions: Vec<(SocketAddr, Connection)>,
    replies: Vec<Vec<u8>>,
}

impl StaticServer {
    fn new(of_endpoint: &KcpConfig, config: KcpConfig) -> Self {
        let mut rng = Rng::new(1);
        let endpoint = Endpoint::accepting(of_endpoint, &mut rng);
        Self { endpoint, config, rng, sessions: Vec::new(), replies: Vec::new() }
    }

    fn receive(&mut self, now: Instant, packet: &[u8]) {
        let mut block = packet.to_vec();
        let stride = block.len();
        self.endpoint.receive(client_address(1), &mut block, stride);
        let block = Arc::new(block.into_boxed_slice());
        while let Some(routed) = self.endpoint.poll_routed(now, &block) {
            let run = match routed {
                Routed::Session(run) => run,
                Routed::Incoming(incoming) => {
                    assert!(!incoming.sealed, "nobody has its keys");
                    let seed = SessionSeed::new(&mut self.rng);
                    let session = Connection::accept(CONV, &self.config, now, seed);
                    self.sessions.push((incoming.source, session));
                    self.endpoint.accept(now).unwrap().run
                }
                Routed::Reply(_) => {
                    self.replies.push(self.endpoint.reply().to_vec());
                    continue;
                }
                other => panic!("{other:?}"),
            };
            self.sessions[0].1.handle_batch(now, &block, run.range, run.stride);
        }
    }

    fn drive(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut sent = std::mem::take(&mut self.replies);
        for (_, session) in &mut self.sessions {
            sent.extend(driven(session, now));
            assert!(session.read(&mut [0; 100]).is_err(), "nothing was said");
        }
        sent
    }
}

#[test]
fn a_server_without_key_agreement_hears_nothing_but_first_messages() {
    let keys = Keys::new(1);
    let builder = KcpConfig::builder;
    let servers = [
        ("plain", builder()),
        ("an AEAD", builder().crypto(cipher(CipherKind::Aes256Gcm))),
        ("a cipher", builder().crypto(cipher(CipherKind::Salsa20))),
        ("a checksum", builder().crypto(cipher(CipherKind::None))),
    ];
    for (name, server) in servers {
        let server = server.build().unwrap();
        for pattern in Pattern::all() {
            let mut server = StaticServer::new(&server, server.clone());
            let mut client = client(keys.initiator(pattern));
            let mut hellos = 0;
            for now in (0..8_000).map(|step| START + ms(5 * step)) {
                for packet in asked(&mut client, now) {
                    server.receive(now, &packet);
                    hellos += 1;
                }
                for packet in server.drive(now) {
                    let _ = client.handle_packet(now, &mut packet.clone());
                }
            }
            assert!(hellos > 20, "{name}: {hellos}");
            let reason = client.close_reason();
            assert!(
                matches!(reason, Some(CloseReason::DeadLink | CloseReason::LingerTimeout)),
                "{name}, {pattern}: {reason:?}"
            );
        }
    }
}

/// A HELLO without its message.
fn stripped(hello: &[u8]) -> Vec<u8> {
    let field = MESSAGE_AT - 3;
    let len = usize::from(u16::from_le_bytes([hello[field + 1], hello[field + 2]]));
    let mut stripped = [&hello[..field], &hello[MESSAGE_AT + len..]].concat();
    let body = (stripped.len() - 24) as u32;
    stripped[20..24].copy_from_slice(&body.to_le_bytes());
    stripped
}

/// The server serves static peers, too. Somebody on the path, who has their key, makes a HELLO of the client's that asks for nothing but
/// them, and brings the client all that the server says to that.
#[test]
fn a_hello_that_was_stripped_of_its_message_begins_no_session_of_that_client() {
    let keys = Keys::new(1);
    let crypto = cipher(CipherKind::Aes256Gcm);
    for pattern in Pattern::all() {
        for has_key in [false, true] {
            let noise = Noise::from(keys.responder(pattern)).serving_static_peers();
            let builder = KcpConfig::builder().crypto(crypto.clone());
            let of_sessions = builder.clone().build().unwrap();
            let mut server = StaticServer::new(&builder.noise(noise).build().unwrap(), of_sessions);
            let mut client = client(keys.initiator(pattern));
            let (nonces, mut heard) = (Nonces::starting_at(1 << 20), 0);
            for now in (0..4_000).map(|step| START + ms(5 * step)) {
                for packet in asked(&mut client, now) {
                    let stripped = stripped(&packet);
                    server.receive(now, &if has_key { seal(&crypto, &nonces, &stripped) } else { stripped });
                }
                for mut packet in server.drive(now) {
                    let _ = client.handle_packet(now, &mut packet.clone());
                    if crypto.cipher().open(&mut packet).is_ok() {
                        let end = packet.len() - crypto.cipher().trailer_len();
                        let _ = client.handle_packet(now, &mut packet[crypto.cipher().header_len()..end]);
                        heard += 1;
                    }
                }
            }
            assert_eq!((server.sessions.len(), heard > 0), (usize::from(has_key), has_key), "{pattern}");
            assert!(client.read(&mut [0; 10]).is_err());
        }
    }
}

/// Somebody on the path has the messages name the pattern that the other end has.
#[test]
fn an_end_with_another_pattern_has_no_session_whatever_the_messages_say() {
    let keys = Keys::new(1);
    let number = |pattern| asked(&mut client(keys.initiator(pattern)), START)[0][MESSAGE_AT + 2];
    for own in Pattern::all() {
        for other in Pattern::all().filter(|other| *other != own) {
            let numbers = [number(own), number(other)];
            assert_ne!(numbers[0], numbers[1]);
            let server = KcpConfig::builder().noise(keys.responder(other)).build().unwrap();
            let mut server = Server::new(server, 1);
            let mut client = client(keys.initiator(own));
            let mut told = 0;
            for now in (0..1_000).map(|step| START + ms(5 * step)) {
                for mut packet in asked(&mut client, now) {
                    packet[MESSAGE_AT + 2] = numbers[1];
                    server.receive(now, client_address(1), &packet);
                }
                for (_, mut packet) in server.drive(now) {
                    let message = packet.get_mut(MESSAGE_AT..).unwrap();
                    // A refusal has its reason there, and is of no pattern.
                    if message[1] != 255 {
                        message[2] = numbers[0];
                    }
                    let _ = client.handle_packet(now, &mut packet);
                    told += 1;
                }
            }
            assert_eq!((server.accepted, server.endpoint.agreeing()), (0, 0), "{own}, {other}");
            let reason = client.close_reason();
            let failed = matches!(reason, Some(CloseReason::HandshakeFailed(_)));
            assert!(failed || told == 0 && reason.is_none(), "{own}, {other}: {reason:?}");
        }
    }
}
