//! The packets that began a session, and those that were sent from here and would begin one.
//!
//! Two memories, so that an endpoint which begins many sessions forgets none of the others' for that.

use crate::proto::replay::ReplayWindow;

/// How many packets of each kind are remembered. They take 192 KiB.
const FIRST_PACKETS: usize = 16_384;

#[derive(Debug)]
pub(crate) struct FirstPackets {
    /// Packets of others.
    received: ReplayWindow,
    /// Packets of sessions of this end, which somebody may send back.
    sent: ReplayWindow,
}

impl Default for FirstPackets {
    fn default() -> Self {
        Self { received: ReplayWindow::new(FIRST_PACKETS), sent: ReplayWindow::new(FIRST_PACKETS) }
    }
}

impl FirstPackets {
    /// Remembers a packet that begins a session, by its identity; returns whether it was never seen.
    pub(crate) fn remember(&mut self, identity: u64) -> bool {
        !self.sent.contains(identity) && self.received.insert(identity)
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
        }
        for identity in 1..=FIRST_PACKETS as u64 {
            assert!(!packets.remember(identity), "{identity}");
        }
        for sent in FIRST_PACKETS as u64 / 2 + 1..=FIRST_PACKETS as u64 {
            assert!(!packets.remember(1 << 40 | sent), "{sent}: it was sent from here");
        }
    }
}
