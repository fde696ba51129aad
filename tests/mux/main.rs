//! Many streams in one: sessions without I/O joined by a byte pipe, and over real transports.
#![cfg(feature = "mux")]
#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod cores;
mod hostile;
mod sessions;
mod transports;
