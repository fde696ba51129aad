//! Forged packets for a plain port: noise, beginnings of sessions, segments of all kinds, packets of FEC.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use kcp9_simulator::Rng;

/// Packets in each [`PAUSE`].
const BURST: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Flood {
    over: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Flood {
    pub(crate) fn start(to: SocketAddr, mut rng: Rng) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                // Another source each time: what it began before stays half-open.
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                for _ in 0..BURST {
                    sent += usize::from(socket.send_to(&packet(&mut rng), to).is_ok());
                }
                thread::sleep(PAUSE);
            }
            sent
        });
        Self { over, thread }
    }

    /// Ends it; returns how many packets it sent.
    pub(crate) fn stop(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A packet with the fields of a segment, of which some are likely and some are not.
fn packet(rng: &mut Rng) -> Vec<u8> {
    let len = rng.size(0..=1_400);
    let mut packet: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
    if rng.chance(0.2) {
        return packet;
    }
    packet.resize(len.max(32), 0);
    // A few conversations, so that some come again.
    packet[..4].copy_from_slice(&(rng.next() as u32 % 4_096).to_le_bytes());
    packet[4] = *rng.choose(&[81, 81, 81, 82, 83, 84, 85]);
    packet[5] = *rng.choose(&[0, 0, 1, 8, 255]);
    let sn = if rng.chance(0.5) { 0 } else { rng.magnitude(0..=u64::from(u32::MAX)) as u32 };
    packet[12..16].copy_from_slice(&sn.to_le_bytes());
    let payload = packet.len() as u32 - 24;
    packet[20..24].copy_from_slice(&payload.to_le_bytes());
    if rng.chance(0.2) {
        // Behind the header of FEC: a seqid and a type.
        let mut fec = (rng.next() as u32).to_le_bytes().to_vec();
        fec.extend([*rng.choose(&[0xf1, 0xf2]), 0]);
        fec.extend((packet.len() as u16 + 2).to_le_bytes());
        packet.splice(0..0, fec);
        packet.truncate(1_400);
    }
    packet
}
