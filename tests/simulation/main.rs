//! Behaviour of two connections over bad paths, on virtual time; see [`kcp9_simulator`].

mod begin;
mod congestion;
mod datagrams;
mod death;
mod delivery;
#[cfg(all(feature = "kcptun-ciphers", feature = "aead", feature = "highway"))]
mod encryption;
mod end;
mod fec;
mod fec_adaptive;
mod goodput;
mod hostile;
mod lifetime;
mod memory;
#[cfg(all(feature = "kcptun-ciphers", feature = "aead", feature = "highway"))]
mod mtu;
mod outages;
mod ping;
mod resends;
mod restart;
mod settings;
mod snapshot;
mod throughput;
mod timers;
mod windows;
mod wrap;
