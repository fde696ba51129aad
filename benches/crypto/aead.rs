//! AEADs: packets sealed and opened, for each kind by each provider. `go-aead` does the same in Go.

use std::{hint::black_box, sync::Arc};

use aes_gcm::{AesGcm, aead::consts::U12, aes};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, XChaCha20Poly1305};
use criterion::{BatchSize, Criterion, Throughput};
use kcp9::crypto::{Aead, CipherKind, Framing, Key, PacketCipher};

use crate::packet::LEN;

/// The ciphers of `kind` by the names of their providers: what [`CipherKind::build`] gives, which is ring's with the feature
/// `ring`, and RustCrypto's.
pub(crate) fn providers(kind: CipherKind) -> Vec<(&'static str, Arc<dyn PacketCipher>)> {
    let rust_crypto: Arc<dyn PacketCipher> = match kind {
        CipherKind::Aes128Gcm => Arc::new(Aead::new(AesGcm::<aes::Aes128, U12>::new(&[1; 16].into()))),
        CipherKind::Aes192Gcm => Arc::new(Aead::new(AesGcm::<aes::Aes192, U12>::new(&[1; 24].into()))),
        CipherKind::Aes256Gcm => Arc::new(Aead::new(AesGcm::<aes::Aes256, U12>::new(&[1; 32].into()))),
        CipherKind::ChaCha20Poly1305 => Arc::new(Aead::new(ChaCha20Poly1305::new(&[1; 32].into()))),
        _ => Arc::new(Aead::new(XChaCha20Poly1305::new(&[1; 32].into()))),
    };
    let mut providers = vec![("rust-crypto", rust_crypto)];
    if cfg!(feature = "ring") && kind != CipherKind::Aes192Gcm {
        let key = Key::from_bytes(&vec![1; kind.key_len()]);
        providers.insert(0, ("ring", kind.build(&key, Framing::KcpGo).expect("a key of its length")));
    }
    providers
}

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("aead");
    group.throughput(Throughput::Bytes(LEN as u64));
    for kind in CipherKind::all().filter(|kind| kind.is_aead()) {
        for (provider, cipher) in providers(kind) {
            let mut packet = [7; LEN];
            group.bench_function(format!("seal/{kind}/{provider}"), |b| {
                b.iter(|| cipher.seal(black_box(&mut packet)));
            });
            cipher.seal(&mut packet).expect("long enough");
            group.bench_function(format!("open/{kind}/{provider}"), |b| {
                b.iter_batched_ref(
                    || packet,
                    |packet| cipher.open(packet).expect("sealed above"),
                    BatchSize::SmallInput,
                );
            });
        }
    }
    group.finish();
}
