//! Two connections without sockets, on virtual time.

use kcp9::{
    KcpConfig,
    proto::{Connection, Instant},
};

use crate::settings;

const WRITE: usize = 65_536;
/// Rounds after which everything has its final size. The replay windows take longest: they grow with the packets seen, and
/// packets with acknowledgements are few.
const WARM_UP: usize = 60;
const ROUNDS: usize = 40;
/// Of the packets of a round one in so many is lost, the same ones in each round: not those with ACKs only.
const LOSES: usize = 47;

/// Two connections that move the same amount again and again.
struct Pair {
    ends: [Connection; 2],
    now: Instant,
    payload: Vec<u8>,
    transmit: Vec<u8>,
    out: Vec<u8>,
    /// Segments that arrived at the reader out of order.
    early: u64,
}

impl Pair {
    fn new(config: &KcpConfig) -> Self {
        let now = Instant::ZERO;
        Self {
            ends: [Connection::new(7, config, now), Connection::new(7, config, now)],
            now,
            payload: vec![7; WRITE],
            transmit: vec![0; 65_536],
            out: vec![0; WRITE],
            early: 0,
        }
    }

    /// Writes as much as fits, `size` bytes at a time, loses one packet in `loses` (0: none), and reads what arrives.
    fn round(&mut self, size: usize, loses: usize) {
        while self.ends[0].write(self.now, &self.payload[..size]).is_ok() {}
        let mut count = 0;
        for _ in 0..4 {
            for from in [0, 1] {
                while let Some(transmit) = self.ends[from].poll_transmit(self.now, &mut self.transmit) {
                    for packet in self.transmit[..transmit.len].chunks_mut(transmit.stride) {
                        count += 1;
                        if loses == 0 || count % loses != 0 {
                            let to = &mut self.ends[1 - from];
                            let before = to.stats().queues.out_of_order;
                            to.handle_packet(self.now, packet).unwrap();
                            self.early += to.stats().queues.out_of_order.saturating_sub(before) as u64;
                        }
                    }
                }
            }
            while self.ends[1].read(&mut self.out).is_ok() {}
            self.now = Instant::from_micros(self.now.as_micros() + 10_000);
            for end in &mut self.ends {
                end.handle_timeout(self.now);
                while end.poll_event().is_some() {}
            }
        }
    }
}

fn allocations(config: &KcpConfig, size: usize) -> (u64, u64) {
    let mut pair = Pair::new(config);
    for _ in 0..WARM_UP {
        pair.round(size, 0);
    }
    let before = pair.ends[1].stats().stream.bytes_read;
    let info = allocation_counter::measure(|| {
        for _ in 0..ROUNDS {
            pair.round(size, 0);
        }
    });
    let stats = pair.ends[1].stats();
    assert!(stats.stream.bytes_read - before >= (ROUNDS * WRITE) as u64, "{stats:?}");
    (info.count_total, stats.segments.push_received)
}

#[test]
fn a_bulk_transfer_allocates_nothing() {
    for (name, config) in settings::all() {
        let (count, segments) = allocations(&config, WRITE);
        assert_eq!(count, 0, "{name}: allocations for {segments} segments");
    }
}

#[test]
fn small_writes_allocate_nothing() {
    for (name, config) in settings::all() {
        let (count, segments) = allocations(&config, 64);
        assert_eq!(count, 0, "{name}: allocations for {segments} segments");
    }
}

/// Each has memory of its own at either end, as an application may keep it.
#[test]
fn a_datagram_allocates_once_where_it_is_sent_and_once_where_it_arrives() {
    let config = KcpConfig::builder().datagram_queue(65_536).build().unwrap();
    let mut pair = Pair::new(&config);
    let mut exchange = |rounds: usize| {
        for round in 0..rounds {
            for n in 0..12 {
                pair.ends[0].send_datagram(&pair.payload[..1 + (round * 31 + n) % 1_300]).unwrap();
            }
            pair.round(WRITE, 0);
            while pair.ends[1].recv_datagram().is_some() {}
        }
        pair.ends[1].stats().datagrams
    };
    let before = exchange(100).received;
    let mut after = 0;
    let info = allocation_counter::measure(|| after = exchange(100).received);
    assert_eq!((info.count_total, after - before), (2_400, 1_200));
}

/// Neither the buffers in which segments that arrive out of order wait, nor what FEC keeps of its groups, nor what it
/// recovers. The map of those that wait may grow once more: it has room for as many as have ever waited at once.
#[test]
fn losses_allocate_nothing() {
    for (name, config) in settings::all() {
        let mut pair = Pair::new(&config);
        for _ in 0..WARM_UP {
            pair.round(WRITE, LOSES);
        }
        let (before, recovered) = (pair.early, pair.ends[1].stats().fec.recovered);
        let info = allocation_counter::measure(|| {
            for _ in 0..ROUNDS {
                pair.round(WRITE, LOSES);
            }
        });
        let early = pair.early - before;
        assert!(early > 200, "{name}: {early} segments out of order");
        let recovered = pair.ends[1].stats().fec.recovered - recovered;
        assert_eq!(recovered > 40, config.fec() != (0, 0), "{name}: {recovered} segments recovered");
        let allocated = info.count_total;
        assert!(allocated <= 1, "{name}: {allocated} allocations with {early} segments out of order");
    }
}
