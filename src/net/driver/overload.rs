//! Whether packets are lost because more come than the driver receives: see [`Endpoint::note_overload`](crate::proto::Endpoint::note_overload).
//!
//! That takes two signs. The socket was never empty for [`LOOK`] turns in a row, so that the driver was not only kept from its work
//! for a moment. And in as many turns more, the system dropped packets for want of room. Where it does not tell, the socket must not
//! have been empty for [`STANDING`] instead, as a queue that stands for that long is not one that a burst has left.

use std::time::Duration;

use super::Driver;
use crate::proto::Instant;

/// Turns between two looks. Each receives a full batch, so this is a thousand packets, or 64 MB where the system coalesces them.
const LOOK: u32 = 64;
/// How long a queue may stand: the interval of CoDel (RFC 8289).
const STANDING: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Overload {
    /// Turns in a row that received something.
    turns: u32,
    /// The packets that the socket had lost at the last look.
    lost: u32,
    /// When the first of these looks was.
    since: Instant,
}

impl Overload {
    /// A turn found packets in the socket or did not. Returns whether it is time for a look.
    #[inline]
    pub(super) const fn note(&mut self, received: bool) -> bool {
        self.turns = if received { self.turns.wrapping_add(1) } else { 0 };
        received && self.turns.is_multiple_of(LOOK)
    }

    /// What a look has found: how many packets the socket had lost since it was made, or 0 if none or not told yet. `None` where it is
    /// never told. Returns whether packets are being lost.
    fn look(&mut self, now: Instant, lost: Option<u32>) -> bool {
        let is_first = self.turns == LOOK;
        if is_first {
            self.since = now;
        }
        let Some(lost) = lost else { return now - self.since >= STANDING };
        let before = std::mem::replace(&mut self.lost, lost);
        !is_first && lost != before && lost > 0
    }
}

impl Driver {
    #[cold]
    pub(super) fn look_for_overload(&mut self, now: Instant) {
        if self.overload.look(now, self.socket.lost()) {
            self.endpoint.note_overload(now);
            self.plan_forgetting();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1_000);

    /// Looks until the socket is empty, each of which finds what is given; returns what they say.
    fn looks<const N: usize>(overload: &mut Overload, lost: [Option<u32>; N]) -> [bool; N] {
        let mut at = NOW;
        let outcome = lost.map(|lost| {
            at += STANDING / 2;
            while !overload.note(true) {}
            overload.look(at, lost)
        });
        assert!(!overload.note(false));
        outcome
    }

    #[test]
    fn losses_while_the_socket_is_never_empty_are_overload_and_those_before_are_not() {
        let mut overload = Overload::default();
        assert_eq!(looks(&mut overload, [Some(0), Some(0), Some(3)]), [false, false, true]);
        assert_eq!(looks(&mut overload, [Some(9), Some(9), Some(10)]), [false, false, true]);
    }

    #[test]
    fn where_losses_are_not_told_a_queue_that_stands_is_overload() {
        let mut overload = Overload::default();
        assert_eq!(looks(&mut overload, [None; 4]), [false, false, true, true]);
        assert_eq!(looks(&mut overload, [None; 2]), [false, false]);
    }

    #[test]
    fn a_socket_that_is_now_and_then_empty_is_not_looked_at() {
        let mut overload = Overload::default();
        assert!((0..10 * LOOK).all(|turn| !overload.note(turn % (LOOK - 1) > 0)));
    }
}
