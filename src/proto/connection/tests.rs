//! What callers outside the crate cannot show: transmissions that are corked, as the Tokio layer has them.

use alloc::{collections::VecDeque, vec, vec::Vec};
use core::time::Duration;

use super::Connection;
use crate::proto::{config::KcpConfig, time::Instant};

const MSS: usize = 1_376;

fn drain(connection: &mut Connection, now: Instant) -> usize {
    let mut buffer = vec![0; 65_536];
    core::iter::from_fn(|| connection.poll_transmit(now, &mut buffer))
        .map(|transmit| transmit.packets())
        .sum()
}

#[test]
fn a_corked_call_waits_for_16_segments_and_then_sends_every_full_one() {
    let now = Instant::ZERO;
    let mut connection = Connection::new(7, &KcpConfig::default(), now);
    connection.write(now, b"in flight").unwrap();
    drain(&mut connection, now);
    let mut buffer = vec![0; 65_536];
    let mut corked = |connection: &mut Connection, bytes: usize| {
        connection.write(now, &vec![7; bytes]).unwrap();
        let transmit = connection.transmit(now, &mut buffer, true);
        assert_eq!(connection.transmit(now, &mut buffer, true), None);
        transmit.map_or(0, |transmit| transmit.packets())
    };
    assert_eq!(corked(&mut connection, 15 * MSS), 0);
    assert_eq!(corked(&mut connection, 5 * MSS + 700), 20);
    assert_eq!(drain(&mut connection, now), 1, "the rest, which fills no segment");
}

#[test]
fn a_corked_call_sends_what_has_nothing_in_flight_before_it() {
    let now = Instant::ZERO;
    let mut connection = Connection::new(7, &KcpConfig::default(), now);
    connection.write(now, b"one").unwrap();
    let mut buffer = vec![0; 65_536];
    assert!(connection.transmit(now, &mut buffer, true).is_some());
}

/// A small generator for losses, writes and corks.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

fn byte_at(position: usize) -> u8 {
    (position % 251) as u8
}

/// Both ends send `total` bytes over a path of 5 ms that loses a packet in eight. A writer corks some of its calls and
/// follows each with one that is not corked, at once or at its next turn.
fn corked_transfer(seed: u64, total: usize) {
    let mut state = seed;
    let mut now = Instant::ZERO;
    let config = KcpConfig::default();
    let mut ends = [0, 1].map(|_| Connection::new(7, &config, now));
    let mut under_way = [VecDeque::new(), VecDeque::new()];
    let (mut written, mut read) = ([0; 2], [0; 2]);
    let mut buffer = vec![0; 65_536];
    let end = Instant::from_millis(60_000);
    while read != [total; 2] {
        assert!(now < end, "seed {seed}: {written:?} written, {read:?} read");
        for at in 0..2 {
            ends[at].handle_timeout(now);
            let bytes: Vec<u8> =
                (written[at]..total.min(written[at] + next(&mut state) % 40_000)).map(byte_at).collect();
            written[at] += ends[at].write(now, &bytes).unwrap_or(0);
            let calls: &[bool] = [&[true, false][..], &[true], &[false]][next(&mut state) % 3];
            for corked in calls {
                while let Some(transmit) = ends[at].transmit(now, &mut buffer, *corked) {
                    for packet in buffer[..transmit.len].chunks(transmit.stride) {
                        if !next(&mut state).is_multiple_of(8) {
                            under_way[at].push_back((now + Duration::from_millis(5), packet.to_vec()));
                        }
                    }
                }
            }
            while under_way[1 - at].front().is_some_and(|(arrives, _)| *arrives <= now) {
                let (_, mut packet) = under_way[1 - at].pop_front().unwrap();
                ends[at].handle_packet(now, &mut packet).unwrap();
            }
            while let Ok(count) = ends[at].read(&mut buffer) {
                let arrived = buffer[..count].iter().copied();
                assert!(arrived.eq((read[at]..read[at] + count).map(byte_at)), "seed {seed}");
                read[at] += count;
            }
        }
        now += Duration::from_millis(1);
    }
}

#[test]
fn corked_calls_lose_and_reorder_nothing() {
    let (seeds, total) = if cfg!(miri) { (1, 20_000) } else { (50, 300_000) };
    for seed in 0..seeds {
        corked_transfer(seed, total);
    }
}
