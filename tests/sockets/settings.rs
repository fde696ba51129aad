//! Settings changed while data flows: nothing is lost.

use std::{io::ErrorKind, time::Duration};

use kcp9::{KcpConfig, KcpStream, NoDelay};
use kcp9_tests::spawn;
use tokio::{io::AsyncReadExt, task::JoinHandle};

use kcp9_simulator::Rng;

use crate::support::{Pair, greet, kind, listen, ms, pair, within};

const LEN: usize = 4 << 20;

/// Writes and reads the payload through a shared stream, so that the test can change its settings meanwhile.
fn transfer(mut stream: KcpStream) -> (std::sync::mpsc::Receiver<KcpStream>, JoinHandle<()>) {
    let (back, stream_back) = std::sync::mpsc::channel();
    let task = spawn(async move {
        let mut rng = Rng::new(stream.conv().into());
        let mut changes = tokio::time::interval(ms(2));
        let (mut written, mut read) = (0, 0);
        let mut buffer = vec![0; 32 << 10];
        while written < LEN || read < LEN {
            let mut piece = [0; 5_000];
            let end = piece.len().min(LEN - written);
            crate::support::PAYLOAD.fill(written as u64, &mut piece[..end]);
            let (mut reader, mut writer) = stream.split();
            tokio::select! {
                count = reader.read(&mut buffer), if read < LEN => {
                    let count = count.unwrap();
                    crate::support::assert_payload(read, &buffer[..count]);
                    read += count;
                }
                count = tokio::io::AsyncWriteExt::write(&mut writer, &piece[..end]), if written < LEN => {
                    written += count.unwrap();
                }
                _ = changes.tick() => change(&stream, &mut rng),
            }
        }
        tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        back.send(stream).unwrap();
    });
    (stream_back, task)
}

/// Changes one setting at random.
fn change(stream: &KcpStream, rng: &mut Rng) {
    match rng.within(0..=5) {
        0 => {
            let windows = [1, 2, 31, 32, 500, 2_048, 65_535];
            stream.set_windows(*rng.choose(&windows), *rng.choose(&windows)).unwrap();
        }
        1 => {
            let nodelay = *rng.choose(&[NoDelay::FAST3, NoDelay::FAST2, NoDelay::NORMAL]);
            stream.set_nodelay(NoDelay { nc: rng.chance(0.8), interval: ms(2), ..nodelay }).unwrap();
        }
        2 => stream.set_stream(rng.chance(0.5)),
        3 => stream.set_ack_no_delay(rng.chance(0.5)),
        4 => stream.set_write_delay(rng.chance(0.5)),
        _ => {
            // Refused while larger segments are queued.
            let outcome = stream.set_mtu(rng.size(600..=1_500));
            assert!(matches!(kind(outcome), None | Some(ErrorKind::InvalidInput)));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn may_change_at_any_time() {
    let Pair { client, server, listener: _listener } = pair().await;
    let (one, client) = transfer(client);
    let (other, server) = transfer(server);
    let both = async {
        let (client, server) = tokio::join!(client, server);
        client.unwrap();
        server.unwrap();
    };
    within(20, "4 MB each way while settings change", both).await;
    // Nothing larger is under way any more.
    for stream in [one.recv().unwrap(), other.recv().unwrap()] {
        assert!(stream.set_mtu(900).is_ok(), "{:?}", stream.stats());
    }
}

#[tokio::test]
async fn out_of_their_limits_are_refused() {
    let Pair { client, server, listener: _listener } = pair().await;
    let refused = Some(ErrorKind::InvalidInput);
    for windows in [(0, 1), (1, 0), (65_536, 1), (1, 65_536)] {
        assert_eq!(kind(client.set_windows(windows.0, windows.1)), refused, "{windows:?}");
    }
    for mtu in [0, 63, 65_508] {
        assert_eq!(kind(client.set_mtu(mtu)), refused, "{mtu}");
    }
    for interval in [Duration::ZERO, ms(5_001)] {
        assert_eq!(kind(client.set_nodelay(NoDelay { interval, ..NoDelay::FAST })), refused, "{interval:?}");
    }
    let (mut client, mut server) = (client, server);
    crate::support::assert_alive(&mut client, &mut server).await;
}

/// The window is closed and opened again while the peer waits: it is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_is_widened_is_told() {
    let config = KcpConfig::builder().recv_window(4).build().unwrap();
    let listener = crate::support::listen_with(config).await;
    let client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    let (mut client, server) = greet(&listener, client).await;
    let writing = spawn(async move {
        crate::support::write_payload(&mut client, 100_000).await.unwrap();
        client
    });
    tokio::time::sleep(ms(300)).await;
    assert_eq!(server.stats().queues.unread_segments, 4, "the window is full");
    server.set_windows(512, 512).unwrap();
    let full = crate::support::until(2, "the rest arrives", || {
        server.stats().queues.unread_segments >= 100_000 / 1_376
    });
    full.await;
    let _client = writing.await.unwrap();
}

/// What `write_delay` holds back is sent by `flush`, or after an `interval`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_write_waits_for_a_flush() {
    use tokio::io::AsyncWriteExt;
    let slow = NoDelay { interval: Duration::from_secs(1), ..NoDelay::FAST3 };
    let config = KcpConfig::builder().write_delay(true).nodelay(slow).build().unwrap();
    let listener = listen().await;
    let client = KcpStream::connect(listener.local_addr().unwrap(), config).await.unwrap();
    let (mut client, mut server) = greet(&listener, client).await;
    client.write_all(b"a").await.unwrap();
    let early = tokio::time::timeout(ms(300), server.read_u8()).await;
    assert!(early.is_err(), "it was sent at once");
    client.flush().await.unwrap();
    let read = tokio::time::timeout(ms(300), server.read_u8()).await.expect("flushed");
    assert_eq!(read.unwrap(), b'a');
    client.write_all(b"b").await.unwrap();
    assert_eq!(within(2, "sent after an interval", server.read_u8()).await.unwrap(), b'b');
}
