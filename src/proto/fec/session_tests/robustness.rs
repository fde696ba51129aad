//! A decoder that meets garbage, packets of other sessions, and more than it may keep.

use super::*;

#[test]
fn garbage_is_not_handed_on() {
    let code = code(2, 1);
    let mut encoder = Encoder::new(Arc::clone(&code));
    let mut decoder = receiver();
    for packet in (0..10).flat_map(|sn| encode(&mut encoder, Instant::ZERO, &segment(sn, 100))) {
        input(&mut decoder, &packet, &mut |_, _| ()).unwrap();
    }
    assert_eq!(decoder.shards(), Some((2, 1)));
    // Half of a group, and the parity of another group with the same numbers.
    let half = encode(&mut encoder, Instant::ZERO, &segment(9, 100));
    let mut stranger = Encoder::starting_at(code, 15);
    let other: Vec<_> =
        (5..7).flat_map(|sn| encode(&mut stranger, Instant::ZERO, &segment(sn, 300))).collect();
    for packet in [&half[0], &other[2]] {
        let outcome = input(&mut decoder, packet, &mut |_, origin| {
            assert_eq!(origin, Origin::Received);
        });
        assert_eq!(outcome, Ok(()));
    }
    assert_eq!((decoder.stats().recovered, decoder.stats().unrecoverable), (0, 1));
}

/// Two sessions of one address may use the same numbers, and the parity of one may reach the other.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn parity_of_another_session_recovers_nothing() {
    let mut state = 1;
    let (mut encoder, mut other) = (Encoder::new(code(10, 3)), Encoder::new(code(10, 3)));
    let mut decoder = receiver();
    for sn in 0..20_000 {
        let mut foreign = segment(sn + 1_000, 500);
        foreign[..4].copy_from_slice(&0x1234_5678_u32.to_le_bytes());
        let packets = encode(&mut encoder, Instant::ZERO, &segment(sn, 500));
        let foreign = encode(&mut other, Instant::ZERO, &foreign);
        for (packet, foreign) in packets.iter().zip(&foreign) {
            assert_eq!((peek_conv(packet), peek_conv(foreign)), (Some(CONV), Some(0x1234_5678)));
            let strays = packet[4] == 0xf2 && random(&mut state) % 100 < 70;
            if sn > 50 && random(&mut state) % 100 < 15 {
                continue;
            }
            let packet = if sn > 50 && strays { foreign } else { packet };
            let outcome = input(&mut decoder, packet, &mut |segments, _| {
                assert_eq!(segments, segment(sn_of(segments), 500));
            });
            assert_eq!(outcome, Ok(()));
        }
    }
    assert!(decoder.stats().recovered > 500, "{:?}", decoder.stats());
    assert!(decoder.stats().parity_wasted > 3_000 && !decoder.is_undecodable(), "{:?}", decoder.stats());
}

/// These segments differ in their numbers only, so that what a wrong code computes from them looks much like a segment.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn nothing_is_recovered_before_the_code_is_certain() {
    for seed in 0..200 {
        let mut state = seed;
        let mut encoder = Encoder::new(code(10, 3));
        let mut decoder = receiver();
        for sn in 0..400 {
            for packet in encode(&mut encoder, Instant::ZERO, &segment(sn, 500)) {
                if random(&mut state) % 100 < 25 {
                    continue;
                }
                let outcome = input(&mut decoder, &packet, &mut |segments, _| {
                    assert_eq!(segments, segment(sn_of(segments), 500), "seed {seed}");
                });
                assert_eq!(outcome, Ok(()));
            }
        }
        assert_eq!(decoder.shards(), Some((10, 3)), "seed {seed}");
    }
}

/// A packet with a number far ahead, which the peer did not send, costs some groups. A later change is still detected.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn a_stray_packet_far_ahead_costs_a_few_groups() {
    for seed in 0..200 {
        let mut state = seed;
        let (mut encoder, mut decoder) = (Encoder::new(code(10, 3)), receiver());
        let mut sns = 0..;
        let mut send = |encoder: &mut Encoder, decoder: &mut Decoder, count: usize, loss: u64| {
            for sn in sns.by_ref().take(count) {
                for packet in encode(encoder, Instant::ZERO, &segment(sn, 50)) {
                    if random(&mut state) % 100 < loss {
                        continue;
                    }
                    let outcome = input(decoder, &packet, &mut |segments, _| {
                        assert_eq!(segments, segment(sn_of(segments), 50), "seed {seed}");
                    });
                    assert_eq!(outcome, Ok(()));
                }
            }
        };
        send(&mut encoder, &mut decoder, 100, 0);
        let stray = encode(&mut Encoder::starting_at(code(1, 1), 1_000_000), Instant::ZERO, &segment(0, 50));
        input(&mut decoder, &stray[0], &mut |_, _| ()).unwrap();
        assert_eq!(decoder.shards(), None);
        send(&mut encoder, &mut decoder, 100, 0);
        assert_eq!(decoder.shards(), Some((10, 3)));
        encoder.set_code(code(11, 2));
        send(&mut encoder, &mut decoder, 60, 12);
        assert_eq!(decoder.shards(), Some((11, 2)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn memory_is_bounded_whatever_arrives() {
    let mut decoder = receiver();
    let mut state = 11;
    let mut bytes = vec![0; 60_000];
    for round in 0..20_000_u32 {
        // Data and parity of a group of 256, so that the decoder learns it, and then anything.
        let seqid = if round < 2_000 { round } else { random(&mut state) as u32 };
        let kind: u8 = if seqid % 256 < 200 { 0xf1 } else { 0xf2 };
        bytes[..4].copy_from_slice(&seqid.to_le_bytes());
        bytes[4..6].copy_from_slice(&[kind, 0]);
        let len = 12 + random(&mut state) as usize % 50_000;
        bytes[6..8].copy_from_slice(&((len - 6) as u16).to_le_bytes());
        bytes[8..12].copy_from_slice(&CONV.to_le_bytes());
        let _ = input(&mut decoder, &bytes[..len], &mut |_, _| ());
        assert!(decoder.memory() <= 3 << 20, "{} bytes", decoder.memory());
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn small_shards_in_large_buffers_count_by_the_buffer() {
    let (mut decoder, first) = experienced(200, 55);
    for round in 0..6 {
        // As many as the limit has room for, in a group that is then dropped.
        for at in 0..40 {
            let large = raw(first + at, 0xf1, 60_000);
            let _ = input(&mut decoder, &large, &mut |_, _| ());
        }
        for at in 0..30 {
            let small = raw(first + 255 + 30 * round + at, 0xf1, 40);
            let _ = input(&mut decoder, &small, &mut |_, _| ());
        }
        assert!(decoder.memory() <= 3 << 20, "round {round}: {} bytes", decoder.memory());
    }
}

/// Recovery stays within the limit of memory, also with one long parity shard among short ones, and where parity fills it.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn recovery_stays_within_the_limit_of_memory() {
    for short in [6, 60_000] {
        let (mut decoder, first) = experienced(34, 100);
        decoder.trim();
        let before = decoder.stats().unrecoverable;
        for at in 0..34 {
            let parity = raw(first + 34 + at, 0xf2, if at == 0 { 60_000 } else { short });
            let _ = input(&mut decoder, &parity, &mut |_, _| ());
        }
        assert_eq!(decoder.stats().unrecoverable - before, 34);
        // The pool hands out the buffer that is above the limit before it frees others.
        assert!(decoder.peak() <= (2 << 20) + 60_000, "{} bytes", decoder.peak());
    }
}

/// A session without FEC of its own holds little of what it did not expect, and one with FEC no more than it may.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn memory_follows_what_is_expected() {
    for (own, limit) in [(None, 64 << 10), (Some((10, 3)), 2 << 20)] {
        for (data, parity) in [(10, 3), (1, 1), (1, 255), (30, 15), (128, 128), (255, 1)] {
            let mut decoder = Decoder::expecting(own);
            let mut next = teach(&mut decoder, data, parity);
            let mut state = 3;
            let mut most = 0;
            for _ in 0..10_000 {
                next += random(&mut state) as u32 % 3;
                let seqid = next + random(&mut state) as u32 % 500;
                let is_data = seqid % ((data + parity) as u32) < data as u32;
                let len = [6, 40, 1_400, 1_400, 1_400, 20_000][random(&mut state) as usize % 6];
                let packet = raw(seqid, if is_data { 0xf1 } else { 0xf2 }, len);
                let _ = input(&mut decoder, &packet, &mut |_, _| ());
                most = most.max(decoder.memory());
            }
            assert!(most <= limit, "{most} bytes of {data}/{parity}, {own:?} expected");
            assert!(most > limit / 2 || own.is_some() || data < 10, "{most} bytes: hardly a flood");
        }
    }
}

/// Until the group size is found, half of the limit is for what may be decoded then.
#[test]
fn little_is_set_aside_for_an_unexpected_peer() {
    let mut decoder = Decoder::expecting(None);
    for seqid in 0..300_u32 {
        let kind = if seqid % 256 < 200 { 0xf1 } else { 0xf2 };
        let _ = input(&mut decoder, &raw(seqid, kind, 1_400), &mut |_, _| ());
    }
    assert_eq!(decoder.shards(), None);
    assert!((30_000..36_000).contains(&decoder.memory()), "{} bytes", decoder.memory());
}

/// A session that turns FEC on while it lives expects it from then on.
#[test]
fn limits_widen_when_fec_is_turned_on() {
    let mut decoder = Decoder::expecting(None);
    let first = teach(&mut decoder, 200, 55);
    let fill = |decoder: &mut Decoder, group: u32| {
        for at in 0..100 {
            let _ = input(decoder, &raw(first + group * 255 + at, 0xf1, 1_400), &mut |_, _| ());
        }
        decoder.memory()
    };
    assert!(fill(&mut decoder, 0) <= 64 << 10);
    decoder.expect((10, 3));
    assert!(fill(&mut decoder, 1) > 100 * 1_400);
}

/// What was not expected is recovered all the same, as long as its groups are not larger than most.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn an_unexpected_peer_with_usual_groups_loses_nothing_by_the_limit() {
    for (data, parity) in [(10, 3), (20, 10), (30, 15)] {
        let [with, without] = [Some((data, parity)), None].map(|own| {
            let (mut state, mut recovered) = (5, 0);
            let mut encoder = Encoder::new(code(data, parity));
            let mut decoder = Decoder::expecting(own);
            let sent = (0..200 * data as u32)
                .flat_map(|sn| encode(&mut encoder, Instant::ZERO, &segment(sn, 1_376)));
            let mut packets: Vec<_> = sent.filter(|_| random(&mut state) % 100 >= 5).collect();
            for at in (10..packets.len()).step_by(7) {
                packets.swap(at, at - random(&mut state) as usize % 10);
            }
            for packet in &packets {
                let _ = input(&mut decoder, packet, &mut |_, origin| {
                    recovered += u32::from(origin == Origin::Recovered);
                });
            }
            recovered
        });
        assert!(without * 100 >= with * 96, "{without} of {with} with {data}/{parity}");
    }
}

/// Large groups of which only parity comes cost more than they are worth: all their parity is valid, and most of it is left alone.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn work_is_bounded_by_what_comes() {
    let mut decoder = receiver();
    let mut encoder = Encoder::starting_at(code(60, 60), teach(&mut decoder, 60, 60));
    for sn in 0..60 * 100 {
        for packet in
            encode(&mut encoder, Instant::ZERO, &segment(sn, 200)).iter().filter(|packet| packet[4] == 0xf2)
        {
            assert_eq!(input(&mut decoder, packet, &mut |_, _| ()), Ok(()));
        }
    }
    // 16 rows of 60 are paid for.
    let groups = decoder.stats().recovered / 60;
    assert!((25..=30).contains(&groups), "{groups} groups of 100");
    assert!(!decoder.is_undecodable(), "it is not useless");
    // Losses as they happen cost less, and all of them are repaired.
    let mut state = 3;
    let (direct, recovered) = transfer(&mut encoder, &mut decoder, 60 * 50, 10, &mut state);
    assert!(recovered.difference(&direct).count() * 100 >= (60 * 50 - direct.len()) * 98);
}
