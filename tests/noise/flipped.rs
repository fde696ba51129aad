//! Sessions whose handshake somebody changes on its way, a bit in each of them: every bit of the first HELLO with its padding, of the
//! first ANSWER, and of the first last message; of RETRY and the HELLO behind it, where a cookie is asked for; of a HELLO with early data.
//! The session that was meant comes up all the same, by what is sent again, and no other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kcp9::{
    CookiePolicy, KcpConfig,
    proto::{Connection, Instant, SessionSeed, noise::Pattern},
};
use kcp9_simulator::{Rng, ms};

use crate::{
    ends::Keys,
    virtual_ends::{Server, client_address, driven},
};

const START: Instant = Instant::from_millis(5_000);
/// What the client writes, which must come back.
const REQUEST: &[u8] = b"what only these two know";

/// Packets of a handshake, by the first two bytes behind the conv.
const HELLO: [u8; 2] = [0x60, 0x01];
const ANSWER: [u8; 2] = [0x60, 0x02];
const LAST: [u8; 2] = [0x60, 0x0b];
const RETRY: [u8; 2] = [0x60, 0x03];

/// Both ends' configurations.
struct Ends {
    pattern: Pattern,
    client: KcpConfig,
    server: KcpConfig,
    /// Bytes of the request that go with the first message.
    early: usize,
    /// How many packets of a kind go by before the one that is changed.
    skipped: usize,
}

impl Ends {
    fn new(pattern: Pattern) -> Self {
        let keys = Keys::new(1);
        let client = KcpConfig::builder().noise(keys.initiator(pattern)).build().unwrap();
        let server = KcpConfig::builder().noise(keys.responder(pattern)).build().unwrap();
        Self { pattern, client, server, early: 0, skipped: 0 }
    }

    /// A server that asks for a cookie.
    fn with_cookies(pattern: Pattern) -> Self {
        let responder = Keys::new(1).responder(pattern);
        let server = KcpConfig::builder().noise(responder).cookies(CookiePolicy::Always).build().unwrap();
        Self { server, ..Self::new(pattern) }
    }

    /// A server that takes early data, and a client that has some.
    fn with_early_data(pattern: Pattern) -> Self {
        let responder = Keys::new(1).responder(pattern).with_early_data();
        let server = KcpConfig::builder().noise(responder).build().unwrap();
        Self { server, early: REQUEST.len(), ..Self::new(pattern) }
    }

    /// Has a session begin, and the first packet of a kind changed on its way. Returns how long that packet is, if there was one.
    fn begin(&self, kind: [u8; 2], change: impl Fn(&mut [u8])) -> Option<usize> {
        let mut rng = Rng::new(2);
        let mut server = Server::new(self.server.clone(), 1);
        let seed = SessionSeed::new(&mut rng);
        let (early, rest) = REQUEST.split_at(self.early);
        let client = Connection::connect_with_early_data(7, &self.client, START, seed, early, &mut rng);
        let mut client = client.unwrap();
        if !rest.is_empty() {
            client.write(START, rest).unwrap();
        }
        let (mut changed, mut left) = (None, self.skipped);
        let mut carry = |mut packet: Vec<u8>| {
            if changed.is_none() && packet[4..6] == kind {
                if left == 0 {
                    change(&mut packet);
                    changed = Some(packet.len());
                }
                left = left.saturating_sub(1);
            }
            packet
        };
        let (mut now, mut answer) = (START, Vec::new());
        while answer.len() < REQUEST.len() {
            let mut sent = 0;
            for packet in driven(&mut client, now) {
                server.receive(now, client_address(1), &carry(packet));
                sent += 1;
            }
            for (to, packet) in server.drive(now) {
                assert_eq!(to, client_address(1));
                let _ = client.handle_packet(now, &mut carry(packet));
                sent += 1;
            }
            let mut bytes = [0; 64];
            while let Ok(len) = client.read(&mut bytes) {
                answer.extend_from_slice(&bytes[..len]);
            }
            assert_eq!(client.close_reason(), None);
            if sent == 0 {
                let timers = server.sessions.values().filter_map(|session| session.poll_timeout());
                now = timers.chain(client.poll_timeout()).min().unwrap().max(now + ms(1));
                assert!(now - START < std::time::Duration::from_secs(5), "no session");
            }
        }
        assert_eq!(answer, REQUEST);
        assert_eq!(server.accepted, 1, "another session");
        let hashes = server.sessions.values().map(Connection::handshake_hash).collect::<Vec<_>>();
        assert!(client.handshake_hash().is_some());
        assert_eq!(hashes, [client.handshake_hash()]);
        changed
    }

    /// Flips each bit of the first packet of these kinds, one in a session.
    fn flip(&self, kinds: &[[u8; 2]]) {
        for kind in kinds.iter().copied() {
            let Some(len) = self.begin(kind, |_| {}) else {
                assert!(kind == LAST && self.pattern.takes_early_data(), "two messages");
                continue;
            };
            assert!(kind != HELLO || len == 1_200);
            for bit in 0..8 * len {
                let flip = |packet: &mut [u8]| packet[bit / 8] ^= 1 << (bit % 8);
                let result = catch_unwind(AssertUnwindSafe(|| self.begin(kind, flip)));
                assert_eq!(result.ok().flatten(), Some(len), "{}, {kind:x?}, bit {bit}", self.pattern);
            }
        }
    }
}

#[test]
fn a_flipped_bit_of_a_handshake_of_nn_psk0_is_in_nobodys_way() {
    Ends::new(Pattern::NnPsk0).flip(&[HELLO, ANSWER, LAST]);
}

#[test]
fn a_flipped_bit_of_a_hello_of_xx_is_in_nobodys_way() {
    Ends::new(Pattern::Xx).flip(&[HELLO]);
}

#[test]
fn a_flipped_bit_of_an_answer_or_a_last_message_of_xx_is_in_nobodys_way() {
    Ends::new(Pattern::Xx).flip(&[ANSWER, LAST]);
}

#[test]
fn a_flipped_bit_of_a_retry_is_in_nobodys_way() {
    Ends::with_cookies(Pattern::Nk).flip(&[RETRY]);
}

#[test]
#[ignore = "a minute: cargo test -p kcp9-tests --release --test noise -- --ignored a_flipped_bit"]
fn a_flipped_bit_of_a_handshake_of_any_pattern_is_in_nobodys_way() {
    for pattern in Pattern::all() {
        Ends::new(pattern).flip(&[HELLO, ANSWER, LAST]);
        // The first HELLO with the cookie.
        Ends { skipped: 1, ..Ends::with_cookies(pattern) }.flip(&[HELLO]);
        Ends::with_cookies(pattern).flip(&[RETRY]);
        if pattern.takes_early_data() {
            Ends::with_early_data(pattern).flip(&[HELLO, ANSWER]);
        }
    }
}
