//! A stream without waiting: what can be read or written now, and waiting until something can. As Tokio's `TcpStream` has it.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll},
};

use bytes::{BufMut, Bytes};
use tokio::io::{Interest, ReadBuf, Ready};

use super::KcpStream;

impl KcpStream {
    /// Waits until the stream is ready for what `interest` says, and returns what it is ready for: bytes or a message may be read
    /// (`is_readable`), there is room to write (`is_writable`), or waiting for either has no use any more (`is_read_closed`,
    /// `is_write_closed`), and a call will say why.
    ///
    /// Several tasks may wait. Another one may be faster afterwards, so that the `try_` method fails with `WouldBlock` all the same.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use std::io::ErrorKind;
    ///
    /// use kcp9::{KcpConfig, KcpListener, KcpStream};
    /// use tokio::io::Interest;
    ///
    /// let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
    /// let stream = KcpStream::connect(listener.local_addr()?, KcpConfig::default()).await?;
    /// let ready = stream.ready(Interest::READABLE | Interest::WRITABLE).await?;
    /// assert!(ready.is_writable() && !ready.is_readable());
    /// assert_eq!(stream.try_write(b"hello")?, 5);
    /// assert_eq!(stream.try_read(&mut [0; 5]).unwrap_err().kind(), ErrorKind::WouldBlock);
    ///
    /// let (server, _) = listener.accept().await?;
    /// server.readable().await?;
    /// let mut hello = [0; 16];
    /// let count = server.try_read(&mut hello)?;
    /// assert_eq!(&hello[..count], b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// None so far. The end of the session is a readiness: the call that follows returns its error.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        poll_fn(|cx| self.handle.poll_ready(cx, interest)).await
    }

    /// Waits until [`try_read`](Self::try_read), [`try_recv`](Self::try_recv) or [`peek`](Self::peek) may find something, or will
    /// say why they never will: see [`ready`](Self::ready).
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await.map(drop)
    }

    /// Waits until [`try_write`](Self::try_write) or [`try_send`](Self::try_send) may find room, or will say why they never will:
    /// see [`ready`](Self::ready).
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await.map(drop)
    }

    /// The same as [`readable`](Self::readable), for use in a `poll` function.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.poll_ready(cx, Interest::READABLE).map_ok(drop)
    }

    /// The same as [`writable`](Self::writable), for use in a `poll` function.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.poll_ready(cx, Interest::WRITABLE).map_ok(drop)
    }

    /// Reads what is there, and returns how many bytes.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is there. Otherwise those of a read.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.handle.try_read(buf)
    }

    /// Reads what is there into the first of `bufs`, then into the next, and returns how many bytes.
    ///
    /// # Errors
    /// As [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, bufs: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        self.handle.try_read_vectored(bufs)
    }

    /// Reads what is there into the spare capacity of `buf`, and returns how many bytes: 0 if there is no such capacity, or at the end of
    /// the stream.
    ///
    /// # Errors
    /// As [`try_read`](Self::try_read).
    pub fn try_read_buf<B: BufMut>(&self, buf: &mut B) -> io::Result<usize> {
        self.handle.try_read_buf(buf)
    }

    /// Writes as many of `bytes` as there is room for, and returns how many.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room. Otherwise those of a write.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.handle.try_write(bytes)
    }

    /// Writes the bytes of the first of `slices`, then of the next, as many as there is room for, and returns how many.
    ///
    /// # Errors
    /// As [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.handle.try_write_vectored(slices)
    }

    /// Sends one message, if there is room for it: see [`send`](Self::send).
    ///
    /// # Errors
    /// `WouldBlock` if there is no room. Otherwise those of [`send`](Self::send).
    pub fn try_send(&self, message: &[u8]) -> io::Result<()> {
        self.handle.try_send(message)
    }

    /// Receives a message, if a whole one is there: see [`recv`](Self::recv).
    ///
    /// # Errors
    /// `WouldBlock` if there is none. Otherwise those of [`recv`](Self::recv).
    pub fn try_recv(&self) -> io::Result<Bytes> {
        self.handle.try_recv()
    }

    /// Receives a datagram, if one is there: see [`recv_datagram`](Self::recv_datagram). [`ready`](Self::ready) does not tell of
    /// datagrams.
    ///
    /// # Errors
    /// `WouldBlock` if there is none. Otherwise those of [`recv_datagram`](Self::recv_datagram).
    pub fn try_recv_datagram(&self) -> io::Result<Bytes> {
        self.handle.try_recv_datagram()
    }

    /// Copies bytes that have arrived, and leaves them for the next read. Waits until there is at least one, if `buf` has room.
    /// Returns how many.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use kcp9::{KcpConfig, KcpListener, KcpStream};
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
    /// let mut client = KcpStream::connect(listener.local_addr()?, KcpConfig::default()).await?;
    /// client.write_all(b"GET /").await?;
    ///
    /// let (mut server, _) = listener.accept().await?;
    /// let mut method = [0; 3];
    /// while server.peek(&mut method).await? < 3 {}
    /// assert_eq!(&method, b"GET");
    /// let mut request = [0; 5];
    /// server.read_exact(&mut request).await?;
    /// assert_eq!(&request, b"GET /");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of a read.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(buf);
        poll_fn(|cx| self.poll_peek(cx, &mut buf)).await
    }

    /// The same as [`peek`](Self::peek), for use in a `poll` function.
    ///
    /// # Errors
    /// As [`peek`](Self::peek).
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        self.handle.poll_peek(cx, buf)
    }
}
