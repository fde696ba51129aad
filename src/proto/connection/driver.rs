//! What only the driver of the Tokio layer asks.
//!
//! The answers save it work: a look at the clock, a system call, a turn of the driver. A caller without them is as correct,
//! so that they are no part of the public interface.

use core::time::Duration;

use super::{Connection, State, ends::EndEvents};
use crate::proto::time::Instant;

impl Connection {
    /// Whether [`poll_event`](Self::poll_event) has anything but an event of FEC, for which nobody waits. It is asked behind each
    /// write, and an event is larger than the answer.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        let has_flag = self.readable | self.writable | self.datagram_readable | self.connected;
        has_flag || self.end_events != EndEvents::NONE
    }

    /// Whether a reader of the stream finds something, or one of datagrams.
    pub(crate) fn has_unread(&self) -> bool {
        self.is_readable() || self.datagrams.has_unread()
    }

    /// Whether anything was heard from the peer.
    pub(crate) const fn has_heard(&self) -> bool {
        self.arq.has_heard()
    }

    /// Whether anything waits to be sent: what [`flush`](Self::flush) would send, or what the windows hold up.
    pub(crate) const fn has_held_back(&self) -> bool {
        self.arq.has_held_back()
    }

    /// Whether written data waits that the windows have room for: what a corked transmission has left.
    pub(crate) fn has_sendable(&self) -> bool {
        #[cfg(feature = "noise")]
        if self.is_asking() {
            return false;
        }
        self.arq.has_sendable()
    }

    /// Whether a corked [`transmit`](Self::transmit) finds nothing to send. Most writes of a few bytes end here.
    #[inline]
    pub(crate) fn holds_all_back(&self) -> bool {
        self.arq.holds_all_back() && self.sends_stream_only()
    }

    /// Takes the whole of a write if it is kept for further ones, so that [`holds_all_back`](Self::holds_all_back) says yes behind it,
    /// and needs no look at the clock. Returns whether it did.
    #[inline]
    pub(crate) fn write_kept(&mut self, bytes: &[u8]) -> bool {
        !bytes.is_empty() && self.sends_stream_only() && self.arq.write_kept(bytes)
    }

    /// Whether the session goes on and only data of its stream is to be sent.
    #[inline]
    fn sends_stream_only(&self) -> bool {
        self.state == State::Established && !self.datagrams.is_turn() && !self.has_urgent_extension()
    }

    /// Whether nothing is in flight and nothing waits that may be sent now. Then
    /// [`poll_transmit`](Self::poll_transmit) finds nothing until the next deadline, which may have come already. ACKs may
    /// be held back until then.
    pub(crate) fn is_quiet(&self) -> bool {
        #[cfg(feature = "noise")]
        if self.agreement.is_some() {
            return false;
        }
        self.arq.is_quiet()
            && !self.datagrams.has_unsent()
            && self.pipeline.parity_len().is_none()
            && !self.has_urgent_extension()
            && !self.arq.is_validating()
    }

    /// The network says that nobody receives what is sent to the peer. Only a peer that had said before that it was done has ended
    /// with that (R31a); any other may be back before long.
    pub(crate) fn note_unreachable(&mut self, now: Instant) {
        let all_acked = self.arq.is_flushed();
        if self.extension.as_mut().is_some_and(|extension| extension.ends.on_unreachable(all_acked)) {
            self.check_ends(now);
        }
    }

    /// The number of the oldest segment that the peer has not acknowledged. The stream stands still while it is the same.
    pub(crate) fn oldest_in_flight(&self) -> Option<u32> {
        self.arq.oldest_in_flight()
    }

    /// How long a peer may be silent that owes an answer.
    pub(crate) const fn dead_timeout(&self) -> Duration {
        self.dead_timeout.get()
    }

    /// Bytes written that the peer has not acknowledged.
    pub(crate) const fn undelivered_bytes(&self) -> usize {
        self.arq.undelivered_bytes()
    }

    /// Whether a window update waits to be sent, as it may after a read.
    pub(crate) const fn has_window_update(&self) -> bool {
        self.arq.has_window_update()
    }
}
