//! What a session has done.

/// Counters since the beginning of a session, and gauges of what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MuxStats {
    /// Streams that are open: those of the peer that wait to be accepted, and those whose handles live.
    pub open_streams: usize,
    /// Streams opened by this end.
    pub opened: u64,
    /// Streams of the peer that were accepted.
    pub accepted: u64,
    /// Streams of the peer that were refused.
    pub refused: u64,
    /// Bytes of streams that were taken to be sent.
    pub bytes_sent: u64,
    /// Bytes of streams that were received.
    pub bytes_received: u64,
    /// Frames of any kind that were received.
    pub frames_received: u64,
    /// Bytes that wait to be read.
    pub unread_bytes: usize,
}
