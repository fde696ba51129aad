//! Key agreement over real sockets: streams and listeners of the Tokio layer.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use kcp9::{
    Extensions, KcpConfig, KcpError, KcpListener, KcpStream,
    proto::{
        CloseReason, HandshakeError,
        noise::{Initiator, Noise, NoiseFailure, Pattern, Psk, Refusal, Responder, SessionCipher, Trust},
    },
};
use kcp9_simulator::Rng;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UdpSocket,
    task::JoinSet,
    time::timeout,
};

use crate::ends::Keys;

const PATIENCE: Duration = Duration::from_secs(20);

fn config(noise: impl Into<Option<Noise>>) -> KcpConfig {
    KcpConfig::builder().noise(noise).build().unwrap()
}

async fn listen(noise: impl Into<Option<Noise>>) -> (KcpListener, SocketAddr) {
    let listener = KcpListener::bind("127.0.0.1:0", config(noise)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// What ended a session, if it was the handshake.
fn noise_error(error: &io::Error) -> NoiseFailure {
    match KcpError::find(error) {
        Some(KcpError::Closed(CloseReason::HandshakeFailed(HandshakeError::Noise(error)))) => error,
        other => panic!("{error}: {other:?}"),
    }
}

/// What a client is told that asks this server for a byte.
async fn failure(addr: SocketAddr, initiator: Initiator) -> NoiseFailure {
    let mut stream = KcpStream::connect(addr, config(initiator)).await.unwrap();
    stream.write_all(b"?").await.unwrap();
    let outcome = timeout(PATIENCE, stream.read_u8()).await.expect("told before long");
    noise_error(&outcome.unwrap_err())
}

async fn nothing_is_accepted(listener: &KcpListener) {
    let accepted = timeout(Duration::from_millis(300), listener.accept()).await;
    assert!(accepted.is_err(), "a session that nobody has the keys of");
}

/// Sends a request and its end, and reads the answer to its end.
async fn exchange(mut client: KcpStream, listener: &KcpListener, len: usize) -> (KcpStream, KcpStream) {
    let request: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        stream.write_all(&got).await.unwrap();
        stream.shutdown().await.unwrap();
        stream
    };
    let ask = async {
        client.write_all(&request).await.unwrap();
        client.shutdown().await.unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert!(got == request, "{} bytes instead of {}", got.len(), request.len());
        client
    };
    timeout(PATIENCE, async { tokio::join!(ask, serve) }).await.expect("in time")
}

#[tokio::test]
async fn every_pattern_carries_streams_and_shows_who_the_peer_is() {
    let keys = Keys::new(1);
    for pattern in Pattern::all() {
        for cipher in [SessionCipher::ChaCha20Poly1305, SessionCipher::Aes256Gcm] {
            let (listener, addr) = listen(keys.responder(pattern)).await;
            let client = config(keys.initiator(pattern).with_cipher(cipher));
            let client = KcpStream::connect(addr, client).await.unwrap();
            assert_eq!(client.peer_key(), None, "nobody has shown it yet");
            let (client, server) = exchange(client, &listener, 300_000).await;
            let shows = matches!(pattern, Pattern::Xx | Pattern::XxPsk3);
            let knows = !matches!(pattern, Pattern::NnPsk0);
            assert_eq!(client.peer_key(), knows.then_some(*keys.responder.public()), "{pattern}");
            assert_eq!(server.peer_key(), shows.then_some(*keys.initiator.public()), "{pattern}");
            assert_eq!(client.handshake_hash(), server.handshake_hash(), "{pattern}");
            assert!(client.handshake_hash().is_some());
        }
    }
}

#[tokio::test]
async fn a_server_may_speak_first_and_connected_waits_for_the_right_peer() {
    let keys = Keys::new(2);
    for pattern in Pattern::all() {
        let (listener, addr) = listen(keys.responder(pattern)).await;
        let mut client = KcpStream::connect(addr, config(keys.initiator(pattern))).await.unwrap();
        client.connected(PATIENCE).await.unwrap();
        let (mut server, peer) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        assert_eq!(peer.port(), client.local_addr().unwrap().port());
        server.write_all(b"hello").await.unwrap();
        let mut hello = [0; 5];
        timeout(PATIENCE, client.read_exact(&mut hello)).await.unwrap().unwrap();
        assert_eq!(&hello, b"hello", "{pattern}");
    }
}

#[tokio::test]
async fn users_are_told_what_does_not_match_and_no_session_is_accepted() {
    let (keys, others) = (Arc::new(Keys::new(3)), Keys::new(4));
    let refused = NoiseFailure::Refused;
    let mixed = |pattern| {
        let server = *keys.responder.public();
        let trust = Trust::pinned([server]);
        match pattern {
            Pattern::NkPsk0 => Initiator::nk_psk0(server, others.psk.clone()),
            _ => Initiator::xx_psk3(keys.initiator.clone(), trust, others.psk.clone()),
        }
    };
    let stranger = |trust| Initiator::xx(others.initiator.clone(), trust);
    let server = *keys.responder.public();
    let cases = [
        (Pattern::NnPsk0, others.initiator(Pattern::NnPsk0), refused(Refusal::WrongPsk)),
        (Pattern::Nk, others.initiator(Pattern::Nk), refused(Refusal::UnknownServerKey)),
        (Pattern::NkPsk0, others.initiator(Pattern::NkPsk0), refused(Refusal::UnknownServerKey)),
        (Pattern::NkPsk0, mixed(Pattern::NkPsk0), refused(Refusal::WrongPsk)),
        (Pattern::XxPsk3, mixed(Pattern::XxPsk3), refused(Refusal::WrongPsk)),
        (Pattern::Xx, stranger(Trust::pinned([server])), refused(Refusal::UntrustedKey)),
        (
            Pattern::Xx,
            Initiator::xx(keys.initiator.clone(), Trust::pinned([*others.responder.public()])),
            NoiseFailure::UntrustedKey,
        ),
        (Pattern::Nk, keys.initiator(Pattern::NnPsk0), refused(Refusal::Pattern)),
    ];
    let mut tests = JoinSet::new();
    for (pattern, initiator, expected) in cases {
        let keys = Arc::clone(&keys);
        tests.spawn(async move {
            let (listener, addr) = listen(keys.responder(pattern)).await;
            assert_eq!(failure(addr, initiator).await, expected, "{pattern}");
            nothing_is_accepted(&listener).await;
            // Who has the right keys gets in all the same.
            let client = KcpStream::connect(addr, config(keys.initiator(pattern))).await.unwrap();
            exchange(client, &listener, 100).await;
        });
    }
    while let Some(test) = tests.join_next().await {
        test.unwrap();
    }
}

/// Both versions of the client's side: `connected` and the first call that needs the peer.
#[tokio::test]
async fn connected_says_what_does_not_match() {
    let (keys, others) = (Keys::new(5), Keys::new(6));
    let (_listener, addr) = listen(keys.responder(Pattern::Nk)).await;
    let stream = KcpStream::connect(addr, config(others.initiator(Pattern::Nk))).await.unwrap();
    let error = stream.connected(PATIENCE).await.unwrap_err();
    assert_eq!(noise_error(&error), NoiseFailure::Refused(Refusal::UnknownServerKey));
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("another public key"), "{error}");
}

#[tokio::test]
async fn peers_without_key_agreement_are_refused_unless_the_configuration_says_otherwise() {
    let keys = Keys::new(7);
    // A plain client: nothing comes of it, whatever it sends.
    let (listener, addr) = listen(keys.responder(Pattern::Nk)).await;
    let plain = KcpConfig::builder().dead_timeout(Duration::from_millis(500)).build().unwrap();
    let mut stream = KcpStream::connect(addr, plain).await.unwrap();
    stream.write_all(b"?").await.unwrap();
    assert!(timeout(PATIENCE, stream.read_u8()).await.unwrap().is_err());
    nothing_is_accepted(&listener).await;
    assert!(listener.endpoint_stats().dropped.no_session > 0);
    // Nor does a client that agrees on keys take another server.
    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await.unwrap();
    let client = KcpConfig::builder()
        .noise(keys.initiator(Pattern::Nk))
        .dead_timeout(Duration::from_millis(500))
        .build()
        .unwrap();
    let mut stream = KcpStream::connect(listener.local_addr().unwrap(), client).await.unwrap();
    stream.write_all(b"?").await.unwrap();
    assert!(timeout(PATIENCE, stream.read_u8()).await.unwrap().is_err());
    nothing_is_accepted(&listener).await;
}

#[tokio::test]
async fn a_configuration_without_keys_for_its_part_is_refused() {
    let keys = Keys::new(8);
    let error = KcpListener::bind("127.0.0.1:0", config(keys.initiator(Pattern::Nk))).await.unwrap_err();
    assert_eq!(noise_error(&error), NoiseFailure::Unconfigured);
    let error = KcpStream::connect("127.0.0.1:9", config(keys.responder(Pattern::Nk))).await.unwrap_err();
    assert_eq!(noise_error(&error), NoiseFailure::Unconfigured);
}

/// A relay that shows nothing but what the first client sent, again and again: from the same socket and from another one.
#[tokio::test]
async fn a_recording_opens_nothing() {
    let keys = Keys::new(9);
    for pattern in [Pattern::NnPsk0, Pattern::Nk, Pattern::Xx] {
        let (listener, addr) = listen(keys.responder(pattern)).await;
        let relay = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let relay_addr = relay.local_addr().unwrap();
        let client = KcpStream::connect(relay_addr, config(keys.initiator(pattern))).await.unwrap();
        let client_addr = client.local_addr().unwrap();
        let mut recorded = Vec::new();
        let carry = async {
            let mut buffer = vec![0; 2_048];
            loop {
                let (len, from) = relay.recv_from(&mut buffer).await.unwrap();
                let from_client = from.port() == client_addr.port();
                if from_client {
                    recorded.push(buffer[..len].to_vec());
                }
                let to = if from_client { addr } else { (relay_addr.ip(), client_addr.port()).into() };
                relay.send_to(&buffer[..len], to).await.unwrap();
            }
        };
        let ends = tokio::select! {
            () = carry => unreachable!(),
            ends = exchange(client, &listener, 50_000) => ends,
        };
        drop(ends);
        assert!(recorded.len() > 30, "{}", recorded.len());
        let elsewhere = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        for socket in [&relay, &elsewhere] {
            for packet in &recorded {
                socket.send_to(packet, addr).await.unwrap();
                // It answers some of them.
                while socket.try_recv_from(&mut [0; 2_048]).is_ok() {}
            }
        }
        nothing_is_accepted(&listener).await;
        let client = KcpStream::connect(addr, config(keys.initiator(pattern))).await.unwrap();
        exchange(client, &listener, 100).await;
    }
}

#[tokio::test]
async fn an_old_version_is_named() {
    let keys = Keys::new(10);
    let (listener, addr) = listen(keys.responder(Pattern::Nk)).await;
    // Between them somebody changes the version of the first message. Whoever does that gets no session.
    let relay = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let relay_addr = relay.local_addr().unwrap();
    let carry = async {
        let mut buffer = vec![0; 2_048];
        let mut client = None;
        loop {
            let (len, from) = relay.recv_from(&mut buffer).await.unwrap();
            if from == addr {
                relay.send_to(&buffer[..len], client.unwrap()).await.unwrap();
            } else {
                client = Some(from);
                // Behind the header, the fixed body and the field's head.
                buffer[24 + 24 + 3] = 2;
                relay.send_to(&buffer[..len], addr).await.unwrap();
            }
        }
    };
    let error = tokio::select! {
        () = carry => unreachable!(),
        error = failure(relay_addr, keys.initiator(Pattern::Nk)) => error,
    };
    assert_eq!(error, NoiseFailure::Refused(Refusal::Version { peer: 1 }));
    nothing_is_accepted(&listener).await;
}

/// Whatever somebody between changes in what is said in the clear, there is no session, or the one that was meant.
#[tokio::test]
async fn what_is_changed_on_the_way_makes_no_other_session() {
    let keys = Keys::new(11);
    for pattern in [Pattern::NnPsk0, Pattern::Xx] {
        let mut rng = Rng::new(11);
        for _ in 0..6 {
            let (listener, addr) = listen(keys.responder(pattern)).await;
            let relay = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let relay_addr = relay.local_addr().unwrap();
            let bit = rng.within(0..=799) as usize;
            let carry = async {
                let (mut buffer, mut client, mut changed) = (vec![0; 2_048], None, 0);
                loop {
                    let (len, from) = relay.recv_from(&mut buffer).await.unwrap();
                    if from == addr {
                        relay.send_to(&buffer[..len], client.unwrap()).await.unwrap();
                        continue;
                    }
                    client = Some(from);
                    // Of the first two; the third one is as it was sent.
                    if changed < 2 {
                        changed += 1;
                        buffer[bit / 8 % len] ^= 1 << (bit % 8);
                    }
                    relay.send_to(&buffer[..len], addr).await.unwrap();
                }
            };
            let client = KcpStream::connect(relay_addr, config(keys.initiator(pattern))).await.unwrap();
            let (client, server) = tokio::select! {
                () = carry => unreachable!(),
                ends = exchange(client, &listener, 1_000) => ends,
            };
            assert_eq!(client.handshake_hash(), server.handshake_hash(), "{pattern}, bit {bit}");
        }
    }
}

#[tokio::test]
async fn keys_are_made_of_a_password_too() {
    let psk = || {
        let key = kcp9::crypto::Key::from_password("correct horse battery staple").unwrap();
        Psk::from_key(&key).unwrap()
    };
    let (listener, addr) = listen(Responder::nn_psk0(psk())).await;
    let client = KcpStream::connect(addr, config(Initiator::nn_psk0(psk()))).await.unwrap();
    exchange(client, &listener, 1_000).await;
}

#[test]
fn settings_that_make_no_sense_with_key_agreement_are_refused() {
    let keys = Keys::new(1);
    let accepts = || Noise::from(keys.responder(Pattern::Nk));
    let connects = || Noise::from(keys.initiator(Pattern::Nk));
    let (plain, with_cipher) = (KcpConfig::builder, || KcpConfig::builder().crypto(static_crypto()));
    for (conflict, builder) in [
        ("noise with crypto", with_cipher().noise(accepts())),
        ("noise with crypto", with_cipher().noise(connects().serving_static_peers())),
        ("noise serving static peers without crypto", plain().noise(accepts().serving_static_peers())),
        ("noise without extensions", plain().noise(connects()).extensions(Extensions::Off)),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.to_string(), format!("{conflict} is not possible"));
    }
    assert!(with_cipher().noise(accepts().serving_static_peers()).build().is_ok());
}

fn static_crypto() -> kcp9::crypto::PacketCrypto {
    use kcp9::crypto::{CipherKind, Framing, Key, OsNonces, PacketCrypto};
    let cipher = CipherKind::Aes256Gcm.build(&Key::from_bytes(&[7; 32]), Framing::KcpGo).unwrap();
    PacketCrypto::new(cipher, Arc::new(OsNonces::new().unwrap()))
}

#[tokio::test]
async fn static_peers_are_served_where_the_configuration_says_so_and_beside_the_others() {
    let keys = Keys::new(12);
    let noise = Noise::from(keys.responder(Pattern::Nk)).serving_static_peers();
    let server = KcpConfig::builder().crypto(static_crypto()).noise(noise).build().unwrap();
    let listener = KcpListener::bind("127.0.0.1:0", server).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let with_cipher = KcpConfig::builder().crypto(static_crypto()).build().unwrap();
    for _ in 0..2 {
        let client = KcpStream::connect(addr, with_cipher.clone()).await.unwrap();
        let (client, server) = exchange(client, &listener, 100_000).await;
        assert_eq!((client.handshake_hash(), server.handshake_hash()), (None, None));
        let client = KcpStream::connect(addr, config(keys.initiator(Pattern::Nk))).await.unwrap();
        let (_, server) = exchange(client, &listener, 100_000).await;
        assert!(server.handshake_hash().is_some());
    }
    // Without any cipher nobody is.
    let plain = KcpConfig::builder().dead_timeout(Duration::from_millis(500)).build().unwrap();
    let mut stream = KcpStream::connect(addr, plain).await.unwrap();
    stream.write_all(b"?").await.unwrap();
    assert!(timeout(PATIENCE, stream.read_u8()).await.unwrap().is_err());
    nothing_is_accepted(&listener).await;
}

/// An attacker may hold up what it likes: a client that agrees on keys says nothing else until it has them.
#[tokio::test]
async fn without_an_answer_a_client_says_nothing_but_its_first_message() {
    let keys = Keys::new(13);
    for pattern in Pattern::all() {
        let attacker = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let addr = attacker.local_addr().unwrap();
        let mut stream = KcpStream::connect(addr, config(keys.initiator(pattern))).await.unwrap();
        stream.write_all(b"a secret that nobody else may read").await.unwrap();
        let _ = timeout(Duration::from_millis(50), stream.shutdown()).await;
        let mut buffer = vec![0; 2_048];
        for _ in 0..4 {
            let (len, from) = timeout(PATIENCE, attacker.recv_from(&mut buffer)).await.unwrap().unwrap();
            let packet = &buffer[..len];
            assert_eq!(packet[4..6], [0x60, 0x01], "{pattern}: it is a HELLO");
            assert!(!packet.windows(8).any(|bytes| bytes == b"a secret"), "{pattern}");
            // Answers of a server without key agreement: ACK, WINS with the mark, ANSWER without a message.
            for (cmd, frg) in [(82, 0), (82, 0x60), (84, 0x60), (0x60, 0x02)] {
                let mut answer = packet[..48].to_vec();
                (answer[4], answer[5]) = (cmd, frg);
                answer[20..24].copy_from_slice(&(if cmd == 0x60 { 24_u32 } else { 0 }).to_le_bytes());
                answer.truncate(if cmd == 0x60 { 48 } else { 24 });
                attacker.send_to(&answer, from).await.unwrap();
            }
        }
        assert_eq!(stream.close_reason(), None);
        assert_eq!(stream.handshake_hash(), None);
    }
}

#[tokio::test]
async fn a_session_follows_its_client_to_another_address() {
    let keys = Keys::new(14);
    for pattern in [Pattern::NnPsk0, Pattern::XxPsk3] {
        let (listener, addr) = listen(keys.responder(pattern)).await;
        let path = kcp9_simulator::LinkSettings::delay(Duration::from_millis(2));
        let relay = kcp9_relay::Relay::start(addr, &path, 1).unwrap();
        let mut client = KcpStream::connect(relay.addr(), config(keys.initiator(pattern))).await.unwrap();
        client.write_u8(1).await.unwrap();
        let (mut server, before) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        assert_eq!(timeout(PATIENCE, server.read_u8()).await.unwrap().unwrap(), 1);
        server.write_u8(1).await.unwrap();
        assert_eq!(timeout(PATIENCE, client.read_u8()).await.unwrap().unwrap(), 1);
        // Both ends know each other.
        tokio::time::sleep(Duration::from_millis(100)).await;
        relay.change_ports();
        for number in 2..10 {
            client.write_u8(number).await.unwrap();
            assert_eq!(timeout(PATIENCE, server.read_u8()).await.unwrap().unwrap(), number);
            server.write_u8(number).await.unwrap();
            assert_eq!(timeout(PATIENCE, client.read_u8()).await.unwrap().unwrap(), number);
        }
        assert_ne!(server.peer_addr(), before, "{pattern}");
        assert_eq!(server.stats().extensions.moves, 1);
        assert_eq!(listener.endpoint_stats().driver.accepted, 1);
    }
}

/// It knows no keys any more, so what it says is known by a key that it had told the client before (R120). The client's questions draw it.
#[test]
fn a_server_that_was_started_again_says_so() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let keys = Keys::new(15);
    let (first, second, own) = (runtime(), runtime(), runtime());
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let serve =
        |socket: std::net::UdpSocket| KcpListener::from_socket(socket, config(keys.responder(Pattern::Nk)));
    let listener = first.block_on(async { serve(socket.try_clone().unwrap()) }).unwrap();
    let client = KcpConfig::builder()
        .noise(keys.initiator(Pattern::Nk))
        .keep_alive(Some(Duration::from_millis(200)))
        .build()
        .unwrap();
    let mut stream = own.block_on(async {
        let mut stream = KcpStream::connect(addr, client.clone()).await.unwrap();
        stream.write_u8(1).await.unwrap();
        stream
    });
    let (accepted, _) = own.block_on(listener.accept()).unwrap();
    // The process of the server ends without another word, and another one begins.
    first.shutdown_timeout(Duration::from_secs(5));
    drop((accepted, listener));
    let listener = second.block_on(async { serve(socket) }).unwrap();
    own.block_on(async {
        let error = timeout(PATIENCE, stream.read_u8()).await.expect("noticed").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
        let again = KcpStream::connect(addr, config(keys.initiator(Pattern::Nk))).await.unwrap();
        exchange(again, &listener, 100).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_agree_on_keys_too() {
    let keys = Keys::new(16);
    let server = KcpConfig::builder().noise(keys.responder(Pattern::NkPsk0)).shards(2).build().unwrap();
    let Ok(listener) = KcpListener::bind("127.0.0.1:0", server).await else { return };
    let addr = listener.local_addr().unwrap();
    let mut hashes = Vec::new();
    for _ in 0..8 {
        let client = KcpStream::connect(addr, config(keys.initiator(Pattern::NkPsk0))).await.unwrap();
        let (client, _) = exchange(client, &listener, 10_000).await;
        hashes.push(client.handshake_hash().unwrap());
    }
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), 8);
}

/// The system gives their packets to other sockets then. Eight stay where they are once in 16 million.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_stays_with_its_shard_when_its_client_moves_to_another() {
    let keys = Keys::new(18);
    let server = KcpConfig::builder().noise(keys.responder(Pattern::Nk)).shards(8).build().unwrap();
    let Ok(listener) = KcpListener::bind("127.0.0.1:0", server).await else { return };
    let addr = listener.local_addr().unwrap();
    let sessions = || listener.shard_stats().iter().map(|shard| shard.state.sessions).collect::<Vec<_>>();
    let mut live = Vec::new();
    for number in 0..8 {
        let mut client = KcpStream::connect(addr, config(keys.initiator(Pattern::Nk))).await.unwrap();
        client.write_u8(number).await.unwrap();
        let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        assert_eq!(timeout(PATIENCE, server.read_u8()).await.unwrap().unwrap(), number);
        server.write_u8(number).await.unwrap();
        assert_eq!(timeout(PATIENCE, client.read_u8()).await.unwrap().unwrap(), number);
        live.push((client, server));
    }
    // Both ends know each other.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = sessions();
    for (client, _) in &live {
        client.rebind(std::net::UdpSocket::bind("127.0.0.2:0").unwrap()).unwrap();
    }
    for (number, (client, server)) in (100..).zip(&mut live) {
        client.write_u8(number).await.unwrap();
        assert_eq!(timeout(PATIENCE, server.read_u8()).await.unwrap().unwrap(), number);
        server.write_u8(number).await.unwrap();
        assert_eq!(timeout(PATIENCE, client.read_u8()).await.unwrap().unwrap(), number);
    }
    assert_eq!((sessions(), listener.endpoint_stats().driver.accepted), (before, 8));
    assert!(listener.endpoint_stats().driver.handed_over > 0);
}

#[tokio::test]
async fn datagrams_and_parity_are_sealed_too() {
    let keys = Keys::new(17);
    let builder = || KcpConfig::builder().datagram_queue(1 << 16).fec(5, 2);
    let server = builder().noise(keys.responder(Pattern::NnPsk0)).build().unwrap();
    let listener = KcpListener::bind("127.0.0.1:0", server).await.unwrap();
    let client = builder().noise(keys.initiator(Pattern::NnPsk0)).build().unwrap();
    let mut client = KcpStream::connect(listener.local_addr().unwrap(), client).await.unwrap();
    client.write_u8(1).await.unwrap();
    let (server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    client.send_datagram(b"beside the stream").unwrap();
    let datagram = timeout(PATIENCE, server.recv_datagram()).await.unwrap().unwrap();
    assert_eq!(&datagram[..], b"beside the stream");
    let client = KcpStream::connect(listener.local_addr().unwrap(), {
        builder().noise(keys.initiator(Pattern::NnPsk0)).build().unwrap()
    });
    let (client, server) = exchange(client.await.unwrap(), &listener, 200_000).await;
    assert!(client.stats().fec.parity_sent > 0 && server.stats().fec.parity_sent > 0);
}

#[tokio::test]
async fn early_data_is_read_before_the_peer_is_known() {
    let keys = Keys::new(5);
    for pattern in Pattern::all().filter(|pattern| pattern.takes_early_data()) {
        let (listener, addr) = listen(keys.responder(pattern).with_early_data()).await;
        let client = config(keys.initiator(pattern));
        let mut client = KcpStream::connect_with_early_data(addr, client, b"early ").await.unwrap();
        client.write_all(b"late").await.unwrap();
        let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        assert!(!client.may_be_replayed());
        let mut got = [0; 10];
        timeout(PATIENCE, server.read_exact(&mut got)).await.unwrap().unwrap();
        assert_eq!((&got, server.may_be_replayed()), (b"early late", false), "{pattern}");
        server.write_all(&got).await.unwrap();
        timeout(PATIENCE, client.read_exact(&mut got)).await.unwrap().unwrap();
        assert_eq!(&got, b"early late", "{pattern}");
    }
}

#[tokio::test]
async fn a_recorded_first_packet_gives_a_stream_that_says_so_and_another_one_none() {
    let keys = Keys::new(6);
    let (listener, addr) = listen(keys.responder(Pattern::NnPsk0).with_early_data()).await;
    // Nobody answers there, so the packet is all that there is of it.
    let elsewhere = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let client = config(keys.initiator(Pattern::NnPsk0));
    let peer = elsewhere.local_addr().unwrap();
    let _client = KcpStream::connect_with_early_data(peer, client, b"pay").await.unwrap();
    let mut packet = [0; 2_000];
    let (len, _) = elsewhere.recv_from(&mut packet).await.unwrap();
    elsewhere.send_to(&packet[..len], addr).await.unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut got = [0; 3];
    timeout(PATIENCE, server.read_exact(&mut got)).await.unwrap().unwrap();
    assert_eq!((&got, server.may_be_replayed()), (b"pay", true));
    let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    other.send_to(&packet[..len], addr).await.unwrap();
    nothing_is_accepted(&listener).await;
}

#[tokio::test]
async fn early_data_without_keys_or_of_too_many_bytes_is_refused() {
    let keys = Keys::new(7);
    let (_listener, addr) = listen(keys.responder(Pattern::Nk).with_early_data()).await;
    let connect = |config, len| KcpStream::connect_with_early_data(addr, config, &[7; 2_000][..len]);
    let error = connect(config(keys.initiator(Pattern::Nk)), 1_001).await.err().unwrap();
    assert_eq!(noise_error(&error), NoiseFailure::EarlyData);
    let error = connect(KcpConfig::default(), 1).await.err().unwrap();
    assert_eq!((noise_error(&error), error.kind()), (NoiseFailure::Unconfigured, io::ErrorKind::InvalidData));
    connect(KcpConfig::default(), 0).await.unwrap();
}
