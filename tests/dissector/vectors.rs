//! A capture that anybody can open: the extension segments of `tests/vectors/extension.json`, what kcp-go's clients have sent, with FEC
//! and without, and the messages and sealed packets of `tests/vectors/noise.json`. What tshark shows of it is compared to the letter.

use std::{fs, path::Path, time::Duration};

use kcp9_relay::Direction;
use kcp9_vectors::Vector;
use serde_json::Value;

use crate::{
    agreement::{compare_sealed, known_session, shown_message},
    capture::{CLIENT_PORT, Packet, SERVER_PORT, pcap},
    tshark::{dissect, dissect_twice, number},
};

/// The ports of clients that agree on keys begin here.
const AGREED_PORT: u16 = CLIENT_PORT + 1_000;
/// Datagrams of each session of kcp-go's.
const OF_EACH: usize = 16;
/// Characters of a value, which are enough to know it by.
const SHOWN: usize = 60;

/// Whether the end that accepted has sent it. Answers of records go to the end that connected.
fn is_of_server(vector: &Vector) -> bool {
    let name = vector.text("name");
    matches!(vector.text("kind"), "answer" | "retry" | "fin_ack" | "pong" | "reset" | "record")
        || name == "ack_marked"
}

/// The packets, and what each is called.
fn packets() -> Vec<(String, Packet)> {
    let mut packets = Vec::new();
    let mut add = |name: String, client_port: u16, way, payload| {
        let at = Duration::from_millis(10 * packets.len() as u64);
        packets.push((name, Packet { client_port, ..Packet::new(way, at, payload) }));
    };
    for vector in kcp9_vectors::extension() {
        let way = if is_of_server(&vector) { Direction::ToClient } else { Direction::ToServer };
        // Between addresses where there is KCP without key agreement, what does not parse counts as damaged.
        let client_port = CLIENT_PORT + u16::from(vector.text("kind") == "sealed");
        add(vector.text("name").to_owned(), client_port, way, vector.bytes("wire"));
    }
    let transcripts = kcp9_vectors::client_transcripts();
    let readable = transcripts.iter().filter(|vector| matches!(vector.text("cipher"), "null" | "none"));
    for (vector, client_port) in readable.zip(CLIENT_PORT + 2..) {
        let shards = [vector.number::<u32>("data_shards"), vector.number("parity_shards")];
        let name = format!("kcp-go, cipher {}, FEC {}/{}", vector.text("cipher"), shards[0], shards[1]);
        for datagram in vector.vectors("datagrams").iter().take(OF_EACH) {
            add(name.clone(), client_port, Direction::ToServer, datagram.bytes("datagram"));
        }
    }
    for (vector, client_port) in agreements().iter().zip(AGREED_PORT..) {
        for (way, payload) in known_session(vector) {
            add(format!("key agreement, {}", vector.text("pattern")), client_port, way, payload);
        }
    }
    packets
}

/// One for each pattern: that with early data, where there is such.
fn agreements() -> Vec<Vector> {
    let vectors = kcp9_vectors::noise().into_iter();
    vectors.filter(|vector| vector.text("cipher") == "chacha20-poly1305").collect()
}

/// The fields of a packet, one a line.
fn print(node: &Value, depth: usize, out: &mut String) {
    let indent = "    ".repeat(depth);
    let mut fields: Vec<_> = node.as_object().expect("fields have names").iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    for (name, value) in fields {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for value in values {
            match value {
                Value::Object(fields) if name == "_ws.expert" => {
                    let expert =
                        fields.keys().find(|key| key.starts_with("kcp.")).map_or("?", String::as_str);
                    let text = fields.get("_ws.expert.message").and_then(Value::as_str).unwrap_or_default();
                    out.push_str(&format!("{indent}{expert}: {text}\n"));
                }
                Value::Object(_) => {
                    out.push_str(&format!("{indent}{name}\n"));
                    print(value, depth + 1, out);
                }
                value => {
                    let text = value.as_str().expect("a text");
                    let more = if text.len() > SHOWN { " ..." } else { "" };
                    out.push_str(
                        format!("{indent}{name}: {}{more}", &text[..text.len().min(SHOWN)]).trim_end(),
                    );
                    out.push('\n');
                }
            }
        }
    }
}

/// Compares with a committed file, or makes it that.
fn check(path: &str, found: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read(&path).unwrap_or_default();
    if expected == found {
        return;
    }
    let (expected, found) = (String::from_utf8_lossy(&expected), String::from_utf8_lossy(found));
    let line = expected.lines().zip(found.lines()).position(|(expected, found)| expected != found);
    let line = line.unwrap_or_else(|| expected.lines().count().min(found.lines().count()));
    let at = |text: &str| text.lines().nth(line).unwrap_or_default().chars().take(200).collect::<String>();
    panic!(
        "{} differs, first in line {}. If the change is meant, run the test again with UPDATE_SNAPSHOTS=1 and commit it.\n\
         expected: {}\nfound:    {}",
        path.display(),
        line + 1,
        at(&expected),
        at(&found),
    );
}

#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_shows_the_known_answers_as_it_always_did() {
    let (names, packets): (Vec<_>, Vec<_>) = packets().into_iter().unzip();
    let capture = pcap(&packets);
    check("dissector/vectors.pcap", &capture);
    let ports = format!("kcp.ports:{SERVER_PORT}");
    let options = ["-o", &ports, "-o", "kcp.data_shards:10", "-o", "kcp.parity_shards:3"];
    let mut text = String::new();
    for ((name, frame), number) in names.iter().zip(dissect_twice(&capture, &options)).zip(1..) {
        text.push_str(&format!("frame {number}, {name}: {}\n", frame.info));
        print(frame.kcp.as_ref().unwrap_or_else(|| panic!("{name} is not taken")), 1, &mut text);
    }
    check("snapshots/dissector.txt", text.as_bytes());

    // What the vectors say of their segments. A segment that receivers refuse is marked.
    let shown = dissect(&capture, &options);
    for (vector, frame) in kcp9_vectors::extension().iter().zip(&shown) {
        let name = vector.text("name");
        assert_eq!(frame.is("ext.malformed"), vector.has("error"), "{name}: {}", frame.info);
        assert_eq!(frame.is("encrypted"), vector.text("kind") == "sealed", "{name}: {}", frame.info);
        assert!(!frame.is("malformed"), "{name}: {}", frame.info);
    }

    let agreed = packets.iter().zip(&shown).filter(|(packet, _)| packet.client_port >= AGREED_PORT);
    for (packet, frame) in agreed {
        match shown_message(frame) {
            Some(_) => assert_eq!(frame.experts(), [""; 0], "{}", frame.info),
            None => compare_sealed(&packet.payload, frame),
        }
    }
    let shown = shown.iter().filter_map(shown_message);
    let early = shown.filter_map(|message| number(message, "kcp.ext.noise.early_data"));
    let expected = agreements().into_iter().map(|vector| vector.bytes("early").len() as u32);
    assert!(early.eq(expected.filter(|&len| len > 0)));
}
