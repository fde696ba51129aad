//! Snappy's framing format over a stream, as kcptun has it between smux and KCP.
//!
//! Chunks are made and checked by the crate `snap`, whose readers and writers block. This takes whole chunks from the stream and
//! hands them over one at a time. What a peer sends takes the memory of one chunk and of one read, whatever it says.

use std::{
    error::Error,
    fmt,
    io::{self, Read, Write},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut, buf::Reader};
use snap::{read::FrameDecoder, write::FrameEncoder};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// Compresses what is written, decompresses what is read.
///
/// A write is a chunk of its own, which leaves at once as far as `inner` takes it. `flush` waits for the rest.
pub(crate) struct Snappy<T> {
    inner: T,
    received: Received,
    decoder: FrameDecoder<Reader<Bytes>>,
    encoder: FrameEncoder<Vec<u8>>,
    /// Bytes of the encoder's output that `inner` has.
    sent: usize,
}

impl<T> Snappy<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self {
            inner,
            received: Received::default(),
            decoder: FrameDecoder::new(Bytes::new().reader()),
            encoder: FrameEncoder::new(Vec::new()),
            sent: 0,
        }
    }
}

/// What has come and was not decompressed yet.
#[derive(Default)]
struct Received {
    bytes: BytesMut,
    /// Bytes to come of a chunk that means nothing.
    skip: usize,
    /// The stream has begun as it must.
    begun: bool,
}

impl Received {
    /// The next chunk that means something, once it is whole.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SnappyError> {
        loop {
            let skipped = self.skip.min(self.bytes.len());
            self.bytes.advance(skipped);
            self.skip -= skipped;
            let Some(&[kind, a, b, c]) = self.bytes.first_chunk() else {
                // Garbage shall not wait for three bytes more.
                return self.bytes.first().map_or(Ok(()), |&kind| self.check_begin(kind)).map(|()| None);
            };
            if self.skip > 0 {
                return Ok(None);
            }
            self.check_begin(kind)?;
            let len = u32::from_le_bytes([a, b, c, 0]) as usize;
            match kind {
                COMPRESSED | UNCOMPRESSED if len > MAX_CHUNK => return Err(SnappyError::TooLong { len }),
                COMPRESSED | UNCOMPRESSED => {}
                IDENTIFIER if len != IDENTIFIER_LEN => return Err(SnappyError::TooLong { len }),
                IDENTIFIER => {}
                0x80..=0xfe => {
                    self.bytes.advance(HEADER_LEN);
                    self.skip = len;
                    continue;
                }
                _ => return Err(SnappyError::Reserved { kind }),
            }
            let whole = HEADER_LEN + len;
            if self.bytes.len() < whole {
                return Ok(None);
            }
            self.begun = true;
            return Ok(Some(self.bytes.split_to(whole).freeze()));
        }
    }

    fn check_begin(&self, kind: u8) -> Result<(), SnappyError> {
        if self.begun || self.skip > 0 || kind == IDENTIFIER {
            return Ok(());
        }
        Err(SnappyError::NotSnappy { first: kind })
    }

    /// Whether the stream may end here.
    fn is_between_chunks(&self) -> bool {
        self.bytes.is_empty() && self.skip == 0
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Snappy<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            // Without a chunk there is nothing to read, which is no end to the decoder.
            let count = this.decoder.read(buf.initialize_unfilled()).map_err(SnappyError::from_snap)?;
            if count > 0 {
                buf.advance(count);
                return Poll::Ready(Ok(()));
            }
            if let Some(chunk) = this.received.next_chunk()? {
                *this.decoder.get_mut() = chunk.reader();
                continue;
            }
            this.received.bytes.reserve(READ_SIZE);
            let reading = pin!(this.inner.read_buf(&mut this.received.bytes));
            if ready!(reading.poll(cx))? == 0 {
                let between = this.received.is_between_chunks();
                return Poll::Ready(if between { Ok(()) } else { Err(SnappyError::Truncated.into()) });
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> Snappy<T> {
    /// Hands what is compressed to `inner`, all of it.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let rest = &self.encoder.get_ref()[self.sent..]
            && !rest.is_empty()
        {
            let count = ready!(Pin::new(&mut self.inner).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        self.encoder.get_mut().clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Snappy<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        let block = &bytes[..bytes.len().min(MAX_BLOCK)];
        this.encoder.write_all(block)?;
        this.encoder.flush()?;
        // What does not leave now leaves with the next write or flush.
        if let Poll::Ready(Err(error)) = this.poll_drain(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(block.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

/// Why what the peer sent could not be decompressed: inside of an `io::Error` of kind `InvalidData` (or `UnexpectedEof`).
#[derive(Debug)]
pub(crate) enum SnappyError {
    /// The stream does not begin as Snappy's do.
    NotSnappy { first: u8 },
    /// A chunk is longer than any may be.
    TooLong { len: usize },
    /// A chunk of a kind that is reserved, and must not be skipped.
    Reserved { kind: u8 },
    /// A chunk is damaged.
    Damaged(snap::Error),
    /// The stream ended within a chunk.
    Truncated,
}

impl SnappyError {
    fn from_snap(error: io::Error) -> io::Error {
        match error.downcast::<snap::Error>() {
            Ok(error) => Self::Damaged(error).into(),
            // A chunk that is shorter than its header says.
            Err(_) => Self::Truncated.into(),
        }
    }
}

impl From<SnappyError> for io::Error {
    fn from(error: SnappyError) -> Self {
        let kind = match error {
            SnappyError::Truncated => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

impl fmt::Display for SnappyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSnappy { first } => {
                write!(
                    f,
                    "what the peer sends is not compressed (it begins with {first:#04x}): is nocomp set there?"
                )
            }
            Self::TooLong { len } => write!(f, "a compressed chunk has a length of {len}"),
            Self::Reserved { kind } => write!(f, "a compressed chunk is of the unknown kind {kind:#04x}"),
            Self::Damaged(error) => write!(f, "a compressed chunk is damaged: {error}"),
            Self::Truncated => f.write_str("the stream ended within a compressed chunk"),
        }
    }
}

impl Error for SnappyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Damaged(error) => Some(error),
            _ => None,
        }
    }
}

const COMPRESSED: u8 = 0x00;
const UNCOMPRESSED: u8 = 0x01;
const IDENTIFIER: u8 = 0xff;
/// Kind and length.
const HEADER_LEN: usize = 4;
const IDENTIFIER_LEN: usize = 6;
/// Bytes that one chunk holds at most, before compression: a rule of the format.
const MAX_BLOCK: usize = 65_536;
/// The most that a block becomes, and its checksum.
const MAX_CHUNK: usize = 76_490 + 4;
/// Bytes that one read asks for at least.
const READ_SIZE: usize = 16 << 10;

#[cfg(test)]
mod tests;
