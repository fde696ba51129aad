//! A program in the middle that copies between two streams, as plain as users write it: a reader behind it that is slow holds the
//! writer before it back, and the program keeps no more than its buffer and one window of each session.

use std::time::Duration;

use kcp9::{KcpConfig, KcpListener, KcpStream};
use kcp9_tests::spawn;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinHandle,
};

use crate::support::{
    Pair, assert_payload, kind, listen_with, pair_with, within, write_payload, write_until_stalled,
};

const WINDOW: u32 = 64;
/// Payload of a window of full segments, at most.
const WINDOW_BYTES: usize = WINDOW as usize * 1_376;
/// That of `tokio::io::copy`.
const COPY_BUFFER: usize = 8 << 10;

fn config() -> KcpConfig {
    KcpConfig::builder().send_window(WINDOW).recv_window(WINDOW).build().unwrap()
}

/// A, the program in the middle, and B.
struct Relayed {
    a: KcpStream,
    b: KcpStream,
    /// The middle's ends of both sessions, for their figures.
    from_a: kcp9::KcpHandle,
    to_b: kcp9::KcpHandle,
    copying: JoinHandle<std::io::Result<u64>>,
    _listeners: [KcpListener; 2],
}

impl Relayed {
    async fn new() -> Self {
        let Pair { client: a, server: mut from_a, listener: middle } = pair_with(config()).await;
        let listener = listen_with(config()).await;
        let to_b = KcpStream::connect(listener.local_addr().unwrap(), config()).await.unwrap();
        let (mut to_b, b) = crate::support::accept_session(&listener, to_b).await;
        let handles = (from_a.handle(), to_b.handle());
        let copying = spawn(async move {
            let count = tokio::io::copy(&mut from_a, &mut to_b).await?;
            to_b.shutdown().await?;
            Ok(count)
        });
        Self { a, b, from_a: handles.0, to_b: handles.1, copying, _listeners: [middle, listener] }
    }

    /// Payload that the middle holds, in bytes: of segments no more than full ones.
    fn held(&self) -> usize {
        let (from_a, to_b) = (self.from_a.stats().queues, self.to_b.stats().queues);
        let segments = from_a.unread_segments + from_a.out_of_order + to_b.in_flight;
        segments as usize * 1_376 + to_b.unsent_bytes + COPY_BUFFER
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stops_behind_a_relay_holds_the_writer_back_and_loses_nothing() {
    let mut relayed = Relayed::new().await;
    let mut at = 0;
    for _ in 0..3 {
        let from = at;
        at = within(20, "A is held back", write_until_stalled(&mut relayed.a, from)).await;
        // At each hop a window that waits to be sent, one in flight, one unread and one out of order; and the copy's buffer.
        assert!(at - from <= 8 * WINDOW_BYTES + COPY_BUFFER, "{} bytes were taken", at - from);
        // Of them, the middle has one hop's unread and out of order, and the other's to be sent and in flight.
        assert!(relayed.held() <= 4 * WINDOW_BYTES + COPY_BUFFER, "{} bytes are held", relayed.held());
        let mut read = vec![0; at - from];
        within(20, "B reads on", relayed.b.read_exact(&mut read)).await.unwrap();
        assert_payload(from, &read);
    }
    within(10, "A shuts down", relayed.a.shutdown()).await.unwrap();
    assert_eq!(
        kind(within(10, "the end comes to B", relayed.b.read_u8()).await),
        Some(std::io::ErrorKind::UnexpectedEof)
    );
    assert_eq!(within(10, "the copy ends", relayed.copying).await.unwrap().unwrap(), at as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_behind_a_relay_gets_everything_while_the_relay_holds_little() {
    const LEN: usize = 2 << 20;
    let mut relayed = Relayed::new().await;
    let mut a = std::mem::replace(&mut relayed.a, KcpStream::connect("127.0.0.1:9", config()).await.unwrap());
    let writing = spawn(async move {
        write_payload(&mut a, LEN).await.unwrap();
        a
    });
    let mut most = 0;
    let reading = async {
        let mut bytes = vec![0; 32 << 10];
        let mut at = 0;
        // Slow for the first half of it.
        while at < LEN / 2 {
            let count = relayed.b.read(&mut bytes).await.unwrap();
            assert_payload(at, &bytes[..count]);
            at += count;
            tokio::time::sleep(Duration::from_millis(5)).await;
            most = most.max(relayed.held());
        }
        let mut rest = vec![0; LEN - at];
        relayed.b.read_exact(&mut rest).await.unwrap();
        assert_payload(at, &rest);
    };
    within(30, "2 MB through the relay", reading).await;
    assert!(most <= 4 * WINDOW_BYTES + COPY_BUFFER, "{most} bytes were held");
    within(5, "A is done", writing).await.unwrap();
}
