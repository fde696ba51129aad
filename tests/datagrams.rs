//! Datagrams beside the stream, one connection at a time: limits, queues, shutdown, and what keeps a session alive.
#![allow(missing_docs, reason = "a test")]

use std::time::Duration;

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{CloseReason, Connection, DatagramSendError, Event, Instant, PacketError},
};

const CONV: u32 = 0x6b63_7039;
const QUEUE: usize = 20_000;

fn config() -> KcpConfigBuilder {
    KcpConfig::builder().datagram_queue(QUEUE).keep_alive(None)
}

fn connection(config: KcpConfigBuilder) -> Connection {
    Connection::new(CONV, &config.build().unwrap(), Instant::ZERO)
}

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// What one call transmits, packet by packet.
fn batch(connection: &mut Connection, now: Instant) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    let Some(transmit) = connection.poll_transmit(now, &mut buffer) else { return Vec::new() };
    assert!(transmit.stride <= connection.mtu() && transmit.packets() <= 64, "{transmit:?}");
    buffer[..transmit.len].chunks(transmit.stride).map(<[u8]>::to_vec).collect()
}

/// Everything there is to transmit.
fn transmit(connection: &mut Connection, now: Instant) -> Vec<Vec<u8>> {
    std::iter::repeat_with(|| batch(connection, now))
        .take_while(|batch| !batch.is_empty())
        .flatten()
        .collect()
}

fn is_datagram(packet: &[u8]) -> bool {
    packet[..6] == [0xff, 0xff, 0xff, 0xff, 0xf3, 0]
}

/// A packet with a datagram of `conv`, as it stands on the wire.
fn packet(conv: u32, datagram: &[u8]) -> Vec<u8> {
    let size = (datagram.len() + 6) as u16;
    [&[0xff, 0xff, 0xff, 0xff, 0xf3, 0][..], &size.to_le_bytes(), &conv.to_le_bytes(), datagram].concat()
}

fn read_all(connection: &mut Connection) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| connection.recv_datagram()).map(|datagram| datagram.to_vec()).collect()
}

#[test]
fn datagrams_of_any_length_up_to_the_limit_arrive() {
    for mtu in [64, 65, 576, 1_400, 9_000, 65_507] {
        for (data, parity) in [(0, 0), (10, 3)] {
            let builder = config().datagram_queue(1 << 20).mtu(mtu).fec(data, parity);
            let (mut sender, mut receiver) = (connection(builder.clone()), connection(builder));
            let max = sender.max_datagram_len().unwrap();
            assert_eq!(max, mtu - 12);
            let lens = [0, 1, 2, max / 2, max - 1, max];
            for len in lens {
                sender.send_datagram(&vec![7; len]).unwrap();
            }
            assert_eq!(sender.send_datagram(&vec![7; max + 1]), Err(DatagramSendError::TooLarge { max }));
            let packets = transmit(&mut sender, at(0));
            assert_eq!(packets.last().unwrap().len(), mtu);
            for mut packet in packets {
                receiver.handle_packet(at(1), &mut packet).unwrap();
            }
            assert_eq!(receiver.poll_event(), Some(Event::DatagramReadable));
            assert_eq!(receiver.poll_event(), None);
            assert_eq!(read_all(&mut receiver), lens.map(|len| vec![7; len]));
            assert_eq!(receiver.poll_timeout(), None, "nothing is owed");
            assert!(transmit(&mut receiver, at(2)).is_empty(), "nothing is answered");
        }
    }
}

/// One GSO send takes packets of one length, the last perhaps shorter.
#[test]
fn datagrams_are_batched_for_one_send() {
    let mut sender = connection(config().datagram_queue(1 << 20));
    for len in [100, 100, 100, 50, 60, 60, 200, 10] {
        sender.send_datagram(&vec![1; len]).unwrap();
    }
    let lens = std::iter::repeat_with(|| batch(&mut sender, at(0))).take_while(|batch| !batch.is_empty());
    let lens: Vec<Vec<usize>> =
        lens.map(|batch| batch.iter().map(|packet| packet.len() - 12).collect()).collect();
    assert_eq!(lens, [vec![100, 100, 100, 50], vec![60, 60], vec![200, 10]]);
    for _ in 0..200 {
        sender.send_datagram(&[2; 900]).unwrap();
    }
    let counts = std::iter::repeat_with(|| batch(&mut sender, at(0)).len()).take_while(|count| *count > 0);
    assert_eq!(counts.collect::<Vec<_>>(), [64, 64, 64, 8]);
}

#[test]
fn datagrams_and_the_stream_send_in_turns() {
    let mut sender = connection(config().datagram_queue(1 << 20));
    for n in 0..300_u32 {
        sender.send_datagram(&vec![1; 100 + n as usize]).unwrap();
    }
    sender.write(at(0), &[2; 40_000]).unwrap();
    let first = batch(&mut sender, at(0));
    assert!(first.iter().all(|packet| is_datagram(packet)));
    let second = batch(&mut sender, at(0));
    assert!(second.len() > 10 && second.iter().all(|packet| !is_datagram(packet)));
    let rest = transmit(&mut sender, at(0));
    assert_eq!(first.len() + rest.iter().filter(|packet| is_datagram(packet)).count(), 300);
}

/// Datagrams belong to no FEC group, whenever they are sent.
#[test]
fn parity_covers_the_stream_and_no_datagrams() {
    let run = |datagrams: bool| {
        let mut sender = connection(config().stream(false).fec(3, 2));
        let mut packets = Vec::new();
        for n in 0..12_u8 {
            if datagrams {
                sender.send_datagram(&[n; 30]).unwrap();
            }
            sender.write(at(n.into()), &[n; 50]).unwrap();
            packets.extend(transmit(&mut sender, at(n.into())));
        }
        packets.retain(|packet| !is_datagram(packet));
        packets
    };
    let alone = run(false);
    assert_eq!(alone.len(), 12 + 8);
    assert_eq!(run(true), alone);
}

#[test]
fn a_full_queue_drops_the_oldest_datagram() {
    let (mut sender, mut receiver) = (connection(config()), connection(config()));
    for n in 0..1_000_u32 {
        sender.send_datagram(&[n.to_le_bytes().as_slice(), &[0; 136]].concat()).unwrap();
        assert!(sender.stats().datagram_queues.unsent_bytes <= QUEUE);
    }
    // 140 bytes each and 64 more.
    let kept = QUEUE / 204;
    let packets = transmit(&mut sender, at(0));
    assert_eq!(packets.len(), kept);
    let stats = sender.stats().datagrams;
    assert_eq!((stats.sent, stats.dropped_unsent), (kept as u64, 1_000 - kept as u64));
    assert_eq!(sender.stats().datagram_queues.unsent_bytes, 0);
    for round in 0..3 {
        for packet in &packets {
            receiver.handle_packet(at(round), &mut packet.clone()).unwrap();
            assert!(receiver.stats().datagram_queues.unread_bytes <= QUEUE);
        }
    }
    let stats = receiver.stats().datagrams;
    assert_eq!((stats.received, stats.dropped_unread), (3 * kept as u64, 2 * kept as u64));
    let numbers: Vec<_> = read_all(&mut receiver).iter().map(|found| found[0]).collect();
    let last: Vec<_> = (1_000 - kept..1_000).map(|n| n as u8).collect();
    assert_eq!(numbers, last);
    assert_eq!(receiver.stats().datagram_queues.unread_bytes, 0);
}

#[test]
fn a_smaller_mtu_drops_queued_datagrams_that_no_longer_fit() {
    let mut sender = connection(config());
    for len in [1_000, 300, 1_000, 400] {
        sender.send_datagram(&vec![0; len]).unwrap();
    }
    sender.update_settings(|settings| settings.mtu = 412).unwrap();
    assert_eq!(sender.max_datagram_len(), Some(400));
    let lens: Vec<_> = transmit(&mut sender, at(0)).iter().map(Vec::len).collect();
    assert_eq!(lens, [312, 412]);
    assert_eq!(sender.stats().datagrams.dropped_unsent, 2);
}

#[test]
fn datagrams_are_refused_unless_configured() {
    let mut receiver = connection(KcpConfig::builder().fec(10, 3));
    assert_eq!(receiver.max_datagram_len(), None);
    assert_eq!(receiver.send_datagram(b"x"), Err(DatagramSendError::Disabled));
    receiver.handle_packet(at(0), &mut packet(CONV, b"unwanted")).unwrap();
    assert_eq!((receiver.poll_event(), receiver.recv_datagram()), (None, None));
    assert_eq!(receiver.stats().datagrams.unwanted, 1);
}

#[test]
fn foreign_and_broken_datagrams_are_counted_by_cause() {
    let mut receiver = connection(config());
    let mut input = |mut packet: Vec<u8>| receiver.handle_packet(at(0), &mut packet);
    assert_eq!(input(packet(9, b"stranger")), Err(PacketError::WrongConv { found: 9 }));
    let mut cut = packet(CONV, b"cut off");
    cut.pop();
    assert_eq!(input(cut), Err(PacketError::Fec));
    for len in 6..12 {
        assert_eq!(input(packet(CONV, b"")[..len].to_vec()), Err(PacketError::Fec), "{len} bytes");
    }
    assert_eq!(input(packet(CONV, b"")), Ok(()));
    let stats = receiver.stats();
    assert_eq!((stats.udp.wrong_conv, stats.udp.malformed, stats.datagrams.received), (1, 7, 1));
    assert_eq!(receiver.recv_datagram().as_deref(), Some(&b""[..]));
}

#[test]
fn after_a_shutdown_datagrams_are_received_but_not_sent() {
    let mut session = connection(config());
    session.send_datagram(b"queued before").unwrap();
    session.write(at(0), b"unacknowledged").unwrap();
    session.shutdown(at(0));
    assert_eq!(session.send_datagram(b"late"), Err(DatagramSendError::ShutDown));
    assert_eq!(session.max_datagram_len(), None);
    assert!(transmit(&mut session, at(0)).contains(&packet(CONV, b"queued before")));
    session.handle_packet(at(1), &mut packet(CONV, b"still heard")).unwrap();
    session.close(CloseReason::Aborted);
    assert_eq!(session.send_datagram(b"later"), Err(DatagramSendError::Closed(CloseReason::Aborted)));
    assert_eq!(session.handle_packet(at(2), &mut packet(CONV, b"too late")), Ok(()));
    assert_eq!(read_all(&mut session), [b"still heard"]);
    assert!(transmit(&mut session, at(3)).is_empty());
}

/// Anyone could have sent a datagram without a cipher, so it keeps no session alive. No datagram acknowledges a segment.
#[test]
fn datagrams_without_a_cipher_do_not_keep_a_session_alive() {
    let limits = config().dead_timeout(Duration::from_secs(5)).idle_timeout(Some(Duration::from_secs(8)));
    for (writes, end, reason) in [(true, 5, CloseReason::DeadLink), (false, 8, CloseReason::IdleTimeout)] {
        let mut session = connection(limits.clone());
        if writes {
            session.write(at(0), b"nobody answers").unwrap();
        }
        drop(transmit(&mut session, at(0)));
        let mut second = 0;
        while session.close_reason().is_none() {
            second += 1;
            session.handle_packet(at(second * 1_000), &mut packet(CONV, b"here I am")).unwrap();
            session.handle_timeout(at(second * 1_000));
            drop(transmit(&mut session, at(second * 1_000)));
        }
        assert_eq!((second, session.close_reason()), (end, Some(reason)));
    }
}

#[cfg(feature = "aead")]
#[test]
fn authenticated_datagrams_hold_off_the_idle_timeout_but_not_the_dead_timeout() {
    use kcp9::crypto::{CipherKind, Framing, Key, PacketCrypto};

    let cipher = CipherKind::Aes256Gcm.build(&Key::from_bytes(&[7; 32]), Framing::KcpGo).unwrap();
    let limits = config().crypto(PacketCrypto::with_os_nonces(cipher).unwrap());
    let limits = limits.dead_timeout(Duration::from_secs(5)).idle_timeout(Some(Duration::from_secs(8)));
    let mut peer = connection(limits.clone());
    assert_eq!(peer.max_datagram_len(), Some(1_400 - 28 - 12));
    let mut session = connection(limits);
    let mut replay = Vec::new();
    for second in 0..30 {
        peer.send_datagram(b"here I am").unwrap();
        replay = transmit(&mut peer, at(second * 1_000)).remove(0);
        session.handle_packet(at(second * 1_000), &mut replay.clone()).unwrap();
        session.handle_timeout(at(second * 1_000));
    }
    assert_eq!(session.close_reason(), None);
    session.write(at(30_000), b"nobody answers").unwrap();
    for second in 30..36 {
        peer.send_datagram(b"here I am").unwrap();
        let mut packet = transmit(&mut peer, at(second * 1_000)).remove(0);
        session.handle_packet(at(second * 1_000), &mut packet).unwrap();
        assert_eq!(session.close_reason(), None);
        drop(transmit(&mut session, at(second * 1_000)));
        session.handle_timeout(at(second * 1_000));
    }
    assert_eq!(session.close_reason(), Some(CloseReason::DeadLink));
    // A replayed one does not count.
    let mut other =
        connection(config().crypto(session.crypto().cloned()).idle_timeout(Some(Duration::from_secs(8))));
    for second in 0..8 {
        let outcome = other.handle_packet(at(second * 1_000), &mut replay.clone());
        assert_eq!(outcome, if second == 0 { Ok(()) } else { Err(PacketError::Replayed) });
        other.handle_timeout(at(second * 1_000));
    }
    other.handle_timeout(at(8_000));
    assert_eq!(other.close_reason(), Some(CloseReason::IdleTimeout));
}
