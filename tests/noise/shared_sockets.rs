//! Sessions of one socket that agree on keys by different ones.

use std::net::Ipv4Addr;

use kcp9::{
    KcpConfig, KcpEndpoint, KcpStream,
    proto::noise::{Noise, Pattern},
};
use kcp9_tests::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ends::Keys;

const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

fn config(noise: impl Into<Noise>) -> KcpConfig {
    KcpConfig::builder().noise(noise.into()).build().unwrap()
}

async fn accepted(endpoint: &KcpEndpoint) -> KcpStream {
    within(20, "a session", endpoint.accept()).await.unwrap().0
}

async fn say(stream: &mut KcpStream, text: &[u8]) {
    stream.write_all(text).await.unwrap();
}

async fn hear(stream: &mut KcpStream, text: &[u8]) {
    let mut bytes = vec![0; text.len()];
    within(20, "what was said", stream.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(bytes, text);
}

/// Each accepts by keys of its own, so the packets of one address are under two route keys.
#[tokio::test]
async fn ends_that_begin_sessions_with_each_other_find_both_kinds() {
    let (one, other) = (Keys::new(1), Keys::new(2));
    for pattern in Pattern::all() {
        let end = |own: &Keys, peer: &Keys| {
            let noise = Noise::from(own.responder(pattern)).with_initiator(peer.initiator(pattern));
            KcpConfig::builder().noise(noise).build().unwrap()
        };
        let configs = [end(&one, &other), end(&other, &one)];
        let here = KcpEndpoint::bind_accepting(ANY, configs[0].clone()).await.unwrap();
        let there = KcpEndpoint::bind_accepting(ANY, configs[1].clone()).await.unwrap();
        let mut from_here = here.connect(there.local_addr().unwrap(), configs[0].clone()).unwrap();
        let mut from_there = there.connect(here.local_addr().unwrap(), configs[1].clone()).unwrap();
        say(&mut from_here, b"from here").await;
        say(&mut from_there, b"from there").await;
        let mut at_there = accepted(&there).await;
        let mut at_here = accepted(&here).await;
        for _ in 0..20 {
            hear(&mut at_there, b"from here").await;
            hear(&mut at_here, b"from there").await;
            say(&mut at_there, b"heard").await;
            say(&mut at_here, b"heard").await;
            hear(&mut from_here, b"heard").await;
            hear(&mut from_there, b"heard").await;
            say(&mut from_here, b"from here").await;
            say(&mut from_there, b"from there").await;
        }
        for endpoint in [&here, &there] {
            let stats = endpoint.endpoint_stats();
            assert_eq!(stats.dropped.no_session, 0, "{pattern}: {stats:?}");
        }
    }
}

/// Each of these ends a session with a peer of its own, over one socket.
#[tokio::test]
async fn one_socket_has_peers_with_different_keys() {
    let here = KcpEndpoint::bind(ANY).await.unwrap();
    let mut streams = Vec::new();
    for (number, pattern) in (1..).zip(Pattern::all()) {
        let keys = Keys::new(number);
        let there = KcpEndpoint::bind_accepting(ANY, config(keys.responder(pattern))).await.unwrap();
        let stream = here.connect(there.local_addr().unwrap(), config(keys.initiator(pattern))).unwrap();
        streams.push((stream, there));
    }
    // And one without any.
    let plain = KcpEndpoint::bind_accepting(ANY, KcpConfig::default()).await.unwrap();
    streams.push((here.connect(plain.local_addr().unwrap(), KcpConfig::default()).unwrap(), plain));
    let mut pairs = Vec::new();
    for (mut stream, there) in streams {
        say(&mut stream, b"begin").await;
        let accepted = accepted(&there).await;
        pairs.push((stream, accepted, there));
    }
    // In turns, as the key of the last packet's address is remembered.
    for (stream, accepted, _) in &mut pairs {
        hear(accepted, b"begin").await;
        say(accepted, b"heard").await;
        hear(stream, b"heard").await;
    }
    assert_eq!(here.endpoint_stats().dropped.no_session, 0);
}
