//! Whose parity a parity packet is: it carries no conv.
//!
//! Sessions of one address number their packets apart, so a parity packet belongs to the one whose last data packet it
//! is nearest to, of those of earlier runs of datagrams or the one just before it. A wrong guess costs a recovery and
//! nothing else: what is recovered is checked against the conv.

use std::{collections::HashMap, net::SocketAddr, vec::Vec};

/// The last seqid of each session that sends FEC packets, by address.
#[derive(Debug, Default)]
pub(super) struct ParityRoutes {
    // Keyed with random state: peers choose their addresses.
    peers: HashMap<SocketAddr, Vec<Recent>>,
}

/// Sessions of an address that are told apart.
const MAX_SESSIONS: usize = 64;

#[derive(Debug)]
struct Recent {
    conv: u32,
    seqid: u32,
}

impl ParityRoutes {
    /// Takes note of the last data packet of a run of a session's.
    pub(super) fn note(&mut self, peer: SocketAddr, conv: u32, seqid: u32) {
        let sessions = self.peers.entry(peer).or_default();
        if let Some(recent) = sessions.iter_mut().find(|recent| recent.conv == conv) {
            recent.seqid = seqid;
        } else if sessions.len() < MAX_SESSIONS {
            // One that is left out recovers nothing; the others cost no more for it.
            sessions.push(Recent { conv, seqid });
        }
    }

    /// The session that a parity packet most likely belongs to. `last`: conv and seqid of a data packet just before it, which
    /// was not noted yet.
    pub(super) fn find(&self, peer: &SocketAddr, seqid: u32, last: Option<(u32, u32)>) -> Option<u32> {
        let noted = self.peers.get(peer).into_iter().flatten().map(|recent| (recent.conv, recent.seqid));
        let nearest = last
            .into_iter()
            .chain(noted)
            .min_by_key(|(_, of)| seqid.wrapping_sub(*of).cast_signed().unsigned_abs());
        nearest.map(|(conv, _)| conv)
    }

    /// Forgets a session.
    pub(super) fn remove(&mut self, peer: SocketAddr, conv: u32) {
        let Some(sessions) = self.peers.get_mut(&peer) else { return };
        sessions.retain(|recent| recent.conv != conv);
        if sessions.is_empty() {
            self.peers.remove(&peer);
        }
        if self.peers.is_empty() {
            self.peers = HashMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_goes_to_the_nearest_session_of_its_address() {
        let [here, there] = [4_000, 4_001].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut routes = ParityRoutes::default();
        routes.note(here, 1, 100);
        routes.note(here, 2, 5_000);
        routes.note(here, 1, 110);
        assert_eq!(routes.find(&here, 112, None), Some(1));
        assert_eq!(routes.find(&here, 4_990, None), Some(2));
        assert_eq!(routes.find(&there, 112, None), None);
        assert_eq!(routes.find(&there, 112, Some((3, 0))), Some(3), "it alone was seen");
        assert_eq!(routes.find(&here, 112, Some((2, 111))), Some(2), "nearer than those noted");
        assert_eq!(routes.find(&here, 112, Some((2, 5_010))), Some(1), "no nearer than those noted");
        routes.remove(here, 1);
        assert_eq!(routes.find(&here, 112, None), Some(2));
        routes.remove(here, 2);
        assert_eq!(routes.find(&here, 112, None), None);
    }
}
