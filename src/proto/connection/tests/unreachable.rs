//! A socket that reports that nobody receives what is sent: only the driver hears of it.

use super::*;
use crate::proto::{Extensions, Random, SessionSeed};

/// A session of two ends that know each other.
fn acquainted() -> [Connection; 2] {
    struct Bytes(u8);
    impl Random for Bytes {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }
    let config = KcpConfig::builder().extensions(Extensions::Preferred).build().unwrap();
    let seed = |byte| SessionSeed::new(&mut Bytes(byte));
    let mut ends = [
        Connection::connect(7, &config, Instant::ZERO, seed(1)),
        Connection::accept(7, &config, Instant::ZERO, seed(2)),
    ];
    ends[0].write(Instant::ZERO, b"hello").unwrap();
    exchange(&mut ends, Instant::ZERO);
    exchange(&mut ends, Instant::from_millis(20));
    assert!(ends[0].is_peer_confirmed() && ends[1].is_peer_confirmed());
    ends
}

/// Carries packets to and fro until there are none.
fn exchange(ends: &mut [Connection; 2], now: Instant) {
    let mut buffer = vec![0; 65_536];
    for turn in 0..8 {
        let at = turn % 2;
        ends[at].handle_timeout(now);
        ends[at].flush();
        while let Some(transmit) = ends[at].poll_transmit(now, &mut buffer) {
            for packet in buffer[..transmit.len].chunks_mut(transmit.stride) {
                ends[1 - at].handle_packet(now, packet).unwrap();
            }
        }
    }
}

/// R31a: a socket may report that nobody is there long before silence tells.
#[test]
fn an_unreachable_peer_has_ended_if_it_was_done() {
    for peer_was_done in [false, true] {
        let now = Instant::from_millis(21);
        let mut ends = acquainted();
        if peer_was_done {
            ends[1].shutdown(now);
            exchange(&mut ends, now);
        }
        let [client, _] = &mut ends;
        client.shutdown(now);
        drain(client, now);
        client.note_unreachable(now);
        assert_eq!(client.shutdown_result(), peer_was_done.then_some(Ok(())));
        assert_eq!(client.close_reason(), peer_was_done.then_some(CloseReason::Finished));
    }
}
