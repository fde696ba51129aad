//! The error types of the core: one small enum for each operation.

use core::fmt;

use super::congestion::CongestionControl;
use crate::crypto::{OpenError, SealError};

/// Why a [`KcpConfig`](super::KcpConfig) or a change of [`SessionSettings`](super::SessionSettings) was refused: which field, its
/// value, and the limits of it. Of settings that exclude each other `field` names both, and the limits are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// Name of the field, which is that of the builder's method.
    pub field: &'static str,
    /// The value that was given, in the field's unit; durations in milliseconds.
    pub value: u64,
    /// The smallest value that is allowed.
    pub min: u64,
    /// The largest value that is allowed.
    pub max: u64,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, min, max } = self;
        if *max == 0 {
            return write!(f, "{field} is not possible");
        }
        write!(f, "{field} is {value}, outside {min}..={max}")
    }
}

/// A string is neither the name of a preset nor four numbers; see [`NoDelay::from_str`](super::NoDelay).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownPreset;

impl fmt::Display for UnknownPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a preset's name (normal, fast, fast2, fast3, ikcp) nor nodelay,interval,resend,nc")
    }
}

/// A string is not the name of a congestion controller; see
/// [`CongestionControl::from_str`](super::CongestionControl).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownController;

impl fmt::Display for UnknownController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a congestion controller's name (")?;
        for (index, control) in CongestionControl::NAMED.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}", control.name())?;
        }
        f.write_str(")")
    }
}

/// Why bytes are not a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentError {
    /// Fewer bytes than a header has.
    Truncated,
    /// The protocol has no such `cmd`.
    UnknownCommand(u8),
    /// `len` is larger than the number of bytes that follow.
    LengthPastEnd {
        /// The header's `len`.
        len: u32,
        /// Bytes that follow the header.
        available: usize,
    },
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("shorter than a segment header"),
            Self::UnknownCommand(cmd) => write!(f, "unknown command {cmd:#04x}"),
            Self::LengthPastEnd { len, available } => {
                write!(f, "segment of {len} bytes, {available} follow")
            }
        }
    }
}

/// Why a packet, or the rest of it, was dropped. The connection goes on unharmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketError {
    /// It belongs to another conversation.
    WrongConv {
        /// The conv that the packet carries.
        found: u32,
    },
    /// From some place on, its bytes are not segments.
    Segment(SegmentError),
    /// The cipher refused it.
    Open(OpenError),
    /// The same packet was received before, or was sent by this end.
    Replayed,
    /// The size field of an FEC header does not fit the packet.
    Fec,
}

impl From<SegmentError> for PacketError {
    fn from(error: SegmentError) -> Self {
        Self::Segment(error)
    }
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongConv { found } => write!(f, "packet of conversation {found:#010x}"),
            Self::Segment(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Replayed => f.write_str("received before"),
            Self::Fec => f.write_str("the size in the FEC header does not fit the packet"),
        }
    }
}

/// Why an end aborts a session, as it tells its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AbortReason {
    /// It says nothing, or came on with data that nobody reads there any more.
    Unspecified,
    /// The application aborted it.
    Application,
    /// Not everything was acknowledged within [`linger`](super::KcpConfigBuilder::linger), or nothing was heard for
    /// [`idle_timeout`](super::KcpConfigBuilder::idle_timeout).
    TimedOut,
    /// The other end broke the rules of the protocol.
    Protocol,
    /// The listener or endpoint that it belonged to was closed.
    EndpointClosed,
    /// No session is accepted any more.
    Refused,
    /// The key of the session was [replaced](super::Endpoint::rotate_key), and its time is over.
    KeyRetired,
    /// A number that this version gives no meaning to.
    Other(u16),
}

impl AbortReason {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Unspecified => 0,
            Self::Application => 1,
            Self::TimedOut => 2,
            Self::Protocol => 3,
            Self::EndpointClosed => 4,
            Self::Refused => 5,
            Self::KeyRetired => 6,
            Self::Other(code) => code,
        }
    }

    /// What a number on the wire means.
    #[must_use]
    pub const fn from_code(code: u16) -> Self {
        match code {
            0 => Self::Unspecified,
            1 => Self::Application,
            2 => Self::TimedOut,
            3 => Self::Protocol,
            4 => Self::EndpointClosed,
            5 => Self::Refused,
            6 => Self::KeyRetired,
            _ => Self::Other(code),
        }
    }
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "no reason given",
            Self::Application => "by its application",
            Self::TimedOut => "a timeout passed there",
            Self::Protocol => "it says that the protocol was broken",
            Self::EndpointClosed => "its endpoint was closed",
            Self::Refused => "it accepts no sessions",
            Self::KeyRetired => "the key of the session is accepted no longer there",
            Self::Other(code) => return write!(f, "reason {code}"),
        })
    }
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// Segments waited for an answer and nothing came from the peer for the configured time or number of
    /// transmissions: see [`dead_timeout`](super::KcpConfigBuilder::dead_timeout) and
    /// [`dead_link`](super::KcpConfigBuilder::dead_link).
    DeadLink,
    /// Data was still unacknowledged at the end of [`linger`](super::KcpConfigBuilder::linger).
    LingerTimeout,
    /// No payload passed for [`idle_timeout`](super::KcpConfigBuilder::idle_timeout).
    IdleTimeout,
    /// The local application closed the session, or the listener or endpoint it belongs to.
    Aborted,
    /// As many packets were encrypted as random nonces allow under one key: see
    /// [`PacketCipher::nonce_limit`](crate::crypto::PacketCipher::nonce_limit). Or, in a session with keys of its own, 2^33 under one that the peer
    /// has not followed.
    NonceLimit,
    /// The packet cipher failed to encrypt.
    SealFailed(SealError),
    /// The peer does not know the extensions, which are [required](super::Extensions::Required).
    PeerLacksExtensions,
    /// The peer's extensions and those of this end do not fit together, or the two did not agree on keys.
    HandshakeFailed(HandshakeError),
    /// The peer accepts no sessions.
    Refused,
    /// It was done: each direction was shut down, or had nobody left to read it, and everything written was acknowledged. What
    /// arrived can still be read.
    Finished,
    /// The peer aborted the session, and why.
    AbortedByPeer(AbortReason),
    /// The peer knows the session no more: it was restarted, or has given the session up.
    Reset,
}

/// What does not fit in the peer's answer: see [`CloseReason::HandshakeFailed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer and this end speak no version in common.
    Version,
    /// The peer's answer has a field that this end must understand and does not know.
    UnknownField,
    /// There was no agreement on keys, and why.
    #[cfg(feature = "noise")]
    Noise(super::noise::NoiseFailure),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "the peer speaks other versions of the extensions",
            Self::UnknownField => "the peer's answer needs a newer version of this crate",
            #[cfg(feature = "noise")]
            Self::Noise(error) => return write!(f, "no agreement on keys: {error}"),
        })
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SealFailed(error) => return write!(f, "a packet could not be encrypted: {error}"),
            Self::HandshakeFailed(error) => return error.fmt(f),
            Self::PeerLacksExtensions => "the peer does not know the extensions, which are required",
            Self::Refused => "the peer accepts no sessions",
            Self::NonceLimit => "as many packets were encrypted under one key as random nonces allow",
            Self::DeadLink => "the peer stopped answering",
            Self::LingerTimeout => "the peer did not acknowledge everything within the linger time",
            Self::IdleTimeout => "no payload passed within the idle timeout",
            Self::Aborted => "the session was closed at this end",
            Self::Finished => "both ends were done",
            Self::AbortedByPeer(reason) => return write!(f, "the peer aborted the session: {reason}"),
            Self::Reset => "the peer knows the session no more",
        })
    }
}

/// Why nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The send queue is full: wait for [`Event::Writable`](super::Event::Writable).
    Blocked,
    /// Nothing can be written after [`shutdown`](super::Connection::shutdown).
    ShutDown,
    /// Nobody reads at the peer's end any more: its stream was dropped. What it had not acknowledged was given up.
    NoReader,
    /// The message has no bytes. The protocol could carry it, but a reader of kcp-go would wait for ever behind it.
    EmptyMessage,
    /// The message needs more than 255 fragments.
    MessageTooLong {
        /// The longest message that fits, in bytes.
        max: usize,
    },
    /// The session has ended.
    Closed(CloseReason),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked => f.write_str("the send queue is full"),
            Self::ShutDown => f.write_str("written after shutdown"),
            Self::NoReader => f.write_str("nobody reads at the peer's end any more"),
            Self::EmptyMessage => f.write_str("a message needs at least one byte"),
            Self::MessageTooLong { max } => write!(f, "a message holds at most {max} bytes"),
            Self::Closed(reason) => reason.fmt(f),
        }
    }
}

/// Why a datagram was not queued by [`Connection::send_datagram`](super::Connection::send_datagram).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramSendError {
    /// The session exchanges no datagrams: see [`datagram_queue`](super::KcpConfigBuilder::datagram_queue).
    Disabled,
    /// The datagram does not fit one packet.
    TooLarge {
        /// The longest that fits, in bytes.
        max: usize,
    },
    /// Nothing can be sent after [`shutdown`](super::Connection::shutdown).
    ShutDown,
    /// The session has ended.
    Closed(CloseReason),
}

impl fmt::Display for DatagramSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("datagrams are not configured"),
            Self::TooLarge { max } => write!(f, "a datagram holds at most {max} bytes"),
            Self::ShutDown => f.write_str("a datagram after shutdown"),
            Self::Closed(reason) => reason.fmt(f),
        }
    }
}

/// Why nothing was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// Nothing has arrived yet: wait for [`Event::Readable`](super::Event::Readable).
    Blocked,
    /// The peer has shut down, and everything that it wrote was read: the end of the stream.
    Finished,
    /// The peer's stream ended within a message. What had arrived of it was dropped, and the next call says
    /// [`Finished`](Self::Finished). Only [`recv`](super::Connection::recv) says so: to a reader of bytes these are as good as any.
    UnexpectedEof,
    /// The session has ended and everything that had arrived was read.
    Closed(CloseReason),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked => f.write_str("nothing has arrived"),
            Self::Finished => f.write_str("the end of the stream"),
            Self::UnexpectedEof => f.write_str("the stream ended within a message"),
            Self::Closed(reason) => reason.fmt(f),
        }
    }
}

/// Why the settings of a live session were not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingError {
    /// A value is outside its limits.
    Config(ConfigError),
    /// Segments or messages that are already queued or in flight would not fit the new packets.
    MtuBelowQueued {
        /// The smallest `mtu` that fits them.
        min: usize,
    },
}

impl From<ConfigError> for SettingError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::MtuBelowQueued { min } => {
                write!(f, "segments are queued that need an mtu of {min}")
            }
        }
    }
}

impl core::error::Error for ConfigError {}
impl core::error::Error for UnknownPreset {}
impl core::error::Error for UnknownController {}
impl core::error::Error for SegmentError {}
impl core::error::Error for PacketError {}
impl core::error::Error for CloseReason {}
impl core::error::Error for HandshakeError {}
impl core::error::Error for WriteError {}
impl core::error::Error for DatagramSendError {}
impl core::error::Error for ReadError {}
impl core::error::Error for SettingError {}

#[cfg(feature = "std")]
mod io {
    use std::io::{Error, ErrorKind};

    use super::{CloseReason, ConfigError, DatagramSendError, ReadError, SettingError, WriteError};

    impl From<CloseReason> for Error {
        fn from(reason: CloseReason) -> Self {
            let kind = match reason {
                CloseReason::Aborted => ErrorKind::ConnectionAborted,
                CloseReason::NonceLimit => ErrorKind::QuotaExceeded,
                CloseReason::SealFailed(_) => ErrorKind::Other,
                CloseReason::PeerLacksExtensions => ErrorKind::Unsupported,
                CloseReason::HandshakeFailed(_) => ErrorKind::InvalidData,
                CloseReason::Refused => ErrorKind::ConnectionRefused,
                CloseReason::DeadLink | CloseReason::LingerTimeout | CloseReason::IdleTimeout => {
                    ErrorKind::TimedOut
                }
                CloseReason::Finished => ErrorKind::NotConnected,
                CloseReason::AbortedByPeer(_) | CloseReason::Reset => ErrorKind::ConnectionReset,
            };
            Self::new(kind, reason)
        }
    }

    impl From<WriteError> for Error {
        fn from(error: WriteError) -> Self {
            let kind = match error {
                WriteError::Closed(reason) => return reason.into(),
                WriteError::Blocked => ErrorKind::WouldBlock,
                WriteError::ShutDown | WriteError::NoReader => ErrorKind::BrokenPipe,
                WriteError::EmptyMessage | WriteError::MessageTooLong { .. } => ErrorKind::InvalidInput,
            };
            Self::new(kind, error)
        }
    }

    impl From<DatagramSendError> for Error {
        fn from(error: DatagramSendError) -> Self {
            let kind = match error {
                DatagramSendError::Closed(reason) => return reason.into(),
                DatagramSendError::Disabled => ErrorKind::Unsupported,
                DatagramSendError::TooLarge { .. } => ErrorKind::InvalidInput,
                DatagramSendError::ShutDown => ErrorKind::BrokenPipe,
            };
            Self::new(kind, error)
        }
    }

    impl From<ReadError> for Error {
        fn from(error: ReadError) -> Self {
            match error {
                ReadError::Closed(reason) => reason.into(),
                ReadError::Blocked => Self::new(ErrorKind::WouldBlock, error),
                ReadError::Finished | ReadError::UnexpectedEof => Self::new(ErrorKind::UnexpectedEof, error),
            }
        }
    }

    impl From<ConfigError> for Error {
        fn from(error: ConfigError) -> Self {
            Self::new(ErrorKind::InvalidInput, error)
        }
    }

    impl From<SettingError> for Error {
        fn from(error: SettingError) -> Self {
            Self::new(ErrorKind::InvalidInput, error)
        }
    }
}
