//! Handshakes and sealed packets by their public interface: what does not match, every bit of each message, and whole handshakes over
//! a network that an attacker has in hand, on virtual time. A failure of a random test prints its seed.

mod beside;
mod bits;
mod downgrade;
mod early;
mod ends;
mod epochs;
mod flipped;
mod intruders;
mod mismatches;
mod network;
mod resets;
mod restarts;
mod round_trips;
mod routes;
#[cfg(feature = "tokio")]
mod shared_sockets;
#[cfg(feature = "tokio")]
mod streams;
mod virtual_ends;
mod virtual_time;
