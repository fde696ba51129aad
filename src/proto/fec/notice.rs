//! What a session is told about its peer's FEC, so that settings which do not fit are seen.
//!
//! Our own receiver needs no setting: it finds the peer's shards out. But kcp-go's decodes with its own numbers until it
//! has found out ours, and hands on what that yields. Who is told that they differ can give both ends the same.

use super::detector::Shards;

/// What was found out about the peer's forward error correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FecEvent {
    /// Its numbers of shards are known, and are not those of this end, or not those of before. This end follows them; a
    /// peer that is not of this crate may not be able to follow ours.
    PeerShards {
        /// Data packets of a group of the peer's.
        data: u16,
        /// Parity packets of a group of the peer's.
        parity: u16,
    },
    /// Its parity arrives, and nothing can be recovered from it: it is of another code, or its numbers fit none.
    Undecodable,
}

/// Packets without an answer, and parity packets among them, after which the peer's shards count as not to be found:
/// four groups of 256 are enough for any, losses of a fifth included.
const MAX_UNKNOWN: (u32, u32) = (1_280, 128);
/// Groups, one after the other, of which nothing recovered was of use.
const MAX_USELESS: u32 = 8;
/// Parity packets, one after the other, that name no conversation or another: with another matrix all do.
const MAX_FOREIGN: u32 = 64;

/// Watches a decoder, and notes what is to be told.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The peer's shards as they were told last, or this end's.
    told: Option<Shards>,
    /// They, and that nothing can be decoded, are still to be told.
    tell_shards: bool,
    tell_undecodable: bool,
    /// Packets, and parity packets, that came while the peer's shards were not known, less those that agreed with them
    /// since.
    unknown: (u32, u32),
    useless: u32,
    foreign: u32,
    undecodable: bool,
}

impl Watch {
    /// Nothing is told about a peer whose shards are these.
    pub(super) fn new(own: Option<Shards>) -> Self {
        Self { told: own, ..Self::default() }
    }

    /// A packet came while the peer's shards were not known.
    pub(super) const fn on_unknown(&mut self, is_data: bool) {
        let (packets, parity) = &mut self.unknown;
        *packets = packets.saturating_add(1);
        *parity = parity.saturating_add(!is_data as u32);
        if *packets >= MAX_UNKNOWN.0 && *parity >= MAX_UNKNOWN.1 {
            self.note_undecodable();
        }
    }

    /// A packet agrees with the shards that are known: what fits none agrees with a few by accident.
    pub(super) const fn on_agreed(&mut self) {
        let (packets, parity) = &mut self.unknown;
        *packets = packets.saturating_sub(1);
        *parity = if *packets == 0 { 0 } else { *parity };
    }

    /// The peer's shards are known; returns whether that is to be told.
    pub(super) fn on_known(&mut self, shards: Shards) -> bool {
        let news = self.told != Some(shards);
        if news {
            self.told = Some(shards);
            self.tell_shards = true;
        }
        news
    }

    /// A parity packet names this conversation, or not.
    pub(super) const fn on_parity(&mut self, ours: bool) {
        self.foreign = if ours { 0 } else { self.foreign.saturating_add(1) };
        if self.foreign == MAX_FOREIGN {
            self.note_undecodable();
        }
    }

    /// What a group lacked was computed, and was of use or not.
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
            self.tell_undecodable = true;
        }
    }

    pub(super) fn take_event(&mut self) -> Option<FecEvent> {
        if core::mem::take(&mut self.tell_shards) {
            return self.told.map(|Shards { data, parity }| FecEvent::PeerShards { data, parity });
        }
        core::mem::take(&mut self.tell_undecodable).then_some(FecEvent::Undecodable)
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
    const TOLD: Option<FecEvent> = Some(FecEvent::PeerShards { data: 5, parity: 2 });

    #[test]
    fn shards_are_told_when_they_are_news() {
        let mut watch = Watch::new(Some(OWN));
        assert!(!watch.on_known(OWN));
        assert_eq!(watch.take_event(), None);
        assert!(watch.on_known(OTHER));
        assert_eq!((watch.take_event(), watch.take_event()), (TOLD, None));
        assert!(!watch.on_known(OTHER));
        assert!(watch.on_known(OWN));
        assert!(Watch::new(None).on_known(OTHER), "an end without FEC");
    }

    #[test]
    fn what_cannot_be_decoded_is_told_once() {
        let mut watch = Watch::new(None);
        for _ in 0..5_000 {
            watch.on_unknown(true);
        }
        assert_eq!(watch.take_event(), None, "no parity that could be of use");
        for _ in 0..5_000 {
            watch.on_unknown(false);
        }
        assert_eq!((watch.take_event(), watch.take_event()), (Some(FecEvent::Undecodable), None));
        watch.on_known(OTHER);
        watch.on_recovery(true);
        assert!(!watch.is_undecodable());
        for useful in [false, false, true, false, false, false, false, false, false, false] {
            watch.on_recovery(useful);
        }
        assert_eq!(watch.take_event(), TOLD, "seven in a row");
        watch.on_recovery(false);
        assert_eq!(watch.take_event(), Some(FecEvent::Undecodable));
        assert!(watch.is_undecodable());
    }
}
