//! A listener's key is replaced while its sessions live.

use std::{io::ErrorKind, time::Duration};

use kcp9::{
    KcpConfig, KcpEndpoint, KcpError, KcpListener, KcpStream,
    crypto::{CipherKind, Framing, PacketCrypto},
    proto::{AbortReason, CloseReason, Extensions},
};
use kcp9_relay::Relay;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    crypto::{KEY, crypto},
    support::{ANY, PAYLOAD, accept_session, assert_alive, listen, listen_with, ms, short_timeouts, within},
};

const NEW_KEY: &[u8; 32] = b"FEDCBA98765432100123456789abcdef";
const DAY: Duration = Duration::from_secs(24 * 3_600);

fn with_key(kind: CipherKind, key: &[u8; 32]) -> (KcpConfig, PacketCrypto) {
    let crypto = crypto(kind, Framing::KcpGo, key);
    (short_timeouts().crypto(crypto.clone()).build().unwrap(), crypto)
}

async fn begin(listener: &KcpListener, config: &KcpConfig) -> (KcpStream, KcpStream) {
    let client = KcpStream::connect(listener.local_addr().unwrap(), config.clone()).await.unwrap();
    accept_session(listener, client).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_live_as_long_as_their_keys() {
    for kind in [CipherKind::Aes256Gcm, CipherKind::ChaCha20Poly1305, CipherKind::Aes128] {
        let (old, _) = with_key(kind, KEY);
        let (new, new_crypto) = with_key(kind, NEW_KEY);
        let listener = listen_with(old.clone()).await;
        let (mut early, mut early_server) = begin(&listener, &old).await;
        listener.rotate_key(new_crypto.clone(), DAY).unwrap();
        assert_alive(&mut early, &mut early_server).await;
        let (mut late, mut late_server) = begin(&listener, &old).await;
        let (mut modern, mut modern_server) = begin(&listener, &new).await;
        for (client, server) in [
            (&mut early, &mut early_server),
            (&mut late, &mut late_server),
            (&mut modern, &mut modern_server),
        ] {
            assert_alive(client, server).await;
        }

        // To the same key: the one of before the first rotation ends at once.
        listener.rotate_key(new_crypto, Duration::MAX).unwrap();
        for (client, server) in [(&mut early, &mut early_server), (&mut late, &mut late_server)] {
            let error = within(5, "the server's end", server.read_u8()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
            assert_eq!(KcpError::find(&error), Some(KcpError::KeyRetired), "{kind}");
            let error = within(5, "the client's end", client.read_u8()).await.unwrap_err();
            let told = CloseReason::AbortedByPeer(AbortReason::KeyRetired);
            assert_eq!(KcpError::find(&error), Some(KcpError::Closed(told)), "{kind}");
        }
        assert_alive(&mut modern, &mut modern_server).await;
        assert_eq!(listener.endpoint_stats().state.sessions, 1, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_key_ends_by_itself() {
    let (old, _) = with_key(CipherKind::Aes128Gcm, KEY);
    let (new, new_crypto) = with_key(CipherKind::Aes128Gcm, NEW_KEY);
    let listener = listen_with(old.clone()).await;
    // This one is told nothing: it knows no extensions.
    let legacy = old.clone().to_builder().extensions(Extensions::Off).build().unwrap();
    let (_client, mut server) = begin(&listener, &legacy).await;
    listener.rotate_key(new_crypto, ms(200)).unwrap();
    let error = within(5, "the key's end", server.read_u8()).await.unwrap_err();
    assert_eq!(KcpError::find(&error), Some(KcpError::KeyRetired));
    // And begins nothing any more.
    let late = KcpStream::connect(listener.local_addr().unwrap(), old).await.unwrap();
    let error = within(5, "nobody answers", late.connected(ms(300))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let (mut modern, mut modern_server) = begin(&listener, &new).await;
    assert_alive(&mut modern, &mut modern_server).await;
}

#[tokio::test]
async fn a_key_that_cannot_take_the_place_of_another_is_refused() {
    let (old, _) = with_key(CipherKind::Aes128Gcm, KEY);
    let (_, new) = with_key(CipherKind::Aes128Gcm, NEW_KEY);
    let reason = |outcome: std::io::Result<()>| KcpError::find(&outcome.unwrap_err());
    let listener = listen_with(old).await;
    let other_kind = crypto(CipherKind::Aes128, Framing::KcpGo, NEW_KEY);
    assert_eq!(reason(listener.rotate_key(other_kind, DAY)), Some(KcpError::OtherKind));
    assert_eq!(reason(listen().await.rotate_key(new.clone(), DAY)), Some(KcpError::NoKey));
    let caller = KcpEndpoint::bind(ANY).await.unwrap();
    assert_eq!(reason(caller.rotate_key(new, DAY)), Some(KcpError::NoKey));
}

/// A user's program: it writes and reads on, whatever becomes of the keys, while a fifth of the packets is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_loses_nothing_of_a_stream_over_a_lossy_path() {
    let (old, _) = with_key(CipherKind::Aes256Gcm, KEY);
    let (new, new_crypto) = with_key(CipherKind::Aes256Gcm, NEW_KEY);
    let listener = listen_with(old.clone()).await;
    let relay = Relay::lossy(listener.local_addr().unwrap(), 0.2).unwrap();
    let begin = async |config: KcpConfig| {
        let client = KcpStream::connect(relay.addr(), config).await.unwrap();
        accept_session(&listener, client).await
    };
    let (mut client, mut server) = begin(old).await;
    let sent = PAYLOAD.bytes(0, 50_000);
    client.write_all(&sent[..25_000]).await.unwrap();
    listener.rotate_key(new_crypto, DAY).unwrap();
    client.write_all(&sent[25_000..]).await.unwrap();
    let (mut modern, mut modern_server) = begin(new).await;
    let mut received = vec![0; sent.len()];
    within(10, "what was written", server.read_exact(&mut received)).await.unwrap();
    assert!(received == sent);
    assert_alive(&mut modern, &mut modern_server).await;
    // The other end is gone without a word.
    relay.set_loss(1.0);
    client.write_all(b"?").await.unwrap();
    let error = within(10, "nobody is there", client.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}
