//! What one sees when something is set up wrong or goes wrong: the cases of `docs/troubleshooting.md`, each by the name of its row.
//!
//! Every case is provoked over loopback. A test asserts the error, the time within which it comes, and the counter that tells it
//! from the others; a counter that the page says stays at zero is asserted to.
#![cfg(feature = "tokio")]
#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod fec;
#[cfg(all(feature = "noise", feature = "kcptun-ciphers", feature = "aead", feature = "highway"))]
mod key_agreement;
#[cfg(all(feature = "kcptun-ciphers", feature = "aead", feature = "highway"))]
mod keys;
mod limits;
mod path;
mod peers;
mod streams;
mod support;
#[cfg(all(
    feature = "tracing",
    feature = "noise",
    feature = "kcptun-ciphers",
    feature = "aead",
    feature = "highway"
))]
mod warnings;
