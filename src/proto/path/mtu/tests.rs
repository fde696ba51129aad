use core::time::Duration;

use super::*;
use crate::proto::path::Liveness;

const OVERHEAD: usize = 8;
const PROBE_TIME: Duration = Duration::from_millis(100);

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn searching(max: usize) -> PathMtu {
    let mut mtu = PathMtu::new(max, OVERHEAD);
    mtu.begin_at_base();
    mtu
}

/// Probes, one each 200 ms, until nothing is asked any more. Returns the sizes that were tried.
fn search(mtu: &mut PathMtu, carried: usize, can_ping: usize) -> alloc::vec::Vec<usize> {
    let mut sizes = alloc::vec::Vec::new();
    for round in 0..100 {
        let now = at(1_000 + 200 * round);
        match mtu.poll_probe(now, PROBE_TIME, can_ping) {
            None => {}
            Some(ProbeBy::Ping(size)) => {
                sizes.push(size);
                if size <= carried {
                    mtu.on_pong(now, size);
                }
            }
            Some(ProbeBy::Push) => {
                let size = mtu.due().unwrap();
                sizes.push(size);
                mtu.on_push_probe(round as u32);
                assert!(mtu.is_probe(round as u32));
                if size <= carried {
                    mtu.on_push_confirmed(now);
                } else {
                    mtu.on_push_resent(now);
                }
            }
        }
    }
    sizes
}

#[test]
fn every_path_is_found_by_pings_and_by_pushes() {
    for max in [1_400, 1_472, 9_000] {
        for carried in (BASE_PLPMTU..max + 50).step_by(7) {
            for can_ping in [0, 1_500, 65_535] {
                let mut mtu = searching(max);
                let sizes = search(&mut mtu, carried, can_ping);
                let found = mtu.plpmtu();
                assert!(found <= carried.min(max), "{found} of {carried}, at most {max}");
                assert!(
                    carried.min(max) - found < STEP + 1,
                    "{found} of {carried}, at most {max}: {sizes:?}"
                );
                assert_eq!(sizes[0], max, "MAX_PLPMTU is tried first");
                assert_eq!(mtu.stats().black_holes, 0);
                assert_eq!(mtu.is_restless(), found < max);
            }
        }
    }
}

/// Every session has one.
#[test]
fn it_is_small_until_there_is_something_to_remember() {
    assert_eq!(size_of::<PathMtu>(), 24);
    let mut mtu = searching(1_400);
    assert!(mtu.under_way.is_none());
    search(&mut mtu, 1_400, 1_500);
    assert!(mtu.under_way.is_none(), "the search is over");
}

#[test]
fn a_configured_mtu_that_is_small_is_used_as_it_is() {
    for max in [64 + OVERHEAD, 576, 1_200, 1_231] {
        let mtu = searching(max);
        assert_eq!((mtu.plpmtu(), mtu.is_restless()), (max, false));
    }
}

/// `rounds` times a flight of `count` long segments passes its RTO. Returns whether the PLPMTU has changed.
fn lose(mtu: &mut PathMtu, rounds: u64, count: u32, heard: bool) -> bool {
    lose_from(1_000, mtu, rounds, count, heard)
}

fn lose_from(begin: u64, mtu: &mut PathMtu, rounds: u64, count: u32, heard: bool) -> bool {
    let liveness = if heard { heard_at(begin + 50) } else { Liveness::new(at(begin - 100)) };
    lose_by(begin, mtu, rounds, count, &liveness)
}

/// The peer was heard, and no payload has passed.
fn heard_at(millis: u64) -> Liveness {
    let mut liveness = Liveness::new(Instant::ZERO);
    liveness.on_heard(at(millis), true);
    liveness
}

fn lose_by(begin: u64, mtu: &mut PathMtu, rounds: u64, count: u32, liveness: &Liveness) -> bool {
    let len = mtu.mss() as u32;
    (1..=rounds).any(|round| {
        let (sent, now) = (at(begin - 200 + 200 * round), at(begin + 200 * round));
        (0..count).any(|_| mtu.on_timeout(now, len, sent, liveness, 77))
    })
}

#[test]
fn it_takes_several_losses_and_a_peer_that_is_heard() {
    for (rounds, count, heard, falls) in [
        (1, 3, true, false),
        (1, 4, true, true),
        (4, 1, true, true),
        (3, 20, false, false),
        (4, 1, false, true),
    ] {
        let mut mtu = PathMtu::new(1_400, OVERHEAD);
        assert_eq!(lose(&mut mtu, rounds, count, heard), falls, "{rounds} times {count}, {heard}");
        assert_eq!(mtu.plpmtu(), if falls { 1_200 } else { 1_400 });
        assert_eq!(mtu.oversize_until(), falls.then_some(77));
        assert_eq!(mtu.stats().black_holes, 0, "it is a suspicion");
    }
}

/// What was cut for 700 bytes is in flight when the path that carried 1,400 carries less than that.
#[test]
fn losses_of_shorter_packets_lower_it_too_step_by_step() {
    let mut mtu = PathMtu::new(1_400, OVERHEAD);
    let lose_short = |mtu: &mut PathMtu, begin: u64, len| {
        (0..4).any(|round| {
            let (now, liveness) = (at(begin + 200 + round), heard_at(begin + 100));
            (0..4).any(|_| mtu.on_timeout(now, len, at(begin), &liveness, 77))
        })
    };
    assert!(!lose_short(&mut mtu, 1_000, 500), "every path carries that");
    assert!(lose_short(&mut mtu, 2_000, 668));
    assert_eq!(mtu.plpmtu(), 1_200);
    assert!(lose_short(&mut mtu, 3_000, 668));
    assert_eq!(mtu.plpmtu(), 548);
    // Beside longer ones they say nothing.
    let mut mtu = PathMtu::new(1_400, OVERHEAD);
    assert!(!lose(&mut mtu, 1, 3, true) && !lose_short(&mut mtu, 1_000, 668));
    assert!(lose_from(1_200, &mut mtu, 1, 1, true));
}

#[test]
fn a_long_packet_that_arrives_clears_the_path() {
    let mut mtu = PathMtu::new(1_400, OVERHEAD);
    assert!(!lose(&mut mtu, 1, 3, true));
    mtu.on_acked(at(1_250), mtu.mss() as u32);
    assert!(!lose(&mut mtu, 1, 3, true), "it was carried since");
    // Shorter ones say nothing.
    let mut mtu = PathMtu::new(1_400, OVERHEAD);
    assert!(!lose(&mut mtu, 1, 3, true));
    mtu.on_acked(at(1_250), 1_000);
    assert!(lose(&mut mtu, 3, 1, true));
}

#[test]
fn where_payload_passes_it_takes_a_second_round() {
    for (rounds, falls) in [(1, false), (2, true)] {
        let mut liveness = heard_at(1_050);
        liveness.on_payload(at(1_050));
        let mut mtu = PathMtu::new(1_400, OVERHEAD);
        assert_eq!(lose_by(1_000, &mut mtu, rounds, 4, &liveness), falls, "{rounds}");
    }
}

#[test]
fn a_false_alarm_is_over_with_the_first_answer() {
    for can_ping in [0, 1_500] {
        let mut mtu = PathMtu::new(1_400, OVERHEAD);
        assert!(lose(&mut mtu, 1, 4, true));
        assert_eq!(search(&mut mtu, 1_400, can_ping), [1_400]);
        assert_eq!((mtu.plpmtu(), mtu.stats().black_holes, mtu.is_restless()), (1_400, 0, false));
    }
}

#[test]
fn a_black_hole_is_found_if_anything_passes() {
    for can_ping in [0, 1_500] {
        for answered in [true, false] {
            let mut mtu = PathMtu::new(1_400, OVERHEAD);
            assert!(lose(&mut mtu, 1, 4, true));
            if answered {
                mtu.on_acked(at(1_300), 500);
            }
            // Nothing is answered here.
            let sizes = search(&mut mtu, 0, can_ping);
            assert_eq!(mtu.stats().black_holes, u64::from(answered));
            assert_eq!(sizes.iter().take(11).filter(|size| **size == 1_400).count(), 6);
            assert_eq!(mtu.plpmtu(), 1_200);
        }
    }
}

#[test]
fn what_falls_stops_at_the_least_size() {
    let mut mtu = PathMtu::new(1_400, OVERHEAD);
    let sizes: alloc::vec::Vec<_> = (1..5)
        .map(|time| {
            lose_from(10_000 * time, &mut mtu, 4, 9, true);
            mtu.plpmtu()
        })
        .collect();
    assert_eq!(sizes, [1_200, 548, 548, 548]);
    for size in [1_400, 1_200, 600, 1] {
        mtu.on_too_long(at(9_000), size, 7);
        assert_eq!(mtu.plpmtu(), 548);
    }
}

/// It is known at once, and for sure.
#[test]
fn a_size_that_the_system_refuses_is_not_tried_again_soon() {
    let mut mtu = PathMtu::new(1_400, OVERHEAD);
    assert!(mtu.on_too_long(at(1_000), 1_400, 5));
    assert_eq!((mtu.plpmtu(), mtu.oversize_until(), mtu.stats().black_holes), (1_200, Some(5), 0));
    let sizes = search(&mut mtu, 1_310, 1_500);
    assert!((1_279..=1_310).contains(&mtu.plpmtu()) && sizes[0] == 1_300, "{sizes:?}");
    // The probe of a search is refused.
    let mut mtu = searching(1_400);
    assert_eq!(mtu.poll_probe(at(1_000), PROBE_TIME, 1_500), Some(ProbeBy::Ping(1_400)));
    assert!(!mtu.on_too_long(at(1_000), 1_400, 5));
    assert_eq!(mtu.poll_probe(at(1_000), PROBE_TIME, 1_500), Some(ProbeBy::Ping(1_300)));
    // A packet as short as that may be another's.
    assert!(!mtu.on_too_long(at(1_000), 500, 5));
}

#[test]
fn after_ten_minutes_it_is_tried_again() {
    let mut mtu = searching(1_400);
    search(&mut mtu, 1_300, 1_500);
    assert_eq!(mtu.poll_probe(at(500_000), PROBE_TIME, 1_500), None);
    assert_eq!(mtu.poll_probe(at(700_000), PROBE_TIME, 1_500), Some(ProbeBy::Ping(1_400)));
    assert!(mtu.on_pong(at(700_050), 1_400));
    assert!(!mtu.is_restless());
}

#[test]
fn another_path_is_searched_anew() {
    let mut mtu = searching(1_400);
    search(&mut mtu, 1_400, 1_500);
    mtu.begin_anew(9);
    assert_eq!((mtu.plpmtu(), mtu.oversize_until()), (1_200, Some(9)));
    assert_eq!(search(&mut mtu, 1_400, 1_500), [1_400]);
}

#[test]
fn longer_packets_are_doubtful_once_something_speaks_against_them() {
    let mut mtu = searching(1_400);
    assert!(!mtu.is_doubtful(1_400), "nothing is known");
    search(&mut mtu, 1_300, 1_500);
    let found = mtu.plpmtu();
    assert_eq!([found, found + 1, 1_400].map(|size| mtu.is_doubtful(size)), [false, true, true]);
    let mut mtu = PathMtu::new(1_400, OVERHEAD);
    assert!(lose(&mut mtu, 1, 4, true));
    assert_eq!([1_200, 1_201].map(|size| mtu.is_doubtful(size)), [false, true]);
}

#[test]
fn a_change_of_the_setting_bounds_the_search() {
    let mut mtu = searching(1_400);
    search(&mut mtu, 1_400, 1_500);
    mtu.set_max(1_300, OVERHEAD);
    assert_eq!((mtu.plpmtu(), mtu.is_restless()), (1_300, false));
    mtu.set_max(1_472, OVERHEAD);
    assert_eq!((mtu.plpmtu(), mtu.is_restless()), (1_300, true));
    assert_eq!(search(&mut mtu, 1_472, 1_500), [1_472]);
    let mut plain = PathMtu::new(1_200, OVERHEAD);
    plain.set_max(1_400, OVERHEAD);
    assert_eq!((plain.plpmtu(), plain.is_restless()), (1_400, false), "it speaks KCP alone");
}
