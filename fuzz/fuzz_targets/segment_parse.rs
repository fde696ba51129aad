//! Bytes as segments.
//!
//! Proves that walking any bytes ends without a panic, that what it yields lies in the input, one segment behind the
//! other from the first byte on, and that a parsed header writes the very bytes it was read from: nothing of a segment
//! is lost or normalised. An error is always the last thing yielded, and a walk without one leaves less than a header.

#![no_main]

use kcp9::proto::{HEADER_LEN, SegmentHeader, Segments, peek_conv};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut at = 0;
    let mut failed = false;
    for segment in Segments::new(bytes) {
        assert!(!failed, "a segment behind an error");
        match segment {
            Ok((header, payload)) => {
                let end = at + HEADER_LEN;
                assert_eq!(header.to_bytes(), bytes[at..end]);
                assert_eq!(SegmentHeader::parse(&bytes[at..]), Ok(header));
                if at == 0 {
                    assert_eq!(peek_conv(bytes), Some(header.conv));
                }
                assert_eq!(payload.len(), header.len as usize);
                assert_eq!(payload.as_ptr(), bytes[end..].as_ptr(), "a payload that is not in place");
                at = end + payload.len();
            }
            Err(_) => failed = true,
        }
    }
    if !failed {
        assert!(bytes.len() - at < HEADER_LEN, "{} bytes left unread", bytes.len() - at);
    }
    // An FEC header moves the conv, or hides it.
    if !matches!(bytes, [_, _, _, _, 0xf1..=0xf3, 0, ..]) {
        assert_eq!(peek_conv(bytes).is_some(), bytes.len() >= HEADER_LEN);
    } else {
        let _ = peek_conv(bytes);
    }
});
