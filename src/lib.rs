//! Reliable streams over UDP.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[cfg(feature = "tokio")]
mod net;
pub mod proto;

#[cfg(feature = "tokio")]
pub use net::{
    EndpointStats, KcpEndpoint, KcpListener, KcpStream, OwnedReadHalf, OwnedWriteHalf, ReadHalf,
    ReuniteError, WriteHalf,
};
pub use proto::{ConfigError, KcpConfig, KcpConfigBuilder, NoDelay, Stats};
