//! The search for a larger PLPMTU, probe by probe: see the [parent's page](super).

use core::time::Duration;

use super::PathMtu;
use crate::proto::{time::Instant, trace::tell, wire::HEADER_LEN};

/// So many probes of a size are lost before it counts as too large.
const MAX_PROBES: u8 = 3;
/// The same for a size that passed before. By then less is sent anyway, so there is time to be sure.
const DOUBT_PROBES: u8 = 6;
/// After this time a path that did not carry MAX_PLPMTU is searched again.
const PMTU_RAISE_TIMER: Duration = Duration::from_secs(600);
/// The search ends where the next size would be less than this larger. The segment that fills a packet fits, and is not empty.
pub(super) const STEP: usize = HEADER_LEN + 8;

/// States of RFC 8899, figure 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A size that passed before is doubted. Less is sent until that is decided. With the PLPMTU at [`MIN_PLPMTU`](super::MIN_PLPMTU) it is `Error`.
    Base,
    Searching,
    /// Until then.
    SearchComplete(Instant),
}

#[derive(Debug)]
pub(super) struct Search {
    pub(super) phase: Phase,
    /// The size under test.
    candidate: usize,
    /// Probes of it that were lost.
    lost: u8,
    /// The smallest size that counts as too large; past MAX_PLPMTU if none does.
    pub(super) high: usize,
    /// What counted as that was tried once more, in this search.
    retried: bool,
    /// The next probe is for a size between the PLPMTU and the candidate.
    half_way: bool,
    /// Something was confirmed since the phase began.
    pub(super) answered: bool,
    probe: Probe,
}

/// The probe that is next, or under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    None,
    /// It goes with the next new segment.
    Due(usize),
    /// A PUSH with the segment `sn`.
    Push {
        sn: u32,
        size: usize,
    },
    /// A PING, which counts as lost after `until`.
    Ping {
        size: usize,
        until: Instant,
    },
}

/// How a probe is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum ProbeBy {
    /// A padded PING of this size.
    Ping(usize),
    /// A PUSH of this size, as soon as there is a new segment.
    Push,
}

impl PathMtu {
    /// Full packets are about to be sent. Says whether a probe is to go, and how. `can_ping`: the longest PING that the peer takes.
    #[cold]
    pub(in crate::proto) fn poll_probe(
        &mut self,
        now: Instant,
        probe_time: Duration,
        can_ping: usize,
    ) -> Option<ProbeBy> {
        let (plpmtu, max) = (self.plpmtu(), self.max());
        if plpmtu >= max {
            return None;
        }
        {
            let under_way = self.under_way.get_or_insert_default();
            let search = under_way.search.get_or_insert_with(|| Search::up_to(max));
            match search.phase {
                Phase::SearchComplete(until) if now < until => return None,
                Phase::SearchComplete(_) => *search = Search::up_to(max),
                Phase::Base | Phase::Searching => {}
            }
            match search.probe {
                Probe::Ping { size, until } if until <= now => {
                    search.probe = Probe::None;
                    self.on_probe_lost(now, size);
                }
                Probe::Due(_) => return Some(ProbeBy::Push),
                Probe::Push { .. } | Probe::Ping { .. } => return None,
                Probe::None => {}
            }
        }
        let search = self.search_mut().filter(|search| {
            !matches!(search.phase, Phase::SearchComplete(_)) && search.candidate >= plpmtu + STEP
        })?;
        let half_way = plpmtu.midpoint(search.candidate);
        let takes_half_way = core::mem::take(&mut search.half_way) && half_way >= plpmtu + STEP;
        let size = if takes_half_way { half_way } else { search.candidate };
        if size <= can_ping {
            search.probe = Probe::Ping { size, until: now + probe_time };
            return Some(ProbeBy::Ping(size));
        }
        search.probe = Probe::Due(size);
        Some(ProbeBy::Push)
    }

    /// The size of the probe that goes with the next new segment.
    #[inline]
    pub(in crate::proto) fn due(&self) -> Option<usize> {
        match self.search()?.probe {
            Probe::Due(size) => Some(size),
            _ => None,
        }
    }

    /// The probe that was due is sent with the segment `sn`.
    pub(in crate::proto) fn on_push_probe(&mut self, sn: u32) {
        if let Some(search) = self.search_mut()
            && let Probe::Due(size) = search.probe
        {
            search.probe = Probe::Push { sn, size };
        }
    }

    /// Whether the segment `sn` is that of a probe which is under way.
    pub(in crate::proto) fn is_probe(&self, sn: u32) -> bool {
        self.probe_sn() == Some(sn)
    }

    /// The segment of the probe that is under way.
    pub(in crate::proto) fn probe_sn(&self) -> Option<u32> {
        match self.search()?.probe {
            Probe::Push { sn, .. } => Some(sn),
            _ => None,
        }
    }

    /// The segment of the probe that is under way is confirmed, and was sent once. Returns whether the PLPMTU has changed.
    pub(in crate::proto) fn on_push_confirmed(&mut self, now: Instant) -> bool {
        let Some(search) = self.search() else { return false };
        let Probe::Push { size, .. } = search.probe else { return false };
        self.on_confirmed(now, size)
    }

    /// The segment of the probe that is under way is sent again in another packet.
    pub(in crate::proto) fn on_push_resent(&mut self, now: Instant) {
        if let Some(search) = self.search_mut()
            && let Probe::Push { size, .. } = search.probe
        {
            search.probe = Probe::None;
            self.on_probe_lost(now, size);
        }
    }

    /// The segment of the probe that is under way is sent in another packet as well, so that its ACK says nothing.
    #[cold]
    pub(in crate::proto) fn forget_push(&mut self) {
        if let Some(search) = self.search_mut() {
            search.probe = Probe::None;
        }
    }

    /// The PONG of a PING of `size` bytes has come. It may be late. Returns whether the PLPMTU has changed.
    pub(in crate::proto) fn on_pong(&mut self, now: Instant, size: usize) -> bool {
        self.search().is_some() && size <= self.max() && self.on_confirmed(now, size)
    }

    fn on_confirmed(&mut self, now: Instant, size: usize) -> bool {
        let (plpmtu, max) = (self.plpmtu(), self.max());
        let Some(search) = self.search_mut() else { return false };
        search.answered = true;
        if search.probe.size() == Some(size) {
            search.probe = Probe::None;
        }
        if size <= plpmtu {
            return false;
        }
        let is_candidate = size >= search.candidate;
        if is_candidate {
            search.phase = Phase::Searching;
            search.lost = 0;
            if size >= search.high {
                search.high = max + 1;
            }
        }
        self.watched_at = now;
        tell!(plpmtu(plpmtu, size, "probe"));
        self.set_plpmtu(size);
        if is_candidate {
            self.next_candidate(now);
        }
        true
    }

    /// The system refuses packets of `size` bytes. Returns whether that is the probe under way: nothing longer is in use.
    pub(super) fn refuses_probe(&mut self, now: Instant, size: usize) -> bool {
        let plpmtu = self.plpmtu();
        let Some(search) = self.search_mut() else { return false };
        if search.probe.size() != Some(size) || size <= plpmtu {
            return false;
        }
        search.probe = Probe::None;
        search.lost = search.lost.max(MAX_PROBES - 1);
        let is_candidate = size == search.candidate;
        search.high = search.high.min(size);
        if is_candidate {
            self.on_candidate_lost(now);
        }
        true
    }

    /// A search begins, for less than `size` bytes.
    pub(super) fn search_below(&mut self, now: Instant, size: usize) {
        let search = Search { high: size, ..Search::up_to(self.max()) };
        self.under_way.get_or_insert_default().search = Some(search);
        self.next_candidate(now);
    }

    fn on_probe_lost(&mut self, now: Instant, size: usize) {
        let Some(search) = self.search_mut() else { return };
        if size != search.candidate {
            // The next one is for the candidate.
            return;
        }
        search.half_way = true;
        search.lost += 1;
        let most = if search.phase == Phase::Base { DOUBT_PROBES } else { MAX_PROBES };
        if search.lost >= most {
            self.on_candidate_lost(now);
        }
    }

    /// So many probes of the candidate are lost that it counts as too large.
    fn on_candidate_lost(&mut self, now: Instant) {
        let plpmtu = self.plpmtu();
        let Some(under_way) = &mut self.under_way else { return };
        let Some(search) = &mut under_way.search else { return };
        search.lost = 0;
        if search.phase == Phase::Base {
            if !search.answered {
                // Nothing passes: that is no matter of size.
                return;
            }
            under_way.stats.black_holes += 1;
            tell!(black_hole(search.candidate, plpmtu));
            search.phase = Phase::Searching;
        }
        search.high = search.high.min(search.candidate);
        self.next_candidate(now);
    }

    fn next_candidate(&mut self, now: Instant) {
        let (plpmtu, max) = (self.plpmtu(), self.max());
        let Some(under_way) = &mut self.under_way else { return };
        if plpmtu >= max {
            under_way.search = None;
            self.tidy();
            return;
        }
        let Some(search) = &mut under_way.search else { return };
        search.half_way = false;
        if search.high > max {
            search.candidate = max;
            if max < plpmtu + STEP {
                search.phase = Phase::SearchComplete(now + PMTU_RAISE_TIMER);
            }
            return;
        }
        let middle = plpmtu.midpoint(search.high).max(plpmtu + STEP);
        if middle < search.high {
            search.candidate = middle;
        } else if !search.retried && search.high >= plpmtu + STEP {
            search.retried = true;
            search.candidate = search.high;
        } else {
            search.phase = Phase::SearchComplete(now + PMTU_RAISE_TIMER);
        }
    }
}

impl Search {
    /// Whether `doubted` passes still, which did before.
    pub(super) const fn doubting(doubted: usize, max: usize) -> Self {
        Self { phase: Phase::Base, candidate: doubted, high: doubted, ..Self::up_to(max) }
    }

    /// Of sizes up to `max`, which is the first.
    const fn up_to(max: usize) -> Self {
        Self {
            phase: Phase::Searching,
            candidate: max,
            lost: 0,
            high: max + 1,
            retried: false,
            half_way: false,
            answered: false,
            probe: Probe::None,
        }
    }
}

impl Probe {
    const fn size(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Due(size) | Self::Push { size, .. } | Self::Ping { size, .. } => Some(size),
        }
    }
}
