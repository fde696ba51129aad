//! The packet ciphers: what one costs with kcp-go's framing, and what the framings cost without a cipher.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use kcp9::crypto::{CipherKind, Framing, Key, PacketCipher};

/// Bytes of a packet.
pub(crate) const LEN: usize = 1_400;
/// Packets of a batch.
pub(crate) const BATCH: usize = 16;

/// A group for each cipher, by its name, and one for each framing without a cipher, as `framing-...`.
pub(crate) fn benches(criterion: &mut Criterion) {
    for kind in CipherKind::all().filter(|kind| !kind.is_aead()) {
        let key = Key::from_bytes(&vec![7; kind.key_len()]);
        // A cipher that is not built in is left out.
        if let Ok(cipher) = kind.build(&key, Framing::KcpGo) {
            measure(criterion, kind.name(), &*cipher);
        }
    }
    for framing in [Framing::KcpGo, Framing::Highway] {
        if let Ok(cipher) = CipherKind::None.build(&Key::from_bytes(&[7; 32]), framing) {
            measure(criterion, &format!("framing-{framing:?}"), &*cipher);
        }
    }
}

fn measure(criterion: &mut Criterion, name: &str, cipher: &dyn PacketCipher) {
    let mut group = criterion.benchmark_group(name);
    let mut packet = vec![0; LEN];
    group.throughput(Throughput::Bytes(LEN as u64));
    // The same packet is sealed again and again, and opens to garbage. That changes nothing about the time.
    group.bench_function("seal", |bencher| bencher.iter(|| cipher.seal(black_box(&mut packet))));
    group.bench_function("open", |bencher| bencher.iter(|| cipher.open(black_box(&mut packet))));

    let mut packets = vec![0; BATCH * LEN];
    let mut outcomes = [Ok(()); BATCH];
    group.throughput(Throughput::Bytes((BATCH * LEN) as u64));
    group.bench_function("seal_batch", |bencher| {
        bencher.iter(|| cipher.seal_batch(black_box(&mut packets), LEN));
    });
    group.bench_function("open_batch", |bencher| {
        bencher.iter(|| cipher.open_batch(black_box(&mut packets), LEN, &mut outcomes));
    });
    group.finish();
}
