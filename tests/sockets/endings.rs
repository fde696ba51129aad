//! How listeners and endpoints end: stop accepting, close, shut down, abort, and waiting until nothing is left.

use std::{
    io::ErrorKind,
    pin::pin,
    time::{Duration, Instant},
};

use kcp9::{
    KcpConfig, KcpEndpoint, KcpError, KcpListener, KcpStream,
    proto::{AbortReason, CloseReason, Extensions},
};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    ANY, ANY_UNSHARED, Pair, accept_session, assert_alive, kind, knock, listen, ms, pair, pair_with,
    read_payload, rebind, until, within, write_payload,
};

fn reason<T>(outcome: std::io::Result<T>) -> Option<KcpError> {
    KcpError::find(&outcome.err()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waited_before_accepting_stopped_is_still_accepted() {
    let listener = listen().await;
    let (mut early, mut early_too) =
        (knock(listener.local_addr().unwrap()).await, knock(listener.local_addr().unwrap()).await);
    until(2, "both wait", || listener.endpoint_stats().driver.accepted == 2).await;
    listener.stop_accepting();
    let late = knock(listener.local_addr().unwrap()).await;
    until(2, "a late one is turned away", || listener.endpoint_stats().dropped.no_session > 0).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(within(1, "one that waited", listener.accept()).await.unwrap().0);
    }
    let end = within(1, "the end", listener.accept()).await;
    assert_eq!((kind(end), listener.endpoint_stats().driver.accepted), (Some(ErrorKind::NotConnected), 2));
    assert_eq!(reason(listener.accept().await), Some(KcpError::ListenerClosed));
    // They live, and the socket still connects.
    for stream in &mut streams {
        assert_eq!(stream.read_u8().await.unwrap(), b'!');
        stream.write_all(b"?").await.unwrap();
    }
    assert_eq!((early.read_u8().await.unwrap(), early_too.read_u8().await.unwrap()), (b'?', b'?'));
    let other = listen().await;
    let client = listener.endpoint().connect(other.local_addr().unwrap(), KcpConfig::default()).unwrap();
    let (mut client, mut server) = accept_session(&other, client).await;
    assert_alive(&mut client, &mut server).await;
    drop(late);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_a_listener_leaves_its_accepted_sessions_alone() {
    let Pair { mut client, mut server, listener } = pair().await;
    let _unaccepted = knock(listener.local_addr().unwrap()).await;
    until(2, "it waits", || listener.endpoint_stats().driver.accepted == 2).await;
    let waiting = listener.accept();
    listener.close();
    assert_eq!(reason(within(1, "accept ends", waiting).await), Some(KcpError::ListenerClosed));
    until(2, "the one that waited is gone", || listener.endpoint_stats().state.sessions == 1).await;
    assert_alive(&mut client, &mut server).await;
    let idle = listener.wait_idle();
    let mut idle = pin!(idle);
    assert!(tokio::time::timeout(ms(50), idle.as_mut()).await.is_err(), "a session lives");
    drop(server);
    within(5, "idle", idle).await;
    assert_eq!(listener.endpoint_stats().state.sessions, 0);
}

/// Nobody has read what it wrote, so that the end of the stream would say too much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_never_accepted_is_reset_when_the_listener_closes() {
    let config = KcpConfig::builder().extensions(Extensions::Preferred).build().unwrap();
    let listener = KcpListener::bind(ANY, config.clone()).await.unwrap();
    let mut client = KcpStream::connect(listener.local_addr().unwrap(), config).await.unwrap();
    client.write_all(b"!").await.unwrap();
    until(2, "it waits", || listener.endpoint_stats().driver.accepted == 1).await;
    listener.close();
    let outcome = within(2, "it is told", client.read_u8()).await;
    assert_eq!(kind(outcome), Some(ErrorKind::ConnectionReset));
    within(1, "nothing is left", listener.wait_idle()).await;
}

/// Idle is what the endpoint is at some moment after the call, and at once if there is nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_an_idle_endpoint() {
    let listener = listen().await;
    within(1, "nothing ever began", listener.wait_idle()).await;
    within(1, "nor since", listener.wait_idle()).await;

    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    for round in 0..200 {
        // Not known to the driver yet, perhaps: it must not count as idle.
        let stream = endpoint.connect(listener.local_addr().unwrap(), KcpConfig::default()).unwrap();
        if round % 50 == 0 {
            let idle = tokio::time::timeout(ms(20), endpoint.wait_idle()).await;
            assert!(idle.is_err(), "idle with a session in round {round}");
        } else {
            let idle = endpoint.wait_idle();
            let mut idle = pin!(idle);
            let early = tokio::time::timeout(Duration::ZERO, idle.as_mut()).await;
            assert!(early.is_err(), "idle with a session in round {round}");
        }
        drop(stream);
        within(2, "idle", endpoint.wait_idle()).await;
    }
    // Many wait, some give up.
    let stream = endpoint.connect(listener.local_addr().unwrap(), KcpConfig::default()).unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for index in 0..100 {
        let endpoint = endpoint.clone();
        waiting.spawn(async move {
            let limit = if index % 2 == 0 { ms(10) } else { Duration::from_secs(5) };
            tokio::time::timeout(limit, endpoint.wait_idle()).await.is_ok()
        });
    }
    tokio::time::sleep(ms(50)).await;
    drop(stream);
    let outcomes = within(5, "all of them", waiting.join_all()).await;
    assert_eq!(outcomes.iter().filter(|idle| **idle).count(), 50);
}

/// A server with megabytes under way ends: everything arrives, on every session, and then no session is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_delivers_what_was_written() {
    const LEN: usize = 1 << 20;
    let listener = listen().await;
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..4 {
        let (client, mut server) = accept_session(&listener, knock_silently(&listener).await).await;
        let reading = spawn(async move {
            let mut client = client;
            read_payload(&mut client, LEN).await.unwrap();
            client
        });
        write_payload(&mut server, LEN).await.unwrap();
        clients.push(reading);
        servers.push(server);
    }
    let begun = Instant::now();
    within(10, "the shutdown", listener.shutdown(Duration::from_secs(8))).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "it waited for the deadline");
    for server in &mut servers {
        assert_eq!(server.close_reason(), Some(KcpError::EndpointClosed));
        assert_eq!(kind(server.read_u8().await), Some(ErrorKind::ConnectionAborted));
        assert_eq!(kind(server.write(b"x").await), Some(ErrorKind::ConnectionAborted));
    }
    for client in clients {
        within(5, "all of it", client).await.unwrap();
    }
    let late = listener.endpoint().connect(listener.local_addr().unwrap(), KcpConfig::default());
    assert_eq!(reason(late), Some(KcpError::EndpointClosed));
    let addr = listener.local_addr().unwrap();
    drop((listener, servers));
    drop(rebind(addr).await);
}

async fn knock_silently(listener: &KcpListener) -> KcpStream {
    KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap()
}

/// Peers of this crate see the end of the stream behind the last byte, also where both ends are shut down at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_is_the_end_of_the_stream_for_peers() {
    const LEN: usize = 300_000;
    let config = KcpConfig::builder().extensions(Extensions::Preferred).build().unwrap();
    let Pair { client, mut server, listener } = pair_with(config).await;
    let reading = spawn(async move {
        let mut client = client;
        read_payload(&mut client, LEN).await.unwrap();
        let end = client.read(&mut [0; 9]).await;
        (client, end)
    });
    write_payload(&mut server, LEN).await.unwrap();
    within(10, "the shutdown", listener.shutdown(Duration::from_secs(8))).await.unwrap();
    assert_eq!(server.close_reason(), Some(KcpError::EndpointClosed));
    let (mut client, end) = within(5, "the end of the stream", reading).await.unwrap();
    assert_eq!(end.unwrap(), 0);
    let error = client.write_all(&[0; 100_000]).await.and(client.flush().await).err();
    let late = client.write(b"x").await.err().or(error).expect("nobody reads there");
    assert!(matches!(late.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{late:?}");
}

/// A peer that is gone keeps a shutdown no longer than its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_aborts_at_its_deadline() {
    // With extensions, the end of an idle session is to be told as well.
    for (extensions, aborted) in [(Extensions::Off, 1), (Extensions::Preferred, 2)] {
        shutdown_aborts(&KcpConfig::builder().extensions(extensions).build().unwrap(), aborted).await;
    }
}

async fn shutdown_aborts(config: &KcpConfig, aborted: usize) {
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let nobody = std::net::UdpSocket::bind(ANY_UNSHARED).unwrap();
    let mut stream = endpoint.connect(nobody.local_addr().unwrap(), config.clone()).unwrap();
    stream.write_all(b"anybody there?").await.unwrap();
    let idle = endpoint.connect(nobody.local_addr().unwrap(), config.clone()).unwrap();
    let begun = Instant::now();
    let outcome = within(5, "the shutdown", endpoint.shutdown(ms(300))).await;
    assert!(begun.elapsed() >= ms(300), "it did not wait");
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(KcpError::find(&error), Some(KcpError::ShutdownTimeout { aborted }));
    assert_eq!(stream.close_reason(), Some(KcpError::EndpointClosed));
    assert_eq!(idle.close_reason(), Some(KcpError::EndpointClosed));
    assert_eq!(endpoint.endpoint_stats().state.sessions, 0);
}

/// Sessions that begin while the endpoint ends, end with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborting_while_sessions_begin_leaves_none() {
    for _ in 0..50 {
        let listener = listen().await;
        let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let beginning = spawn({
            let endpoint = endpoint.clone();
            async move {
                let mut streams = Vec::new();
                loop {
                    match endpoint.connect(addr, KcpConfig::default()) {
                        Ok(mut stream) => {
                            let _ = stream.write_all(b"!").await;
                            streams.push(stream);
                        }
                        Err(error) => return (streams, error),
                    }
                    tokio::task::yield_now().await;
                }
            }
        });
        tokio::time::sleep(Duration::from_micros(500)).await;
        endpoint.abort();
        listener.abort();
        let (streams, error) = within(2, "connecting ends", beginning).await.unwrap();
        assert_eq!(KcpError::find(&error), Some(KcpError::EndpointClosed));
        for stream in &streams {
            let reason = within(2, "the session ends", stream.closed()).await;
            // With extensions, the other end may have told it sooner.
            let told = [CloseReason::AbortedByPeer(AbortReason::EndpointClosed), CloseReason::Refused];
            let is_told = told.into_iter().any(|told| reason == KcpError::Closed(told));
            assert!(reason == KcpError::EndpointClosed || is_told, "{reason:?}");
        }
        within(2, "idle", endpoint.wait_idle()).await;
        within(2, "idle", listener.wait_idle()).await;
    }
}

/// Of an endpoint and its clones, the last one that is dropped ends the accepting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_accepts_as_long_as_a_clone_of_it_is_there() {
    let endpoint = KcpEndpoint::bind_accepting(ANY, KcpConfig::default()).await.unwrap();
    let addr = endpoint.local_addr().unwrap();
    let clone = endpoint.clone();
    drop(endpoint);
    let mut client = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    client.write_all(b"!").await.unwrap();
    let (mut server, _) = within(5, "it is accepted", clone.accept()).await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'!');
    drop(clone);
    let mut late = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    // Unless it was turned away already.
    let _ = late.write_all(b"!").await;
    until(2, "it is turned away", || server.endpoint_stats().dropped.no_session > 0).await;
    assert_alive(&mut client, &mut server).await;
}

/// A listener that is dropped does not accept, although its endpoint stays, and connects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listeners_endpoint_stays_without_the_listener() {
    let listener = listen().await;
    let endpoint = listener.endpoint().clone();
    let accepting = spawn({
        let endpoint = endpoint.clone();
        async move { reason(endpoint.accept().await) }
    });
    tokio::time::sleep(ms(20)).await;
    drop(listener);
    assert_eq!(within(1, "accept ends", accepting).await.unwrap(), Some(KcpError::ListenerClosed));
    let other = listen().await;
    let client = endpoint.connect(other.local_addr().unwrap(), KcpConfig::default()).unwrap();
    let (mut client, mut server) = accept_session(&other, client).await;
    assert_alive(&mut client, &mut server).await;
}

#[tokio::test]
async fn an_endpoint_that_only_connects_says_so() {
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let outcome = endpoint.accept().await;
    assert_eq!(
        (kind(outcome), reason(endpoint.accept().await)),
        (Some(ErrorKind::InvalidInput), Some(KcpError::NotListening))
    );
}

/// A loop that accepts and never waits for anything else lets the other tasks of its thread run, also at the end.
#[test]
fn accepting_takes_part_in_the_budget_of_its_task() {
    let (done, outcome) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = listen().await;
            listener.close();
            // As the loop of a server that ignores errors.
            let spinning = tokio::spawn(async move { while listener.accept().await.is_err() {} });
            for _ in 0..10 {
                tokio::time::sleep(ms(1)).await;
            }
            spinning.abort();
        });
        done.send(()).unwrap();
    });
    outcome.recv_timeout(Duration::from_secs(5)).expect("the loop has the thread for itself");
}
