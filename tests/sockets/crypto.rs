//! Encrypted streams: every cipher, wrong keys, replays, and what a socket can and cannot tell apart.

use std::{io::ErrorKind, net::UdpSocket, sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, KcpEndpoint, KcpListener, KcpStream,
    crypto::{CipherKind, Framing, Key, OpenError, PacketCipher, PacketCrypto, SealError},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    ANY, EchoServer, accept_session, assert_alive, echo_payload, kind, listen_with, pair_with,
    short_timeouts, until, within,
};

pub const KEY: &[u8; 32] = b"0123456789abcdefFEDCBA9876543210";

pub fn crypto(kind: CipherKind, framing: Framing, key: &[u8; 32]) -> PacketCrypto {
    let cipher = kind.build(&Key::from_bytes(&key[..kind.key_len()]), framing).unwrap();
    PacketCrypto::with_os_nonces(cipher).unwrap()
}

pub fn config(kind: CipherKind) -> KcpConfig {
    KcpConfig::builder().crypto(crypto(kind, Framing::KcpGo, KEY)).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cipher_carries_a_stream() {
    for kind in CipherKind::all() {
        for framing in [Framing::KcpGo, Framing::Highway] {
            if kind.is_aead() && framing == Framing::Highway {
                continue;
            }
            let config = KcpConfig::builder().crypto(crypto(kind, framing, KEY)).build().unwrap();
            let server = EchoServer::over(listen_with(config.clone()).await);
            let stream = KcpStream::connect(server.addr, config).await.unwrap();
            let what = format!("{kind}, {framing:?}");
            let stream = within(20, &what, echo_payload(stream, 300_000)).await.unwrap();
            let stats = stream.endpoint_stats();
            let dropped = stats.dropped.bad_tag + stats.dropped.bad_checksum + stats.dropped.replayed;
            assert_eq!(
                (dropped, stats.dropped.short, stats.dropped.malformed),
                (0, 0, 0),
                "{what}: {stats:?}"
            );
        }
    }
}

/// Two clients with different keys, at one listener.
#[tokio::test]
async fn no_session_is_accepted_under_another_key() {
    tokio::join!(
        assert_strangers_refused(CipherKind::Aes128Gcm, Framing::KcpGo),
        assert_strangers_refused(CipherKind::XChaCha20Poly1305, Framing::KcpGo),
        assert_strangers_refused(CipherKind::Aes256, Framing::KcpGo),
        assert_strangers_refused(CipherKind::Salsa20, Framing::Highway),
    );
}

async fn assert_strangers_refused(kind: CipherKind, framing: Framing) {
    let right = short_timeouts().crypto(crypto(kind, framing, KEY)).build().unwrap();
    let wrong =
        short_timeouts().crypto(crypto(kind, framing, b"another key for the same cipher.")).build().unwrap();
    let clear = short_timeouts().build().unwrap();
    let listener = listen_with(right.clone()).await;
    let addr = listener.local_addr().unwrap();
    for config in [wrong, clear] {
        let mut stranger = KcpStream::connect(addr, config).await.unwrap();
        stranger.write_all(&[7; 5_000]).await.unwrap();
        let ended = within(5, "a stranger hears nothing", stranger.shutdown()).await;
        assert_eq!(kind_of(ended), Some(ErrorKind::TimedOut), "{kind}");
    }
    let stats = listener.endpoint_stats();
    let refused = if framing == Framing::KcpGo && !kind.is_aead() {
        stats.dropped.bad_checksum
    } else {
        stats.dropped.bad_tag
    };
    assert!(refused >= 8, "{kind}: {stats:?}");
    assert_eq!((stats.driver.accepted, stats.state.sessions), (0, 0), "{kind}: {stats:?}");
    let client = KcpStream::connect(addr, right).await.unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    assert_alive(&mut client, &mut server).await;
}

fn kind_of<T>(outcome: std::io::Result<T>) -> Option<ErrorKind> {
    kind(outcome)
}

/// Receives what `client` sends first, packet by packet.
async fn record(config: KcpConfig, bytes: &[u8]) -> Vec<Vec<u8>> {
    let tap = UdpSocket::bind(ANY).unwrap();
    tap.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut client = KcpStream::connect(tap.local_addr().unwrap(), config).await.unwrap();
    client.write_all(bytes).await.unwrap();
    client.flush().await.unwrap();
    let mut packets = Vec::new();
    let mut buffer = [0; 2_000];
    tokio::task::spawn_blocking(move || {
        while packets.len() < 3 {
            let Ok(len) = tap.recv(&mut buffer) else { break };
            packets.push(buffer[..len].to_vec());
            tap.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        }
        packets
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wire_carries_no_plaintext() {
    let secret = b"a secret that nobody else should read, again and again. ".repeat(40);
    for kind in CipherKind::all().filter(|kind| *kind != CipherKind::None) {
        let packets = record(config(kind), &secret).await;
        assert!(!packets.is_empty(), "{kind}");
        for packet in packets {
            assert!(!packet.windows(8).any(|window| window == &secret[..8]), "{kind}: {packet:x?}");
        }
    }
}

/// One session is accepted for a first packet, whoever sends it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_is_accepted_for_a_replayed_first_packet() {
    let with_tags =
        KcpConfig::builder().crypto(crypto(CipherKind::Aes128, Framing::Highway, KEY)).build().unwrap();
    for config in [config(CipherKind::Aes256Gcm), config(CipherKind::ChaCha20Poly1305), with_tags] {
        let listener = listen_with(config.clone()).await;
        let addr = listener.local_addr().unwrap();
        // The first packet of the stream. With extensions, HELLO may be lost before it.
        let packets = record(config, b"first").await;
        let first = packets.last().unwrap();
        let send = |bytes: &[u8]| {
            let socket = UdpSocket::bind(ANY).unwrap();
            socket.send_to(bytes, addr).unwrap();
        };
        send(first);
        let (mut stream, _) = within(5, "the packet opens a session", listener.accept()).await.unwrap();
        let mut bytes = [0; 5];
        within(5, "its bytes", stream.read_exact(&mut bytes)).await.unwrap();
        assert_eq!(&bytes, b"first");
        for _ in 0..20 {
            send(first);
        }
        until(5, "the replays are dropped", || listener.endpoint_stats().dropped.replayed == 20).await;
        // Not even long after the session has ended.
        drop(stream);
        until(5, "the session is gone", || listener.endpoint_stats().state.sessions == 0).await;
        send(first);
        until(5, "a late replay is dropped", || listener.endpoint_stats().dropped.replayed == 21).await;
        let stats = listener.endpoint_stats();
        assert_eq!((stats.driver.accepted, stats.dropped.no_session), (1, 0), "{stats:?}");
    }
}

/// Both ends have the same key. A packet that comes back to its sender is not taken for the peer's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reflected_packet_is_dropped() {
    let with_tags =
        KcpConfig::builder().crypto(crypto(CipherKind::Salsa20, Framing::Highway, KEY)).build().unwrap();
    for config in [config(CipherKind::Aes256Gcm), config(CipherKind::XChaCha20Poly1305), with_tags] {
        // An attacker between client and server sends the server's packets back.
        let listener = listen_with(config.clone()).await;
        let addr = listener.local_addr().unwrap();
        let tap = tokio::net::UdpSocket::bind(ANY).await.unwrap();
        let mut client = KcpStream::connect(tap.local_addr().unwrap(), config).await.unwrap();
        client.write_all(b"who is there?").await.unwrap();
        let mut buffer = [0; 2_000];
        let (len, client_addr) = within(5, "the client speaks", tap.recv_from(&mut buffer)).await.unwrap();
        // The client's packet back to the client.
        tap.send_to(&buffer[..len], client_addr).await.unwrap();
        until(5, "the client drops its own packet", || client.stats().udp.replayed == 1).await;
        assert_eq!(client.stats().segments.push_received, 0);
        // The server's answer to the server, from another address.
        tap.send_to(&buffer[..len], addr).await.unwrap();
        let (mut server, _) = within(5, "the client is accepted", listener.accept()).await.unwrap();
        server.write_all(b"a secret greeting").await.unwrap();
        let elsewhere = UdpSocket::bind(ANY).unwrap();
        let before = listener.endpoint_stats().dropped.replayed;
        let mut reflected = 0;
        while reflected < 3 {
            let (len, from) = within(5, "the server speaks", tap.recv_from(&mut buffer)).await.unwrap();
            if from == addr {
                elsewhere.send_to(&buffer[..len], addr).unwrap();
                reflected += 1;
            }
        }
        until(5, "its greeting is known", || listener.endpoint_stats().dropped.replayed > before).await;
        assert_eq!(listener.endpoint_stats().driver.accepted, 1);
    }
}

/// A packet that arrives twice within a session is used once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_within_a_session_is_dropped() {
    for kind in [CipherKind::Aes128Gcm, CipherKind::Aes128, CipherKind::Salsa20] {
        let config = config(kind);
        let listener = listen_with(config.clone()).await;
        let addr = listener.local_addr().unwrap();
        let first = record(config, &[9; 3_000]).await;
        let attacker = UdpSocket::bind(ANY).unwrap();
        for _ in 0..5 {
            for packet in &first {
                attacker.send_to(packet, addr).unwrap();
            }
        }
        let (stream, _) = within(5, "the packets open a session", listener.accept()).await.unwrap();
        let count = first.len() as u64;
        until(5, "the replays are dropped", || listener.endpoint_stats().dropped.replayed == 4 * count).await;
        assert_eq!(stream.stats().udp.replayed, 4 * count, "{kind}");
        assert_eq!(stream.stats().segments.duplicates, 0, "{kind}: none reached the segments");
    }
}

/// The same cipher and key as others, but not the same object.
fn with_own_key() -> KcpConfig {
    config(CipherKind::Aes128Gcm)
}

/// Two streams of one endpoint to one peer share a cipher; to two peers they need not.
#[tokio::test]
async fn an_endpoint_has_one_cipher_a_peer() {
    let (one, other) = (config(CipherKind::Aes128Gcm), config(CipherKind::ChaCha20Poly1305));
    let (listener, elsewhere) = (listen_with(one.clone()).await, listen_with(other.clone()).await);
    let clear = listen_with(KcpConfig::default()).await;
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let open = |listener: &KcpListener, config: &KcpConfig| {
        endpoint.connect(listener.local_addr().unwrap(), config.clone()).unwrap()
    };
    let (mut a, mut a_server) = accept_session(&listener, open(&listener, &one)).await;
    let (mut b, mut b_server) = accept_session(&elsewhere, open(&elsewhere, &other)).await;
    let (mut c, mut c_server) = accept_session(&clear, open(&clear, &KcpConfig::default())).await;
    let (mut d, mut d_server) = accept_session(&listener, open(&listener, &one)).await;
    for config in [other, KcpConfig::default(), with_own_key()] {
        let mut wrong = open(&listener, &config);
        let outcome = within(5, "a stream with another cipher fails", wrong.read_u8()).await;
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_alive(&mut a, &mut a_server).await;
    assert_alive(&mut b, &mut b_server).await;
    assert_alive(&mut c, &mut c_server).await;
    assert_alive(&mut d, &mut d_server).await;
    // Once they are gone, another cipher may come.
    drop((a, d));
    until(5, "they are gone", || endpoint.endpoint_stats().state.sessions == 2).await;
    let mut late = open(&listener, &with_own_key());
    late.write_all(b"!").await.unwrap();
    let (_server, _) = within(5, "the new cipher's session opens", listener.accept()).await.unwrap();
    late.connected(Duration::from_secs(5)).await.unwrap();
}

/// A cipher of the application's own: one byte of checksum, and no more than some packets.
#[derive(Debug)]
struct Sum {
    limit: u64,
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(1, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte))
}

impl PacketCipher for Sum {
    fn header_len(&self) -> usize {
        5
    }

    fn trailer_len(&self) -> usize {
        1
    }

    fn nonce_len(&self) -> usize {
        5
    }

    fn nonce_limit(&self) -> Option<u64> {
        Some(self.limit)
    }

    fn seal(&self, packet: &mut [u8]) -> Result<(), SealError> {
        let (last, rest) = packet.split_last_mut().ok_or(SealError::TooShort)?;
        *last = sum(rest);
        Ok(())
    }

    fn open(&self, packet: &mut [u8]) -> Result<(), OpenError> {
        if packet.len() < 6 {
            return Err(OpenError::TooShort);
        }
        let (last, rest) = packet.split_last_mut().ok_or(OpenError::TooShort)?;
        if *last == sum(rest) { Ok(()) } else { Err(OpenError::BadChecksum) }
    }
}

fn sum_config(limit: u64) -> KcpConfig {
    let cipher: Arc<dyn PacketCipher> = Arc::new(Sum { limit });
    short_timeouts().crypto(PacketCrypto::with_os_nonces(cipher).unwrap()).build().unwrap()
}

#[tokio::test]
async fn a_users_own_cipher_carries_a_stream() {
    let config = sum_config(u64::MAX);
    let server = EchoServer::over(listen_with(config.clone()).await);
    let stream = KcpStream::connect(server.addr, config).await.unwrap();
    within(10, "an echo", echo_payload(stream, 1_000_000)).await.unwrap();
}

#[tokio::test]
async fn a_session_ends_before_its_nonces_run_out() {
    let pair = pair_with(sum_config(20)).await;
    let (mut client, _server, _listener) = (pair.client, pair.server, pair.listener);
    let outcome = within(5, "writing fails", async {
        loop {
            if let Err(error) = client.write_all(&[0; 10_000]).await {
                return error;
            }
        }
    });
    let error = outcome.await;
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
    assert!(client.stats().udp.packets_sent <= 20, "{:?}", client.stats());
    assert_eq!(client.read_u8().await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
}
