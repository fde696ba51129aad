//! What a connection leaves behind when it ends.

use super::Connection;
use crate::proto::arq::SequenceNumbers;

/// What an ended session leaves, so that its endpoint can answer what the peer still sends: from [`Connection::record`], for
/// [`Endpoint::close`](crate::proto::Endpoint::close).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedRecord {
    pub(in crate::proto) numbers: SequenceNumbers,
}

impl Connection {
    /// What is left of the session for its endpoint, to be taken when the session has ended or is about to be dropped.
    #[must_use]
    pub fn record(&self) -> ClosedRecord {
        ClosedRecord { numbers: self.arq.sequence_numbers() }
    }
}
