//! Captures of live sessions whose ends agree on keys.

use std::time::Duration;

use kcp9::{
    KcpConfig, KcpStream,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{
        Command, Segments,
        noise::{Initiator, KeyPair, Noise, Pattern, Psk, Responder, Trust},
    },
};
use kcp9_relay::Direction::{ToClient, ToServer};
use kcp9_simulator::Rng;
use kcp9_tests::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    agreement::{compare_sealed, shown_bytes, shown_message},
    capture::{Packet, SERVER_PORT, pcap},
    expected::{segments, subtype},
    live::{LIMIT, builder, decode_as_kcp, echo, listen},
    tshark::{self, Frame, dissect, dissect_twice},
};

/// Both ends of a session with a pattern. They have the same shared key, if the `psks` are the same.
fn ends(pattern: Pattern, psks: [u8; 2]) -> (Initiator, Responder) {
    let keys = KeyPair::generate(&mut Rng::new(1));
    let (trust, [psk, other]) =
        (|| Trust::pinned([*keys.public()]), psks.map(|psk| Psk::from_bytes(&[psk; 32])));
    match pattern {
        Pattern::NnPsk0 => (Initiator::nn_psk0(psk), Responder::nn_psk0(other)),
        Pattern::Nk => (Initiator::nk(*keys.public()), Responder::nk(keys)),
        _ => (Initiator::xx(keys.clone(), trust()), Responder::xx(keys.clone(), trust())),
    }
}

/// A configuration for both ends.
fn agreeing(pattern: Pattern) -> Noise {
    let (initiator, responder) = ends(pattern, [3; 2]);
    Noise::from(responder).with_initiator(initiator)
}

/// What a packet carries in the clear of key agreement: a subtype and a message.
fn clear(payload: &[u8]) -> Option<(u8, &[u8])> {
    let mut segments = Segments::new(payload);
    let (header, body) = segments.next()?.ok()?;
    let is_alone = header.cmd == Command::Extension && segments.next().is_none();
    match header.frg {
        _ if !is_alone => None,
        subtype::HELLO | subtype::ANSWER if body[24] == 0xa0 => {
            let len = usize::from(u16::from_le_bytes([body[25], body[26]]));
            Some((header.frg, &body[27..27 + len]))
        }
        subtype::NOISE => Some((header.frg, body)),
        _ => None,
    }
}

/// Compares a packet in the clear with what is shown of it.
fn compare_clear(packet: &Packet, frame: &Frame) -> u8 {
    let (kind, message) = clear(&packet.payload).unwrap();
    let [segment] = frame.segments() else { panic!("{}", frame.info) };
    let what = &frame.info;
    assert_eq!(tshark::number(segment, "kcp.ext.subtype"), Some(kind.into()), "{what}");
    if kind != subtype::NOISE {
        let fields = tshark::many(segment, "kcp.ext.field");
        let kind = ["type", "must_understand"]
            .map(|name| tshark::number(&fields[0], &format!("kcp.ext.field.{name}")));
        assert_eq!(kind, [Some(0x20), Some(1)], "{what}");
    }
    let shown = shown_message(frame).unwrap_or_else(|| panic!("no message: {what}"));
    let header = ["version", "number", "pattern", "cipher"]
        .map(|name| tshark::number(shown, &format!("kcp.ext.noise.{name}")).map(|value| value as u8));
    assert_eq!(header.map(Option::unwrap), message[..4], "{what}");
    let rest = ["hint", "ephemeral", "rest"].map(|name| shown_bytes(shown, &format!("kcp.ext.noise.{name}")));
    assert_eq!(rest.map(Option::unwrap_or_default).concat(), message[4..], "{what}");
    kind
}

/// Compares the packets of one agreed session with what is shown of them.
fn compare<'a>(shown: impl Iterator<Item = (&'a Packet, &'a Frame)>, has_last: bool) {
    let (mut kinds, mut sealed) = (Vec::new(), Vec::new());
    for (packet, frame) in shown {
        assert_eq!(frame.protocol, "KCP");
        assert_eq!(frame.experts(), [""; 0], "{}", frame.info);
        if clear(&packet.payload).is_some() {
            kinds.push(compare_clear(packet, frame));
        } else {
            compare_sealed(&packet.payload, frame);
            sealed.push(packet.way);
        }
    }
    for (kind, is_needed) in [(subtype::HELLO, true), (subtype::ANSWER, true), (subtype::NOISE, has_last)] {
        assert_eq!(kinds.contains(&kind), is_needed, "subtype {kind}: {kinds:?}");
    }
    assert!(sealed.contains(&ToServer) && sealed.contains(&ToClient));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
async fn tshark_shows_key_agreement_and_then_sealed_packets_without_a_fault() {
    for (pattern, name) in [(Pattern::NnPsk0, "NNpsk0"), (Pattern::Nk, "NK"), (Pattern::Xx, "XX")] {
        // What FEC and datagrams are is sealed, too.
        let config = builder().noise(agreeing(pattern)).fec(10, 3).datagram_queue(1 << 16).build().unwrap();
        let session = echo(config, 50_000, 0.1, 5).await;
        let capture = pcap(&session.packets);
        // The heuristic finds the session. With a port that was named it is the same.
        let found = dissect_twice(&capture, &[]);
        for frames in [found, dissect(&capture, &["-d", &decode_as_kcp()])] {
            let info = &frames[0].info;
            assert!(info.contains(&format!(" HELLO ({name}, first) conv=0x")), "{info}");
            for frame in &frames {
                assert_eq!(tshark::number(frame.kcp.as_ref().unwrap(), "kcp.stream"), Some(0));
            }
            compare(session.packets.iter().zip(&frames), pattern == Pattern::Xx);
        }
    }
}

/// A server serves peers without key agreement, too: they have the cipher `none`, whose packets can be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
async fn tshark_tells_agreed_sessions_from_static_ones_between_the_same_ports() {
    let none = CipherKind::None;
    let none = none.build(&Key::from_bytes(&[7; 32][..none.key_len()]), Framing::KcpGo).unwrap();
    let config = builder().crypto(PacketCrypto::with_os_nonces(none).unwrap()).build().unwrap();
    let others = echo(config, 50_000, 0.0, 0).await.packets;
    let config = builder().noise(agreeing(Pattern::Xx)).build().unwrap();
    let agreed = echo(config, 50_000, 0.0, 0).await.packets;
    // One of each in turn.
    let others = others.into_iter().zip((0..).step_by(2)).map(|(packet, at)| (at, packet));
    let agreed = agreed.into_iter().zip((1..).step_by(2)).map(|(packet, at)| (at, packet));
    let mut packets: Vec<(u64, Packet)> = others.chain(agreed).collect();
    packets.sort_by_key(|(at, _)| *at);
    let is_agreed: Vec<bool> = packets.iter().map(|(at, _)| at % 2 == 1).collect();
    let packets = packets.into_iter().map(|(at, packet)| Packet { at: Duration::from_millis(at), ..packet });
    let packets: Vec<Packet> = packets.collect();

    let frames = dissect_twice(&pcap(&packets), &[]);
    let of = |wanted: bool| {
        let shown = is_agreed.iter().zip(packets.iter().zip(&frames));
        shown.filter(move |(is_agreed, _)| **is_agreed == wanted).map(|(_, shown)| shown)
    };
    compare(of(true), true);
    for (packet, frame) in of(false) {
        assert!(frame.text("kcp.checksum").is_some(), "{}", frame.info);
        let shown = frame.segments().iter().map(|node| tshark::number(node, "kcp.cmd").unwrap());
        let sent = segments(&packet.payload[20..]);
        let sent = sent.iter().map(|(header, _)| header.cmd as u32);
        assert!(shown.eq(sent), "{}", frame.info);
        for wrong in ["malformed", "ext.malformed", "trailing", "encrypted"] {
            assert!(!frame.is(wrong), "{wrong}: {}", frame.info);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
async fn tshark_says_why_key_agreement_is_refused() {
    let (initiator, responder) = ends(Pattern::NnPsk0, [3, 4]);
    let config = |noise: Noise| KcpConfig::builder().noise(noise).build().unwrap();
    let (listener, tap) = listen(&config(responder.into()), 0.0).await;
    let mut stream = KcpStream::connect(tap.addr(), config(initiator.into())).await.unwrap();
    stream.write_all(b"?").await.unwrap();
    within(LIMIT, "the refusal", stream.read_u8()).await.unwrap_err();
    drop(listener);
    let packets = tap.packets();
    let frames = dissect_twice(&pcap(&packets), &["-o", &format!("kcp.ports:{SERVER_PORT}")]);
    let mut refusals = 0;
    for (packet, frame) in packets.iter().zip(&frames) {
        match packet.way {
            ToServer => assert!(frame.info.contains(" HELLO (NNpsk0, first) conv=0x"), "{}", frame.info),
            ToClient => {
                assert!(frame.info.contains(" ANSWER (refusal: wrong psk) conv=0x"), "{}", frame.info);
                assert_eq!(frame.experts(), ["analysis.refusal"]);
                refusals += 1;
            }
        }
    }
    assert!(refusals >= 3, "{refusals}");
}
