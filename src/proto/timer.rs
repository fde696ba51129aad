//! The timers of a connection, by name.

/// What a connection waits for: from [`Connection::next_timer`](super::Connection::next_timer) and
/// [`Connection::due_timers`](super::Connection::due_timers), for traces and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Timer {
    /// ACKs have waited for [`interval`](crate::NoDelay::interval) and are to be sent.
    Ack,
    /// The peer's window is closed, and it is time to ask for it.
    WindowProbe,
    /// The peer does not go on although the window is open again, and is told once more.
    WindowUpdate,
    /// A segment's retransmission timeout passes.
    Rto,
    /// A later segment was acknowledged, and the time that reordering on the path may take is over.
    EarlyResend,
    /// The pacer lets the next segments go.
    Pacing,
    /// Data has waited for [`write_delay`](crate::KcpConfigBuilder::write_delay) to fill a segment and is to be sent.
    WriteDelay,
    /// Segments have waited for [`fec_flush`](crate::KcpConfigBuilder::fec_flush) for the parity of their group and are to be
    /// copied.
    FecFlush,
    /// The handshake of the [extensions](super::Extensions) goes on: a HELLO is sent again, an answer to the peer's ANSWER leaves,
    /// or the peer has had its time to complete it.
    Hello,
    /// One of the two ends may have another address than before, and is asked again, or has not answered.
    Move,
    /// A FIN is sent again.
    Fin,
    /// The peer has said that it does not know the session. The session ends if it has said nothing else in all the time that its answer
    /// would have taken. With keys of the session's own, it is asked again and again before.
    Reset,
    /// A message waits for memory that all sessions share, and it is time to look whether there is some: see
    /// [`BufferMemory`](super::BufferMemory).
    BufferMemory,
    /// The peer has been silent for [`keep_alive`](crate::KcpConfigBuilder::keep_alive), and is asked whether it is there.
    KeepAlive,
    /// The peer has not shown that it hears this end, and is asked to: see
    /// [`Connection::is_validated`](super::Connection::is_validated).
    AddressValidation,
    /// After a shutdown, the session ends at the end of [`linger`](crate::KcpConfigBuilder::linger).
    Linger,
    /// The peer owes an answer and has been silent: the session ends after
    /// [`dead_timeout`](crate::KcpConfigBuilder::dead_timeout).
    DeadPeer,
    /// No payload has passed: the session ends after [`idle_timeout`](crate::KcpConfigBuilder::idle_timeout).
    Idle,
}
