//! Packet encryption through its public interface.

#[cfg(all(feature = "kcptun-ciphers", feature = "highway"))]
mod packet;
