//! What a driver does in a turn that no socket can be made to bring about at will.

#[cfg(feature = "noise")]
mod randomness;

use std::{boxed::Box, thread, time::Instant as StdInstant};

use super::*;
use crate::{
    KcpConfig,
    net::{shared::Sharing, trace::Role},
    proto::{BufferMemory, CloseReason, Connection},
};

/// Its driver has a socket and no task: the tests take its turns.
fn driver() -> Driver {
    let socket = Socket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    // The driver that is started here does not run before the test waits for something, which it does not.
    let shared = Shared::start(socket, None, Sharing::Many, BufferMemory::new(1 << 30), None).unwrap();
    Driver::new(shared).unwrap()
}

/// A session that has sent something to an address where nobody answers.
fn waiting(driver: &mut Driver, conv: u32, peer: SocketAddr, config: &KcpConfig) -> (Arc<Session>, Handle) {
    let connection = Connection::connect(conv, config, clock::now(), driver.shared.seed());
    let session = Arc::new(Session::new(Arc::clone(&driver.shared), connection, peer, None, Role::Connects));
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

/// As [`KcpEndpoint::connect`](crate::KcpEndpoint::connect) begins a session. It wants to send its HELLO.
fn connected(driver: &mut Driver, conv: u32, peer: SocketAddr) -> (Arc<Session>, Handle) {
    let connection = Connection::connect(conv, &KcpConfig::default(), clock::now(), driver.shared.seed());
    let session = Arc::new(Session::new(Arc::clone(&driver.shared), connection, peer, None, Role::Connects));
    session.hold();
    let handle = driver.add_connected(Arc::clone(&session)).unwrap();
    driver.sessions.mark_dirty(handle);
    (session, handle)
}

#[tokio::test]
async fn sessions_beyond_the_window_of_openings_send_nothing_until_one_before_them_has_begun_or_is_given_up()
{
    let mut driver = driver();
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = nobody.local_addr().unwrap();
    let most = openings::MIN_WINDOW as u32;
    let mut sessions: Vec<_> = (1..=most + 5).map(|conv| connected(&mut driver, conv, peer)).collect();
    let now = clock::now();
    let sent = |sessions: &[(Arc<Session>, Handle)]| {
        let packets =
            |session: &Arc<Session>| session.with(false, |connection| connection.stats()).udp.packets_sent;
        sessions.iter().filter(|(session, _)| packets(session) > 0).count()
    };
    let turn = |driver: &mut Driver, now: Instant| {
        driver.begin_held(now);
        driver.serve_dirty(now);
    };
    turn(&mut driver, now);
    assert_eq!(sent(&sessions), openings::MIN_WINDOW);
    assert_eq!(sent(&sessions[openings::MIN_WINDOW..]), 0, "those that came last wait");
    assert_eq!(driver.openings.deadline(), Some(now + openings::PATIENCE));

    // One under way ends, and its place is free. So does one that waits: it has none.
    let (gone, handle) = sessions.remove(0);
    gone.fail(KcpError::EndpointClosed);
    driver.forget(now, handle);
    let (gone, handle) = sessions.pop().unwrap();
    gone.fail(KcpError::EndpointClosed);
    driver.forget(now, handle);
    turn(&mut driver, now);
    assert_eq!(sent(&sessions), openings::MIN_WINDOW);
    assert_eq!(sent(&sessions[openings::MIN_WINDOW..]), 0);

    // The stream of one that waits is dropped: it begins, so that it ends in time.
    let (dropped, handle) = sessions.pop().unwrap();
    driver.begin_linger(handle);
    turn(&mut driver, now);
    assert!(dropped.with(false, |connection| connection.stats()).udp.packets_sent > 0);
    assert_eq!(sent(&sessions), openings::MIN_WINDOW);

    // Nobody answers.
    turn(&mut driver, now + (openings::PATIENCE - Duration::from_micros(1)));
    assert_eq!(sent(&sessions), openings::MIN_WINDOW);
    turn(&mut driver, now + openings::PATIENCE);
    assert_eq!(sent(&sessions), sessions.len());
    assert_eq!(driver.openings.deadline(), None, "nobody waits any more");
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
    let served_at = driver.sessions.get(handle).unwrap().rest.served_at();
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

/// Two shards whose turns the test takes, and a session of the first, whose client has heard it.
#[cfg(target_os = "linux")]
struct TwoShards {
    drivers: [Driver; 2],
    session: Arc<Session>,
    client: Connection,
    /// Where the client is.
    socket: std::net::UdpSocket,
}

#[cfg(target_os = "linux")]
impl TwoShards {
    async fn new() -> Self {
        let mortal = KcpConfig::builder().extensions(crate::proto::Extensions::Off);
        let config = mortal.dead_timeout(Duration::from_millis(200)).build().unwrap();
        let sockets = crate::net::shards::bind_first("127.0.0.1:0", 2).await.unwrap();
        // Their own drivers do not run before the test waits for something, which it does not.
        let shared = crate::net::shards::start(sockets, config.clone()).unwrap();
        let mut drivers = [0, 1].map(|index| Driver::new(Arc::clone(&shared[index])).unwrap());
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut client = Connection::connect(7, &config, clock::now(), shared[0].seed());
        client.write(clock::now(), b"?").unwrap();
        Self::bring(&mut drivers[0], &mut client, &socket);
        let handle = drivers[0].endpoint.find(socket.local_addr().unwrap(), 7).unwrap();
        let session = Arc::clone(&drivers[0].sessions.get(handle).unwrap().session);
        Self { drivers, session, client, socket }
    }

    /// What the client has to send arrives at a shard.
    fn bring(driver: &mut Driver, client: &mut Connection, socket: &std::net::UdpSocket) {
        let (now, peer) = (clock::now(), socket.local_addr().unwrap());
        let mut block = Arc::new(std::vec![0; 65_536].into_boxed_slice());
        let transmit = client.poll_transmit(now, Arc::get_mut(&mut block).unwrap()).unwrap();
        let crate::proto::Transmit { len, stride, ecn, .. } = transmit;
        driver.endpoint.receive(peer, &mut Arc::get_mut(&mut block).unwrap()[..len], stride);
        let mut received =
            crate::net::socket::Received { peer, local_ip: None, block: &mut block, len, stride, ecn };
        driver.route(now, &mut received);
    }

    /// As [`new`](Self::new), when the server has written something and the time is over in which its client has to answer.
    async fn waiting() -> Self {
        for _ in 0..50 {
            let mut shards = Self::new().await;
            // On a busy machine that takes so long that nobody waits for the other shard any more.
            if shards.write_and_wait() < Duration::from_millis(700) {
                return shards;
            }
        }
        panic!("this machine is too busy");
    }

    /// The server writes, and its client has the packet. Then the time is over in which the client has to answer. Returns how long
    /// that took.
    fn write_and_wait(&mut self) -> Duration {
        self.session.with(true, |connection| connection.write(clock::now(), b"!")).unwrap();
        let begun = StdInstant::now();
        let mut packet = std::vec![0; 2_000];
        let len = loop {
            assert!(begun.elapsed() < Duration::from_secs(5), "nothing was sent");
            if let Ok(len) = self.socket.recv(&mut packet) {
                break len;
            }
        };
        let block = Arc::new(packet.into_boxed_slice());
        self.client.handle_batch(clock::now(), &block, 0..len, len);
        while begun.elapsed() < Duration::from_millis(400) {
            thread::sleep(Duration::from_millis(10));
            self.turn(0);
        }
        begun.elapsed()
    }

    /// A turn of a shard that has read its socket to the end.
    fn turn(&mut self, shard: usize) {
        let driver = &mut self.drivers[shard];
        driver.sessions.begin_poll();
        let mut now = None;
        driver.take_parcels(&mut now);
        let now = now.unwrap_or_else(clock::now);
        driver.reading = Reading { until: now, since: now };
        driver.expire_timers(now, None);
        if let Some(slot) = driver.sessions.handle_at(0) {
            driver.sessions.mark_dirty(slot);
        }
        driver.serve_dirty(now);
        driver.after_turn();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_session_does_not_end_before_the_other_shards_have_read_what_may_be_its_peers() {
    let mut shards = TwoShards::waiting().await;
    assert!(!shards.session.is_over(), "its packets may be in the other socket");
    shards.turn(1);
    shards.turn(0);
    assert!(shards.session.is_over(), "they are not");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_session_lives_by_what_another_shard_has_read_late() {
    let mut shards = TwoShards::waiting().await;
    let TwoShards { drivers, client, socket, .. } = &mut shards;
    TwoShards::bring(&mut drivers[1], client, socket);
    shards.turn(1);
    for _ in 0..3 {
        shards.turn(0);
    }
    assert!(!shards.session.is_over(), "its peer has answered");
    assert_eq!((shards.drivers[0].endpoint.len(), shards.drivers[1].endpoint.len()), (1, 0));
}

/// Whatever keeps a driver from its work keeps no session of another one alive.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_shard_that_never_reads_is_not_waited_for_longer_than_a_second() {
    let mut shards = TwoShards::waiting().await;
    let begun = StdInstant::now();
    while !shards.session.is_over() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not end");
        thread::sleep(UNREAD_RETRY);
        shards.turn(0);
    }
    assert!(begun.elapsed() > Duration::from_millis(200), "{:?}", begun.elapsed());
}

/// A flood of one shard with packets of another's sessions takes the memory of an inbox, and the rest is lost and counted.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_shard_that_is_busy_loses_what_others_have_for_it() {
    let mut shards = TwoShards::new().await;
    let TwoShards { drivers, client, socket, .. } = &mut shards;
    let mut sent = 0;
    while drivers[1].shared.counters.snapshot().dropped.shard_busy == 0 {
        client.write(clock::now(), &[7; 1_000]).ok();
        // The same again and again once the window is full.
        client.handle_timeout(clock::now());
        let before = sent;
        for _ in 0..100 {
            let (now, peer) = (clock::now(), socket.local_addr().unwrap());
            let mut packet = std::vec![0; 1_000];
            packet[..4].copy_from_slice(&7_u32.to_le_bytes());
            let mut block = Arc::new(packet.into_boxed_slice());
            drivers[1].endpoint.receive(peer, Arc::get_mut(&mut block).unwrap(), 1_000);
            let mut received = crate::net::socket::Received {
                peer,
                local_ip: None,
                block: &mut block,
                len: 1_000,
                stride: 1_000,
                ecn: crate::proto::EcnCodepoint::NotEct,
            };
            drivers[1].route(now, &mut received);
            sent += 1;
        }
        assert!(sent > before && sent <= 2_000, "{sent} packets of 1,000 bytes wait");
    }
    drivers[1].count_routed();
    let stats = drivers[1].shared.counters.snapshot();
    assert_eq!(stats.driver.handed_over, sent);
    assert!((sent - stats.dropped.shard_busy) * 1_256 <= 1 << 20, "{stats:?}");
}
