//! Why a session ends when the reason lies outside of its connection: in the socket, its driver, or another session.

use std::{fmt, io};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The listener that accepted it was closed.
    ListenerClosed,
    /// The peer began another session from the same address, and the listener allows only one.
    Replaced,
    /// The socket already has a session with the same peer and conv.
    ConvInUse,
    /// The socket has a session with the same peer and another cipher. Their packets could not be told apart.
    OtherCipher,
    /// The task that serves the socket has ended, with its runtime.
    DriverGone,
    /// Every send has failed for a while; the last with this error.
    Send { kind: io::ErrorKind, code: Option<i32> },
}

impl Failure {
    pub(super) fn from_io(error: &io::Error) -> Self {
        Self::Send { kind: error.kind(), code: error.raw_os_error() }
    }

    pub(super) fn to_io(self) -> io::Error {
        let kind = match self {
            Self::Send { code: Some(code), .. } => return io::Error::from_raw_os_error(code),
            Self::Send { kind, .. } => kind,
            Self::ListenerClosed => io::ErrorKind::ConnectionAborted,
            Self::Replaced => io::ErrorKind::ConnectionReset,
            Self::ConvInUse => io::ErrorKind::AddrInUse,
            Self::OtherCipher => io::ErrorKind::InvalidInput,
            Self::DriverGone => io::ErrorKind::NotConnected,
        };
        io::Error::new(kind, self)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ListenerClosed => f.write_str("the listener was closed"),
            Self::Replaced => f.write_str("the peer began another conversation from the same address"),
            Self::ConvInUse => f.write_str("the socket already has this conversation with this peer"),
            Self::OtherCipher => f.write_str(
                "the socket has streams to this peer with another cipher, which it cannot tell apart",
            ),
            Self::DriverGone => f.write_str("the runtime that served the socket was shut down"),
            Self::Send { kind, .. } => write!(f, "sending failed: {kind}"),
        }
    }
}

impl std::error::Error for Failure {}
