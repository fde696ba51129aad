//! Nonces of a packet cipher (16 bytes), an AEAD (12) and XChaCha20 (24).

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, Throughput};
use kcp9::crypto::{NonceSource, OsNonces};

pub(crate) fn benches(c: &mut Criterion) {
    let source: Arc<dyn NonceSource> = Arc::new(OsNonces::new().expect("randomness"));
    let mut group = c.benchmark_group("nonce");
    group.throughput(Throughput::Elements(1));
    for len in [12, 16, 24] {
        let mut nonce = vec![0; len];
        group.bench_function(format!("{len}_bytes"), |b| b.iter(|| source.fill(black_box(&mut nonce))));
    }
    group.finish();
}
