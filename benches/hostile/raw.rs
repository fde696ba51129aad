//! Peers that make their packets themselves, as costly ones as there are: what each takes the driver of a real socket, with the system
//! calls, the readers, and the answers that it draws. They come singly, or many at once, as a sender may hand them to the kernel.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::mpsc,
    thread,
    time::Duration,
};

use kcp9::{
    KcpConfig, KcpListener,
    proto::{Command, HEADER_LEN, SegmentHeader, Segments},
};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    task::JoinSet,
};

use crate::{
    driver::{Measured, fall_behind, read_to_end},
    packets::FULL,
};

const CONV: u32 = 7;
/// Segments with a byte each, and without any, in a full packet.
const OF_A_BYTE: u32 = (FULL / (HEADER_LEN + 1)) as u32;
const EMPTY: u32 = (FULL / HEADER_LEN) as u32;
/// Packets that are sent at once. Two such bursts of each peer are under way, so that the driver always has some before it.
const BURST: u32 = 8;
const BURSTS: u32 = 500;
const PEERS: usize = 16;

/// The packets of a burst, and how many numbers of segments they take. All but the last have the same length.
type Burst = fn(u32) -> (Vec<Vec<u8>>, u32);

const PATTERNS: [(&str, Burst); 6] = [
    ("ordinary: a full PUSH in order", |first| {
        ((0..BURST).map(|at| push(first + at, (FULL - HEADER_LEN) as u32)).collect(), BURST)
    }),
    ("56 PUSHes of a byte behind a gap, then 56 that close it", |first| gaps(first, OF_A_BYTE, 1)),
    ("58 empty PUSHes behind a gap, then 58 that close it", |first| gaps(first, EMPTY, 0)),
    ("56 PUSHes of a byte in order", |first| {
        let packet = |nth| (0..OF_A_BYTE).flat_map(|at| push(first + nth * OF_A_BYTE + at, 1)).collect();
        ((0..BURST).map(packet).collect(), BURST * OF_A_BYTE)
    }),
    ("58 duplicates behind a gap", |first| {
        let packet = |_| (0..EMPTY).flat_map(|at| push(first + 1 + at, 0)).collect();
        ((0..BURST).map(packet).chain([push(first, 0)]).collect(), EMPTY + 1)
    }),
    ("58 WASK", |first| {
        let wask = header(Command::Wask, 0).to_bytes();
        ((0..BURST).map(|_| wask.repeat(EMPTY as usize)).chain([push(first, 0)]).collect(), 1)
    }),
];

/// By turns a packet of `count` PUSHes with `len` bytes each behind a gap, and one that closes it and repeats all but the last of them.
fn gaps(first: u32, count: u32, len: u32) -> (Vec<Vec<u8>>, u32) {
    let of_gap = |first: u32| {
        let behind = (0..count).flat_map(|at| push(first + count - at, len)).collect();
        [behind, (0..count).flat_map(|at| push(first + at, len)).collect()]
    };
    let firsts = (0..BURST / 2).map(|gap| first + gap * (count + 1));
    (firsts.flat_map(of_gap).collect(), BURST / 2 * (count + 1))
}

fn header(cmd: Command, sn: u32) -> SegmentHeader {
    SegmentHeader { conv: CONV, cmd, frg: 0, wnd: 1_024, ts: 5, sn, una: 1, len: 0 }
}

fn push(sn: u32, len: u32) -> Vec<u8> {
    let header = SegmentHeader { len, ..header(Command::Push, sn) };
    [&header.to_bytes()[..], &vec![9; len as usize]].concat()
}

struct Peer {
    socket: UdpSocket,
    /// The next number of a segment.
    sn: u32,
    /// How many the other end has taken in.
    una: u32,
    at_once: bool,
}

impl Peer {
    /// A session whose peer has shown that it hears the other end.
    fn connect(addr: SocketAddr, at_once: bool) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(addr)?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.send(&push(0, 1))?;
        let mut peer = Self { socket, sn: 1, una: 0, at_once };
        while let Some(question) = peer.read()? {
            if question.cmd == Command::Push {
                let ack =
                    SegmentHeader { cmd: Command::Ack, una: question.sn + 1, wnd: 1_024, len: 0, ..question };
                peer.socket.send(&ack.to_bytes())?;
                break;
            }
        }
        peer.socket.send(&push(peer.sn, 1))?;
        peer.sn += 1;
        peer.wait(0)?;
        Ok(peer)
    }

    /// The last segment of the next packet.
    fn read(&mut self) -> io::Result<Option<SegmentHeader>> {
        let mut buffer = [0; 2_048];
        let len = self.socket.recv(&mut buffer)?;
        let last = Segments::new(&buffer[..len]).flatten().map(|(header, _)| header).last();
        self.una = last.map_or(self.una, |header| self.una.max(header.una));
        Ok(last)
    }

    /// Waits until no more than so many segments are under way.
    fn wait(&mut self, most: u32) -> io::Result<()> {
        while self.sn - self.una > most {
            self.read()?;
        }
        Ok(())
    }

    fn send(&mut self, burst: Burst) -> io::Result<()> {
        let (packets, numbers) = burst(self.sn);
        if self.at_once {
            setsockopt(&self.socket, UdpGsoSegment, &(packets[0].len() as i32))?;
            self.socket.send(&packets.concat())?;
        } else {
            for packet in &packets {
                self.socket.send(packet)?;
            }
        }
        self.sn += numbers;
        // This one, and that before it.
        self.wait(numbers)
    }
}

fn flood(name: &str, burst: Burst, at_once: bool) {
    let (told, listens) = mpsc::channel();
    let (over, is_over) = oneshot::channel();
    let server = thread::spawn(move || {
        crate::driver::runtime().block_on(async {
            let listener = KcpListener::bind((Ipv4Addr::LOCALHOST, 0), KcpConfig::default()).await?;
            told.send(listener.local_addr()?).expect("somebody listens");
            let mut readers = JoinSet::new();
            for _ in 0..PEERS {
                let (mut stream, _) = listener.accept().await?;
                stream.read_exact(&mut [0]).await?;
                stream.write_all(&[0]).await?;
                stream.read_exact(&mut [0]).await?;
                readers.spawn(read_to_end(stream));
            }
            tokio::spawn(fall_behind());
            let measured = Measured::begin(listener.endpoint_stats());
            is_over.await.expect("it says so");
            io::Result::Ok(measured.end(listener.endpoint_stats()))
        })
    });
    let addr = listens.recv().expect("it listens");
    let mut peers: Vec<_> = (0..PEERS).map(|_| Peer::connect(addr, at_once).expect("a session")).collect();
    for _ in 0..BURSTS {
        for peer in &mut peers {
            peer.send(burst).expect("it is acknowledged");
        }
    }
    for peer in &mut peers {
        peer.wait(0).expect("it is acknowledged");
    }
    over.send(()).expect("it reads");
    let how = if at_once { "at once" } else { "singly" };
    server.join().expect("no panic").expect("a session").print(&format!("{name}, {how}"));
}

pub(crate) fn measure() {
    for (name, burst) in PATTERNS {
        flood(name, burst, false);
        flood(name, burst, true);
    }
}
