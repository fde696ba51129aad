//! Whether packets are lost because more come than the driver receives: see [`Endpoint::note_overload`](crate::proto::Endpoint::note_overload).
//!
//! That takes two signs. The socket was never empty for [`LOOK`] turns in a row, or for [`LOOK_TIME`], so that the driver was not only
//! kept from its work for a moment. And in as long again, the system dropped packets for want of room. Where it does not tell, the
//! socket must not have been empty for [`STANDING`] instead, as a queue that stands for that long is not one that a burst has left.
//!
//! One burst is no overload, however large: all clients of a server that was restarted come at once, more than the socket holds, and
//! what was lost of it comes again. With shares, most of them would be turned away as strangers until they have come many times. So
//! both signs must have been there for [`PATIENCE`]. A pause counts against that for a quarter of its length: a flood in bursts is a
//! flood. From then on every loss counts at once, until there were none for [`MEMORY`].

use std::time::Duration;

use super::Driver;
use crate::proto::Instant;

/// Turns between two looks. Each receives a full batch, so this is a thousand packets, or 64 MB where the system coalesces them.
const LOOK: u32 = 64;
/// With a slow cipher, a turn may take a tenth of a second. Then so much time, in which there were two turns.
const LOOK_TIME: Duration = Duration::from_millis(20);
/// How long a queue may stand: the interval of CoDel (RFC 8289).
const STANDING: Duration = Duration::from_millis(100);
/// For how long packets must be lost before that is overload: 8,192 clients that open at once are served in less.
const PATIENCE: Duration = Duration::from_secs(1);
/// After an overload, losses count at once for so long: while a flood lasts, shares grow every second or two until packets are lost again.
const MEMORY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Overload {
    /// Turns in a row that received something, since the last look.
    turns: u32,
    /// When that was, or the first of these turns.
    since: Instant,
    /// The first look since the socket was empty, and how many packets it had lost at the last one.
    looked: Option<(Instant, u32)>,
    /// For how long packets have been lost, less a quarter of the time in which none were. `PATIENCE` at the most.
    losing: Duration,
    /// Up to when that is counted.
    counted_to: Instant,
    /// The last overload.
    overloaded_at: Option<Instant>,
}

impl Overload {
    /// The socket was found empty.
    #[inline]
    pub(super) const fn end(&mut self) {
        self.turns = 0;
        self.looked = None;
    }

    /// A turn found packets in the socket. Returns whether it is time for a look.
    #[inline]
    pub(super) fn note(&mut self, now: Instant) -> bool {
        if self.turns == 0 {
            self.since = now;
        }
        self.turns += 1;
        self.turns >= LOOK || self.turns > 2 && now - self.since >= LOOK_TIME
    }

    /// What a look has found: how many packets the socket had lost since it was made, or 0 if none or not told yet. `None` where it is
    /// never told. Returns whether packets are being lost.
    fn look(&mut self, now: Instant, lost: Option<u32>) -> bool {
        (self.turns, self.since) = (1, now);
        let before = self.looked;
        let first = before.map_or(now, |(first, _)| first);
        self.looked = Some((first, lost.unwrap_or(0)));
        let is_losing = match (lost, before) {
            (None, _) => now - first >= STANDING,
            (Some(_), None) => false,
            (Some(lost), Some((_, before))) => lost != before && lost > 0,
        };
        let passed = now - self.counted_to;
        self.counted_to = now;
        if is_losing {
            self.losing = (self.losing + passed).min(PATIENCE);
        } else {
            self.losing = self.losing.saturating_sub(passed / 4);
        }
        let was_overloaded = self.overloaded_at.is_some_and(|at| now - at < MEMORY);
        let is_overload = is_losing && (was_overloaded || self.losing == PATIENCE);
        if is_overload {
            self.overloaded_at = Some(now);
        }
        is_overload
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

    /// Packets were lost for so long before that a little more is overload.
    fn losing() -> Overload {
        Overload { losing: PATIENCE, counted_to: NOW, ..Overload::default() }
    }

    /// Looks after a pause, each 50 ms until the socket is empty, each of which finds what is given; returns what they say.
    fn looks<const N: usize>(overload: &mut Overload, pause: Duration, lost: [Option<u32>; N]) -> [bool; N] {
        let mut at = overload.counted_to + pause;
        let outcome = lost.map(|lost| {
            at += STANDING / 2;
            while !overload.note(at) {}
            overload.look(at, lost)
        });
        overload.end();
        outcome
    }

    #[test]
    fn losses_while_the_socket_is_never_empty_are_overload_and_those_before_are_not() {
        let mut overload = losing();
        assert_eq!(
            looks(&mut overload, Duration::ZERO, [Some(0), Some(3), Some(3), Some(4)]),
            [false, true, false, true]
        );
        assert_eq!(looks(&mut overload, Duration::ZERO, [Some(9), Some(10), Some(11)]), [false, true, true]);
    }

    #[test]
    fn where_losses_are_not_told_a_queue_that_stands_is_overload() {
        let mut overload = losing();
        assert_eq!(looks(&mut overload, Duration::ZERO, [None; 4]), [false, false, true, true]);
        assert_eq!(looks(&mut overload, Duration::ZERO, [None; 2]), [false, false]);
    }

    #[test]
    fn one_burst_is_no_overload_and_many_are() {
        let mut overload = Overload { counted_to: NOW, ..Overload::default() };
        // The first look is to compare with; the others find losses, in 550 ms together.
        let burst = std::array::from_fn::<_, 12, _>(|at| Some(at as u32));
        let mut is_overload =
            |pause| looks(&mut overload, Duration::from_millis(pause), burst).contains(&true);
        assert!(!is_overload(0));
        // Long after, it is forgotten.
        assert!(!is_overload(10_000));
        assert_eq!([500, 500].map(&mut is_overload), [false, true]);
        // It is known for a while, and then forgotten, too.
        assert!(is_overload(5_000));
        assert!(!is_overload(10_000));
    }

    #[test]
    fn a_socket_that_is_now_and_then_empty_is_not_looked_at() {
        let mut overload = Overload::default();
        for _ in 0..10 {
            assert!((1..LOOK).all(|_| !overload.note(NOW)));
            overload.end();
        }
        // Nor after a pause.
        assert!(!overload.note(NOW + STANDING) && !overload.note(NOW + STANDING));
    }

    #[test]
    fn long_turns_are_looked_at_sooner() {
        let mut overload = Overload::default();
        let turns = [0, 15, 30, 31].map(|ms| overload.note(NOW + Duration::from_millis(ms)));
        assert_eq!(turns, [false, false, true, true]);
        assert!(!overload.look(NOW + LOOK_TIME, Some(0)));
        let turns = [30, 45, 60].map(|ms| overload.note(NOW + Duration::from_millis(ms)));
        assert_eq!(turns, [false, true, true]);
    }
}
