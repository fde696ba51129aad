//! The packets that an encoder makes.

use super::*;

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; the kernels have tests of their own")]
fn packets_equal_those_of_kcp_go() {
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
    assert!(segments_of(&packet).is_empty());
    let Packet { kind, shard, .. } = Packet::parse(&packet).unwrap();
    assert_eq!(kind, Kind::OutOfBand);
    let carried = OutOfBand::parse(shard).unwrap();
    assert_eq!(carried, OutOfBand { conv: 0x1234_5678, datagram: &packet[12..] });
    let mut written = packet.clone();
    written[..12].fill(0);
    write_out_of_band_header(&mut written, carried.conv);
    assert_eq!(written, packet);
}

#[test]
fn out_of_band_sizes_that_do_not_fit_are_refused() {
    let mut packet = vec![0; OUT_OF_BAND_HEADER_LEN + 3];
    write_out_of_band_header(&mut packet, CONV);
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
fn a_group_that_took_too_long_skips_its_parity_and_their_numbers() {
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
    // Between groups and within one. The last call takes back a change that waits for the end of the group.
    for shards in [&[][..], &[], &[(2, 1)], &[(2, 1)], &[], &[(5, 5), (2, 1)], &[(1, 1)]] {
        for &(data, parity) in shards {
            session.update_settings(|settings| settings.fec = (data, parity)).unwrap();
        }
        session.write(Instant::ZERO, b"x").unwrap();
        while let Some(transmit) = session.poll_transmit(Instant::ZERO, &mut buffer) {
            let packets = buffer[..transmit.len].chunks(transmit.stride);
            seqids.extend(packets.map(|packet| u32::from_le_bytes(packet[..4].try_into().unwrap())));
        }
    }
    assert_eq!(seqids, [0, 1, 2, 3, 4, 5, 6, 7, 8, 1_034, 1_035]);
}

/// Where a group sends less than its parity, the numbers of the other parity packets are skipped.
#[test]
fn a_limit_skips_parity_and_its_numbers() {
    let mut encoder = Encoder::new(code(2, 4));
    let mut full = Encoder::new(code(2, 4));
    let group = |encoder: &mut Encoder, limit| {
        encoder.limit(limit);
        let mut packets = encode(encoder, Instant::ZERO, b"first");
        packets.extend(encode(encoder, Instant::from_millis(1), b"second"));
        packets
    };
    // The first four groups send all of their parity.
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

/// The budget saves up at least the parity of one group, whether that is many packets or long ones.
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
