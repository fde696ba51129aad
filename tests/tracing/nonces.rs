//! What is said of a key whose nonces are used up.

use std::sync::Arc;

use kcp9::{
    KcpConfig,
    crypto::{CipherKind, Framing, Key, OpenError, PacketCipher, PacketCrypto, SealError},
    proto::{Connection, Instant},
};
use kcp9_simulator::Nonces;
use kcp9_tests::collector::{Collector, Recorded};
use tracing::Level;

use crate::{named, table};

/// Packets that may be sealed under the key.
const LIMIT: u64 = 40;

#[derive(Debug)]
struct Limited(Arc<dyn PacketCipher>);

impl PacketCipher for Limited {
    fn header_len(&self) -> usize {
        self.0.header_len()
    }

    fn trailer_len(&self) -> usize {
        self.0.trailer_len()
    }

    fn nonce_len(&self) -> usize {
        self.0.nonce_len()
    }

    fn nonce_limit(&self) -> Option<u64> {
        Some(LIMIT)
    }

    fn seal(&self, packet: &mut [u8]) -> Result<(), SealError> {
        self.0.seal(packet)
    }

    fn open(&self, packet: &mut [u8]) -> Result<(), OpenError> {
        self.0.open(packet)
    }
}

/// Two sessions of one key, of which nobody asks to be warned, send until it is used up.
pub fn used_up() -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let cipher = CipherKind::Aes256Gcm.build(&Key::from_bytes(&[7; 32]), Framing::KcpGo).unwrap();
    let crypto = PacketCrypto::new(Arc::new(Limited(cipher)), Arc::new(Nonces::default()));
    let config = KcpConfig::builder().crypto(crypto.clone()).build().unwrap();
    let mut sessions = [7, 8].map(|conv| Connection::new(conv, &config, Instant::ZERO));
    let mut buffer = vec![0; 65_536];
    let mut said_at = None;
    let mut events = Vec::new();
    for millis in 0..60_000 {
        let now = Instant::from_millis(millis);
        for session in &mut sessions {
            if session.close_reason().is_none() {
                let _ = session.write(now, b"!");
                session.handle_timeout(now);
            }
            while session.poll_transmit(now, &mut buffer).is_some() {}
            events.extend(collector.take());
            if !named(&events, "nonces_half_used").is_empty() {
                said_at = said_at.or_else(|| crypto.nonce_budget().map(|budget| budget.sealed));
            }
        }
    }
    table::check(&events);
    let [warning] = named(&events, "nonces_half_used")[..] else { panic!("not one warning: {events:?}") };
    assert_eq!((warning.number("sealed"), warning.number("limit")), (LIMIT / 2, LIMIT));
    assert_eq!(said_at, Some(LIMIT / 2), "as soon as it is so");
    let ended = named(&events, "ended");
    assert!(ended.iter().any(|event| event.field("reason") == "NonceLimit"), "{ended:?}");
    events
}

#[test]
fn half_of_the_nonces_of_a_key_is_a_warning_although_nobody_asked_for_it() {
    used_up();
}
