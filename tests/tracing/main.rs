//! What kcp9 says through `tracing`, against the table in `docs/tracing.md` and against the counters.
//!
//! `cargo test -p kcp9-tests --features tracing --test tracing`
#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod agreements;
mod cost;
mod drops;
mod endings;
mod live;
mod mux;
mod nonces;
mod path;
mod secrets;
mod simulated;
mod table;

use std::time::Duration;

use kcp9_tests::collector::Recorded;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The events of a name.
fn named<'a>(events: &'a [Recorded], name: &str) -> Vec<&'a Recorded> {
    events.iter().filter(|event| event.name == name).collect()
}

/// How many events of a name have this value in a field.
fn count(events: &[Recorded], name: &str, field: &str, value: &str) -> u64 {
    named(events, name).iter().filter(|event| event.field(field) == value).count() as u64
}

/// The sum of a field over the events of a name.
fn sum(events: &[Recorded], name: &str, field: &str) -> u64 {
    named(events, name).iter().map(|event| event.number(field)).sum()
}
