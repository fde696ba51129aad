//! Known answers, made by running kcp-go 5.6.72: every byte of a segment, and whole sessions as they reached a server.

use std::{fmt::Write as _, fs, path::Path, sync::Arc};

use kcp9::{
    KcpConfig,
    crypto::{CipherError, CipherKind, Framing, Key, NonceSource, PacketCrypto},
    proto::{Command, Connection, Instant, SegmentHeader, Segments},
};
use serde::{Deserialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
struct Segment {
    conv: u32,
    cmd: u8,
    frg: u8,
    wnd: u16,
    ts: u32,
    sn: u32,
    una: u32,
    data: String,
    wire: String,
}

#[derive(Deserialize)]
struct Session {
    cipher: String,
    key: String,
    data_shards: usize,
    parity_shards: usize,
    conv: u32,
    lost_fraction: f64,
    datagrams: Vec<Received>,
    stream_len: usize,
    stream_first_64: String,
    stream_sha256: String,
}

#[derive(Deserialize)]
struct Received {
    ms: u64,
    datagram: String,
}

fn load<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn from_hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn fields(segment: &Segment, payload: &[u8]) -> SegmentHeader {
    SegmentHeader {
        conv: segment.conv,
        cmd: Command::from_byte(segment.cmd).unwrap(),
        frg: segment.frg,
        wnd: segment.wnd,
        ts: segment.ts,
        sn: segment.sn,
        una: segment.una,
        len: payload.len() as u32,
    }
}

#[test]
fn segments_are_written_and_read_as_kcp_go_does() {
    let segments: Vec<Segment> = load("segments.json");
    assert!(segments.len() >= 10);
    let mut together = Vec::new();
    let mut expected = Vec::new();
    for segment in &segments {
        let (payload, wire) = (from_hex(&segment.data), from_hex(&segment.wire));
        let header = fields(segment, &payload);
        assert_eq!(to_hex(&[&header.to_bytes(), payload.as_slice()].concat()), segment.wire);
        assert_eq!(Segments::new(&wire).collect::<Vec<_>>(), [Ok((header, payload.as_slice()))]);
        together.extend_from_slice(&wire);
        expected.push((header, payload));
    }
    // And all of them in one datagram.
    let found: Vec<_> = Segments::new(&together).map(Result::unwrap).map(|(h, p)| (h, p.to_vec())).collect();
    assert_eq!(found, expected);
}

/// Everything that a connection sends now, segment by segment.
fn replies(connection: &mut Connection, now: Instant) -> Vec<SegmentHeader> {
    let crypto = connection.crypto().cloned();
    let mut buffer = vec![0; 65_536];
    let mut headers = Vec::new();
    while let Some(transmit) = connection.poll_transmit(now, &mut buffer) {
        for datagram in buffer[..transmit.len].chunks_mut(transmit.segment_size) {
            let segments = opened(crypto.as_ref(), datagram);
            headers.extend(Segments::new(segments).map(|segment| segment.unwrap().0));
        }
    }
    headers
}

/// The segments of a datagram.
fn opened<'a>(crypto: Option<&PacketCrypto>, datagram: &'a mut [u8]) -> &'a [u8] {
    let Some(cipher) = crypto.map(PacketCrypto::cipher) else { return behind_fec(datagram) };
    cipher.open(datagram).unwrap();
    behind_fec(&datagram[cipher.header_len()..datagram.len() - cipher.trailer_len()])
}

/// What stands behind an FEC header, if there is one.
fn behind_fec(payload: &[u8]) -> &[u8] {
    match payload[4] {
        0xf1 => &payload[8..],
        0xf2 => &[],
        _ => payload,
    }
}

/// For a receiver that nobody listens to.
#[derive(Debug)]
struct SameNonce;

impl NonceSource for SameNonce {
    fn fill(&self, nonce: &mut [u8]) {
        nonce.fill(1);
    }
}

/// How a recorded session was encrypted; `Err` when the crate was built without its cipher.
fn crypto(session: &Session) -> Result<Option<PacketCrypto>, CipherError> {
    if session.cipher == "null" {
        return Ok(None);
    }
    let kind: CipherKind = session.cipher.parse()?;
    let key = Key::from_bytes(&session.key.as_bytes()[..kind.key_len()]);
    Ok(Some(PacketCrypto::new(kind.build(&key, Framing::KcpGo)?, Arc::new(SameNonce))))
}

#[test]
fn recorded_sessions_yield_their_stream() {
    let sessions: Vec<Session> = load("client_transcripts.json");
    let mut ciphers = Vec::new();
    // A receiver that is told how the client corrects errors, and one that finds out.
    for (session, told) in sessions.iter().flat_map(|session| [(session, true), (session, false)]) {
        let Ok(crypto) = crypto(session) else { continue };
        let with_fec = session.data_shards > 0;
        if !with_fec && told {
            continue;
        }
        ciphers.push((session.cipher.clone(), session.lost_fraction));
        let shards = if told { (session.data_shards, session.parity_shards) } else { (0, 0) };
        let config = KcpConfig::builder().crypto(crypto.clone()).fec(shards.0, shards.1).build().unwrap();
        let conv = session.conv;
        let mut connection = Connection::new(conv, &config, Instant::ZERO);
        let mut stream = Vec::new();
        let mut una = 0;
        let mut acknowledged = Vec::new();
        let mut sent = Vec::new();
        let last = session.datagrams.last().unwrap().ms;
        for Received { ms, datagram } in &session.datagrams {
            let (ms, mut datagram) = (*ms, from_hex(datagram));
            let mut copy = datagram.clone();
            let segments = opened(crypto.as_ref(), &mut copy);
            sent.extend(Segments::new(segments).map(|segment| segment.unwrap().0.sn));
            let mut now = Instant::from_millis(ms);
            // Deadlines that came before it first.
            while let Some(due) = connection.poll_timeout().filter(|due| *due <= now) {
                connection.handle_timeout(due);
                for header in replies(&mut connection, due) {
                    check_reply(&header, conv, &mut una);
                    acknowledged.push(header.sn);
                }
            }
            connection.handle_datagram(now, &mut datagram).unwrap();
            let mut bytes = [0; 2_000];
            while let Ok(count) = connection.read(&mut bytes) {
                stream.extend_from_slice(&bytes[..count]);
            }
            if ms == last {
                now = Instant::from_millis(ms + 1_000);
                connection.handle_timeout(now);
            }
            for header in replies(&mut connection, now) {
                check_reply(&header, conv, &mut una);
                acknowledged.push(header.sn);
            }
        }
        assert_eq!(stream.len(), session.stream_len, "conv {conv}");
        assert_eq!(to_hex(&stream[..64]), session.stream_first_64, "conv {conv}");
        assert_eq!(to_hex(&Sha256::digest(&stream)), session.stream_sha256, "conv {conv}");
        let end = sent.iter().max().unwrap() + 1;
        assert_eq!(una, end, "everything is acknowledged");
        assert!(with_fec || acknowledged.iter().all(|sn| sent.contains(sn)), "conv {conv}");
        assert!(acknowledged.contains(&(end - 1)), "conv {conv}");
        let stats = connection.stats();
        let recovered = stats.fec.recovered;
        assert!(stats.push_received >= sent.len() as u64 + recovered, "conv {conv}");
        assert!(with_fec || stats.push_received == sent.len() as u64, "conv {conv}");
        assert_eq!((stats.malformed, stats.wrong_conv, stats.fec.mismatches), (0, 0, 0), "conv {conv}");
        if with_fec {
            let peer = (stats.fec.peer_data_shards, stats.fec.peer_parity_shards);
            assert_eq!(peer, (session.data_shards as u32, session.parity_shards as u32), "conv {conv}");
            println!("conv {conv}, told: {told}: {:?}", stats.fec);
            assert!(recovered > 0, "conv {conv}, told: {told}: {:?}", stats.fec);
        }
        assert_eq!((stats.forged, stats.replayed), (0, 0), "conv {conv}");
        assert_eq!(connection.poll_timeout(), None);
    }
    // 5 without FEC, 7 with.
    let runs = if cfg!(all(feature = "kcptun-ciphers", feature = "aead")) { 5 + 2 * 7 } else { 2 + 2 * 2 };
    assert!(ciphers.len() >= runs, "{ciphers:?}");
}

#[derive(Deserialize)]
struct FecPacket {
    packet: Option<String>,
    payload_conv_and_data: Option<String>,
}

#[test]
fn out_of_band_datagrams_are_those_of_kcp_go() {
    let recorded: Vec<FecPacket> = load("fec_packets.json");
    let mut runs = 0;
    for FecPacket { packet, payload_conv_and_data } in recorded {
        let (Some(packet), Some(payload)) = (packet, payload_conv_and_data) else { continue };
        let (packet, payload) = (from_hex(&packet), from_hex(&payload));
        let (conv, datagram) = payload.split_first_chunk().unwrap();
        // Whatever FEC there is.
        for (data, parity) in [(0, 0), (10, 3)] {
            let config = KcpConfig::builder().fec(data, parity).datagram_queue(65_536).build().unwrap();
            let conv = u32::from_le_bytes(*conv);
            let [mut sender, mut receiver] = [(); 2].map(|()| Connection::new(conv, &config, Instant::ZERO));
            sender.send_datagram(datagram).unwrap();
            let mut buffer = vec![0; 65_536];
            let transmit = sender.poll_transmit(Instant::ZERO, &mut buffer).unwrap();
            assert_eq!(to_hex(&buffer[..transmit.len]), to_hex(&packet));
            receiver.handle_datagram(Instant::ZERO, &mut packet.clone()).unwrap();
            assert_eq!(receiver.recv_datagram().as_deref(), Some(datagram));
            runs += 1;
        }
    }
    assert_eq!(runs, 2);
}

/// A server that only receives answers with ACKs, whose `una` never goes back.
fn check_reply(header: &SegmentHeader, conv: u32, una: &mut u32) {
    assert_eq!((header.conv, header.cmd, header.len), (conv, Command::Ack, 0));
    assert!(header.wnd > 0);
    assert!(header.una >= *una, "una goes back to {} from {una}", header.una);
    *una = header.una;
}
