//! Instructions that an endpoint takes to route a packet: they must not grow with the number of sessions.

use std::net::SocketAddr;

use kcp9::{
    KcpConfig,
    proto::{Command, Endpoint, HEADER_LEN, Instant, Random, Routed, SegmentHeader},
};

/// Sessions that are compared.
pub(crate) const SESSIONS: [u32; 2] = [16, 16_384];
/// More than this share above that of few sessions is a failure.
pub(crate) const LIMIT: f64 = 1.3;
/// Batches that are counted. Each is of another session than the one before.
const BATCHES: u32 = 16_384;
/// Packets of a batch.
const PACKETS: u32 = 4;

struct Constant;

impl Random for Constant {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(9);
    }
}

fn address(session: u32) -> SocketAddr {
    SocketAddr::from(((0x0a00_0000 | session >> 8).to_be_bytes(), 1_000 + (session & 0xff) as u16))
}

/// Runs what `run` names, if it is this: `routed-16-0`.
pub(crate) fn run_named(run: &str) -> bool {
    let mut parts = run.strip_prefix("routed-").unwrap_or_default().split('-');
    let mut number = || parts.next()?.parse().ok();
    let (Some(sessions), Some(batches)) = (number(), number()) else { return false };
    self::run(sessions, batches);
    true
}

/// `batches` batches after those that begin the sessions.
pub(crate) fn run(sessions: u32, batches: u32) {
    let now = Instant::ZERO;
    let mut endpoint = Endpoint::accepting(&KcpConfig::default(), &mut Constant);
    let header =
        SegmentHeader { conv: 7, cmd: Command::Push, frg: 0, wnd: 128, ts: 1, sn: 0, una: 0, len: 0 };
    let mut batch = header.to_bytes().repeat(PACKETS as usize);
    let mut routed = 0;
    for number in 0..sessions + batches {
        // Odd steps come to every session, and to none twice in a row.
        endpoint.receive(address(number.wrapping_mul(7_919) % sessions), &mut batch, HEADER_LEN);
        while let Some(next) = endpoint.poll_routed(now, &batch) {
            match next {
                Routed::Session(run) => routed += run.range.len() / run.stride,
                _ => drop(endpoint.accept(now)),
            }
        }
    }
    assert_eq!(endpoint.len(), sessions as usize);
    assert_eq!(routed, (batches * PACKETS) as usize);
}

/// Instructions of a packet among `sessions`; `count` counts those of what it is given the name of.
pub(crate) fn measure<E>(sessions: u32, count: impl Fn(&str) -> Result<u64, E>) -> Result<f64, E> {
    let [before, after] = [0, BATCHES].map(|batches| count(&format!("routed-{sessions}-{batches}")));
    Ok((after? - before?) as f64 / f64::from(BATCHES * PACKETS))
}
