//! Why calls on sessions and streams fail.

use std::{error::Error, fmt, io, sync::Arc};

/// Why a call on a [`MuxSession`](super::MuxSession) or a [`MuxStream`](super::MuxStream) failed: what lies inside of the
/// `io::Error` of a stream.
///
/// | reason | [kind](Self::kind) |
/// |---|---|
/// | [`Closed`](Self::Closed) | `NotConnected` |
/// | [`Aborted`](Self::Aborted) | `ConnectionAborted` |
/// | [`PeerClosed`](Self::PeerClosed) | `ConnectionReset` |
/// | [`Truncated`](Self::Truncated) | `UnexpectedEof` |
/// | [`Dead`](Self::Dead) | `TimedOut` |
/// | [`Protocol`](Self::Protocol), [`OverConsumed`](Self::OverConsumed) | `InvalidData` |
/// | [`Transport`](Self::Transport) | that of the transport's error |
/// | [`IdsExhausted`](Self::IdsExhausted) | `QuotaExceeded` |
/// | [`ShutDown`](Self::ShutDown), [`NoReader`](Self::NoReader) | `BrokenPipe` |
/// | [`RuntimeGone`](Self::RuntimeGone) | `NotConnected` |
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum MuxError {
    /// This end has closed the session: no failure.
    Closed,
    /// This end has aborted the session.
    Aborted,
    /// The transport has ended between two frames: the peer has closed the session. What a stream had received can still be
    /// read; then its reads fail, unless the peer had ended the stream itself.
    PeerClosed,
    /// The transport has ended within a frame.
    Truncated,
    /// Nothing came from the peer for [`dead_timeout`](super::MuxConfigBuilder::dead_timeout).
    Dead,
    /// The peer broke the rules of the protocol.
    Protocol(ProtocolError),
    /// The transport failed. The error itself is the [source](Error::source) of this one.
    Transport(Arc<io::Error>),
    /// The session has used all ids that it has for streams: 2^31 less one. Open another session.
    IdsExhausted,
    /// This end of the stream was shut down.
    ShutDown,
    /// The peer has ended its own direction, and its window has not opened for
    /// [`dead_timeout`](super::MuxConfigBuilder::dead_timeout): it has closed the stream as a whole.
    NoReader,
    /// The peer says that it has read more of the stream than was written.
    OverConsumed,
    /// The Tokio runtime of the session was shut down.
    RuntimeGone,
}

/// How a peer broke the rules of smux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A frame has another version than that of the session. The peer may be set to that version, or does not speak smux.
    Version(u8),
    /// The version has no such command.
    Command(u8),
    /// Frames with this command have another length.
    Length {
        /// The command.
        command: u8,
        /// The length.
        len: u16,
    },
    /// A stream got more bytes than its window had room for.
    WindowExceeded {
        /// The stream's id.
        id: u32,
    },
    /// The peer opened more streams beyond the limits than it could be told.
    TooManyStreams,
}

impl MuxError {
    /// The kind of the `io::Error` that has this inside.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Closed | Self::RuntimeGone => io::ErrorKind::NotConnected,
            Self::Aborted => io::ErrorKind::ConnectionAborted,
            Self::PeerClosed => io::ErrorKind::ConnectionReset,
            Self::Truncated => io::ErrorKind::UnexpectedEof,
            Self::Dead => io::ErrorKind::TimedOut,
            Self::Protocol(_) | Self::OverConsumed => io::ErrorKind::InvalidData,
            Self::Transport(error) => error.kind(),
            Self::IdsExhausted => io::ErrorKind::QuotaExceeded,
            Self::ShutDown | Self::NoReader => io::ErrorKind::BrokenPipe,
        }
    }

    /// Finds the reason in an error of a stream. `None` for an error that did not come from here.
    #[must_use]
    pub fn find(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inside| inside.downcast_ref())
    }
}

impl From<MuxError> for io::Error {
    fn from(error: MuxError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<ProtocolError> for MuxError {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

impl fmt::Display for MuxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protocol(error) => return error.fmt(f),
            Self::Transport(error) => return write!(f, "the transport failed: {error}"),
            Self::Closed => "the session was closed",
            Self::Aborted => "the session was aborted",
            Self::PeerClosed => "the peer has closed the session",
            Self::Truncated => "the session ended within a frame",
            Self::Dead => "nothing came from the peer for too long",
            Self::IdsExhausted => "the session has no ids left for streams",
            Self::ShutDown => "the stream was shut down",
            Self::NoReader => "the peer has closed the stream",
            Self::OverConsumed => "the peer has read more of the stream than was written",
            Self::RuntimeGone => "the runtime that served the session was shut down",
        })
    }
}

impl Error for MuxError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Transport(error) => Some(&**error),
            Self::Protocol(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "a frame has version {version}, which is not the session's"),
            Self::Command(command) => write!(f, "a frame has the unknown command {command}"),
            Self::Length { command, len } => write!(f, "a frame with command {command} has {len} bytes"),
            Self::WindowExceeded { id } => write!(f, "stream {id} got more than its window"),
            Self::TooManyStreams => f.write_str("the peer opens more streams than it can be refused"),
        }
    }
}

impl Error for ProtocolError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KcpError;

    #[test]
    fn the_transports_own_error_is_found_inside() {
        let transport = io::Error::from(KcpError::Evicted);
        let error = io::Error::from(MuxError::Transport(Arc::new(transport)));
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(matches!(MuxError::find(&error), Some(MuxError::Transport(_))));
        assert_eq!(KcpError::find(&error), Some(KcpError::Evicted));
    }
}
