//! How much an endpoint sends without a session.
//!
//! An answer without a session costs its cause nothing to remember, so a flood of causes would draw a flood of answers. Three
//! limits keep them few:
//!
//! * **All stateless answers** of the endpoint together. An attacker who sends from many forged addresses gets no more.
//! * **Those to one network**: one IPv4 address, or 64 bits of an IPv6 address. One host cannot use up what is there for all.
//! * **The answers of records**, ten times as many. They go only to the address and conv of a session that was there, which
//!   answered without any limit while it lived. There is no limit for a network: many clients may share an address.
//!
//! A bucket is one instant: the time at which it will be full again. Taking a token moves that instant by the time in which
//! one token comes back (the generic cell rate algorithm). So a bucket has no timer, and 1,024 of them take 8 KiB.

use alloc::{boxed::Box, vec};
use core::{
    hash::BuildHasher,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::hash::HashKey;
use crate::proto::Instant;

/// The limits of an endpoint.
#[derive(Debug)]
pub(super) struct Limits {
    stateless: Rate,
    stateless_bucket: Bucket,
    networks: NetworkLimit,
    records: Rate,
    records_bucket: Bucket,
}

impl Limits {
    /// Allows `per_second` stateless answers.
    pub(super) fn new(per_second: u32, key: HashKey) -> Self {
        Self {
            stateless: Rate::new(per_second, per_second / 10),
            stateless_bucket: Bucket::default(),
            networks: NetworkLimit::new(Rate::new(per_second.div_ceil(50), per_second.div_ceil(100)), key),
            records: Rate::new(per_second.saturating_mul(10), per_second),
            records_bucket: Bucket::default(),
        }
    }

    /// Whether something that is of no session and of no record may be answered; takes the answer into account.
    pub(super) fn take_stateless(&mut self, now: Instant, to: SocketAddr) -> bool {
        // Both or none: what one limit refuses must not use up the other.
        if !self.networks.allows(now, to.ip()) || !self.stateless.allows(self.stateless_bucket, now) {
            return false;
        }
        self.networks.take(now, to.ip());
        self.stateless.take(&mut self.stateless_bucket, now);
        true
    }

    /// Whether a record may answer; takes the answer into account.
    pub(super) fn take_record(&mut self, now: Instant) -> bool {
        let allowed = self.records.allows(self.records_bucket, now);
        if allowed {
            self.records.take(&mut self.records_bucket, now);
        }
        allowed
    }
}

/// A limit that each network has for itself.
#[derive(Debug)]
pub(super) struct NetworkLimit {
    key: HashKey,
    rate: Rate,
    /// A network has the bucket that its keyed hash names, so nobody can choose whom to share one with. Made for the first token.
    buckets: Box<[Bucket]>,
}

impl NetworkLimit {
    pub(super) fn new(rate: Rate, key: HashKey) -> Self {
        Self { key, rate, buckets: Box::default() }
    }

    fn place(&self, ip: IpAddr) -> usize {
        self.key.hash_one(network(ip)) as usize % NETWORKS
    }

    pub(super) fn allows(&self, now: Instant, ip: IpAddr) -> bool {
        let bucket = self.buckets.get(self.place(ip)).copied().unwrap_or_default();
        self.rate.allows(bucket, now)
    }

    /// When a network has a token: `now`, or later if others were taken in advance.
    pub(super) fn next(&self, now: Instant, ip: IpAddr) -> Instant {
        let bucket = self.buckets.get(self.place(ip)).copied().unwrap_or_default();
        self.rate.next(bucket, now)
    }

    /// Takes a token, also one that is not there yet.
    pub(super) fn take(&mut self, now: Instant, ip: IpAddr) {
        if self.buckets.is_empty() {
            self.buckets = vec![Bucket::default(); NETWORKS].into_boxed_slice();
        }
        let place = self.place(ip);
        self.rate.take(&mut self.buckets[place], now);
    }
}

/// The part of an address that one host can have many of in all: 32 bits of IPv4, 64 of IPv6.
pub(super) fn network(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
    }
}

/// How fast tokens come back to a bucket, and how many it holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    /// The time in which one token comes back; `None` if none ever does.
    interval: Option<Duration>,
    /// How far in the future a bucket may be full again, and still give a token.
    tolerance: Duration,
}

impl Rate {
    pub(super) fn new(per_second: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1).checked_div(per_second);
        let tolerance = interval.unwrap_or_default().saturating_mul(burst.saturating_sub(1));
        Self { interval, tolerance }
    }

    pub(super) fn allows(self, bucket: Bucket, now: Instant) -> bool {
        self.interval.is_some() && bucket.full_at - now <= self.tolerance
    }

    /// When there is a token. Never, if none ever comes back.
    pub(super) fn next(self, bucket: Bucket, now: Instant) -> Instant {
        if self.interval.is_none() {
            return Instant::NEVER;
        }
        now + (bucket.full_at - now).saturating_sub(self.tolerance)
    }

    pub(super) fn take(self, bucket: &mut Bucket, now: Instant) {
        bucket.full_at = bucket.full_at.max(now) + self.interval.unwrap_or_default();
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bucket {
    full_at: Instant,
}

/// Buckets of networks. At the default limits, one network in a thousand shares the bucket of one that floods.
const NETWORKS: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(per_second: u32) -> Limits {
        Limits::new(per_second, HashKey::for_tests())
    }

    fn address(host: u32) -> SocketAddr {
        SocketAddr::from((host.to_be_bytes(), 4_000))
    }

    /// Answers to a question each `gap` for a time.
    fn answered(gap: Duration, time: Duration, mut take: impl FnMut(Instant, u32) -> bool) -> usize {
        let (mut now, mut number, mut answered) = (Instant::ZERO + Duration::from_secs(9), 0, 0);
        let end = now + time;
        while now < end {
            answered += usize::from(take(now, number));
            now += gap;
            number += 1;
        }
        answered
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    #[cfg_attr(miri, ignore = "millions of steps, which do nothing that few do not")]
    fn a_flood_from_everywhere_is_answered_a_thousand_times_a_second() {
        let mut limits = limits(1_000);
        let count =
            answered(Duration::from_micros(20), MINUTE, |now, n| limits.take_stateless(now, address(n)));
        assert!((60_000..=60_100).contains(&count), "{count}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of steps, which do nothing that few do not")]
    fn a_flood_from_one_network_is_answered_twenty_times_a_second() {
        let mut limits = limits(1_000);
        let count = answered(Duration::from_micros(500), MINUTE, |now, n| {
            let port = SocketAddr::new(address(1).ip(), n as u16);
            limits.take_stateless(now, port)
        });
        assert!((1_200..=1_210).contains(&count), "{count}");
        // Others are answered meanwhile.
        let now = Instant::ZERO + Duration::from_secs(9) + MINUTE;
        assert!((2..50).filter(|host| limits.take_stateless(now, address(*host))).count() > 40);
    }

    #[test]
    fn an_ipv6_network_is_64_bits_and_a_mapped_address_is_an_ipv4_one() {
        let one = |ip: &str| network(ip.parse().unwrap());
        assert_eq!(one("2001:db8:1:2::1"), one("2001:db8:1:2:ffff::9"));
        assert_ne!(one("2001:db8:1:2::1"), one("2001:db8:1:3::1"));
        assert_eq!(one("::ffff:192.0.2.1"), one("192.0.2.1"));
        assert_ne!(one("192.0.2.1"), one("192.0.2.2"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of steps, which do nothing that few do not")]
    fn records_answer_ten_times_as_often() {
        let mut limits = limits(1_000);
        let count = answered(Duration::from_micros(20), MINUTE, |now, _| limits.take_record(now));
        assert!((600_000..=601_000).contains(&count), "{count}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of steps, which do nothing that few do not")]
    fn what_is_seldom_is_always_answered() {
        let mut limits = limits(1_000);
        assert_eq!(
            answered(Duration::from_millis(50), MINUTE, |now, _| limits.take_stateless(now, address(1))),
            1_200
        );
        assert_eq!(answered(Duration::from_millis(1), MINUTE, |now, _| limits.take_record(now)), 60_000);
    }

    #[test]
    fn a_limit_of_zero_answers_nothing() {
        let mut limits = limits(0);
        assert!(!limits.take_stateless(Instant::ZERO, address(1)) && !limits.take_record(Instant::ZERO));
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of steps, which do nothing that few do not")]
    fn a_limit_of_one_answers_now_and_then() {
        let mut limits = limits(1);
        let count =
            answered(Duration::from_millis(10), MINUTE, |now, n| limits.take_stateless(now, address(n)));
        assert!((60..=61).contains(&count), "{count}");
    }
}
