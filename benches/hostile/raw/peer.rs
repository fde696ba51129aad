//! A peer that makes its packets itself: in the clear, with the extensions, or sealed under keys of its session.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use kcp9::proto::{
    Command, HEADER_LEN, Instant, Random, SegmentHeader, Segments,
    noise::{self, Initiator, PublicKey, SessionCipher, SessionKeys},
};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};

use super::bursts::{Burst, Make};
use crate::packets::{field, hello, id, subtype};

pub(super) const CONV: u32 = 7;
/// Fields of HELLO and ANSWER: what a peer returns that hears, and a message of key agreement.
const TOKEN: u8 = 0x03;
const NOISE: u8 = 0xa0;
/// Bytes of HELLO and ANSWER in front of their fields, and those of them before the time that an ANSWER echoes.
const FIXED: usize = 24;
const BEFORE_ECHO: usize = 20;
/// Keys change after an hour: never.
const NOW: Instant = Instant::ZERO;

/// What a peer has in common with the other end.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Plain,
    Extensions,
    Sealed(SessionCipher),
}

pub(super) struct Peer {
    socket: UdpSocket,
    /// The same host at another port.
    elsewhere: UdpSocket,
    /// The next number of a segment.
    pub(super) sn: u32,
    /// How many the other end has taken in.
    una: u32,
    /// That of the other end, which is on all extension segments for it.
    pub(super) tag: u32,
    keys: Option<SessionKeys>,
    /// The last packets, as they were sent.
    pub(super) last: Vec<Vec<u8>>,
    /// The last number that was [drawn](Self::draw).
    drawn: u32,
    at_once: bool,
}

/// What the handshake draws: different for each peer.
struct Entropy(u32);

impl Random for Entropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| {
            self.0 = self.0.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
            (self.0 >> 24) as u8
        });
    }
}

pub(super) fn header(cmd: Command, sn: u32) -> SegmentHeader {
    SegmentHeader { conv: CONV, cmd, frg: 0, wnd: 1_024, ts: 5, sn, una: 1, len: 0 }
}

pub(super) fn push(sn: u32, len: u32) -> Vec<u8> {
    let header = SegmentHeader { len, ..header(Command::Push, sn) };
    [&header.to_bytes()[..], &vec![9; len as usize]].concat()
}

pub(super) fn extension(conv: u32, subtype: u8, tag: u32, body: &[u8]) -> Vec<u8> {
    let header =
        SegmentHeader { conv, frg: subtype, len: body.len() as u32, ..header(Command::Extension, tag) };
    [&header.to_bytes()[..], body].concat()
}

/// As long as ours, by its padding.
pub(super) fn padded_hello(conv: u32, id: u64, fields: &[u8]) -> Vec<u8> {
    let padding = field(0, &vec![0; 1_200 - HEADER_LEN - FIXED - fields.len() - 3]);
    extension(conv, subtype::HELLO, id as u32, &hello(id, &[fields, &padding[..]].concat()))
}

/// A field of an ANSWER.
fn field_of(body: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut fields = &body[FIXED..];
    while let [kind, low, high, rest @ ..] = fields {
        let (value, others) = rest.split_at_checked(u16::from_le_bytes([*low, *high]).into())?;
        if *kind == wanted {
            return Some(value);
        }
        fields = others;
    }
    None
}

/// What both ends of a handshake take in of what is said beside its messages.
fn context(body: &[u8]) -> Vec<u8> {
    [&CONV.to_le_bytes()[..], &body[..BEFORE_ECHO], &[0; FIXED - BEFORE_ECHO]].concat()
}

impl Peer {
    /// A session whose peer has shown that it hears the other end, which has this key if they agree on keys.
    pub(super) fn connect(
        addr: SocketAddr,
        kind: Kind,
        server: &PublicKey,
        number: u8,
        at_once: bool,
    ) -> io::Result<Self> {
        // A network each, so that one may begin as many sessions as it likes.
        let own = Ipv4Addr::new(127, 0, 1, number);
        let [socket, elsewhere] = [UdpSocket::bind((own, 0))?, UdpSocket::bind((own, 0))?];
        socket.connect(addr)?;
        elsewhere.connect(addr)?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        let last = Vec::new();
        let mut peer = Self { socket, elsewhere, sn: 0, una: 0, tag: 0, keys: None, last, drawn: 0, at_once };
        let id = id(number.into());
        match kind {
            Kind::Plain => {}
            Kind::Extensions => {
                peer.socket.send(&padded_hello(CONV, id, &[]))?;
                let answer = peer.answer()?;
                let token = field_of(&answer, TOKEN).expect("a token to be returned");
                peer.socket.send(&extension(CONV, subtype::PONG, peer.tag, token))?;
            }
            Kind::Sealed(cipher) => peer.agree(Initiator::nk(*server).with_cipher(cipher), id)?,
        }
        peer.begin()?;
        Ok(peer)
    }

    /// Waits for the ANSWER, and has its body.
    fn answer(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = [0; 2_048];
        loop {
            let len = self.socket.recv(&mut buffer)?;
            let answer =
                Segments::new(&buffer[..len]).flatten().find(|(header, _)| header.frg == subtype::ANSWER);
            if let Some((_, body)) = answer {
                self.tag = u32::from_le_bytes(body[12..16].try_into().expect("4 bytes"));
                return Ok(body.to_vec());
            }
        }
    }

    fn agree(&mut self, initiator: Initiator, id: u64) -> io::Result<()> {
        let mut handshake =
            initiator.begin(&context(&hello(id, &[])), &mut Entropy(id as u32)).expect("a first message");
        self.socket.send(&padded_hello(CONV, id, &field(NOISE, handshake.message())))?;
        let body = self.answer()?;
        let message = field_of(&body, NOISE).expect("a message");
        let established = handshake.read_answer(message, &context(&body)).expect("from who has the key");
        self.keys = Some(established.session);
        Ok(())
    }

    /// Sends a byte, hears one, and sends another.
    fn begin(&mut self) -> io::Result<()> {
        self.send_ordinary(push(0, 1))?;
        loop {
            let Some(question) = self.read()? else { continue };
            if question.cmd == Command::Push {
                let ack =
                    SegmentHeader { cmd: Command::Ack, una: question.sn + 1, wnd: 1_024, len: 0, ..question };
                self.send_ordinary(ack.to_bytes().to_vec())?;
                break;
            }
        }
        self.send_ordinary(push(1, 1))?;
        self.sn = 2;
        self.wait(0)
    }

    fn send_ordinary(&mut self, packet: Vec<u8>) -> io::Result<()> {
        let packet = self.sealed(packet);
        self.socket.send(&packet).map(drop)
    }

    /// Bytes of a full packet that segments have.
    pub(super) fn room(&self) -> usize {
        let around = if self.keys.is_some() { noise::HEADER_LEN + noise::TAG_LEN } else { 0 };
        crate::packets::FULL - around
    }

    /// A packet with these segments.
    pub(super) fn sealed(&mut self, segments: Vec<u8>) -> Vec<u8> {
        let Some(keys) = &mut self.keys else { return segments };
        let mut packet = [&[0; noise::HEADER_LEN][..], &segments, &[0; noise::TAG_LEN]].concat();
        keys.seal(NOW, CONV, &mut packet).expect("a packet");
        packet
    }

    /// A number that was not drawn before.
    pub(super) const fn draw(&mut self) -> u32 {
        self.drawn += 1;
        self.drawn
    }

    /// The last segment of the next packet, if that has any.
    fn read(&mut self) -> io::Result<Option<SegmentHeader>> {
        let mut buffer = [0; 2_048];
        let len = self.socket.recv(&mut buffer)?;
        let segments = match &mut self.keys {
            None => &buffer[..len],
            Some(keys) => match keys.open(NOW, CONV, &mut buffer[..len]) {
                Ok(segments) => &*segments,
                // An answer to what is of no session.
                Err(_) => return Ok(None),
            },
        };
        let last = Segments::new(segments).flatten().map(|(header, _)| header).last();
        self.una = last.map_or(self.una, |header| self.una.max(header.una));
        Ok(last)
    }

    /// Waits until no more than so many segments are under way.
    pub(super) fn wait(&mut self, most: u32) -> io::Result<()> {
        while self.sn - self.una > most {
            match self.read() {
                // Where openings draw much, its ACK may have been too much for this socket.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.keys.is_none() => {
                    self.socket.send(self.last.last().expect("it waits for one"))?;
                }
                outcome => drop(outcome?),
            }
        }
        Ok(())
    }

    pub(super) fn send(&mut self, make: Make) -> io::Result<()> {
        let before = self.sn;
        let Burst { elsewhere, packets } = make(self);
        self.transmit(&self.elsewhere, &elsewhere)?;
        self.transmit(&self.socket, &packets)?;
        self.last = packets;
        // This one, and that before it.
        self.wait(self.sn - before)
    }

    fn transmit(&self, socket: &UdpSocket, packets: &[Vec<u8>]) -> io::Result<()> {
        if self.at_once && packets.len() > 1 {
            setsockopt(socket, UdpGsoSegment, &(packets[0].len() as i32))?;
            return socket.send(&packets.concat()).map(drop);
        }
        packets.iter().try_for_each(|packet| socket.send(packet).map(drop))
    }
}
