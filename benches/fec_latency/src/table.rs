//! The results as a Markdown table.

use std::fmt::Write as _;

use crate::measure::Outcome;

const HEAD: &str = "\
200-byte messages, 50 a second, preset `fast3`, 22,500 of them; bulk with the default settings on 16 Mbit/s behind a queue of
200 kB. Round trip 100 ms, losses each way, flush after 10 ms. Virtual time, the same every run; the first 50 s of messages
and 20 s of bulk are not counted. Sent: bytes of packets per byte of payload. Made by
`cargo run --release --manifest-path benches/fec_latency/Cargo.toml`.

| loss | FEC | p50 | p99 | p99.9 | max | sent | packets per message | bulk | sent | resent |
|-----:|-----|----:|----:|------:|----:|-----:|----------------------:|-----:|-----:|-------:|
";

pub fn table(outcomes: &[Outcome]) -> String {
    let mut table = String::from(HEAD);
    for outcome in outcomes {
        table += &row(outcome);
        table.push('\n');
    }
    table
}

pub fn row(outcome: &Outcome) -> String {
    let mut row = format!("| {} % | {} |", outcome.loss, outcome.mode.name());
    for per_mille in [500, 990, 999, 1_000] {
        write!(row, " {} ms |", outcome.percentile(per_mille).as_millis()).expect("a string takes all");
    }
    write!(
        row,
        " {:.2} | {:.2} | {:.0} kB/s | {:.2} | {:.1} % |",
        outcome.message_cost,
        outcome.packets,
        outcome.goodput / 1e3,
        outcome.bulk_cost,
        outcome.bulk_resent
    )
    .expect("a string takes all");
    row
}
