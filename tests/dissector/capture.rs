//! Packets as they went by, and the file that Wireshark reads them from.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use kcp9_relay::{Direction, Relay};
use kcp9_simulator::Rng;

/// The port of the server in every capture.
pub const SERVER_PORT: u16 = 29_900;
/// That of a client whose port does not matter.
pub const CLIENT_PORT: u16 = 50_000;

#[derive(Debug, Clone)]
pub struct Packet {
    pub client_port: u16,
    pub way: Direction,
    /// Since the beginning of the capture, in whole microseconds.
    pub at: Duration,
    pub payload: Vec<u8>,
    pub is_lost: bool,
    /// How many bytes of the payload the capture keeps.
    pub kept: usize,
    /// The receiver has sent an ICMP message, "port unreachable", with what is kept of the packet: that is captured in its place.
    pub is_refused: bool,
}

impl Packet {
    pub fn new(way: Direction, at: Duration, payload: Vec<u8>) -> Self {
        Self {
            client_port: CLIENT_PORT,
            way,
            at,
            payload,
            is_lost: false,
            kept: usize::MAX,
            is_refused: false,
        }
    }
}

/// A relay that loses some packets and writes down all of them.
pub struct Tap {
    relay: Relay,
    packets: Arc<Mutex<Vec<Packet>>>,
}

impl Tap {
    pub fn start(server: SocketAddr, loss: f64, seed: u64) -> Self {
        let packets = Arc::<Mutex<Vec<Packet>>>::default();
        let (own, begun, mut rng) = (Arc::clone(&packets), Instant::now(), Rng::new(seed));
        let relay = Relay::rewriting(
            server,
            Box::new(move |way, packet, out| {
                let is_lost = rng.chance(loss);
                if !is_lost {
                    out.push(packet.to_vec());
                }
                let at = Duration::from_micros(begun.elapsed().as_micros() as u64);
                own.lock().unwrap().push(Packet { is_lost, ..Packet::new(way, at, packet.to_vec()) });
            }),
        );
        Self { relay: relay.unwrap(), packets }
    }

    pub fn addr(&self) -> SocketAddr {
        self.relay.addr()
    }

    /// What went by so far.
    pub fn packets(&self) -> Vec<Packet> {
        self.packets.lock().unwrap().clone()
    }
}

/// The packets as a pcap file, each as UDP over IPv4.
pub fn pcap(packets: &[Packet]) -> Vec<u8> {
    const RAW_IP: u32 = 101;
    const MAX_LEN: u32 = 65_535;
    /// 14 November 2023: any time will do.
    const BEGUN: u64 = 1_700_000_000;
    let mut file = Vec::new();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    // Magic, version 2.4, time zone, accuracy, longest packet, link type.
    file.extend(words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, MAX_LEN, RAW_IP]));
    for packet in packets {
        let headers = headers(packet);
        let kept = &packet.payload[..packet.payload.len().min(packet.kept)];
        let mut bytes = [&headers, kept].concat();
        let mut len = headers.len() + packet.payload.len();
        if packet.is_refused {
            bytes = refusal(packet, &bytes);
            len = bytes.len();
        }
        let seconds = (BEGUN + packet.at.as_secs()) as u32;
        file.extend(words(&[seconds, packet.at.subsec_micros(), bytes.len() as u32, len as u32]));
        file.extend(bytes);
    }
    file
}

type Host = [u8; 4];
const CLIENT: Host = [10, 0, 0, 1];
const SERVER: Host = [10, 0, 0, 2];

/// The headers of IPv4 and UDP, without checksums.
fn headers(packet: &Packet) -> Vec<u8> {
    const UDP: u8 = 17;
    let client = (CLIENT, packet.client_port);
    let server = (SERVER, SERVER_PORT);
    let (from, to) = match packet.way {
        Direction::ToServer => (client, server),
        Direction::ToClient => (server, client),
    };
    let len = packet.payload.len() as u16 + 8;
    let mut bytes = ip_header(from.0, to.0, UDP, len);
    for field in [from.1, to.1, len, 0] {
        bytes.extend(field.to_be_bytes());
    }
    bytes
}

/// The ICMP message of a packet's receiver that quotes it.
fn refusal(packet: &Packet, quoted: &[u8]) -> Vec<u8> {
    const ICMP: u8 = 1;
    const PORT_UNREACHABLE: [u8; 8] = [3, 3, 0, 0, 0, 0, 0, 0];
    let (from, to) = match packet.way {
        Direction::ToServer => (SERVER, CLIENT),
        Direction::ToClient => (CLIENT, SERVER),
    };
    let mut bytes = ip_header(from, to, ICMP, (PORT_UNREACHABLE.len() + quoted.len()) as u16);
    bytes.extend(PORT_UNREACHABLE);
    bytes.extend(quoted);
    bytes
}

fn ip_header(from: Host, to: Host, protocol: u8, len: u16) -> Vec<u8> {
    let mut bytes = vec![0x45, 0];
    bytes.extend((len + 20).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    bytes.extend(from);
    bytes.extend(to);
    bytes
}
