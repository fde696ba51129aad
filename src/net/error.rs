//! Why a call failed: the error inside of every `io::Error` of this layer.

use std::{error::Error, fmt, io};

use crate::proto::{CloseReason, DatagramSendError, ReadError, WriteError};

/// Why a call on a stream, a listener or an endpoint failed.
///
/// The calls return `io::Error`, as Tokio's traits have it, and this is what lies inside:
/// [`io::Error::get_ref`] and [`find`](Self::find) get at it. What else an `io::Error` of this crate may be: one of the operating
/// system, as it came; `WouldBlock` of the `try_` methods; a [`SettingError`](crate::proto::SettingError) or a
/// [`ConfigError`](crate::ConfigError), where a setting was refused.
///
/// | reason | [kind](Self::kind) | what it means |
/// |---|---|---|
/// | [`Closed`](Self::Closed) with [`DeadLink`](CloseReason::DeadLink), [`LingerTimeout`](CloseReason::LingerTimeout), [`IdleTimeout`](CloseReason::IdleTimeout) | `TimedOut` | the session has ended, because nothing came from the peer |
/// | `Closed` with [`AbortedByPeer`](CloseReason::AbortedByPeer), [`Reset`](CloseReason::Reset) | `ConnectionReset` | the peer has ended it, or knows it no more |
/// | `Closed` with [`Aborted`](CloseReason::Aborted) | `ConnectionAborted` | this end has aborted it |
/// | `Closed` with [`Refused`](CloseReason::Refused) | `ConnectionRefused` | the peer accepts no sessions |
/// | `Closed` with [`PeerLacksExtensions`](CloseReason::PeerLacksExtensions) | `Unsupported` | the extensions are required here |
/// | `Closed` with [`HandshakeFailed`](CloseReason::HandshakeFailed) | `InvalidData` | the extensions of both ends do not fit together, or there was no agreement on keys |
/// | `Closed` with [`NonceLimit`](CloseReason::NonceLimit) | `QuotaExceeded` | the key must not encrypt more |
/// | `Closed` with [`SealFailed`](CloseReason::SealFailed) | `Other` | the cipher failed |
/// | `Closed` with [`Finished`](CloseReason::Finished) | `NotConnected` | both directions are done: no failure |
/// | [`Write`](Self::Write) with [`ShutDown`](WriteError::ShutDown), [`NoReader`](WriteError::NoReader) | `BrokenPipe` | this end has shut down, or the peer has dropped its stream |
/// | `Write` with [`EmptyMessage`](WriteError::EmptyMessage), [`MessageTooLong`](WriteError::MessageTooLong) | `InvalidInput` | no such message can be sent |
/// | [`Read`](Self::Read) with [`Finished`](ReadError::Finished), [`UnexpectedEof`](ReadError::UnexpectedEof) | `UnexpectedEof` | the stream has ended: where a message was to come, or within one |
/// | [`Datagram`](Self::Datagram) with [`Disabled`](DatagramSendError::Disabled) | `Unsupported` | datagrams are not configured |
/// | `Datagram` with [`TooLarge`](DatagramSendError::TooLarge) | `InvalidInput` | the datagram does not fit a packet |
/// | `Datagram` with [`ShutDown`](DatagramSendError::ShutDown) | `BrokenPipe` | this end has shut down |
/// | [`Refused`](Self::Refused) | `ConnectionRefused` | nobody listens at the peer's address |
/// | [`NoAnswer`](Self::NoAnswer) | `TimedOut` | the peer has not answered within the time that the caller gave |
/// | [`EndpointClosed`](Self::EndpointClosed) | `ConnectionAborted` | the listener or endpoint was shut down or aborted, and the session with it |
/// | [`KeyRetired`](Self::KeyRetired) | `ConnectionAborted` | the listener's key was replaced, and the time of the old one is over |
/// | [`Replaced`](Self::Replaced) | `ConnectionReset` | the peer began another session in its place |
/// | [`Evicted`](Self::Evicted) | `ConnectionReset` | the peer did not answer, and the session gave way to another one |
/// | [`ConvInUse`](Self::ConvInUse) | `AddrInUse` | the socket has a session with this peer and conv |
/// | [`OtherCipher`](Self::OtherCipher) | `InvalidInput` | sessions of one socket with one peer must have the same cipher, and agree on keys all or none |
/// | [`NoKey`](Self::NoKey), [`OtherKind`](Self::OtherKind) | `InvalidInput` | the key of accepted sessions cannot be replaced by this one |
/// | [`RuntimeGone`](Self::RuntimeGone) | `NotConnected` | the Tokio runtime of the socket was shut down |
/// | [`Network`](Self::Network) | the system's | nothing could be sent, for that reason, until the peer counted as dead or it was clear that the reason stays |
/// | [`NotFollowed`](Self::NotFollowed) | `Unsupported` | the peer does not follow this end to another address |
/// | [`SocketShared`](Self::SocketShared) | `InvalidInput` | other streams have the same socket |
/// | [`OtherFamily`](Self::OtherFamily) | `InvalidInput` | one socket is of IPv4 and the other of IPv6 |
/// | [`Sharded`](Self::Sharded), [`OtherAddress`](Self::OtherAddress) | `InvalidInput` | a listener of several sockets cannot do this |
/// | [`ShardsUnsupported`](Self::ShardsUnsupported) | `Unsupported` | the system cannot spread packets over several sockets |
/// | [`ListenerClosed`](Self::ListenerClosed) | `NotConnected` | nothing more is accepted |
/// | [`NotListening`](Self::NotListening) | `InvalidInput` | the endpoint never accepted sessions |
/// | [`ShutdownTimeout`](Self::ShutdownTimeout) | `TimedOut` | sessions were aborted at the deadline of a shutdown |
/// | [`NoPort`](Self::NoPort), [`NoIpv6`](Self::NoIpv6), [`NoScope`](Self::NoScope) | `InvalidInput` | the socket cannot send to such an address |
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use kcp9::{KcpConfig, KcpError, KcpStream, proto::CloseReason};
/// use tokio::io::AsyncReadExt;
///
/// let mut stream = KcpStream::connect("127.0.0.1:9", KcpConfig::default()).await?;
/// stream.abort();
/// let error = stream.read_u8().await.unwrap_err();
/// assert_eq!(KcpError::find(&error), Some(KcpError::Closed(CloseReason::Aborted)));
/// assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KcpError {
    /// The session has ended, for a reason of its own.
    Closed(CloseReason),
    /// Nothing was read.
    Read(ReadError),
    /// Nothing was written.
    Write(WriteError),
    /// A datagram was not sent or received.
    Datagram(DatagramSendError),
    /// The network says that nobody listens at the peer's address (by ICMP), and nothing was ever heard from there. The session
    /// lives: somebody may listen later.
    Refused,
    /// The peer has not answered within the time that the caller gave. The session lives.
    NoAnswer,
    /// The listener or endpoint of the session was [shut down](crate::KcpEndpoint::shutdown) or
    /// [aborted](crate::KcpEndpoint::abort).
    EndpointClosed,
    /// The key of the session is accepted no longer: see [`KcpListener::rotate_key`](crate::KcpListener::rotate_key).
    KeyRetired,
    /// The peer began another session from the same address, and the listener allows only
    /// [one](crate::KcpConfigBuilder::one_session_per_address).
    Replaced,
    /// The peer had not shown that it hears this end, for ten seconds or with a second of silence, and there were too many such sessions:
    /// see [`max_half_open`](crate::KcpConfigBuilder::max_half_open).
    Evicted,
    /// The socket already has a session with the same peer and conv.
    ConvInUse,
    /// The socket has a session with the same peer that has another cipher, or that agrees on keys while this one does not, or the
    /// other way round. Their packets could not be told apart.
    OtherCipher,
    /// A key was to be [replaced](crate::KcpListener::rotate_key) where nothing is accepted, or nothing is encrypted.
    NoKey,
    /// A key was to be [replaced](crate::KcpListener::rotate_key) by a cipher that differs in more than its key.
    OtherKind,
    /// The task that serves the socket has ended, with its runtime.
    RuntimeGone,
    /// Nothing could be sent. Errors that may pass (no route, no buffers, a firewall) end no session before
    /// [`dead_timeout`](crate::KcpConfigBuilder::dead_timeout) does. Or the stream's segments were too long for the way to the peer
    /// (`EMSGSIZE`), for as long: see [`mtu`](crate::KcpConfigBuilder::mtu).
    Network {
        /// The kind of the last failure.
        kind: io::ErrorKind,
        /// What the operating system calls it, as in [`io::Error::raw_os_error`].
        os_code: Option<i32>,
    },
    /// The peer does not follow to another address: it began the session, has no extensions, has not answered yet, or the
    /// cipher does not authenticate packets. See [`network_changed`](crate::KcpStream::network_changed).
    NotFollowed,
    /// A stream was to go on over another socket, but shares the one that it has: [`KcpEndpoint::rebind`](crate::KcpEndpoint::rebind)
    /// is for that.
    SocketShared,
    /// A socket of IPv4 was to take the place of one of IPv6, or the other way round.
    OtherFamily,
    /// A listener of several sockets ([`shards`](crate::KcpConfigBuilder::shards)) was to connect, or to go on over another socket.
    Sharded,
    /// The sockets of one listener are bound to different addresses.
    OtherAddress,
    /// The system does not spread what is sent to a port over several sockets, as [`shards`](crate::KcpConfigBuilder::shards) needs.
    ShardsUnsupported,
    /// The listener was closed, or has stopped accepting and has handed out what was waiting.
    ListenerClosed,
    /// The endpoint was made to connect only: it accepts no sessions.
    NotListening,
    /// Not all sessions were done at the deadline of a [shutdown](crate::KcpEndpoint::shutdown).
    ShutdownTimeout {
        /// How many were aborted.
        aborted: usize,
    },
    /// The peer's port is 0.
    NoPort,
    /// The peer has an IPv6 address, and the socket is of IPv4.
    NoIpv6,
    /// The peer's IPv6 address is one of a link, and which link (the scope) is said neither by it nor by the socket's address.
    NoScope,
}

impl KcpError {
    /// Finds the reason in an error, or in what caused it: HTTP libraries and others wrap the `io::Error` of a stream in errors of
    /// their own. `None` for an error that did not come from here.
    #[must_use]
    pub fn find(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(*found);
            }
            // An `io::Error` does not name what is inside of it as its source, but the source of that.
            if let Some(inside) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                let inside: &(dyn Error + 'static) = inside;
                next = Some(inside);
            } else {
                next = error.source();
            }
        }
        None
    }

    /// The kind of the `io::Error` that has this inside.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match *self {
            Self::Closed(reason) => io::Error::from(reason).kind(),
            Self::Read(error) => io::Error::from(error).kind(),
            Self::Write(error) => io::Error::from(error).kind(),
            Self::Datagram(error) => io::Error::from(error).kind(),
            Self::Network { kind, .. } => kind,
            Self::Refused => io::ErrorKind::ConnectionRefused,
            Self::NoAnswer | Self::ShutdownTimeout { .. } => io::ErrorKind::TimedOut,
            Self::EndpointClosed | Self::KeyRetired => io::ErrorKind::ConnectionAborted,
            Self::NotFollowed | Self::ShardsUnsupported => io::ErrorKind::Unsupported,
            Self::Replaced | Self::Evicted => io::ErrorKind::ConnectionReset,
            Self::ConvInUse => io::ErrorKind::AddrInUse,
            // Not a kind that servers take for the failure of one client: they would accept again, for ever.
            Self::RuntimeGone | Self::ListenerClosed => io::ErrorKind::NotConnected,
            Self::OtherCipher
            | Self::NoKey
            | Self::OtherKind
            | Self::NotListening
            | Self::SocketShared
            | Self::OtherFamily
            | Self::Sharded
            | Self::OtherAddress
            | Self::NoPort
            | Self::NoIpv6
            | Self::NoScope => io::ErrorKind::InvalidInput,
        }
    }

    /// There are no keys to begin or to accept sessions with.
    #[cfg(feature = "noise")]
    pub(super) fn of_noise(error: crate::proto::noise::NoiseError) -> Self {
        Self::Closed(CloseReason::HandshakeFailed(crate::proto::HandshakeError::Noise(error.into())))
    }

    pub(super) fn network(error: &io::Error) -> Self {
        Self::Network { kind: error.kind(), os_code: error.raw_os_error() }
    }
}

impl From<KcpError> for io::Error {
    fn from(error: KcpError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<CloseReason> for KcpError {
    fn from(reason: CloseReason) -> Self {
        Self::Closed(reason)
    }
}

impl From<ReadError> for KcpError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Closed(reason) => Self::Closed(reason),
            error => Self::Read(error),
        }
    }
}

impl From<WriteError> for KcpError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Closed(reason) => Self::Closed(reason),
            error => Self::Write(error),
        }
    }
}

impl From<DatagramSendError> for KcpError {
    fn from(error: DatagramSendError) -> Self {
        match error {
            DatagramSendError::Closed(reason) => Self::Closed(reason),
            error => Self::Datagram(error),
        }
    }
}

impl fmt::Display for KcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(reason) => return reason.fmt(f),
            Self::Read(error) => return error.fmt(f),
            Self::Write(error) => return error.fmt(f),
            Self::Datagram(error) => return error.fmt(f),
            Self::Network { os_code: Some(code), .. } => {
                return write!(f, "sending failed: {}", io::Error::from_raw_os_error(*code));
            }
            Self::Network { kind, .. } => return write!(f, "sending failed: {kind}"),
            Self::ShutdownTimeout { aborted } => {
                return write!(f, "{aborted} sessions were aborted at the deadline of the shutdown");
            }
            Self::Refused => "nobody listens at the peer's address",
            Self::NoAnswer => "the peer has not answered in time",
            Self::EndpointClosed => "the endpoint or listener of the session was shut down",
            Self::KeyRetired => "the key of the session is accepted no longer",
            Self::NoKey => "no sessions are accepted under a key",
            Self::OtherKind => "the new cipher is of another kind than the one before",
            Self::Replaced => "the peer began another conversation from the same address",
            Self::Evicted => "the peer did not answer, and the session gave way to another one",
            Self::ConvInUse => "the socket already has this conversation with this peer",
            Self::OtherCipher => {
                "streams of one socket to one peer must have the same cipher, and agree on keys all or none"
            }
            Self::RuntimeGone => "the runtime that served the socket was shut down",
            Self::NotFollowed => "the peer does not follow to another address",
            Self::SocketShared => "other streams share the socket",
            Self::OtherFamily => "one socket is of IPv4, and the other of IPv6",
            Self::Sharded => "a listener of several sockets cannot connect, nor go on over another socket",
            Self::OtherAddress => "the sockets are bound to different addresses",
            Self::ShardsUnsupported => "the system does not spread packets over several sockets",
            Self::ListenerClosed => "the listener was closed",
            Self::NotListening => "the endpoint does not accept sessions",
            Self::NoPort => "the peer's port is 0",
            Self::NoIpv6 => "an IPv4 socket cannot reach an IPv6 peer",
            Self::NoScope => "the peer's address is one of a link, and does not say of which",
        })
    }
}

impl Error for KcpError {}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;
    use crate::proto::{AbortReason, HandshakeError};

    /// As libraries wrap errors: the cause is only reachable as a source.
    #[derive(Debug)]
    struct Wrapped(io::Error);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the request failed")
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn the_reason_is_found_however_deep_it_lies() {
        let reason = KcpError::Closed(CloseReason::IdleTimeout);
        let direct = io::Error::from(reason);
        assert_eq!(direct.get_ref().and_then(|inside| inside.downcast_ref()), Some(&reason));
        assert_eq!(KcpError::find(&direct), Some(reason));
        let twice = Wrapped(io::Error::other(Wrapped(direct)));
        assert_eq!(KcpError::find(&twice), Some(reason));
        assert_eq!(KcpError::find(&Wrapped(io::Error::from_raw_os_error(1))), None);
        assert_eq!(KcpError::find(&io::Error::from(io::ErrorKind::WouldBlock)), None);
    }

    #[test]
    fn the_kind_says_who_may_try_again() {
        for (error, kind) in [
            (CloseReason::DeadLink.into(), io::ErrorKind::TimedOut),
            (CloseReason::LingerTimeout.into(), io::ErrorKind::TimedOut),
            (CloseReason::IdleTimeout.into(), io::ErrorKind::TimedOut),
            (CloseReason::AbortedByPeer(AbortReason::Application).into(), io::ErrorKind::ConnectionReset),
            (CloseReason::Reset.into(), io::ErrorKind::ConnectionReset),
            (CloseReason::Aborted.into(), io::ErrorKind::ConnectionAborted),
            (CloseReason::Refused.into(), io::ErrorKind::ConnectionRefused),
            (CloseReason::PeerLacksExtensions.into(), io::ErrorKind::Unsupported),
            (CloseReason::HandshakeFailed(HandshakeError::Version).into(), io::ErrorKind::InvalidData),
            (CloseReason::NonceLimit.into(), io::ErrorKind::QuotaExceeded),
            (CloseReason::Finished.into(), io::ErrorKind::NotConnected),
            (WriteError::ShutDown.into(), io::ErrorKind::BrokenPipe),
            (WriteError::NoReader.into(), io::ErrorKind::BrokenPipe),
            (WriteError::MessageTooLong { max: 9 }.into(), io::ErrorKind::InvalidInput),
            (WriteError::Closed(CloseReason::IdleTimeout).into(), io::ErrorKind::TimedOut),
            (ReadError::Closed(CloseReason::Reset).into(), io::ErrorKind::ConnectionReset),
            (ReadError::UnexpectedEof.into(), io::ErrorKind::UnexpectedEof),
            (DatagramSendError::Disabled.into(), io::ErrorKind::Unsupported),
            (DatagramSendError::TooLarge { max: 9 }.into(), io::ErrorKind::InvalidInput),
            (DatagramSendError::ShutDown.into(), io::ErrorKind::BrokenPipe),
            (KcpError::Refused, io::ErrorKind::ConnectionRefused),
            (KcpError::NoAnswer, io::ErrorKind::TimedOut),
            (KcpError::EndpointClosed, io::ErrorKind::ConnectionAborted),
            (KcpError::KeyRetired, io::ErrorKind::ConnectionAborted),
            (KcpError::OtherKind, io::ErrorKind::InvalidInput),
            (KcpError::ListenerClosed, io::ErrorKind::NotConnected),
            (KcpError::NotFollowed, io::ErrorKind::Unsupported),
            (KcpError::SocketShared, io::ErrorKind::InvalidInput),
            (KcpError::network(&io::ErrorKind::NetworkDown.into()), io::ErrorKind::NetworkDown),
        ] {
            assert_eq!(error.kind(), kind, "{error:?}");
            let inside = io::Error::from(error);
            assert_eq!(inside.kind(), kind, "{error:?}");
            assert_eq!(inside.to_string(), error.to_string());
        }
    }
}
