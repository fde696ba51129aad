//! Bytes as FEC packets into a live session.
//!
//! Proves that no bytes behind an FEC header end in a panic, however groups, sizes and types are mixed; that the session
//! goes on; and that what it hands to the application was sent by its peer: the fuzzer's packets carry no valid
//! segments of the session's conv, so nothing of them may come out.

#![no_main]

use kcp9::{
    KcpConfig,
    proto::{Connection, Instant},
};
use libfuzzer_sys::fuzz_target;

const CONV: u32 = 0x6b63_7039;

fuzz_target!(|bytes: &[u8]| {
    let [own, bytes @ ..] = bytes else { return };
    let (data, parity) = [(0, 0), (1, 1), (3, 2), (10, 3)][usize::from(*own) % 4];
    let config = KcpConfig::builder().fec(data, parity).build().unwrap();
    let mut session = Connection::new(CONV, &config, Instant::ZERO);
    let mut now = Instant::ZERO;
    let mut out = vec![0; 65_536];
    // Packets of a length byte, a type, a small seqid (so that groups form) and a shard.
    let mut rest = bytes;
    while let [len, kind, seqid, more @ ..] = rest {
        let len = usize::from(*len).min(more.len());
        let (shard, after) = more.split_at(len);
        rest = after;
        let kind = [0xf1, 0xf2, 0xf3, *kind][usize::from(*kind) % 4];
        let mut packet = vec![*seqid, 0, 0, 0, kind, 0];
        packet.extend_from_slice(shard);
        let names_conv = packet.windows(4).any(|window| window == CONV.to_le_bytes());
        let _ = session.handle_datagram(now, &mut packet);
        now += std::time::Duration::from_millis(7);
        session.handle_timeout(now);
        while session.poll_transmit(now, &mut out).is_some() {}
        if !names_conv {
            assert_eq!(session.readable_bytes(), 0, "read what nobody sent");
        }
    }
    // Still alive.
    session.write(now, b"alive").unwrap();
    assert!(session.poll_transmit(now, &mut out).is_some());
});
