//! What forward error correction costs and gains, on virtual time: the same numbers every run.
//!
//! ```sh
//! cargo run --release --manifest-path benches/fec_latency/Cargo.toml
//! ```
//!
//! Messages of 200 bytes, 50 a second, three runs of 200 s, over a path with a round trip of 100 ms that loses 0, 5, 10 or
//! 20 % each way: how long each takes from `send` to the peer's `recv`. And bulk: what the default settings get through in
//! two minutes on 16 Mbit/s. Writes `results/fec_latency.md` and `results/fec_latency.svg`.

mod measure;
mod plot;
mod table;

use std::{fs, io, path::Path};

use self::measure::{Mode, Outcome};

/// Losses each way, in percent.
const LOSSES: [u32; 4] = [0, 5, 10, 20];

fn main() -> io::Result<()> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let mut outcomes: Vec<Outcome> = Vec::new();
    for loss in LOSSES {
        for mode in Mode::ALL {
            let outcome = measure::measure(mode, loss);
            eprintln!("{}", table::row(&outcome));
            outcomes.push(outcome);
        }
    }
    let table = table::table(&outcomes);
    print!("{table}");
    fs::write(results.join("fec_latency.md"), table)?;
    plot::draw(&results.join("fec_latency.svg"), &outcomes).map_err(io::Error::other)
}
