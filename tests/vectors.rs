//! Known answers, made by running kcp-go 5.6.72: every byte of a segment, and whole sessions as they reached a server.

use std::{fmt::Write as _, sync::Arc};

use kcp9::{
    KcpConfig,
    crypto::{CipherError, CipherKind, Framing, Key, NonceSource, PacketCrypto},
    proto::{Command, Connection, Instant, SegmentHeader, Segments},
};
use kcp9_vectors::Vector;
use sha2::{Digest, Sha256};

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn fields(segment: &Vector, payload: &[u8]) -> SegmentHeader {
    SegmentHeader {
        conv: segment.number("conv"),
        cmd: Command::from_byte(segment.number("cmd")).unwrap(),
        frg: segment.number("frg"),
        wnd: segment.number("wnd"),
        ts: segment.number("ts"),
        sn: segment.number("sn"),
        una: segment.number("una"),
        len: payload.len() as u32,
    }
}

#[test]
fn segments_equal_those_of_kcp_go() {
    let segments = kcp9_vectors::segments();
    assert!(segments.len() >= 10);
    let mut together = Vec::new();
    let mut expected = Vec::new();
    for segment in &segments {
        let (payload, wire) = (segment.bytes("data"), segment.bytes("wire"));
        let header = fields(segment, &payload);
        assert_eq!(to_hex(&[&header.to_bytes(), payload.as_slice()].concat()), segment.text("wire"));
        assert_eq!(Segments::new(&wire).collect::<Vec<_>>(), [Ok((header, payload.as_slice()))]);
        together.extend_from_slice(&wire);
        expected.push((header, payload));
    }
    // And all of them in one packet.
    let found: Vec<_> = Segments::new(&together).map(Result::unwrap).map(|(h, p)| (h, p.to_vec())).collect();
    assert_eq!(found, expected);
}

/// Everything that a connection sends now, segment by segment.
fn replies(connection: &mut Connection, now: Instant) -> Vec<SegmentHeader> {
    let crypto = connection.crypto().cloned();
    let mut buffer = vec![0; 65_536];
    let mut headers = Vec::new();
    while let Some(transmit) = connection.poll_transmit(now, &mut buffer) {
        for packet in buffer[..transmit.len].chunks_mut(transmit.stride) {
            let segments = opened(crypto.as_ref(), packet);
            headers.extend(Segments::new(segments).map(|segment| segment.unwrap().0));
        }
    }
    headers
}

/// The segments of a packet.
fn opened<'a>(crypto: Option<&PacketCrypto>, packet: &'a mut [u8]) -> &'a [u8] {
    let Some(cipher) = crypto.map(PacketCrypto::cipher) else { return behind_fec(packet) };
    cipher.open(packet).unwrap();
    behind_fec(&packet[cipher.header_len()..packet.len() - cipher.trailer_len()])
}

/// The bytes after the FEC header, if there is one.
fn behind_fec(payload: &[u8]) -> &[u8] {
    match payload[4] {
        0xf1 => &payload[8..],
        0xf2 => &[],
        _ => payload,
    }
}

/// For a receiver whose packets are dropped.
#[derive(Debug)]
struct SameNonce;

impl NonceSource for SameNonce {
    fn fill(&self, nonce: &mut [u8]) {
        nonce.fill(1);
    }
}

/// How a recorded session was encrypted; `Err` when the crate was built without its cipher.
fn crypto(session: &Vector) -> Result<Option<PacketCrypto>, CipherError> {
    let cipher = session.text("cipher");
    if cipher == "null" {
        return Ok(None);
    }
    let kind: CipherKind = cipher.parse()?;
    let key = Key::from_bytes(&session.text("key").as_bytes()[..kind.key_len()]);
    Ok(Some(PacketCrypto::new(kind.build(&key, Framing::KcpGo)?, Arc::new(SameNonce))))
}

#[test]
fn recorded_sessions_yield_their_stream() {
    let sessions = kcp9_vectors::client_transcripts();
    let mut ciphers = Vec::new();
    // One receiver is told the client's numbers of shards, the other finds them out.
    for (session, told) in sessions.iter().flat_map(|session| [(session, true), (session, false)]) {
        let Ok(crypto) = crypto(session) else { continue };
        let shards: (usize, usize) = (session.number("data_shards"), session.number("parity_shards"));
        let with_fec = shards.0 > 0;
        if !with_fec && told {
            continue;
        }
        ciphers.push((session.text("cipher"), session.fraction("lost_fraction")));
        let (data, parity) = if told { shards } else { (0, 0) };
        let config =
            KcpConfig::builder().crypto(crypto.clone()).fec(data, parity).keep_alive(None).build().unwrap();
        let conv = session.number("conv");
        let mut connection = Connection::new(conv, &config, Instant::ZERO);
        let mut stream = Vec::new();
        let mut una = 0;
        let mut acknowledged = Vec::new();
        let mut sent = Vec::new();
        let packets = session.vectors("datagrams");
        let last: u64 = packets.last().unwrap().number("ms");
        for received in &packets {
            let (ms, mut packet) = (received.number("ms"), received.bytes("datagram"));
            let mut copy = packet.clone();
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
            connection.handle_packet(now, &mut packet).unwrap();
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
        assert_eq!(stream.len(), session.number::<usize>("stream_len"), "conv {conv}");
        assert_eq!(to_hex(&stream[..64]), session.text("stream_first_64"), "conv {conv}");
        assert_eq!(to_hex(&Sha256::digest(&stream)), session.text("stream_sha256"), "conv {conv}");
        let end = sent.iter().max().unwrap() + 1;
        assert_eq!(una, end, "everything is acknowledged");
        assert!(with_fec || acknowledged.iter().all(|sn| sent.contains(sn)), "conv {conv}");
        assert!(acknowledged.contains(&(end - 1)), "conv {conv}");
        let stats = connection.stats();
        let recovered = stats.fec.recovered;
        assert!(stats.segments.push_received >= sent.len() as u64 + recovered, "conv {conv}");
        assert!(with_fec || stats.segments.push_received == sent.len() as u64, "conv {conv}");
        assert_eq!(
            (stats.udp.malformed, stats.udp.wrong_conv, stats.fec.mismatches),
            (0, 0, 0),
            "conv {conv}"
        );
        if with_fec {
            let peer = (stats.fec_state.peer_data_shards, stats.fec_state.peer_parity_shards);
            assert_eq!(peer, (shards.0 as u32, shards.1 as u32), "conv {conv}");
            println!("conv {conv}, told: {told}: {:?}", stats.fec);
            assert!(recovered > 0, "conv {conv}, told: {told}: {:?}", stats.fec);
        }
        assert_eq!((stats.udp.forged, stats.udp.replayed), (0, 0), "conv {conv}");
        assert_eq!(connection.poll_timeout(), None);
    }
    // 5 without FEC, 7 with.
    let runs = if cfg!(all(feature = "kcptun-ciphers", feature = "aead")) { 5 + 2 * 7 } else { 2 + 2 * 2 };
    assert!(ciphers.len() >= runs, "{ciphers:?}");
}

#[test]
fn datagrams_equal_the_out_of_band_packets_of_kcp_go() {
    let recorded = kcp9_vectors::fec_packets();
    let mut runs = 0;
    for recorded in recorded.iter().filter(|recorded| recorded.has("payload_conv_and_data")) {
        let (packet, payload) = (recorded.bytes("packet"), recorded.bytes("payload_conv_and_data"));
        let (conv, datagram) = payload.split_first_chunk().unwrap();
        // With FEC and without.
        for (data, parity) in [(0, 0), (10, 3)] {
            let config = KcpConfig::builder().fec(data, parity).datagram_queue(65_536).build().unwrap();
            let conv = u32::from_le_bytes(*conv);
            let [mut sender, mut receiver] = [(); 2].map(|()| Connection::new(conv, &config, Instant::ZERO));
            sender.send_datagram(datagram).unwrap();
            let mut buffer = vec![0; 65_536];
            let transmit = sender.poll_transmit(Instant::ZERO, &mut buffer).unwrap();
            assert_eq!(to_hex(&buffer[..transmit.len]), to_hex(&packet));
            receiver.handle_packet(Instant::ZERO, &mut packet.clone()).unwrap();
            assert_eq!(receiver.recv_datagram().as_deref(), Some(datagram));
            runs += 1;
        }
    }
    assert_eq!(runs, 2);
}

/// A server that only receives sends only ACKs, and their `una` never goes back.
fn check_reply(header: &SegmentHeader, conv: u32, una: &mut u32) {
    assert_eq!((header.conv, header.cmd, header.len), (conv, Command::Ack, 0));
    assert!(header.wnd > 0);
    assert!(header.una >= *una, "una goes back to {} from {una}", header.una);
    *una = header.una;
}
