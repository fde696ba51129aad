//! When half-open sessions may send a message beyond three times what came.
//!
//! A message cannot be cut, so a session may send one beyond that, up to 1,200 bytes (`path::validation`). One host can begin many
//! sessions in a victim's name, by 25 bytes each, and would draw as many messages. So the right to send one belongs to the victim's
//! network: [`BURST`] sessions have it at once, and each [`PER_SECOND`]th of a second one more. A session has the next turn when it is
//! accepted: there is nothing to ask and nothing to give back. It lasts for a second. Turns of sessions that end before, or need none as
//! their peers show that they hear, stay unused. So whatever is forged, no more than `BURST` messages and `PER_SECOND` for each second go
//! since the first session. At one moment, no more go than the turns of one second are: twice as many as `BURST`.
//!
//! Many users may stand behind one address, and this costs them a round trip at most. Where something waits, the peer is asked at once
//! to show that it hears, and then all may go. That is also why turns end at [`HORIZON`]: a session that would have to wait for longer
//! has none, and takes none. Its peer is asked as often as that of any other, and after that time it may have to give way to others. Else a
//! flood would leave a network without turns for long after it has ended.
//!
//! A session that began with 400 bytes or more has room for a message in three times of them, so it needs no turn. Peers with the
//! extensions begin with more: their first HELLOs are padded.

use core::{net::IpAddr, time::Duration};

use super::PATIENCE;
use crate::proto::{
    Instant,
    endpoint::{
        hash::HashKey,
        limit::{NetworkLimit, Rate},
        shard::Shard,
    },
    path::AddressValidation,
};

/// Turns that a network has at once: the users behind one address who begin at the same moment. They draw 22 kB of a forger's 400 bytes,
/// once.
const BURST: u32 = 16;
/// Turns that come back in a second. What a forger can draw for ever, 22 kB/s, is no burden to any line.
const PER_SECOND: u32 = 16;
/// How far in the future a turn may be.
const HORIZON: Duration = PATIENCE;

/// The turns of all networks.
#[derive(Debug)]
pub(super) struct MessageTurns(NetworkLimit);

impl MessageTurns {
    /// `shard`: where it is one of several, which have a part each.
    pub(super) fn new(key: HashKey, shard: Option<&Shard>) -> Self {
        let part = |of_all| shard.map_or(of_all, |shard| shard.part(of_all));
        Self(NetworkLimit::new(Rate::new(part(PER_SECOND), part(BURST)), key))
    }

    /// The turn of a session that begins now with so many `bytes` from this address. At the end of the clock if it has none.
    pub(super) fn next(&self, now: Instant, ip: IpAddr, bytes: usize) -> Instant {
        if AddressValidation::has_room_for_message(bytes) {
            return Instant::NEVER;
        }
        let at = self.0.next(now, ip);
        if at - now > HORIZON { Instant::NEVER } else { at }
    }

    /// Takes that turn.
    pub(super) fn take(&mut self, now: Instant, ip: IpAddr, bytes: usize) {
        if self.next(now, ip, bytes) < Instant::NEVER {
            self.0.take(now, ip);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const NOW: Instant = Instant::from_millis(5_000);

    fn ip(host: u32) -> IpAddr {
        IpAddr::from(host.to_be_bytes())
    }

    fn turns() -> MessageTurns {
        MessageTurns::new(HashKey::for_tests(), None)
    }

    fn take(turns: &mut MessageTurns, now: Instant, host: u32, bytes: usize) -> Instant {
        let at = turns.next(now, ip(host), bytes);
        turns.take(now, ip(host), bytes);
        at
    }

    #[test]
    fn a_network_has_sixteen_turns_at_once_and_sixteen_a_second_for_ten_seconds() {
        let mut turns = turns();
        let at: Vec<_> = (0..1_000).map(|_| take(&mut turns, NOW, 1, 25)).collect();
        let expected = (0..1_000_u64).map(|n| match n.saturating_sub(15) {
            late @ 0..=160 => NOW + Duration::from_micros(late * 62_500),
            _ => Instant::NEVER,
        });
        assert!(expected.eq(at));
        // What was refused is not owed.
        let later = NOW + HORIZON;
        assert_eq!(take(&mut turns, later, 1, 25), later + Duration::from_micros(62_500));
        assert_eq!(take(&mut turns, later + HORIZON, 1, 25), later + HORIZON);
    }

    #[test]
    fn whatever_comes_when_no_more_turns_have_come_than_the_schedule_has() {
        let (mut turns, mut at) = (turns(), Vec::new());
        for millis in 0..60_000 {
            let now = NOW + Duration::from_millis(millis);
            for _ in 0..[0, 1, 7][millis as usize / 1_000 % 3] {
                at.push(take(&mut turns, now, 1, 25));
            }
        }
        at.retain(|at| *at < Instant::NEVER);
        assert!(at.is_sorted());
        for (n, at) in at.iter().enumerate() {
            let gone = (*at - (NOW + Duration::from_secs(1))).as_micros() / 62_500;
            assert!((n as u128) < 16 + gone, "{n} at {at:?}");
        }
        assert!(at.len() > 59 * 16, "{}", at.len());
    }

    #[test]
    fn another_network_has_turns_of_its_own() {
        let mut turns = turns();
        (0..1_000).for_each(|_| turns.take(NOW, ip(1), 25));
        assert_eq!(take(&mut turns, NOW, 2, 25), NOW);
    }

    #[test]
    fn who_sends_as_much_as_a_message_is_a_third_of_takes_no_turn() {
        let mut turns = turns();
        assert!((0..1_000).all(|_| take(&mut turns, NOW, 1, 400) == Instant::NEVER));
        assert!((0..16).all(|_| take(&mut turns, NOW, 1, 399) == NOW));
        assert!(take(&mut turns, NOW, 1, 399) > NOW);
    }
}
