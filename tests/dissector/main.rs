//! The Wireshark dissector of `docs/wireshark`: what tshark says with it of captures, compared with what is in them.
//!
//! * [`live`]: two ends of this crate through a relay that loses packets and writes down all of them, and which were lost. What
//!   tshark makes of the capture is compared segment by segment with what [`expected`] computes of the same packets, and the sums
//!   with the statistics of both ends.
//! * [`vectors`]: a small capture made from the known answers of `tests/vectors`, which is committed; what tshark shows of it is a
//!   snapshot.
//! * [`scenes`]: a few packets each, for what live sessions seldom do.
//! * [`agreement`]: the same of key agreement, and of the packets that are sealed after it. `sealed`: live sessions of this kind.
//! * [`hostile`]: random bytes, damaged and cut packets.
//!
//! Nothing of it may make an error in Lua, and a second pass over a capture says what the first one said.
//!
//! ```text
//! cargo test --test dissector -- --ignored
//! ```
//!
//! The tests are ignored by default: they need tshark, Debian's package of that name. Without it they fail.
#![cfg(feature = "tokio")]
#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod agreement;
mod capture;
mod expected;
mod hostile;
mod live;
mod scenes;
#[cfg(feature = "noise")]
mod sealed;
mod tshark;
mod vectors;
