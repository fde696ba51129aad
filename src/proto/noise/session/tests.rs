//! Epochs, their limits, and counters as they are on the wire.

use alloc::vec::Vec;

use super::*;

const NOW: Instant = Instant::from_millis(1_000);
const MINUTE: Duration = Duration::from_secs(60);

fn pair() -> [SessionKeys; 2] {
    SessionKeys::pair_for_tests()
}

fn sealed(keys: &mut SessionKeys, now: Instant) -> Vec<u8> {
    let mut packet = [&[0; HEADER_LEN][..], b"payload", &[0; TAG_LEN]].concat();
    keys.seal(now, 5, &mut packet).unwrap();
    packet
}

fn open(keys: &mut SessionKeys, now: Instant, packet: &[u8]) -> Result<(), OpenPacketError> {
    let route = keys.route_key.route(packet).ok_or(OpenPacketError::TooShort)?;
    keys.open(now, route, &mut packet.to_vec()).map(|payload| assert_eq!(payload, b"payload"))
}

/// Seals at one end and opens at the other.
fn pass(from: &mut SessionKeys, to: &mut SessionKeys, now: Instant) {
    let packet = sealed(from, now);
    open(to, now, &packet).unwrap();
}

fn epochs(ends: &[SessionKeys; 2]) -> [(u64, u64); 2] {
    [0, 1].map(|end| (ends[end].sending.epoch, ends[end].receiving.epoch))
}

#[test]
fn keys_change_after_an_hour_of_use_at_both_ends_and_without_a_pause() {
    let mut ends = pair();
    let [a, b] = &mut ends;
    pass(a, b, NOW);
    pass(b, a, NOW);
    let hour = NOW + KEY_LIFETIME;
    let late = [sealed(a, NOW), sealed(a, hour)];
    assert_eq!(a.key_changes(), 1, "an hour after its first packet");
    let other = sealed(b, hour);
    assert_eq!(b.key_changes(), 1, "both at once");
    open(b, hour, &late[1]).unwrap();
    open(b, hour, &late[0]).unwrap();
    open(a, hour, &other).unwrap();
    assert_eq!(epochs(&ends), [(1, 1), (1, 1)]);
}

#[test]
fn a_peer_follows_even_if_it_has_heard_nothing_of_the_epoch_before() {
    let mut ends = pair();
    let [a, b] = &mut ends;
    let lost = sealed(a, NOW);
    pass(b, a, NOW);
    a.change_key();
    pass(a, b, NOW);
    pass(b, a, NOW);
    assert_eq!(epochs(&ends), [(1, 1), (1, 1)]);
    let [a, b] = &mut ends;
    assert!(a.sending.confirmed && b.sending.confirmed);
    open(b, NOW, &lost).unwrap();
}

#[test]
fn no_key_changes_again_before_the_peer_has_followed() {
    let mut ends = pair();
    let [a, b] = &mut ends;
    a.change_key();
    pass(a, b, NOW);
    assert_eq!(a.key_changes(), 0, "nothing was heard of the peer");
    pass(b, a, NOW);
    for _ in 0..3 {
        pass(a, b, NOW);
        a.change_key();
    }
    assert_eq!(a.key_changes(), 1);
    pass(b, a, NOW);
    pass(a, b, NOW);
    assert_eq!(epochs(&ends), [(2, 1), (2, 2)]);
}

#[test]
fn an_old_key_opens_packets_for_a_minute() {
    let mut ends = pair();
    let [a, b] = &mut ends;
    pass(a, b, NOW);
    pass(b, a, NOW);
    let late: Vec<_> = (0..3).map(|_| sealed(a, NOW)).collect();
    a.change_key();
    pass(a, b, NOW);
    let end = NOW + MINUTE;
    open(b, NOW + (MINUTE - Duration::from_millis(1)), &late[0]).unwrap();
    assert_eq!(open(b, end, &late[1]), Err(OpenPacketError::TooOld));
    b.trim(end);
    assert!(b.receiving.previous.is_none());
    assert_eq!(open(b, NOW, &late[2]), Err(OpenPacketError::TooOld), "it is gone");
}

#[test]
fn after_its_number_of_packets_a_key_changes_or_is_used_up() {
    let mut ends = pair();
    let [a, b] = &mut ends;
    pass(a, b, NOW);
    pass(b, a, NOW);
    a.sending.counter = KEY_PACKETS - 1;
    b.receiving.window.insert(KEY_PACKETS - 2);
    pass(a, b, NOW);
    assert_eq!(a.key_changes(), 0);
    pass(a, b, NOW);
    assert_eq!((a.key_changes(), b.key_changes()), (1, 1));
    // The peer is not heard any more.
    a.use_up_but(1);
    sealed(a, NOW);
    let mut packet = [0; HEADER_LEN + TAG_LEN];
    assert_eq!(a.seal(NOW, 5, &mut packet), Err(SealPacketError::KeyUsedUp));
    assert_eq!(packet, [0; HEADER_LEN + TAG_LEN], "nothing is sealed twice under a counter");
    pass(b, a, NOW);
    b.receiving.window.insert(a.sending.counter - 1);
    pass(a, b, NOW);
}

#[test]
fn forgeries_make_a_key_change_and_are_counted_anew_under_the_next() {
    let mut ends = pair();
    let [a, b] = &mut ends;
    pass(a, b, NOW);
    pass(b, a, NOW);
    let mut forged = sealed(b, NOW);
    forged[10] ^= 1;
    assert!(open(a, NOW, &forged).is_err());
    assert_eq!(a.receiving.forgeries, 1);
    a.receiving.forgeries = KEY_FORGERIES;
    pass(a, b, NOW);
    assert_eq!(a.key_changes(), 1);
    pass(b, a, NOW);
    assert_eq!(a.receiving.forgeries, 0);
}

#[test]
fn forged_phases_make_one_key_and_change_nothing() {
    let mut ends = pair();
    let [a, b] = &mut ends;
    pass(a, b, NOW);
    for flipped in 0..64 {
        // The mask is of the bytes behind, so any change there gives other counters and phases.
        let mut packet = sealed(a, NOW);
        packet[HEADER_LEN + flipped / 8] ^= 1 << (flipped % 8);
        assert!(open(b, NOW, &packet).is_err());
        let mut packet = sealed(a, NOW);
        packet[7] ^= 0x80;
        assert_eq!(open(b, NOW, &packet), Err(OpenPacketError::BadTag), "the phase");
    }
    assert!(b.receiving.later.is_some() && b.receiving.previous.is_none() && b.receiving.epoch == 0);
    b.trim(NOW);
    assert!(b.receiving.later.is_none());
    a.change_key();
    pass(b, a, NOW);
    pass(a, b, NOW);
    assert_eq!(b.receiving.epoch, 1);
}

#[test]
fn the_nearest_counter_is_found() {
    const RANGE: u64 = 1 << COUNTER_BITS;
    assert_eq!(nearest(0, 0), 0);
    assert_eq!(nearest(COUNTER_MASK, 0), COUNTER_MASK, "there is nothing before the first");
    for expected in [0, 1, RANGE / 2, RANGE - 1, RANGE, RANGE + 1, 5 * RANGE - 3, 7 * RANGE + RANGE / 2] {
        for distance in [0, 1, 2, 1_000, RANGE / 2 - 1] {
            let ahead = expected + distance;
            assert_eq!(nearest(ahead & COUNTER_MASK, expected), ahead);
            if let Some(behind) = expected.checked_sub(distance) {
                assert_eq!(nearest(behind & COUNTER_MASK, expected), behind);
            }
        }
    }
    for expected in [u64::MAX, u64::MAX - RANGE / 2, u64::MAX - RANGE] {
        for low in [0, 1, RANGE / 2, COUNTER_MASK] {
            assert!(nearest(low, expected) >= u64::MAX - 2 * RANGE);
        }
    }
}

#[test]
fn counters_go_on_past_31_bits() {
    let mut ends = pair();
    let [a, b] = &mut ends;
    pass(a, b, NOW);
    for start in [(1_u64 << 31) - 3, (1 << 32) - 3] {
        a.sending.counter = start;
        b.receiving.window.insert(start - 1);
        let packets: Vec<_> = (0..6).map(|_| sealed(a, NOW)).collect();
        for at in [5, 0, 2, 1, 4, 3] {
            open(b, NOW, &packets[at]).unwrap();
            assert_eq!(open(b, NOW, &packets[at]), Err(OpenPacketError::Replayed));
        }
    }
}

#[test]
fn neither_reflected_nor_changed_packets_open() {
    let mut ends = pair();
    let [a, b] = &mut ends;
    let packet = sealed(a, NOW);
    assert!(open(a, NOW, &packet).is_err(), "reflected");
    for bit in 0..8 * packet.len() {
        let mut changed = packet.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(open(b, NOW, &changed).is_err(), "bit {bit}");
    }
    for len in 0..packet.len() {
        assert!(open(b, NOW, &packet[..len]).is_err(), "{len} bytes");
    }
    assert!(!b.is_peer_heard());
    open(b, NOW, &packet).unwrap();
    assert!(b.is_peer_heard());
    assert_eq!(open(b, NOW, &packet), Err(OpenPacketError::Replayed));
}

#[test]
fn short_packets_are_not_sealed() {
    let [mut a, _] = pair();
    for len in 0..HEADER_LEN + TAG_LEN {
        assert_eq!(a.seal(NOW, 5, &mut [0; HEADER_LEN + TAG_LEN][..len]), Err(SealPacketError::TooShort));
    }
    assert_eq!(a.sending.counter, 0);
    assert_eq!(a.route_key.route(&[0; HEADER_LEN + TAG_LEN - 1]), None);
    assert_eq!(a.open(NOW, 5, &mut [0; HEADER_LEN + TAG_LEN - 1]), Err(OpenPacketError::TooShort));
}

#[test]
fn the_same_payload_looks_different_each_time() {
    let [mut a, _] = pair();
    let packets: Vec<_> = (0..50).map(|_| sealed(&mut a, NOW)).collect();
    for (at, packet) in packets.iter().enumerate() {
        for other in &packets[..at] {
            assert_ne!(packet[..4], other[..4], "the masked route");
            assert_ne!(packet[4..8], other[4..8], "the masked counter");
            assert_ne!(packet[8..15], other[8..15], "the payload");
        }
    }
}

/// It has followed, nothing of that has arrived, and it goes on by itself.
#[test]
fn a_peer_that_is_two_epochs_ahead_is_heard() {
    let mut ends = pair();
    let [a, b] = &mut ends;
    pass(a, b, NOW);
    pass(b, a, NOW);
    a.change_key();
    pass(a, b, NOW);
    let late = sealed(b, NOW);
    b.change_key();
    let first = sealed(b, NOW);
    assert_eq!((b.sending.epoch, a.receiving.epoch), (2, 0));
    // A forgery, and a look at a packet, change nothing.
    let mut forged = first.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(open(a, NOW, &forged), Err(OpenPacketError::BadTag));
    assert_eq!(a.peek(5, &mut first.clone()).unwrap(), b"payload");
    assert_eq!(a.receiving.epoch, 0);
    open(a, NOW, &first).unwrap();
    assert_eq!(open(a, NOW, &first), Err(OpenPacketError::Replayed));
    open(a, NOW, &late).unwrap();
    for _ in 0..3 {
        pass(a, b, NOW);
        pass(b, a, NOW);
    }
    assert_eq!(epochs(&ends), [(2, 2), (2, 2)]);
}

/// Both ends change their keys as they like, and a third of the packets is lost. What arrives is opened, but for what is two epochs old.
#[test]
fn ends_that_change_keys_as_they_like_through_losses_stay_together() {
    for seed in 0..200_u64 {
        let mut ends = pair();
        let mut random = seed;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for step in 0..500 {
            let from = draw(2) as usize;
            let (one, other) = ends.split_at_mut(1);
            let [from, to] =
                if from == 0 { [&mut one[0], &mut other[0]] } else { [&mut other[0], &mut one[0]] };
            if draw(4) == 0 {
                from.change_key();
            }
            let packet = sealed(from, NOW);
            if draw(3) > 0 {
                assert_eq!(open(to, NOW, &packet), Ok(()), "seed {seed}, step {step}");
            }
        }
        assert!(ends[0].key_changes() > 20, "seed {seed}: {}", ends[0].key_changes());
    }
}

/// At every point of a session with changes of keys, packets that are late among them.
#[test]
fn a_parked_session_goes_on_and_opens_nothing_from_before() {
    let mut ends = pair();
    let mut now = NOW;
    for round in 0..20 {
        let [a, b] = &mut ends;
        let (late, seen) = (sealed(a, now), sealed(a, now));
        open(b, now, &seen).unwrap();
        pass(b, a, now);
        a.park();
        b.park();
        assert!(b.sending.key.is_parked() && b.receiving.key.is_parked());
        for packet in [&late, &seen] {
            assert_eq!(open(b, now, packet), Err(OpenPacketError::TooOld), "round {round}");
        }
        assert!(b.receiving.key.is_parked(), "what is refused makes no key");
        pass(a, b, now);
        pass(b, a, now);
        for packet in [&late, &seen] {
            assert!(open(b, now, packet).is_err(), "round {round}");
        }
        ends[round % 2].change_key();
        now += MINUTE;
    }
    assert_eq!(ends[0].key_changes(), ends[1].key_changes());
    assert!(ends[0].key_changes() >= 10, "{}", ends[0].key_changes());
}

#[test]
fn a_key_that_was_forged_too_often_opens_nothing_until_the_next_one() {
    let mut ends = pair();
    let [a, b] = &mut ends;
    pass(a, b, NOW);
    pass(b, a, NOW);
    b.receiving.forgeries = MAX_KEY_FORGERIES - 1;
    pass(a, b, NOW);
    b.receiving.forgeries = MAX_KEY_FORGERIES;
    let packet = sealed(a, NOW);
    assert_eq!(open(b, NOW, &packet), Err(OpenPacketError::BadTag));
    assert!(b.peek(5, &mut packet.clone()).is_err());
    a.change_key();
    pass(a, b, NOW);
    pass(a, b, NOW);
}
