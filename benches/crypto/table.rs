//! A quick table, measured as `go/main.go` measures kcp-go.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use kcp9::crypto::{CipherKind, Framing, Key};

use crate::packet::{BATCH, LEN};

/// A measurement takes the best of some short ones: what disturbs a machine only ever makes it slower.
const ROUNDS: usize = 8;
const DURATION: Duration = Duration::from_millis(10);

/// Prints it.
pub(crate) fn print() {
    for kind in CipherKind::all().filter(|kind| !kind.is_aead()) {
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

/// MB/s of what handles `bytes` at a time.
fn rate(bytes: usize, mut call: impl FnMut()) -> f64 {
    let mut best = 0.0_f64;
    for _ in 0..ROUNDS {
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < DURATION {
            (0..10).for_each(|_| call());
            count += 10 * bytes;
        }
        best = best.max(count as f64 / 1e6 / start.elapsed().as_secs_f64());
    }
    best
}
