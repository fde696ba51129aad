//! Finds out whether the peer's FEC settings fit this end's, and reports it where they do not.
//!
//! This crate's receiver needs no setting, because it detects the peer's group size. kcp-go's receiver decodes with its own
//! group size until it has detected the sender's, and until then it may take garbage for data. An application that learns
//! of the difference can give both ends the same numbers.

use super::detector::Shards;

/// Something about the peer's forward error correction that the application may want to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FecEvent {
    /// The peer's group size is known, and it is not that of this end, or not the one it had before. This end decodes by it.
    /// A peer that is not of this crate may not be able to decode what this end sends.
    PeerShards {
        /// Data packets in a group of the peer's.
        data: u16,
        /// Parity packets in a group of the peer's.
        parity: u16,
    },
    /// The peer's parity arrives, but nothing can be recovered from it. It is of another code, or its numbers fit no group size.
    Undecodable,
}

/// Packets, and parity packets among them, after which the search for the peer's group size counts as failed. Four groups of 256
/// packets are enough to detect any group size; a quarter more makes up for losses.
const MAX_UNKNOWN: (u32, u32) = (1_280, 128);
/// Groups in a row from which nothing useful was recovered.
const MAX_USELESS: u32 = 8;
/// Parity packets in a row that do not name this conversation. Parity made with another matrix never does.
const MAX_FOREIGN: u32 = 64;

/// Follows what a decoder meets, and holds the events that are to be reported.
#[derive(Debug, Default)]
pub(super) struct PeerCheck {
    /// The group size that was reported last. Before the first report: this end's.
    reported: Option<Shards>,
    /// [`FecEvent::PeerShards`] waits to be taken.
    shards_event: bool,
    /// [`FecEvent::Undecodable`] waits to be taken.
    undecodable_event: bool,
    /// Packets, and parity packets among them, that came while the peer's group size was unknown. Packets that agreed with
    /// a known one were taken off again.
    unknown: (u32, u32),
    /// Groups in a row from which nothing useful was recovered.
    useless: u32,
    /// Parity packets in a row that do not name this conversation.
    foreign: u32,
    /// Nothing can be recovered from the parity that arrives.
    undecodable: bool,
}

impl PeerCheck {
    /// A peer with the same group size as this end's, `own`, is not reported.
    pub(super) fn new(own: Option<Shards>) -> Self {
        Self { reported: own, ..Self::default() }
    }

    /// A packet came while the peer's group size is unknown.
    pub(super) const fn on_unknown(&mut self, is_data: bool) {
        let (packets, parity) = &mut self.unknown;
        *packets = packets.saturating_add(1);
        *parity = parity.saturating_add(!is_data as u32);
        if *packets >= MAX_UNKNOWN.0 && *parity >= MAX_UNKNOWN.1 {
            self.note_undecodable();
        }
    }

    /// A packet agrees with the group size that is known. It takes only one unknown packet off, because a sender whose numbers
    /// fit no group size agrees with a wrong one now and then.
    pub(super) const fn on_agreed(&mut self) {
        let (packets, parity) = &mut self.unknown;
        *packets = packets.saturating_sub(1);
        *parity = if *packets == 0 { 0 } else { *parity };
    }

    /// The peer's group size is known. Returns whether it is reported.
    pub(super) fn on_known(&mut self, shards: Shards) -> bool {
        let differs = self.reported != Some(shards);
        if differs {
            self.reported = Some(shards);
            self.shards_event = true;
        }
        differs
    }

    /// A parity packet came, and names this conversation (`ours`) or not.
    pub(super) const fn on_parity(&mut self, ours: bool) {
        self.foreign = if ours { 0 } else { self.foreign.saturating_add(1) };
        if self.foreign == MAX_FOREIGN {
            self.note_undecodable();
        }
    }

    /// The missing packets of a group were computed, and at least one was `useful`, or none.
    pub(super) const fn on_recovery(&mut self, useful: bool) {
        if useful {
            self.useless = 0;
            self.undecodable = false;
            return;
        }
        self.useless += 1;
        if self.useless >= MAX_USELESS {
            self.useless = 0;
            self.note_undecodable();
        }
    }

    const fn note_undecodable(&mut self) {
        self.unknown = (0, 0);
        if !self.undecodable {
            self.undecodable = true;
            self.undecodable_event = true;
        }
    }

    pub(super) fn take_event(&mut self) -> Option<FecEvent> {
        if core::mem::take(&mut self.shards_event) {
            return self.reported.map(|Shards { data, parity }| FecEvent::PeerShards { data, parity });
        }
        core::mem::take(&mut self.undecodable_event).then_some(FecEvent::Undecodable)
    }

    pub(super) const fn is_undecodable(&self) -> bool {
        self.undecodable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Shards = Shards { data: 10, parity: 3 };
    const OTHER: Shards = Shards { data: 5, parity: 2 };
    const REPORT: Option<FecEvent> = Some(FecEvent::PeerShards { data: 5, parity: 2 });

    #[test]
    fn a_group_size_is_reported_when_it_differs() {
        let mut check = PeerCheck::new(Some(OWN));
        assert!(!check.on_known(OWN));
        assert_eq!(check.take_event(), None);
        assert!(check.on_known(OTHER));
        assert_eq!((check.take_event(), check.take_event()), (REPORT, None));
        assert!(!check.on_known(OTHER));
        assert!(check.on_known(OWN));
        assert!(PeerCheck::new(None).on_known(OTHER), "an end without FEC");
    }

    #[test]
    fn parity_that_cannot_be_decoded_is_reported_once() {
        let mut check = PeerCheck::new(None);
        for _ in 0..5_000 {
            check.on_unknown(true);
        }
        assert_eq!(check.take_event(), None, "no parity that could be of use");
        for _ in 0..5_000 {
            check.on_unknown(false);
        }
        assert_eq!((check.take_event(), check.take_event()), (Some(FecEvent::Undecodable), None));
        check.on_known(OTHER);
        check.on_recovery(true);
        assert!(!check.is_undecodable());
        for useful in [false, false, true, false, false, false, false, false, false, false] {
            check.on_recovery(useful);
        }
        assert_eq!(check.take_event(), REPORT, "seven in a row");
        check.on_recovery(false);
        assert_eq!(check.take_event(), Some(FecEvent::Undecodable));
        assert!(check.is_undecodable());
    }
}
