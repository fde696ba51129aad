//! Path MTU discovery by the packetization layer (DPLPMTUD, RFC 8899): how long packets may be that the path carries.
//!
//! The names are those of RFC 8899. Sizes are bytes of UDP payload. MAX_PLPMTU is the configured `mtu`, [`BASE_PLPMTU`] is
//! what nearly every path carries, and the PLPMTU is the size of the packets that new segments are cut for.
//!
//! # Where it begins
//!
//! At BASE_PLPMTU, and searches up. A segment that has its number keeps its size for ever, because both ends of KCP count in
//! segments. So what was cut too long for its path can only go as IP fragments, and many paths drop those: a session that began at
//! MAX_PLPMTU would stand still there with its first flight. The price is small. The first size that is tried is MAX_PLPMTU, right
//! behind the first flight, so that from the third round trip on packets are as long as they may be. A session whose packets are
//! short never searches, and neither does one that sends no more than [`UNPROBED_SEGMENTS`]: it has no packet more for this, no
//! system call and no memory. A session that speaks KCP alone ([`Extensions::Off`](crate::proto::Extensions::Off)) begins at
//! MAX_PLPMTU, as all others of that kind do, and learns by its losses.
//!
//! # Probes
//!
//! A probe is a packet of the size under test that nothing depends on:
//!
//! * A padded PING, where the peer has said that it takes it. Its PONG confirms the size.
//! * Else an ordinary PUSH, which is what every implementation acknowledges: a new segment, cut for the PLPMTU, with a second one
//!   behind it that fills the packet. That one has a number that the peer has received long ago, so it is dropped there. If the first one
//!   has to be sent again, that goes in a packet of the PLPMTU: the probe is lost, and no more than that.
//!
//! Nothing is asked while no packet is full. So there is no PROBE_TIMER that wakes anybody up: whether it has passed is looked at when
//! segments are sent. PMTU_RAISE_TIMER is no timer either.
//!
//! Under loss a probe may be lost for any reason, so a size counts as too large after [`MAX_PROBES`](search::MAX_PROBES) of them.
//! Every other probe is for a size half way down: a path that does not carry MAX_PLPMTU has the better half of what it carries after
//! its second probe.
//!
//! # Black holes
//!
//! A path may change, or drop long packets from the beginning in a session that began at MAX_PLPMTU. The sign is that several
//! transmissions of long packets pass their RTO, and nothing as long is confirmed meanwhile, while the peer is heard. From
//! then on new segments are cut for BASE_PLPMTU, and longer ones in flight go as fragments: state `Base`. That is done on little
//! evidence, because it harms nobody. Probes of the former size follow. If one is confirmed, it was a false alarm; if
//! [`DOUBT_PROBES`](search::DOUBT_PROBES) are lost while shorter packets pass, a black hole was found, and the search goes on below
//! that size. Where BASE_PLPMTU does not pass either, the same happens one step further down, at [`MIN_PLPMTU`]: the state `Error` of
//! RFC 8899.
//!
//! Whatever is believed by mistake heals: a search that ends below a size that was given up tries that size once more, and after
//! [`PMTU_RAISE_TIMER`](search::PMTU_RAISE_TIMER) everything up to MAX_PLPMTU is tried again.

mod black_hole;
mod search;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;

pub(in crate::proto) use self::search::ProbeBy;
use self::{
    black_hole::Evidence,
    search::{Phase, STEP, Search},
};
use crate::proto::{ecn::UNMARKED_PACKETS, stats::MtuStats, time::Instant, trace::tell, wire::HEADER_LEN};

/// Where a search begins: what nearly every path carries, and as long as a HELLO. QUIC has the same.
pub(in crate::proto) const BASE_PLPMTU: usize = 1_200;
/// A search begins once a session has sent so many new segments. Who sends no more wins nothing by longer ones: the same reason, and
/// number, as for ECN.
pub(in crate::proto) const UNPROBED_SEGMENTS: u64 = UNMARKED_PACKETS;
/// No path is taken for one that carries less, whatever somebody drops or says: IPv4 hosts take packets of 576 bytes, and IPv6 asks for
/// 1,280.
const MIN_PLPMTU: usize = 548;

/// The path MTU as far as it is known.
#[derive(Debug)]
pub(in crate::proto) struct PathMtu {
    /// MAX_PLPMTU. No UDP payload is longer than 65,507 bytes.
    max: u16,
    plpmtu: u16,
    /// The payload of the segment that fills a packet of the PLPMTU.
    mss: u16,
    /// Begin at MAX_PLPMTU.
    optimistic: bool,
    /// When a segment as long was confirmed last, or one that [`Evidence`] lets count.
    watched_at: Instant,
    /// A session that has nothing to find out goes without.
    under_way: Option<Box<UnderWay>>,
}

/// What is being found out, and what was.
#[derive(Debug, Default)]
struct UnderWay {
    evidence: Option<Evidence>,
    /// `None` until there is a reason to search, and where the PLPMTU is MAX_PLPMTU and nothing speaks against it.
    search: Option<Search>,
    /// Something longer than the PLPMTU may be in flight, or wait to be cut.
    oversize: Option<Oversize>,
    stats: MtuStats,
}

#[derive(Debug)]
struct Oversize {
    /// Until this `sn` is acknowledged.
    until: u32,
    /// The oldest segment in flight, if it is too long for a packet of the PLPMTU, and since when it is sent as fragments.
    stuck: Option<(u32, Instant)>,
}

impl PathMtu {
    /// Packets of `max` bytes may be sent, of which `overhead` bytes are no segments, and count as carried.
    pub(in crate::proto) const fn new(max: usize, overhead: usize) -> Self {
        Self {
            max: narrow(max),
            plpmtu: narrow(max),
            mss: narrow(max - overhead - HEADER_LEN),
            optimistic: true,
            watched_at: Instant::ZERO,
            under_way: None,
        }
    }

    /// Begins at BASE_PLPMTU.
    pub(in crate::proto) fn begin_at_base(&mut self) {
        self.optimistic = false;
        self.begin();
    }

    /// The search begins anew, on a path of which nothing is known. `nxt`: the `sn` of the next segment.
    pub(in crate::proto) fn begin_anew(&mut self, nxt: u32) {
        let before = self.plpmtu();
        self.begin();
        tell!(plpmtu(before, self.plpmtu(), "moved"));
        if self.plpmtu() < before {
            self.set_oversize_until(Some(nxt));
        }
    }

    fn begin(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.search = None;
            if let Some(oversize) = &mut under_way.oversize {
                oversize.stuck = None;
            }
        }
        self.watched_at = Instant::ZERO;
        self.set_plpmtu(if self.optimistic { self.max() } else { self.base() });
    }

    /// Changes MAX_PLPMTU.
    pub(in crate::proto) fn set_max(&mut self, max: usize, overhead: usize) {
        let grows = max > self.max();
        let follows = self.plpmtu == self.max && (self.optimistic || !grows);
        self.max = narrow(max);
        if let Some(under_way) = &mut self.under_way {
            under_way.search = None;
        }
        let plpmtu = if follows { max } else { self.plpmtu().min(max) };
        tell!(plpmtu(self.plpmtu(), plpmtu, "mtu"));
        self.set_sizes(plpmtu, overhead + HEADER_LEN);
    }

    // ---- What is known ----

    /// The size of the packets that new segments are cut for.
    #[inline]
    pub(in crate::proto) const fn plpmtu(&self) -> usize {
        self.plpmtu as usize
    }

    /// MAX_PLPMTU.
    #[inline]
    pub(in crate::proto) const fn max(&self) -> usize {
        self.max as usize
    }

    /// What a packet of MAX_PLPMTU has room for, and one of the PLPMTU: the payload of one segment.
    pub(in crate::proto) const fn max_mss(&self) -> usize {
        self.max() - self.packet_of(0)
    }

    #[inline]
    pub(in crate::proto) const fn mss(&self) -> usize {
        self.mss as usize
    }

    pub(in crate::proto) fn stats(&self) -> MtuStats {
        self.under_way.as_ref().map(|under_way| under_way.stats).unwrap_or_default()
    }

    /// Whether there is something to be found out.
    #[inline]
    pub(in crate::proto) const fn is_restless(&self) -> bool {
        self.plpmtu < self.max
    }

    /// Whether something speaks against packets of `size` bytes, of which nothing depends on one.
    pub(in crate::proto) fn is_doubtful(&self, size: usize) -> bool {
        let refuted = |search: &Search| search.phase != Phase::Searching || search.high <= self.max();
        size > self.plpmtu() && self.search().is_some_and(refuted)
    }

    fn search(&self) -> Option<&Search> {
        self.under_way.as_ref()?.search.as_ref()
    }

    fn search_mut(&mut self) -> Option<&mut Search> {
        self.under_way.as_mut()?.search.as_mut()
    }

    // ---- What is too long ----

    /// Whether something longer than the PLPMTU may be in flight, or wait to be cut.
    #[inline]
    pub(in crate::proto) fn may_have_oversize(&self) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| under_way.oversize.is_some())
    }

    /// Nothing is, once this `sn` is acknowledged.
    pub(in crate::proto) fn oversize_until(&self) -> Option<u32> {
        Some(self.under_way.as_ref()?.oversize.as_ref()?.until)
    }

    /// Something longer is in flight, or waits; nothing is, once `nxt` is acknowledged.
    pub(in crate::proto) fn set_oversize_until(&mut self, nxt: Option<u32>) {
        let Some(until) = nxt else {
            if let Some(under_way) = &mut self.under_way {
                under_way.oversize = None;
            }
            self.tidy();
            return;
        };
        let oversize = &mut self.under_way.get_or_insert_default().oversize;
        oversize.get_or_insert(Oversize { until, stuck: None }).until = until;
    }

    /// The oldest segment in flight, `una`, is sent again, as fragments.
    pub(in crate::proto) fn on_oldest_as_fragments(&mut self, now: Instant, una: u32) {
        if let Some(under_way) = &mut self.under_way
            && let Some(oversize) = &mut under_way.oversize
            && oversize.stuck.is_none_or(|(sn, _)| sn != una)
        {
            oversize.stuck = Some((una, now));
        }
    }

    /// Since when fragments of the oldest segment in flight, `una`, have not arrived.
    pub(in crate::proto) fn stuck_since(&self, una: u32) -> Option<Instant> {
        let (sn, since) = self.under_way.as_ref()?.oversize.as_ref()?.stuck?;
        (sn == una).then_some(since)
    }

    /// So many packets are sent that may be fragmented.
    #[cold]
    pub(in crate::proto) fn note_fragmentable(&mut self, bytes: usize, packets: usize) {
        tell!(fragmentable(bytes, packets, self.plpmtu()));
        self.under_way.get_or_insert_default().stats.fragmentable += packets as u64;
    }

    const fn base(&self) -> usize {
        if self.max() < BASE_PLPMTU + STEP { self.max() } else { BASE_PLPMTU }
    }

    /// What the PLPMTU falls to, where it is doubted. The last step is its own.
    fn below(&self) -> usize {
        let base = self.base().min(BASE_PLPMTU);
        if self.plpmtu() > base { base } else { self.least().min(self.plpmtu()) }
    }

    /// Headers must leave room for payload.
    fn least(&self) -> usize {
        MIN_PLPMTU.max(self.packet_of(0) + 3 * HEADER_LEN).min(self.max())
    }

    /// What spoke against the PLPMTU before says nothing of this one.
    fn set_plpmtu(&mut self, plpmtu: usize) {
        self.set_sizes(plpmtu, self.packet_of(0));
    }

    /// `around`: bytes of a packet beside the payload of the one segment that fills it.
    fn set_sizes(&mut self, plpmtu: usize, around: usize) {
        self.plpmtu = narrow(plpmtu);
        self.mss = narrow(plpmtu - around);
        self.forget_evidence();
    }

    fn forget_evidence(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.evidence = None;
            self.tidy();
        }
    }

    /// Gives back the memory of what is over.
    fn tidy(&mut self) {
        self.under_way.take_if(|under_way| under_way.is_over());
    }

    /// The packet that a segment of `len` bytes of payload takes for itself.
    const fn packet_of(&self, len: usize) -> usize {
        len + (self.plpmtu - self.mss) as usize
    }
}

/// A size of a packet, which is one that UDP can send.
const fn narrow(size: usize) -> u16 {
    if size > u16::MAX as usize { u16::MAX } else { size as u16 }
}

impl UnderWay {
    /// Whether there is nothing to be remembered.
    const fn is_over(&self) -> bool {
        self.evidence.is_none()
            && self.search.is_none()
            && self.oversize.is_none()
            && self.stats.black_holes == 0
            && self.stats.fragmentable == 0
    }
}
