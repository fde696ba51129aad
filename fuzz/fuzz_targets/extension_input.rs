//! Extension segments that a hostile peer sends, which knows everything that this end has sent.
//!
//! The input is a script: the role and the settings of the session, then operations (extension segments with true or other
//! tags, ids, times and tokens, KCP's segments with marks and without, any bytes, time, writes, reads, the end). Proves that
//! whatever comes in
//! * nothing panics, and no poll loop is endless or spins: the next deadline lies in the future once output is drained;
//! * before the peer is confirmed, an extension segment stands alone in its packet, and the answers to HELLOs have at most
//!   three times the bytes of these;
//! * a peer that was confirmed stays so, and one that has shown that it has no extensions hears no more of them;
//! * the tag of a segment is never 0, and a packet never longer than the mtu.

#![no_main]

mod script;

use std::time::Duration;

use kcp9::{
    KcpConfig, Stats,
    proto::{
        Command, Connection, Extensions, HEADER_LEN, Instant, Random, SegmentHeader, Segments, SessionSeed,
    },
};
use libfuzzer_sys::fuzz_target;

use script::Script;

const CONV: u32 = 7;
const MAX_OPERATIONS: usize = 200;
const MAX_WRITTEN: usize = 200_000;
/// Packets one drain may produce before it counts as endless.
const MAX_PACKETS: usize = 20_000;
const HELLO: u8 = 1;
const ANSWER: u8 = 2;
const MARK: u8 = 0x60;
/// Bytes of a HELLO in front of its fields.
const HELLO_LEN: usize = 24;

/// All bytes of the seed are the same.
struct Same(u8);

impl Random for Same {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(self.0);
    }
}

struct Session {
    connection: Connection,
    now: Instant,
    buffer: Vec<u8>,
    connects: bool,
    confirmed: bool,
    /// An unmarked segment was heard before the peer was confirmed.
    legacy: bool,
    written: usize,
    /// Bytes of HELLOs handed in and of ANSWERs sent, until the peer is confirmed.
    hello_bytes: usize,
    answer_bytes: usize,
    /// What the session has told of itself, to aim with: its id, and the times and tokens that it has sent.
    id: [u8; 8],
    times: Vec<u32>,
    tokens: Vec<[u8; 8]>,
    next_sn: u32,
    una: u32,
    before: Stats,
}

impl Session {
    fn new(script: &mut Script<'_>) -> Self {
        let flags = script.byte();
        let extensions = if flags & 1 == 0 { Extensions::Preferred } else { Extensions::Required };
        let config = KcpConfig::builder()
            .extensions(extensions)
            .mtu([64, 100, 576, 1_400][usize::from(flags >> 1 & 3)])
            .datagram_queue(if flags & 8 == 0 { 0 } else { 4_096 })
            .dead_timeout(Duration::from_secs(5))
            .linger(Duration::from_secs(3))
            .build()
            .or_else(|_| KcpConfig::builder().extensions(extensions).build())
            .expect("settings in range");
        let connects = flags & 16 == 0;
        let (now, seed) = (Instant::from_millis(5), SessionSeed::new(&mut Same(9)));
        let connection = if connects {
            Connection::connect(CONV, &config, now, seed)
        } else {
            Connection::accept(CONV, &config, now, seed)
        };
        Self {
            connection,
            now,
            buffer: vec![0; 70_000],
            connects,
            confirmed: false,
            legacy: false,
            written: 0,
            hello_bytes: 0,
            answer_bytes: 0,
            id: [9; 8],
            times: vec![0],
            tokens: vec![[0; 8]],
            next_sn: 0,
            una: 0,
            before: Stats::default(),
        }
    }

    fn operate(&mut self, script: &mut Script<'_>) {
        match script.byte() % 16 {
            0 => {
                let count = usize::from(script.byte());
                let packet = script.bytes(count);
                self.input(packet);
            }
            1..=7 => {
                let packet = self.extension(script);
                self.input(packet);
            }
            8 | 9 => {
                let packet = self.segment(script);
                self.input(packet);
            }
            10 => self.pass(Duration::from_millis(script.byte().into())),
            11 | 12 => {
                if let Some(due) = self.connection.poll_timeout() {
                    self.pass(due - self.now);
                }
            }
            13 => {
                let len = (usize::from(script.byte()) * 16).min(MAX_WRITTEN - self.written);
                self.written += self.connection.write(self.now, &vec![0x5a; len]).unwrap_or(0);
            }
            14 => {
                let _ = self.connection.read(&mut [0; 4_096]);
            }
            _ => match script.byte() {
                0..8 => self.connection.shutdown(self.now),
                8..64 => self.connection.trim(),
                _ => self.connection.await_peer(self.now),
            },
        }
        self.settle();
    }

    /// An extension segment that is near to one that means something.
    fn extension(&mut self, script: &mut Script<'_>) -> Vec<u8> {
        let shape = script.byte();
        let subtype = script.byte() % 13;
        let own_tag = u32::from_le_bytes([self.id[0], self.id[1], self.id[2], self.id[3]]);
        let peer = [1 + script.byte() % 3; 8];
        let peer_tag = u32::from_le_bytes([peer[0]; 4]);
        let time = self.times[usize::from(script.byte()) % self.times.len()];
        let token = self.tokens[usize::from(script.byte()) % self.tokens.len()];
        let body = match subtype {
            HELLO | ANSWER => {
                let mut body = b"kcp9\x01\x01\0\0\0\0\0\0".to_vec();
                body.extend_from_slice(&peer);
                body.extend_from_slice(&time.to_le_bytes());
                if shape & 1 != 0 {
                    body.extend_from_slice(&[1, 4, 0, 0, 0x20, 0, 0]);
                }
                if shape & 2 != 0 {
                    body.extend_from_slice(&[3, 8, 0]);
                    body.extend_from_slice(&token);
                }
                if shape & 4 != 0 {
                    let field = script.byte();
                    let len = script.byte();
                    body.extend_from_slice(&[field, len, 0]);
                    body.resize(body.len() + usize::from(len), 3);
                }
                if shape & 8 != 0 {
                    let pad = u16::from(script.byte()) * 4;
                    body.push(0);
                    body.extend_from_slice(&pad.to_le_bytes());
                    body.resize(body.len() + usize::from(pad), 0);
                }
                if shape & 128 != 0 {
                    let at = usize::from(script.byte()) % HELLO_LEN;
                    body[at] = script.byte();
                }
                body
            }
            3 => {
                let len = script.byte() % 70;
                let mut body = vec![2, len, 0];
                body.resize(3 + usize::from(len), 4);
                body
            }
            4 | 5 => {
                let end = self.una.wrapping_add(u32::from(script.byte() % 8)).wrapping_sub(2);
                let mut body = end.to_le_bytes().to_vec();
                body.extend_from_slice(&[script.byte() & 3, 0, 0, 0]);
                body
            }
            7..=9 => {
                let mut body = token.to_vec();
                body.resize(8 + usize::from(script.byte() & 63), 0);
                body
            }
            _ => {
                let len = usize::from(script.byte() & 31);
                script.bytes(len)
            }
        };
        let tag = match script.byte() {
            0..=180 if subtype != HELLO => own_tag,
            0..=220 => peer_tag,
            221..=240 => own_tag,
            _ => script.word(),
        };
        let header = SegmentHeader {
            conv: CONV,
            cmd: Command::Extension,
            frg: subtype,
            wnd: if shape & 16 != 0 { u16::from(script.byte()) } else { 128 },
            ts: time,
            sn: tag,
            una: if shape & 32 != 0 { script.word() } else { self.next_sn },
            len: body.len() as u32,
        };
        if subtype == HELLO {
            self.hello_bytes += HEADER_LEN + body.len();
        }
        let mut packet = header.to_bytes().to_vec();
        packet.extend_from_slice(&body);
        if shape & 64 != 0 {
            let segment = self.segment(script);
            packet.extend_from_slice(&segment);
        }
        packet
    }

    /// A segment of KCP.
    fn segment(&self, script: &mut Script<'_>) -> Vec<u8> {
        let kind = script.byte();
        let cmd = [Command::Push, Command::Ack, Command::Wask, Command::Wins][usize::from(kind) % 4];
        let len = if cmd == Command::Push { u32::from(script.byte()) } else { 0 };
        let header = SegmentHeader {
            conv: CONV,
            cmd,
            frg: if kind & 8 != 0 && cmd != Command::Push { MARK } else { 0 },
            wnd: 128,
            ts: self.now.as_ts(),
            sn: self.una.wrapping_add(u32::from(script.byte() % 4)),
            una: if kind & 16 != 0 { self.next_sn } else { 0 },
            len,
        };
        let mut packet = header.to_bytes().to_vec();
        packet.resize(HEADER_LEN + len as usize, 0xa5);
        packet
    }

    fn input(&mut self, mut packet: Vec<u8>) {
        let _ = self.connection.handle_packet(self.now, &mut packet);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.connection.handle_timeout(self.now);
    }

    /// Does what a driver does after every call, and checks all that must hold then.
    fn settle(&mut self) {
        if self.connection.poll_timeout().is_some_and(|due| due <= self.now) {
            self.connection.handle_timeout(self.now);
        }
        let confirmed = self.connection.is_peer_confirmed();
        assert!(confirmed || !self.confirmed, "a confirmed peer stays confirmed");
        self.confirmed = confirmed;
        let mut packets = 0;
        while let Some(transmit) = self.connection.poll_transmit(self.now, &mut self.buffer) {
            packets += transmit.packets();
            assert!(packets < MAX_PACKETS, "endless output");
            assert!(transmit.stride <= self.connection.mtu());
            let batch = self.buffer[..transmit.len].to_vec();
            batch.chunks(transmit.stride).for_each(|packet| self.sent(packet));
        }
        let mut events = 0;
        while self.connection.poll_event().is_some() {
            events += 1;
            assert!(events < 20, "endless events");
        }
        if let Some(due) = self.connection.poll_timeout() {
            assert!(due > self.now, "spins: {:?} at {:?}", self.connection.next_timer(), self.now);
        }
        let stats = self.connection.stats();
        let (now, before) = (stats.extensions, self.before.extensions);
        assert!(now.sent >= before.sent && now.received >= before.received && now.dropped >= before.dropped);
        self.before = stats;
    }

    /// A packet of the session's own.
    fn sent(&mut self, packet: &[u8]) {
        let mut len = 0;
        let mut only_acks = true;
        for segment in Segments::new(packet) {
            let (header, body) = segment.expect("a whole segment");
            len += HEADER_LEN + body.len();
            assert_eq!(header.conv, CONV);
            self.times.push(header.ts);
            if header.cmd == Command::Extension {
                let is_last = len == packet.len();
                assert!(self.confirmed || (only_acks && is_last), "{header:?} shares a packet");
            }
            only_acks &= header.cmd == Command::Ack;
            match header.cmd {
                Command::Push => {
                    let next = header.sn.wrapping_add(1);
                    if next.wrapping_sub(self.next_sn) as i32 > 0 {
                        self.next_sn = next;
                    }
                }
                Command::Extension => self.sent_extension(&header, body),
                _ => assert_eq!(header.frg, MARK, "{header:?}"),
            }
            if header.cmd != Command::Extension {
                self.una = header.una;
            }
        }
        assert_eq!(len, packet.len(), "bytes behind the last segment");
        let keep = self.times.len().saturating_sub(8);
        self.times.drain(..keep);
    }

    fn sent_extension(&mut self, header: &SegmentHeader, body: &[u8]) {
        assert_ne!(header.sn, 0, "{header:?}");
        assert!(!self.legacy, "{header:?} to a peer without extensions");
        match header.frg {
            HELLO => assert!(self.connects && body[12..20] == self.id),
            ANSWER => {
                assert_eq!(body[12..20], self.id);
                if !self.confirmed {
                    self.answer_bytes += HEADER_LEN + body.len();
                    assert!(self.answer_bytes <= 3 * self.hello_bytes, "{} bytes", self.answer_bytes);
                }
                if let [3, 8, 0, token @ ..] = &body[HELLO_LEN..]
                    && let Some(token) = token.first_chunk()
                {
                    self.tokens.push(*token);
                }
            }
            8 => self.tokens.push(*body.first_chunk().expect("a token")),
            _ => {}
        }
        let keep = self.tokens.len().saturating_sub(4);
        self.tokens.drain(..keep);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let mut session = Session::new(&mut script);
    session.settle();
    for _ in 0..MAX_OPERATIONS {
        if script.0.is_empty() {
            break;
        }
        session.operate(&mut script);
    }
    // And what it waits for comes.
    for _ in 0..100 {
        let Some(due) = session.connection.poll_timeout() else { break };
        session.pass(due - session.now);
        session.settle();
    }
});
