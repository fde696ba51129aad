//! Clients whose NAT takes another port while their sessions go on.

use std::time::Duration;

use kcp9::{
    KcpConfig, KcpConfigBuilder, KcpError, KcpListener, KcpStream, crypto::CipherKind, proto::Extensions,
};
use kcp9_relay::Relay;
use kcp9_simulator::LinkSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    crypto::{KEY, crypto},
    support::{assert_alive, kind, listen_with, ms, read_payload, until, within, write_payload},
};

fn settings() -> KcpConfigBuilder {
    KcpConfig::builder().extensions(Extensions::Preferred)
}

fn sealed() -> KcpConfigBuilder {
    settings().crypto(crypto(CipherKind::Aes128Gcm, kcp9::crypto::Framing::KcpGo, KEY))
}

/// A session through a NAT, whose path has a limit.
struct Natted {
    relay: Relay,
    listener: KcpListener,
    client: KcpStream,
    server: KcpStream,
}

async fn natted(server: KcpConfig, client: KcpConfig) -> Natted {
    let listener = listen_with(server).await;
    let path = LinkSettings::delay(ms(5)).rate(4_000_000, 200_000);
    let relay = Relay::start(listener.local_addr().unwrap(), &path, 1).unwrap();
    let mut client = KcpStream::connect(relay.addr(), client).await.unwrap();
    client.write_u8(1).await.unwrap();
    let (mut server, _) = within(5, "it is accepted", listener.accept()).await.unwrap();
    within(5, "the first byte", server.read_u8()).await.unwrap();
    assert_alive(&mut client, &mut server).await;
    Natted { relay, listener, client, server }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_in_both_directions_goes_on_when_the_nat_takes_another_port() {
    const LEN: usize = 4_000_000;
    let config = sealed().build().unwrap();
    let Natted { relay, listener, client, server } = natted(config.clone(), config).await;
    let (handle, peer) = (server.handle(), server.peer_addr());
    let (mut from_server, mut to_server) = client.into_split();
    let (mut from_client, mut to_client) = server.into_split();
    let transfer = async {
        tokio::try_join!(
            write_payload(&mut to_server, LEN),
            write_payload(&mut to_client, LEN),
            read_payload(&mut from_server, LEN),
            read_payload(&mut from_client, LEN),
            async {
                for moves in 1..=2 {
                    tokio::time::sleep(ms(200)).await;
                    relay.change_ports();
                    until(20, "the server follows", || handle.stats().extensions.moves == moves).await;
                }
                Ok(())
            },
        )
    };
    within(60, "everything arrives", transfer).await.unwrap();
    assert_ne!(handle.peer_addr(), peer);
    assert_eq!(handle.peer_addr().ip(), peer.ip());
    let stats = listener.endpoint_stats();
    assert_eq!((stats.driver.accepted, stats.state.sessions), (1, 1), "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_only_receives_is_found_again_by_its_keep_alive() {
    let config = sealed().keep_alive(Some(Duration::from_secs(1))).build().unwrap();
    let Natted { relay, client: mut reader, mut server, listener: _listener } =
        natted(config.clone(), config).await;
    relay.change_ports();
    server.write_all(b"are you there?").await.unwrap();
    let mut out = [0; 14];
    within(20, "what the server wrote", reader.read_exact(&mut out)).await.unwrap();
    assert_eq!(&out, b"are you there?");
    assert_eq!(server.stats().extensions.moves, 1);
    assert_alive(&mut reader, &mut server).await;
}

/// Nothing else would tell: nothing is written, and nobody asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_says_so_is_followed_at_once() {
    let config = sealed().keep_alive(None).build().unwrap();
    let Natted { relay, mut client, mut server, listener: _listener } = natted(config.clone(), config).await;
    for moves in 1..=3 {
        relay.change_ports();
        client.handle().network_changed().unwrap();
        let begin = std::time::Instant::now();
        until(10, "the server follows", || server.stats().extensions.moves == moves).await;
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        assert_alive(&mut client, &mut server).await;
    }
    let error = server.network_changed().unwrap_err();
    assert_eq!(KcpError::find(&error), Some(KcpError::NotFollowed), "the client began the session");
    client.abort();
    assert_eq!(kind(client.network_changed()), Some(std::io::ErrorKind::ConnectionAborted));
}

/// Without a cipher that authenticates, and with a peer that has no extensions, the session ends as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_is_followed() {
    let off = || sealed().extensions(Extensions::Off);
    let cases = [
        ("no cipher", settings(), settings()),
        ("no authentication", settings().crypto(aes()), settings().crypto(aes())),
        ("a server without extensions", off(), sealed()),
        ("a client without extensions", sealed(), off()),
    ];
    let cases = cases.map(|(name, server, client)| async move {
        let short = |config: KcpConfigBuilder| config.dead_timeout(Duration::from_secs(2)).build().unwrap();
        let Natted { relay, mut client, server, listener: _listener } =
            natted(short(server), short(client)).await;
        let peer = server.peer_addr();
        relay.change_ports();
        client.write_all(b"are you there?").await.unwrap();
        let error = client.network_changed().unwrap_err();
        assert_eq!(KcpError::find(&error), Some(KcpError::NotFollowed), "{name}");
        let outcome = within(20, name, client.read_u8()).await;
        assert!(kind(outcome).is_some(), "{name}");
        assert_eq!((server.peer_addr(), server.stats().extensions.moves), (peer, 0), "{name}");
    });
    let [a, b, c, d] = cases;
    tokio::join!(a, b, c, d);
}

fn aes() -> kcp9::crypto::PacketCrypto {
    crypto(CipherKind::Aes128, kcp9::crypto::Framing::KcpGo, KEY)
}
