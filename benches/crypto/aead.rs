//! Packets of 1,400 bytes sealed and opened, by kind and by library; `go-aead` does the same in Go.
//!
//! `built` is what [`CipherKind::build`] gives: this crate's where the processor has AVX-512 and VAES, else ring's with
//! the feature `ring`, else RustCrypto's, as `rust-crypto` always is.

use std::{hint::black_box, sync::Arc};

use aes_gcm::{AesGcm, aead::consts::U12, aes};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, XChaCha20Poly1305};
use criterion::{BatchSize, Criterion, Throughput};
use kcp9::crypto::{Aead, CipherKind, Framing, Key, PacketCipher};

const PACKET_LEN: usize = 1_400;

fn built(kind: CipherKind) -> Arc<dyn PacketCipher> {
    kind.build(&Key::from_bytes(&vec![1; kind.key_len()]), Framing::KcpGo).expect("a key of its length")
}

fn rust_crypto(kind: CipherKind) -> Arc<dyn PacketCipher> {
    match kind {
        CipherKind::Aes128Gcm => Arc::new(Aead::new(AesGcm::<aes::Aes128, U12>::new(&[1; 16].into()))),
        CipherKind::Aes192Gcm => Arc::new(Aead::new(AesGcm::<aes::Aes192, U12>::new(&[1; 24].into()))),
        CipherKind::Aes256Gcm => Arc::new(Aead::new(AesGcm::<aes::Aes256, U12>::new(&[1; 32].into()))),
        CipherKind::ChaCha20Poly1305 => Arc::new(Aead::new(ChaCha20Poly1305::new(&[1; 32].into()))),
        _ => Arc::new(Aead::new(XChaCha20Poly1305::new(&[1; 32].into()))),
    }
}

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("aead");
    group.throughput(Throughput::Bytes(PACKET_LEN as u64));
    for kind in CipherKind::all().filter(|kind| kind.is_aead()) {
        for (library, cipher) in [("built", built(kind)), ("rust-crypto", rust_crypto(kind))] {
            let mut packet = [7; PACKET_LEN];
            group.bench_function(format!("seal/{kind}/{library}"), |b| {
                b.iter(|| cipher.seal(black_box(&mut packet)));
            });
            cipher.seal(&mut packet).expect("long enough");
            group.bench_function(format!("open/{kind}/{library}"), |b| {
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
