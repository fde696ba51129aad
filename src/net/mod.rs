//! The Tokio layer: streams, listeners and the sockets below them.
//!
//! ```text
//! stream, split      AsyncRead and AsyncWrite of a session; stream_handle: what they have in common
//! listener           accepts sessions that peers begin
//! datagrams          the unreliable messages beside a stream
//! endpoint           connects many sessions over one socket
//!   session          the core's Connection under a lock, with the tasks that wait for it
//!     handover       how it passes between the stream's tasks and the driver; run_queue: the sessions to look at
//!     wake_list      the lock, and the tasks woken when it is released; waiters: the tasks that wait
//!   driver           one task a socket: receives, keeps timers, sends what is left to it
//!     proto::Endpoint  finds the session of a packet, and decides what begins one
//!   accept_queue     sessions that peers began and nobody has accepted yet
//!   shared           what the streams, the listener and the driver of one socket have in common
//!   socket           batches of packets (quinn-udp)
//!     slots          the memory that they are received into
//!     async_socket   waiting for packets, and for room to send
//!     dscp           sending with a DSCP
//! ```
//!
//! A write goes all the way to the system call in the writer's own task. A read takes bytes from where the driver put them.
//! Between the two tasks there is no channel, only the session's lock. It is released for every system call, but for one:
//! the second attempt at a batch that found the socket full.

/// The methods that set and read options of the UDP socket. A stream, a listener and an endpoint all have a socket, so each
/// of them has these methods: `socket_options!(self => self.shared)`, where the expression is the socket's [`Shared`].
///
/// [`Shared`]: shared::Shared
macro_rules! socket_options {
    ($self:ident => $shared:expr) => {
        /// Asks the operating system for a receive buffer of `bytes` for the UDP socket. The system may grant less:
        /// [`recv_buffer_size`](Self::recv_buffer_size) tells what it granted.
        ///
        /// # Errors
        /// Those of the socket.
        pub fn set_recv_buffer_size(&$self, bytes: usize) -> io::Result<()> {
            $shared.socket.options().set_recv_buffer_size(bytes)
        }

        /// Asks the operating system for a send buffer of `bytes` for the UDP socket. The system may grant less:
        /// [`send_buffer_size`](Self::send_buffer_size) tells what it granted.
        ///
        /// # Errors
        /// Those of the socket.
        pub fn set_send_buffer_size(&$self, bytes: usize) -> io::Result<()> {
            $shared.socket.options().set_send_buffer_size(bytes)
        }

        /// Bytes of the UDP socket's receive buffer, as the operating system counts them. Linux reports twice what was
        /// granted, because it counts its own bookkeeping.
        ///
        /// # Errors
        /// Those of the socket.
        pub fn recv_buffer_size(&$self) -> io::Result<usize> {
            $shared.socket.options().recv_buffer_size()
        }

        /// Bytes of the UDP socket's send buffer, as the operating system counts them. Linux reports twice what was
        /// granted, because it counts its own bookkeeping.
        ///
        /// # Errors
        /// Those of the socket.
        pub fn send_buffer_size(&$self) -> io::Result<usize> {
            $shared.socket.options().send_buffer_size()
        }

        /// Sets the DSCP of every packet that the UDP socket sends: 0 to 63, where 46 asks for expedited forwarding. All
        /// streams of the socket share it.
        ///
        /// # Errors
        /// `InvalidInput` for a larger one; those of the socket.
        pub fn set_dscp(&$self, dscp: u8) -> io::Result<()> {
            $shared.socket.set_dscp(dscp)
        }
    };
}
use socket_options;

mod accept_queue;
mod async_socket;
mod clock;
mod datagrams;
mod driver;
mod dscp;
mod endpoint;
mod entropy;
mod error;
mod handover;
mod listener;
mod session;
mod shared;
mod socket;
mod split;
mod stats;
mod stream;
mod stream_handle;
mod sync;
mod waiters;
mod wake_list;

pub use self::{
    datagrams::KcpDatagrams,
    endpoint::KcpEndpoint,
    listener::KcpListener,
    split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf},
    stats::{DriverStats, DropStats, EndpointState, EndpointStats, SocketStats},
    stream::KcpStream,
};
