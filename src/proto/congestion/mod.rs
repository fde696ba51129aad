//! Congestion control: how much a session has in flight, and how fast it sends.
//!
//! A [`Controller`] is told what happens to the segments of one path and answers with a window and a pacing rate. It
//! does no I/O, reads no clock, and never sees a segment. [`CongestionControl`] chooses one for a session
//! ([`KcpConfigBuilder::congestion_control`](crate::KcpConfigBuilder::congestion_control)); where
//! [`nc`](crate::NoDelay::nc) is on there is none, and the peers' windows are the only limit.
//!
//! * [`CongestionControl::BbrLike`], the default, is after BBR: see [its own page](bbr_like).
//! * [`CongestionControl::Bbr3`] is BBR version 3, as the IETF describes it: see [its own page](bbr3).
//! * [`CongestionControl::Cubic`] shares a link with TCP as another TCP connection would: see [its own page](cubic).
//! * [`CongestionControl::DelayBased`] is our own: it keeps queues short, and its speed through random loss. It is new: see [its own page](delay).
//! * [`CongestionControl::Kcp`] has the rules of ikcp and kcp-go: see [its own page](kcp).
//! * [`CongestionControl::Custom`] is for a controller of the user's own.
//!
//! # Units
//!
//! Bytes are those of segments with their 24-byte headers; what encryption and FEC add is not counted. Rates are in
//! bytes a second. The *mtu* that a controller is told is the size of a full segment in these bytes.
//!
//! # A controller of one's own
//!
//! The smallest has a fixed window:
//!
//! ```
//! use std::sync::Arc;
//!
//! use kcp9::{
//!     KcpConfig,
//!     congestion::{Acked, CongestionControl, Controller, ControllerFactory, MinRtt},
//!     proto::{Connection, Instant},
//! };
//!
//! /// Keeps so many full segments in flight, whatever is lost.
//! #[derive(Debug)]
//! struct Fixed {
//!     segments: u64,
//!     mtu: usize,
//! }
//!
//! impl Controller for Fixed {
//!     fn on_ack(&mut self, _: &Acked, _: &mut MinRtt) {}
//!
//!     fn on_mtu_change(&mut self, mtu: usize) {
//!         self.mtu = mtu;
//!     }
//!
//!     fn window(&self) -> u64 {
//!         self.segments * self.mtu as u64
//!     }
//! }
//!
//! /// Makes one for each session.
//! #[derive(Debug)]
//! struct FixedFactory(u64);
//!
//! impl ControllerFactory for FixedFactory {
//!     fn build(&self, _now: Instant, mtu: usize) -> Box<dyn Controller> {
//!         Box::new(Fixed { segments: self.0, mtu })
//!     }
//! }
//!
//! let config = KcpConfig::builder()
//!     .congestion_control(CongestionControl::Custom(Arc::new(FixedFactory(5))))
//!     .build()?;
//! let mut connection = Connection::new(7, &config, Instant::ZERO);
//! connection.write(Instant::ZERO, &[1; 20_000])?;
//!
//! let mut packets = [0; 65_536];
//! let sent = connection.poll_transmit(Instant::ZERO, &mut packets).ok_or("nothing to send")?;
//! assert_eq!(sent.len, 5 * 1_400);
//! assert_eq!(connection.poll_transmit(Instant::ZERO, &mut packets), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bbr3;
pub mod bbr_like;
pub mod cubic;
pub mod delay;
pub(in crate::proto) mod delivery_rate;
pub mod kcp;

use alloc::{boxed::Box, sync::Arc};
use core::{fmt, str::FromStr, time::Duration};

pub use self::delivery_rate::RateSample;
use self::{bbr_like::BbrLike, bbr3::Bbr3, cubic::Cubic, delay::DelayBased, kcp::Kcp};
use super::time::Instant;
pub use super::{error::UnknownController, path::MinRtt};

/// How the sender adapts to the path while [`nc`](crate::NoDelay::nc) is off.
///
/// It is also the [`ControllerFactory`] of the controllers that it names, so that one's own may wrap one of them.
///
/// [`FromStr`] takes their [names](Self::name):
///
/// ```
/// use kcp9::CongestionControl;
///
/// assert_eq!("cubic".parse::<CongestionControl>(), Ok(CongestionControl::Cubic));
/// let error = "reno".parse::<CongestionControl>().unwrap_err();
/// assert_eq!(error.to_string(), "not a congestion controller's name (bbr, bbr3, cubic, delay, kcp)");
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum CongestionControl {
    /// Keeps in flight what the path has been seen to deliver in a round trip, and a little more. It is the fastest through random loss,
    /// also beyond 15 %, and at the beginning of a transfer; many sessions of it overflow the queue that they share, and leave little to
    /// others. It is after BBR, and simpler: see [`bbr_like`].
    #[default]
    BbrLike,
    /// BBR version 3: it probes for bandwidth more seldom than [`BbrLike`](Self::BbrLike), and slows down where more than 2 %
    /// are lost. It leaves room to TCP. See [`bbr3`].
    Bbr3,
    /// RFC 9438's, that of most TCP: 0.7 of the window after a loss, and growth along a cubic curve of time. It is fair
    /// to TCP, and slow where packets are lost at random. See [`cubic`].
    Cubic,
    /// Our own: it goes by the length of the queue, so that many sessions fill a link and drop few packets, and losses at random
    /// do not slow it down; beside others that fill the queue it is CUBIC. It is new, and what it still
    /// lacks is on its page: see [`delay`].
    DelayBased,
    /// ikcp's and kcp-go's: slow start, additive growth, half the window after a loss and one segment after a timeout.
    /// It is polite, and slow where packets are lost at random. See [`kcp`].
    Kcp,
    /// One's own. Two of these are equal if they are clones of one `Arc`.
    Custom(Arc<dyn ControllerFactory>),
}

impl CongestionControl {
    /// Those of the library.
    pub(super) const NAMED: &[Self] = &[Self::BbrLike, Self::Bbr3, Self::Cubic, Self::DelayBased, Self::Kcp];

    /// Its name on command lines: `bbr`, `bbr3`, `cubic`, `delay`, `kcp`, or `custom`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::BbrLike => "bbr",
            Self::Bbr3 => "bbr3",
            Self::Cubic => "cubic",
            Self::DelayBased => "delay",
            Self::Kcp => "kcp",
            Self::Custom(_) => "custom",
        }
    }
}

impl FromStr for CongestionControl {
    type Err = UnknownController;

    fn from_str(name: &str) -> Result<Self, UnknownController> {
        Self::NAMED.iter().find(|control| control.name() == name).cloned().ok_or(UnknownController)
    }
}

impl PartialEq for CongestionControl {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Custom(one), Self::Custom(other)) => Arc::ptr_eq(one, other),
            _ => core::mem::discriminant(self) == core::mem::discriminant(other),
        }
    }
}

impl Eq for CongestionControl {}

impl ControllerFactory for CongestionControl {
    fn build(&self, now: Instant, mtu: usize) -> Box<dyn Controller> {
        match self {
            Self::BbrLike => Box::new(BbrLike::new(mtu)),
            Self::Bbr3 => Box::new(Bbr3::new(now, mtu)),
            Self::Cubic => Box::new(Cubic::new(mtu)),
            Self::DelayBased => Box::new(DelayBased::new(now, mtu)),
            Self::Kcp => Box::new(Kcp::new(mtu)),
            Self::Custom(factory) => factory.build(now, mtu),
        }
    }
}

/// Makes the controller of each session.
pub trait ControllerFactory: fmt::Debug + Send + Sync {
    /// A controller for a path that nothing has been sent on. It is called when a session begins; when
    /// [`nc`](crate::NoDelay::nc) is turned off while the session lives: segments may then be in flight that the new
    /// controller was not told of, and `now` is the time at which the peer was heard last; and when one that was
    /// [parked](Controller::park) is needed. `mtu` is the size of a full segment with its header, in bytes.
    fn build(&self, now: Instant, mtu: usize) -> Box<dyn Controller>;
}

/// The congestion controller of one path.
///
/// For each packet of ACKs that confirms something, the calls are [`on_rtt`](Self::on_rtt),
/// [`on_ack`](Self::on_ack), [`on_spurious_loss`](Self::on_spurious_loss) and then [`on_lost`](Self::on_lost) for each
/// segment that these ACKs show to be missing. For each run of transmissions they are [`on_lost`](Self::on_lost) for
/// each segment whose RTO has passed, and then [`on_sent`](Self::on_sent). What the controller answers
/// ([`window`](Self::window), [`window_segments`](Self::window_segments), [`pacing_rate`](Self::pacing_rate)) is asked
/// after each group of calls and used until the next.
pub trait Controller: fmt::Debug + Send + Sync {
    /// A run of transmissions has ended that sent segments, new or again.
    fn on_sent(&mut self, sent: &Sent) {
        _ = sent;
    }

    /// ACKs have confirmed segments. `min_rtt` is the path's, which others use too: a controller that measures it anew
    /// may [hold](MinRtt::hold) and [renew](MinRtt::renew) it.
    fn on_ack(&mut self, acked: &Acked, min_rtt: &mut MinRtt);

    /// A segment has been found lost. It may not be: [`on_spurious_loss`](Self::on_spurious_loss) tells that later.
    fn on_lost(&mut self, lost: &Lost) {
        _ = lost;
    }

    /// Segments of `bytes` in all that had been found lost have been confirmed, and it was not the resend that arrived.
    fn on_spurious_loss(&mut self, now: Instant, bytes: u64) {
        _ = (now, bytes);
    }

    /// The peer has reported packets that arrived with the mark CE of [ECN](crate::KcpConfigBuilder::ecn): a queue was about to
    /// overflow, and nothing was lost. It comes once in a round trip, before [`on_ack`](Self::on_ack) of the same packet of ACKs. RFC
    /// 3168, section 5, wants as much of an answer as to a loss; RFC 8511 lets it be somewhat less.
    fn on_ecn(&mut self, marked: &Marked) {
        _ = marked;
    }

    /// Whether [`on_ecn`](Self::on_ecn) answers. If not, as by default, packets are sent without ECN, and queues drop them. It is asked
    /// once, when the controller was made.
    fn supports_ecn(&self) -> bool {
        false
    }

    /// The round-trip time was measured.
    fn on_rtt(&mut self, now: Instant, rtt: &RttSample) {
        _ = (now, rtt);
    }

    /// Full segments have another size from now on, in bytes with their header.
    fn on_mtu_change(&mut self, mtu: usize) {
        _ = mtu;
    }

    /// Bytes that may be in flight. A segment may be sent while less is. Resends are not held up by the window, but no
    /// more than a window of them goes in one round trip because their RTO passed.
    fn window(&self) -> u64;

    /// Segments that may be in flight, for a controller that counts segments as KCP does. It holds besides
    /// [`window`](Self::window), and resends after a timeout are not limited then.
    fn window_segments(&self) -> Option<u32> {
        None
    }

    /// Bytes a second that new segments are spread over; `None` to send as the window allows.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// By how much the controller may itself lengthen round trips to find out what the path carries: RTOs are longer by that
    /// while the application does not limit the sender.
    fn probing_delay(&self) -> Duration {
        Duration::ZERO
    }

    /// What the controller is doing, in a word that does not change from one version to the next, for those who watch it (the feature
    /// `tracing`); `None` where it has no modes.
    fn mode(&self) -> Option<&'static str> {
        None
    }

    /// What the controller knows of the path, for the statistics.
    fn metrics(&self) -> Metrics {
        Metrics::default()
    }

    /// Whether the controller can be parked: dropped while nothing is in flight, so that its memory is free, as another can go on by what
    /// it answered last. It is asked when the session begins, and when it gives back its memory because it is idle. How far it has come,
    /// and it is dropped; when the session sends, or its mtu changes, another is [built](ControllerFactory::build) and told to
    /// [`resume`](Self::resume). `None`, the default, and it is kept.
    fn park(&self) -> Option<Stage> {
        None
    }

    /// Goes on for a controller that was parked. It is called before anything else.
    fn resume(&mut self, now: Instant, parked: &Parked) {
        _ = (now, parked);
    }
}

/// How far a controller has come; see [`Controller::park`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It still looks for what the path carries.
    Startup,
    /// It has found that.
    Steady,
}

/// What a controller that was parked leaves to the one that goes on for it; see [`Controller::resume`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parked {
    /// How far it had come.
    pub stage: Stage,
    /// The [`window`](Controller::window) that it answered last, in bytes.
    pub window: u64,
    /// Its [`metrics`](Controller::metrics).
    pub metrics: Metrics,
    /// The minimum round-trip time of the path, if it is still known.
    pub min_rtt: Option<Duration>,
}

/// What is in flight, and what else limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct InFlight {
    /// Bytes sent and not confirmed.
    pub bytes: u64,
    /// Segments sent and not confirmed.
    pub segments: u32,
    /// Segments from the oldest that is not confirmed to the newest sent, those confirmed between them included: what
    /// KCP's windows count.
    pub span: u32,
    /// The most that this span may be: the smaller of the send window and the peer's receive window, in segments.
    pub window_limit: u32,
    /// ACKs of later segments after which one is found lost ([`NoDelay::resend`](crate::NoDelay::resend)); 0 for never.
    pub resend: u32,
}

/// What a run of transmissions sent; see [`Controller::on_sent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Sent {
    /// When.
    pub now: Instant,
    /// New segments.
    pub segments: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Segments sent again because later ones were acknowledged.
    pub fast_resends: u32,
    /// Segments sent again because their RTO passed.
    pub timeout_resends: u32,
    /// Bytes of all segments sent again.
    pub resent_bytes: u64,
    /// What is in flight now.
    pub in_flight: InFlight,
}

impl Sent {
    /// Whether nothing was in flight before this run: sending begins, or begins again after a pause.
    #[must_use]
    pub const fn is_restart(&self) -> bool {
        self.bytes > 0 && self.in_flight.bytes == self.bytes
    }
}

/// What the ACKs of one packet confirm for the first time; see [`Controller::on_ack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Acked {
    /// When they arrived.
    pub now: Instant,
    /// Segments confirmed.
    pub segments: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes confirmed on this path so far, these included.
    pub total_delivered: u64,
    /// The delivery rate that they show.
    pub rate: RateSample,
    /// The application has had too little to send since before the last segment sent so far. Whether that was so when
    /// the segments were sent which are now confirmed is in [`rate`](Self::rate).
    pub is_app_limited: bool,
    /// What is still in flight.
    pub in_flight: InFlight,
}

/// A segment that was found lost; see [`Controller::on_lost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// When it was found lost.
    pub now: Instant,
    /// Its sequence number, which wraps around.
    pub sn: u32,
    /// Its bytes.
    pub bytes: u64,
    /// When it was sent last.
    pub sent_time: Instant,
    /// What shows that it is lost.
    pub cause: LossCause,
    /// Bytes in flight when it was sent last, its own included; 0 where that is not known.
    pub tx_in_flight: u64,
    /// Bytes found lost on this path since it was sent last, its own included.
    pub lost: u64,
    /// It was sent last while the application, not the window, limited the sender.
    pub is_app_limited: bool,
}

/// Packets that were marked and not lost; see [`Controller::on_ecn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Marked {
    /// When the peer's report came.
    pub now: Instant,
    /// How many more packets have arrived with a mark than by the report before.
    pub packets: u32,
    /// When the segment was sent that was sent last among those confirmed so far.
    pub sent_time: Instant,
    /// What is still in flight.
    pub in_flight: InFlight,
}

/// What shows that a segment is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// [`resend`](InFlight::resend) later ones were acknowledged.
    Skipped,
    /// At least one later one was acknowledged, and for a part of a round trip there has been nothing new to send.
    SkippedEarly,
    /// Its RTO passed.
    Timeout,
}

/// A measurement of the round-trip time, and what those so far come to; see [`Controller::on_rtt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RttSample {
    /// This one. The time that the peer held the ACK back is in it.
    pub latest: Duration,
    /// The smoothed round-trip time, this one included (RFC 6298's `SRTT`).
    pub smoothed: Duration,
    /// Its variation (`RTTVAR`).
    pub variation: Duration,
}

/// What a controller knows of the path; see [`Controller::metrics`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// The rate at which the path delivers, in bytes a second; 0 if that is not measured.
    pub delivery_rate: u64,
    /// The loss rate that is the path's own and not that of a full queue, in millionths; 0 if that is not measured.
    pub random_loss_ppm: u32,
}

impl Metrics {
    /// Metrics that say the rate at which the path delivers, in bytes a second.
    #[must_use]
    pub const fn of_delivery_rate(delivery_rate: u64) -> Self {
        Self { delivery_rate, random_loss_ppm: 0 }
    }

    /// The same, and the loss rate that is the path's own, in millionths.
    #[must_use]
    pub const fn with_random_loss(self, ppm: u32) -> Self {
        Self { random_loss_ppm: ppm, ..self }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn controllers_are_found_by_their_names() {
        for control in CongestionControl::NAMED {
            assert_eq!(control.name().parse().as_ref(), Ok(control));
        }
        for name in ["", "BBR", "reno", "custom"] {
            assert_eq!(name.parse::<CongestionControl>(), Err(UnknownController), "{name}");
        }
        let custom = CongestionControl::Custom(Arc::new(CongestionControl::Cubic));
        assert_eq!((custom.name(), custom == CongestionControl::Cubic), ("custom", false));
        let names = "not a congestion controller's name (bbr, bbr3, cubic, delay, kcp)";
        assert_eq!(UnknownController.to_string(), names);
    }

    #[test]
    fn sending_begins_again_when_all_in_flight_is_new() {
        let sent = |bytes, in_flight| {
            let in_flight = InFlight { bytes: in_flight, ..InFlight::default() };
            Sent { bytes, in_flight, ..Sent::default() }
        };
        assert!(sent(1_000, 1_000).is_restart());
        assert!(!sent(1_000, 1_001).is_restart());
        assert!(!sent(0, 0).is_restart(), "only what was sent before is sent again");
    }
}
