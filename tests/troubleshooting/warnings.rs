//! What is logged in these cases: the column of the page that says so. One thread, as the collector of events hears one.

use std::net::UdpSocket;

use kcp9::{
    KcpConfig, KcpEndpoint, KcpListener,
    crypto::{CipherKind, Framing},
    proto::{
        CookiePolicy, Extensions,
        noise::{Initiator, Responder},
    },
};
use kcp9_tests::collector::{Collector, Recorded};
use tokio::io::AsyncWriteExt;
use tracing::Level;

use crate::{
    fec::{exchange, with_fec},
    key_agreement::{agreeing, psk},
    keys::{KEY, OTHER_KEY, clear, with, with_key},
    limits::send_first_packet,
    support::{ANY, connect, impatient, listen, ms, session, until},
};

/// The warnings that have come, but those of strangers: a program that has just ended may have had the port, and peers who go on.
fn taken(collector: &Collector) -> Vec<Recorded> {
    let mut warnings = collector.take();
    warnings.retain(|warning| warning.field("peer").starts_with("127.0.0.1:"));
    warnings
}

/// Has a client try until its server has warned, and some time longer: it warns once, for this cause. Returns the warning.
async fn assert_warned_once(listener: &KcpListener, client: KcpConfig, cause: &str) -> Recorded {
    let collector = Collector::begin(Level::WARN);
    let mut stream = connect(listener, client).await;
    let mut warnings = Vec::new();
    let peer = stream.local_addr().unwrap().port();
    let _ = stream.write_all(&[7; 3_000]).await;
    until(10, cause, || {
        warnings.extend(taken(&collector));
        !warnings.is_empty()
    })
    .await;
    tokio::time::sleep(ms(700)).await;
    // A second client of the address is no news.
    let mut second = connect(listener, clear()).await;
    let _ = second.write_all(&[7; 3_000]).await;
    tokio::time::sleep(ms(700)).await;
    warnings.extend(taken(&collector));
    warnings.retain(|warning| warning.field("cause") == cause);
    let [warning] = &warnings[..] else { panic!("not one warning for {cause}: {warnings:?}") };
    assert_eq!((warning.name, warning.level), ("all_dropped", Level::WARN));
    assert!(warning.field("peer").ends_with(&format!(":{peer}")), "{warning:?}");
    warning.clone()
}

async fn assert_undecryptable(server: KcpConfig, client: KcpConfig) {
    let warning = assert_warned_once(&listen(server).await, client, "undecryptable").await;
    assert!(warning.text.contains("are key, cipher and framing the same at both ends?"), "{warning:?}");
}

#[tokio::test]
async fn a_wrong_key_is_logged_once() {
    for (kind, framing) in [
        (CipherKind::Aes256Gcm, Framing::KcpGo),
        (CipherKind::Aes256, Framing::KcpGo),
        (CipherKind::Aes256, Framing::Highway),
    ] {
        assert_undecryptable(with_key(kind, framing, KEY), with_key(kind, framing, OTHER_KEY)).await;
    }
}

#[tokio::test]
async fn a_wrong_cipher_is_logged_once() {
    assert_undecryptable(with(CipherKind::Aes256Gcm), with(CipherKind::ChaCha20Poly1305)).await;
    assert_undecryptable(with(CipherKind::Aes256), with(CipherKind::Salsa20)).await;
}

#[tokio::test]
async fn a_wrong_framing_is_logged_once() {
    let cipher = |framing| with_key(CipherKind::Aes256, framing, KEY);
    assert_undecryptable(cipher(Framing::Highway), cipher(Framing::KcpGo)).await;
    assert_undecryptable(cipher(Framing::KcpGo), cipher(Framing::Highway)).await;
}

/// A client with this key and the default patience: an impatient one would give up behind three messages.
fn asking(key: u8) -> KcpConfig {
    KcpConfig::builder().noise(Initiator::nn_psk0(psk(key))).build().unwrap()
}

/// Keys that are agreed on at one end only.
#[tokio::test]
async fn an_end_that_alone_agrees_on_keys_is_logged_once() {
    let server = agreeing(Responder::nn_psk0(psk(1)));
    for (server, client) in [(server, clear()), (clear(), asking(1))] {
        let warning = assert_warned_once(&listen(server).await, client, "no_session").await;
        assert!(warning.text.contains("are keys agreed on at one end only"), "{warning:?}");
    }
}

#[tokio::test]
async fn keys_that_differ_in_an_agreement_are_logged_once() {
    let server = listen(agreeing(Responder::nn_psk0(psk(1)))).await;
    let warning = assert_warned_once(&server, asking(2), "no_agreement").await;
    assert!(warning.text.contains("its messages of key agreement are refused"), "{warning:?}");
}

/// Both ends connect, with another conv each: either logs it of the other.
#[tokio::test]
async fn another_conv_is_logged_once_at_each_end() {
    let collector = Collector::begin(Level::WARN);
    let ends = [KcpEndpoint::bind(ANY).await.unwrap(), KcpEndpoint::bind(ANY).await.unwrap()];
    let addrs = [0, 1].map(|end: usize| ends[end].local_addr().unwrap());
    let _streams = [(0, 7), (1, 8)]
        .map(|(end, conv)| ends[end].connect_with_conv(addrs[1 - end], conv, clear()).unwrap());
    let mut warnings = Vec::new();
    until(10, "both have warned", || {
        warnings.extend(taken(&collector));
        warnings.len() >= 2
    })
    .await;
    tokio::time::sleep(ms(700)).await;
    warnings.extend(taken(&collector));
    assert!(warnings.iter().all(|warning| warning.field("cause") == "no_session"), "{warnings:?}");
    let mut peers: Vec<_> = warnings.iter().map(|warning| warning.field("peer").to_owned()).collect();
    let mut expected = addrs.map(|addr| addr.to_string());
    peers.sort();
    expected.sort();
    assert_eq!(peers, expected, "one of each");
}

#[tokio::test]
async fn a_server_that_alone_encrypts_logs_it_once() {
    assert_undecryptable(with(CipherKind::Aes256Gcm), clear()).await;
}

/// A client that alone encrypts sends noise, and so does one that goes on with a session from before a restart.
#[tokio::test]
async fn a_client_that_alone_encrypts_is_logged_once() {
    let warning = assert_warned_once(&listen(clear()).await, with(CipherKind::Aes256), "no_session").await;
    assert!(warning.text.contains("is a cipher set at its end only"), "{warning:?}");
}

#[tokio::test]
async fn extensions_that_a_peer_lacks_are_logged_once() {
    let server = listen(impatient().extensions(Extensions::Required).build().unwrap()).await;
    let legacy = impatient().extensions(Extensions::Off).build().unwrap();
    assert_warned_once(&server, legacy, "no_hello").await;
}

#[tokio::test]
async fn cookies_that_a_peer_cannot_return_are_logged_once() {
    let server = listen(impatient().cookies(CookiePolicy::Always).build().unwrap()).await;
    let legacy = impatient().extensions(Extensions::Off).build().unwrap();
    assert_warned_once(&server, legacy, "no_cookie").await;
}

#[tokio::test]
async fn limits_that_are_reached_are_logged_once() {
    let one = listen(KcpConfig::builder().max_sessions(1).build().unwrap()).await;
    let _first = session(&one, KcpConfig::default()).await;
    let legacy = || KcpConfig::builder().extensions(Extensions::Off).build().unwrap();
    until(5, "the first one is validated", || one.endpoint_stats().state.half_open == 0).await;
    assert_warned_once(&one, legacy(), "max_sessions").await;

    let backlog = listen(KcpConfig::builder().accept_backlog(1).build().unwrap()).await;
    let _first = connect(&backlog, KcpConfig::default()).await;
    until(5, "it waits", || backlog.endpoint_stats().driver.accepted == 1).await;
    assert_warned_once(&backlog, legacy(), "backlog").await;
}

/// Sessions that never show that they hear the server hold all places, and a client comes again and again.
#[tokio::test]
async fn too_many_half_open_sessions_are_logged_once() {
    let all = KcpConfig::builder().max_half_open(2).build().unwrap();
    let network = KcpConfig::builder().max_half_open_of_network(2).build().unwrap();
    for (config, cause) in [(all, "max_half_open"), (network, "max_half_open_of_network")] {
        let listener = listen(config).await;
        let collector = Collector::begin(Level::WARN);
        let deaf = UdpSocket::bind(ANY).unwrap();
        let client = UdpSocket::bind(ANY).unwrap();
        let mut warnings = Vec::new();
        for _ in 0..20 {
            for (socket, conv) in [(&deaf, 1), (&deaf, 2), (&client, 3)] {
                send_first_packet(socket, &listener, conv);
            }
            tokio::time::sleep(ms(100)).await;
            warnings.extend(taken(&collector));
        }
        let [warning] = &warnings[..] else { panic!("not one warning for {cause}: {warnings:?}") };
        assert_eq!((warning.name, warning.field("cause")), ("all_dropped", cause));
        let port = client.local_addr().unwrap().port();
        assert!(warning.field("peer").ends_with(&format!(":{port}")), "{warning:?}");
    }
}

/// Something else than KCP: a scan is no client, and a program that goes on is.
#[tokio::test]
async fn something_else_is_logged_when_it_goes_on() {
    let listener = listen(KcpConfig::default()).await;
    let collector = Collector::begin(Level::WARN);
    let stranger = UdpSocket::bind(ANY).unwrap();
    for _ in 0..3 {
        stranger.send_to(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", listener.local_addr().unwrap()).unwrap();
    }
    until(5, "they are dropped", || listener.endpoint_stats().dropped.no_session == 3).await;
    assert!(collector.take().is_empty());
    tokio::time::sleep(ms(600)).await;
    stranger.send_to(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", listener.local_addr().unwrap()).unwrap();
    let mut warnings = Vec::new();
    until(5, "it goes on", || {
        warnings.extend(taken(&collector));
        !warnings.is_empty()
    })
    .await;
    assert_eq!(warnings[0].field("cause"), "no_session");
}

#[tokio::test]
async fn fec_that_differs_is_logged_once_at_each_end_that_sees_it() {
    let collector = Collector::begin(Level::WARN);
    let _ends = exchange(with_fec(10, 3), with_fec(5, 2)).await;
    let warnings = collector.take();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let shards = |warning: &Recorded, fields: [&str; 2]| fields.map(|field| warning.number(field));
    let (own, peer) = (["data", "parity"], ["peer_data", "peer_parity"]);
    assert!(warnings.iter().all(|warning| {
        (warning.name, warning.field("cause")) == ("fec_mismatch", "other_shards")
            && [shards(warning, own), shards(warning, peer)].iter().all(|one| [[10, 3], [5, 2]].contains(one))
            && shards(warning, own) != shards(warning, peer)
    }));

    drop(exchange(with_fec(10, 3), with_fec(0, 0)).await);
    let warnings = collector.take();
    assert_eq!(warnings.len(), 1, "the end without FEC: {warnings:?}");
    assert_eq!((shards(&warnings[0], own), shards(&warnings[0], peer)), ([0, 0], [10, 3]));

    drop(exchange(with_fec(10, 3), with_fec(10, 3)).await);
    assert!(collector.take().is_empty());
}
