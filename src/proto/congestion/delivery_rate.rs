//! Delivery-rate sampling: at what rate the path has carried what the ACKs of one packet confirm.
//!
//! This is the algorithm of draft-cheng-iccrg-delivery-rate-estimation, which BBR's drafts build on, with its names. The
//! connection's variables (`C.` there) are the fields of [`DeliveryRate`], those of a packet (`P.`) the fields of
//! [`SendState`], and the result (`rs.`) is the [`RateSample`]. One sampler belongs to one path and serves whichever
//! controller the session has.
//!
//! All bytes are those of segments with their 24-byte headers, each counted when it is confirmed for the first time.

use core::time::Duration;

use crate::proto::time::Instant;

/// How delivery stood when a segment was sent. It is kept with each segment in flight and therefore small: times are
/// microseconds before the sending, `u32::MAX` for more than fit.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::proto) struct SendState {
    /// `P.delivered`.
    delivered: u64,
    /// The time of sending less `P.delivered_time`.
    since_delivered_time: u32,
    /// The time of sending less `P.first_sent_time`: the sample's `send_elapsed`.
    send_elapsed: u32,
    /// `P.lost`, modulo 2^32.
    lost: u32,
    /// `P.tx_in_flight`, and in the lowest bit `P.is_app_limited`.
    flight: u32,
}

impl SendState {
    const fn is_app_limited(self) -> bool {
        self.flight & 1 != 0
    }

    const fn tx_in_flight(self) -> u64 {
        (self.flight >> 1) as u64
    }
}

/// What congestion control is told of a loss beside the segment itself; see [`Lost`](super::Lost).
#[derive(Debug, Clone, Copy)]
pub(in crate::proto) struct LossSample {
    pub(in crate::proto) tx_in_flight: u64,
    pub(in crate::proto) lost: u64,
    pub(in crate::proto) is_app_limited: bool,
}

/// What the ACKs of one packet confirm that was not confirmed before.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::proto) struct NewlyAcked {
    pub(in crate::proto) segments: u32,
    pub(in crate::proto) bytes: u64,
    /// The segment among them that was sent last: when, and its state.
    newest: Option<(Instant, SendState)>,
}

impl NewlyAcked {
    /// Adds one segment.
    #[inline]
    pub(in crate::proto) fn add(&mut self, bytes: u64, sent_time: Instant, state: SendState) {
        self.segments += 1;
        self.bytes += bytes;
        if self.newest.is_none_or(|(newest, _)| newest <= sent_time) {
            self.newest = Some((sent_time, state));
        }
    }

    /// When the segment that was sent last was sent.
    pub(in crate::proto) fn sent_time(&self) -> Option<Instant> {
        self.newest.map(|(sent_time, _)| sent_time)
    }
}

/// A sample of the delivery rate, taken from the segment that was sent last among those that one packet of ACKs confirms.
///
/// The names are those of draft-cheng-iccrg-delivery-rate-estimation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RateSample {
    /// Bytes a second: [`delivered`](Self::delivered) by [`interval`](Self::interval). 0 where the sample tells nothing,
    /// because the interval is shorter than the path's minimum round-trip time.
    pub delivery_rate: u64,
    /// Bytes confirmed between [`prior_time`](Self::prior_time) and now.
    pub delivered: u64,
    /// Bytes that had been confirmed in all when the segment was sent.
    pub prior_delivered: u64,
    /// When the last of these had been confirmed.
    pub prior_time: Instant,
    /// When the segment was sent.
    pub sent_time: Instant,
    /// How long the sending of these bytes took.
    pub send_elapsed: Duration,
    /// How long the confirming of these bytes took.
    pub ack_elapsed: Duration,
    /// The longer of both: ACKs may come in a batch, but nothing is delivered faster than it was sent.
    pub interval: Duration,
    /// The segment was sent while the application, not the window, limited the sender. Such a sample may be too low.
    pub is_app_limited: bool,
    /// Bytes in flight when the segment was sent, its own included; 0 where that is not known.
    pub tx_in_flight: u64,
    /// Bytes found lost since then. Losses that the same ACKs show are not in it yet.
    pub lost: u64,
}

/// The sampler of one path.
#[derive(Debug, Default)]
pub(in crate::proto) struct DeliveryRate {
    /// Bytes confirmed so far.
    delivered: u64,
    /// When the last of them were confirmed, or when sending began again after a pause.
    delivered_time: Instant,
    /// When the segment was sent that was confirmed last, or when sending began again after a pause.
    first_sent_time: Instant,
    /// Segments are app-limited until more than this is delivered; 0 when they are not.
    app_limited: u64,
    /// Bytes found lost so far: `C.lost`.
    lost: u64,
}

impl DeliveryRate {
    /// Bytes confirmed so far.
    pub(in crate::proto) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// When the segment was sent that was confirmed last, or when sending began again after a pause.
    pub(in crate::proto) const fn newest_sent_time(&self) -> Instant {
        self.first_sent_time
    }

    /// A segment is sent with `in_flight` bytes unconfirmed before it. `bytes` are its own, 0 if it is sent again and
    /// these are in flight already.
    #[inline]
    pub(in crate::proto) fn on_send(&mut self, now: Instant, in_flight: u64, bytes: u64) -> SendState {
        if in_flight == 0 {
            self.first_sent_time = now;
            self.delivered_time = now;
        }
        SendState {
            delivered: self.delivered,
            since_delivered_time: micros_since(self.delivered_time, now),
            send_elapsed: micros_since(self.first_sent_time, now),
            lost: self.lost as u32,
            flight: ((in_flight + bytes).min(MAX_FLIGHT) as u32) << 1 | u32::from(self.is_app_limited()),
        }
    }

    /// A segment of `bytes` that was sent with `state` is found lost.
    pub(in crate::proto) fn on_lost(&mut self, bytes: u64, state: SendState) -> LossSample {
        self.lost += bytes;
        LossSample {
            tx_in_flight: state.tx_in_flight(),
            lost: self.lost_since(state),
            is_app_limited: state.is_app_limited(),
        }
    }

    fn lost_since(&self, state: SendState) -> u64 {
        let lost = (self.lost as u32).wrapping_sub(state.lost);
        // What was sent before this sampler began counting may seem to have been sent with more lost than there is.
        if lost > u32::MAX / 2 { 0 } else { lost.into() }
    }

    /// Whether what is sent now is sent by an application that has had too little to send. This holds until something
    /// is confirmed that was sent after the application had run out. What is sent into an empty path counts too, or one
    /// request in each round trip would pass for all that the path can carry.
    pub(in crate::proto) const fn is_app_limited(&self) -> bool {
        self.app_limited > 0 && self.app_limited >= self.delivered
    }

    /// The application has no more to send, with `in_flight` bytes unconfirmed and room for more.
    pub(in crate::proto) const fn on_app_limited(&mut self, in_flight: u64) {
        let until = self.delivered + in_flight;
        self.app_limited = if until == 0 { 1 } else { until };
    }

    /// Takes what one packet of ACKs confirms; `None` if that is nothing.
    pub(in crate::proto) fn on_ack(
        &mut self,
        now: Instant,
        acked: &NewlyAcked,
        min_rtt: Option<Duration>,
    ) -> Option<RateSample> {
        let (sent_time, state) = acked.newest?;
        self.delivered += acked.bytes;
        self.delivered_time = now;
        self.first_sent_time = sent_time;
        let since_sent = now.as_micros().saturating_sub(sent_time.as_micros());
        let ack_micros = since_sent + u64::from(state.since_delivered_time);
        let micros = ack_micros.max(state.send_elapsed.into());
        // What was sent before this sampler began counting may seem to have been sent with more delivered than there is.
        let delivered = self.delivered.saturating_sub(state.delivered);
        let too_short = min_rtt.is_some_and(|min_rtt| u128::from(micros) < min_rtt.as_micros());
        let rate = if too_short { None } else { delivered.saturating_mul(1_000_000).checked_div(micros) };
        let ago = u64::from(state.since_delivered_time);
        Some(RateSample {
            delivery_rate: rate.unwrap_or(0),
            delivered,
            prior_delivered: state.delivered,
            prior_time: Instant::from_micros(sent_time.as_micros().saturating_sub(ago)),
            sent_time,
            send_elapsed: Duration::from_micros(state.send_elapsed.into()),
            ack_elapsed: Duration::from_micros(ack_micros),
            interval: Duration::from_micros(micros),
            is_app_limited: state.is_app_limited(),
            tx_in_flight: state.tx_in_flight(),
            lost: self.lost_since(state),
        })
    }
}

/// More bytes in flight are noted as this many.
const MAX_FLIGHT: u64 = u32::MAX as u64 >> 1;

fn micros_since(earlier: Instant, now: Instant) -> u32 {
    u32::try_from(now.as_micros().saturating_sub(earlier.as_micros())).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn acked(segments: &[(u64, Instant, SendState)]) -> NewlyAcked {
        let mut acked = NewlyAcked::default();
        segments.iter().for_each(|(bytes, sent_time, state)| acked.add(*bytes, *sent_time, *state));
        acked
    }

    #[test]
    fn a_steady_flow_is_measured_at_its_rate() {
        let mut rate = DeliveryRate::default();
        // 1,000 bytes every millisecond over a round trip of 10 ms.
        let mut sent = alloc::collections::VecDeque::new();
        for now in 0..100 {
            if now >= 10 {
                let (at, state) = sent.pop_front().unwrap();
                let sample = rate.on_ack(ms(now), &acked(&[(1_000, at, state)]), None).unwrap();
                if now >= 30 {
                    assert_eq!((sample.delivery_rate, sample.is_app_limited), (1_000_000, false));
                    assert_eq!(sample.interval, Duration::from_millis(10));
                }
            }
            let in_flight = 1_000 * sent.len() as u64;
            sent.push_back((ms(now), rate.on_send(ms(now), in_flight, 1_000)));
        }
    }

    /// ACKs that come all at once do not make the path faster than the sender was.
    #[test]
    fn a_batch_of_acks_is_no_faster_than_the_sending() {
        let mut rate = DeliveryRate::default();
        let first = rate.on_send(ms(0), 0, 1_000);
        rate.on_ack(ms(10), &acked(&[(1_000, ms(0), first)]), None);
        let sent: alloc::vec::Vec<_> =
            (0..20).map(|i| (1_000, ms(10 + i), rate.on_send(ms(10 + i), 1_000, 1_000))).collect();
        let sample = rate.on_ack(ms(31), &acked(&sent), None).unwrap();
        assert_eq!((sample.delivered, sample.prior_delivered), (20_000, 1_000));
        assert_eq!(
            (sample.send_elapsed, sample.ack_elapsed),
            (Duration::from_millis(29), Duration::from_millis(21))
        );
        assert_eq!(sample.delivery_rate, 20_000 * 1_000 / 29);
    }

    #[test]
    fn a_sample_shorter_than_the_minimum_round_trip_tells_no_rate() {
        let mut rate = DeliveryRate::default();
        let state = rate.on_send(ms(0), 0, 1_000);
        let acked = acked(&[(1_000, ms(0), state)]);
        let sample = rate.on_ack(ms(10), &acked, Some(Duration::from_millis(20))).unwrap();
        assert_eq!((sample.delivery_rate, sample.delivered), (0, 1_000));
        let sample = rate.on_ack(ms(20), &acked, Some(Duration::from_millis(20))).unwrap();
        assert!(sample.delivery_rate > 0);
    }

    #[test]
    fn app_limited_ends_when_what_was_sent_after_it_is_confirmed() {
        let mut rate = DeliveryRate::default();
        let first = rate.on_send(ms(0), 0, 1_000);
        rate.on_app_limited(1_000);
        let second = rate.on_send(ms(1), 1_000, 1_000);
        let third = rate.on_send(ms(2), 2_000, 1_000);
        let limited = [first, second, third].map(SendState::is_app_limited);
        assert_eq!(limited, [false, true, true]);
        rate.on_ack(ms(10), &acked(&[(1_000, ms(0), first)]), None);
        assert!(rate.is_app_limited());
        rate.on_ack(ms(11), &acked(&[(1_000, ms(1), second)]), None);
        assert!(!rate.is_app_limited());
    }

    #[test]
    fn what_was_sent_under_another_sampler_tells_no_rate() {
        let mut before = DeliveryRate::default();
        let first = before.on_send(ms(0), 0, 1_000);
        before.on_ack(ms(10), &acked(&[(1 << 40, ms(0), first)]), None);
        before.on_lost(1_000, first);
        let state = before.on_send(ms(10), 1_000, 1_000);
        let mut after = DeliveryRate::default();
        let sample = after.on_ack(ms(20), &acked(&[(1_000, ms(10), state)]), None).unwrap();
        assert_eq!((sample.delivery_rate, sample.lost), (0, 0));
    }

    /// What is lost between the sending of a segment and its ACK, or its loss.
    #[test]
    fn losses_are_counted_since_the_sending_and_with_what_was_in_flight_then() {
        let mut rate = DeliveryRate::default();
        let first = rate.on_send(ms(0), 0, 1_000);
        let second = rate.on_send(ms(0), 1_000, 700);
        let LossSample { tx_in_flight, lost, is_app_limited } = rate.on_lost(1_000, first);
        assert_eq!((tx_in_flight, lost, is_app_limited), (1_000, 1_000, false));
        rate.on_app_limited(1_700);
        // Sent again: its bytes are in flight already.
        let third = rate.on_send(ms(5), 1_700, 0);
        let LossSample { tx_in_flight, lost, is_app_limited } = rate.on_lost(700, second);
        assert_eq!((tx_in_flight, lost, is_app_limited), (1_700, 1_700, false));
        let sample = rate.on_ack(ms(15), &acked(&[(1_000, ms(5), third)]), None).unwrap();
        assert_eq!((sample.tx_in_flight, sample.lost, sample.is_app_limited), (1_700, 700, true));
    }

    #[test]
    fn counters_pass_the_range_of_what_is_kept_of_them() {
        let mut rate = DeliveryRate { lost: (1 << 32) - 500, ..DeliveryRate::default() };
        let state = rate.on_send(ms(0), 1 << 40, 1_000);
        let LossSample { tx_in_flight, lost, .. } = rate.on_lost(1_000, state);
        assert_eq!((tx_in_flight, lost), (MAX_FLIGHT, 1_000));
    }

    /// One is kept with each segment in flight.
    #[test]
    fn a_send_state_stays_small() {
        assert_eq!(size_of::<SendState>(), 24);
    }
}
