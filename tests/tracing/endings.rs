//! Sessions over real sockets, with the spans that their events are in.

use std::{collections::BTreeMap, time::Duration};

use kcp9::{
    KcpConfig, KcpConfigBuilder, KcpListener, KcpStream,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{Command, SegmentHeader},
};
use kcp9_tests::{
    collector::{Collector, Recorded},
    within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::Level;

use crate::{named, secrets, table};

const KEY: &[u8; 32] = b"0123456789abcdefFEDCBA9876543210";
const PAYLOAD: &[u8] = b"what only the two ends may know";

fn sealed() -> KcpConfigBuilder {
    let cipher = CipherKind::Aes256Gcm.build(&Key::from_bytes(KEY), Framing::KcpGo).unwrap();
    KcpConfig::builder().crypto(PacketCrypto::with_os_nonces(cipher).unwrap())
}

async fn session(listener: &KcpListener, config: KcpConfig) -> (KcpStream, KcpStream) {
    let mut client = KcpStream::connect(listener.local_addr().unwrap(), config).await.unwrap();
    client.write_all(PAYLOAD).await.unwrap();
    let (mut server, _) = within(5, "a session", listener.accept()).await.unwrap();
    let mut read = [0; PAYLOAD.len()];
    within(5, "the payload", server.read_exact(&mut read)).await.unwrap();
    client.connected(Duration::from_secs(5)).await.unwrap();
    until("it is validated", || listener.endpoint_stats().state.half_open == 0).await;
    (client, server)
}

pub async fn until(what: &str, mut condition: impl FnMut() -> bool + Send) {
    within(10, what, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Runs on this thread, where the collector is.
pub fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// The sessions' spans of events, by role.
fn roles(events: &[&Recorded]) -> BTreeMap<String, usize> {
    let mut roles = BTreeMap::new();
    for event in events {
        let span = event.spans.last().unwrap_or_else(|| panic!("no span around {event:?}"));
        *roles.entry(span.fields["role"].clone()).or_default() += 1;
    }
    roles
}

/// One session that moves to another socket and ends, and one that its listener ends.
pub fn sessions_over_sockets() -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let (conv, client_addr, server_addr, accepted) = run(async {
        let listener = KcpListener::bind("127.0.0.1:0", sealed().build().unwrap()).await.unwrap();
        let server_addr = listener.local_addr().unwrap();
        let (mut client, mut server) = session(&listener, sealed().build().unwrap()).await;
        let (conv, client_addr) = (client.conv(), client.local_addr().unwrap());
        client.rebind(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        until("the server follows", || server.stats().extensions.moves == 1).await;
        until("the client knows", || client.stats().extensions.moves == 1).await;
        within(5, "the client's end", client.shutdown()).await.unwrap();
        within(5, "the server's end", server.shutdown()).await.unwrap();
        drop((client, server));
        let (mut client, _server) = session(&listener, sealed().build().unwrap()).await;
        listener.abort();
        within(5, "it is ended", client.read_u8()).await.unwrap_err();
        until("all are gone", || listener.endpoint_stats().state.sessions == 0).await;
        (conv, client_addr, server_addr, listener.endpoint_stats().driver.accepted)
    });
    let events = collector.take();
    table::check(&events);

    // All that is of a session is in its span, inside of that of its endpoint.
    let (connects, accepts) = ("connects".to_owned(), "accepts".to_owned());
    let two = BTreeMap::from([(connects.clone(), 2), (accepts.clone(), 2)]);
    assert_eq!(roles(&named(&events, "opened")), two);
    assert_eq!(roles(&named(&events, "opened"))["accepts"] as u64, accepted);
    assert_eq!(roles(&named(&events, "ended")), two);
    assert_eq!(roles(&named(&events, "connected")), BTreeMap::from([(connects.clone(), 2)]));
    assert_eq!(roles(&named(&events, "validated")), BTreeMap::from([(accepts.clone(), 2)]));
    assert_eq!(roles(&named(&events, "rebound")), BTreeMap::from([(connects.clone(), 1)]));
    assert_eq!(roles(&named(&events, "peer_moved")), BTreeMap::from([(accepts.clone(), 1)]));
    assert_eq!(roles(&named(&events, "failed")), BTreeMap::from([(accepts, 1)]));
    assert!(named(&events, "failed")[0].field("reason").contains("EndpointClosed"));
    let opened = named(&events, "opened");
    let of_client = opened.iter().find(|event| event.spans[1].fields["role"] == connects).unwrap();
    let [endpoint, session] = &of_client.spans[..] else { panic!("{of_client:?}") };
    assert_eq!((endpoint.name, session.name), ("endpoint", "session"));
    assert!(endpoint.fields["local"].ends_with(&format!(":{}", client_addr.port())), "{endpoint:?}");
    assert_eq!(session.fields["conv"], conv.to_string());
    assert_eq!(session.fields["peer"], server_addr.to_string());
    let reasons: Vec<_> = named(&events, "ended").iter().map(|event| event.field("reason")).collect();
    assert_eq!(reasons.iter().filter(|reason| **reason == "Finished").count(), 2, "{reasons:?}");
    assert_eq!(named(&events, "all_dropped").len(), 0);
    secrets::assert_says_none(&events, &[PAYLOAD, KEY]);
    assert_eq!(collector.spans(), 0, "spans end with what they are of");
    events
}

#[test]
fn sessions_say_what_becomes_of_them_inside_of_their_spans() {
    sessions_over_sockets();
}

/// One end has FEC: the other warns, once.
pub fn fec_of_one_end() -> Vec<Recorded> {
    let collector = Collector::begin(Level::DEBUG);
    run(async {
        let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await.unwrap();
        let config = KcpConfig::builder().fec(10, 3).build().unwrap();
        let (mut client, mut server) = session(&listener, config).await;
        let (write, mut read) = (vec![7; 300_000], vec![0; 300_000]);
        let (written, _) = within(10, "all arrives", async {
            tokio::join!(client.write_all(&write), server.read_exact(&mut read))
        })
        .await;
        written.unwrap();
        assert_eq!(server.stats().fec.peer_changes, 1);
    });
    let events = collector.take();
    table::check(&events);
    let [warning] = named(&events, "fec_mismatch")[..] else { panic!("not one warning: {events:?}") };
    assert_eq!(warning.field("cause"), "other_shards");
    let numbers = ["data", "parity", "peer_data", "peer_parity"].map(|field| warning.number(field));
    assert_eq!(numbers, [0, 0, 10, 3]);
    assert_eq!(warning.spans.last().unwrap().fields["role"], "accepts");
    events
}

#[test]
fn fec_at_one_end_only_is_a_warning() {
    fec_of_one_end();
}

/// Parity whose numbers fit no group size: the end that gets it warns, once.
pub fn fec_of_no_code() -> Vec<Recorded> {
    const CONV: u32 = 7;
    const PARITY: u32 = 1_400;
    let collector = Collector::begin(Level::DEBUG);
    run(async {
        let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await.unwrap();
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.connect(listener.local_addr().unwrap()).unwrap();
        let header =
            SegmentHeader { conv: CONV, cmd: Command::Push, frg: 0, wnd: 32, ts: 1, sn: 0, una: 0, len: 1 };
        peer.send(&[&header.to_bytes()[..], b"!"].concat()).unwrap();
        let (server, _) = within(5, "a session", listener.accept()).await.unwrap();
        for number in 0..PARITY {
            let header = [&number.to_le_bytes()[..], &[0xf2, 0], &[0; 2], &CONV.to_le_bytes()];
            peer.send(&[&header.concat()[..], &[0x55; 40]].concat()).unwrap();
            // No more at a time than a socket has room for.
            if number % 50 == 49 {
                until("they are read", || server.stats().fec.parity_received > u64::from(number)).await;
            }
        }
        assert!(server.stats().fec_state.undecodable);
    });
    let events = collector.take();
    table::check(&events);
    let [warning] = named(&events, "fec_mismatch")[..] else { panic!("not one warning: {events:?}") };
    assert_eq!((warning.field("cause"), warning.field("conv")), ("undecodable", "7"));
    events
}

#[test]
fn fec_of_no_code_is_a_warning() {
    fec_of_no_code();
}

/// A filter that leaves spans of sessions out takes no memory for them, and warnings say whom they are about.
#[test]
fn warnings_come_without_the_spans_of_sessions() {
    let collector = Collector::begin(Level::WARN);
    run(async {
        let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await.unwrap();
        let _session = session(&listener, KcpConfig::default()).await;
        assert_eq!(collector.spans(), 0);
    });
    assert!(collector.take().is_empty());
}
