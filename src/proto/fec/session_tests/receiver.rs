//! A decoder that meets losses, changes of the group size, and peers whose settings differ.

use super::*;

/// The gap in the numbers is as wide where they wrap. A receiver that does not see it would decode packets of the new code by the
/// old one, and take the result for segments.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn a_change_of_code_where_the_numbers_wrap_is_detected() {
    for back in (0..1_400).step_by(13) {
        let mut state = back.into();
        let mut encoder = Encoder::starting_at(code(10, 3), u32::MAX - 520 - back);
        let mut decoder = receiver();
        let mut last = 0;
        for sn in 0..460 {
            let changes = sn == 400;
            if changes {
                encoder.set_code(code(11, 2));
            }
            for (n, packet) in encode(&mut encoder, Instant::ZERO, &segment(sn, 50)).iter().enumerate() {
                let seqid = u32::from_le_bytes(packet[..4].try_into().unwrap());
                let ahead = seqid.wrapping_sub(core::mem::replace(&mut last, seqid));
                assert_eq!(ahead >= packet::LEAP, changes && n == 0 || sn == 0, "to {seqid}");
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

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn lost_packets_are_recovered() {
    for (data, parity) in [(1, 1), (3, 2), (10, 3), (30, 15), (2, 6), (200, 55)] {
        let mut state = 3;
        let mut encoder = Encoder::new(code(data, parity));
        let mut decoder = receiver();
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

/// Packets are lost and reordered where the numbers begin again.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn lost_packets_are_recovered_where_the_numbers_wrap() {
    for (data, parity) in [(1, 1), (3, 2), (10, 3), (30, 15), (2, 6), (128, 128)] {
        let group = (data + parity) as u32;
        let mut state = 9;
        let mut encoder = Encoder::starting_at(code(data, parity), u32::MAX / group * group - 25 * group);
        let mut decoder = receiver();
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
    let mut decoder = receiver();
    for (data, parity) in [(10, 3), (5, 2), (1, 1), (10, 3)] {
        assert!(encoder.is_between_groups());
        encoder.set_code(code(data, parity));
        let (direct, recovered) = transfer(&mut encoder, &mut decoder, 400, 10, &mut state);
        assert_eq!(decoder.shards(), Some((data, parity)));
        assert!(recovered.difference(&direct).count() > 20, "{data}/{parity}");
    }
    assert_eq!(decoder.stats().mismatches, 0, "a leap tells");
}

/// The detector must be certain for a whole group, and what it was certain of before the search began anew does not count.
#[test]
fn certainty_before_the_search_began_anew_does_not_count() {
    let (mut decoder, mut detector) = (receiver(), Detector::new());
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
fn trimming_keeps_the_group_size_and_frees_the_memory() {
    let (mut encoder, mut decoder) = (Encoder::new(code(3, 2)), receiver());
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
    // Every second group loses as many packets as it can recover.
    for (n, group) in groups.by_ref().take(12).enumerate() {
        group.iter().skip(n % 2).for_each(|packet| input(&mut decoder, packet));
    }
    assert_eq!(decoder.shards(), Some((3, 2)));
    // Two packets of one group, with parity, and one of the next, whose others are not sent yet.
    let (broken, begun) = (groups.next().unwrap(), groups.next().unwrap());
    [&broken[0], &broken[3], &begun[0]].into_iter().for_each(|packet| input(&mut decoder, packet));
    let before = decoder.stats();
    assert!(decoder.memory() > 2_000, "{} bytes", decoder.memory());

    decoder.trim();
    let after = decoder.stats();
    assert!(decoder.memory() < 1_500, "{} bytes", decoder.memory());
    assert_eq!(after.unrecoverable - before.unrecoverable, 2, "of the broken group only");
    assert_eq!(after.parity_wasted - before.parity_wasted, 1);

    // The other packets of the group that was given up do nothing. The next group is recovered as usual.
    begun[2..].iter().for_each(|packet| input(&mut decoder, packet));
    assert_eq!(decoder.stats().recovered, before.recovered);
    assert_eq!(decoder.stats().parity_wasted - after.parity_wasted, 2);
    assert_eq!(decoder.stats().unrecoverable, after.unrecoverable);
    groups.next().unwrap()[2..].iter().for_each(|packet| input(&mut decoder, packet));
    assert_eq!(decoder.stats().recovered - before.recovered, 2);
    assert_eq!(recovered.split_off(recovered.len() - 2), [42, 43]);
}

#[test]
fn useless_parity_is_counted() {
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

/// kcp-go's decoder, as long as no packet contradicts the group size that it was given: it puts the packets of a group together
/// by their numbers, and once `data` of them are there, it computes the missing ones.
struct KcpGo {
    code: Arc<ReedSolomon>,
    groups: BTreeMap<u32, Vec<Option<Vec<u8>>>>,
}

impl KcpGo {
    fn input(&mut self, packet: &[u8], mut recovered: impl FnMut(&[u8])) {
        let Packet { seqid, kind, shard } = Packet::parse(packet).unwrap();
        let (data, size) = (self.code.data_shards(), self.code.data_shards() + self.code.parity_shards());
        let index = seqid as usize % size;
        assert_eq!(index < data, kind == Kind::Data, "it would look for other shards");
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
            recovered(packet::payload(shard).unwrap());
        }
        // Late parity begins its group anew, which then never gets enough packets.
    }
}

/// Neither this crate's receiver nor kcp-go's has to detect anything where the amount of parity changes with every group.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn any_receiver_decodes_under_a_changing_limit() {
    for seed in 0..20 {
        let mut state = seed;
        let mut encoder = Encoder::new(code(10, 6));
        let mut ours = receiver();
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

/// An event reports a peer's group size that differs, and parity that nothing can be recovered from.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn settings_that_do_not_fit_are_reported() {
    let mut state = 5;
    let mut encoder = Encoder::new(code(10, 3));
    let mut decoder = receiver();
    transfer(&mut encoder, &mut decoder, 200, 5, &mut state);
    assert_eq!((decoder.take_event(), decoder.stats().peer_changes), (None, 0));
    encoder.set_code(code(5, 2));
    transfer(&mut encoder, &mut decoder, 200, 5, &mut state);
    let told = FecEvent::PeerShards { data: 5, parity: 2 };
    assert_eq!((decoder.take_event(), decoder.stats().peer_changes), (Some(told), 1));
    // Parity of another matrix: its numbers fit, but its bytes do not.
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
    assert!(decoder.is_undecodable());
    // Data and parity in an order that fits no group size.
    let mut decoder = receiver();
    for seqid in 0..3_000_u32 {
        let mut packet = encode(&mut encoder, Instant::ZERO, &segment(seqid, 9)).remove(0);
        packet[..4].copy_from_slice(&seqid.to_le_bytes());
        packet[4] = [0xf1, 0xf2, 0xf2, 0xf1, 0xf2, 0xf1, 0xf1][seqid as usize % 7];
        let _ = input(&mut decoder, &packet, &mut |_, _| ());
    }
    let told: Vec<_> = core::iter::from_fn(|| decoder.take_event()).collect();
    assert!(told.contains(&FecEvent::Undecodable), "{told:?}");
}
