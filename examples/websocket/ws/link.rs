//! A stream that comes back when the library is done with it.

use std::{
    io::{self, IoSlice},
    mem,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use hyper::body::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::transport::Stream;

/// What yawc reads and writes. yawc keeps the stream to itself, and reads no more once it has found an error; but what the peer
/// sends still has to be read then, since a TCP connection that is closed before makes its peer lose the close frame.
pub(crate) struct Link {
    stream: Option<Stream>,
    /// What came behind the opening handshake and was read with it.
    early: Bytes,
    back: Back,
}

/// Where the stream is after the link was dropped.
#[derive(Clone, Default)]
pub(crate) struct Back(Arc<Mutex<Option<Stream>>>);

impl Back {
    pub(crate) fn take(&self) -> Option<Stream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Link {
    pub(crate) fn new(stream: Stream, early: Bytes) -> (Self, Back) {
        let back = Back::default();
        (Self { stream: Some(stream), early, back: back.clone() }, back)
    }

    fn stream(&mut self) -> Pin<&mut Stream> {
        Pin::new(self.stream.as_mut().expect("only a drop takes it"))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        *self.back.0.lock().unwrap_or_else(PoisonError::into_inner) = self.stream.take();
    }
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.early.is_empty() {
            return this.stream().poll_read(cx, buf);
        }
        let count = this.early.len().min(buf.remaining());
        buf.put_slice(&this.early[..count]);
        this.early.advance(count);
        if this.early.is_empty() {
            // An empty rest would keep the handshake's whole buffer.
            drop(mem::take(&mut this.early));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().stream().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_shutdown(cx)
    }
}
