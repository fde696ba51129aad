//! The example `top`: its state, what it draws, and the program in a terminal.

use std::{collections::HashSet, net::SocketAddr, process::Stdio, time::Duration};

use kcp9::{KcpStream, Stats};
use kcp9_tests::{example, within};
use ratatui::{Terminal, backend::TestBackend};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use self::{
    feed::{MAX_LINE, MAX_SESSIONS, Session, Snapshot},
    state::{Column, Key, State},
};
use crate::{
    qlog::COUNTERS,
    support::{ANY, config},
    tmux::{EXITED, Tmux},
};

#[path = "../../examples/top/feed.rs"]
pub mod feed;
#[path = "../../examples/top/state.rs"]
mod state;
#[path = "../../examples/top/view.rs"]
mod view;

fn session(port: u16, sent: u64, pushed: u64, resent: u64) -> Session {
    Session {
        peer: SocketAddr::from(([192, 0, 2, 1], port)),
        conv: 0xabc,
        sent,
        received: sent / 2,
        rtt: u64::from(port) * 1_000,
        pushed,
        resent,
        recovered: 3,
        unrecoverable: 0,
        memory: 1_234_567,
    }
}

fn snapshot(time: u64, sessions: &[Session]) -> Snapshot {
    Snapshot { time, count: sessions.len() as u64, memory: 5_000, sessions: sessions.to_vec() }
}

/// Every counter has a value of its own, so that no other one can stand in its place.
#[test]
fn a_session_is_told_by_the_statistics_that_its_fields_name() {
    macro_rules! numbered {
        ($($group:ident { $($name:ident)* })*) => {{
            let (mut stats, mut number) = (Stats::default(), 0);
            $($(
                number += 1;
                stats.$group.$name = number;
            )*)*
            stats
        }};
    }
    let mut stats = with_counters!(numbered);
    let millis = Duration::from_millis;
    (stats.path.rtt, stats.path.rtt_var) = (millis(501), millis(502));
    (stats.path.min_rtt, stats.path.rto) = (millis(503), millis(504));
    (stats.queues.unsent_bytes, stats.queues.unread_bytes, stats.queues.memory_bytes) = (601, 602, 603);
    (stats.datagram_queues.unsent_bytes, stats.datagram_queues.unread_bytes) = (604, 605);
    // Digits of their own: a sum shows what is in it.
    stats.recovery.fast_resends = 1_000;
    stats.recovery.early_resends = 20_000;
    stats.recovery.timeout_resends = 300_000;
    stats.recovery.fec_flush_copies = 4_000_000;
    let values: HashSet<_> = COUNTERS.iter().map(|(_, _, get)| get(&stats)).collect();
    assert!(values.len() == COUNTERS.len() && !values.contains(&0), "a counter is missing above");

    let peer = SocketAddr::from(([192, 0, 2, 7], 7));
    let expected = Session {
        peer,
        conv: 0xabc,
        sent: 2,
        received: 4,
        rtt: 501_000,
        pushed: 11,
        resent: 321_000,
        recovered: 28,
        unrecoverable: 29,
        memory: 603,
    };
    assert_eq!(Session::with(peer, 0xabc, &stats), expected);
}

fn ports(state: &State) -> Vec<u16> {
    state.rows.iter().map(|row| row.peer.port()).collect()
}

#[test]
fn rates_and_losses_are_those_since_the_snapshot_before() {
    let mut state = State::new();
    state.update(snapshot(1_000, &[session(1, 5_000, 100, 10), session(2, 0, 0, 0)]));
    assert!(state.rows.iter().all(|row| row.sent == 0.0 && row.loss == 0.0), "{:?}", state.rows);
    state.update(snapshot(
        3_000,
        &[session(1, 7_000, 150, 15), session(2, 9_000, 10, 0), session(3, 9, 9, 9)],
    ));
    assert_eq!(ports(&state), [2, 1, 3], "the fastest first");
    let row = &state.rows[1];
    assert_eq!((row.sent, row.received, row.loss, row.resent), (1_000.0, 500.0, 10.0, 15));
    assert_eq!(state.rows[2].sent, 0.0, "a new one has no rate yet");
    assert_eq!(state.rates(), (5_500.0, 2_750.0));

    // A session of that address and conv that began anew, and a server that did.
    state.update(snapshot(4_000, &[session(1, 10, 1, 0)]));
    assert_eq!((ports(&state), state.rows[0].sent), (vec![1], 0.0));
    state.update(snapshot(5, &[session(1, 20, 1, 0)]));
    assert_eq!(state.rows[0].sent, 0.0);
}

#[test]
fn keys_sort_select_and_pause() {
    let mut state = State::new();
    let sessions = [session(3, 0, 0, 1), session(1, 0, 0, 9), session(2, 0, 0, 1)];
    state.update(snapshot(0, &sessions));
    assert_eq!(ports(&state), [1, 2, 3], "equal ones by their address");
    // From the rate sent: received, round-trip time.
    assert!(state.press(Key::Right) && state.press(Key::Right));
    assert_eq!((state.sort, ports(&state)), (Column::Rtt, vec![3, 2, 1]));
    state.press(Key::Reverse);
    assert_eq!(ports(&state), [1, 2, 3]);
    state.press(Key::Reverse);
    state.press(Key::Right);
    state.press(Key::Right);
    assert_eq!((state.sort, ports(&state)), (Column::Resent, vec![1, 2, 3]));
    // Around both ends.
    for _ in 0..Column::ALL.len() {
        state.press(Key::Left);
    }
    assert_eq!(state.sort, Column::Resent);

    for (key, selected) in [(Key::Up, 0), (Key::Down, 1), (Key::Down, 2), (Key::Down, 2), (Key::Up, 1)] {
        state.press(key);
        assert_eq!(state.selected, selected);
    }
    state.press(Key::Pause);
    state.update(snapshot(1, &[]));
    assert_eq!(state.rows.len(), 3);
    state.press(Key::Pause);
    state.update(snapshot(2, &[]));
    assert_eq!((state.rows.len(), state.selected), (0, 0));
    assert!(!state.press(Key::Quit));
}

fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(state, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn a_screen_of_sessions() {
    let mut state = State::new();
    state.update(snapshot(0, &[session(1, 0, 0, 0), session(2, 0, 0, 0)]));
    state.update(snapshot(1_000, &[session(1, 2_500_000, 200, 5), session(2, 300, 10, 0)]));
    let lines = screen(&state, 120, 6);
    assert_eq!(lines[0], "2 sessions  out 2.5 MB/s  in 1.3 MB/s  memory 5.0 kB");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(words(&lines[1]), "peer conv out/s v in/s rtt ms loss % resent fec memory");
    assert_eq!(words(&lines[2]), "192.0.2.1:1 00000abc 2.5 MB 1.2 MB 1.0 2.5 5 3 1.2 MB");
    assert_eq!(words(&lines[3]), "192.0.2.1:2 00000abc 300 B 150 B 2.0 0.0 0 3 1.2 MB");
    assert!(lines[5].contains("q: quit"));
    state.press(Key::Pause);
    state.ended = Some("the server has ended; q: quit".to_owned());
    let lines = screen(&state, 120, 6);
    assert!(lines[0].ends_with("PAUSED") && lines[5].starts_with("the server has ended"), "{lines:?}");

    // The selected line stays in sight, and no size of a terminal is too small.
    let many: Vec<_> = (1..=500).map(|port| session(port, 0, 0, 0)).collect();
    let mut state = State::new();
    state.update(snapshot(0, &many));
    for _ in 0..400 {
        state.press(Key::Down);
    }
    assert!(screen(&state, 120, 10).iter().any(|line| line.starts_with("192.0.2.1:401 ")));
    for (width, height) in [(1, 1), (10, 2), (200, 60)] {
        screen(&state, width, height);
    }
}

#[test]
fn the_longest_line_is_within_the_limit() {
    let longest = Session {
        peer: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".parse().unwrap(),
        conv: u32::MAX,
        sent: u64::MAX,
        received: u64::MAX,
        rtt: u64::MAX,
        pushed: u64::MAX,
        resent: u64::MAX,
        recovered: u64::MAX,
        unrecoverable: u64::MAX,
        memory: u64::MAX,
    };
    let all =
        Snapshot { time: u64::MAX, count: u64::MAX, memory: u64::MAX, sessions: vec![longest; MAX_SESSIONS] };
    let line = serde_json::to_vec(&all).unwrap();
    assert!((line.len() as u64) < MAX_LINE, "{} bytes", line.len());
    assert_eq!(serde_json::from_slice::<Snapshot>(&line).unwrap(), all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_shows_the_sessions_of_a_server_in_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kcp9.sock");
    let mut server = Command::new(example("metrics"))
        .args(["serve", "--listen", ANY, "--metrics", ANY, "--socket"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = within(20, "the server", lines.next_line()).await.unwrap().unwrap();
    let addr: SocketAddr = line.strip_prefix("listening on ").unwrap().parse().unwrap();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut stream = KcpStream::connect(addr, config()).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        within(20, "the echo", stream.read_exact(&mut [0; 5])).await.unwrap();
        clients.push(stream);
    }
    let terminal = folder.path().join("tmux");
    let tmux = Tmux(&terminal);
    tmux.start(&socket).await;
    let screen = tmux.shows(&["3 sessions", "out/s v", "q: quit"]).await;
    for client in &clients {
        let port = client.local_addr().unwrap().port();
        assert!(screen.contains(&format!("127.0.0.1:{port} ")), "{screen}");
        assert!(screen.contains(&format!("{:08x}", client.conv())), "{screen}");
    }
    tmux.press("Right").await;
    tmux.shows(&["in/s v"]).await;
    tmux.press("r").await;
    tmux.shows(&["in/s ^"]).await;
    // One ends: it is gone from the screen.
    clients.pop().unwrap().abort();
    tmux.shows(&["2 sessions"]).await;
    server.kill().await.unwrap();
    tmux.shows(&["the server has ended"]).await;
    tmux.press("q").await;
    // The program gave the screen back. What the shell says behind it was not there before.
    let screen = tmux.shows(&[EXITED]).await;
    assert!(!screen.contains("sessions"), "{screen}");
}
