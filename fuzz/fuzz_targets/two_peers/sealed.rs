//! Two ends that have agreed on keys.

use std::sync::Arc;

use kcp9::{
    KcpConfig,
    proto::{
        Connection, Endpoint, Instant, Routed, SessionSeed,
        noise::{Initiator, KeyPair, Noise, Pattern, Psk, Responder, Trust},
    },
};
use kcp9_simulator::Rng;

/// What the two ends agree on keys by: the end that connects, and the one that accepts.
pub(crate) fn noise(choice: u8) -> [Noise; 2] {
    let [own, server] = [1, 2].map(|byte| KeyPair::from_secret_bytes(&[byte; 32]));
    let (public, psk) = (*server.public(), || Psk::from_bytes(&[3; 32]));
    let patterns: Vec<_> = Pattern::all().collect();
    match patterns[usize::from(choice) % patterns.len()] {
        Pattern::NnPsk0 => [Initiator::nn_psk0(psk()).into(), Responder::nn_psk0(psk()).into()],
        Pattern::NkPsk0 => {
            [Initiator::nk_psk0(public, psk()).into(), Responder::nk_psk0(server, psk()).into()]
        }
        Pattern::Nk => [Initiator::nk(public).into(), Responder::nk(server).into()],
        Pattern::Xx => {
            let trust = Trust::pinned([*own.public()]);
            [Initiator::xx(own, Trust::pinned([public])).into(), Responder::xx(server, trust).into()]
        }
        _ => {
            let trust = Trust::pinned([*own.public()]);
            let initiator = Initiator::xx_psk3(own, Trust::pinned([public]), psk());
            [initiator.into(), Responder::xx_psk3(server, trust, psk()).into()]
        }
    }
}

/// Both ends of a session over a path without faults, at the moment in which the second one has its first sealed packet.
pub(crate) fn connections(configs: [&KcpConfig; 2], rng: &mut Rng) -> [Connection; 2] {
    let (now, source) = (Instant::ZERO, ([10, 0, 0, 1], 4_000).into());
    let seed = SessionSeed::new(rng);
    let mut client = Connection::connect_with_noise(7, configs[0], now, seed, rng).expect("an initiator");
    let mut endpoint = Endpoint::accepting(configs[1], rng);
    let mut buffer = vec![0; 65_536];
    for _ in 0..8 {
        while let Some(transmit) = client.poll_transmit(now, &mut buffer) {
            for packet in buffer[..transmit.len].chunks(transmit.stride) {
                let (mut block, stride) = (Arc::new(packet.to_vec().into_boxed_slice()), packet.len());
                endpoint.receive(source, Arc::get_mut(&mut block).expect("it is new"), stride);
                while let Some(routed) = endpoint.poll_routed(now, &block) {
                    match routed {
                        Routed::Incoming(incoming) => {
                            let keys = endpoint.take_session_keys().expect("it is sealed");
                            let (conv, seed) = (incoming.conv, SessionSeed::new(rng));
                            let mut server =
                                Connection::accept_with_keys(conv, configs[1], now, seed, keys, None);
                            assert!(incoming.validated);
                            server.set_validated();
                            let run = endpoint.accept(now).expect("it was offered").run;
                            server.handle_sealed_batch(now, &mut block, run.range, run.stride);
                            assert_eq!(client.handshake_hash(), server.handshake_hash());
                            return [client, server];
                        }
                        Routed::Reply(_) => {
                            let _ = client.handle_packet(now, &mut endpoint.reply().to_vec());
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        client.flush();
    }
    panic!("nothing begins");
}
