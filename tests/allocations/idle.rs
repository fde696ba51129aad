//! What an idle session takes: of the connection, its route, its timers and its stream, at both ends together.

use std::time::Duration;

use kcp9::{KcpConfig, KcpEndpoint, KcpListener, KcpStream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Builder,
};

/// Just below a power of two: tables of sessions that double have little room left.
const SESSIONS: usize = 1_000;
/// Behind the second after which an idle session gives back what it kept for further traffic.
const QUIET: Duration = Duration::from_millis(2_500);
/// Its span, and the mode of its congestion controller: docs/tracing.md.
const TRACED: usize = if cfg!(feature = "tracing") { 64 } else { 0 };

/// Heap bytes of a session and the one at its other end, which have moved `traffic` bytes each way.
fn bytes_of_a_pair(config: &KcpConfig, traffic: usize) -> usize {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (listener, endpoint) = runtime.block_on(async {
        let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await.unwrap();
        (listener, KcpEndpoint::bind("127.0.0.1:0").await.unwrap())
    });
    // What the sockets and their drivers need for the first session is not counted.
    let mut streams = runtime.block_on(pairs(&listener, &endpoint, config, traffic, 1));
    let info = allocation_counter::measure(|| {
        let more = runtime.block_on(async {
            let streams = pairs(&listener, &endpoint, config, traffic, SESSIONS).await;
            tokio::time::sleep(QUIET).await;
            streams
        });
        streams.extend(more);
    });
    runtime.block_on(async {
        for (client, server) in &mut streams {
            client.write_u8(2).await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), 2);
        }
    });
    usize::try_from(info.bytes_current).unwrap() / SESSIONS
}

/// Sessions that have moved `traffic` bytes each way.
async fn pairs(
    listener: &KcpListener,
    endpoint: &KcpEndpoint,
    config: &KcpConfig,
    traffic: usize,
    count: usize,
) -> Vec<(KcpStream, KcpStream)> {
    let addr = listener.local_addr().unwrap();
    let mut pairs = Vec::with_capacity(count);
    let (data, mut buffer) = (vec![1; traffic], vec![0; traffic]);
    for _ in 0..count {
        let mut client = endpoint.connect(addr, config.clone()).unwrap();
        client.write_all(&data).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.read_exact(&mut buffer).await.unwrap();
        server.write_all(&data).await.unwrap();
        client.read_exact(&mut buffer).await.unwrap();
        pairs.push((client, server));
    }
    pairs
}

fn assert_at_most(limit: usize, config: &KcpConfig) {
    for traffic in [1, 40_000] {
        let bytes = bytes_of_a_pair(config, traffic) / 2;
        println!("{bytes} bytes, behind {traffic} each way");
        assert!(bytes <= limit, "{bytes} bytes, behind {traffic} each way");
    }
}

#[test]
fn an_idle_session_takes_three_kib() {
    assert_at_most((3 << 10) + TRACED, &KcpConfig::default());
}

#[cfg(all(feature = "kcptun-ciphers", feature = "aead"))]
#[test]
fn an_idle_session_with_replay_windows_takes_five_kib() {
    assert_at_most(5 << 10, &crate::settings::sealed());
}

/// Each end has the keys of its session. Both ciphers take the same: `noise.rs`.
#[cfg(feature = "noise")]
#[test]
fn an_idle_session_with_keys_of_its_own_takes_three_kib() {
    use kcp9::proto::noise::{Initiator, Noise, Psk, Responder};

    let psk = || Psk::from_bytes(&[1; 32]);
    let noise = Noise::from(Responder::nn_psk0(psk())).with_initiator(Initiator::nn_psk0(psk()));
    assert_at_most((3 << 10) + TRACED, &KcpConfig::builder().noise(noise).build().unwrap());
}

/// It has the peer's static key and the reset key, too.
#[cfg(feature = "noise")]
#[test]
fn an_idle_session_whose_ends_show_their_keys_takes_three_kib() {
    use kcp9::proto::noise::{Initiator, KeyPair, Noise, Responder, Trust};

    let keys = || KeyPair::from_secret_bytes(&[2; 32]);
    let noise =
        Noise::from(Responder::xx(keys(), Trust::any())).with_initiator(Initiator::xx(keys(), Trust::any()));
    assert_at_most((3 << 10) + TRACED, &KcpConfig::builder().noise(noise).build().unwrap());
}
