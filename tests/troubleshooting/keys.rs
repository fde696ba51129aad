//! Keys, ciphers and framings that differ. The client sees the same each time, and the server's counters tell which it is.

use std::{io::ErrorKind, time::Duration};

use kcp9::{
    DropStats, KcpConfig, KcpError,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::CloseReason,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{assert_dead_timeout, connect, failure, impatient, listen, ms};

pub(super) const KEY: &[u8; 32] = b"0123456789abcdefFEDCBA9876543210";
pub(super) const OTHER_KEY: &[u8; 32] = b"0123456789abcdefFEDCBA9876543211";

pub(super) fn with_key(kind: CipherKind, framing: Framing, key: &[u8; 32]) -> KcpConfig {
    let cipher = kind.build(&Key::from_bytes(&key[..kind.key_len()]), framing).unwrap();
    impatient().crypto(PacketCrypto::with_os_nonces(cipher).unwrap()).build().unwrap()
}

pub(super) fn with(kind: CipherKind) -> KcpConfig {
    with_key(kind, Framing::KcpGo, KEY)
}

pub(super) fn clear() -> KcpConfig {
    impatient().build().unwrap()
}

/// A client that its server cannot understand: `connected` has no answer, what was written is taken and then the session ends. Returns
/// what the server dropped.
pub(super) async fn assert_not_understood(server: KcpConfig, client: KcpConfig) -> DropStats {
    let listener = listen(server).await;
    let mut stream = connect(&listener, client).await;
    let (kind, reason, took) = failure(5, "nobody answers", stream.connected(ms(300))).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::NoAnswer)));
    assert!(took >= ms(290), "after {took:?} already");

    stream.write_all(&[7; 3_000]).await.expect("a write waits in the queue and is no failure");
    let (kind, reason, _) = failure(5, "the read ends", stream.read_u8()).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::Closed(CloseReason::DeadLink))));

    let seen = stream.endpoint_stats();
    assert!(seen.socket.packets_sent >= 3, "{seen:?}");
    assert_eq!(seen.socket.packets_received, 0, "nothing comes back: {seen:?}");
    let stats = listener.endpoint_stats();
    assert_eq!((stats.driver.accepted, stats.state.sessions), (0, 0), "{stats:?}");
    assert!(stats.socket.packets_received >= 3, "the packets do arrive: {stats:?}");
    stats.dropped
}

fn only_bad_tags(dropped: &DropStats) -> bool {
    dropped.bad_tag >= 3 && dropped.bad_checksum == 0 && dropped.no_session == 0
}

fn only_bad_checksums(dropped: &DropStats) -> bool {
    dropped.bad_checksum >= 3 && dropped.bad_tag == 0 && dropped.no_session == 0
}

#[tokio::test]
async fn wrong_key() {
    let wrong = |kind, framing| {
        assert_not_understood(with_key(kind, framing, KEY), with_key(kind, framing, OTHER_KEY))
    };
    let (aead, packet, highway) = tokio::join!(
        wrong(CipherKind::Aes256Gcm, Framing::KcpGo),
        wrong(CipherKind::Aes256, Framing::KcpGo),
        wrong(CipherKind::Aes256, Framing::Highway),
    );
    assert!(only_bad_tags(&aead), "{aead:?}");
    assert!(only_bad_checksums(&packet), "{packet:?}");
    assert!(only_bad_tags(&highway), "{highway:?}");
}

/// What counts is the server's own cipher, not that of the client.
#[tokio::test]
async fn wrong_cipher() {
    let (aeads, to_aead, to_packet, packets) = tokio::join!(
        assert_not_understood(with(CipherKind::Aes256Gcm), with(CipherKind::ChaCha20Poly1305)),
        assert_not_understood(with(CipherKind::Aes256Gcm), with(CipherKind::Aes256)),
        assert_not_understood(with(CipherKind::Aes256), with(CipherKind::Aes256Gcm)),
        assert_not_understood(with(CipherKind::Aes256), with(CipherKind::Salsa20)),
    );
    for dropped in [aeads, to_aead] {
        assert!(only_bad_tags(&dropped), "{dropped:?}");
    }
    for dropped in [to_packet, packets] {
        assert!(only_bad_checksums(&dropped), "{dropped:?}");
    }
}

#[tokio::test]
async fn wrong_framing() {
    let cipher = |framing| with_key(CipherKind::Aes256, framing, KEY);
    let (highway, kcp_go) = tokio::join!(
        assert_not_understood(cipher(Framing::Highway), cipher(Framing::KcpGo)),
        assert_not_understood(cipher(Framing::KcpGo), cipher(Framing::Highway)),
    );
    assert!(only_bad_tags(&highway), "{highway:?}");
    assert!(only_bad_checksums(&kcp_go), "{kcp_go:?}");
}

#[tokio::test]
async fn only_the_server_encrypts() {
    let (aead, packet) = tokio::join!(
        assert_not_understood(with(CipherKind::Aes256Gcm), clear()),
        assert_not_understood(with(CipherKind::Aes256), clear()),
    );
    assert!(only_bad_tags(&aead), "{aead:?}");
    assert!(only_bad_checksums(&packet), "{packet:?}");
}

/// Encrypted packets are noise to a server without a cipher: they begin nothing.
#[tokio::test]
async fn only_the_client_encrypts() {
    for kind in [CipherKind::Aes256Gcm, CipherKind::Aes256] {
        let dropped = assert_not_understood(clear(), with(kind)).await;
        assert!(dropped.no_session >= 3, "{kind}: {dropped:?}");
        assert_eq!((dropped.bad_tag, dropped.bad_checksum), (0, 0), "{kind}: {dropped:?}");
    }
}

/// The wait of a client that does not ask for an answer first: its first write begins it.
#[tokio::test]
async fn a_write_without_an_answer_ends_after_the_dead_timeout() {
    let listener = listen(with(CipherKind::Aes256Gcm)).await;
    let mut stream = connect(&listener, clear()).await;
    stream.write_all(b"hello").await.unwrap();
    let (kind, reason, took) = failure(5, "the read ends", stream.read_u8()).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::Closed(CloseReason::DeadLink))));
    assert_dead_timeout(took);
    assert_eq!(KcpConfig::default().dead_timeout(), Duration::from_secs(30));
}
