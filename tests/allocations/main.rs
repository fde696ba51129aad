//! A session in steady state allocates nothing, whatever protects its packets: the core by itself, and over sockets. A flood of FEC
//! packets makes it allocate no more than is said. Nor does an idle session hold more.
//!
//! Only the allocations of the measuring thread are counted, so both ends run in that thread, over sockets as well.

mod core;
mod endpoint;
mod flood;
#[cfg(feature = "tokio")]
mod idle;
mod settings;
#[cfg(feature = "tokio")]
mod sockets;
