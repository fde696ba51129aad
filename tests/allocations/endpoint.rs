//! Packets of many sessions at one endpoint, without sockets.

use std::{net::SocketAddr, time::Duration};

use kcp9::{
    KcpConfig,
    proto::{Connection, Endpoint, Instant, Random, Routed},
};

use crate::settings;

const SESSIONS: u16 = 200;
const NOW: Instant = Instant::ZERO;

struct Constant;

impl Random for Constant {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(9);
    }
}

fn address(session: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 1_000 + session))
}

/// The first batch that each client sends: encrypted where the configuration says so.
fn batches(config: &KcpConfig) -> Vec<(Vec<u8>, usize)> {
    let mut buffer = vec![0; 65_536];
    let first_batch = |_| {
        let mut client = Connection::new(7, config, NOW);
        while client.write(NOW, &[7; 1_000]).is_ok() {}
        let transmit = client.poll_transmit(NOW, &mut buffer).unwrap();
        (buffer[..transmit.len].to_vec(), transmit.stride)
    };
    (0..SESSIONS).map(first_batch).collect()
}

/// Routes every batch; returns how many packets were handed to sessions.
fn route(endpoint: &mut Endpoint, batches: &mut [(Vec<u8>, usize)]) -> usize {
    let mut packets = 0;
    for (session, (batch, stride)) in (0..).zip(batches) {
        endpoint.receive(address(session), batch, *stride);
        while let Some(routed) = endpoint.poll_routed(NOW, batch) {
            let run = match routed {
                Routed::Session(run) => run,
                _ => endpoint.accept(NOW).unwrap().run,
            };
            packets += run.range.len().div_ceil(run.stride);
        }
    }
    packets
}

#[test]
fn routing_packets_of_known_sessions_allocates_nothing() {
    for (name, config) in settings::all() {
        let mut endpoint = Endpoint::accepting(&config, &mut Constant);
        let all = batches(&config);
        let accepted = route(&mut endpoint, &mut all.clone());
        assert!(accepted >= 8 * usize::from(SESSIONS), "{name}: {accepted} packets");
        assert_eq!(endpoint.len(), usize::from(SESSIONS), "{name}");
        // Decrypting is in place, so each round needs the packets as they came.
        let mut rounds = [all.clone(), all];
        let mut packets = 0;
        let info = allocation_counter::measure(|| {
            for batches in &mut rounds {
                packets += route(&mut endpoint, batches);
            }
        });
        assert_eq!((info.count_total, packets), (0, 2 * accepted), "{name}");
    }
}

/// 32 KiB for the shares of strangers, whoever they are and however many.
#[test]
fn shares_of_the_work_take_little_memory_and_give_it_back() {
    let mut endpoint = Endpoint::accepting(&KcpConfig::default(), &mut Constant);
    let mut batches = batches(&KcpConfig::default());
    route(&mut endpoint, &mut batches);
    for handle in endpoint.sessions().collect::<Vec<_>>() {
        endpoint.validated(handle);
    }
    // Less than a segment, so that the endpoint itself remembers nothing of them.
    let mut packet = [7; 20];
    let info = allocation_counter::measure(|| {
        for number in 0_u32..200_000 {
            let now = NOW + Duration::from_micros(u64::from(number) * 10);
            if number % 1_000 == 0 {
                endpoint.note_overload(now);
            }
            let source = SocketAddr::from((number.wrapping_mul(0x9e37_79b9).to_be_bytes(), 9));
            endpoint.receive(source, &mut packet, 20);
            assert!(endpoint.poll_routed(now, &packet).is_none());
        }
        assert!(endpoint.stats().dropped_over_share > 100_000);
        let at = endpoint.expires_at().unwrap();
        endpoint.forget_expired(at);
    });
    assert!((32 << 10..33 << 10).contains(&info.bytes_max), "{} bytes", info.bytes_max);
    assert_eq!(info.bytes_current, 0);
}
