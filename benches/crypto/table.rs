//! A quick table, measured as `go/main.go` and `go-aead/main.go` measure kcp-go.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use kcp9::crypto::{CipherKind, Framing, Key, PacketCipher};

use crate::{
    aead,
    packet::{BATCH, LEN},
};

/// A figure is the best of many short measurements, since a disturbance of the machine only ever makes one slower.
const ROUNDS: usize = 40;
const DURATION: Duration = Duration::from_millis(2);
/// Time between two looks at the clock: so long that a look, some 50 ns, does not show.
const CLOCK_EVERY: Duration = Duration::from_micros(10);

/// Prints the table.
pub(crate) fn print() {
    for kind in CipherKind::all() {
        if kind.is_aead() {
            aead::providers(kind).iter().for_each(|(provider, cipher)| print_aead(kind, provider, &**cipher));
            continue;
        }
        let Ok(cipher) = kind.build(&Key::from_bytes(&vec![7; kind.key_len()]), Framing::KcpGo) else {
            continue;
        };
        let (mut packets, mut outcomes) = (vec![0; BATCH * LEN], [Ok(()); BATCH]);
        let rates = [
            rate(LEN, || _ = black_box(cipher.seal(&mut packets[..LEN]))),
            rate(LEN, || _ = black_box(cipher.open(&mut packets[..LEN]))),
            rate(BATCH * LEN, || _ = black_box(cipher.seal_batch(&mut packets, LEN))),
            rate(BATCH * LEN, || cipher.open_batch(&mut packets, LEN, &mut outcomes)),
        ];
        println!("{kind} {:.1} {:.1} {:.1} {:.1}", rates[0], rates[1], rates[2], rates[3]);
    }
}

/// An AEAD may stop early at a packet that is not genuine. So sealed packets are copied each time before they are opened, and
/// the time of the copy is subtracted.
fn print_aead(kind: CipherKind, provider: &str, cipher: &dyn PacketCipher) {
    let (mut packets, mut outcomes) = (vec![0; BATCH * LEN], [Ok(()); BATCH]);
    let seal = rate(LEN, || _ = black_box(cipher.seal(&mut packets[..LEN])));
    let seal_batch = rate(BATCH * LEN, || _ = black_box(cipher.seal_batch(&mut packets, LEN)));
    let sealed = packets.clone();
    let [open, open_batch] = [LEN, BATCH * LEN].map(|bytes| {
        let copy = rate(bytes, || black_box(&mut packets)[..bytes].copy_from_slice(&sealed[..bytes]));
        let both = rate(bytes, || {
            packets[..bytes].copy_from_slice(&sealed[..bytes]);
            cipher.open_batch(&mut packets[..bytes], LEN, &mut outcomes);
            assert!(outcomes[..bytes / LEN].iter().all(Result::is_ok));
        });
        1.0 / (1.0 / both - 1.0 / copy)
    });
    println!("{kind}/{provider} {seal:.1} {open:.1} {seal_batch:.1} {open_batch:.1}");
}

/// MB/s of what handles `bytes` at a time.
fn rate(bytes: usize, mut call: impl FnMut()) -> f64 {
    let first = Instant::now();
    call();
    let calls = (CLOCK_EVERY.as_nanos() / first.elapsed().as_nanos().max(1)).max(1) as usize;
    let mut best = 0.0_f64;
    for _ in 0..ROUNDS {
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < DURATION {
            (0..calls).for_each(|_| call());
            count += calls * bytes;
        }
        best = best.max(count as f64 / 1e6 / start.elapsed().as_secs_f64());
    }
    best
}
