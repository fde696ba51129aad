//! Round trips, streams that are cut anywhere, and chunks that are not as they should be.

use tokio::io::{AsyncWriteExt, duplex};

use super::*;

/// Bytes that compress, and bytes that do not.
fn payload(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    (0..len)
        .map(|at| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if at / 50_000 % 2 == 0 { (state >> 56) as u8 } else { (at / 100) as u8 }
        })
        .collect()
}

/// What reading all of `wire` yields, which comes in pieces of `piece` bytes.
async fn read(wire: &[u8], piece: usize) -> io::Result<Vec<u8>> {
    let (mut near, far) = duplex(piece);
    let writing = async move {
        // The reader may have had enough.
        let _ = near.write_all(wire).await;
    };
    let reading = async move {
        let mut plain = Vec::new();
        Snappy::new(far).read_to_end(&mut plain).await.map(|_| plain)
    };
    tokio::join!(writing, reading).1
}

/// What the crate's own writer makes of `plain`.
fn compress(plain: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::new(Vec::new());
    encoder.write_all(plain).unwrap();
    encoder.into_inner().unwrap()
}

fn reason(error: &io::Error) -> &SnappyError {
    error.get_ref().unwrap().downcast_ref().unwrap()
}

fn chunk(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32).to_le_bytes();
    [&[kind, len[0], len[1], len[2]], body].concat()
}

const BEGIN: &[u8] = b"\xff\x06\x00\x00sNaPpY";

#[tokio::test]
async fn what_is_written_is_read() {
    let sent = payload(1_000_000);
    for room in [1, 7, 4_096, 1 << 20] {
        let (near, far) = duplex(room);
        let sent = &sent[..sent.len().min(room * 20_000)];
        let (mut near, mut far) = (Snappy::new(near), Snappy::new(far));
        let writing = async {
            near.write_all(sent).await.unwrap();
            near.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let (_, read) = tokio::join!(writing, far.read_to_end(&mut got));
        read.unwrap();
        assert!(got == sent, "{room}");
    }
}

#[tokio::test]
async fn each_write_arrives_by_itself() {
    let (near, far) = duplex(1 << 20);
    let (mut near, mut far) = (Snappy::new(near), Snappy::new(far));
    for word in [&b"a"[..], b"question", b"and another"] {
        near.write_all(word).await.unwrap();
        let mut got = vec![0; word.len()];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(got, word);
    }
}

#[tokio::test]
async fn a_write_waits_for_no_room_but_a_flush_does() {
    let (near, mut far) = duplex(16);
    let mut near = Snappy::new(near);
    near.write_all(&[5; 1_000]).await.unwrap();
    let mut wire = Vec::new();
    tokio::select! {
        flushed = near.flush() => flushed.unwrap(),
        _ = far.read_to_end(&mut wire) => panic!("it has not ended"),
    }
    assert!(wire.len() > 30, "the room is 16");
    // Nobody takes this: it is kept, and nothing after it is taken in.
    near.write_all(&payload(1_000)).await.unwrap();
    let more = tokio::time::timeout(std::time::Duration::from_millis(20), near.write_all(b"more")).await;
    assert!(more.is_err());
}

#[tokio::test]
async fn streams_of_others_may_come_in_any_pieces() {
    let sent = payload(200_000);
    let wire = compress(&sent);
    for piece in [1, 3, 1_000, 1 << 20] {
        assert!(read(&wire, piece).await.unwrap() == sent, "{piece}");
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_is_an_error_but_between_chunks() {
    let (first, second) = (compress(&payload(70)), chunk(0x80, &[0; 30]));
    let wire = [&first[..], &second].concat();
    for cut in 0..=wire.len() {
        let outcome = read(&wire[..cut], 64).await;
        if [0, BEGIN.len(), first.len(), wire.len()].contains(&cut) {
            outcome.unwrap();
        } else {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{cut}: {error}");
        }
    }
}

#[tokio::test]
async fn every_damaged_byte_is_noticed() {
    let wire = compress(&payload(300));
    for at in 0..wire.len() {
        let mut damaged = wire.clone();
        damaged[at] ^= 0x04;
        let outcome = read(&damaged, 1 << 20).await;
        assert!(outcome.is_err(), "byte {at}");
    }
}

#[tokio::test]
async fn what_may_be_skipped_is_skipped() {
    let (plain, long) = (payload(100), vec![7; (1 << 24) - 1]);
    let rest = compress(&plain);
    let wire = [BEGIN, &chunk(0xfe, &long), &chunk(0x80, b""), &chunk(0xfd, b"x"), &rest].concat();
    for piece in [100_000, 1 << 20] {
        assert!(read(&wire, piece).await.unwrap() == plain);
    }
}

#[tokio::test]
async fn what_is_no_chunk_is_refused_by_its_reason() {
    let read = async |bytes: &[u8]| read(&[BEGIN, bytes].concat(), 64).await.unwrap_err();
    assert!(matches!(reason(&read(&chunk(0x02, b"")).await), SnappyError::Reserved { kind: 0x02 }));
    assert!(matches!(
        reason(&read(&[0x00, 0xff, 0xff, 0xff]).await),
        SnappyError::TooLong { len: 0xff_ffff }
    ));
    assert!(matches!(reason(&read(&chunk(0xff, b"sNaPpYs")).await), SnappyError::TooLong { len: 7 }));
    assert!(matches!(reason(&read(&chunk(0xff, b"SnApPy")).await), SnappyError::Damaged(_)));
    assert!(matches!(reason(&read(&chunk(0x00, b"abc")).await), SnappyError::Damaged(_)));
    assert!(matches!(reason(&read(&chunk(0x01, b"sum?data")).await), SnappyError::Damaged(_)));
    // A block that says it holds 4 GiB.
    let bomb = chunk(0x00, b"sum?\xff\xff\xff\xff\x0fx");
    assert!(matches!(reason(&read(&bomb).await), SnappyError::Damaged(_)));
}

#[tokio::test]
async fn what_is_not_compressed_is_refused_at_its_first_byte() {
    // A frame of smux begins so.
    let (mut near, far) = duplex(64);
    near.write_all(&[1]).await.unwrap();
    let error = Snappy::new(far).read_u8().await.unwrap_err();
    assert!(matches!(reason(&error), SnappyError::NotSnappy { first: 1 }));
    assert!(error.to_string().contains("nocomp"), "{error}");
}
