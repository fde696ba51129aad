//! The Tokio layer: streams, listeners and the sockets below them.
//!
//! ```text
//! stream, split      AsyncRead and AsyncWrite of a session; stream_handle: what they have in common
//! handle             statistics and control of a session whose stream was given away
//! listener           accepts sessions that peers begin
//! datagrams          the unreliable messages beside a stream
//! axum, tonic        traits of these two, for the types above
//! secure             what streams have where sessions agree on keys
//! metrics            exports what sockets and sessions count
//! endpoint           connects and accepts many sessions over one socket
//! udp_socket         the socket as the application sees it
//! error              why calls fail
//!   session          the core's Connection under a lock, with the tasks that wait for it
//!     handover       how it passes between the stream's tasks and the driver; run_queue: the sessions to look at
//!     wake_list      the lock, and the tasks woken when it is released; waiters: the tasks that wait
//!   driver           one task a socket: receives, keeps timers, sends what is left to it
//!     proto::Endpoint  finds the session of a packet, and decides what begins one
//!   shards           several sockets with one port, a driver each: what they have for each other
//!   control          what the handles of the endpoint ask of the driver
//!   accept_queue     sessions that peers began and nobody has accepted yet
//!   shared           what the streams, the listener and the driver of one socket have in common
//!   socket           batches of packets (quinn-udp)
//!     slots          the memory that they are received into
//!     faults         for tests: system calls that fail
//!     async_socket   waiting for packets, and for room to send
//!     sendmsg        sending without quinn-udp: on Linux, and with a DSCP
//! ```
//!
//! A write goes all the way to the system call in the writer's own task. A read takes bytes from where the driver put them.
//! Between the two tasks there is no channel, only the session's lock. It is released for every system call, but for one:
//! the second attempt at a batch that found the socket full.

mod accept_queue;
mod async_socket;
#[cfg(feature = "axum")]
mod axum;
mod clock;
mod control;
mod datagrams;
mod driver;
mod endpoint;
mod entropy;
mod error;
mod handle;
mod handover;
mod listener;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "noise")]
mod secure;
mod sendmsg;
mod session;
mod shards;
mod shared;
mod socket;
mod split;
mod stats;
mod stream;
mod stream_handle;
mod sync;
#[cfg(feature = "tonic")]
mod tonic;
mod trace;
mod udp_socket;
mod waiters;
mod wake_list;

#[cfg(feature = "metrics")]
pub use self::metrics::KcpMetrics;
pub use self::{
    datagrams::KcpDatagrams,
    endpoint::KcpEndpoint,
    error::KcpError,
    handle::KcpHandle,
    listener::KcpListener,
    split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf},
    stats::{DriverStats, DropStats, EndpointState, EndpointStats, MemoryStats, SocketStats},
    stream::KcpStream,
    udp_socket::{IntoUdpSocket, KcpSocket},
};
#[cfg(feature = "mux")]
pub(crate) use self::{
    waiters::Waiters,
    wake_list::{WakeList, WakeMutex},
};
