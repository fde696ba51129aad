//! One path: the addresses that a session uses now, with everything that is known of them.
//!
//! Round-trip times, the size of packets, pacing, the congestion controller with the delivery rate that it goes by, and
//! whether the peer is heard are properties of a path and not of the stream. They stand here together, apart from
//! [`Arq`](super::arq), so that a session can move to another path, or have a second one, without touching the stream.

mod ecn;
mod liveness;
mod min_rtt;
mod mtu;
mod pacer;
mod rtt;
mod timeout_budget;
mod validation;

use alloc::boxed::Box;
use core::time::Duration;

pub use self::{ecn::EcnState, min_rtt::MinRtt};
pub(super) use self::{
    ecn::{EcnValidation, Progress as EcnProgress, Report as EcnReport},
    liveness::Liveness,
    mtu::{PathMtu, ProbeBy, UNPROBED_SEGMENTS},
    rtt::{MAX_RTO, RttEstimator},
    validation::AddressValidation,
};
use self::{pacer::Pacer, timeout_budget::TimeoutBudget};
use super::{
    config::NoDelay,
    congestion::{
        Acked, CongestionControl, Controller, ControllerFactory, InFlight, LossCause, Lost, Marked, Metrics,
        Parked, RttSample, Sent, Stage,
        delivery_rate::{DeliveryRate, LossSample, NewlyAcked, SendState},
    },
    stats::PathState,
    time::Instant,
    trace::{ModeWatch, tell},
    wire::HEADER_LEN,
};

/// Loss rates are remembered in so many millionths, so that sixteen bits are enough: an idle session is small.
const LOSS_UNIT: u32 = 16;

/// What is known of a path, and what limits sending on it.
#[derive(Debug)]
pub(super) struct Path {
    /// Since when the session uses it.
    since: Instant,
    /// How long packets may be.
    pub(super) discovery: PathMtu,
    rtt: RttEstimator,
    min_rtt: MinRtt,
    pub(super) liveness: Liveness,
    pub(super) validation: AddressValidation,
    pub(super) ecn: EcnValidation,
    /// The controller answers CE marks.
    supports_ecn: bool,
    pacer: Pacer,
    timeout_budget: TimeoutBudget,
    delivery_rate: DeliveryRate,
    /// What controllers are made by.
    control: CongestionControl,
    /// `None` under `nc`, where the peers' windows are the only limit, and while it is parked.
    controller: Option<Box<dyn Controller>>,
    /// How far the parked controller had come. The next segment makes another that goes on for it. Until then `limits` are what the
    /// parked one answered last.
    parked: Option<Stage>,
    /// The delivery rate that it knew, and the loss rate in [`LOSS_UNIT`]s.
    parked_rate: u64,
    parked_loss: u16,
    limits: Limits,
    mode: ModeWatch,
}

/// What the controller answered last.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Bytes that may be in flight.
    window: u64,
    /// Segments that may be in flight.
    window_segments: u32,
    /// Bytes a second, 0 for no limit.
    pacing_rate: u64,
    /// Bytes that may be resent in a round trip because their RTO passed.
    timeout_budget: u64,
    probing_delay: Duration,
}

impl Limits {
    const NONE: Self = Self {
        window: u64::MAX,
        window_segments: u32::MAX,
        pacing_rate: 0,
        timeout_budget: u64::MAX,
        probing_delay: Duration::ZERO,
    };

    fn of(controller: &dyn Controller) -> Self {
        let window = controller.window();
        let segments = controller.window_segments();
        Self {
            window,
            window_segments: segments.unwrap_or(u32::MAX),
            pacing_rate: controller.pacing_rate().unwrap_or(0),
            timeout_budget: if segments.is_some() { u64::MAX } else { window },
            probing_delay: controller.probing_delay(),
        }
    }
}

impl Path {
    pub(super) fn new(
        control: CongestionControl,
        nodelay: &NoDelay,
        discovery: PathMtu,
        now: Instant,
    ) -> Self {
        let mut path = Self {
            since: Instant::ZERO,
            discovery,
            rtt: RttEstimator::default(),
            min_rtt: MinRtt::default(),
            liveness: Liveness::new(now),
            validation: AddressValidation::default(),
            ecn: EcnValidation::default(),
            supports_ecn: false,
            pacer: Pacer::new(now),
            timeout_budget: TimeoutBudget::new(now),
            delivery_rate: DeliveryRate::default(),
            control,
            controller: None,
            parked: None,
            parked_rate: 0,
            parked_loss: 0,
            limits: Limits::NONE,
            mode: ModeWatch::default(),
        };
        path.set_nodelay(nodelay);
        path
    }

    /// The session goes on over another path, of which nothing is known but that the peer hears this end there. What is known of
    /// the peer stays. `nxt`: the `sn` of the next segment.
    pub(super) fn begin_anew(&mut self, nodelay: &NoDelay, now: Instant, nxt: u32) {
        let max = self.discovery.max();
        let mut discovery = core::mem::replace(&mut self.discovery, PathMtu::new(max, 0));
        discovery.begin_anew(nxt);
        let path = Self::new(self.control.clone(), nodelay, discovery, now);
        let liveness = core::mem::replace(&mut self.liveness, Liveness::new(now));
        let mut ecn = core::mem::take(&mut self.ecn);
        ecn.begin_anew(now);
        *self = Self { since: now, liveness, ecn, ..path };
    }

    // ---- Settings ----

    /// Payload bytes of a full segment.
    #[inline]
    pub(super) const fn mss(&self) -> usize {
        self.discovery.mss()
    }

    /// Bytes of a full segment with its header: a packet's room for segments.
    #[inline]
    pub(super) const fn mtu(&self) -> usize {
        self.mss() + HEADER_LEN
    }

    /// The PLPMTU has changed.
    pub(super) fn follow_mtu(&mut self) {
        self.unpark(self.liveness.last_heard());
        let mtu = self.mtu();
        if let Some(controller) = &mut self.controller {
            controller.on_mtu_change(mtu);
        }
        self.update_limits();
    }

    /// Turns congestion control on or off, and computes the RTO anew.
    pub(super) fn set_nodelay(&mut self, nodelay: &NoDelay) {
        let now = self.liveness.last_heard();
        self.unpark(now);
        if nodelay.nc == self.controller.is_some() {
            self.controller = (!nodelay.nc).then(|| self.control.build(now, self.mtu()));
            self.supports_ecn = self.controller.as_ref().is_some_and(|controller| controller.supports_ecn());
            self.delivery_rate = DeliveryRate::default();
        }
        self.update_limits();
        self.rtt.update_rto(nodelay);
    }

    fn update_limits(&mut self) {
        self.limits = self.controller.as_deref().map_or(Limits::NONE, Limits::of);
        if cfg!(feature = "tracing") {
            self.mode.look(self.controller.as_deref());
        }
    }

    // ---- A pause ----

    /// Drops the controller, if another can go on where it stands. Nothing may be in flight.
    pub(super) fn park(&mut self) {
        let stage = self.controller.as_ref().and_then(|controller| controller.park());
        if stage.is_some() {
            let Metrics { delivery_rate, random_loss_ppm } = self.known_metrics();
            self.parked_rate = delivery_rate;
            self.parked_loss = u16::try_from(random_loss_ppm / LOSS_UNIT).unwrap_or(u16::MAX);
            self.controller = None;
            self.parked = stage;
        }
    }

    /// Makes a controller that goes on for the one that is parked, if one is.
    #[cold]
    fn unpark(&mut self, now: Instant) {
        let Some(stage) = self.parked.take() else { return };
        let mut controller = self.control.build(now, self.mtu());
        let (window, metrics) = (self.limits.window, self.parked_metrics());
        controller.resume(now, &Parked { stage, window, metrics, min_rtt: self.min_rtt.get() });
        self.controller = Some(controller);
        self.update_limits();
    }

    // ---- What is known ----

    /// Whether what was sent at `sent_at` went over another path, before this one.
    pub(super) fn is_later_than(&self, sent_at: Instant) -> bool {
        sent_at < self.since
    }

    pub(super) const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The windowed minimum; zero before the first sample.
    pub(super) fn min_rtt(&self) -> Duration {
        self.min_rtt.get().unwrap_or_default()
    }

    /// What is known, for the statistics.
    pub(super) fn state(&self) -> PathState {
        PathState {
            rtt: self.rtt.smoothed(),
            rtt_var: self.rtt.variation(),
            min_rtt: self.min_rtt(),
            rto: self.rtt.rto(),
            congestion_window: self.window(),
            plpmtu: self.discovery.plpmtu() as u32,
            delivery_rate: self.known_metrics().delivery_rate,
            ecn: if self.supports_ecn { self.ecn.state() } else { EcnState::Off },
        }
    }

    /// What the controller knows, or did before it was parked.
    fn known_metrics(&self) -> Metrics {
        match &self.controller {
            Some(controller) => controller.metrics(),
            None if self.parked.is_some() => self.parked_metrics(),
            None => Metrics::default(),
        }
    }

    fn parked_metrics(&self) -> Metrics {
        Metrics::of_delivery_rate(self.parked_rate).with_random_loss(u32::from(self.parked_loss) * LOSS_UNIT)
    }

    // ---- What may be sent ----

    pub(super) const fn has_controller(&self) -> bool {
        self.controller.is_some()
    }

    /// Whether the controller lets one more new segment be sent.
    #[inline]
    pub(super) const fn permits(&self, bytes_in_flight: u64, segments_in_flight: u32) -> bool {
        bytes_in_flight < self.limits.window && segments_in_flight < self.limits.window_segments
    }

    /// The controller's window in full segments; `u32::MAX` without one.
    pub(super) fn window(&self) -> u32 {
        let segments = self.limits.window.div_ceil(self.mtu() as u64);
        self.limits.window_segments.min(u32::try_from(segments).unwrap_or(u32::MAX))
    }

    pub(super) const fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    pub(super) fn refill_pacer(&mut self, now: Instant) {
        self.pacer.refill(now, self.limits.pacing_rate);
    }

    /// Charges `bytes` that are sent beside the stream.
    pub(super) fn charge(&mut self, now: Instant, bytes: usize) {
        self.refill_pacer(now);
        self.pacer.spend_burst(bytes);
    }

    /// Until when no more segments may be resent because their RTO passed.
    pub(super) fn timeouts_held_until(&self, interval: Duration) -> Option<Instant> {
        self.timeout_budget.held_until(self.limits.timeout_budget, self.round(interval))
    }

    /// By how much the controller's probing may lengthen round trips, which is no reason for a timeout. It does not probe
    /// while the application limits the sender.
    pub(super) const fn probing_delay(&self) -> Duration {
        if self.delivery_rate.is_app_limited() { Duration::ZERO } else { self.limits.probing_delay }
    }

    /// A round trip, as far as it is known.
    fn round(&self, interval: Duration) -> Duration {
        self.rtt.smoothed().max(interval)
    }

    // ---- What happens ----

    /// A new segment of `bytes` is sent with `in_flight` bytes before it.
    #[inline]
    pub(super) fn on_new_segment(&mut self, now: Instant, bytes: u64, in_flight: u64) -> SendState {
        self.pacer.spend(bytes);
        self.on_send(now, in_flight, bytes)
    }

    /// A segment is sent again because its RTO passed.
    pub(super) fn on_timeout_resend(&mut self, now: Instant, bytes: u64, interval: Duration) {
        self.timeout_budget.spend(now, bytes, self.round(interval));
    }

    /// A segment is sent again; `in_flight` bytes are under way, its own included.
    pub(super) fn on_resend(&mut self, now: Instant, in_flight: u64) -> SendState {
        self.on_send(now, in_flight, 0)
    }

    #[inline]
    fn on_send(&mut self, now: Instant, in_flight: u64, bytes: u64) -> SendState {
        if self.controller.is_none() {
            self.unpark(now);
            if self.controller.is_none() {
                return SendState::default();
            }
        }
        self.delivery_rate.on_send(now, in_flight, bytes)
    }

    /// The application has no more to send with `in_flight` bytes under way.
    pub(super) const fn on_app_limited(&mut self, in_flight: u64) {
        if in_flight < self.limits.window {
            self.delivery_rate.on_app_limited(in_flight);
        }
    }

    /// A run of transmissions has ended.
    pub(super) fn on_sent(&mut self, sent: &Sent) {
        if let Some(controller) = &mut self.controller {
            controller.on_sent(sent);
            self.update_limits();
        }
    }

    /// The round-trip time was measured. One that began on the path before tells nothing.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration, nodelay: &NoDelay) {
        // No path takes as long as that, and no timeout either: the machine was suspended meanwhile, and its clock went on.
        if self.since + rtt > now || rtt >= MAX_RTO {
            return;
        }
        self.rtt.sample(rtt, nodelay);
        self.min_rtt.sample(now, rtt);
        self.min_rtt.bound(self.rtt.smoothed());
        if let Some(controller) = &mut self.controller {
            let (smoothed, variation) = (self.rtt.smoothed(), self.rtt.variation());
            controller.on_rtt(now, &RttSample { latest: rtt, smoothed, variation });
        }
    }

    /// The ACKs of one packet confirm segments; `spurious_bytes` of these had been found lost, and were not.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        acked: &NewlyAcked,
        spurious_bytes: u64,
        in_flight: InFlight,
    ) {
        tell!(spurious(spurious_bytes));
        if let Some(controller) = &mut self.controller {
            if let Some(rate) = self.delivery_rate.on_ack(now, acked, self.min_rtt.get()) {
                let acked = Acked {
                    now,
                    segments: acked.segments,
                    bytes: acked.bytes,
                    total_delivered: self.delivery_rate.delivered(),
                    rate,
                    is_app_limited: self.delivery_rate.is_app_limited(),
                    in_flight,
                };
                controller.on_ack(&acked, &mut self.min_rtt);
            }
            if spurious_bytes > 0 {
                controller.on_spurious_loss(now, spurious_bytes);
            }
            self.update_limits();
        }
        self.min_rtt.forget_expired(now);
        self.min_rtt.bound(self.rtt.smoothed());
    }

    /// The segment `sn` of `bytes` has been found lost that was sent at `sent_time` with `state`. [`on_sent`](Self::on_sent) or
    /// [`apply_losses`](Self::apply_losses) follows.
    #[cold]
    pub(super) fn on_lost(
        &mut self,
        now: Instant,
        sn: u32,
        bytes: u64,
        sent_time: Instant,
        state: SendState,
        cause: LossCause,
    ) {
        tell!(lost(sn, bytes, cause));
        if let Some(controller) = &mut self.controller {
            let LossSample { tx_in_flight, lost, is_app_limited } = self.delivery_rate.on_lost(bytes, state);
            controller.on_lost(&Lost {
                now,
                sn,
                bytes,
                sent_time,
                cause,
                tx_in_flight,
                lost,
                is_app_limited,
            });
        }
    }

    /// Whether packets may go with ECT. Without a controller that answers marks they must not (RFC 8311, section 4.1).
    #[inline]
    pub(super) const fn sends_ecn(&self) -> bool {
        self.supports_ecn && self.ecn.is_on()
    }

    /// The peer has reported that so many more `packets` were marked. `acked`: what the same packet of ACKs confirms. Returns whether
    /// the controller was told: not where what is confirmed was sent before the controller was told last, or on another path. It has
    /// answered that, or never can.
    pub(super) fn on_ce(
        &mut self,
        now: Instant,
        packets: u32,
        acked: &NewlyAcked,
        in_flight: InFlight,
    ) -> bool {
        let sent_time = acked.sent_time().unwrap_or(self.delivery_rate.newest_sent_time());
        let is_answered = self.ecn.congested_at().is_some_and(|at| sent_time < at);
        if !self.supports_ecn || is_answered || self.is_later_than(sent_time) {
            return false;
        }
        let Some(controller) = &mut self.controller else { return false };
        self.ecn.on_congestion(now);
        controller.on_ecn(&Marked { now, packets, sent_time, in_flight });
        self.update_limits();
        true
    }

    /// Asks the controller anew after losses that ACKs showed.
    pub(super) fn apply_losses(&mut self) {
        self.update_limits();
    }
}
