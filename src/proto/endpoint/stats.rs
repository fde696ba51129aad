//! What an endpoint has counted.

use crate::crypto::OpenError;

/// What an [`Endpoint`](super::Endpoint) has accepted and dropped, in packets unless it says otherwise. Counters start at
/// zero with the endpoint and only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RoutingStats {
    /// Sessions that were accepted.
    pub accepted: u64,
    /// Not dropped: they are for sessions of other shards, and were handed over to these.
    pub handed_over: u64,
    /// Dropped: too short for a segment's header, or for what encryption puts around it.
    pub dropped_short: u64,
    /// Dropped: longer than the cipher takes.
    pub dropped_long: u64,
    /// Dropped: the checksum was wrong. They are damaged, or encrypted with another key.
    pub dropped_bad_checksum: u64,
    /// Dropped: the tag was wrong. They are forged, damaged, or encrypted with another key.
    pub dropped_bad_tag: u64,
    /// Dropped: messages of a key agreement that this end refuses. Their senders have other keys, another pattern or another version,
    /// or they are forged or damaged.
    pub dropped_no_agreement: u64,
    /// Dropped: they are of no session and begin none, or none is accepted.
    pub dropped_no_session: u64,
    /// Dropped: they carry the first PUSH of an unknown session, and a session begins with a HELLO only, because the
    /// extensions are [required](crate::proto::Extensions::Required). A peer that has them sends both again.
    pub dropped_no_hello: u64,
    /// Dropped: they are of a session that ended a moment ago.
    pub dropped_recently_closed: u64,
    /// Dropped: they began a session before, which they may do only once.
    pub dropped_replayed: u64,
    /// Dropped: they would have begun a session, but too many wait to be accepted
    /// ([`Refusal::QueueFull`](super::Refusal::QueueFull)).
    pub dropped_queue_full: u64,
    /// Dropped: they would have begun a session, but there are [`max_sessions`](crate::KcpConfigBuilder::max_sessions), and none gave way.
    pub dropped_max_sessions: u64,
    /// The same for [`max_half_open`](crate::KcpConfigBuilder::max_half_open).
    pub dropped_max_half_open: u64,
    /// The same for [`max_half_open_of_network`](crate::KcpConfigBuilder::max_half_open_of_network).
    pub dropped_max_half_open_of_network: u64,
    /// Dropped: they would have begun a session, but their sender is to return a cookie first.
    pub dropped_no_cookie: u64,
    /// Dropped before they were decrypted: while packets were lost, their source had sent more than its share
    /// ([`Endpoint::note_overload`](super::Endpoint::note_overload)).
    pub dropped_over_share: u64,
    /// Half-open sessions that gave way to others.
    pub evicted: u64,
    /// HELLOs that were answered by a cookie, and must come again with it.
    pub retries: u64,
    /// Sent in answer to packets that were dropped: see [`Routed::Reply`](super::Routed::Reply).
    pub replies_sent: u64,
    /// Answers that were not sent, because too many were.
    pub replies_limited: u64,
}

impl RoutingStats {
    /// Counts a packet that could not be decrypted.
    #[cold]
    pub(super) fn count_refused(&mut self, error: OpenError) {
        match error {
            OpenError::TooShort => self.dropped_short += 1,
            OpenError::TooLong => self.dropped_long += 1,
            OpenError::BadChecksum => self.dropped_bad_checksum += 1,
            OpenError::BadTag => self.dropped_bad_tag += 1,
        }
    }
}
