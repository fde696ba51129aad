//! Packets that do not come as they were sent: receive calls that stop before they have brought all that has arrived, and batches that
//! the kernel hands on in two.
//!
//! Whoever reads a socket until a call fills fewer slots than it has takes that for the end. Linux stops early where an error is
//! met behind the first packet: the next call tells it, and what made the error also makes the socket ready again.

use std::{
    future::poll_fn,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    vec::Vec,
};

use super::{
    super::{super::Socket, Call, errno::*},
    LEN,
    harness::{Count, Pair, Rng, Seed, until, within},
};
use crate::{KcpConfig, net::KcpSocket};

/// No more is under way than fits into the receiving socket, so that the kernel drops nothing.
fn config() -> KcpConfig {
    KcpConfig::builder().send_window(64).recv_window(64).build().unwrap()
}

/// Something happens at a socket, so that it is looked at: a packet without bytes comes.
fn stir(addr: SocketAddr) {
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[], addr).unwrap();
}

/// The first bytes of the packets that the next receive call brings.
async fn receive(socket: &Socket) -> Vec<u8> {
    let mut bytes = Vec::new();
    let receiving = poll_fn(|cx| socket.poll_recv(cx, |received| bytes.extend(received.bytes().first())));
    within("something comes", receiving).await.unwrap();
    bytes
}

/// Packets that the peer of each socket has sent, and not that socket received.
fn not_read(sockets: &[KcpSocket; 2]) -> [i64; 2] {
    let [client, server] = sockets.each_ref().map(|socket| socket.stats().socket);
    let left = |sent, received| sent as i64 - received as i64;
    [left(server.packets_sent, client.packets_received), left(client.packets_sent, server.packets_received)]
}

#[tokio::test]
async fn what_a_receive_call_leaves_comes_with_the_next_packet_and_in_order() {
    let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut calls = 0;
    socket.faults.stop_receiving(move |slots| {
        calls += 1;
        if calls == 1 { 3 } else { slots }
    });
    for byte in 0..5 {
        sender.send_to(&[byte; 100], socket.local_addr()).unwrap();
    }
    assert_eq!(receive(&socket).await, [0, 1, 2]);
    sender.send_to(&[5; 100], socket.local_addr()).unwrap();
    assert_eq!(receive(&socket).await, [3, 4, 5]);
}

/// Whether the system tells that there is more or not. If it does not, what is left waits until the peer sends again: for an RTO.
#[tokio::test]
async fn no_byte_is_lost_where_receive_calls_stop_early() {
    for (seed, told, len) in [(1, true, LEN), (2, true, LEN), (3, false, LEN / 32), (4, false, LEN / 32)] {
        let _seed = Seed(seed);
        let pair = Pair::new(config()).await;
        let stopped = [Count::default(), Count::default()];
        for ((socket, stopped), salt) in pair.sockets.iter().zip(&stopped).zip(0..) {
            let (mut rng, stopped) = (Rng(seed << 8 | salt), stopped.clone());
            let (addr, fails) = (socket.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
            let failing = Arc::clone(&fails);
            socket.faults().stop_receiving(move |slots| {
                if !rng.chance(50) {
                    return slots;
                }
                stopped.add();
                if told {
                    fails.store(true, Ordering::Relaxed);
                    stir(addr);
                }
                1
            });
            socket.faults().set(move |call| match call {
                Call::Receive => failing.swap(false, Ordering::Relaxed).then_some(ECONNREFUSED),
                // So that each packet fills a slot.
                Call::Send { stride, .. } => stride.map(|_| EIO),
            });
        }
        let sockets = pair.transfer(len).await;
        for (socket, stopped) in sockets.iter().zip(&stopped) {
            assert!(stopped.get() > if told { 10 } else { 2 }, "{}", stopped.get());
            socket.faults().clear();
            stir(socket.local_addr().unwrap());
        }
        // Each socket gets one that its peer has not sent, and more where it is told.
        until("each packet is read", || not_read(&sockets).iter().all(|count| *count < 0)).await;
    }
}

#[tokio::test]
async fn no_byte_is_lost_where_joined_packets_come_in_two_parts() {
    for seed in 1..=4 {
        let _seed = Seed(seed);
        let pair = Pair::new(config()).await;
        let cut = [Count::default(), Count::default()];
        for ((faults, cut), salt) in pair.faults().iter().zip(&cut).zip(0..) {
            let (mut rng, cut) = (Rng(seed << 8 | salt), cut.clone());
            faults.cut_joined(move |packets| {
                cut.add();
                1 + rng.next() as usize % packets
            });
        }
        let sockets = pair.transfer(LEN).await;
        for cut in &cut {
            assert!(cut.get() > 10, "{}", cut.get());
        }
        until("each packet is read", || not_read(&sockets) == [0; 2]).await;
    }
}
