//! Packet encryption and nonces: packets of 1,400 bytes, one thread.
//!
//! With `--table` it prints a line for each cipher, in a few seconds and without statistics: its name, and MB/s of sealing,
//! opening, sealing a batch and opening a batch. AEADs have a line for each provider. `compare.sh` adds kcp-go's figures.

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
