use super::*;
use crate::proto::congestion::InFlight;

const BASE: Duration = Duration::from_millis(40);

fn acked(millis: u64, in_flight: u64) -> Acked {
    let in_flight = InFlight { bytes: in_flight, ..InFlight::default() };
    Acked { now: Instant::from_millis(millis), bytes: 100_000, in_flight, ..Acked::default() }
}

#[test]
fn what_is_confirmed_while_nothing_is_sent_tells_the_rate() {
    let mut settling = Settling::begin(Instant::from_millis(1_000));
    let rates = [(1_010, 700_000), (1_020, 600_000), (1_040, 500_000), (1_050, 400_000)]
        .map(|(millis, in_flight)| settling.on_ack(&acked(millis, in_flight), BASE, 500_000));
    // 300,000 bytes in 40 ms.
    assert_eq!(rates, [None, None, Some(7_500_000), None]);
}

#[test]
fn a_time_far_below_a_round_trip_tells_nothing() {
    let mut settling = Settling::begin(Instant::from_millis(1_000));
    assert_eq!(settling.on_ack(&acked(1_009, 500_000), BASE, 500_000), None);
    assert_eq!(settling.on_ack(&acked(1_040, 400_000), BASE, 500_000), None);
}

#[test]
fn two_rounds_behind_the_last_window_the_queue_is_its_own() {
    let mut settling = Settling::begin(Instant::ZERO);
    assert!(settling.end_round());
    settling.on_new_window();
    assert_eq!([(); 3].map(|()| settling.end_round()), [true, true, false]);
    assert!(!Settling::default().end_round());
}
