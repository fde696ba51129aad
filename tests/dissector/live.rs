//! Captures of live sessions between two ends of this crate.

use std::time::Duration;

use kcp9::{
    KcpConfig, KcpConfigBuilder, KcpListener, KcpStream, Stats,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{Command, Extensions},
};
use kcp9_relay::Direction;
use kcp9_simulator::payload::Payload;
use kcp9_tests::{spawn, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    capture::{CLIENT_PORT, Packet, SERVER_PORT, Tap, pcap},
    expected::{self, Layer, Segment, layer, segments, subtype},
    tshark::{self, Frame, dissect, dissect_twice},
};

/// Seconds that a session may take.
pub const LIMIT: u64 = 30;

/// A session: what went by, and what its two ends have counted.
pub struct Session {
    pub packets: Vec<Packet>,
    client: Stats,
    server: Stats,
}

impl Session {
    /// Packets of a direction.
    fn sent(&self, way: Direction) -> impl Iterator<Item = &Packet> {
        self.packets.iter().filter(move |packet| packet.way == way)
    }

    fn ends(&self) -> [(Direction, &Stats); 2] {
        [(Direction::ToServer, &self.client), (Direction::ToClient, &self.server)]
    }
}

pub fn decode_as_kcp() -> String {
    format!("udp.port=={SERVER_PORT},kcp")
}

pub async fn listen(config: &KcpConfig, loss: f64) -> (KcpListener, Tap) {
    let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await.unwrap();
    let tap = Tap::start(listener.local_addr().unwrap(), loss, 9);
    (listener, tap)
}

/// Sends `len` bytes to a server that sends them back, through a path that loses a `loss` of the packets each way. Both ends begin
/// with `datagrams` datagrams, if there are any, and end in order.
pub async fn echo(config: KcpConfig, len: usize, loss: f64, datagrams: usize) -> Session {
    let (listener, tap) = listen(&config, loss).await;
    let serving = spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 16 << 10];
        loop {
            let read = stream.read(&mut buffer).await.unwrap();
            if read == 0 {
                break;
            }
            stream.write_all(&buffer[..read]).await.unwrap();
        }
        stream.shutdown().await.unwrap();
        stream.stats()
    });
    let stream = KcpStream::connect(tap.addr(), config).await.unwrap();
    for number in 0..datagrams {
        stream.send_datagram(&vec![number as u8; 10 * number]).unwrap();
    }
    let handle = stream.handle();
    let (mut reader, mut writer) = stream.into_split();
    let mut sent = vec![0; len];
    Payload::new(9).fill(0, &mut sent);
    let writing = spawn({
        let sent = sent.clone();
        async move {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
            writer
        }
    });
    let mut received = Vec::new();
    within(LIMIT, "the echo", reader.read_to_end(&mut received)).await.unwrap();
    assert!(received == sent, "the echo's bytes");
    let writer = within(LIMIT, "the end", writing).await.unwrap();
    let client = handle.stats();
    let server = within(LIMIT, "the server's end", serving).await.unwrap();
    drop((reader, writer));
    // The last answers.
    tokio::time::sleep(Duration::from_millis(100)).await;
    Session { packets: tap.packets(), client, server }
}

/// Compares each segment of each packet with what there is to be said of it.
fn compare(what: &str, packets: &[Packet], frames: &[Frame]) {
    assert_eq!(packets.len(), frames.len(), "{what}");
    for ((expected, frame), number) in expected::of(packets).into_iter().zip(frames).zip(1..) {
        let shown: Vec<Segment> = frame.segments().iter().map(Segment::shown).collect();
        assert_eq!(shown, expected, "{what}: frame {number}, {}", frame.info);
        assert_eq!(frame.protocol, "KCP", "{what}: frame {number}");
        for wrong in ["malformed", "trailing", "encrypted", "cut", "fec.shards_differ"] {
            assert!(!frame.is(wrong), "{what}: frame {number}, {}: {wrong}", frame.info);
        }
        let streams = tshark::number(frame.kcp.as_ref().unwrap(), "kcp.stream");
        assert_eq!(streams, Some(0), "{what}: frame {number}");
    }
}

/// Compares the FEC headers, for groups of `data` and `parity`.
fn compare_fec(packets: &[Packet], frames: &[Frame], data: u32, parity: u32) {
    for (packet, frame) in packets.iter().zip(frames) {
        let kcp = frame.kcp.as_ref().unwrap();
        let shown =
            ["seqid", "type", "group", "index"].map(|name| tshark::number(kcp, &format!("kcp.fec.{name}")));
        let numbered = |seqid: u32, kind| {
            let shards = data + parity;
            [Some(seqid), Some(kind), Some(seqid / shards), Some(seqid % shards)]
        };
        let expected = match layer(&packet.payload) {
            Layer::Plain => [None; 4],
            Layer::Data { seqid } => numbered(seqid, 0xf1),
            Layer::Parity { seqid } => numbered(seqid, 0xf2),
            Layer::Datagram => [Some(u32::MAX), Some(0xf3), None, None],
        };
        assert_eq!(shown, expected, "{}", frame.info);
        if let Layer::Parity { .. } = layer(&packet.payload) {
            // As in each packet of the group.
            let conv = packets.iter().find_map(|packet| Some(segments(&packet.payload).first()?.0.conv));
            assert_eq!(tshark::number(kcp, "kcp.conv"), conv, "{}", frame.info);
        }
    }
}

/// How often tshark shows a kind of segment of an end.
fn count(session: &Session, frames: &[Frame], way: Direction, is: impl Fn(&Segment) -> bool) -> u64 {
    let packets = session.packets.iter().zip(frames).filter(|(packet, _)| packet.way == way);
    let segments = packets.flat_map(|(_, frame)| frame.segments());
    segments.filter(|node| is(&Segment::shown(node))).count() as u64
}

/// Compares sums with the statistics of the ends.
fn compare_with_statistics(session: &Session, frames: &[Frame]) {
    for (way, stats) in session.ends() {
        let count = |is: &dyn Fn(&Segment) -> bool| count(session, frames, way, is);
        let is = |cmd: Command| move |segment: &Segment| segment.header[0] == cmd as u32;
        let first = |segment: &Segment| {
            let is_probe = segment.is_address_probe || segment.is_mtu_probe;
            is(Command::Push)(segment) && segment.resend.is_none() && !is_probe
        };
        assert_eq!(count(&first), stats.segments.push_sent, "{way:?}");
        let resends = |segment: &Segment| is(Command::Push)(segment) && segment.resend.is_some();
        let copies = stats.recovery.fec_flush_copies;
        assert_eq!(count(&resends), stats.recovery.resends() + copies, "{way:?}");
        assert_eq!(count(&is(Command::Wask)), stats.segments.window_probes, "{way:?}");
        // After the end, the last ones are answered again.
        assert!(count(&is(Command::Ack)) >= stats.segments.acks_sent, "{way:?}");
        let parity =
            session.sent(way).filter(|packet| matches!(layer(&packet.payload), Layer::Parity { .. }));
        assert_eq!(parity.count() as u64, stats.fec.parity_sent, "{way:?}");
    }
}

pub fn builder() -> KcpConfigBuilder {
    KcpConfig::builder().send_window(128).recv_window(128)
}

/// A transfer each way through a path that loses packets. What was sent shows the resends, what arrived the gaps.
async fn lossy(loss: f64, fec: Option<(u8, u8)>) {
    let config = fec.map_or(builder(), |(data, parity)| builder().fec(data.into(), parity.into()));
    let session = echo(config.build().unwrap(), 200_000, loss, 0).await;
    let decode = decode_as_kcp();
    let (data, parity) = fec.unwrap_or_default();
    let shards = [format!("kcp.data_shards:{data}"), format!("kcp.parity_shards:{parity}")];
    let options = ["-d", &decode, "-o", &shards[0], "-o", &shards[1]];

    let frames = dissect_twice(&pcap(&session.packets), &options);
    compare("what was sent", &session.packets, &frames);
    compare_with_statistics(&session, &frames);
    let resends = |segment: &Segment| segment.resend.is_some();
    for (way, stats) in session.ends() {
        assert!(count(&session, &frames, way, resends) > 0, "{way:?}: {stats:?}");
        // Nothing is missing in what was sent.
        assert_eq!(count(&session, &frames, way, |segment| segment.missing.is_some()), 0);
    }
    assert!(frames.iter().any(|frame| frame.info.contains("[Resend")));

    let arrived: Vec<Packet> = session.packets.iter().filter(|packet| !packet.is_lost).cloned().collect();
    assert!(arrived.len() < session.packets.len());
    let seen = dissect(&pcap(&arrived), &options);
    compare("what arrived", &arrived, &seen);
    for expert in ["analysis.gap", "analysis.out_of_order"] {
        assert!(seen.iter().any(|frame| frame.is(expert)), "{expert}");
    }
    if let Some((data, parity)) = fec {
        compare_fec(&session.packets, &frames, data.into(), parity.into());
        assert!(frames.iter().any(|frame| frame.info.contains("FEC parity seqid=")));
    }

    // Nobody has to name the port: the heuristic finds the session, and says the same.
    let found = dissect(&pcap(&arrived), &options[2..]);
    compare("what the heuristic finds", &arrived, &found);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
async fn tshark_tells_resends_gaps_and_acknowledged_frames() {
    lossy(0.1, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
async fn tshark_tells_the_same_under_fec_with_its_groups() {
    lossy(0.2, Some((10, 3))).await;
}

/// The receiver reads nothing until its window has closed and was asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
async fn tshark_marks_a_closed_window_its_probes_and_when_it_opens() {
    let config = KcpConfig::builder().send_window(64).recv_window(32).build().unwrap();
    let (listener, tap) = listen(&config, 0.0).await;
    let mut client = KcpStream::connect(tap.addr(), config).await.unwrap();
    let handle = client.handle();
    let writing = spawn(async move {
        client.write_all(&vec![7; 200_000]).await.unwrap();
        client.shutdown().await.unwrap();
        client
    });
    let (mut server, _) = within(LIMIT, "accept", listener.accept()).await.unwrap();
    let is_probe = |packet: &Packet| {
        segments(&packet.payload).iter().any(|(header, _)| header.cmd == Command::Wask && header.sn != 0)
    };
    within(LIMIT, "a probe", async {
        while !tap.packets().iter().any(is_probe) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut received = Vec::new();
    within(LIMIT, "the bytes", server.read_to_end(&mut received)).await.unwrap();
    assert_eq!(received.len(), 200_000);
    within(LIMIT, "the server's end", server.shutdown()).await.unwrap();
    let client = within(LIMIT, "the end", writing).await.unwrap();
    let session = Session { packets: tap.packets(), client: handle.stats(), server: server.stats() };
    drop((client, server));

    let frames = dissect(&pcap(&session.packets), &["-d", &decode_as_kcp()]);
    compare("a closed window", &session.packets, &frames);
    compare_with_statistics(&session, &frames);
    let count = |way, is: &dyn Fn(&Segment) -> bool| count(&session, &frames, way, is);
    let closed = count(Direction::ToClient, &|segment| segment.is_zero_window);
    let opened = count(Direction::ToClient, &|segment| segment.reopened.is_some());
    assert!(closed > 0 && opened > 0, "closed {closed}, opened {opened}");
    assert_eq!(count(Direction::ToServer, &|segment| segment.is_zero_window), 0);
    for mark in ["Zero window", "Window open"] {
        assert!(frames.iter().any(|frame| frame.info.contains(mark)), "{mark}");
    }
}

/// The frame of the first extension segment of a subtype, from 1.
fn first(packets: &[Packet], kind: u8) -> usize {
    let is = |packet: &Packet| expected::has(&packet.payload, kind);
    1 + packets.iter().position(is).unwrap_or_else(|| panic!("no segment of subtype {kind}"))
}

/// The extension segment of a subtype in a frame.
fn extension(frame: &Frame, kind: u8) -> &serde_json::Value {
    let is = |node: &&serde_json::Value| tshark::number(node, "kcp.ext.subtype") == Some(kind.into());
    frame.segments().iter().find(is).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
async fn tshark_shows_how_sessions_begin_and_end() {
    let decode = decode_as_kcp();
    // More than the first window, so that the token is returned before the end.
    let session = echo(builder().build().unwrap(), 200_000, 0.0, 0).await;
    let frames = dissect(&pcap(&session.packets), &["-d", &decode]);
    compare("a session in order", &session.packets, &frames);
    // A PONG also answers a PING and a probe of the MTU, which may come first.
    let answers = |kind: u8, of: u8| {
        let mut requests = Vec::new();
        for (answer, (frame, packet)) in frames.iter().zip(&session.packets).enumerate() {
            if !expected::has(&packet.payload, kind) {
                continue;
            }
            let request = tshark::number(extension(frame, kind), "kcp.analysis.request_frame");
            let request = request.unwrap_or_else(|| panic!("{}", frame.info)) as usize - 1;
            assert!(request < answer && session.packets[request].way != packet.way, "{}", frame.info);
            requests.push(request);
        }
        let is_answered =
            requests.iter().any(|&request| expected::has(&session.packets[request].payload, of));
        assert!(is_answered, "subtype {kind} for {of}: frames {requests:?}");
    };
    answers(subtype::ANSWER, subtype::HELLO);
    answers(subtype::PONG, subtype::ANSWER);
    answers(subtype::FIN_ACK, subtype::FIN);
    let hello = &frames[first(&session.packets, subtype::HELLO) - 1];
    assert!(hello.info.contains(" HELLO conv=0x"), "{}", hello.info);
    let hello = extension(hello, subtype::HELLO);
    assert_eq!(tshark::text(hello, "kcp.ext.magic"), Some("kcp9"));
    let fields = tshark::many(hello, "kcp.ext.field");
    let keep_alive = fields.iter().find_map(|field| tshark::number(field, "kcp.ext.keep_alive"));
    assert_eq!(keep_alive, Some(20_000));
    let fin = &frames[first(&session.packets, subtype::FIN) - 1];
    assert!(fin.is("analysis.fin"));
    let pushes = session.sent(Direction::ToServer).flat_map(|packet| segments(&packet.payload));
    let pushes = pushes.filter(|(header, _)| header.cmd == Command::Push);
    let end = pushes.map(|(header, _)| header.sn + 1).max();
    let fin = frames.iter().zip(&session.packets).filter(|(_, packet)| packet.way == Direction::ToServer);
    let fin =
        fin.flat_map(|(frame, _)| frame.segments()).find_map(|node| tshark::number(node, "kcp.ext.end"));
    assert_eq!(fin, end);

    // Without extensions there are none, and no marks.
    let config = builder().extensions(Extensions::Off).build().unwrap();
    let (listener, tap) = listen(&config, 0.0).await;
    let mut client = KcpStream::connect(tap.addr(), config).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let (mut server, _) = within(LIMIT, "accept", listener.accept()).await.unwrap();
    within(LIMIT, "hello", server.read_exact(&mut [0; 5])).await.unwrap();
    within(LIMIT, "the end", client.shutdown()).await.unwrap();
    let packets = tap.packets();
    let frames = dissect(&pcap(&packets), &["-d", &decode]);
    compare("without extensions", &packets, &frames);
    let segments: Vec<Segment> =
        frames.iter().flat_map(|frame| frame.segments()).map(Segment::shown).collect();
    assert!(segments.iter().all(|segment| segment.header[0] != 0x60 && !segment.is_marked));
    assert!(segments.iter().any(|segment| segment.header[0] == Command::Ack as u32));

    // An end that aborts.
    let config = builder().build().unwrap();
    let (listener, tap) = listen(&config, 0.0).await;
    let mut client = KcpStream::connect(tap.addr(), config).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let (mut server, _) = within(LIMIT, "accept", listener.accept()).await.unwrap();
    within(LIMIT, "hello", server.read_exact(&mut [0; 5])).await.unwrap();
    client.connected(Duration::from_secs(LIMIT)).await.unwrap();
    // It takes ANSWER for the client to have a tag to abort with.
    while !tap.packets().iter().any(|packet| expected::has(&packet.payload, subtype::PONG)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.abort();
    within(LIMIT, "the abort", server.read(&mut [0; 5])).await.unwrap_err();
    let packets = tap.packets();
    let frames = dissect(&pcap(&packets), &["-d", &decode]);
    compare("an abort", &packets, &frames);
    let abort = &frames[first(&packets, subtype::ABORT) - 1];
    assert!(abort.is("analysis.abort") && abort.info.contains("ABORT"), "{}", abort.info);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
async fn tshark_shows_datagrams_beside_the_stream() {
    const COUNT: usize = 20;
    let session = echo(builder().datagram_queue(1 << 16).build().unwrap(), 20_000, 0.0, COUNT).await;
    let frames = dissect(&pcap(&session.packets), &["-d", &decode_as_kcp()]);
    compare("datagrams", &session.packets, &frames);
    compare_fec(&session.packets, &frames, 10, 3);
    let is_datagram = |(packet, _): &(&Packet, &Frame)| layer(&packet.payload) == Layer::Datagram;
    let datagrams: Vec<&Frame> =
        session.packets.iter().zip(&frames).filter(is_datagram).map(|(_, frame)| frame).collect();
    assert_eq!(datagrams.len(), COUNT);
    for (number, frame) in datagrams.into_iter().enumerate() {
        let bytes = vec![format!("{number:02x}"); 10 * number].join(":");
        assert_eq!(frame.text("kcp.datagram").unwrap_or_default(), bytes);
        assert!(frame.info.contains(&format!("Datagram len={}", 10 * number)), "{}", frame.info);
    }
}

/// What is encrypted is left alone; a port that the user has named says so. The cipher `none` hides nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
async fn tshark_decrypts_nothing_and_says_so_on_a_named_port() {
    let encrypted = |kind: CipherKind, framing| {
        let key = Key::from_bytes(&[7; 32][..kind.key_len()]);
        let crypto = PacketCrypto::with_os_nonces(kind.build(&key, framing).unwrap()).unwrap();
        builder().crypto(crypto).build().unwrap()
    };
    let mut packets = Vec::new();
    for (kind, client_port) in [CipherKind::Aes128Gcm, CipherKind::Aes256].into_iter().zip(CLIENT_PORT..) {
        let session = echo(encrypted(kind, Framing::KcpGo), 20_000, 0.0, 0).await;
        packets.extend(session.packets.into_iter().map(|packet| Packet { client_port, ..packet }));
    }
    for frame in dissect(&pcap(&packets), &["-o", &format!("kcp.ports:{SERVER_PORT}")]) {
        assert_eq!((frame.protocol.as_str(), frame.experts()), ("KCP", vec!["encrypted".to_owned()]));
        assert!(frame.info.contains("Encrypted or not KCP"), "{}", frame.info);
    }
    for frame in dissect(&pcap(&packets), &[]) {
        assert!(frame.kcp.is_none() && frame.protocol != "KCP", "{}", frame.info);
    }
    for (framing, len) in [(Framing::KcpGo, 20), (Framing::Highway, 24)] {
        let session = echo(encrypted(CipherKind::None, framing), 20_000, 0.0, 0).await;
        let frames = dissect(&pcap(&session.packets), &[]);
        let mut packets = session.packets;
        for packet in &mut packets {
            packet.payload.drain(..len);
        }
        compare("the cipher `none`", &packets, &frames);
        let name = if framing == Framing::KcpGo { "kcp.checksum" } else { "kcp.tag" };
        assert!(frames.iter().all(|frame| frame.text(name).is_some() && frame.text("kcp.nonce").is_some()));
    }
}
