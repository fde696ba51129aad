//! A session in steady state allocates nothing, whatever protects its packets: the core by itself, and over sockets.
//!
//! Only the allocations of the measuring thread are counted, so both ends run in that thread, over sockets as well.

mod core;
mod endpoint;
mod settings;
#[cfg(feature = "tokio")]
mod sockets;
