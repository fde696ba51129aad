//! What a driver does in a turn that no socket can be made to bring about at will.

use std::{boxed::Box, thread, time::Instant as StdInstant};

use super::*;
use crate::{
    KcpConfig,
    net::shared::Sharing,
    proto::{CloseReason, Connection},
};

/// Its driver has a socket and no task: the tests take its turns.
fn driver() -> Driver {
    let socket = Socket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    // The driver that is started here does not run before the test waits for something, which it does not.
    let shared = Shared::start(socket, None, Sharing::Many, None).unwrap();
    Driver::new(shared).unwrap()
}

/// A session that has sent something to an address where nobody answers.
fn waiting(driver: &mut Driver, conv: u32, peer: SocketAddr, config: &KcpConfig) -> (Arc<Session>, Handle) {
    let connection = Connection::connect(conv, config, clock::now(), driver.shared.seed());
    let session = Arc::new(Session::new(Arc::clone(&driver.shared), connection, peer, None));
    session.with(true, |connection| connection.write(clock::now(), b"anybody?")).unwrap();
    let handle = driver.add_connected(Arc::clone(&session)).unwrap();
    driver.sessions.mark_dirty(handle);
    (session, handle)
}

/// A turn in which a packet of some other session was received, and more wait in the socket.
fn turn_in_a_flood(driver: &mut Driver) -> Instant {
    let now = clock::now();
    driver.expire_timers(now, Some(1));
    driver.serve_dirty(now);
    now
}

/// A session whose time is over and whose peer may have spoken, in what is not read yet, is due in each turn, and such sessions
/// were due first. Where they were as many as a turn serves, no deadline of another session was kept for as long as the flood
/// lasted.
#[tokio::test]
async fn dead_sessions_whose_packets_are_not_read_yet_leave_other_deadlines_their_turn() {
    let mut driver = driver();
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = nobody.local_addr().unwrap();
    let mortal = KcpConfig::builder().dead_timeout(Duration::from_millis(100)).build().unwrap();
    let begun = clock::now();
    // So far the socket has been read, as long as the flood lasts.
    driver.reading = Reading { until: begun, since: begun };
    let dead: Box<[_]> =
        (1..=MIN_TIMEOUTS as u32 + 1).map(|conv| waiting(&mut driver, conv, peer, &mortal).0).collect();
    let (_lives, handle) = waiting(&mut driver, 100, peer, &KcpConfig::default());
    let limit = StdInstant::now() + Duration::from_secs(10);
    loop {
        let now = turn_in_a_flood(&mut driver);
        let is_over = |session: &Arc<Session>| {
            session.with(false, |connection| connection.poll_timeout().is_some_and(|at| at <= now))
        };
        if dead.iter().all(is_over) {
            break;
        }
        assert!(StdInstant::now() < limit, "their time does not come");
        thread::sleep(Duration::from_millis(2));
    }
    let due = clock::now();
    driver.timers.set(handle.index() as u32, due);
    turn_in_a_flood(&mut driver);
    turn_in_a_flood(&mut driver);
    let served_at = driver.sessions.get(handle).unwrap().served_at;
    assert!(served_at >= due, "its deadline has come at {due:?}, and it was served at {served_at:?}");
    assert!(dead.iter().all(|session| !session.is_over()), "what they were sent may still be in the socket");
    // It is not. Now they are looked at again, and end.
    let reason = |session: &Arc<Session>| session.with(false, |connection| connection.close_reason());
    while dead.iter().any(|session| reason(session).is_none()) {
        assert!(StdInstant::now() < limit, "they do not end");
        thread::sleep(UNREAD_RETRY);
        let now = clock::now();
        driver.reading = Reading { until: now, since: now };
        driver.expire_timers(now, None);
        driver.serve_dirty(now);
    }
    assert!(dead.iter().all(|session| reason(session) == Some(CloseReason::DeadLink)));
    assert_eq!(driver.endpoint.len(), 1);
}
