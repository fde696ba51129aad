//! The configurations that are measured.

#[cfg(all(feature = "kcptun-ciphers", feature = "aead"))]
use kcp9::crypto::{CipherKind, Framing, Key, PacketCrypto};
use kcp9::{KcpConfig, KcpConfigBuilder};

/// Segments: two writes of 64 KiB, so that many rounds take little time.
const WINDOW: u32 = 96;
/// Packets. The replay window grows until it is full, which takes long where packets carry only acknowledgements.
const REPLAY_WINDOW: usize = 64;

/// Names and configurations: without and with FEC, in the clear and, where there are ciphers, encrypted.
pub(crate) fn all() -> Vec<(String, KcpConfig)> {
    #[cfg_attr(
        not(all(feature = "kcptun-ciphers", feature = "aead")),
        expect(unused_mut, reason = "there are no others")
    )]
    let mut ciphers = vec![("plain", builder())];
    #[cfg(all(feature = "kcptun-ciphers", feature = "aead"))]
    ciphers.extend([
        ("AES-128-GCM", encrypted(CipherKind::Aes128Gcm)),
        ("Salsa20", encrypted(CipherKind::Salsa20)),
    ]);
    let with_fec = |(name, builder): (&str, KcpConfigBuilder)| {
        let named = |name: String, builder: KcpConfigBuilder| (name, builder.build().unwrap());
        [named(name.to_owned(), builder.clone()), named(format!("{name}, FEC 10/3"), builder.fec(10, 3))]
    };
    let defaults = ("defaults".to_owned(), KcpConfig::default());
    [defaults].into_iter().chain(ciphers.into_iter().flat_map(with_fec)).collect()
}

/// The default, encrypted with AES-128-GCM, and so with replay windows.
#[cfg(all(feature = "kcptun-ciphers", feature = "aead"))]
pub(crate) fn sealed() -> KcpConfig {
    with_cipher(KcpConfig::builder(), CipherKind::Aes128Gcm).build().unwrap()
}

fn builder() -> KcpConfigBuilder {
    KcpConfig::builder().send_window(WINDOW).recv_window(WINDOW).replay_window(REPLAY_WINDOW)
}

#[cfg(all(feature = "kcptun-ciphers", feature = "aead"))]
fn encrypted(kind: CipherKind) -> KcpConfigBuilder {
    with_cipher(builder(), kind)
}

#[cfg(all(feature = "kcptun-ciphers", feature = "aead"))]
fn with_cipher(builder: KcpConfigBuilder, kind: CipherKind) -> KcpConfigBuilder {
    let key = Key::from_bytes(&[7; 32][..kind.key_len()]);
    let cipher = kind.build(&key, Framing::KcpGo).unwrap();
    builder.crypto(PacketCrypto::with_os_nonces(cipher).unwrap())
}
