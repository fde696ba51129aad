//! Sessions over loopback whose sockets fail: every byte arrives, and the driver recovers, or the session says why it ended.

mod harness;
#[cfg(feature = "noise")]
mod keys;
mod parts;

use std::{
    boxed::Box,
    time::{Duration, Instant},
    vec,
    vec::Vec,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::harness::{Count, Pair, Rng, Seed, ms, payload, random_faults, until, within};
use super::{
    super::{Progress, Socket},
    Call,
    errno::*,
};
use crate::{
    KcpConfig, KcpError, KcpListener, KcpStream,
    net::{KcpSocket, clock::jumps},
    proto::{EcnCodepoint, Transmit},
};

/// Jumps of a socket's clock in the midst of a transfer.
const MOST_JUMPS: u32 = 16;
/// Bytes sent each way, where a test says no other number.
const LEN: usize = 1 << 20;
/// How long a test waits for anything.
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn no_byte_is_lost_whatever_fails_at_random() {
    for seed in 1..=6 {
        let _seed = Seed(seed);
        let mut rng = Rng(seed);
        let pair = Pair::new(KcpConfig::default()).await;
        for faults in pair.faults() {
            faults.set(random_faults(Rng(rng.next())));
            let [mut stops, mut cuts] = [Rng(rng.next()), Rng(rng.next())];
            faults.stop_receiving(move |slots| if stops.chance(10) { 1 } else { slots });
            faults.cut_joined(move |packets| 1 + cuts.next() as usize % packets);
        }
        for (socket, end) in pair.transfer(LEN).await.iter().zip(["client", "server"]) {
            let stats = socket.stats().socket;
            assert!(stats.send_errors > 0, "{end}: {stats:?}");
            assert!(stats.send_blocked > 0, "{end}: {stats:?}");
            assert!(stats.recv_errors > 0, "{end}: {stats:?}");
        }
    }
}

/// It pauses, and goes on as soon as the socket can be read again.
#[tokio::test]
async fn a_driver_does_not_spin_over_a_socket_that_fails() {
    let mut pair = Pair::new(KcpConfig::default()).await;
    let failed = Count::default();
    let count = failed.clone();
    pair.faults()[1].set(move |call| {
        (call == Call::Receive).then(|| {
            count.add();
            EBADF
        })
    });
    let before = pair.stats()[1];
    pair.client.write_all(&payload(1, 10_000)).await.unwrap();
    tokio::time::sleep(ms(500)).await;
    let after = pair.stats()[1];
    let wakeups = after.driver.wakeups - before.driver.wakeups;
    assert!((100..2_000).contains(&failed.get()), "{} calls", failed.get());
    assert!(wakeups < 500, "{wakeups} wakeups");
    pair.faults()[1].clear();
    let mut bytes = vec![0; 10_000];
    within("it arrives", pair.server.read_exact(&mut bytes)).await.unwrap();
    pair.assert_alive().await;
}

/// Segments do not fit the way, but PINGs do: the peer is heard, and the session would live for ever.
#[tokio::test]
async fn a_stream_whose_segments_are_too_long_ends_and_says_so() {
    let config = KcpConfig::builder().dead_timeout(ms(500)).build().unwrap();
    let mut pair = Pair::new(config).await;
    pair.faults()[0].set(|call| (call.packet_len() > 1_000).then_some(EMSGSIZE));
    let begun = Instant::now();
    pair.client.write_all(&payload(1, 100_000)).await.unwrap();
    let error = within("the session ends", pair.client.read_u8()).await.unwrap_err();
    let os_code = Some(EMSGSIZE);
    assert!(
        matches!(KcpError::find(&error), Some(KcpError::Network { os_code: code, .. }) if code == os_code),
        "{error:?}"
    );
    assert!(begun.elapsed() >= ms(500), "not before the way may have changed: {:?}", begun.elapsed());
    let stats = pair.stats()[0].socket;
    // What is too long goes one by one.
    assert!((2..2_000).contains(&stats.send_errors), "resent, but not in a loop: {stats:?}");
}

/// The way takes long packets again in time: nothing is lost.
#[tokio::test]
async fn a_stream_goes_on_when_the_way_takes_long_packets_again() {
    let config = KcpConfig::builder().dead_timeout(ms(1_000)).build().unwrap();
    let pair = Pair::new(config).await;
    let begun = Instant::now();
    pair.faults()[0]
        .set(move |call| (call.packet_len() > 1_000 && begun.elapsed() < ms(600)).then_some(EMSGSIZE));
    let [client, _] = pair.transfer(LEN / 8).await;
    assert!(client.stats().socket.send_errors > 0);
}

/// A stream that goes on is not ended for other packets that are too long, however long they are refused.
#[tokio::test]
async fn long_datagrams_that_are_refused_do_not_end_a_stream_of_short_messages() {
    let config = KcpConfig::builder().dead_timeout(ms(200)).datagram_queue(1 << 20).build().unwrap();
    let mut pair = Pair::new(config).await;
    pair.faults()[0].set(|call| (call.packet_len() > 1_000).then_some(EMSGSIZE));
    let datagrams = pair.client.datagrams();
    for _ in 0..40 {
        // It is in flight as the datagram is refused.
        pair.client.write_u8(7).await.unwrap();
        datagrams.send(&[7; 1_200]).unwrap();
        assert_eq!(within("a byte", pair.server.read_u8()).await.unwrap(), 7);
        tokio::time::sleep(ms(20)).await;
    }
    assert!(pair.stats()[0].socket.send_errors >= 20, "{:?}", pair.stats()[0].socket);
}

/// A batch that is refused is sent packet by packet, and later ones are not tried. That loses nothing, and counts as no error.
#[tokio::test]
async fn packets_go_one_by_one_once_gso_is_refused() {
    for (code, dscp) in [(EIO, 0), (EINVAL, 0), (EIO, 46), (EINVAL, 46)] {
        let pair = Pair::new(KcpConfig::default()).await;
        let batches = [Count::default(), Count::default()];
        for (end, socket) in pair.sockets.iter().enumerate() {
            socket.set_dscp(dscp).unwrap();
            let batches = batches[end].clone();
            socket.faults().set(move |call| {
                call.is_batch().then(|| {
                    batches.add();
                    code
                })
            });
        }
        let before = pair.stats().map(|stats| stats.socket);
        let sockets = pair.transfer(LEN / 4).await;
        for ((socket, before), batches) in sockets.iter().zip(before).zip(&batches) {
            assert_eq!(batches.get(), 1, "errno {code}, DSCP {dscp}");
            let stats = socket.stats().socket;
            assert_eq!(stats.send_errors, 0, "{stats:?}");
            let singles = stats.send_calls - before.send_calls;
            assert_eq!(singles, stats.packets_sent - before.packets_sent, "{stats:?}");
        }
    }
}

/// A system that knows no `IP_TOS` for a packet, as Linux before 3.13, gets the packets without ECN, and GSO stays.
#[tokio::test]
async fn packets_go_without_ecn_once_that_is_refused() {
    let pair = Pair::new(KcpConfig::default()).await;
    let counts = [(); 2].map(|()| [(); 2].map(|()| Count::default()));
    for (socket, counts) in pair.sockets.iter().zip(&counts) {
        let [refused, batches] = counts.clone();
        socket.faults().set(move |call| {
            let Call::Send { stride, has_tos, .. } = call else { return None };
            if has_tos {
                refused.add();
                return Some(EINVAL);
            }
            if stride.is_some() {
                batches.add();
            }
            None
        });
    }
    let sockets = pair.transfer(LEN).await;
    for (socket, [refused, batches]) in sockets.iter().zip(&counts) {
        // One batch and one packet of it.
        assert!((1..=2).contains(&refused.get()), "{} refused", refused.get());
        assert!(batches.get() > 0, "batches go as batches");
        assert_eq!(socket.stats().socket.send_errors, 0);
    }
}

/// `EINVAL` has other causes than GSO: addresses, which peers may have made up. They must not slow down everybody else.
#[tokio::test]
async fn an_address_that_nothing_can_be_sent_to_does_not_turn_gso_off() {
    for dscp in [0, 46] {
        let socket = Socket::bind("0.0.0.0:0".parse().unwrap()).unwrap();
        socket.set_dscp(dscp).unwrap();
        assert!(socket.max_packets() > 1, "the system has GSO");
        for from in [None, Some([127, 0, 0, 1].into())] {
            for packets in [1, 3] {
                let transmit = Transmit {
                    len: 100 * packets,
                    stride: 100,
                    ecn: EcnCodepoint::NotEct,
                    may_fragment: false,
                };
                let mut progress = Progress::default();
                let nowhere = "127.0.0.1:0".parse().unwrap();
                let outcome = socket.try_send(nowhere, from, transmit, &[0; 300], &mut progress);
                assert_eq!(outcome.unwrap_err().raw_os_error(), Some(EINVAL));
                assert_eq!((progress.done, progress.lost), (100 * packets, packets));
            }
        }
        assert!(socket.max_packets() > 1, "DSCP {dscp}");
    }
}

/// What a full socket did not take goes later, in the same order and once.
#[tokio::test]
async fn a_batch_that_is_cut_short_goes_on_where_it_stopped() {
    // As much as fits into the receiving socket, so that the kernel drops nothing.
    let config = KcpConfig::builder().send_window(32).recv_window(32).build().unwrap();
    let pair = Pair::new(config).await;
    let cuts = [Count::default(), Count::default()];
    for (faults, cuts) in pair.faults().iter().zip(&cuts) {
        let (cuts, mut singles) = (cuts.clone(), 0);
        faults.set(move |call| match call {
            Call::Send { stride: Some(_), .. } => Some(EIO),
            // Of any four calls the fourth.
            Call::Send { .. } => {
                singles += 1;
                (singles % 4 == 0).then(|| {
                    cuts.add();
                    EAGAIN
                })
            }
            Call::Receive => None,
        });
    }
    let sockets = pair.transfer(LEN / 4).await;
    let stats = sockets.each_ref().map(|socket| socket.stats().socket);
    for (stats, cuts) in stats.iter().zip(&cuts) {
        assert!(cuts.get() > 40, "{}", cuts.get());
        assert_eq!(stats.send_blocked, cuts.get() as u64, "{stats:?}");
        assert_eq!(stats.send_errors, 0, "{stats:?}");
    }
    let arrived = || {
        let [client, server] = sockets.each_ref().map(|socket| socket.stats().socket);
        client.packets_sent == server.packets_received && server.packets_sent == client.packets_received
    };
    until("each packet arrives once", arrived).await;
}

/// No buffers, no route, an interface that is down: for as long as that lasts everything is lost, and is sent again.
#[tokio::test]
async fn a_shortage_of_buffers_is_a_loss_like_any_other() {
    for code in [ENOBUFS, ENOMEM, ENETDOWN, ENETUNREACH, EPERM, ECONNREFUSED] {
        let pair = Pair::new(KcpConfig::default()).await;
        let begun = Instant::now();
        for faults in pair.faults() {
            faults.set(move |call| (call != Call::Receive && begun.elapsed() < ms(100)).then_some(code));
        }
        for socket in pair.transfer(LEN / 8).await {
            let stats = socket.stats().socket;
            assert!((1..500).contains(&stats.send_errors), "errno {code}: {stats:?}");
        }
    }
}

/// Of more errors in a row than a driver takes without a pause, none ends anything, whatever they say.
#[tokio::test]
async fn receive_errors_in_a_row_end_nothing() {
    for code in [ECONNREFUSED, ENOMEM, ENETDOWN, EIO] {
        let pair = Pair::new(KcpConfig::default()).await;
        for faults in pair.faults() {
            let mut left = 100;
            faults.set(move |call| {
                let fails = call == Call::Receive && left > 0;
                left -= usize::from(fails);
                fails.then_some(code)
            });
        }
        for socket in pair.transfer(LEN / 8).await {
            assert_eq!(socket.stats().socket.recv_errors, 100, "errno {code}");
        }
    }
}

/// What has arrived and cannot be read may be an answer: a session is not called dead before.
#[tokio::test]
async fn nobody_is_dead_whose_answers_wait_in_a_socket_that_cannot_be_read() {
    let config = KcpConfig::builder().dead_timeout(ms(300)).build().unwrap();
    let mut pair = Pair::new(config).await;
    pair.client.write_all(b"question").await.unwrap();
    pair.faults()[0].set(|call| (call == Call::Receive).then_some(ENOMEM));
    tokio::time::sleep(ms(800)).await;
    assert_eq!(pair.client.close_reason(), None);
    assert!(pair.stats()[0].socket.recv_errors > 100, "{:?}", pair.stats()[0].socket);
    pair.faults()[0].clear();
    pair.server.read_exact(&mut [0; 8]).await.unwrap();
    pair.assert_alive().await;
}

/// Nothing is sent or received any more. The sessions end with the socket's error, and until then there is little to do.
#[tokio::test]
async fn sessions_of_a_dead_socket_end_and_say_why() {
    let config = KcpConfig::builder().dead_timeout(ms(300)).keep_alive(Some(ms(200))).build().unwrap();
    let mut pair = Pair::new(config).await;
    let codes = [EBADF, ENETDOWN];
    let counts = [Count::default(), Count::default()];
    for ((faults, code), count) in pair.faults().into_iter().zip(codes).zip(&counts) {
        let count = count.clone();
        faults.set(move |_| {
            count.add();
            Some(code)
        });
    }
    let begun = Instant::now();
    // One end has something to say, and the other asks whether its peer is there.
    pair.client.write_all(&payload(1, 50_000)).await.unwrap();
    let (mut at_client, mut at_server) = ([0], [0]);
    let ends = async { tokio::join!(pair.client.read(&mut at_client), pair.server.read(&mut at_server)) };
    let (client, server) = within("both sessions end", ends).await;
    // What waits in the socket is not waited for longer than two seconds.
    let elapsed = begun.elapsed();
    assert!(elapsed < ms(3_000), "{elapsed:?}");
    for (error, code) in [client.unwrap_err(), server.unwrap_err()].iter().zip(codes) {
        let Some(KcpError::Network { os_code, .. }) = KcpError::find(error) else { panic!("{error:?}") };
        assert_eq!(os_code, Some(code));
    }
    for (count, stats) in counts.iter().zip(pair.stats()) {
        assert!((5..5_000).contains(&count.get()), "{} calls in {elapsed:?}", count.get());
        let wakeups = stats.driver.wakeups;
        assert!(wakeups < 1_000, "{wakeups} wakeups in {elapsed:?}");
    }
}

/// The application notices that its socket is dead, and has another one.
#[tokio::test]
#[cfg(feature = "aes-gcm")]
async fn a_session_goes_on_over_another_socket_when_its_own_is_dead() {
    use crate::crypto::{CipherKind, Framing, Key, PacketCrypto};

    let cipher = CipherKind::Aes128Gcm.build(&Key::from_bytes(&[7; 16]), Framing::KcpGo).unwrap();
    let crypto = PacketCrypto::with_os_nonces(cipher).unwrap();
    let config = KcpConfig::builder().dead_timeout(ms(2_000)).crypto(crypto).build().unwrap();
    let pair = Pair::new(config).await;
    let handle = pair.client.handle();
    let failed = Count::default();
    let counted = failed.clone();
    // Not at once, so that it happens in the midst of the transfer.
    let begun = Instant::now();
    pair.faults()[0].set(move |_| {
        (begun.elapsed() > ms(5)).then(|| {
            counted.add();
            ENETDOWN
        })
    });
    let rebinding = async {
        tokio::time::sleep(ms(400)).await;
        assert!(failed.get() > 20, "{}", failed.get());
        handle.rebind(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let before = failed.get();
        tokio::time::sleep(ms(100)).await;
        assert_eq!(failed.get(), before, "nobody uses the dead one any more");
    };
    tokio::join!(pair.transfer(2 * LEN), rebinding);
}

/// The clock goes on by hours, and every timer ends.
fn jump_to(hours: u64, sockets: &[KcpSocket]) {
    jumps::set_ahead(Duration::from_secs(hours * 3_600));
    sockets.iter().for_each(KcpSocket::wake_driver);
}

/// As after a suspend: every deadline has passed, those of silent peers, too.
#[tokio::test]
async fn a_jump_of_the_clock_by_hours_ends_no_session_and_stalls_no_stream() {
    let idle = Some(Duration::from_secs(60));
    let config = KcpConfig::builder().idle_timeout(idle).build().unwrap();
    let mut pair = Pair::new(config.clone()).await;
    // While nothing is in flight.
    jump_to(3, &pair.sockets);
    pair.assert_alive().await;
    // While data is in flight that has not arrived, and while its answers wait to be read.
    pair.client.write_u8(7).await.unwrap();
    jump_to(6, &pair.sockets);
    assert_eq!(within("it arrives", pair.server.read_u8()).await.unwrap(), 7);
    pair.server.write_u8(8).await.unwrap();
    jump_to(9, &pair.sockets);
    assert_eq!(within("it arrives", pair.client.read_u8()).await.unwrap(), 8);
    // In the midst of a transfer, while everything is lost for a while.
    let begun = Instant::now();
    for faults in pair.faults() {
        let (mut calls, sockets) = (0, pair.sockets.clone());
        faults.set(move |call| {
            calls += u32::from(call != Call::Receive);
            if calls == 20 {
                jump_to(15, &sockets);
            }
            (call != Call::Receive && (20..24).contains(&calls)).then_some(ENETDOWN)
        });
    }
    for socket in pair.transfer(LEN).await {
        assert!(socket.stats().socket.send_errors > 0);
        socket.faults().clear();
    }
    // A timeout that had grown with the jump would take longer.
    assert!(begun.elapsed() < ms(5_000), "{:?}", begun.elapsed());
}

/// No deadline is missed for good, and nothing panics. A deadline that was planned before the step comes later by as much, so the one
/// step that is longer than this test may take is made while nothing is under way.
#[tokio::test]
async fn a_clock_that_steps_back_breaks_nothing() {
    jumps::set_ahead(Duration::from_secs(60));
    let mut pair = Pair::new(KcpConfig::default()).await;
    pair.assert_alive().await;
    let acknowledged = async {
        while [&pair.client, &pair.server].iter().any(|stream| stream.stats().queues.in_flight > 0) {
            tokio::time::sleep(ms(1)).await;
        }
    };
    within("everything is acknowledged", acknowledged).await;
    jumps::set_ahead(Duration::from_secs(30));
    pair.assert_alive().await;
    for faults in pair.faults() {
        let (mut calls, mut rng) = (0, Rng(9));
        faults.set(move |call| {
            calls += 1;
            // Not at the end: a socket whose only stream has ended answers for it for a time that one jump may be longer than.
            if calls % 16 == 0 && calls < MOST_JUMPS * 16 {
                jumps::set_ahead(ms(29_000 + rng.next() % 1_000));
            }
            (call != Call::Receive && rng.chance(10)).then_some(ENOBUFS)
        });
    }
    for socket in pair.transfer(LEN).await {
        assert!(socket.stats().socket.send_errors > 0);
    }
}

/// One of a listener's sockets cannot be read any more, and not be sent over. The others go on, and so does that one when it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_whose_socket_fails_takes_no_other_with_it() {
    let config = KcpConfig::builder().shards(3).build().unwrap();
    let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..30 {
        let mut client = KcpStream::connect(listener.local_addr().unwrap(), config.clone()).await.unwrap();
        client.write_u8(b'!').await.unwrap();
        let (mut server, _) = within("a session is accepted", listener.accept()).await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), b'!');
        sessions.push((client, server));
    }
    let sockets = listener.endpoint().sockets();
    let failing = sockets[1].stats().state.sessions as usize;
    assert!((1..30).contains(&failing));
    sockets[1].faults().set(|_| Some(ENETDOWN));
    let mut stuck = Vec::new();
    for (mut client, mut server) in sessions {
        client.write_u8(7).await.unwrap();
        match tokio::time::timeout(ms(300), server.read_u8()).await {
            Ok(byte) => assert_eq!(byte.unwrap(), 7),
            Err(_) => stuck.push((client, server)),
        }
    }
    assert_eq!(stuck.len(), failing);
    sockets[1].faults().clear();
    for (client, server) in &mut stuck {
        assert_eq!(within("what was written", server.read_u8()).await.unwrap(), 7);
        server.write_u8(8).await.unwrap();
        assert_eq!(within("an answer", client.read_u8()).await.unwrap(), 8);
    }
    sockets[2].faults().set(|_| Some(ENETDOWN));
    listener.abort();
    within("all end", listener.wait_idle()).await;
}

/// Nobody is connected, so nobody has to be told. The listener gets to what has arrived as soon as its socket can be read again.
#[tokio::test]
async fn a_listener_without_sessions_waits_for_its_socket() {
    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await.unwrap();
    let socket = listener.socket();
    let failed = Count::default();
    let count = failed.clone();
    socket.faults().set(move |_| {
        count.add();
        Some(EBADF)
    });
    let mut client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    client.write_u8(7).await.unwrap();
    let mut accept = Box::pin(listener.accept());
    assert!(tokio::time::timeout(ms(500), &mut accept).await.is_err(), "it neither fails nor accepts");
    let stats = socket.stats();
    assert!((100..2_000).contains(&failed.get()), "{} calls", failed.get());
    assert!(stats.socket.recv_errors >= 100 && stats.driver.wakeups < 500, "{stats:?}");
    socket.faults().clear();
    let (mut server, _) = within("the client is accepted", accept).await.unwrap();
    assert_eq!(within("what it wrote", server.read_u8()).await.unwrap(), 7);
}

/// The server has a thread of its own, and so a clock: it goes back and forth by half a second while a megabyte comes and goes.
#[tokio::test]
async fn one_end_whose_clock_goes_back_and_forth_loses_nothing() {
    let (tell, addr) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            let (mut rng, jumps) = (Rng(3), Count::default());
            let jumping = async {
                loop {
                    jumps::set_ahead(ms(60_000 + rng.next() % 500));
                    jumps.add();
                    tokio::time::sleep(ms(2)).await;
                }
            };
            let echo = async {
                let (stream, _) = listener.accept().await.unwrap();
                let (mut reader, mut writer) = stream.into_split();
                tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            tokio::select! {
                () = jumping => {}
                () = within("the echo ends", echo) => {}
            }
            jumps.get()
        })
    });
    let (sent, mut echoed) = (payload(1, LEN), Vec::new());
    let client = KcpStream::connect(addr.recv().unwrap(), KcpConfig::default()).await.unwrap();
    let (mut reader, mut writer) = client.into_split();
    let transfer = async {
        tokio::try_join!(
            async {
                // So slowly that the clock jumps meanwhile, on any machine.
                for piece in sent.chunks(LEN / 64) {
                    writer.write_all(piece).await?;
                    tokio::time::sleep(ms(4)).await;
                }
                writer.shutdown().await
            },
            reader.read_to_end(&mut echoed),
        )
    };
    within("everything comes back", transfer).await.unwrap();
    assert!(echoed == sent, "{} of {LEN} bytes", echoed.len());
    let jumps = tokio::task::spawn_blocking(|| server.join()).await.unwrap().unwrap();
    assert!(jumps > 20, "{jumps}");
}
