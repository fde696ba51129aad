//! The known answers of `tests/vectors/extension.json`, and what is near them.

use alloc::{vec, vec::Vec};

use kcp9_vectors::Vector;

use super::{
    fields::FieldError,
    is_beginning,
    seed::SessionId,
    segment::{Caps, Envelope, Fin, Hello, Malformed, Segment, Subtype},
};
use crate::proto::{
    ecn::EcnCounts,
    wire::{Command, SegmentHeader, Segments},
};

/// The extension segment at the front of a packet.
fn first(wire: &[u8]) -> (SegmentHeader, &[u8]) {
    Segments::new(wire).next().unwrap().unwrap()
}

fn parse(header: &SegmentHeader, body: &[u8]) -> Option<Result<(), Malformed>> {
    let subtype = Subtype::from_byte(header.frg)?;
    Some(Segment::parse(subtype, header, body).map(drop))
}

fn error(name: &str) -> Malformed {
    match name {
        "magic" => Malformed::Magic,
        "version" => Malformed::Version,
        "tag" => Malformed::Tag,
        "too_short" => Malformed::TooShort,
        "twice" => Malformed::Field(FieldError::Twice),
        "past_end" => Malformed::Field(FieldError::PastEnd),
        "left_over" => Malformed::Field(FieldError::LeftOver),
        "wrong_length" => Malformed::Field(FieldError::WrongLength),
        _ => panic!("{name} is no error"),
    }
}

fn optional<T>(vector: &Vector, name: &str, read: impl Fn(&Vector, &str) -> T) -> Option<T> {
    vector.has(name).then(|| read(vector, name))
}

fn check_hello(vector: &Vector, hello: &Hello<'_>) {
    let id = SessionId::from_bytes(vector.bytes("id").try_into().unwrap()).unwrap();
    let fixed = (hello.version, hello.oldest, hello.caps, hello.id, hello.echo_ts);
    let caps = Caps(vector.number("caps"));
    let expected =
        (vector.number("version"), vector.number("oldest"), caps, id, vector.number::<u32>("echo_ts"));
    assert_eq!(fixed, expected);
    let fields = &hello.fields;
    assert_eq!(fields.keep_alive, optional(vector, "keep_alive", Vector::number));
    assert_eq!(fields.cookie.map(<[u8]>::to_vec), optional(vector, "cookie", Vector::bytes));
    assert_eq!(fields.token, optional(vector, "token", Vector::number));
    assert_eq!(fields.max_packet, optional(vector, "max_packet", Vector::number));
    let unsupported = optional(vector, "unsupported_by_peer", Vector::bytes);
    assert_eq!(fields.unsupported.map(<[u8]>::to_vec), unsupported);
    let unknown: Vec<u8> = fields.unknown.must_understand().collect();
    assert_eq!(unknown, optional(vector, "unsupported", Vector::bytes).unwrap_or_default());
    assert_eq!(hello.is_version_spoken(), !vector.has("not_spoken"));
}

fn check(vector: &Vector, segment: &Segment<'_>) {
    let fin = || Fin { end: vector.number("end"), no_reader: vector.number::<u8>("no_reader") == 1 };
    let token = || vector.number::<u64>("token");
    match segment {
        Segment::Hello(hello) | Segment::Answer(hello) => check_hello(vector, hello),
        Segment::Retry(cookie) => assert_eq!(*cookie, vector.bytes("cookie")),
        Segment::Fin(found) | Segment::FinAck(found) => assert_eq!(*found, fin()),
        Segment::Abort(reason) => assert_eq!(*reason, vector.number::<u16>("reason")),
        Segment::Reset(found) | Segment::Ping(found) | Segment::Pong(found) => assert_eq!(*found, token()),
        Segment::Ecn(found) => {
            let [ect0, ect1, ce] = ["ect0", "ect1", "ce"].map(|name| vector.number(name));
            assert_eq!(*found, EcnCounts { ect0, ect1, ce });
        }
    }
}

/// Writes what a segment says, as its sender does.
fn write(header: &SegmentHeader, segment: &Segment<'_>, padded: usize) -> Vec<u8> {
    let envelope = Envelope { conv: header.conv, wnd: header.wnd, ts: header.ts, una: header.una };
    let mut out = vec![0xff; 1_500];
    let out_slice = out.as_mut_slice();
    let len = match segment {
        Segment::Hello(hello) => envelope.write_hello(hello, padded, out_slice),
        Segment::Answer(hello) => envelope.write_answer(hello, header.sn, out_slice),
        Segment::Retry(cookie) => envelope.write_retry(cookie, header.sn, out_slice),
        Segment::Fin(fin) => envelope.write_fin(*fin, header.sn, out_slice),
        Segment::FinAck(fin) => envelope.write_fin_ack(*fin, header.sn, out_slice),
        Segment::Abort(reason) => envelope.write_abort(*reason, header.sn, out_slice),
        Segment::Reset(token) => envelope.write_reset(*token, header.sn, out_slice),
        Segment::Ping(token) => envelope.write_ping(*token, header.sn, out_slice),
        Segment::Pong(token) => envelope.write_pong(*token, header.sn, out_slice),
        Segment::Ecn(counts) => envelope.write_ecn(*counts, header.sn, out_slice),
    };
    out.truncate(len.unwrap());
    out
}

#[test]
fn segments_are_read_and_written_as_the_design_has_them() {
    let (mut read, mut written, mut refused, mut unknown) = (0, 0, 0, 0);
    for vector in kcp9_vectors::extension() {
        let kind = vector.text("kind");
        if matches!(kind, "mixed" | "mark" | "sealed" | "record") {
            continue;
        }
        let (name, wire) = (vector.text("name"), vector.bytes("wire"));
        let (header, body) = first(&wire);
        assert_eq!(header.cmd, Command::Extension, "{name}");
        let fields = (header.wnd, header.ts, header.sn, header.una);
        let numbers = (vector.number("wnd"), vector.number("ts"), vector.number("tag"), vector.number("una"));
        assert_eq!(fields, numbers, "{name}");
        let Some(subtype) = Subtype::from_byte(header.frg) else {
            assert_eq!(kind, "unknown", "{name}");
            unknown += 1;
            continue;
        };
        let segment = match Segment::parse(subtype, &header, body) {
            Ok(segment) => segment,
            Err(found) => {
                assert_eq!(found, error(vector.text("error")), "{name}");
                refused += 1;
                continue;
            }
        };
        assert!(!vector.has("error"), "{name} is taken");
        check(&vector, &segment);
        read += 1;
        if vector.has("written") {
            let padded = optional(&vector, "padded", Vector::number).unwrap_or(0);
            assert_eq!(write(&header, &segment, padded), wire, "{name}");
            written += 1;
        }
    }
    assert!(read >= 20 && written >= 12 && refused >= 16 && unknown >= 1, "{read} {written} {refused}");
}

#[test]
fn a_hello_begins_a_session_if_it_is_alone_and_can_be_taken() {
    for vector in kcp9_vectors::extension() {
        let (name, wire) = (vector.text("name"), vector.bytes("wire"));
        let begins = vector.text("kind") == "hello"
            && !["error", "unsupported", "not_spoken"].iter().any(|reason| vector.has(reason));
        assert_eq!(is_beginning(&wire), begins, "{name}");
        assert!(!is_beginning(&[wire.as_slice(), &[0]].concat()), "{name} with a byte behind it");
        assert!(!is_beginning(&wire[..wire.len() - 1]), "{name} without its last byte");
    }
}

/// A small generator.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[test]
fn damaged_segments_are_no_panic_and_what_is_read_of_them_can_be_written() {
    let vectors = kcp9_vectors::extension();
    let rounds = if cfg!(miri) { 200 } else { 200_000 };
    let mut taken = 0;
    for seed in 0..rounds {
        let mut state = seed;
        let mut wire = vectors[next(&mut state) % vectors.len()].bytes("wire");
        wire.truncate(300);
        for _ in 0..next(&mut state) % 4 {
            let at = next(&mut state) % wire.len();
            wire[at] = next(&mut state) as u8;
        }
        // The length is right mostly, so that the damage lies deeper.
        if let Some(body) = wire.len().checked_sub(24) {
            let cut = if next(&mut state).is_multiple_of(4) { body } else { next(&mut state) % (body + 1) };
            wire.truncate(24 + cut);
            wire[20..24].copy_from_slice(&(cut as u32).to_le_bytes());
            wire[4] = 0x60;
        }
        let Some(Ok((header, body))) = Segments::new(&wire).next() else { continue };
        let Some(Ok(())) = parse(&header, body) else { continue };
        let segment = Segment::parse(Subtype::from_byte(header.frg).unwrap(), &header, body).unwrap();
        taken += 1;
        let again = write(&header, &segment, 0);
        let (again_header, again_body) = first(&again);
        let again = Segment::parse(Subtype::from_byte(header.frg).unwrap(), &again_header, again_body);
        if matches!(segment, Segment::Hello(hello) | Segment::Answer(hello) if !hello.fields.unknown.is_empty())
        {
            // What is not understood is written as UNSUPPORTED.
            assert!(again.is_ok(), "seed {seed}");
        } else {
            assert_eq!(again, Ok(segment), "seed {seed}");
        }
    }
    assert!(taken > rounds / 20, "{taken} of {rounds}");
}

#[test]
fn what_does_not_fit_is_not_written() {
    let vectors = kcp9_vectors::extension();
    for vector in vectors.iter().filter(|vector| vector.has("written")) {
        let wire = vector.bytes("wire");
        let (header, body) = first(&wire);
        let segment = Segment::parse(Subtype::from_byte(header.frg).unwrap(), &header, body).unwrap();
        let envelope = Envelope { conv: 1, wnd: 2, ts: 3, una: 4 };
        let least = write(&header, &segment, 0).len();
        for room in 0..least {
            let mut out = vec![0; room];
            let written = match segment {
                Segment::Hello(hello) => envelope.write_hello(&hello, 0, &mut out),
                Segment::Answer(hello) => envelope.write_answer(&hello, 5, &mut out),
                Segment::Fin(fin) => envelope.write_fin(fin, 5, &mut out),
                Segment::Abort(reason) => envelope.write_abort(reason, 5, &mut out),
                Segment::Ping(token) => envelope.write_ping(token, 5, &mut out),
                Segment::Ecn(counts) => envelope.write_ecn(counts, 5, &mut out),
                _ => None,
            };
            assert_eq!(written, None, "{} in {room}", vector.text("name"));
        }
    }
}

#[cfg(all(feature = "aes-128", feature = "ring"))]
#[test]
fn a_sealed_hello_is_what_the_cipher_makes_of_it() {
    use crate::crypto::{CipherKind, Framing, Key};

    let mut kinds = 0;
    for vector in kcp9_vectors::extension() {
        if vector.text("kind") != "sealed" {
            continue;
        }
        kinds += 1;
        let (name, wire) = (vector.text("name"), vector.bytes("wire"));
        let kind: CipherKind = vector.text("cipher").parse().unwrap();
        let cipher = kind.build(&Key::from_bytes(&vector.bytes("key")), Framing::KcpGo).unwrap();
        let (nonce, payload) = (vector.bytes("nonce"), vector.bytes("payload"));
        let mut packet = vec![0; cipher.header_len() + payload.len() + cipher.trailer_len()];
        assert_eq!(packet.len(), 1_200, "{name}");
        packet[..nonce.len()].copy_from_slice(&nonce);
        packet[cipher.header_len()..][..payload.len()].copy_from_slice(&payload);
        cipher.seal(&mut packet).unwrap();
        assert_eq!(packet, wire, "{name}");
        cipher.open(&mut packet).unwrap();
        assert!(is_beginning(&packet[cipher.header_len()..][..payload.len()]), "{name}");
    }
    assert_eq!(kinds, 2);
}
