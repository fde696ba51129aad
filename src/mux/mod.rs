//! Many streams in one: Go's [smux], versions 1 and 2, over anything that reads and writes. Feature `mux`.
//!
//! KCP gives one ordered stream. A tunnel wants one for each connection that it carries, without a handshake and a session for
//! each. [`MuxSession`] makes them of one: either end opens streams, and each is an `AsyncRead + AsyncWrite` of its own. Its
//! bytes are those of Go's smux, which kcptun has between its TCP connections and KCP.
//!
//! ```
//! use kcp9::{KcpConfig, KcpListener, KcpStream, mux::{MuxConfig, MuxSession}};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
//! let addr = listener.local_addr()?;
//! tokio::spawn(async move {
//!     let (stream, _peer) = listener.accept().await?;
//!     let session = MuxSession::server(stream, MuxConfig::default());
//!     while let Ok(mut stream) = session.accept().await {
//!         tokio::spawn(async move {
//!             let mut question = Vec::new();
//!             stream.read_to_end(&mut question).await?;
//!             stream.write_all(&question).await?;
//!             stream.shutdown().await
//!         });
//!     }
//!     std::io::Result::Ok(())
//! });
//!
//! let session = MuxSession::client(KcpStream::connect(addr, KcpConfig::default()).await?, MuxConfig::default());
//! let mut stream = session.open().await?;
//! stream.write_all(b"hello").await?;
//! stream.shutdown().await?; // ends this direction; the other one goes on
//! let mut answer = Vec::new();
//! stream.read_to_end(&mut answer).await?;
//! assert_eq!(answer, b"hello");
//! session.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Beginning, ending, failing
//!
//! * **Opening** sends a frame and waits for nothing. smux has no answer to it: a peer that refuses the stream ends it.
//! * **Half-close**: `shutdown` sends FIN behind what was written and waits until the transport has it. The peer reads what is left, then
//!   the end. Peers of this crate and newest Go releases keep the other direction open.
//! * **Go's smux 1.5.16** has only `Close`, for both directions. What it had sent is read to the end here. What is written to such a
//!   stream afterwards it drops: version 1 does not tell; in version 2 the write fails with [`MuxError::NoReader`] when the window
//!   is used up and has not opened for [`dead_timeout`](MuxConfigBuilder::dead_timeout). The other way round, it reads the end that
//!   `shutdown` makes and can go on writing; in version 2 only as much as its window then has room for.
//! * **Dropping** a stream ends it as a whole: what was written is still sent, what comes is dropped. smux has no reset, so the
//!   peer cannot tell this from a shutdown.
//! * **The session** ends with its transport, a silence, a broken rule, [`close`](MuxSession::close), [`abort`](MuxSession::abort), or when
//!   all handles of it and of its streams are gone. What streams had received can be read to the end in each of these cases.
//!   Then comes an error, unless the peer had ended the stream itself: a stream that was cut off does not pass for a whole one.
//!
//! With the feature `tracing` a session says when streams begin and end, which limit refuses one, and why it has ended: the page
//! `docs/tracing.md` has the table.
//!
//! # Limits
//!
//! * **Version 1 has no windows.** What a reader leaves unread takes room in the session's
//!   [`receive_buffer`](MuxConfigBuilder::receive_buffer). Once that is used up the session stands still until it is read, as in Go.
//! * **Version 2** holds each stream to its [`stream_buffer`](MuxConfigBuilder::stream_buffer): one that is not read delays no other.
//!   A peer may send 256 KiB before it is told of a window, so the default 4 MiB bear 15 streams that are never read at all.
//! * **What a peer can make this end hold** is bounded by the buffers, [`max_streams`](MuxConfigBuilder::max_streams) (about 300 bytes
//!   each) and [`accept_backlog`](MuxConfigBuilder::accept_backlog). Frames that say nothing (empty ones, repeated windows, SYN of known
//!   streams) cost what it takes to read them.
//!
//! # Design
//!
//! ```text
//! session, stream    the handles
//! driver             one task a session: it owns the transport
//!   shared           the core under a lock, with the tasks that wait for it
//!     state          MuxCore: a session without I/O and clock
//!       stream         one stream, and the table of all
//!       input          what comes from the peer
//!         recv_queue     what waits to be read
//!       output         what goes to the peer, and whose turn it is
//!     frame          frames as bytes
//!     trace          what is told to `tracing`
//! ```
//!
//! A write copies into the one buffer of the session that goes to the transport next, while the one before is written. So the
//! transport gets large writes, a stream needs no buffer for sending, and what was written is on its way, whatever becomes of the
//! handle. Writers that find the buffer full take turns by frames. What comes in stays in the memory that it was received into
//! until it is read, as far as that wastes none. The driver keeps some such buffers, and reads into one that is free again. The rest of a
//! large frame it reads for itself, with the next header: the payload is one piece then. After two reads it lets the readers have
//! their turn, while what came is in the processor's cache. It flushes the transport when nothing more is to come at once, or a stream
//! waits for that: what fills no packet yet goes with what is written next.
//!
//! The kept crates were looked at. `async_smux` 0.4 and `tokio_smux` 0.2 speak version 1 only; `smux` 0.2 reads the windows of version 2
//! and ignores them, and buffers without bound. So this is the crate's own.
//!
//! [smux]: https://github.com/xtaci/smux

mod config;
mod driver;
mod error;
mod frame;
mod session;
mod shared;
mod state;
mod stats;
mod stream;
mod trace;

pub use self::{
    config::{MuxConfig, MuxConfigBuilder, MuxVersion},
    error::{MuxError, ProtocolError},
    session::MuxSession,
    state::{MuxCore, MuxEvent, MuxRole, StreamKey},
    stats::MuxStats,
    stream::MuxStream,
};
