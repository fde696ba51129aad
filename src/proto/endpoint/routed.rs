//! What an endpoint tells its caller of the packets that it has received.

use alloc::boxed::Box;
use core::{fmt, net::SocketAddr, ops::Range};

use super::{HandOver, Handle};
use crate::proto::Instant;

/// What a batch of packets holds next.
///
/// Other kinds may be added. Ignore what you do not know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Routed {
    /// Packets for a session.
    Session(Run),
    /// Packets for a session that came from another address than its peer's, for
    /// [`Connection::handle_from_elsewhere`](crate::proto::Connection::handle_from_elsewhere). If they are not handed over, the session follows
    /// its peer nowhere.
    FromElsewhere(Run, SocketAddr),
    /// Packets that would begin a session, which is accepted by [`Endpoint::accept`](super::Endpoint::accept) or refused by [`Endpoint::refuse`](super::Endpoint::refuse).
    Incoming(Incoming),
    /// A packet to be sent, which is [`Endpoint::reply`](super::Endpoint::reply): the endpoint itself answers what it received. Nothing else comes of
    /// it, and nothing breaks if it is not sent: whoever asked asks again.
    Reply(Reply),
    /// Packets for a session of another shard. They come only of an endpoint that was made as one of several
    /// ([`Endpoint::accepting_as_shard`](super::Endpoint::accepting_as_shard)). If they are not handed over, it is as if they were lost.
    OtherShard(Box<HandOver>),
}

/// An answer of the endpoint itself, to packets of no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// Where the answer is to be sent: the source of what it answers.
    pub to: SocketAddr,
}

/// Decrypted packets of one session that lie one behind the other in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The session that they are for.
    pub handle: Handle,
    /// Where they are in the batch, in bytes.
    pub range: Range<usize>,
    /// Bytes of each but the last, which may be shorter.
    pub stride: usize,
}

/// A session that a peer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incoming {
    /// The address of the peer. Where packets are not authenticated, anybody may have forged it.
    pub source: SocketAddr,
    /// The conversation, for [`Connection::accept`](crate::proto::Connection::accept).
    pub conv: u32,
    /// How many packets of it were received at once.
    pub packets: usize,
    /// Whether a HELLO of the [extensions](crate::proto::Extensions) is among them. Else it is begun by the first PUSH, as with any
    /// peer; a HELLO may still come.
    pub by_hello: bool,
    /// Whether the peer has returned a cookie, or has agreed on keys with this end, so that `source` is its own. Then the connection is to be told by
    /// [`Connection::set_validated`](crate::proto::Connection::set_validated). Else the session is half-open.
    pub validated: bool,
    /// From when on its connection may send a message beyond three times what came, if the peer is not validated by then: for
    /// [`Connection::set_message_at`](crate::proto::Connection::set_message_at). Of one IPv4 address, or 64 bits of an IPv6 address, 16
    /// sessions may do so at once and 16 more each second. An instant at the end of the clock never comes: the peer has to be validated first.
    pub message_at: Instant,
    /// Whether its packets are under the key that is being replaced: see [`Endpoint::rotate_key`](super::Endpoint::rotate_key). Then
    /// the connection needs a configuration with that one.
    pub retiring_key: bool,
    /// Whether its peer has agreed on keys with this end: see
    /// [`Endpoint::take_session_keys`](super::Endpoint::take_session_keys).
    #[cfg(feature = "noise")]
    pub sealed: bool,
}

/// A session that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "its packets are to be handed to its connection"]
pub struct Accepted {
    /// The handle of the session, and the packets that began it.
    pub run: Run,
    /// The session with the same address that ends by this one: see
    /// [`one_session_per_address`](crate::KcpConfigBuilder::one_session_per_address). The endpoint has forgotten it already.
    pub replaced: Option<Handle>,
    /// The half-open session that gave way to this one, because there were as many as
    /// [`max_half_open`](crate::KcpConfigBuilder::max_half_open) or another limit allows, or because its peer has agreed on other keys
    /// since. The endpoint has forgotten it already.
    pub evicted: Option<Handle>,
}

/// Why a session is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Too many sessions wait to be accepted. The peer sends again, and may find room then.
    QueueFull,
    /// No sessions are accepted, or not this one.
    Unwanted,
}

/// Why a session does not get another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MoveError {
    /// The endpoint has no such session.
    Unknown,
    /// The endpoint has another session of the conversation with that address.
    ConvInUse(Handle),
    /// Another shard has such a session.
    ConvInUseElsewhere,
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "there is no such session",
            Self::ConvInUse(_) | Self::ConvInUseElsewhere => {
                "the conversation number is in use with the new address"
            }
        })
    }
}

impl core::error::Error for MoveError {}

/// Why a session cannot begin here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The endpoint has a session of the conversation with the peer.
    ConvInUse(Handle),
    /// The sessions with the peer have another cipher, or they agree on keys and this one does not, or the other way round. Which of
    /// them a packet is for cannot be told before it is decrypted.
    OtherCipher,
    /// The endpoint is one of several behind one port. What the peer answers may arrive at another one.
    IsShard,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConvInUse(_) => "the conversation number is in use with this peer",
            Self::OtherCipher => {
                "sessions with one peer must have the same cipher, and agree on keys all or none"
            }
            Self::IsShard => "the endpoint is one of several behind one port",
        })
    }
}

impl core::error::Error for ConnectError {}
