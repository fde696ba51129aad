//! Encoder and decoder against kcp-go's packets, and against each other.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec,
    vec::Vec,
};

use kcp9_vectors::fec_packets;

use super::{
    Decoder, Encoder, FecEvent, ReedSolomon,
    detector::Detector,
    packet::{HEADER_LEN, OutOfBand, Packet, peek_conv},
};
use crate::proto::{
    Connection, DatagramError, KcpConfig,
    arq::Origin,
    time::Instant,
    wire::{Command, SegmentHeader},
};

fn code(data: usize, parity: usize) -> Arc<ReedSolomon> {
    Arc::new(ReedSolomon::new(data, parity).unwrap())
}

/// What an encoder sends for a payload: its data packet, and the group's parity if it is the last of one.
fn encode(encoder: &mut Encoder, now: Instant, payload: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = vec![[&[0; HEADER_LEN], payload].concat()];
    encoder.data(now, &mut packets[0]);
    while let Some(len) = encoder.parity_len() {
        let mut parity = vec![0; len];
        encoder.parity(&mut parity);
        packets.push(parity);
    }
    packets
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn packets_are_those_of_kcp_go() {
    let mut runs = 0;
    for run in fec_packets().iter().filter(|run| run.has("parity_shards")) {
        let (data, parity) = (run.number("data_shards"), run.number("parity_shards"));
        let first_seqid = if run.has("first_seqid") { run.number("first_seqid") } else { 0 };
        let mut encoder = Encoder::starting_at(code(data, parity), first_seqid);
        let mut packets = Vec::new();
        for payload in run.byte_strings("payloads") {
            packets.extend(encode(&mut encoder, Instant::from_millis(1), &payload));
        }
        assert_eq!(packets, run.byte_strings("packets"), "{data}/{parity}");
        runs += 1;
    }
    assert_eq!(runs, 6);
}

#[test]
fn an_out_of_band_packet_belongs_to_its_conv() {
    let packet = fec_packets().iter().find(|run| run.has("packet")).unwrap().bytes("packet");
    assert_eq!(peek_conv(&packet), Some(0x1234_5678));
    assert!(super::segments_of(&packet).is_empty());
    let Packet { kind, shard, .. } = Packet::parse(&packet).unwrap();
    assert_eq!(kind, super::Kind::OutOfBand);
    let carried = OutOfBand::parse(shard).unwrap();
    assert_eq!(carried, OutOfBand { conv: 0x1234_5678, datagram: &packet[12..] });
    let mut written = packet.clone();
    written[..12].fill(0);
    super::write_out_of_band_header(&mut written, carried.conv);
    assert_eq!(written, packet);
}

#[test]
fn out_of_band_sizes_that_do_not_fit_are_refused() {
    let mut packet = vec![0; super::OUT_OF_BAND_HEADER_LEN + 3];
    super::write_out_of_band_header(&mut packet, CONV);
    let parse = |packet: &[u8]| {
        OutOfBand::parse(Packet::parse(packet).unwrap().shard).map(|found| found.datagram.len())
    };
    assert_eq!(parse(&packet), Some(3));
    for (size, found) in
        [(10, None), (9, Some(3)), (8, Some(2)), (6, Some(0)), (5, None), (1, None), (0, None)]
    {
        packet[6] = size;
        assert_eq!(parse(&packet), found, "a size of {size}");
    }
    for len in 6..12 {
        packet[6] = len as u8 - 6;
        assert_eq!(parse(&packet[..len]), None, "{len} bytes");
    }
}

#[test]
fn a_group_that_took_too_long_sends_no_parity_but_its_numbers_are_used() {
    let mut encoder = Encoder::new(code(2, 2));
    let at = Instant::from_millis;
    assert_eq!(encode(&mut encoder, at(0), b"a").len(), 1);
    assert_eq!(encode(&mut encoder, at(500), b"b").len(), 1, "500 ms apart");
    assert_eq!(encode(&mut encoder, at(2_000), b"c")[0][0], 4);
    assert_eq!(encode(&mut encoder, at(2_499), b"d").len(), 3, "499 ms apart");
    assert_eq!(encode(&mut encoder, at(2_500), b"e")[0][0], 8);
}

#[test]
fn another_code_begins_at_a_multiple_of_its_group() {
    let mut encoder = Encoder::new(code(3, 2));
    for _ in 0..6 {
        encode(&mut encoder, Instant::ZERO, b"before");
    }
    assert!(encoder.is_between_groups());
    encoder.set_code(code(5, 2));
    assert_eq!(encode(&mut encoder, Instant::ZERO, b"after")[0][..4], 1_036_u32.to_le_bytes());
}

#[test]
fn the_same_code_is_no_change() {
    let config = KcpConfig::builder().stream(false).fec(2, 1).build().unwrap();
    let mut session = Connection::new(CONV, &config, Instant::ZERO);
    let mut buffer = vec![0; 65_536];
    let mut seqids = Vec::new();
    // Between groups and within one; the last takes a change back that waits for the end of the group.
    for shards in [&[][..], &[], &[(2, 1)], &[(2, 1)], &[], &[(5, 5), (2, 1)], &[(1, 1)]] {
        for &(data, parity) in shards {
            session.set_fec(data, parity).unwrap();
        }
        session.write(Instant::ZERO, b"x").unwrap();
        while let Some(transmit) = session.poll_transmit(Instant::ZERO, &mut buffer) {
            let packets = buffer[..transmit.len].chunks(transmit.segment_size);
            seqids.extend(packets.map(|packet| u32::from_le_bytes(packet[..4].try_into().unwrap())));
        }
    }
    assert_eq!(seqids, [0, 1, 2, 3, 4, 5, 6, 7, 8, 1_034, 1_035]);
}

/// A leap is one across the end of the numbers too: a receiver that does not see it takes packets for those of the code
/// before, and what they yield for segments.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn a_change_where_the_numbers_end_is_seen() {
    for back in (0..1_400).step_by(13) {
        let mut state = back.into();
        let mut encoder = Encoder::starting_at(code(10, 3), u32::MAX - 520 - back);
        let mut decoder = Decoder::default();
        let mut last = 0;
        for sn in 0..460 {
            let changes = sn == 400;
            if changes {
                encoder.set_code(code(11, 2));
            }
            for (n, packet) in encode(&mut encoder, Instant::ZERO, &segment(sn, 50)).iter().enumerate() {
                let seqid = u32::from_le_bytes(packet[..4].try_into().unwrap());
                let ahead = seqid.wrapping_sub(core::mem::replace(&mut last, seqid));
                assert_eq!(ahead >= super::packet::LEAP, changes && n == 0 || sn == 0, "to {seqid}");
                if sn > 400 && random(&mut state) % 100 < 12 {
                    continue;
                }
                let outcome = input(&mut decoder, packet, &mut |segments, _| {
                    assert_eq!(segments, segment(sn_of(segments), 50), "{back} from the end");
                });
                assert_eq!(outcome, Ok(()));
            }
        }
        assert_eq!((decoder.shards(), decoder.stats().mismatches), (Some((11, 2)), 0), "{back} from the end");
    }
}

/// Less parity than the numbers have room for: the rest of each group's numbers is left out.
#[test]
fn a_limit_leaves_parity_and_its_numbers_out() {
    let mut encoder = Encoder::new(code(2, 4));
    let mut full = Encoder::new(code(2, 4));
    let group = |encoder: &mut Encoder, limit| {
        encoder.limit(limit);
        let mut packets = encode(encoder, Instant::ZERO, b"first");
        packets.extend(encode(encoder, Instant::from_millis(1), b"second"));
        packets
    };
    // The first four are complete.
    for _ in 0..4 {
        assert_eq!(group(&mut encoder, Some((1, 100))).len(), 6);
        group(&mut full, None);
    }
    for (limit, parity) in [((3, 1_000), 3), ((0, 1_000), 0), ((4, 1_000), 4), ((2, 1_000), 2)] {
        let (limited, all) = (group(&mut encoder, Some(limit)), group(&mut full, None));
        assert_eq!(limited, all[..2 + parity], "the same bytes, as far as they go");
    }
    assert!(encoder.is_between_groups());
    // Packets of 13 and 14 bytes earn 27; a parity packet takes 14.
    let mut encoder = Encoder::new(code(2, 4));
    let sent: Vec<_> = (0..200).map(|_| group(&mut encoder, Some((4, 100))).len() - 2).collect();
    assert_eq!(sent[100..].iter().sum::<usize>(), 2_700 / 14 + 1, "{sent:?}");
}

/// Credit is saved up for the parity of a group at least, be it many packets or long ones.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn a_budget_has_room_for_large_groups() {
    for (data, parity, len) in [(100, 50, 1_400), (10, 8, 9_000), (10, 3, 40_000)] {
        let mut encoder = Encoder::new(code(data, parity));
        encoder.limit(Some((parity, 100)));
        let mut sent = 0;
        for n in 0..10 * data {
            sent += encode(&mut encoder, Instant::from_millis(n as u64), &vec![1; len]).len() - 1;
        }
        assert_eq!(sent, 10 * parity, "{data}/{parity}, {len} bytes");
    }
}

const CONV: u32 = 7;

/// A segment of `len` payload bytes, numbered. They are no linear function of the number, or a combination of segments
/// would pass for another segment.
fn segment(sn: u32, len: usize) -> Vec<u8> {
    let header =
        SegmentHeader { conv: CONV, cmd: Command::Push, frg: 0, wnd: 9, ts: 1, sn, una: 0, len: len as u32 };
    [&header.to_bytes()[..], &vec![(sn.wrapping_mul(0x9e37_79b9) >> 24) as u8; len]].concat()
}

fn sn_of(segments: &[u8]) -> u32 {
    SegmentHeader::parse(segments).unwrap().sn
}

/// A small generator, the same every run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Gives `packet` to the decoder; `deliver` gets the segments that it hands over. Compiled once for all.
fn input(
    decoder: &mut Decoder,
    packet: &[u8],
    deliver: &mut dyn FnMut(&[u8], Origin),
) -> Result<(), DatagramError> {
    decoder.input(&Packet::parse(packet).unwrap(), CONV, |segments, origin| {
        deliver(segments, origin);
        Ok(())
    })
}

/// Sends `count` segments through a path that loses and reorders; returns what came directly and what was recovered.
fn transfer(
    encoder: &mut Encoder,
    decoder: &mut Decoder,
    count: u32,
    loss: u64,
    state: &mut u64,
) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let mut packets = Vec::new();
    for sn in 0..count {
        let len = 1 + random(state) as usize % 600;
        packets.extend(encode(encoder, Instant::ZERO, &segment(sn, len)));
    }
    packets.retain(|_| random(state) % 100 >= loss);
    for at in 3..packets.len() {
        packets.swap(at, at - random(state) as usize % 3);
    }
    let (mut direct, mut recovered) = (BTreeSet::new(), BTreeSet::new());
    for packet in &packets {
        let outcome = input(decoder, packet, &mut |segments, origin| {
            let sn = sn_of(segments);
            assert_eq!(segments, segment(sn, segments.len() - 24), "the very segment that was sent");
            match origin {
                Origin::Received => assert!(direct.insert(sn)),
                Origin::Recovered => assert!(recovered.insert(sn)),
            }
        });
        assert_eq!(outcome, Ok(()));
    }
    (direct, recovered)
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn what_is_lost_is_recovered() {
    for (data, parity) in [(1, 1), (3, 2), (10, 3), (30, 15), (2, 6), (200, 55)] {
        let mut state = 3;
        let mut encoder = Encoder::new(code(data, parity));
        let mut decoder = Decoder::default();
        let count = 40 * data as u32;
        let (direct, recovered) = transfer(&mut encoder, &mut decoder, count, 8, &mut state);
        let lost = count as usize - direct.len();
        let found = recovered.difference(&direct).count();
        assert!(found * 10 >= lost * 6, "{data}/{parity}: {found} of {lost}");
        assert_eq!(decoder.shards(), Some((data, parity)));
        assert_eq!(decoder.stats().recovered as usize, recovered.len());
        assert_eq!(decoder.stats().mismatches, 0);
    }
}

/// The numbers begin again, with losses and reordering around that.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn what_is_lost_is_recovered_where_the_numbers_wrap() {
    for (data, parity) in [(1, 1), (3, 2), (10, 3), (30, 15), (2, 6), (128, 128)] {
        let group = (data + parity) as u32;
        let mut state = 9;
        let mut encoder = Encoder::starting_at(code(data, parity), u32::MAX / group * group - 25 * group);
        let mut decoder = Decoder::default();
        transfer(&mut encoder, &mut decoder, 20 * data as u32, 0, &mut state);
        let (direct, recovered) = transfer(&mut encoder, &mut decoder, 10 * data as u32, 8, &mut state);
        let lost = 10 * data - direct.len();
        let found = recovered.difference(&direct).count();
        assert!(found * 10 >= lost * 6, "{data}/{parity}: {found} of {lost}");
        assert_eq!(decoder.stats().mismatches, 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn a_change_of_code_is_followed() {
    let mut state = 5;
    let mut encoder = Encoder::new(code(10, 3));
    let mut decoder = Decoder::default();
    for (data, parity) in [(10, 3), (5, 2), (1, 1), (10, 3)] {
        assert!(encoder.is_between_groups());
        encoder.set_code(code(data, parity));
        let (direct, recovered) = transfer(&mut encoder, &mut decoder, 400, 10, &mut state);
        assert_eq!(decoder.shards(), Some((data, parity)));
        assert!(recovered.difference(&direct).count() > 20, "{data}/{parity}");
    }
    assert_eq!(decoder.stats().mismatches, 0, "a leap tells");
}

#[test]
fn garbage_is_not_handed_on() {
    let code = code(2, 1);
    let mut encoder = Encoder::new(Arc::clone(&code));
    let mut decoder = Decoder::default();
    for packet in (0..10).flat_map(|sn| encode(&mut encoder, Instant::ZERO, &segment(sn, 100))) {
        input(&mut decoder, &packet, &mut |_, _| ()).unwrap();
    }
    assert_eq!(decoder.shards(), Some((2, 1)));
    // Half of a group, and the parity of another with the same numbers.
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

/// Two sessions of one address may have the same numbers, and the parity of one come to the other.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn parity_of_another_session_makes_nothing_up() {
    let mut state = 1;
    let (mut encoder, mut other) = (Encoder::new(code(10, 3)), Encoder::new(code(10, 3)));
    let mut decoder = Decoder::default();
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
    assert!(decoder.stats().parity_wasted > 3_000 && !decoder.stats().undecodable, "{:?}", decoder.stats());
}

/// Segments that differ in their numbers only: what a wrong code makes of them looks much like one.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn nothing_is_made_up_before_the_code_is_known() {
    for seed in 0..200 {
        let mut state = seed;
        let mut encoder = Encoder::new(code(10, 3));
        let mut decoder = Decoder::default();
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

/// A packet far ahead that is not of the peer's numbers costs some groups, and does not hide a later change.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn a_stray_far_ahead_costs_little() {
    for seed in 0..200 {
        let mut state = seed;
        let (mut encoder, mut decoder) = (Encoder::new(code(10, 3)), Decoder::default());
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

/// What has just become certain must hold for a group, whatever was certain before the numbers began anew.
#[test]
fn certainty_counts_from_the_beginning() {
    let (mut decoder, mut detector) = (Decoder::default(), Detector::new());
    let (mut seqid, mut certain) = (0, 0);
    let mut step = |data: u32, parity: u32| {
        let is_data = seqid % (data + parity) < data;
        let (found, anew) = detector.observe(seqid, is_data);
        certain = if anew { 0 } else { certain + u32::from(found.is_some()) };
        let _ = input(&mut decoder, &raw(seqid, if is_data { 0xf1 } else { 0xf2 }, 40), &mut |_, _| ());
        seqid += 1;
        (decoder.shards(), certain)
    };
    while step(10, 3).1 < 12 {}
    let (found, certain) = (0..100).map(|_| step(5, 2)).find(|(found, _)| found.is_some()).unwrap();
    assert_eq!((found, certain), (Some((5, 2)), 8));
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn memory_is_bounded_whatever_arrives() {
    let mut decoder = Decoder::default();
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

/// A packet of `kind` with a shard of `len` bytes, no segments.
fn raw(seqid: u32, kind: u8, len: usize) -> Vec<u8> {
    let size = (len as u16).to_le_bytes();
    [&seqid.to_le_bytes()[..], &[kind, 0], &size, &CONV.to_le_bytes(), &vec![0; len - 6]].concat()
}

/// A decoder that has learnt the shards of its peer, whose next group begins at the number returned.
fn experienced(data: usize, parity: usize) -> (Decoder, u32) {
    let group = (data + parity) as u32;
    let mut decoder = Decoder::default();
    let mut seqid = 0;
    while decoder.shards().is_none() || seqid % group != 0 {
        assert!(seqid < 5 * group);
        let kind = if seqid % group < data as u32 { 0xf1 } else { 0xf2 };
        let _ = input(&mut decoder, &raw(seqid, kind, 40), &mut |_, _| ());
        seqid += 1;
    }
    assert_eq!(decoder.shards(), Some((data, parity)));
    (decoder, seqid)
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn small_shards_in_large_memory_count_whole() {
    let (mut decoder, first) = experienced(200, 55);
    for round in 0..6 {
        // As many as the limit has room for, in a group that is then forgotten.
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

/// Neither one long parity shard among short ones, nor parity that fills the memory, makes recovery take more than that.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn recovery_takes_no_more_memory_than_there_may_be() {
    for short in [6, 60_000] {
        let (mut decoder, first) = experienced(34, 100);
        decoder.trim();
        let before = decoder.stats().unrecoverable;
        for at in 0..34 {
            let parity = raw(first + 34 + at, 0xf2, if at == 0 { 60_000 } else { short });
            let _ = input(&mut decoder, &parity, &mut |_, _| ());
        }
        assert_eq!(decoder.stats().unrecoverable - before, 34);
        // A shard above the bound is taken before others are let go.
        assert!(decoder.peak() <= (2 << 20) + 60_000, "{} bytes", decoder.peak());
    }
}

#[test]
fn trimmed_it_keeps_what_it_knows_and_little_memory() {
    let (mut encoder, mut decoder) = (Encoder::new(code(3, 2)), Decoder::default());
    let mut recovered = Vec::new();
    let mut input = |decoder: &mut Decoder, packet: &[u8]| {
        let outcome = input(decoder, packet, &mut |segments, origin| {
            if origin == Origin::Recovered {
                recovered.push(sn_of(segments));
            }
        });
        assert_eq!(outcome, Ok(()));
    };
    let mut groups = (0..).map(|group| -> Vec<_> {
        let sns = 3 * group..3 * group + 3;
        sns.flat_map(|sn| encode(&mut encoder, Instant::ZERO, &segment(sn, 500))).collect()
    });
    // Every second group loses what it can recover.
    for (n, group) in groups.by_ref().take(12).enumerate() {
        group.iter().skip(n % 2).for_each(|packet| input(&mut decoder, packet));
    }
    assert_eq!(decoder.shards(), Some((3, 2)));
    // Two of one, with parity, and one of the next, whose others are yet to come.
    let (broken, begun) = (groups.next().unwrap(), groups.next().unwrap());
    [&broken[0], &broken[3], &begun[0]].into_iter().for_each(|packet| input(&mut decoder, packet));
    let before = decoder.stats();
    assert!(decoder.memory() > 2_000, "{} bytes", decoder.memory());

    decoder.trim();
    let after = decoder.stats();
    assert!(decoder.memory() < 1_500, "{} bytes", decoder.memory());
    assert_eq!(after.unrecoverable - before.unrecoverable, 2, "of the broken group only");
    assert_eq!(after.parity_wasted - before.parity_wasted, 1);

    // The rest of the group that was given up tells nothing, the next is recovered as ever.
    begun[2..].iter().for_each(|packet| input(&mut decoder, packet));
    assert_eq!(decoder.stats().recovered, before.recovered);
    assert_eq!(decoder.stats().parity_wasted - after.parity_wasted, 2);
    assert_eq!(decoder.stats().unrecoverable, after.unrecoverable);
    groups.next().unwrap()[2..].iter().for_each(|packet| input(&mut decoder, packet));
    assert_eq!(decoder.stats().recovered - before.recovered, 2);
    assert_eq!(recovered.split_off(recovered.len() - 2), [42, 43]);
}

#[test]
fn parity_of_no_use_is_counted() {
    let (mut decoder, first) = experienced(3, 2);
    let mut wasted = decoder.stats().parity_wasted;
    let mut input = |decoder: &mut Decoder, seqid: u32, len: usize| {
        let kind = if seqid % 5 < 3 { 0xf1 } else { 0xf2 };
        let _ = input(decoder, &raw(seqid, kind, len), &mut |_, _| ());
        let new = decoder.stats().parity_wasted - wasted;
        wasted += new;
        new
    };
    let mut packets = |group: u32, shards: &[(u32, usize)]| -> Vec<u64> {
        shards.iter().map(|(shard, len)| input(&mut decoder, first + 5 * group + shard, *len)).collect()
    };
    let same = |shards: &[u32]| shards.iter().map(|shard| (*shard, 40)).collect::<Vec<_>>();
    assert_eq!(packets(0, &same(&[0, 1, 2, 3, 4])), [0, 0, 0, 1, 1], "all data was there");
    assert_eq!(
        packets(1, &same(&[3, 0, 3, 4, 1])),
        [0; 5],
        "both were needed; a repeated one does not count"
    );
    assert_eq!(
        packets(2, &same(&[3, 0, 1, 4, 3, 4])),
        [0, 0, 0, 1, 0, 0],
        "all data was recovered; repeated ones do not count"
    );
    assert_eq!(packets(3, &[(3, 40), (4, 50), (0, 40)]), [0, 0, 2], "of different groups");
    assert_eq!(packets(4, &same(&[4, 1])), [0; 2], "may yet be of use");
    let given_up: u64 = (5..30).flat_map(|group| packets(group, &same(&[0, 1, 2]))).sum();
    assert_eq!(given_up, 1, "too few came");
    assert_eq!(packets(4, &same(&[3])), [0], "late");
}

/// What kcp-go does with FEC packets while none contradicts the shards that it was given: packets of a group are put
/// together by their numbers, and once `data` of them are there, the missing ones are computed.
struct KcpGo {
    code: Arc<ReedSolomon>,
    groups: BTreeMap<u32, Vec<Option<Vec<u8>>>>,
}

impl KcpGo {
    fn input(&mut self, packet: &[u8], mut recovered: impl FnMut(&[u8])) {
        let Packet { seqid, kind, shard } = Packet::parse(packet).unwrap();
        let (data, size) = (self.code.data_shards(), self.code.data_shards() + self.code.parity_shards());
        let index = seqid as usize % size;
        assert_eq!(index < data, kind == super::packet::Kind::Data, "it would look for other shards");
        let group = self.groups.entry(seqid / size as u32).or_insert_with(|| vec![None; size]);
        group[index] = Some(shard.to_vec());
        if group.iter().flatten().count() < data {
            return;
        }
        let mut group = self.groups.remove(&(seqid / size as u32)).unwrap();
        let len = group.iter().flatten().map(Vec::len).max().unwrap();
        group.iter_mut().flatten().for_each(|shard| shard.resize(len, 0));
        let missing: Vec<_> = (0..data).filter(|index| group[*index].is_none()).collect();
        self.code.reconstruct_data(&mut group).unwrap();
        for index in missing {
            let shard = group[index].as_ref().unwrap();
            recovered(super::packet::payload(shard).unwrap());
        }
        // Late parity begins the group anew, which then never has enough.
    }
}

/// Parity that changes with every group asks nothing of a receiver: neither of ours nor of kcp-go.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn any_receiver_follows_a_changing_limit() {
    for seed in 0..20 {
        let mut state = seed;
        let mut encoder = Encoder::new(code(10, 6));
        let mut ours = Decoder::default();
        let mut kcp_go = KcpGo { code: code(10, 6), groups: BTreeMap::new() };
        let (mut lost, mut by_ours, mut by_kcp_go) = (0, 0, 0);
        for sn in 0..4_000 {
            encoder.limit(Some((random(&mut state) as usize % 7, 1_000)));
            let len = 1 + random(&mut state) as usize % 300;
            for packet in encode(&mut encoder, Instant::from_millis(sn.into()), &segment(sn, len)) {
                if random(&mut state) % 100 < 10 {
                    lost += u32::from(packet[4] == 0xf1);
                    continue;
                }
                let check = |segments: &[u8]| {
                    assert_eq!(segments, segment(sn_of(segments), segments.len() - 24), "seed {seed}");
                };
                kcp_go.input(&packet, |segments| {
                    check(segments);
                    by_kcp_go += 1;
                });
                let outcome = input(&mut ours, &packet, &mut |segments, origin| {
                    check(segments);
                    by_ours += u32::from(origin == Origin::Recovered);
                });
                assert_eq!(outcome, Ok(()));
            }
        }
        assert_eq!(ours.shards(), Some((10, 6)));
        assert_eq!(ours.stats().mismatches, 0);
        assert!(
            by_kcp_go * 10 > lost * 6 && by_ours * 20 > by_kcp_go * 19,
            "{by_ours}, {by_kcp_go} of {lost}"
        );
    }
}

/// Settings that do not fit are told, and so is parity of no use.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn what_does_not_fit_is_told() {
    let mut state = 5;
    let mut encoder = Encoder::new(code(10, 3));
    let mut decoder = Decoder::expecting(Some((10, 3)));
    transfer(&mut encoder, &mut decoder, 200, 5, &mut state);
    assert_eq!((decoder.take_event(), decoder.stats().peer_changes), (None, 0));
    encoder.set_code(code(5, 2));
    transfer(&mut encoder, &mut decoder, 200, 5, &mut state);
    let told = FecEvent::PeerShards { data: 5, parity: 2 };
    assert_eq!((decoder.take_event(), decoder.stats().peer_changes), (Some(told), 1));
    // Parity of another matrix: its numbers fit, its bytes do not.
    for sn in 0..400 {
        for mut packet in encode(&mut encoder, Instant::ZERO, &segment(sn, 100)) {
            if packet[4] == 0xf2 {
                let mask = packet[0].wrapping_mul(37) | 1;
                packet[6..].iter_mut().for_each(|byte| *byte ^= mask);
            }
            if random(&mut state) % 100 >= 10 {
                input(&mut decoder, &packet, &mut |_, _| ()).unwrap();
            }
        }
    }
    assert_eq!(decoder.take_event(), Some(FecEvent::Undecodable));
    assert!(decoder.stats().undecodable);
    // Data and parity that take turns fit no shards.
    let mut decoder = Decoder::default();
    for seqid in 0..3_000_u32 {
        let mut packet = encode(&mut encoder, Instant::ZERO, &segment(seqid, 9)).remove(0);
        packet[..4].copy_from_slice(&seqid.to_le_bytes());
        packet[4] = [0xf1, 0xf2, 0xf2, 0xf1, 0xf2, 0xf1, 0xf1][seqid as usize % 7];
        let _ = input(&mut decoder, &packet, &mut |_, _| ());
    }
    let told: Vec<_> = core::iter::from_fn(|| decoder.take_event()).collect();
    assert!(told.contains(&FecEvent::Undecodable), "{told:?}");
}
