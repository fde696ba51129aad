//! What speaks for a black hole, and when it is enough: see the [parent's page](super).

use super::{
    PathMtu,
    search::{Phase, Search},
};
use crate::proto::{path::Liveness, time::Instant, trace::tell};

/// Long packets that pass their RTO without anything as long being confirmed, before they are doubted.
const DOUBTFUL: u32 = 4;
/// At so many different times, where payload has passed meanwhile.
const DOUBTFUL_ROUNDS: u32 = 2;
/// At so many, where nothing was heard at all (perhaps the peer has nothing to say), and for packets that are no longer than what the
/// PLPMTU would fall to.
const SILENT_ROUNDS: u32 = 4;

/// What speaks for a black hole.
#[derive(Debug)]
pub(super) struct Evidence {
    /// The payload of the shortest of the segments. What is as long, and fits the PLPMTU, clears the evidence.
    watched: u32,
    /// When the first of the packets was sent that nobody confirms.
    since: Instant,
    lost: u32,
    /// At how many different times they passed their RTO, and when that was last.
    rounds: u32,
    last: Instant,
}

impl PathMtu {
    /// ACKs have confirmed segments, the longest of `len` bytes of payload.
    #[inline]
    pub(in crate::proto) fn on_acked(&mut self, now: Instant, len: u32) {
        if len == u32::from(self.mss) {
            self.watched_at = now;
        }
        if self.under_way.is_some() {
            self.clear_up(now, len);
        }
    }

    /// What was confirmed may clear the evidence.
    #[cold]
    fn clear_up(&mut self, now: Instant, len: u32) {
        if let Some(search) = self.search_mut() {
            search.answered = true;
        }
        let evidence = self.under_way.as_ref().and_then(|under_way| under_way.evidence.as_ref());
        // What is longer than the PLPMTU went as fragments.
        if evidence.is_some_and(|evidence| len >= evidence.watched) && len <= u32::from(self.mss) {
            self.watched_at = now;
            self.forget_evidence();
        }
    }

    /// A segment of `len` bytes of payload that was last sent at `sent_at` has passed its RTO. Returns whether the PLPMTU has changed.
    pub(in crate::proto) fn on_timeout(
        &mut self,
        now: Instant,
        len: u32,
        sent_at: Instant,
        liveness: &Liveness,
        nxt: u32,
    ) -> bool {
        let size = self.packet_of(len as usize);
        let was_carried = self.watched_at >= sent_at;
        if was_carried || size > self.plpmtu() || size <= self.least() {
            return false;
        }
        // What no fall by one step would let through was cut when the PLPMTU was less. It counts where nothing longer is in flight.
        let below = self.below();
        let is_short = size <= below;
        let longest_short = (below - self.packet_of(0)) as u32;
        let evidence = &mut self.under_way.get_or_insert_default().evidence;
        if let Some(before) = evidence
            && is_short != (before.watched <= longest_short)
        {
            if is_short {
                return false;
            }
            *evidence = None;
        }
        let evidence = evidence.get_or_insert(Evidence {
            watched: len,
            since: sent_at,
            lost: 0,
            rounds: 0,
            last: Instant::ZERO,
        });
        evidence.lost += 1;
        if evidence.last < now {
            evidence.last = now;
            evidence.rounds += 1;
        }
        evidence.watched = evidence.watched.min(len);
        let Evidence { since, lost, rounds, .. } = *evidence;
        let rounds_needed = match (liveness.last_heard() > since, liveness.last_payload() > since) {
            // Whether packets as short were confirmed before was not watched.
            _ if is_short => SILENT_ROUNDS,
            (true, false) => 1,
            (true, true) => DOUBTFUL_ROUNDS,
            (false, _) => SILENT_ROUNDS,
        };
        let doubted = self.plpmtu();
        if lost < DOUBTFUL || rounds < rounds_needed || below >= doubted {
            return false;
        }
        self.fall(now, nxt);
        tell!(plpmtu(doubted, self.plpmtu(), "timeouts"));
        let max = self.max();
        let search = &mut self.under_way.get_or_insert_default().search;
        // Else it is decided already whether longer ones pass.
        if !(is_short && search.as_ref().is_some_and(|search| search.phase == Phase::Base)) {
            *search = Some(Search::doubting(doubted, max));
        }
        true
    }

    /// The system knows that a packet of `size` bytes is too long for the next hop. Returns whether the PLPMTU has changed.
    pub(in crate::proto) fn on_too_long(&mut self, now: Instant, size: usize, nxt: u32) -> bool {
        if self.refuses_probe(now, size) {
            return false;
        }
        let plpmtu = self.plpmtu();
        if size > self.plpmtu() || size <= self.below() {
            return false;
        }
        while self.plpmtu() >= size && self.below() < self.plpmtu() {
            self.fall(now, nxt);
        }
        tell!(plpmtu(plpmtu, self.plpmtu(), "too_long"));
        self.search_below(now, size);
        true
    }

    fn fall(&mut self, now: Instant, nxt: u32) {
        self.watched_at = now;
        self.set_oversize_until(Some(nxt));
        self.set_plpmtu(self.below());
    }
}
