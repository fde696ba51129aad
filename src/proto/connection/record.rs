//! What a connection leaves behind when it ends.

use core::time::Duration;

use super::Connection;
use crate::proto::{
    arq::SequenceNumbers,
    error::{AbortReason, CloseReason},
    extension::{Ends, Fin, Identity, MARK, SessionId},
};

/// What an ended session leaves, so that its endpoint can answer what the peer still sends: from [`Connection::record`], for
/// [`Endpoint::close`](crate::proto::Endpoint::close).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedRecord {
    pub(in crate::proto) numbers: SequenceNumbers,
    /// `frg` of ACKs.
    pub(in crate::proto) mark: u8,
    /// Milliseconds in which a peer that resends its last segment is likely to be heard.
    pub(in crate::proto) resend_millis: u16,
    pub(in crate::proto) peer: PeerRecord,
}

/// What the session knew of its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum PeerRecord {
    /// It has no extensions, or this end has none.
    Legacy,
    /// It began the session by a PUSH, and its HELLO may still come.
    Unknown,
    /// It has extensions.
    Known(KnownPeer),
}

/// What a session knew of a peer with extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) struct KnownPeer {
    /// The tag of this end, which the peer's segments carry.
    pub(in crate::proto) tag: u32,
    /// `None`: the session was begun here, and no ANSWER came.
    pub(in crate::proto) id: Option<SessionId>,
    /// The peer's FIN, if it came.
    pub(in crate::proto) fin: Option<Fin>,
    pub(in crate::proto) ended: Ended,
}

/// How a session with a peer that has extensions ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum Ended {
    /// Each direction was done.
    Finished,
    /// As [`Finished`](Self::Finished), and the application had let go of it: nobody was left to read.
    WithoutReader,
    /// It was given up here. The number tells the peer why.
    Aborted(u16),
    /// The peer ended it, or knew it no more.
    ByPeer,
}

impl Connection {
    /// What is left of the session for its endpoint, to be taken when the session has ended or is about to be dropped.
    #[must_use]
    pub fn record(&self) -> ClosedRecord {
        let fin = self.extension.as_ref().and_then(|extension| extension.ends.peer_fin());
        let identity = self.extension.as_ref().map(|extension| extension.identity());
        let peer = match identity {
            None | Some(Identity::Legacy) => PeerRecord::Legacy,
            Some(Identity::Unknown) => PeerRecord::Unknown,
            Some(Identity::Known { tag, peer }) => {
                PeerRecord::Known(KnownPeer { tag, id: peer, fin, ended: self.ended() })
            }
        };
        let mark = if identity.is_some() { MARK } else { 0 };
        let resend_time = (RESENDS * self.arq.rto()).clamp(MIN_RESEND_TIME, MAX_RESEND_TIME);
        let resend_millis = resend_time.as_millis() as u16;
        ClosedRecord { numbers: self.arq.sequence_numbers(), mark, resend_millis, peer }
    }

    /// How the session ended. One that has not was given up by whoever takes its record.
    fn ended(&self) -> Ended {
        let ends = self.extension.as_ref().map(|extension| &extension.ends);
        let reason = match self.close_reason() {
            Some(CloseReason::Finished) if ends.is_some_and(Ends::has_no_reader) => {
                return Ended::WithoutReader;
            }
            Some(CloseReason::Finished) => return Ended::Finished,
            // Whoever takes the record wants nothing more of it, and everything written has arrived.
            None if self.shutdown_result() == Some(Ok(())) => return Ended::WithoutReader,
            Some(CloseReason::AbortedByPeer(_) | CloseReason::Reset | CloseReason::Refused) => {
                return Ended::ByPeer;
            }
            Some(CloseReason::DeadLink) => AbortReason::TimedOut,
            Some(CloseReason::PeerLacksExtensions | CloseReason::HandshakeFailed(_)) => AbortReason::Protocol,
            _ => ends.and_then(Ends::abort_reason).unwrap_or(AbortReason::Application),
        };
        Ended::Aborted(reason.code())
    }
}

/// RTOs in which a peer is likely to have sent its last segment again.
const RESENDS: u32 = 4;
/// At least so long, because round trips of a fast path are over before a busy machine has answered.
const MIN_RESEND_TIME: Duration = Duration::from_millis(500);
/// No longer, because a socket stays open for it.
const MAX_RESEND_TIME: Duration = Duration::from_secs(3);
