//! A path that becomes longer all at once: another network, another route.
//!
//! It looks like a queue that others have filled. But a queue grows over several round trips, and becomes shorter when the window does. So
//! if round trips become long within one, and stay what they are while the window shrinks to half, the path is a new one.

use core::time::Duration;

use crate::proto::time::Micros;

/// Round trips are long that are twice the shortest one, and longer by this at least.
const LONG: Duration = Duration::from_millis(10);
/// And they are short that are longer than the shortest one by a quarter of it and this.
const SHORT: Duration = Duration::from_millis(5);
/// Rounds in which round trips may still become longer, as what was under way before arrives.
const CHANGING: u8 = 2;
/// Rounds that prove it.
const ROUNDS: u8 = 3;

/// The last rounds.
#[derive(Debug, Default)]
pub(super) struct LongerPath {
    /// The shortest round trip and the window of the last two rounds, the last at the end.
    shortest: [Micros; 2],
    cwnds: [u64; 2],
    jump: Option<Jump>,
}

/// Round trips have become long.
#[derive(Debug)]
struct Jump {
    rtt: Micros,
    /// The window before.
    cwnd: u64,
    rounds: u8,
}

impl LongerPath {
    /// A round ends whose shortest round trip was `rtt`. Returns whether the path has become longer: that is its round trip now.
    pub(super) fn end_round(&mut self, base: Duration, rtt: Duration, cwnd: u64) -> bool {
        let (rtts, [earlier, before]) = (self.shortest.map(|rtt| rtt.get()), self.cwnds);
        (self.shortest, self.cwnds) = ([self.shortest[1], rtt.into()], [before, cwnd]);
        if rtt < (base + LONG).max(2 * base) {
            self.jump = None;
            return false;
        }
        let Some(jump) = &mut self.jump else {
            if rtts.iter().any(|rtt| !rtt.is_zero() && *rtt <= base + base / 4 + SHORT) {
                self.jump = Some(Jump { rtt: rtt.into(), cwnd: earlier.max(before), rounds: 0 });
            }
            return false;
        };
        jump.rounds += 1;
        let expected = jump.rtt.get();
        if rtt > expected && jump.rounds <= CHANGING {
            jump.rtt = rtt.into();
        } else if rtt.abs_diff(expected) > expected / 16 {
            self.jump = None;
            return false;
        }
        // What a round confirms was sent in the one before.
        let is_over = jump.rounds >= ROUNDS && earlier <= jump.cwnd / 2;
        self.jump.take_if(|jump| is_over || jump.rounds == u8::MAX);
        is_over
    }
}

#[cfg(test)]
mod tests;
