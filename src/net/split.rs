//! The two directions of a stream as separate halves.

use std::{
    error::Error,
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{BufMut, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};

use super::{datagrams::KcpDatagrams, handle::KcpHandle, stream::KcpStream, stream_handle::StreamHandle};
use crate::proto::{SessionSettings, Stats};

/// The reading half of a [`KcpStream`], borrowed; from [`KcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a>(&'a Arc<StreamHandle>);

/// The writing half of a [`KcpStream`], borrowed; from [`KcpStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'a>(&'a Arc<StreamHandle>);

/// The reading half of a [`KcpStream`], owned; from [`KcpStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<StreamHandle>);

/// The writing half of a [`KcpStream`], owned; from [`KcpStream::into_split`].
///
/// Dropping it begins a shutdown that nobody waits for. When the reading half is dropped too, the session ends once the peer has
/// acknowledged everything, within [`linger`](crate::KcpConfigBuilder::linger).
#[derive(Debug)]
pub struct OwnedWriteHalf {
    handle: Arc<StreamHandle>,
    shutdown_on_drop: bool,
}

pub(super) const fn split(handle: &Arc<StreamHandle>) -> (ReadHalf<'_>, WriteHalf<'_>) {
    (ReadHalf(handle), WriteHalf(handle))
}

pub(super) fn into_split(handle: Arc<StreamHandle>) -> (OwnedReadHalf, OwnedWriteHalf) {
    (OwnedReadHalf(Arc::clone(&handle)), OwnedWriteHalf { handle, shutdown_on_drop: true })
}

impl OwnedReadHalf {
    /// Makes a stream of its two halves again.
    ///
    /// # Errors
    /// Both halves, if they are of different streams.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<KcpStream, ReuniteError> {
        if !Arc::ptr_eq(&self.0, &other.handle) {
            return Err(ReuniteError(self, other));
        }
        other.forget();
        Ok(KcpStream::from_handle(self.0))
    }
}

impl OwnedWriteHalf {
    /// Makes a stream of its two halves again.
    ///
    /// # Errors
    /// Both halves, if they are of different streams.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<KcpStream, ReuniteError> {
        other.reunite(self)
    }

    /// Drops the half without a shutdown, as Tokio's `forget` of a `TcpStream`'s half does.
    pub fn forget(mut self) {
        self.shutdown_on_drop = false;
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.shutdown_on_drop {
            self.handle.start_shutdown();
        }
    }
}

/// The error of [`OwnedReadHalf::reunite`]: the two halves, which are not of one stream.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are of different streams")
    }
}

impl Error for ReuniteError {}

macro_rules! read_half {
    ($half:ty, $self:ident => $handle:expr) => {
        impl $half {
            /// Receives the next whole message: see [`KcpStream::recv`].
            ///
            /// # Errors
            /// As [`KcpStream::recv`].
            pub async fn recv(&$self) -> io::Result<Bytes> {
                std::future::poll_fn(|cx| $handle.poll_recv(cx)).await
            }

            /// Receives the datagram that has waited longest: see [`KcpStream::recv_datagram`].
            ///
            /// # Errors
            /// As [`KcpStream::recv_datagram`].
            pub async fn recv_datagram(&$self) -> io::Result<Bytes> {
                std::future::poll_fn(|cx| $handle.session().poll_recv_datagram(cx)).await
            }

            /// Waits until something may be read: see [`KcpStream::readable`].
            ///
            /// # Errors
            /// As [`KcpStream::readable`].
            pub async fn readable(&$self) -> io::Result<()> {
                $self.ready(Interest::READABLE).await.map(drop)
            }

            /// Reads what is there: see [`KcpStream::try_read`].
            ///
            /// # Errors
            /// As [`KcpStream::try_read`].
            pub fn try_read(&$self, buf: &mut [u8]) -> io::Result<usize> {
                $handle.try_read(buf)
            }

            /// Reads what is there, into several buffers: see [`KcpStream::try_read_vectored`].
            ///
            /// # Errors
            /// As [`KcpStream::try_read_vectored`].
            pub fn try_read_vectored(&$self, bufs: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
                $handle.try_read_vectored(bufs)
            }

            /// Reads what is there into spare capacity: see [`KcpStream::try_read_buf`].
            ///
            /// # Errors
            /// As [`KcpStream::try_read_buf`].
            pub fn try_read_buf<B: BufMut>(&$self, buf: &mut B) -> io::Result<usize> {
                $handle.try_read_buf(buf)
            }

            /// Receives a message, if a whole one is there: see [`KcpStream::try_recv`].
            ///
            /// # Errors
            /// As [`KcpStream::try_recv`].
            pub fn try_recv(&$self) -> io::Result<Bytes> {
                $handle.try_recv()
            }

            /// Copies bytes that have arrived, and leaves them: see [`KcpStream::peek`].
            ///
            /// # Errors
            /// As [`KcpStream::peek`].
            pub async fn peek(&mut $self, buf: &mut [u8]) -> io::Result<usize> {
                let mut buf = ReadBuf::new(buf);
                std::future::poll_fn(|cx| $handle.poll_peek(cx, &mut buf)).await
            }

            /// The same as [`peek`](Self::peek), for use in a `poll` function.
            ///
            /// # Errors
            /// As [`KcpStream::peek`].
            pub fn poll_peek(&mut $self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
                $handle.poll_peek(cx, buf)
            }
        }

        impl AsyncRead for $half {
            fn poll_read(
                $self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                $handle.poll_read(cx, buf)
            }
        }
    };
}

macro_rules! write_half {
    ($half:ty, $self:ident => $handle:expr) => {
        impl $half {
            /// Sends one message, whole: see [`KcpStream::send`].
            ///
            /// # Errors
            /// As [`KcpStream::send`].
            pub async fn send(&$self, message: &[u8]) -> io::Result<()> {
                std::future::poll_fn(|cx| $handle.poll_send(cx, message)).await
            }

            /// Sends a datagram beside the stream: see [`KcpStream::send_datagram`].
            ///
            /// # Errors
            /// As [`KcpStream::send_datagram`].
            pub fn send_datagram(&$self, datagram: &[u8]) -> io::Result<()> {
                $handle.session().send_datagram(datagram)
            }

            /// The longest datagram that can be sent now, in bytes: see [`KcpStream::max_datagram_len`].
            #[must_use]
            pub fn max_datagram_len(&$self) -> Option<usize> {
                $handle.session().max_datagram_len()
            }

            /// Waits until something may be written: see [`KcpStream::writable`].
            ///
            /// # Errors
            /// As [`KcpStream::writable`].
            pub async fn writable(&$self) -> io::Result<()> {
                $self.ready(Interest::WRITABLE).await.map(drop)
            }

            /// Writes what there is room for: see [`KcpStream::try_write`].
            ///
            /// # Errors
            /// As [`KcpStream::try_write`].
            pub fn try_write(&$self, bytes: &[u8]) -> io::Result<usize> {
                $handle.try_write(bytes)
            }

            /// Writes what there is room for, from several buffers: see [`KcpStream::try_write_vectored`].
            ///
            /// # Errors
            /// As [`KcpStream::try_write_vectored`].
            pub fn try_write_vectored(&$self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
                $handle.try_write_vectored(slices)
            }

            /// Sends one message, if there is room for it: see [`KcpStream::try_send`].
            ///
            /// # Errors
            /// As [`KcpStream::try_send`].
            pub fn try_send(&$self, message: &[u8]) -> io::Result<()> {
                $handle.try_send(message)
            }
        }

        impl AsyncWrite for $half {
            fn poll_write(
                $self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                $handle.poll_write(cx, bytes)
            }

            fn poll_write_vectored(
                $self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                $handle.poll_write_vectored(cx, slices)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush($self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready($handle.flush())
            }

            fn poll_shutdown($self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                $handle.poll_shutdown(cx)
            }
        }
    };
}

macro_rules! either_half {
    ($half:ty, $self:ident => $handle:expr) => {
        impl $half {
            /// The peer's address.
            #[must_use]
            pub fn peer_addr(&$self) -> SocketAddr {
                $handle.peer_addr()
            }

            /// The address that the socket is bound to.
            ///
            /// # Errors
            /// None so far. It is a result as that of [`TcpStream::local_addr`](tokio::net::TcpStream::local_addr) is.
            pub fn local_addr(&$self) -> io::Result<SocketAddr> {
                $handle.local_addr()
            }

            /// Waits until the stream is ready for what `interest` says: see [`KcpStream::ready`].
            ///
            /// # Errors
            /// As [`KcpStream::ready`].
            pub async fn ready(&$self, interest: Interest) -> io::Result<Ready> {
                std::future::poll_fn(|cx| $handle.poll_ready(cx, interest)).await
            }

            /// A handle for statistics and control, which stays when the halves are given away: see [`KcpStream::handle`].
            #[must_use]
            pub fn handle(&$self) -> KcpHandle {
                KcpHandle::new($handle.session())
            }

            /// Counters and gauges of the session.
            #[must_use]
            pub fn stats(&$self) -> Stats {
                $handle.stats()
            }

            /// The session's settings as they are now: see [`KcpStream::settings`].
            #[must_use]
            pub fn settings(&$self) -> SessionSettings {
                $handle.settings()
            }

            /// Changes settings of the live session: see [`KcpStream::update_settings`].
            ///
            /// # Errors
            /// As [`KcpStream::update_settings`].
            pub fn update_settings(&$self, change: impl FnOnce(&mut SessionSettings)) -> io::Result<()> {
                $handle.update_settings(change)
            }

            /// A handle of the datagrams: see [`KcpStream::datagrams`].
            #[must_use]
            pub fn datagrams(&$self) -> KcpDatagrams {
                KcpDatagrams::new($handle.session())
            }
        }
    };
}

read_half!(ReadHalf<'_>, self => self.0);
read_half!(OwnedReadHalf, self => self.0);
write_half!(WriteHalf<'_>, self => self.0);
write_half!(OwnedWriteHalf, self => self.handle);
either_half!(ReadHalf<'_>, self => self.0);
either_half!(OwnedReadHalf, self => self.0);
either_half!(WriteHalf<'_>, self => self.0);
either_half!(OwnedWriteHalf, self => self.handle);
