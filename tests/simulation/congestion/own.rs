//! A controller of the user's own: what it is told, and whether its answers count.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kcp9::{
    CongestionControl, KcpConfig,
    congestion::{Acked, Controller, ControllerFactory, LossCause, Lost, Metrics, MinRtt, RttSample, Sent},
    proto::{Command, Instant, Segments},
};

use kcp9_simulator::{CLIENT, LinkSettings, Simulation, Writer, ms, trace::transmissions_of};

use super::SECOND;

/// Full segments that may be in flight.
const SEGMENTS: u64 = 8;
const RATE: u64 = 777_777;

/// What a controller was told.
#[derive(Debug, Default)]
struct Told {
    mtus: Vec<usize>,
    sent_bytes: u64,
    resent_segments: u64,
    most_in_flight: u64,
    acked_bytes: u64,
    acked_segments: u64,
    rates: Vec<u64>,
    app_limited: u64,
    lost: Vec<Lost>,
    spurious_bytes: u64,
    rtts: Vec<Duration>,
}

/// Keeps a fixed window, and writes down what it is told.
#[derive(Debug)]
struct Fixed {
    mtu: usize,
    told: Arc<Mutex<Told>>,
}

impl Controller for Fixed {
    fn on_sent(&mut self, sent: &Sent) {
        let mut told = self.told.lock().unwrap();
        told.sent_bytes += sent.bytes;
        told.resent_segments += u64::from(sent.fast_resends + sent.timeout_resends);
        told.most_in_flight = told.most_in_flight.max(sent.in_flight.bytes);
        assert!(sent.in_flight.segments <= sent.in_flight.span);
    }

    fn on_ack(&mut self, acked: &Acked, min_rtt: &mut MinRtt) {
        let mut told = self.told.lock().unwrap();
        told.acked_bytes += acked.bytes;
        told.acked_segments += u64::from(acked.segments);
        assert_eq!(acked.total_delivered, told.acked_bytes);
        assert_eq!(acked.in_flight.bytes, told.sent_bytes - told.acked_bytes);
        assert!((1..=self.window()).contains(&acked.rate.tx_in_flight), "{acked:?}");
        assert!(acked.rate.sent_time <= acked.now && acked.rate.interval >= acked.rate.send_elapsed);
        assert!(min_rtt.get().is_some());
        if acked.rate.is_app_limited {
            told.app_limited += 1;
        } else if acked.rate.delivery_rate > 0 {
            told.rates.push(acked.rate.delivery_rate);
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        assert!(lost.sent_time < lost.now);
        self.told.lock().unwrap().lost.push(*lost);
    }

    fn on_spurious_loss(&mut self, _: Instant, bytes: u64) {
        self.told.lock().unwrap().spurious_bytes += bytes;
    }

    fn on_rtt(&mut self, _: Instant, rtt: &RttSample) {
        self.told.lock().unwrap().rtts.push(rtt.latest);
    }

    fn on_mtu_change(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.told.lock().unwrap().mtus.push(mtu);
    }

    fn window(&self) -> u64 {
        SEGMENTS * self.mtu as u64
    }

    fn metrics(&self) -> Metrics {
        Metrics::of_delivery_rate(RATE)
    }
}

#[derive(Debug, Default)]
struct Factory(Arc<Mutex<Told>>);

impl ControllerFactory for Factory {
    fn build(&self, _: Instant, mtu: usize) -> Box<dyn Controller> {
        let told = Arc::clone(&self.0);
        told.lock().unwrap().mtus.push(mtu);
        Box::new(Fixed { mtu, told })
    }
}

/// A session whose client has such a controller, and what that is told.
fn simulation(link: &LinkSettings) -> (Simulation, Arc<Mutex<Told>>) {
    let factory = Factory::default();
    let told = Arc::clone(&factory.0);
    let own = CongestionControl::Custom(Arc::new(factory));
    let configs = [
        KcpConfig::builder().congestion_control(own).build().unwrap(),
        KcpConfig::builder().ack_no_delay(true).build().unwrap(),
    ];
    let links = [link.clone(), link.clone()];
    (Simulation::with(1, [&configs[0], &configs[1]], links, 0, [Duration::ZERO; 2]), told)
}

#[test]
fn its_window_is_kept_and_everything_sent_is_confirmed_to_it() {
    let (mut simulation, told) = simulation(&LinkSettings::delay(ms(25)));
    simulation.client().writer = Writer::bulk(1_000_000);
    let took = simulation.complete(60 * SECOND);
    // Eight segments a round trip.
    let round_trips = 1_000_000_u64.div_ceil(SEGMENTS * 1_376) as u32;
    assert!((round_trips * ms(50)..(round_trips + 1) * ms(50)).contains(&took), "{took:?}");
    let stats = simulation.client().connection.stats();
    let told = told.lock().unwrap();
    assert_eq!(told.most_in_flight, SEGMENTS * 1_400);
    assert_eq!((told.acked_segments, told.acked_bytes), (stats.segments.push_sent, told.sent_bytes));
    assert_eq!(told.sent_bytes, 1_000_000 + 24 * stats.segments.push_sent);
    assert_eq!((told.lost.len(), told.spurious_bytes, told.resent_segments), (0, 0, 0));
    assert!(told.rtts.iter().all(|rtt| *rtt == ms(50)), "{:?}", told.rtts);
    let expected = SEGMENTS * 1_400 * 20;
    let usual = told.rates.iter().filter(|rate| (expected / 2..=expected).contains(*rate)).count();
    assert!(usual * 10 >= told.rates.len() * 9 && usual > 80, "{:?}", told.rates);
    assert_eq!(stats.path.delivery_rate, RATE);
    assert_eq!(u64::from(stats.path.congestion_window), SEGMENTS);
}

#[test]
fn an_application_with_little_to_send_shows_in_its_samples() {
    let (mut simulation, told) = simulation(&LinkSettings::delay(ms(25)));
    simulation.client().writer = Writer { pace: Some(ms(100)), sizes: 100..=100, ..Writer::bulk(2_000) };
    simulation.complete(60 * SECOND);
    let told = told.lock().unwrap();
    assert!(told.app_limited >= 19 && told.rates.len() <= 1, "{told:?}");
}

#[test]
fn each_loss_is_told_when_it_is_found() {
    let (mut simulation, told) = simulation(&LinkSettings::delay(ms(25)));
    let mut lose = vec![20, 21, 40, 79];
    simulation.client().link.lose_if(move |_, packet| {
        let sent = Segments::new(packet).flatten().find(|(header, _)| header.cmd == Command::Push);
        let at = sent.and_then(|(header, _)| lose.iter().position(|sn| *sn == header.sn));
        at.map(|at| lose.swap_remove(at)).is_some()
    });
    simulation.client().record();
    simulation.client().writer = Writer::bulk(80 * 1_376);
    simulation.complete(60 * SECOND);
    let told = told.lock().unwrap();
    let causes: Vec<_> = told.lost.iter().map(|lost| lost.cause).collect();
    assert_eq!(causes, [LossCause::Skipped, LossCause::Skipped, LossCause::Skipped, LossCause::Timeout]);
    for (lost, sn) in told.lost.iter().zip([20, 21, 40, 79]) {
        let sent = transmissions_of(simulation.ends[CLIENT].sent.as_deref().unwrap(), sn);
        assert_eq!((lost.sn, lost.bytes, lost.sent_time.as_micros()), (sn, 1_400, sent[0]));
        assert!((1_400..=SEGMENTS * 1_400).contains(&lost.tx_in_flight), "{lost:?}");
        // 20 and 21 are in one window, the others alone.
        assert_eq!(lost.lost, if sn == 21 { 2 * 1_400 } else { 1_400 }, "{sn}");
        // The last has nothing behind it that could show its loss.
        let found = lost.now - lost.sent_time;
        let expected = if sn == 79 { ms(55)..ms(200) } else { ms(50)..ms(110) };
        assert!(expected.contains(&found), "{sn}: {found:?}");
    }
    assert_eq!((told.resent_segments, told.spurious_bytes), (4, 0));
    assert_eq!(told.acked_bytes, 80 * 1_400, "a segment counts once");
}

#[test]
fn resends_that_were_not_needed_are_told() {
    let (mut simulation, told) = simulation(&LinkSettings::delay(ms(25)));
    simulation.client().writer = Writer::bulk(200 * 1_376);
    simulation.run_for(SECOND / 2);
    // For long enough that RTOs pass before the ACKs of what is in flight.
    for end in &mut simulation.ends {
        end.link.settings.delay = ms(150);
    }
    simulation.complete(60 * SECOND);
    let told = told.lock().unwrap();
    assert!(
        !told.lost.is_empty() && told.lost.iter().all(|lost| lost.cause == LossCause::Timeout),
        "{told:?}"
    );
    let lost: u64 = told.lost.iter().map(|lost| lost.bytes).sum();
    assert!(told.spurious_bytes > 0 && told.spurious_bytes <= lost, "{told:?}");
}

#[test]
fn a_change_of_the_mtu_reaches_it_and_its_window_follows() {
    let (mut simulation, told) = simulation(&LinkSettings::delay(ms(25)));
    simulation.client().writer = Writer::bulk(50_000);
    simulation.complete(60 * SECOND);
    simulation.update_settings(CLIENT, |settings| settings.mtu = 1_000).unwrap();
    told.lock().unwrap().most_in_flight = 0;
    simulation.client().writer.total += 200_000;
    simulation.complete(60 * SECOND);
    let told = told.lock().unwrap();
    assert_eq!((told.mtus.as_slice(), told.most_in_flight), (&[1_400, 1_000][..], SEGMENTS * 1_000));
}
