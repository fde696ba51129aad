//! What somebody has recorded of whole sessions, at a server that was started again and so remembers none of them; and what a server that
//! remembers says of sessions that are over.

use std::{net::SocketAddr, time::Duration};

use kcp9::{
    KcpConfig,
    proto::{
        CloseReason, Connection, Instant, ReadError, SessionSeed,
        noise::{Pattern, Responder},
    },
};
use kcp9_simulator::{Rng, ms};

use crate::{
    ends::Keys,
    virtual_ends::{Client, Server, client_address, driven, exchange},
};

const START: Instant = Instant::from_millis(5_000);
const SECOND: Duration = Duration::from_secs(1);

fn config(responder: Responder) -> KcpConfig {
    KcpConfig::builder().noise(responder).build().unwrap()
}

/// All that a client of this pattern and its server have sent in a whole session, from the client's second address on, and when.
fn recording(
    keys: &Keys,
    pattern: Pattern,
    server: &KcpConfig,
    early: usize,
) -> Vec<(Duration, SocketAddr, Vec<u8>)> {
    let mut server = Server::new(server.clone(), 1);
    server.follows = true;
    let client = KcpConfig::builder().noise(keys.initiator(pattern)).build().unwrap();
    let mut client = Client::with_early_data(&client, START, 7, early, 20_000, &mut Rng::new(2));
    let (mut recorded, mut at) = (Vec::new(), client_address(1));
    let mut is_over = false;
    for now in (0..20_000).map(|millis| START + ms(millis)) {
        if now == START + 3 * SECOND {
            at = client_address(2);
            client.connection.rebind(now).unwrap();
        }
        // The second half of the stream is sent from the second address.
        if now >= START + 5 * SECOND {
            is_over = client.work(now);
        } else if client.written < 10_000 {
            let half = client.written.max(early)..10_000;
            client.written += client.connection.write(now, &client.request[half]).unwrap_or(0);
        }
        for packet in driven(&mut client.connection, now) {
            server.receive(now, at, &packet);
            recorded.push((now - START, at, packet));
        }
        for (to, packet) in server.drive(now) {
            if to == at {
                let _ = client.connection.handle_packet(now, &mut packet.clone());
            }
            recorded.push((now - START, at, packet));
        }
        if is_over && server.sessions.is_empty() {
            break;
        }
    }
    assert!(is_over && client.answer == client.request, "{pattern}");
    assert_eq!(server.accepted, 1);
    assert!(recorded.len() > 40, "{}", recorded.len());
    recorded
}

#[test]
fn a_recording_opens_nothing_at_a_server_that_was_started_again() {
    let keys = Keys::new(1);
    for pattern in Pattern::all() {
        let server = config(keys.responder(pattern));
        let recorded = recording(&keys, pattern, &server, 0);
        for later in [SECOND, 3_600 * SECOND] {
            let mut again = Server::new(server.clone(), 3);
            again.follows = true;
            // As it was, and once more from somewhere else; what the server said before is sent to it, too.
            for elsewhere in [None, Some(client_address(9))] {
                for (at, from, packet) in &recorded {
                    let now = START + later + *at;
                    again.receive(now, elsewhere.unwrap_or(*from), packet);
                    let _ = again.drive(now);
                }
            }
            assert_eq!((again.accepted, again.sessions.len()), (0, 0), "{pattern}");
            let now = START + later + 120 * SECOND;
            again.endpoint.forget_expired(now);
            assert_eq!(again.endpoint.agreeing(), 0);
        }
    }
}

/// Its memory of early data that was taken is gone, so it is taken once more, and the stream says so. Nothing else of the recording is.
#[test]
fn of_a_recording_only_early_data_opens_a_stream_at_a_server_that_was_started_again_and_it_says_so() {
    const EARLY: usize = 300;
    let keys = Keys::new(1);
    for pattern in Pattern::all().filter(|pattern| pattern.takes_early_data()) {
        let server = config(keys.responder(pattern).with_early_data());
        let recorded = recording(&keys, pattern, &server, EARLY);
        let mut again = Server::new(server, 3);
        again.follows = true;
        let mut end = START;
        for turn in 1..=3 {
            for (at, from, packet) in &recorded {
                end = START + 100 * SECOND * turn + *at;
                again.receive(end, *from, packet);
                let _ = again.drive(end);
                for session in again.sessions.values() {
                    assert!(session.may_be_replayed(), "{pattern}");
                    assert_eq!(session.stats().stream.bytes_read, EARLY as u64);
                }
            }
        }
        assert_eq!((again.accepted, again.early), (1, 1), "{pattern}");
        for now in (0..60).map(|second| end + SECOND * second) {
            let _ = again.drive(now);
        }
        assert_eq!(again.sessions.len(), 0, "nobody answers");
    }
}

/// The server was done first. Its answer to the client's last word is lost, so the client says that again to a server that has ended the
/// session.
#[test]
fn a_record_answers_under_the_keys_of_its_session_and_nothing_that_is_not_sealed() {
    let keys = Keys::new(1);
    for pattern in Pattern::all() {
        let mut server = Server::new(config(keys.responder(pattern)), 1);
        let client = KcpConfig::builder().noise(keys.initiator(pattern)).build().unwrap();
        let mut rng = Rng::new(2);
        let seed = SessionSeed::new(&mut rng);
        let mut client = Connection::connect_with_noise(7, &client, START, seed, &mut rng).unwrap();
        client.write(START, b"hello").unwrap();
        let at = |millis| START + ms(millis);
        (0..1_000).for_each(|millis| exchange(at(millis), &mut server, &mut client));
        server.sessions.values_mut().for_each(|session| session.shutdown(at(1_000)));
        (1_000..2_000).for_each(|millis| exchange(at(millis), &mut server, &mut client));
        assert_eq!(client.read(&mut [0; 10]), Ok(5));
        assert_eq!(client.read(&mut [0; 10]), Err(ReadError::Finished), "{pattern}");
        client.shutdown(at(2_000));
        let last = driven(&mut client, at(2_000));
        last.iter().for_each(|packet| server.receive(at(2_000), client_address(1), packet));
        assert!(!server.drive(at(2_000)).is_empty() && server.sessions.is_empty(), "{pattern}");

        // What is not sealed by the client now has no answer.
        server.receive(at(2_001), client_address(1), &keys.forged(pattern, 7));
        last.iter().for_each(|packet| server.receive(at(2_001), client_address(1), packet));
        assert_eq!((&server.replies[..], client.close_reason()), (&[][..], None), "{pattern}");
        let asked = server.endpoint.stats().dropped_recently_closed;
        (2_001..4_000).for_each(|millis| exchange(at(millis), &mut server, &mut client));
        assert_eq!(client.close_reason(), Some(CloseReason::Finished), "{pattern}");
        assert!(server.endpoint.stats().dropped_recently_closed > asked, "the record was asked");
    }
}
