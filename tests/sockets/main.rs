//! The Tokio layer over real loopback sockets: what its documentation promises, and what it does when things go wrong.
//!
//! Nothing here may hang: every wait has a limit, and a test that meets it says what it waited for. What takes a
//! minute is ignored by default; its reason holds the command that runs it.
#![cfg(feature = "tokio")]
#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod backpressure;
mod beginnings;
mod cancellation;
mod churn;
#[cfg(all(feature = "kcptun-ciphers", feature = "aead", feature = "highway"))]
mod crypto;
mod datagrams;
mod dead_peers;
mod drops;
mod echo;
#[cfg(target_os = "linux")]
mod ecn;
mod endings;
mod endpoints;
mod ends;
mod fec;
// Where the system tells that it drops packets.
#[cfg(all(target_os = "linux", feature = "kcptun-ciphers"))]
mod floods;
mod handles;
mod hellos;
mod idle;
mod listener;
mod memory;
mod messages;
mod moves;
mod mtu;
#[cfg(all(feature = "kcptun-ciphers", feature = "aead", feature = "highway"))]
mod noise;
mod options;
mod pauses;
mod public_port;
mod readiness;
mod rebinds;
mod records;
mod relaying;
mod restarts;
mod rotations;
mod runtimes;
mod sessions;
mod settings;
#[cfg(all(target_os = "linux", feature = "kcptun-ciphers", feature = "aead", feature = "highway"))]
mod shards;
mod shutdown;
#[cfg(target_os = "linux")]
mod storms;
mod support;
