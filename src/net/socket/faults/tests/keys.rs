//! Streams whose keys change while data flows both ways, over real sockets and a bad path between them. Keys change once an hour, so the
//! clock jumps.

use std::{net::SocketAddr, sync::Arc, vec, vec::Vec};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UdpSocket,
};

use super::{
    harness::{Pair, Rng, Seed, ms, payload, until, within},
    jump_to,
};
use crate::{
    KcpConfig, KcpListener, KcpStream,
    net::{KcpSocket, OwnedReadHalf, OwnedWriteHalf, clock::jumps, session::Session},
    proto::{
        Random,
        noise::{Initiator, KeyPair, Noise, Pattern, Psk, Responder, SessionCipher, Trust},
    },
};

/// Bytes each way.
const LEN: usize = 3 << 20;
/// How often the clock goes on by an hour meanwhile.
const HOURS: usize = 3;

impl Random for Rng {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.next() as u8);
    }
}

/// Both ends of a pattern.
fn noise(pattern: Pattern, cipher: SessionCipher, rng: &mut Rng) -> Noise {
    let (client, server) = (KeyPair::generate(rng), KeyPair::generate(rng));
    let (psk, public) = (Psk::from_bytes(&[7; 32]), *server.public());
    let (initiator, responder) = match pattern {
        Pattern::NnPsk0 => (Initiator::nn_psk0(psk.clone()), Responder::nn_psk0(psk)),
        Pattern::Nk => (Initiator::nk(public), Responder::nk(server)),
        _ => (Initiator::xx(client, Trust::pinned([public])), Responder::xx(server, Trust::any())),
    };
    Noise::from(responder).with_initiator(initiator.with_cipher(cipher))
}

/// A path to `server` that loses a tenth of the packets of one client, doubles some, and lets some be overtaken. Returns its address.
async fn bad_path(server: SocketAddr, mut rng: Rng) -> SocketAddr {
    let [front, back] = [UdpSocket::bind("127.0.0.1:0").await, UdpSocket::bind("127.0.0.1:0").await];
    let (front, back) = (front.unwrap(), back.unwrap());
    let addr = front.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut client, mut held) = (None, [Vec::new(), Vec::new()]);
        let [mut up, mut down] = [vec![0; 65_536], vec![0; 65_536]];
        loop {
            let (way, packet) = tokio::select! {
                received = front.recv_from(&mut up) => {
                    let (len, from) = received.unwrap();
                    client = Some(from);
                    (0, &up[..len])
                }
                received = back.recv(&mut down) => (1, &down[..received.unwrap()]),
            };
            if rng.chance(10) {
                continue;
            }
            if held[way].is_empty() && rng.chance(5) {
                held[way] = packet.to_vec();
                continue;
            }
            let late = std::mem::take(&mut held[way]);
            let twice = if rng.chance(5) { packet } else { &[] };
            for packet in [packet, twice, &late].into_iter().filter(|packet| !packet.is_empty()) {
                // A buffer of the system that is full is a path that loses, too.
                let _ = match way {
                    0 => back.send_to(packet, server).await,
                    _ => front.send_to(packet, client.unwrap()).await,
                };
            }
        }
    });
    addr
}

fn forged(sessions: &[Arc<Session>; 2]) -> [u64; 2] {
    sessions.each_ref().map(|session| session.with(false, |connection| connection.stats().udp.forged))
}

/// Writes all of `sent` and reads as much as `expected` has, and says how much it was so far.
async fn exchange(
    stream: KcpStream,
    sent: &[u8],
    expected: &[u8],
    mut at: impl FnMut(usize),
) -> (OwnedReadHalf, OwnedWriteHalf) {
    let (mut reader, mut writer) = stream.into_split();
    let reading = async {
        let (mut count, mut buffer) = (0, vec![0; 16 << 10]);
        while count < expected.len() {
            let len = reader.read(&mut buffer).await.unwrap();
            assert!(len > 0, "the end behind {count} bytes");
            assert!(buffer[..len] == expected[count..count + len], "other bytes behind {count}");
            count += len;
            at(count);
        }
    };
    let writing = async { writer.write_all(sent).await.unwrap() };
    tokio::join!(reading, writing);
    (reader, writer)
}

#[tokio::test]
async fn keys_change_while_data_flows_both_ways_over_a_bad_path() {
    let cases = [
        (Pattern::NnPsk0, SessionCipher::ChaCha20Poly1305),
        (Pattern::Nk, SessionCipher::Aes256Gcm),
        (Pattern::Xx, SessionCipher::ChaCha20Poly1305),
    ];
    for (seed, (pattern, cipher)) in (1..).zip(cases) {
        let _seed = Seed(seed);
        jumps::set_ahead(ms(0));
        let mut rng = Rng(seed);
        let config = KcpConfig::builder().noise(noise(pattern, cipher, &mut rng)).build().unwrap();
        let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await.unwrap();
        let path = bad_path(listener.local_addr().unwrap(), Rng(rng.next())).await;
        let mut pair = Pair::connected_by(path, listener, config).await;
        pair.assert_alive().await;
        let sessions = [&pair.client, &pair.server].map(|stream| Arc::clone(stream.handle.session()));
        // Copies of what was said in the clear come before this, and are taken for forgeries.
        tokio::time::sleep(ms(300)).await;
        let before = forged(&sessions);

        let (up, down) = (payload(seed, LEN), payload(!seed, LEN));
        let mut hours = 0;
        let jump = |count: usize| {
            if hours < HOURS && count > LEN * (hours + 1) / (HOURS + 1) {
                hours += 1;
                jump_to(hours as u64, &pair.sockets);
            }
        };
        let transfer = async {
            tokio::join!(exchange(pair.client, &up, &down, jump), exchange(pair.server, &down, &up, |_| {}))
        };
        let _streams = within("everything arrives", transfer).await;
        until("everything is acknowledged", || {
            let in_flight = |connection: &mut crate::proto::Connection| connection.stats().queues.in_flight;
            sessions.iter().all(|session| session.with(false, in_flight) == 0)
        })
        .await;
        assert_eq!(forged(&sessions), before, "each end has had a key for whatever came");
        let changes = sessions.each_ref().map(|session| {
            session.with(false, |connection| connection.take_session_keys().unwrap().key_changes())
        });
        assert_eq!(changes, [HOURS as u64; 2], "{pattern}");
        pair.sockets.iter().for_each(KcpSocket::wake_driver);
    }
}
