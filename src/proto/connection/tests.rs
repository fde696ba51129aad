//! What callers outside the crate cannot show: transmissions that are corked, as the Tokio layer has them, and pauses of a driver.

#[cfg(feature = "tokio")]
mod unreachable;

use alloc::{collections::VecDeque, vec, vec::Vec};
use core::time::Duration;

use super::Connection;
use crate::proto::{config::KcpConfig, error::CloseReason, time::Instant};

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

/// What one connection takes by [`Connection::write_kept`] where it can, and its twin by `write` alone, makes no difference: neither to
/// what they send nor to when they are due.
#[cfg(feature = "tokio")]
#[test]
fn a_write_that_is_kept_leaves_what_any_write_leaves() {
    for (stream, write_delay) in [(true, false), (true, true), (false, false)] {
        let config = KcpConfig::builder().stream(stream).write_delay(write_delay).build().unwrap();
        let mut twins = [0, 1].map(|_| Connection::new(7, &config, Instant::ZERO));
        let (mut state, mut kept, mut now) = (1, 0, Instant::ZERO);
        let mut buffers = [vec![0; 65_536], vec![0; 65_536]];
        for round in 0..2_000 {
            now += Duration::from_micros(next(&mut state) as u64 % 200);
            let bytes = vec![round as u8; next(&mut state) % 400];
            let is_kept = twins[0].write_kept(&bytes);
            kept += usize::from(is_kept);
            let taken = if is_kept { Ok(bytes.len()) } else { twins[0].write(now, &bytes) };
            assert_eq!(taken, twins[1].write(now, &bytes), "round {round}");
            assert!(!is_kept || twins[1].holds_all_back(), "round {round}");
            let flushes = next(&mut state).is_multiple_of(50);
            let mut sent = [0, 1].map(|_| None);
            for ((twin, buffer), sent) in twins.iter_mut().zip(&mut buffers).zip(&mut sent) {
                if flushes {
                    twin.flush();
                }
                *sent = twin.transmit(now, buffer, !flushes);
            }
            assert_eq!(sent[0], sent[1], "round {round}");
            assert!(buffers[0] == buffers[1], "round {round}");
            assert_eq!(twins[0].poll_timeout(), twins[1].poll_timeout(), "round {round}");
            assert_eq!(twins[0].stats(), twins[1].stats(), "round {round}");
        }
        assert_eq!(kept > 200, stream, "{kept} were kept");
    }
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

fn just_before(at: Instant) -> Instant {
    Instant::from_micros(at.as_micros() - 1)
}

/// A config under which silence of the peer ends a session soon, and a session under it that has sent something.
fn waiting(idle: Option<Duration>, dead: Duration) -> Connection {
    let config = KcpConfig::builder().idle_timeout(idle).dead_timeout(dead).build().unwrap();
    let mut connection = Connection::new(7, &config, Instant::ZERO);
    if idle.is_none() {
        connection.write(Instant::ZERO, b"anybody?").unwrap();
        drain(&mut connection, Instant::ZERO);
    }
    connection
}

#[test]
fn no_silence_ends_a_session_before_everything_that_arrived_is_handed_in() {
    let limit = Duration::from_millis(1_500);
    for mut connection in [waiting(Some(limit), Duration::from_secs(30)), waiting(None, limit)] {
        let deadline = Instant::ZERO + limit;
        let (late, before) = (deadline + Duration::from_secs(1), just_before(deadline));
        connection.handle_timeout_unread(late, before);
        assert_eq!(connection.close_reason(), None);
        drain(&mut connection, late);
        assert_eq!(connection.poll_timeout(), Some(deadline), "it is asked again as soon as all is read");
        connection.handle_timeout_unread(late, deadline);
        assert!(connection.close_reason().is_some());
    }
}

#[test]
fn a_dead_link_is_found_only_when_everything_that_arrived_is_handed_in() {
    let config = KcpConfig::builder().dead_link(1).build().unwrap();
    let mut connection = Connection::new(7, &config, Instant::ZERO);
    connection.write(Instant::ZERO, b"anybody?").unwrap();
    drain(&mut connection, Instant::ZERO);
    let rto = connection.poll_timeout().unwrap();
    connection.handle_timeout_unread(rto + Duration::from_secs(1), just_before(rto));
    assert_eq!(connection.close_reason(), None);
    connection.handle_timeout_unread(rto + Duration::from_secs(1), rto);
    assert_eq!(connection.close_reason(), Some(CloseReason::DeadLink));
}

/// Hands everything that `from` sends to `to`.
fn deliver(from: &mut Connection, to: &mut Connection, now: Instant) {
    let mut buffer = vec![0; 65_536];
    from.handle_timeout(now);
    from.flush();
    while let Some(transmit) = from.poll_transmit(now, &mut buffer) {
        for packet in buffer[..transmit.len].chunks_mut(transmit.stride) {
            to.handle_packet(now, packet).unwrap();
        }
    }
}

/// A small exchange leaves little to free, a large one much, at both ends, until it is freed.
#[cfg(feature = "tokio")]
#[test]
fn what_a_session_keeps_follows_what_it_carried() {
    let config = KcpConfig::default();
    let mut now = Instant::ZERO;
    let mut ends = [0, 1].map(|_| Connection::new(7, &config, now));
    let mut carry = |ends: &mut [Connection; 2], bytes: usize| {
        let [from, to] = ends;
        let (mut written, mut read, mut buffer) = (0, 0, vec![0; bytes]);
        while read < bytes {
            written += from.write(now, &buffer[written..]).unwrap_or(0);
            deliver(from, to, now);
            while let Ok(count @ 1..) = to.read(&mut buffer[read..]) {
                read += count;
            }
            now += Duration::from_millis(20);
            deliver(to, from, now);
        }
    };
    for _ in 0..3 {
        carry(&mut ends, 64);
        assert!(ends.iter().all(Connection::keeps_little), "{ends:?}");
    }
    carry(&mut ends, 1 << 20);
    assert!(!ends.iter().any(Connection::keeps_little), "{ends:?}");
    ends.iter_mut().for_each(Connection::trim);
    assert!(ends.iter().all(Connection::keeps_little), "{ends:?}");

    let config = KcpConfig::builder().fec(10, 3).build().unwrap();
    assert!(!Connection::new(7, &config, now).keeps_little(), "groups of packets are more than a little");
}

/// Both ends of a live session stand still for `pause`, longer than their timeouts. Both resume, one of them up to
/// 200 ms later than the other.
#[test]
fn a_session_outlives_a_pause_of_both_ends() {
    for pause in [2, 40, 3_600].map(Duration::from_secs) {
        for lag in [0, 50, 200].map(Duration::from_millis) {
            let idle = Some(Duration::from_millis(1_500));
            let config = KcpConfig::builder().idle_timeout(idle).build().unwrap();
            let mut ends = [0, 1].map(|_| Connection::new(7, &config, Instant::ZERO));
            ends[0].write(Instant::ZERO, b"in flight").unwrap();
            drain(&mut ends[0], Instant::ZERO);
            let resumed = Instant::ZERO + pause;
            for (end, at) in ends.iter_mut().zip([resumed, resumed + lag]) {
                end.handle_pause(at, pause - Duration::from_millis(200));
                end.handle_timeout(at);
                assert_eq!(end.close_reason(), None, "{pause:?}, {lag:?}");
            }
            let now = resumed + lag;
            let [one, other] = &mut ends;
            for _ in 0..2 {
                deliver(one, other, now);
                deliver(other, one, now);
            }
            assert!(ends[0].is_flushed() && ends[1].is_readable(), "{pause:?}, {lag:?}");
        }
    }
}

/// Patience ends: it is as long as the pause, within limits, and silence counts as before from then on.
#[test]
fn a_dead_peer_is_found_after_a_pause_too() {
    let (ms, seconds) = (Duration::from_millis, Duration::from_secs);
    for (dead, pause, patience) in [
        (seconds(30), ms(100), ms(500)),
        (seconds(30), seconds(10), seconds(10)),
        (seconds(30), seconds(90), seconds(30)),
        // A peer that has waited for three seconds may wait for as long again before it sends something.
        (seconds(1), seconds(3), seconds(3)),
        (seconds(1), seconds(90), seconds(5)),
    ] {
        let mut connection = waiting(None, dead);
        let now = Instant::ZERO + dead + pause;
        connection.handle_pause(now, pause);
        // Also when it is told of several.
        connection.handle_pause(now, ms(1));
        let end = now + patience;
        connection.handle_timeout(just_before(end));
        assert_eq!(connection.close_reason(), None, "{pause:?}");
        connection.handle_timeout(end);
        assert_eq!(connection.close_reason(), Some(CloseReason::DeadLink), "{pause:?}");
    }
}

/// How long a shutdown may take is the application's to say.
#[test]
fn a_pause_does_not_make_a_shutdown_longer() {
    let config = KcpConfig::builder().linger(Duration::from_secs(1)).build().unwrap();
    let mut connection = Connection::new(7, &config, Instant::ZERO);
    connection.write(Instant::ZERO, b"never acknowledged").unwrap();
    connection.shutdown(Instant::ZERO);
    let now = Instant::from_millis(1_000);
    connection.handle_pause(now, Duration::from_millis(800));
    connection.handle_timeout(now);
    assert_eq!(connection.close_reason(), Some(CloseReason::LingerTimeout));
}
