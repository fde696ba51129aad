//! Bytes as FEC packets into a live session.
//!
//! Proves that no bytes behind an FEC header end in a panic, however groups, sizes and types are mixed; that the session
//! goes on; that what it hands to the application was sent by its peer: the fuzzer's packets carry no valid segments of the
//! session's conv, so nothing of them may come out; and that of out-of-band packets those of its conv come out as they are,
//! in a queue that stays within its bounds.

#![no_main]

use kcp9::{
    KcpConfig,
    proto::{Connection, Instant},
};
use libfuzzer_sys::fuzz_target;

const CONV: u32 = 0x6b63_7039;
const QUEUE: usize = 2_000;

fuzz_target!(|bytes: &[u8]| {
    let [own, bytes @ ..] = bytes else { return };
    let (data, parity) = [(0, 0), (1, 1), (3, 2), (10, 3)][usize::from(*own) % 4];
    let queue = if own & 128 == 0 { QUEUE } else { 0 };
    let config = KcpConfig::builder().fec(data, parity).datagram_queue(queue).build().unwrap();
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
        // Out of band the right conv as often as not, which nobody guesses.
        if kind == 0xf3 && seqid & 1 == 0 {
            packet.extend_from_slice(&(shard.len() as u16 + 6 + u16::from(*seqid >> 7)).to_le_bytes());
            packet.extend_from_slice(&CONV.to_le_bytes());
        }
        // Parity that does not name the conv is not looked at.
        if kind == 0xf2 && own & 64 == 0 {
            packet.extend_from_slice(&[*own, 0]);
            packet.extend_from_slice(&CONV.to_le_bytes());
        }
        packet.extend_from_slice(shard);
        let names_conv = packet.windows(4).any(|window| window == CONV.to_le_bytes());
        let datagram = out_of_band(&packet).map(<[u8]>::to_vec);
        let before = session.stats().datagrams;
        let _ = session.handle_packet(now, &mut packet);
        let after = session.stats().datagrams;
        let found = u64::from(datagram.is_some());
        assert_eq!(after.received + after.unwanted, before.received + before.unwanted + found);
        assert!(session.stats().datagram_queues.unread_bytes <= QUEUE.max(u8::MAX.into()));
        // All in one go now and then, so that they pile up.
        if len & 7 == 0 {
            let mut last = None;
            while let Some(datagram) = session.recv_datagram() {
                last = Some(datagram);
            }
            if queue > 0 && datagram.is_some() {
                assert_eq!(last.as_deref(), datagram.as_deref());
            }
        }
        now += std::time::Duration::from_millis(7);
        session.handle_timeout(now);
        while session.poll_transmit(now, &mut out).is_some() {}
        if !names_conv {
            assert_eq!(session.readable_bytes(), 0, "read what nobody sent");
        }
    }
    while session.poll_event().is_some() {}
    // Still alive.
    session.write(now, b"alive").unwrap();
    assert!(session.poll_transmit(now, &mut out).is_some());
});

/// The datagram of an out-of-band packet of the session's.
fn out_of_band(packet: &[u8]) -> Option<&[u8]> {
    let [_, _, _, _, 0xf3, 0, shard @ ..] = packet else { return None };
    let size = usize::from(u16::from_le_bytes(*shard.first_chunk()?));
    shard.get(2..size)?.strip_prefix(&CONV.to_le_bytes())
}
