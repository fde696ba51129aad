//! Says why nothing of a source is accepted, once: for the person who has set one of the two ends up wrong.
//!
//! To a client, a wrong key looks like a cable that is cut, and to its server like noise. Counters tell noise by its cause, but
//! nobody looks at them before he knows that there is something to look for. So the endpoint notes from which addresses *all* packets
//! were dropped. After [`ENOUGH`] of them for one cause, which came over [`LEAST_SPAN`] or longer, it warns: what is sent to
//! a server that was started again stops within a round trip of its answer, and is no reason to.
//!
//! Anybody can send such packets, from addresses that he makes up. So the table has a fixed size, and a place in it is found by a
//! keyed hash. Warnings are few, whatever comes: see [`WarningLimit`]. Without the feature `tracing` there is nothing of this.

pub(super) use self::watch::DropWatch;
#[cfg(all(feature = "tracing", feature = "tokio"))]
pub(crate) use self::watch::WarningLimit;

#[cfg(not(feature = "tracing"))]
mod watch {
    use crate::proto::{
        Instant,
        endpoint::{RoutingStats, batch::Batch, hash::HashKey},
    };

    /// Nothing.
    #[derive(Debug, Default)]
    pub(in crate::proto::endpoint) struct DropWatch {}

    impl DropWatch {
        #[inline(always)]
        pub(in crate::proto::endpoint) const fn begin_batch(&mut self) {}

        #[inline(always)]
        pub(in crate::proto::endpoint) const fn end_batch(
            &mut self,
            _: Instant,
            _: &Batch,
            _: &RoutingStats,
            _: HashKey,
        ) {
        }
    }
}

#[cfg(feature = "tracing")]
mod watch {
    use alloc::boxed::Box;
    use core::{
        hash::BuildHasher,
        net::{IpAddr, SocketAddr},
        time::Duration,
    };

    use tracing::Level;

    use crate::proto::{
        Instant,
        endpoint::{RoutingStats, batch::Batch, hash::HashKey, limit::network},
        trace::target,
    };

    /// Packets of a source that are dropped before a warning.
    const ENOUGH: u64 = 4;
    /// The time over which they come at least, and at most.
    const LEAST_SPAN: Duration = Duration::from_millis(500);
    const LONGEST_SPAN: Duration = Duration::from_secs(60);
    /// Sources that are watched at a time: so many for each value of a part of the hash.
    const SETS: usize = 16;
    const WAYS: usize = 4;

    /// Why packets of a source are dropped, as far as somebody can do something about it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Cause {
        Undecryptable,
        NoAgreement,
        NoSession,
        NoHello,
        MaxSessions,
        MaxHalfOpen,
        MaxHalfOpenOfNetwork,
        Backlog,
        NoCookie,
    }

    impl Cause {
        /// All, the likeliest mistake first.
        const ALL: [Self; 9] = [
            Self::Undecryptable,
            Self::NoAgreement,
            Self::NoHello,
            Self::MaxSessions,
            Self::MaxHalfOpen,
            Self::MaxHalfOpenOfNetwork,
            Self::Backlog,
            Self::NoCookie,
            Self::NoSession,
        ];

        /// Packets that were dropped for it.
        const fn count(self, stats: &RoutingStats) -> u64 {
            match self {
                Self::Undecryptable => {
                    stats.dropped_bad_checksum + stats.dropped_bad_tag + stats.dropped_long
                }
                Self::NoAgreement => stats.dropped_no_agreement,
                Self::NoSession => stats.dropped_no_session + stats.dropped_short,
                Self::NoHello => stats.dropped_no_hello,
                Self::MaxSessions => stats.dropped_max_sessions,
                Self::MaxHalfOpen => stats.dropped_max_half_open,
                Self::MaxHalfOpenOfNetwork => stats.dropped_max_half_open_of_network,
                Self::Backlog => stats.dropped_queue_full,
                // Who is asked for one returns it.
                Self::NoCookie => stats.dropped_no_cookie - stats.retries,
            }
        }

        const fn name(self) -> &'static str {
            match self {
                Self::Undecryptable => "undecryptable",
                Self::NoAgreement => "no_agreement",
                Self::NoSession => "no_session",
                Self::NoHello => "no_hello",
                Self::MaxSessions => "max_sessions",
                Self::MaxHalfOpen => "max_half_open",
                Self::MaxHalfOpenOfNetwork => "max_half_open_of_network",
                Self::Backlog => "backlog",
                Self::NoCookie => "no_cookie",
            }
        }

        /// What somebody can do about it.
        const fn advice(self) -> &'static str {
            match self {
                Self::Undecryptable => {
                    "its packets cannot be decrypted: are key, cipher and framing the same at both ends?"
                }
                Self::NoAgreement => {
                    "its messages of key agreement are refused: are the keys, who is trusted, the pattern and the version right at both ends?"
                }
                Self::NoSession => {
                    "its packets are of no session and begin none: is a cipher set at its end only, are keys agreed on at one end only, is it another protocol, another conv, or a session from before a restart?"
                }
                Self::NoHello => {
                    "it has no extensions, and they are required here: Extensions::Preferred accepts it"
                }
                Self::MaxSessions => "there are as many sessions as max_sessions allows",
                Self::MaxHalfOpen => "as many sessions are half-open as max_half_open allows",
                Self::MaxHalfOpenOfNetwork => {
                    "as many sessions of its network are half-open as max_half_open_of_network allows"
                }
                Self::Backlog => "as many sessions wait for `accept` as accept_backlog allows",
                Self::NoCookie => {
                    "it is to return a cookie, and has no extensions to do so: see CookiePolicy"
                }
            }
        }
    }

    /// Watches what becomes of each batch of packets.
    #[derive(Debug, Default)]
    pub(in crate::proto::endpoint) struct DropWatch {
        /// The counters as they were behind the last batch.
        seen: RoutingStats,
        /// A batch is being routed.
        in_batch: bool,
        /// Made for the first packet that is dropped.
        sources: Option<Box<[[Option<Source>; WAYS]; SETS]>>,
        limit: WarningLimit,
    }

    /// A source of which everything was dropped lately.
    #[derive(Debug, Clone, Copy)]
    struct Source {
        address: SocketAddr,
        cause: Cause,
        packets: u64,
        since: Instant,
        last: Instant,
        /// It was the reason of a warning, or of none because there were too many.
        is_settled: bool,
    }

    impl DropWatch {
        /// A batch is about to be routed.
        #[inline]
        pub(in crate::proto::endpoint) const fn begin_batch(&mut self) {
            self.in_batch = true;
        }

        /// A batch was routed, which was counted in `stats`.
        #[inline]
        pub(in crate::proto::endpoint) fn end_batch(
            &mut self,
            now: Instant,
            batch: &Batch,
            stats: &RoutingStats,
            key: HashKey,
        ) {
            // All that is dropped is counted.
            let dropped = dropped(stats) - dropped(&self.seen);
            let is_over = core::mem::take(&mut self.in_batch);
            if dropped > 0 || (is_over && self.sources.is_some()) {
                let packets = batch.packets() as u64;
                let seen = core::mem::replace(&mut self.seen, *stats);
                if is_over && tracing::enabled!(target: target::ENDPOINT, Level::WARN) {
                    self.look(now, batch.source, packets, dropped, &seen, key);
                }
            }
        }

        #[cold]
        fn look(
            &mut self,
            now: Instant,
            source: SocketAddr,
            packets: u64,
            dropped: u64,
            seen: &RoutingStats,
            key: HashKey,
        ) {
            let causes =
                Cause::ALL.into_iter().map(|cause| (cause, cause.count(&self.seen) - cause.count(seen)));
            let cause = causes.into_iter().find(|(_, packets)| *packets > 0);
            let peer = source;
            if let Some((cause, packets)) = cause {
                tracing::trace!(
                    name: "dropped", target: target::ENDPOINT, { %peer, cause = cause.name(), packets }, "packets are dropped"
                );
            }
            // An empty packet has no bytes, and is a packet that was dropped.
            if dropped < packets {
                return self.forget(source, key);
            }
            let Some((cause, packets)) = cause else { return };
            let Some(packets) = self.note(now, source, cause, packets, key) else { return };
            if let Some(suppressed) = self.limit.permit(now, source.ip(), cause.name()) {
                tracing::warn!(
                    name: "all_dropped",
                    target: target::ENDPOINT,
                    { %peer, cause = cause.name(), packets, suppressed },
                    "nothing of {peer} is accepted: {}",
                    cause.advice()
                );
            }
        }

        /// Notes packets of a source of which everything was dropped. Returns how many there were, if that is a reason to warn.
        fn note(
            &mut self,
            now: Instant,
            address: SocketAddr,
            cause: Cause,
            packets: u64,
            key: HashKey,
        ) -> Option<u64> {
            let sources = self.sources.get_or_insert_with(|| Box::new([[None; WAYS]; SETS]));
            let set = &mut sources[set_of(address, key)];
            let is_it = |source: &Option<Source>| source.is_some_and(|source| source.address == address);
            let at = set.iter().position(is_it).unwrap_or_else(|| {
                // The one that was silent for the longest time gives way.
                (0..WAYS).min_by_key(|at| set[*at].map(|source| source.last)).unwrap_or_default()
            });
            let fresh = Source { address, cause, packets: 0, since: now, last: now, is_settled: false };
            let goes_on = |source: &Source| {
                source.address == address && source.cause == cause && now - source.since < LONGEST_SPAN
            };
            let mut source = set[at].filter(goes_on).unwrap_or(fresh);
            source.packets += packets;
            source.last = now;
            let is_due = !source.is_settled && source.packets >= ENOUGH && now - source.since >= LEAST_SPAN;
            source.is_settled |= is_due;
            set[at] = Some(source);
            is_due.then_some(source.packets)
        }

        /// Something of the source was accepted.
        fn forget(&mut self, address: SocketAddr, key: HashKey) {
            if let Some(sources) = &mut self.sources {
                let set = &mut sources[set_of(address, key)];
                set.iter_mut().for_each(|source| {
                    source.take_if(|source| source.address == address);
                });
            }
        }
    }

    fn set_of(address: SocketAddr, key: HashKey) -> usize {
        key.hash_one(address) as usize % SETS
    }

    /// All packets that were dropped.
    const fn dropped(stats: &RoutingStats) -> u64 {
        stats.dropped_short
            + stats.dropped_long
            + stats.dropped_bad_checksum
            + stats.dropped_bad_tag
            + stats.dropped_no_agreement
            + stats.dropped_no_session
            + stats.dropped_no_hello
            + stats.dropped_recently_closed
            + stats.dropped_replayed
            + stats.dropped_queue_full
            + stats.dropped_max_sessions
            + stats.dropped_max_half_open
            + stats.dropped_max_half_open_of_network
            + stats.dropped_no_cookie
            + stats.dropped_over_share
    }

    /// How many warnings there are: one a minute of each network and cause, and [`MOST`] in all.
    #[derive(Debug, Default)]
    pub(crate) struct WarningLimit {
        /// The last ones, in a ring: `next` is the oldest.
        last: [Option<Warning>; MOST],
        next: usize,
        /// Those that were left out since the last one.
        suppressed: u64,
    }

    #[derive(Debug, Clone, Copy)]
    struct Warning {
        at: Instant,
        network: u64,
        cause: &'static str,
    }

    /// Warnings in [`PERIOD`].
    const MOST: usize = 20;
    const PERIOD: Duration = Duration::from_secs(60);

    impl WarningLimit {
        /// Whether one more is allowed; if so, how many were left out before.
        pub(crate) fn permit(&mut self, now: Instant, source: IpAddr, cause: &'static str) -> Option<u64> {
            let network = network(source);
            let is_recent = |warning: &&Warning| now - warning.at < PERIOD;
            let is_full = self.last[self.next].as_ref().filter(is_recent).is_some();
            let mut recent = self.last.iter().flatten().filter(is_recent);
            if is_full || recent.any(|warning| warning.network == network && warning.cause == cause) {
                self.suppressed += 1;
                return None;
            }
            self.last[self.next] = Some(Warning { at: now, network, cause });
            self.next = (self.next + 1) % MOST;
            Some(core::mem::take(&mut self.suppressed))
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn address(host: u8, port: u16) -> SocketAddr {
            SocketAddr::from(([10, 0, 0, host], port))
        }

        fn at(millis: u64) -> Instant {
            Instant::from_millis(millis)
        }

        #[test]
        fn a_source_is_a_reason_to_warn_once_for_enough_packets_over_some_time() {
            let (key, mut watch) = (HashKey::for_tests(), DropWatch::default());
            let mut note =
                |millis, packets| watch.note(at(millis), address(1, 1), Cause::Undecryptable, packets, key);
            assert_eq!(note(0, 100), None, "they came at once");
            assert_eq!(note(499, 1), None);
            assert_eq!(note(500, 1), Some(102));
            assert_eq!(note(1_000, 100), None, "that was said");
            assert_eq!(note(60_000, 1), None, "a minute later all begins anew");
            assert_eq!((note(61_000, 2), note(61_000, 1)), (None, Some(4)));
        }

        #[test]
        fn what_is_accepted_and_another_cause_begin_the_count_anew() {
            let (key, mut watch) = (HashKey::for_tests(), DropWatch::default());
            let source = address(1, 1);
            assert_eq!(watch.note(at(0), source, Cause::Undecryptable, 9, key), None);
            watch.forget(source, key);
            assert_eq!(watch.note(at(1_000), source, Cause::Undecryptable, 9, key), None);
            assert_eq!(watch.note(at(2_000), source, Cause::NoSession, 9, key), None);
            assert_eq!(watch.note(at(3_000), source, Cause::NoSession, 9, key), Some(18));
        }

        #[test]
        fn a_flood_of_sources_takes_no_more_memory_and_is_no_reason() {
            let (key, mut watch) = (HashKey::for_tests(), DropWatch::default());
            for number in 0..20_000_u16 {
                let source = address((number >> 8) as u8, number);
                let noted = watch.note(at(number.into()), source, Cause::Undecryptable, 1, key);
                assert_eq!(noted, None);
            }
            let table = watch.sources.as_ref().unwrap();
            assert_eq!(table.iter().flatten().flatten().count(), SETS * WAYS);
            assert!(size_of_val(&**table) <= 6 << 10, "{}", size_of_val(&**table));
        }

        #[test]
        fn warnings_are_few_whatever_comes() {
            let mut limit = WarningLimit::default();
            let host = |number: u32| IpAddr::from(number.to_be_bytes());
            assert_eq!(limit.permit(at(0), host(0), "a"), Some(0));
            assert_eq!(limit.permit(at(1), host(0), "a"), None, "the same once more");
            assert_eq!(limit.permit(at(2), host(0), "b"), Some(1), "another cause");
            let permitted = (1..1_000).filter(|number| limit.permit(at(3), host(*number), "a").is_some());
            assert_eq!(permitted.count(), MOST - 2);
            assert_eq!(limit.permit(at(59_999), host(2_000), "a"), None);
            assert_eq!(limit.permit(at(60_000), host(0), "a"), Some(1_000 - 1 - 18 + 1), "a minute later");
        }
    }
}
