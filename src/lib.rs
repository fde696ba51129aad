//! Reliable, ordered streams over UDP: the [KCP] protocol behind Tokio's [`AsyncRead`] and [`AsyncWrite`], and as a
//! `no_std` state machine.
//!
//! KCP resends what is lost after little more than a round trip, and can do without congestion control. On links that lose
//! packets it keeps latency low where TCP stalls, at the price of more traffic. The bytes on the wire are those of kcp-go and
//! ikcp, unless the HighwayHash framing is chosen.
//!
//! ```
//! # #[cfg(feature = "tokio")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! use kcp9::{KcpConfig, KcpListener, KcpStream};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
//! let addr = listener.local_addr()?;
//!
//! let server = tokio::spawn(async move {
//!     let (mut stream, _peer) = listener.accept().await?;
//!     let mut question = [0; 4];
//!     stream.read_exact(&mut question).await?;
//!     stream.write_all(b"pong").await?;
//!     stream.shutdown().await // until the peer has acknowledged it all
//! });
//!
//! let mut client = KcpStream::connect(addr, KcpConfig::default()).await?;
//! client.write_all(b"ping").await?;
//! let mut answer = [0; 4];
//! client.read_exact(&mut answer).await?;
//! assert_eq!(&answer, b"pong");
//! server.await?
//! # }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```
//!
//! # Layers
//!
//! ```text
//!   your tasks        AsyncRead + AsyncWrite, send/recv of whole messages
//!  ┌─────────────────────────────────────────────────────────────────────┐
//!  │ KcpStream   KcpListener   KcpEndpoint                  crate root   │  feature `tokio`
//!  │   driver: one task a UDP socket (GSO/GRO batches, timers)           │
//!  ├─────────────────────────────────────────────────────────────────────┤
//!  │ proto::Endpoint      whose packet it is, what begins   proto        │  no_std + alloc
//!  │                      a session                                      │
//!  │ proto::Connection    one session, without I/O                       │
//!  │   pipeline           encryption, replays, forward error correction  │
//!  │   arq                queues, ACKs, timers, resends, windows         │
//!  │   wire               the 24-byte segment header                     │
//!  ├─────────────────────────────────────────────────────────────────────┤
//!  │ crypto   packet ciphers          fec   Reed-Solomon                 │
//!  └─────────────────────────────────────────────────────────────────────┘
//!   UDP packets
//! ```
//!
//! * [`KcpStream`]: a stream to one peer. [`KcpListener`]: accepts streams. [`KcpEndpoint`]: many streams, one socket.
//! * [`KcpError`]: why a call failed, inside of its `io::Error`. [`KcpHandle`]: a session whose stream was given away.
//!   [`KcpSocket`]: the socket of streams, with its options.
//! * [`KcpDatagrams`]: datagrams beside the stream, unreliable, for peers that know them.
//! * [`KcpConfig`]: every setting, checked when it is built. [`NoDelay`]: the presets by name. [`SessionSettings`]: what can be
//!   changed on a live session.
//! * [`Stats`]: counters and gauges of a session. [`EndpointStats`]: those of a socket.
//! * [`congestion`]: the congestion controllers, and how to write one's own.
//! * [`crypto`]: packet ciphers, AEADs and keys; [`fec`]: the erasure code, usable on its own.
//! * [`proto`]: the protocol without I/O or clock, for other runtimes and for embedded targets.
//!
//! # What differs from TCP
//!
//! Connecting does not wait for the peer: [`KcpStream::connected`] and [`KcpStream::connect_timeout`] do. Where no peer answers,
//! calls fail with a timeout once the first packets have waited for [`dead_timeout`](KcpConfigBuilder::dead_timeout). KCP has no
//! close on the wire: peers of this crate tell each other by [`Extensions`], while a session with another implementation does not
//! learn that its peer has shut down, and applications say in their own bytes where their data ends. Nothing is encrypted unless
//! a cipher is configured ([`KcpConfigBuilder::crypto`]), and one key serves all sessions: see the README for what that protects
//! against.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `tokio` | yes | the Tokio layer; implies `std` |
//! | `std` | with `tokio` | conversions of the core's errors into `std::io::Error`, nonces from the operating system, instructions chosen at run time |
//! | `kcptun-ciphers` | yes | the packet ciphers of kcp-go, each a feature by its name in kcptun: `aes`, `aes-128`, `aes-192`, `salsa20`, `blowfish`, `twofish`, `cast5`, `3des`, `tea`, `xtea`, `xor`, `sm4`, `none` |
//! | `aead` | yes | `aes-gcm` and `chacha20-poly1305` by RustCrypto, in Rust for every target; [`crypto::Aead`](crypto) |
//! | `ring` | yes | the same ciphers but AES-192-GCM by ring, more than twice as fast on x86-64; needs a C compiler |
//! | `highway` | yes | HighwayHash tags in place of CRC-32 |
//! | `mux` | no | `mux`: many streams in one, as Go's smux; implies `tokio` |
//! | `axum` | no | `axum::serve` takes a [`KcpListener`], and handlers a `ConnectInfo` of [`KcpHandle`]; implies `tokio` |
//! | `tonic` | no | tonic's servers take [`KcpStream`]s, and requests know their [`KcpHandle`]; implies `tokio` |
//! | `metrics` | no | `KcpMetrics`: counters for Prometheus and others, over the facade `metrics`; implies `tokio` |
//! | `noise` | no | `KcpConfigBuilder::noise`: sessions with keys of their own, by a handshake; [`proto::noise`](proto) has that and the sealed packets alone; implies `chacha20-poly1305` |
//! | `password` | yes | keys from passwords: Argon2id, and kcptun's |
//! | `tracing` | no | spans and events for `tracing`, in the core too: `docs/tracing.md` has the table |
//!
//! With none of them the crate needs only `core` and `alloc`.
//!
//! [KCP]: https://github.com/skywind3000/kcp/blob/master/README.en.md
#![cfg_attr(
    feature = "tokio",
    doc = "[`AsyncRead`]: tokio::io::AsyncRead\n[`AsyncWrite`]: tokio::io::AsyncWrite"
)]
#![cfg_attr(
    not(feature = "tokio"),
    doc = "[`AsyncRead`]: https://docs.rs/tokio/latest/tokio/io/trait.AsyncRead.html\n\
           [`AsyncWrite`]: https://docs.rs/tokio/latest/tokio/io/trait.AsyncWrite.html\n\
           [`KcpStream`]: https://docs.rs/kcp9\n[`KcpListener`]: https://docs.rs/kcp9\n\
           [`KcpEndpoint`]: https://docs.rs/kcp9\n[`EndpointStats`]: https://docs.rs/kcp9\n\
           [`KcpDatagrams`]: https://docs.rs/kcp9\n[`KcpError`]: https://docs.rs/kcp9\n\
           [`KcpHandle`]: https://docs.rs/kcp9\n[`KcpSocket`]: https://docs.rs/kcp9\n\
           [`KcpStream::connected`]: https://docs.rs/kcp9\n[`KcpStream::connect_timeout`]: https://docs.rs/kcp9"
)]
// docs.rs says beside each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![deny(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod crypto;
#[cfg(feature = "mux")]
pub mod mux;
#[cfg(feature = "tokio")]
mod net;
pub mod proto;

#[cfg(feature = "metrics")]
pub use net::KcpMetrics;
#[cfg(feature = "tokio")]
pub use net::{
    DriverStats, DropStats, EndpointState, EndpointStats, IntoUdpSocket, KcpDatagrams, KcpEndpoint, KcpError,
    KcpHandle, KcpListener, KcpSocket, KcpStream, MemoryStats, OwnedReadHalf, OwnedWriteHalf, ReadHalf,
    ReuniteError, SocketStats, WriteHalf,
};
pub use proto::{
    ConfigError, CongestionControl, CookiePolicy, Extensions, KcpConfig, KcpConfigBuilder, NoDelay,
    SessionSettings, Stats,
};
pub use proto::{congestion, fec};
