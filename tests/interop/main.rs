//! Other implementations, live over real sockets: `tokio_kcp` and `kcp-tokio` always, kcp-go where Go is installed.
//!
//! Each is tested in both roles (it serves and we connect, we serve and it connects), over loopback and over a relay that
//! drops 10 % of all packets each way. A run echoes a payload of some megabytes and compares every byte that comes
//! back with the byte that was sent. kcp-go is tested with every packet cipher as well ([`ciphers`]), and with
//! forward error correction ([`fec`]). What they make of extension segments, which none of them knows: [`extension`]; and
//! what our sessions with extensions make of them: [`legacy`]. How sessions with kcp-go begin, end and die: [`lives`]. The defaults of
//! the two crates and ours, as the page for those who move states them: [`defaults`].
//!
//! Streams in one session, with Go's smux on the other end: [`smux`]. The example `tunnel` with kcptun's programs on the other end:
//! [`kcptun`].
//!
//! The tests with Go are ignored by default: they need Debian's `golang-github-xtaci-kcp-dev` and `golang-github-xtaci-smux-dev`.
//! So are those with kcptun, which need its package of that name.
//!
//! ```text
//! cargo test --test interop -- --ignored
//! KCP9_GO_PEER=/path/to/go-peer cargo test --test interop -- --ignored     a go-peer of another release as well
//! KCP9_IKCP=/path/to/ikcp cargo test --test interop -- --ignored           the C library as well, where a test has it
//! ```
#![cfg(feature = "tokio")]
#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod c_peer;
#[cfg(feature = "kcptun-ciphers")]
mod ciphers;
mod defaults;
mod echo;
mod extension;
#[cfg(feature = "kcptun-ciphers")]
mod fec;
mod go_peer;
mod kcp_go;
mod kcp_tokio_crate;
#[cfg(all(unix, feature = "kcptun-ciphers", feature = "mux"))]
mod kcptun;
mod legacy;
mod lives;
#[cfg(feature = "mux")]
mod smux;
mod tokio_kcp_crate;
