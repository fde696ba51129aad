//! How a session ends, as its stream and its handles see it.

use std::{
    error::Error,
    io::ErrorKind,
    time::{Duration, Instant},
};

use kcp9::{
    KcpConfig, KcpError, KcpListener, KcpStream,
    proto::{AbortReason, CloseReason, Extensions},
};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    ANY, Pair, assert_alive, kind, ms, pair, pair_with, rebind, short_timeouts, until, within,
};

const ABORTED: KcpError = KcpError::Closed(CloseReason::Aborted);
/// How a session ends whose stream was dropped with nothing left to deliver.
const FINISHED: KcpError = KcpError::Closed(CloseReason::Finished);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abort_ends_every_call_at_once() {
    let config = KcpConfig::builder().send_window(8).recv_window(8).build().unwrap();
    let Pair { mut client, server: _server, listener: _listener } = pair_with(config).await;
    let handle = client.handle();
    assert_eq!(handle.close_reason(), None);
    let waiting = spawn({
        let handle = handle.clone();
        async move { handle.closed().await }
    });
    let (mut reader, mut writer) = client.split();
    let calls = async {
        tokio::join!(reader.read_u8(), writer.write_all(&[0; 1 << 20]), async {
            tokio::time::sleep(ms(50)).await;
            handle.abort();
        })
    };
    let (read, written, ()) = within(5, "both calls fail", calls).await;
    for error in [read.unwrap_err(), written.unwrap_err()] {
        assert_eq!((error.kind(), KcpError::find(&error)), (ErrorKind::ConnectionAborted, Some(ABORTED)));
        let inside = error.get_ref().unwrap();
        assert_eq!(inside.downcast_ref::<KcpError>(), Some(&ABORTED));
    }
    assert_eq!(within(1, "the end is known", waiting).await.unwrap(), ABORTED);
    assert_eq!(client.close_reason(), Some(ABORTED));
    assert_eq!(within(1, "and stays so", client.closed()).await, ABORTED);
    until(2, "the driver has forgotten it", || client.endpoint_stats().state.sessions == 0).await;
}

/// What had arrived before an abort can still be read.
#[tokio::test]
async fn what_arrived_is_read_after_an_abort() {
    let Pair { mut client, mut server, listener: _listener } = pair().await;
    client.write_all(b"last words").await.unwrap();
    within(5, "they arrive", server.readable()).await.unwrap();
    server.abort();
    let mut words = [0; 10];
    within(1, "they are read", server.read_exact(&mut words)).await.unwrap();
    assert_eq!(&words, b"last words");
    assert_eq!(kind(server.read_u8().await), Some(ErrorKind::ConnectionAborted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_stays_when_stream_and_socket_are_gone() {
    let Pair { mut client, mut server, listener } = pair().await;
    let addr = listener.local_addr().unwrap();
    let handle = server.handle();
    assert_eq!((handle.conv(), handle.peer_addr()), (server.conv(), server.peer_addr()));
    assert_eq!(handle.local_addr(), addr);
    client.write_all(b"hello").await.unwrap();
    server.read_exact(&mut [0; 5]).await.unwrap();
    assert_eq!(handle.stats().stream.bytes_read, 6);
    assert_eq!(handle.settings(), Some(server.settings()));
    handle.update_settings(|settings| settings.recv_window = 64).unwrap();
    assert_eq!(server.settings().recv_window, 64);
    let closed = spawn({
        let handle = handle.clone();
        async move { handle.closed().await }
    });
    let late = server.handle();
    drop((server, listener));
    assert_eq!(within(5, "the end of the session", closed).await.unwrap(), FINISHED);
    // The handles hold neither the session nor the socket.
    drop(rebind(addr).await);
    for handle in [handle, late] {
        assert_eq!(handle.close_reason(), Some(FINISHED));
        assert_eq!(within(1, "it is known", handle.closed()).await, FINISHED);
        assert_eq!(handle.stats().stream.bytes_read, 6);
        assert_eq!((handle.conv(), handle.local_addr()), (client.conv(), addr));
        assert_eq!(handle.settings(), None);
        assert_eq!(kind(handle.update_settings(|_| {})), Some(ErrorKind::NotConnected));
        assert_eq!(kind(handle.datagrams().send(b"x")), Some(ErrorKind::ConnectionAborted));
        handle.abort();
    }
}

/// A handle that is made after the end knows it as well.
#[tokio::test]
async fn the_reason_of_an_idle_timeout_is_told_everywhere() {
    let config = short_timeouts().idle_timeout(Some(Duration::from_millis(300))).build().unwrap();
    let Pair { client: _client, mut server, listener: _listener } = pair_with(config).await;
    let idle = KcpError::Closed(CloseReason::IdleTimeout);
    assert_eq!(within(5, "the timeout", server.closed()).await, idle);
    let handle = server.handle();
    assert_eq!((handle.close_reason(), server.close_reason()), (Some(idle), Some(idle)));
    let error = server.write(b"x").await.unwrap_err();
    assert_eq!((error.kind(), KcpError::find(&error)), (ErrorKind::TimedOut, Some(idle)));
    drop(server);
    assert_eq!(handle.close_reason(), Some(idle), "dropping the stream changes nothing");
}

/// Errors that are not ends say so, and the session goes on.
#[tokio::test]
async fn refused_calls_have_reasons_of_their_own() {
    let Pair { mut client, mut server, listener: _listener } = pair().await;
    let error = client.send(b"").await.unwrap_err();
    assert!(matches!(KcpError::find(&error), Some(KcpError::Write(_))), "{error:?}");
    let error = client.send_datagram(b"x").unwrap_err();
    assert!(matches!(KcpError::find(&error), Some(KcpError::Datagram(_))), "{error:?}");
    client.shutdown().await.unwrap();
    let error = client.write(b"x").await.unwrap_err();
    assert!(matches!(KcpError::find(&error), Some(KcpError::Write(_))), "{error:?}");
    assert_eq!(client.close_reason(), None);
    server.write_all(b"y").await.unwrap();
    assert_eq!(within(5, "the other direction", client.read_u8()).await.unwrap(), b'y');
}

/// As a TLS library does it: the error of the stream lies inside of the library's.
#[tokio::test]
async fn the_reason_is_found_inside_of_other_errors() {
    let listener = KcpListener::bind(ANY, KcpConfig::default()).await.unwrap();
    let stream = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    stream.abort();
    let error = stream.recv().await.unwrap_err();
    let wrapped: Box<dyn Error + Send + Sync> = std::io::Error::other(error).into();
    assert_eq!(KcpError::find(&*wrapped), Some(ABORTED));
}

/// Peers of this crate tell each other how they end, and both ends name the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_peer_learns_of_an_abort_and_of_its_reason() {
    let config = KcpConfig::builder().extensions(Extensions::Preferred).build().unwrap();
    for reason in [AbortReason::Application, AbortReason::EndpointClosed] {
        let Pair { mut client, mut server, listener } = pair_with(config.clone()).await;
        assert_alive(&mut client, &mut server).await;
        let begun = Instant::now();
        if reason == AbortReason::Application {
            server.abort();
        } else {
            listener.abort();
        }
        let told = KcpError::Closed(CloseReason::AbortedByPeer(reason));
        assert_eq!(within(5, "the peer hears of it", client.closed()).await, told);
        assert!(begun.elapsed() < Duration::from_secs(2), "it took {:?}", begun.elapsed());
        let error = client.read_u8().await.unwrap_err();
        assert_eq!((error.kind(), KcpError::find(&error)), (ErrorKind::ConnectionReset, Some(told)));
        assert_eq!(kind(client.write(b"x").await), Some(ErrorKind::ConnectionReset));
        until(2, "the server's session is gone", || listener.endpoint_stats().state.sessions == 0).await;
    }
}

/// Who writes to a peer that dropped its stream learns that nobody reads there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writing_to_a_dropped_stream_is_a_broken_pipe() {
    let config = KcpConfig::builder().extensions(Extensions::Preferred).build().unwrap();
    let Pair { mut client, mut server, listener: _listener } = pair_with(config).await;
    assert_alive(&mut client, &mut server).await;
    drop(server);
    let writing = async {
        loop {
            if let Err(error) = client.write_all(&[0; 10_000]).await {
                return error;
            }
        }
    };
    let error = within(5, "the write fails", writing).await;
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error:?}");
    assert!(KcpError::find(&error).is_some());
}
