//! Secure sessions: a handshake that agrees on keys, and packets that are sealed under them.
//!
//! A shared static key ([`crypto`](crate::crypto)) has limits: whoever learns it reads every recording, every holder of it can pass for
//! any other, and recorded first packets begin sessions again. Here two ends agree on keys for each session, by a handshake of the
//! [Noise Protocol Framework]. What they give, and from whom, is said in `docs/secure-sessions.md`, with every byte on the wire.
//!
//! * [`Initiator`], [`Responder`]: the two ends, with their keys. They make handshakes of two or three messages, one for each session.
//!   [`Pattern`] says which keys an end needs.
//! * [`SessionKeys`]: what comes of a handshake. It seals and opens the packets of one session. [`RouteKey`] tells of which session a
//!   packet is.
//! * [`KeyPair`], [`PublicKey`], [`Psk`], [`Trust`]: the keys, their text, and whose keys are trusted.
//! * [`NoiseError`]: what does not match, so that a user can be told. [`Refusal`] tells it to the peer's user.
//!
//! Nothing here does I/O, knows the time or has randomness: packets, [`Instant`](super::Instant)s and [`Random`](super::Random) come in
//! as arguments. This is for those who send packets themselves, on embedded devices too. Sessions of [`Connection`](super::Connection) and
//! of the Tokio layer take an [`Initiator`] or a [`Responder`] as [`Noise`], by
//! [`KcpConfigBuilder::noise`](super::KcpConfigBuilder::noise), and do the rest themselves.
//!
//! # Order of calls
//!
//! ```text
//! initiator                                     responder
//! Initiator::begin      -- message() -------->  Responder::answer
//! read_answer           <------- message -----
//!                       -- last_message ----->  read_last          (patterns of three messages)
//! SessionKeys::seal     -- packets ---------->  SessionKeys::open
//! SessionKeys::open     <------- packets -----  SessionKeys::seal
//! ```
//!
//! UDP loses, doubles, reorders and forges. The caller sends a message again until it has what it waits for, and answers a first message
//! that comes again by the same answer. A message or packet that is refused is forgotten: the true one may still come.
//!
//! How to tell messages from packets is left to the caller. A byte in front will do.
//!
//! ```
//! use kcp9::proto::{
//!     Instant, Random,
//!     noise::{AnswerNext, HEADER_LEN, Initiator, KeyPair, NoiseError, Responder, SessionKeys, TAG_LEN},
//! };
//!
//! struct Entropy;
//! impl Random for Entropy {
//!     fn fill(&mut self, bytes: &mut [u8]) {
//!         getrandom::fill(bytes).expect("randomness"); // A device has a generator of its own.
//!     }
//! }
//!
//! // Once: the server's key pair. Clients have its public key in a file.
//! let server_keys = KeyPair::generate(&mut Entropy);
//! let pinned = server_keys.public().to_string();
//!
//! let server = Responder::nk(server_keys);
//! let routes = server.route_key().clone(); // The client has the same one, from the answer on.
//! let client = Initiator::nk(pinned.parse().expect("the text of a key"));
//!
//! // A handshake. What is said beside its messages (here the name of a protocol) must be the same at both ends.
//! let mut handshake = client.begin(b"thermometer 1", &mut Entropy)?;
//! let answer = server.answer(handshake.message(), b"thermometer 1", b"", &mut Entropy)?;
//! let mut client: SessionKeys = handshake.read_answer(&answer.message, b"")?.session;
//! let AnswerNext::Session(mut server) = answer.next else { unreachable!("NK has two messages") };
//!
//! // Packets: header, payload and tag.
//! let now = Instant::from_millis(20); // Of a clock that goes on.
//! let mut packet = [0; HEADER_LEN + 5 + TAG_LEN];
//! packet[HEADER_LEN..][..5].copy_from_slice(b"21.5C");
//! client.seal(now, 7, &mut packet).expect("a packet with room for both");
//! let route = routes.route(&packet).expect("not too short");
//! assert_eq!(route, 7); // To find the session that it belongs to.
//!
//! let mut again = packet;
//! assert_eq!(server.open(now, route, &mut packet).expect("from the client"), b"21.5C");
//! assert!(server.open(now, route, &mut again).is_err(), "nothing opens twice");
//! # Ok::<(), NoiseError>(())
//! ```
//!
//! # What it is made of
//!
//! The handshake is the crate [snow]: a small state machine of the framework's patterns, without `unsafe` and without std, with its
//! own tests against the vectors of other implementations. No other kept crate has
//! all of these patterns. What it keeps itself, the shared key and the chaining key, it does not zero: a copy may stay in memory that
//! a handshake has freed. What it computes with is given to it by `resolver`, which says why.
//!
//! Packets are sealed by the AEADs of [`crypto`](crate::crypto): ring's where the feature `ring` is on, RustCrypto's elsewhere.
//! BLAKE2s makes keys of keys.
//!
//! ```text
//! handshake   the two ends, and the messages of the framework
//!   message   what is around them: version, pattern, cipher, hint
//!   resolver  the curve, cipher and hash for snow
//! session     packets: counters, phases, masks
//!   schedule  keys of each direction and epoch
//!   window    which counters were seen
//! route       what hides the routes of packets
//! reset       what tells a peer that its session is lost, keys and all
//! generator   what an end that accepts draws from
//! keys pattern error config
//! ```
//!
//! [Noise Protocol Framework]: https://noiseprotocol.org/noise.html
//! [snow]: https://docs.rs/snow

mod config;
mod error;
mod generator;
mod handshake;
mod keys;
mod message;
mod pattern;
mod reset;
mod resolver;
mod route;
mod schedule;
mod session;
#[cfg(test)]
mod tests;
mod window;

pub use self::{
    config::Noise,
    error::{NoiseError, NoiseFailure, OpenPacketError, Refusal, SealPacketError},
    handshake::{
        Answer, AnswerNext, Established, FirstMessage, Initiator, InitiatorHandshake, Responder,
        ResponderHandshake,
    },
    keys::{KeyPair, KeyTextError, Psk, PublicKey, Trust},
    message::MAX_EARLY_DATA,
    pattern::{Pattern, SessionCipher},
    route::RouteKey,
    session::SessionKeys,
};
pub(in crate::proto) use self::{
    generator::Generator,
    reset::{ResetKey, draws_reset, is_reset, write_reset},
};

/// The version of key agreement that this crate speaks. It is the first byte of each message.
pub const VERSION: u8 = 1;

/// Bytes of a sealed packet in front of its payload.
pub const HEADER_LEN: usize = 8;

/// Bytes of a sealed packet behind its payload.
pub const TAG_LEN: usize = crate::crypto::TAG_LEN;
