//! Settings changed while data flows: nothing is lost.

use std::{io::ErrorKind, time::Duration};

use kcp9::{KcpConfig, KcpStream, NoDelay};
use kcp9_tests::spawn;
use tokio::{io::AsyncReadExt, task::JoinHandle};

use kcp9_simulator::Rng;

use crate::support::{Pair, accept_session, kind, listen, ms, pair, within};

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
    let windows = [1, 2, 31, 32, 500, 2_048, 65_535];
    let presets = [NoDelay::FAST3, NoDelay::FAST2, NoDelay::NORMAL];
    let what = rng.within(0..=5);
    let outcome = stream.update_settings(|settings| match what {
        0 => {
            settings.send_window = *rng.choose(&windows);
            settings.recv_window = *rng.choose(&windows);
        }
        1 => {
            settings.nodelay = NoDelay { nc: rng.chance(0.8), interval: ms(2), ..*rng.choose(&presets) };
        }
        2 => settings.stream = rng.chance(0.5),
        3 => settings.ack_no_delay = rng.chance(0.5),
        4 => settings.write_delay = rng.chance(0.5),
        _ => settings.mtu = rng.size(600..=1_500),
    });
    match kind(outcome) {
        None => {}
        // Larger segments are queued.
        Some(kind) => assert_eq!((what, kind), (5, ErrorKind::InvalidInput)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_may_change_at_any_time() {
    let Pair { client, server, listener: _listener } = pair().await;
    let (one, client) = transfer(client);
    let (other, server) = transfer(server);
    let both = async {
        let (client, server) = tokio::join!(client, server);
        client.unwrap();
        server.unwrap();
    };
    within(20, "4 MB each way while settings change", both).await;
    // No larger segment is under way any more.
    for stream in [one.recv().unwrap(), other.recv().unwrap()] {
        assert!(stream.update_settings(|settings| settings.mtu = 900).is_ok(), "{:?}", stream.stats());
    }
}

#[tokio::test]
async fn settings_out_of_their_limits_are_refused() {
    let Pair { client, server, listener: _listener } = pair().await;
    let refused = Some(ErrorKind::InvalidInput);
    for windows in [(0, 1), (1, 0), (65_536, 1), (1, 65_536)] {
        let outcome =
            client.update_settings(|settings| (settings.send_window, settings.recv_window) = windows);
        assert_eq!(kind(outcome), refused, "{windows:?}");
    }
    for mtu in [0, 63, 65_508] {
        assert_eq!(kind(client.update_settings(|settings| settings.mtu = mtu)), refused, "{mtu}");
    }
    for interval in [Duration::ZERO, ms(5_001)] {
        let outcome = client.update_settings(|settings| settings.nodelay.interval = interval);
        assert_eq!(kind(outcome), refused, "{interval:?}");
    }
    let (mut client, mut server) = (client, server);
    crate::support::assert_alive(&mut client, &mut server).await;
}

/// All halves of a stream read and change the same settings.
#[tokio::test]
async fn halves_share_the_settings_of_their_stream() {
    let Pair { mut client, listener: _listener, .. } = pair().await;
    let (reader, writer) = client.split();
    reader.update_settings(|settings| settings.recv_window = 100).unwrap();
    writer.update_settings(|settings| settings.send_window = 200).unwrap();
    let error = writer.update_settings(|settings| (settings.mtu, settings.send_window) = (900, 0));
    assert_eq!(kind(error), Some(ErrorKind::InvalidInput));
    assert_eq!(reader.settings(), writer.settings());
    let (reader, writer) = client.into_split();
    for settings in [reader.settings(), writer.settings()] {
        assert_eq!((settings.recv_window, settings.send_window, settings.mtu), (100, 200, 1_400));
    }
    reader.update_settings(|settings| settings.stream = false).unwrap();
    writer.update_settings(|settings| settings.ack_no_delay = true).unwrap();
    let client = reader.reunite(writer).unwrap();
    assert!(!client.settings().stream && client.settings().ack_no_delay);
}

/// The window opens again while the peer waits, and the peer is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wider_window_is_announced() {
    let config = KcpConfig::builder().recv_window(4).build().unwrap();
    let listener = crate::support::listen_with(config).await;
    let client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    let (mut client, server) = accept_session(&listener, client).await;
    let writing = spawn(async move {
        crate::support::write_payload(&mut client, 100_000).await.unwrap();
        client
    });
    tokio::time::sleep(ms(300)).await;
    assert_eq!(server.stats().queues.unread_segments, 4, "the window is full");
    server.update_settings(|settings| settings.recv_window = 512).unwrap();
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
    let (mut client, mut server) = accept_session(&listener, client).await;
    client.write_all(b"a").await.unwrap();
    let early = tokio::time::timeout(ms(300), server.read_u8()).await;
    assert!(early.is_err(), "it was sent at once");
    client.flush().await.unwrap();
    let read = tokio::time::timeout(ms(300), server.read_u8()).await.expect("flushed");
    assert_eq!(read.unwrap(), b'a');
    client.write_all(b"b").await.unwrap();
    assert_eq!(within(2, "sent after an interval", server.read_u8()).await.unwrap(), b'b');
}
