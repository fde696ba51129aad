//! The packets that began a session, and those that were sent from here and would begin one.
//!
//! Three memories, so that an endpoint which begins many sessions forgets none of the others' for that, nor a first packet for what its
//! client sent behind it: a HELLO is followed by the first PUSH, and either may be sent again.

use crate::proto::replay::ReplayWindow;

/// How many packets of each kind are remembered. Each kind takes 192 KiB.
const FIRST_PACKETS: usize = 16_384;

#[derive(Debug)]
pub(crate) struct FirstPackets {
    /// Packets of others that began a session.
    received: ReplayWindow,
    /// Those behind them of the same sessions that would have begun them as well.
    resends: ReplayWindow,
    /// Packets of sessions of this end, which somebody may send back.
    sent: ReplayWindow,
}

impl Default for FirstPackets {
    fn default() -> Self {
        let [received, resends, sent] = [(); 3].map(|()| ReplayWindow::new(FIRST_PACKETS));
        Self { received, resends, sent }
    }
}

impl FirstPackets {
    /// Remembers a packet that begins a session, by its identity; returns whether it was never seen.
    pub(crate) fn remember(&mut self, identity: u64) -> bool {
        !self.sent.contains(identity) && !self.resends.contains(identity) && self.received.insert(identity)
    }

    /// Remembers a packet that would begin the session again which another one has begun; returns whether it was never seen.
    pub(crate) fn remember_resend(&mut self, identity: u64) -> bool {
        !self.sent.contains(identity) && !self.received.contains(identity) && self.resends.insert(identity)
    }

    /// Remembers a packet that was sent from here and would begin a session.
    pub(crate) fn remember_sent(&mut self, identity: u64) {
        self.sent.insert(identity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "many steps, which do nothing that few do not")]
    fn as_many_first_packets_of_others_are_remembered_as_is_said_whatever_is_sent() {
        let mut packets = FirstPackets::default();
        for identity in 1..=FIRST_PACKETS as u64 {
            assert!(packets.remember(identity));
            packets.remember_sent(1 << 40 | identity);
            packets.remember_sent(1 << 41 | identity);
            assert!(
                packets.remember_resend(1 << 42 | identity) && packets.remember_resend(1 << 43 | identity)
            );
        }
        for identity in 1..=FIRST_PACKETS as u64 {
            assert!(!packets.remember(identity) && !packets.remember_resend(identity), "{identity}");
        }
        for resend in FIRST_PACKETS as u64 / 2 + 1..=FIRST_PACKETS as u64 {
            assert!(!packets.remember(1 << 42 | resend), "{resend}: it was sent again");
        }
        for sent in FIRST_PACKETS as u64 / 2 + 1..=FIRST_PACKETS as u64 {
            assert!(!packets.remember(1 << 40 | sent), "{sent}: it was sent from here");
        }
    }
}
