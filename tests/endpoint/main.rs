//! Many sessions behind one [`Endpoint`](kcp9::proto::Endpoint), on virtual time and without sockets: what begins a
//! session, floods, replays, takeovers, and whole transfers over bad paths. A failure of a random test prints its seed.

mod amplification;
mod beginnings;
#[cfg(feature = "aead")]
mod chaos;
#[cfg(feature = "aead")]
mod ciphers;
mod crowd;
#[cfg(feature = "aead")]
mod ends;
#[cfg(feature = "aead")]
mod hellos;
mod host;
mod messages;
#[cfg(feature = "aead")]
mod moves;
mod network;
mod openings;
#[cfg(feature = "aead")]
mod records;
#[cfg(feature = "aead")]
mod replays;
mod roles;
#[cfg(feature = "aead")]
mod rotations;
#[cfg(feature = "aead")]
mod shards;
mod shares;
#[cfg(feature = "aead")]
mod stateless;
mod takeovers;
