//! Padded PINGs: probes of the path's MTU (5.2). Which sizes are tried is decided elsewhere: see
//! [`PathMtu`](crate::proto::path::PathMtu).
//!
//! They are kept apart from the questions whether the peer is there, so that a lost probe takes no place of one; and the peer owes no
//! answer to a probe.

use super::{
    Extension, Written,
    ping::Token,
    segment::{Caps, Envelope},
};

/// Probes whose PONGs count. One is under way at a time; the answers to those before may be late.
const OUTSTANDING: usize = 4;

#[derive(Debug, Default)]
pub(super) struct MtuProbes {
    /// The size of the packet that is to be sent.
    due: Option<usize>,
    /// The newest is first.
    outstanding: [Option<(Token, usize)>; OUTSTANDING],
}

impl MtuProbes {
    /// A packet of `size` bytes is to be sent.
    pub(super) const fn ask(&mut self, size: usize) {
        self.due = Some(size);
    }

    pub(super) const fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// The size of the packet that is sent now, with this token.
    pub(super) fn take_due(&mut self, token: Token) -> Option<usize> {
        let size = self.due.take()?;
        self.outstanding.rotate_right(1);
        self.outstanding[0] = Some((token, size));
        Some(size)
    }

    /// The size of the packet whose PING had this token. It counts once.
    pub(super) fn take(&mut self, token: Token) -> Option<usize> {
        let slot = self.outstanding.iter_mut().find(|slot| slot.is_some_and(|(sent, _)| sent == token))?;
        slot.take().map(|(_, size)| size)
    }
}

impl Extension {
    /// The longest packet with a padded PING that the peer takes; 0 if it takes none, or is not known.
    pub(in crate::proto) fn longest_ping(&self) -> usize {
        let peer = self.handshake.peer().filter(|peer| self.is_confirmed() && peer.caps.has(Caps::PROBE));
        peer.and_then(|peer| peer.max_packet).map_or(0, usize::from)
    }

    /// A packet of `size` bytes is to be sent that holds a PING and nothing else.
    pub(in crate::proto) fn probe_mtu(&mut self, size: usize) {
        self.ping.probe_mtu(size);
    }

    /// Whether such a packet is still to be sent.
    pub(in crate::proto) fn has_mtu_probe(&self) -> bool {
        self.ping.has_mtu_probe()
    }

    /// Writes it into `out`. `around`: bytes of the packet beside its segments.
    pub(super) fn write_mtu_probe(
        &mut self,
        envelope: Envelope,
        out: &mut [u8],
        around: usize,
    ) -> Option<Written> {
        let (size, token) = self.ping.take_mtu_probe(self.handshake.secret())?;
        let out = out.get_mut(..size.checked_sub(around)?)?;
        let len = envelope.write_padded_ping(token, self.handshake.peer_tag()?, out)?;
        Some(Written { len, begins: false, owed: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_four_count_once_each() {
        let mut probes = MtuProbes::default();
        for (token, size) in [(1, 1_400), (2, 1_300), (3, 1_350), (4, 1_325), (5, 1_312)] {
            probes.ask(size);
            assert_eq!((probes.take_due(token), probes.take_due(token)), (Some(size), None));
        }
        assert_eq!(probes.take(1), None, "too old");
        assert_eq!(probes.take(6), None);
        assert_eq!((probes.take(2), probes.take(2)), (Some(1_300), None));
        assert_eq!(probes.take(5), Some(1_312));
    }
}
