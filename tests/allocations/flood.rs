//! What a session keeps of FEC packets that anybody can send.

use kcp9::{
    KcpConfig,
    proto::{Connection, Instant, Random, SessionSeed},
};

const CONV: u32 = 7;
/// What a session takes besides, in these tests: less than 8 KiB.
const REST: u64 = 8 << 10;

/// The most bytes that a session allocates in a flood of `count` FEC packets, whose groups have `data` and `parity` shards as long as
/// they are sent in order. Then anything comes.
fn most(new: &dyn Fn() -> Connection, data: u32, parity: u32, lengths: &[usize], count: u32) -> u64 {
    let mut packet: Vec<u8> = (0..70_000).map(|at: u32| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let mut state = u64::from(data);
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let lead = 6 * (data + parity);
    let flood = || {
        let mut session = new();
        let mut next = 0;
        for n in 0..lead + count {
            // In order, at random within some groups, far ahead, and against all order.
            let (seqid, wrong) = match random() % 1_000 {
                _ if n < lead => (n, 0),
                0..800 => (next, 0),
                800..990 => (next.wrapping_add(random() % 600), 0),
                990..999 => (next.wrapping_sub(random() % 2_000), 0),
                _ => (random(), random() % 2),
            };
            next = if n < lead { n } else { next.wrapping_add(random() % 3) };
            let is_data = (seqid % (data + parity) < data) == (wrong == 0);
            let shard = 30 + lengths[random() as usize % lengths.len()];
            packet[..4].copy_from_slice(&seqid.to_le_bytes());
            packet[4..6].copy_from_slice(&if is_data { [0xf1, 0] } else { [0xf2, 0] });
            // A WINS segment, and garbage behind it.
            packet[6..8].copy_from_slice(&26_u16.to_le_bytes());
            packet[8..12].copy_from_slice(&CONV.to_le_bytes());
            packet[12..32].fill(0);
            packet[12] = 84;
            let _ = session.handle_packet(Instant::from_micros(u64::from(n) * 10), &mut packet[..6 + shard]);
            while session.poll_event().is_some() {}
        }
    };
    let info = allocation_counter::measure(flood);
    assert_eq!(info.bytes_current, 0);
    info.bytes_max
}

struct Constant;

impl Random for Constant {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(1);
    }
}

fn with_peer(config: &KcpConfig) -> Connection {
    Connection::new(CONV, config, Instant::ZERO)
}

fn accepted(config: &KcpConfig) -> Connection {
    Connection::accept(CONV, config, Instant::ZERO, SessionSeed::new(&mut Constant))
}

#[test]
fn a_flood_of_fec_packets_holds_no_more_than_is_said() {
    let without = KcpConfig::default();
    let with = KcpConfig::builder().fec(10, 3).build().unwrap();
    for (data, parity) in [(10, 3), (1, 1), (1, 255), (30, 15), (128, 128), (255, 1), (200, 55)] {
        for lengths in [&[0][..], &[1_370], &[0, 1_370], &[0, 1_370, 9_000, 60_000]] {
            let unexpected = most(&|| with_peer(&without), data, parity, lengths, 20_000);
            assert!(unexpected <= (64 << 10) + REST, "{data}/{parity} of {lengths:?}: {unexpected}");
            let expected = most(&|| with_peer(&with), data, parity, lengths, 20_000);
            assert!(expected <= (2 << 20) + REST, "{data}/{parity} of {lengths:?}: {expected}");
        }
    }
}

/// Anybody can begin many sessions in the names of others.
#[test]
fn a_half_open_session_holds_no_more_of_fec_than_one_without() {
    let with = KcpConfig::builder().fec(10, 3).build().unwrap();
    for (data, parity) in [(10, 3), (30, 15), (128, 128), (200, 55)] {
        let half_open = most(&|| accepted(&with), data, parity, &[1_370], 20_000);
        assert!(half_open <= (64 << 10) + REST, "{data}/{parity}: {half_open}");
        let validated = || {
            let mut session = accepted(&with);
            session.set_validated();
            session
        };
        let validated = most(&validated, data, parity, &[1_370], 20_000);
        assert!(validated <= (2 << 20) + REST, "{data}/{parity}: {validated}");
        assert!(data + parity < 100 || validated > 256 << 10, "{data}/{parity}: {validated}");
    }
}
