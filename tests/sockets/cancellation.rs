//! Every future is dropped at every point: no byte is lost, sent twice or delivered out of order.
//!
//! The windows are small, so that calls wait often.

use std::{future::poll_fn, io, net::SocketAddr, pin::pin, sync::Arc, task::Poll};

use kcp9::{KcpConfig, KcpEndpoint, KcpListener, KcpStream, NoDelay};
use kcp9_tests::spawn;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};

use kcp9_simulator::Rng;

use crate::support::{
    EchoServer, PAYLOAD, Pair, assert_alive, assert_payload, echo_payload, listen, ms, pair_with,
    poll_or_drop, rebind, within,
};

fn narrow() -> KcpConfig {
    let fast = NoDelay { interval: ms(1), ..NoDelay::FAST3 };
    KcpConfig::builder().send_window(8).recv_window(8).nodelay(fast).ack_no_delay(true).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_reads_and_writes_lose_nothing() {
    const LEN: usize = 1 << 20;
    let Pair { client, server, listener: _listener } = pair_with(narrow()).await;
    let (_kept, mut writer) = client.into_split();
    let (mut reader, _kept_too) = server.into_split();
    let writing = spawn(async move {
        let mut rng = Rng::new(1);
        let mut bytes = vec![0; LEN];
        PAYLOAD.fill(0, &mut bytes);
        let (mut at, mut cancelled) = (0, 0);
        while at < LEN {
            let end = (at + rng.size(1..=20_000)).min(LEN);
            match poll_or_drop(&mut rng, writer.write(&bytes[at..end])).await {
                Some(count) => at += count.unwrap(),
                None => cancelled += 1,
            }
            if rng.chance(0.1) {
                drop(poll_or_drop(&mut rng, writer.flush()).await);
            }
        }
        writer.flush().await.unwrap();
        (writer, cancelled)
    });
    let reading = async {
        let mut rng = Rng::new(2);
        let mut buffer = vec![0; 20_000];
        let (mut at, mut cancelled) = (0, 0);
        while at < LEN {
            let size = rng.size(1..=buffer.len());
            match poll_or_drop(&mut rng, reader.read(&mut buffer[..size])).await {
                Some(count) => {
                    let count = count.unwrap();
                    assert_payload(at, &buffer[..count]);
                    at += count;
                }
                None => cancelled += 1,
            }
        }
        cancelled
    };
    let reads = within(20, "a transfer whose calls are cancelled", reading).await;
    let (_writer, writes) = writing.await.unwrap();
    assert!(reads > 20 && writes > 5, "only {reads} reads and {writes} writes were cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_sends_and_recvs_lose_nothing() {
    const MESSAGES: usize = 1_000;
    let config = narrow().to_builder().stream(false).build().unwrap();
    let Pair { client, server, listener: _listener } = pair_with(config).await;
    let size = |message: usize| 1 + message * 7 % 5_000;
    let sending = spawn(async move {
        let mut rng = Rng::new(3);
        let (mut message, mut cancelled) = (0, 0);
        while message < MESSAGES {
            let mut bytes = vec![0; size(message)];
            PAYLOAD.fill(message as u64 * 8, &mut bytes);
            match poll_or_drop(&mut rng, client.send(&bytes)).await {
                Some(outcome) => {
                    outcome.unwrap();
                    message += 1;
                }
                None => cancelled += 1,
            }
        }
        (client, cancelled)
    });
    let receiving = async {
        let mut rng = Rng::new(4);
        let (mut message, mut cancelled) = (0, 0);
        while message < MESSAGES {
            match poll_or_drop(&mut rng, server.recv()).await {
                Some(bytes) => {
                    let bytes = bytes.unwrap();
                    assert_eq!(bytes.len(), size(message), "message {message}");
                    assert_eq!(
                        PAYLOAD.first_difference(message as u64 * 8, &bytes),
                        None,
                        "message {message}"
                    );
                    message += 1;
                }
                None => cancelled += 1,
            }
        }
        cancelled
    };
    let recvs = within(20, "messages whose calls are cancelled", receiving).await;
    let (_client, sends) = sending.await.unwrap();
    assert!(recvs > 20 && sends > 20, "only {recvs} recvs and {sends} sends were cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_accept_loses_no_session() {
    const CLIENTS: usize = 200;
    let listener = listen().await;
    let addr = listener.local_addr().unwrap();
    let connecting = spawn(async move {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
            client.write_all(b"!").await.unwrap();
            clients.push(client);
            tokio::time::sleep(ms(1)).await;
        }
        clients
    });
    let accepting = async {
        let mut rng = Rng::new(5);
        let mut servers = Vec::new();
        let mut cancelled = 0;
        while servers.len() < CLIENTS {
            match poll_or_drop(&mut rng, listener.accept()).await {
                Some(outcome) => servers.push(outcome.unwrap().0),
                None => cancelled += 1,
            }
        }
        (servers, cancelled)
    };
    let (mut servers, cancelled) = within(20, "200 clients accepted", accepting).await;
    assert!(cancelled > 20, "only {cancelled} accepts were cancelled");
    let mut clients = connecting.await.unwrap();
    for server in &mut servers {
        assert_eq!(server.read_u8().await.unwrap(), b'!');
        let peer = server.peer_addr().port();
        let client = clients.iter_mut().find(|client| client.local_addr().unwrap().port() == peer).unwrap();
        assert_alive(client, server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_shutdown_can_be_called_again() {
    const LEN: usize = 300_000;
    // More than the receive window, but at most the receive and the send window together.
    const UNREAD: usize = 16_000;
    let Pair { mut client, mut server, listener: _listener } = pair_with(narrow()).await;
    let waited = Arc::new(Notify::new());
    let reading = spawn({
        let waited = Arc::clone(&waited);
        async move {
            let mut bytes = vec![0; LEN];
            server.read_exact(&mut bytes[..LEN - UNREAD]).await.unwrap();
            waited.notified().await;
            server.read_exact(&mut bytes[LEN - UNREAD..]).await.unwrap();
            assert_payload(0, &bytes);
            server
        }
    });
    let closing = async {
        crate::support::write_payload(&mut client, LEN).await?;
        let mut rng = Rng::new(6);
        let mut cancelled = 0;
        loop {
            match poll_or_drop(&mut rng, client.shutdown()).await {
                Some(outcome) => break outcome.map(|()| cancelled),
                None => cancelled += 1,
            }
            if cancelled == 10 {
                waited.notify_one();
            }
        }
    };
    let cancelled: io::Result<u32> =
        within(20, "a shutdown that is cancelled again and again", closing).await;
    assert!(cancelled.unwrap() >= 10);
    within(5, "the reader has everything", reading).await.unwrap();
    within(1, "a further shutdown", client.shutdown()).await.unwrap();
}

/// Polls `future` once, and drops it.
async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Names are looked up on another thread, so these calls wait. A cancelled call keeps no port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_connects_and_binds_leave_no_socket() {
    const ROUNDS: usize = 50;
    let server = EchoServer::over(KcpListener::bind("localhost:0", KcpConfig::default()).await.unwrap());
    let name = format!("localhost:{}", server.addr.port());
    // Below the ports that the system gives to the other tests.
    let own = SocketAddr::new(server.addr.ip(), 20_000 + (std::process::id() % 10_000) as u16);
    let own_name = format!("localhost:{}", own.port());
    let mut rng = Rng::new(7);
    let (mut connects, mut listeners, mut endpoints) = (0, 0, 0);
    let rounds = async {
        for _ in 0..ROUNDS {
            let connect = || KcpStream::connect(name.as_str(), KcpConfig::default());
            let listen = || KcpListener::bind(own_name.as_str(), KcpConfig::default());
            let bind = || KcpEndpoint::bind(own_name.as_str());
            // Cancelled while they wait for the look-up, and at any other time.
            connects += u32::from(poll_once(connect()).await.is_none());
            listeners += u32::from(poll_once(listen()).await.is_none());
            endpoints += u32::from(poll_once(bind()).await.is_none());
            drop(poll_or_drop(&mut rng, connect()).await);
            drop(poll_or_drop(&mut rng, listen()).await);
            drop(poll_or_drop(&mut rng, bind()).await);
        }
    };
    within(20, "calls that are cancelled", rounds).await;
    let cancelled = [connects, listeners, endpoints];
    assert!(cancelled.iter().all(|count| *count > 3), "{cancelled:?} of {ROUNDS} each were cancelled");
    drop(rebind(own).await);
    let client = KcpStream::connect(name.as_str(), KcpConfig::default()).await.unwrap();
    within(5, "an echo after all that", echo_payload(client, 1_000)).await.unwrap();
}
