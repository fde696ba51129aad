//! Packet encryption and nonces: packets of 1,400 bytes, one thread.
//!
//! With `--table` it prints, in a few seconds and without statistics, a line for each cipher: its name and MB/s
//! of sealing, opening, sealing a batch and opening a batch. `compare.sh` sets kcp-go's beside them.

mod aead;
mod nonce;
mod packet;
mod table;

use criterion::Criterion;

fn main() {
    if std::env::args().any(|argument| argument == "--table") {
        return table::print();
    }
    let mut criterion = Criterion::default().configure_from_args();
    packet::benches(&mut criterion);
    aead::benches(&mut criterion);
    nonce::benches(&mut criterion);
    criterion.final_summary();
}
