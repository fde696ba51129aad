//! Requests and answers through a path that loses a fifth of all packets each way.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use kcp9::{KcpConfig, KcpListener, KcpStream, proto::Extensions};
use kcp9_relay::Relay;
use kcp9_simulator::payload::Payload;
use tokio::io::{self, AsyncReadExt, AsyncWriteExt};

use crate::support::{ANY, spawn, until, within};

const EXCHANGES: usize = 100;
const LOSS: f64 = 0.2;
const REQUEST: usize = 3_000;
const ANSWER: usize = 10_000;

/// Who says by the end of the stream where its data ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ends {
    /// Both: the client's `shutdown` ends the request, the server's the answer.
    Shutdown,
    /// Nobody calls it: the lengths are known, and each side drops its stream when it has what it wants.
    Drop,
}

fn bytes(key: usize, len: usize) -> &'static [u8] {
    Payload::new(key as u64).bytes(0, len)
}

async fn answer(mut stream: KcpStream, ends: Ends) -> io::Result<usize> {
    let mut request = vec![0; REQUEST];
    if ends == Ends::Shutdown {
        request.clear();
        stream.read_to_end(&mut request).await?;
        assert_eq!(request.len(), REQUEST);
    } else {
        stream.read_exact(&mut request).await?;
    }
    let number = (0..EXCHANGES).find(|number| bytes(*number, REQUEST) == request).expect("a request");
    stream.write_all(bytes(1_000 + number, ANSWER)).await?;
    if ends == Ends::Shutdown
        && let Err(error) = stream.shutdown().await
    {
        // The client has its answer and has gone, and each of its last ACKs was lost: nobody can tell the server. Seldom.
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        println!("the server does not know whether answer {number} came");
    }
    Ok(number)
}

async fn ask(mut stream: KcpStream, number: usize, ends: Ends) -> io::Result<()> {
    stream.write_all(bytes(number, REQUEST)).await?;
    let mut answer = vec![0; ANSWER];
    if ends == Ends::Shutdown {
        stream.shutdown().await?;
        answer.clear();
        stream.read_to_end(&mut answer).await?;
    } else {
        stream.read_exact(&mut answer).await?;
    }
    assert!(answer == bytes(1_000 + number, ANSWER), "{} bytes of the answer to {number}", answer.len());
    Ok(())
}

async fn exchange(ends: Ends, extensions: Extensions) {
    let config = KcpConfig::builder().extensions(extensions).build().unwrap();
    let listener = Arc::new(KcpListener::bind(ANY, config.clone()).await.unwrap());
    let addr = listener.local_addr().unwrap();
    let relay = Relay::lossy(addr, LOSS).unwrap();
    let answered: Arc<Vec<_>> = Arc::new((0..EXCHANGES).map(|_| AtomicUsize::new(0)).collect());
    let serving = spawn({
        let (listener, answered) = (Arc::clone(&listener), Arc::clone(&answered));
        async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answered = Arc::clone(&answered);
                spawn(async move {
                    let number = answer(stream, ends).await.unwrap();
                    answered[number].fetch_add(1, Ordering::Relaxed);
                });
            }
        }
    });
    let asking: Vec<_> = (0..EXCHANGES)
        .map(|number| {
            let (addr, config) = (relay.addr(), config.clone());
            spawn(async move { ask(KcpStream::connect(addr, config).await?, number, ends).await })
        })
        .collect();
    for (number, asked) in asking.into_iter().enumerate() {
        let done = within(60, "an exchange", asked).await.unwrap();
        done.unwrap_or_else(|error| panic!("{ends:?}, exchange {number}: {error}"));
    }
    // A dropped stream that never hears that all of it came waits until `linger`: its peer may be gone.
    if ends == Ends::Shutdown {
        until(60, "no session is left", || listener.endpoint_stats().state.sessions == 0).await;
    }
    let all = || answered.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>() >= EXCHANGES;
    until(60, "everything is answered", all).await;
    // Each was answered once: nothing that was resent began another session.
    let counts: Vec<_> = answered.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    assert_eq!(counts, [1; EXCHANGES], "{ends:?}");
    assert_eq!(listener.endpoint_stats().driver.accepted, EXCHANGES as u64, "{ends:?}");
    assert!(relay.counts().dropped() > 250, "{:?}", relay.counts());
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_exchange_that_ends_with_shutdown_succeeds_through_losses() {
    exchange(Ends::Shutdown, Extensions::Preferred).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_exchange_that_ends_with_dropped_streams_succeeds_through_losses() {
    exchange(Ends::Drop, Extensions::Preferred).await;
}

/// What was written before the drop arrives between peers that tell no ends as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_exchange_succeeds_through_losses_without_extensions() {
    exchange(Ends::Drop, Extensions::Off).await;
}
