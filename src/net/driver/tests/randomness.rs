//! What the keys of accepted sessions are drawn from, after a copy of the process was made: two ends that draw the same have the same keys.

use std::{vec, vec::Vec};

use super::*;
use crate::{
    net::{accept_queue::AcceptQueue, socket::Received},
    proto::{
        EcnCodepoint, Random, Routed, SessionSeed,
        noise::{Initiator, KeyPair, Responder},
    },
};

struct Constant(u8);

impl Random for Constant {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(self.0);
    }
}

fn keys() -> KeyPair {
    KeyPair::from_secret_bytes(&[3; 32])
}

/// The first packet of a client, to which it adds `early` bytes.
fn hello(number: u8, early: usize) -> Vec<u8> {
    let config = KcpConfig::builder().noise(Initiator::nk(*keys().public())).build().unwrap();
    let (now, mut random) = (clock::now(), Constant(number));
    let (seed, early) = (SessionSeed::new(&mut random), vec![7; early]);
    let mut client =
        Connection::connect_with_early_data(number.into(), &config, now, seed, &early, &mut random).unwrap();
    let mut buffer = vec![0; 2_048];
    let transmit = client.poll_transmit(now, &mut buffer).unwrap();
    buffer.truncate(transmit.len);
    buffer
}

fn peer(number: u8) -> SocketAddr {
    // Nobody receives what is sent there.
    SocketAddr::from(([127, 0, 0, 1], 9_000 + u16::from(number)))
}

/// What an endpoint answers to a packet.
fn answer(endpoint: &mut Endpoint, now: Instant, number: u8, mut packet: Vec<u8>) -> Option<Vec<u8>> {
    let stride = packet.len();
    endpoint.receive(peer(number), &mut packet, stride);
    let mut answer = None;
    while let Some(routed) = endpoint.poll_routed(now, &packet) {
        if let Routed::Reply(_) = routed {
            answer = Some(endpoint.reply().to_vec());
        }
    }
    answer
}

#[tokio::test]
async fn within_a_minute_of_an_agreement_keys_are_drawn_from_something_new() {
    for early in [0, 100] {
        let noise = Responder::nk(keys()).with_early_data();
        let config = KcpConfig::builder().noise(noise).build().unwrap();
        let socket = Socket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let queue = Arc::new(AcceptQueue::new(config.clone()));
        let memory = BufferMemory::new(1 << 30);
        let shared = Shared::start(socket, Some(queue), Sharing::Many, memory, None).unwrap();
        let mut driver = Driver::new(shared).unwrap();
        let mut copy = Endpoint::accepting(&config, &mut Constant(1));
        driver.endpoint.reseed_noise(&mut Constant(2));
        copy.reseed_noise(&mut Constant(2));

        let now = clock::now();
        let packet = hello(1, early);
        let (len, mut block) = (packet.len(), Arc::new(packet.clone().into_boxed_slice()));
        let (peer, ecn) = (peer(1), EcnCodepoint::NotEct);
        driver.deliver(now, Received { peer, local_ip: None, block: &mut block, len, stride: len, ecn });
        assert_eq!(driver.endpoint.len(), usize::from(early > 0), "a session begins with early data only");
        assert_eq!(answer(&mut copy, now, 1, packet).is_some(), early == 0);
        let next = hello(2, 0);
        let answers = [&mut driver.endpoint, &mut copy].map(|end| answer(end, now, 2, next.clone()).unwrap());
        assert_eq!(answers[0], answers[1], "both draw the same");

        let at = driver.forget_at.expect("planned");
        assert!(at > now && at - now <= Duration::from_secs(60), "{:?}", at - now);
        driver.forget_expired(at);
        let next = hello(3, 0);
        let answers = [&mut driver.endpoint, &mut copy].map(|end| answer(end, now, 3, next.clone()).unwrap());
        assert_ne!(answers[0], answers[1], "the driver draws something else than a copy of it");
    }
}
