//! A session in steady state allocates nothing, whatever protects its packets: the core by itself, and over sockets. A flood of FEC
//! packets makes it allocate no more than is said, and an idle session holds no more. What has ended is freed at once, and what is
//! received is lent. What many sessions hold together is no more than the memory that they share. Streams in one session take little.
//!
//! Only the allocations of the measuring thread are counted, so both ends run in that thread, over sockets as well.

mod core;
mod endpoint;
#[cfg(feature = "tokio")]
mod ends;
mod flood;
#[cfg(feature = "tokio")]
mod idle;
mod lent;
mod memory;
#[cfg(feature = "mux")]
mod mux;
#[cfg(feature = "noise")]
mod noise;
mod settings;
#[cfg(feature = "tokio")]
mod sockets;
