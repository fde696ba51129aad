//! Reliable streams over UDP.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod proto;

pub use proto::{ConfigError, KcpConfig, KcpConfigBuilder, NoDelay, Stats};
