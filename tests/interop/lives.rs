//! How sessions with kcp-go and ikcp begin, end and die: as far as KCP allows, as between two peers of ours. What it does not allow is in
//! the table of `docs/extensions.md`, section 2.9.

use std::{
    io::ErrorKind,
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpError, KcpListener, KcpStream, proto::CloseReason};
use kcp9_relay::Relay;
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    c_peer::programs,
    echo::{self, payload, within},
    go_peer,
};

const LEN: usize = 1 << 20;
/// Long enough for every packet that is still under way, and for kcp-go to read what it has.
const SETTLE: Duration = Duration::from_secs(1);

/// Settings under which a peer that died is noticed within seconds.
fn attentive() -> KcpConfig {
    let keep_alive = Some(Duration::from_millis(300));
    let builder = KcpConfig::builder().keep_alive(keep_alive).dead_timeout(Duration::from_millis(1_500));
    builder.build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn waiting_for_a_program_to_answer_ends_with_its_answer() {
    for peer in programs() {
        let server = go_peer::serve(&peer, "echo", &[]).await;
        let relay = Relay::lossy(server.addr, 0.2).unwrap();
        for addr in [server.addr, relay.addr()] {
            // Nothing was written: it is asked by WASK.
            let config = KcpConfig::default();
            KcpStream::connect_timeout(addr, config, Duration::from_secs(10)).await.unwrap();
        }
        let addr = server.addr;
        server.report().await;
        tokio::time::sleep(SETTLE).await;
        let outcome = KcpStream::connect_timeout(addr, KcpConfig::default(), Duration::from_secs(2)).await;
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::ConnectionRefused, "{}", peer.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn a_program_that_speaks_first_is_heard() {
    for peer in programs() {
        let server = go_peer::serve(&peer, "echo", &["--greet", "welcome"]).await;
        for loss in [0.0, 0.2] {
            let relay = Relay::lossy(server.addr, loss).unwrap();
            let mut stream = KcpStream::connect(relay.addr(), KcpConfig::default()).await.unwrap();
            let mut greeting = [0; 7];
            within("a greeting", stream.read_exact(&mut greeting)).await.unwrap();
            assert_eq!(&greeting, b"welcome", "{}, loss {loss}", peer.display());
        }
    }
}

/// Everything arrives that was written, with and without `shutdown`, although a fifth of all packets is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn a_program_gets_all_that_a_stream_wrote_which_is_then_dropped() {
    for peer in programs() {
        for shuts_down in [true, false] {
            let server = go_peer::serve(&peer, "echo", &[]).await;
            let relay = Relay::lossy(server.addr, 0.2).unwrap();
            for _ in 0..10 {
                // A socket each: kcp-go ends a session of which it has not read everything when another begins at its address.
                let mut stream = KcpStream::connect(relay.addr(), echo::config()).await.unwrap();
                let handle = stream.handle();
                within("a write", stream.write_all(&payload(LEN / 10))).await.unwrap();
                if shuts_down {
                    within("shutdown", stream.shutdown()).await.unwrap();
                }
                drop(stream);
                let reason = within("it is delivered", handle.closed()).await;
                assert_eq!(reason, KcpError::Closed(CloseReason::Finished));
            }
            tokio::time::sleep(SETTLE).await;
            let what = format!("{}, shuts down: {shuts_down}", peer.display());
            let report = server.report().await;
            assert_eq!((report.sessions(), report.bytes()), (10, LEN as u64 / 10 * 10), "{what}");
        }
    }
}

/// 100 requests of one byte and their answers, each over a session of its own that ends with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn every_exchange_with_a_program_succeeds_through_losses() {
    for peer in programs() {
        let server = go_peer::serve(&peer, "echo", &[]).await;
        let relay = Relay::lossy(server.addr, 0.2).unwrap();
        let addr = relay.addr();
        let exchanges: Vec<_> = (0..100_u8)
            .map(|number| {
                spawn(async move {
                    let mut stream = KcpStream::connect(addr, KcpConfig::default()).await?;
                    stream.write_u8(number).await?;
                    let answer = stream.read_u8().await?;
                    stream.shutdown().await?;
                    std::io::Result::Ok(answer)
                })
            })
            .collect();
        for (number, exchange) in exchanges.into_iter().enumerate() {
            let answer = within("an exchange", exchange).await.unwrap().unwrap();
            assert_eq!(usize::from(answer), number, "{}", peer.display());
        }
        assert_eq!(server.report().await.sessions(), 100, "{}", peer.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn a_quiet_session_with_a_program_lives_and_notices_when_it_is_killed() {
    for peer in programs() {
        let server = go_peer::serve(&peer, "echo", &[]).await;
        let mut stream = KcpStream::connect(server.addr, attentive()).await.unwrap();
        for _ in 0..2 {
            stream.write_u8(1).await.unwrap();
            assert_eq!(within("an echo", stream.read_u8()).await.unwrap(), 1);
            // Twice the time after which it would count as dead.
            tokio::time::sleep(Duration::from_secs(4)).await;
            assert_eq!(stream.close_reason(), None, "{}", peer.display());
        }
        drop(server);
        let begun = Instant::now();
        let error = within("the end", stream.read_u8()).await.unwrap_err();
        // A socket of its own is told that nobody listens any more, which ends nothing by itself.
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{}: {error}", peer.display());
        assert!(begun.elapsed() < Duration::from_secs(5), "{}: {:?}", peer.display(), begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn a_killed_program_is_noticed_by_a_server_that_only_reads() {
    for peer in programs() {
        let listener = KcpListener::bind("127.0.0.1:0", attentive()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let client = go_peer::begin_to_drive(&peer, "sink", addr, &["--bytes", "100000000000"]);
        let (mut stream, _) = within("it connects", listener.accept()).await.unwrap();
        let mut buffer = vec![0; 64 << 10];
        within("data", stream.read(&mut buffer)).await.unwrap();
        drop(client);
        let begun = Instant::now();
        let reading = async {
            loop {
                match stream.read(&mut buffer).await {
                    Ok(0) => panic!("it cannot say an end"),
                    Ok(_) => {}
                    Err(error) => break error,
                }
            }
        };
        let error = within("the end", reading).await;
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{}: {error}", peer.display());
        assert!(begun.elapsed() < Duration::from_secs(8), "{}: {:?}", peer.display(), begun.elapsed());
    }
}
