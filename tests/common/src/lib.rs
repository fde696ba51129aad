//! The simulator: two connections on virtual time, joined by a bad link. The simulation tests, the properties and some
//! benchmarks use it.
//!
//! Everything that happens in a run follows from its seed, so a failure is repeated by running that seed again; when a
//! test panics, the [`Simulation`] prints seed and time on its way out. Nothing sleeps: the clock jumps from one
//! event to the next, and an hour of a quiet session takes no time at all.
//!
//! * [`rng`]: the one source of randomness.
//! * [`nonces`]: nonces for ciphers, the same every run.
//! * [`payload`]: bytes that are a function of their position, so any piece of a stream can be checked by itself.
//! * [`link`]: one direction of a path; decides whether and when a packet arrives. `tests/relay` has it decide over real sockets.
//! * [`application`]: what writes and reads at an end: as fast as it can, paced, in messages, or not at all for a time.
//! * [`end`]: a connection with its application and the link it sends on. Keeps the calling order of
//!   [`Connection`](kcp9::proto::Connection) and checks what every caller relies on: the shape of a `Transmit`, deadlines
//!   that lie ahead, counters that only grow.
//! * [`simulation`]: the clock and the packets under way.
//! * [`crowd`]: several simulations on one clock, behind one bottleneck.
//! * [`batches!`]: tests over many seeds.
//! * [`trace`]: who sent what when, for comparing with traces worked out by hand.

pub mod application;
mod batches;
pub mod crowd;
pub mod end;
pub mod link;
pub mod nonces;
pub mod payload;
pub mod rng;
pub mod simulation;
pub mod trace;
mod transmitter;

pub use self::{
    application::{Reader, Writer},
    crowd::Crowd,
    end::End,
    link::{Burst, EcnPath, LinkSettings},
    nonces::Nonces,
    rng::Rng,
    simulation::{CLIENT, SERVER, Simulation},
    transmitter::Shape,
};

use std::time::Duration;

/// `millis` milliseconds.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
