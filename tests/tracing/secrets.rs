//! That nothing is said of payload, keys, cookies and nonces.

use std::sync::{Arc, Mutex};

use kcp9::{
    CookiePolicy, KcpConfig, KcpConfigBuilder, KcpListener, KcpStream,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{
        Random,
        noise::{Initiator, KeyPair, Psk, Responder, Trust},
    },
};
use kcp9_relay::{Direction, Relay};
use kcp9_simulator::Rng;
use kcp9_tests::{
    collector::{Collector, Recorded},
    within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::Level;

use crate::{endings, named, table};

const PAYLOAD: &[u8] = b"what only the two ends may know";

/// Panics if events or their spans have eight bytes of a secret in them: as letters, as a list or in hexadecimal digits, or as a number.
pub fn assert_says_none(events: &[Recorded], secrets: &[&[u8]]) {
    let said = format!("{events:?}");
    for part in secrets.iter().flat_map(|secret| secret.windows(8)) {
        let hex: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
        let list = format!("{part:?}");
        let eight: [u8; 8] = part.try_into().unwrap();
        let numbers = [u64::from_le_bytes(eight).to_string(), u64::from_be_bytes(eight).to_string()];
        let mut forms = vec![hex.to_uppercase(), hex, list.trim_matches(['[', ']']).to_owned()];
        forms.extend(numbers);
        forms.extend(String::from_utf8(part.to_vec()));
        for form in forms {
            assert!(!said.contains(&form), "{form}");
        }
    }
}

/// What a session says whose client must return a cookie, and the packets of it.
fn session(server: KcpConfigBuilder, client: KcpConfigBuilder) -> (Vec<Recorded>, Vec<(Direction, Vec<u8>)>) {
    let collector = Collector::begin(Level::TRACE);
    let packets = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&packets);
    endings::run(async {
        let config = server.cookies(CookiePolicy::Always).build().unwrap();
        let listener = KcpListener::bind("127.0.0.1:0", config).await.unwrap();
        let rewrite = move |direction, packet: &[u8], out: &mut Vec<Vec<u8>>| {
            seen.lock().unwrap().push((direction, packet.to_vec()));
            out.push(packet.to_vec());
        };
        let relay = Relay::rewriting(listener.local_addr().unwrap(), Box::new(rewrite)).unwrap();
        let mut client = KcpStream::connect(relay.addr(), client.build().unwrap()).await.unwrap();
        client.write_all(PAYLOAD).await.unwrap();
        let (mut server, _) = within(5, "a session", listener.accept()).await.unwrap();
        within(5, "the payload", server.read_exact(&mut [0; PAYLOAD.len()])).await.unwrap();
        within(5, "the client's end", client.shutdown()).await.unwrap();
        within(5, "the server's end", server.shutdown()).await.unwrap();
        drop((client, server));
        endings::until("all are gone", || listener.endpoint_stats().state.sessions == 0).await;
    });
    let events = collector.take();
    table::check(&events);
    let refused = named(&events, "refused");
    assert!(!refused.is_empty() && refused.iter().all(|event| event.field("cause") == "no_cookie"));
    assert_eq!(named(&events, "ended").len(), 2, "{events:?}");
    let packets = std::mem::take(&mut *packets.lock().unwrap());
    (events, packets)
}

/// What the RETRYs carry that a client was sent in the clear: cookies.
fn cookies(packets: &[(Direction, Vec<u8>)]) -> Vec<&[u8]> {
    const RETRY: [u8; 2] = [0x60, 3];
    let to_client = packets.iter().filter(|(direction, _)| *direction == Direction::ToClient);
    let cookies: Vec<_> =
        to_client.filter(|(_, packet)| packet[4..6] == RETRY).map(|(_, packet)| &packet[24..]).collect();
    assert!(cookies.iter().any(|cookie| cookie.len() >= 20), "{cookies:?}");
    cookies
}

#[test]
fn no_cookie_is_said() {
    let (events, packets) = session(KcpConfig::builder(), KcpConfig::builder());
    let mut secrets = cookies(&packets);
    secrets.push(PAYLOAD);
    assert_says_none(&events, &secrets);
}

#[test]
fn no_nonce_is_said() {
    let config = || {
        let cipher = CipherKind::Aes256Gcm.build(&Key::from_bytes(&[7; 32]), Framing::KcpGo).unwrap();
        KcpConfig::builder().crypto(PacketCrypto::with_os_nonces(cipher).unwrap())
    };
    let (events, packets) = session(config(), config());
    assert!(packets.len() >= 6, "{packets:?}");
    // They lead each packet.
    let nonces: Vec<_> = packets.iter().map(|(_, packet)| &packet[..12]).collect();
    assert_says_none(&events, &nonces);
}

#[test]
fn no_key_of_an_agreement_is_said() {
    let [psk, client, server] = [1, 2, 3].map(|seed| {
        let mut key = [0; 32];
        Rng::new(seed).fill(&mut key);
        key
    });
    let [client_pair, server_pair] = [client, server].map(|secret| KeyPair::from_secret_bytes(&secret));
    let trust = |pair: &KeyPair| Trust::pinned([*pair.public()]);
    let responder = Responder::xx_psk3(server_pair.clone(), trust(&client_pair), Psk::from_bytes(&psk));
    let initiator = Initiator::xx_psk3(client_pair, trust(&server_pair), Psk::from_bytes(&psk));
    let configs = (KcpConfig::builder().noise(responder), KcpConfig::builder().noise(initiator));
    let (events, packets) = session(configs.0, configs.1);
    let mut secrets = cookies(&packets);
    secrets.extend([PAYLOAD, &psk, &client, &server]);
    assert_says_none(&events, &secrets);
}
