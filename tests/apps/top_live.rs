//! The figures of live sessions in the example `top`: each session has a path and a direction of its own, so that no figure can stand
//! in another's place.

use std::{
    fs,
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kcp9::{KcpConfig, KcpHandle, KcpListener, KcpStream};
use kcp9_relay::Relay;
use kcp9_simulator::LinkSettings;
use kcp9_tests::{spawn, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    support::{ANY, builder, until},
    tmux::Tmux,
    top::feed as top,
};

#[path = "../../examples/metrics/feed.rs"]
mod feed;

fn config() -> KcpConfig {
    builder().fec(10, 3).send_window(64).recv_window(64).build().unwrap()
}

/// Both ends of a session behind a path of its own.
struct Session {
    relay: Relay,
    client: KcpStream,
    server: KcpStream,
}

impl Session {
    /// Each end has said something and knows the round-trip time: twice `delay`, and some more.
    async fn begin(listener: &KcpListener, delay: Duration) -> Self {
        let relay = Relay::start(listener.local_addr().unwrap(), &LinkSettings::delay(delay), 7).unwrap();
        let mut client = KcpStream::connect(relay.addr(), config()).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        let (mut server, _) = within(20, "a session", listener.accept()).await.unwrap();
        within(20, "a greeting", server.read_exact(&mut [0; 5])).await.unwrap();
        server.write_all(b"hello").await.unwrap();
        within(20, "an answer", client.read_exact(&mut [0; 5])).await.unwrap();
        assert_eq!(client.conv(), server.conv());
        Self { relay, client, server }
    }
}

/// Writes as fast as it goes, then ends this direction.
async fn write(mut stream: KcpStream, goes_on: Arc<AtomicBool>) -> KcpStream {
    let chunk = [7; 4_096];
    while goes_on.load(Ordering::Relaxed) {
        stream.write_all(&chunk).await.unwrap();
    }
    stream.shutdown().await.unwrap();
    stream
}

async fn read(mut stream: KcpStream) -> KcpStream {
    let mut chunk = [0; 4_096];
    while stream.read(&mut chunk).await.unwrap() > 0 {}
    stream
}

/// A line of the screen.
#[derive(Debug, Clone, Copy)]
struct Row {
    conv: u32,
    /// Bytes per second.
    sent: f64,
    received: f64,
    /// Milliseconds.
    rtt: f64,
    /// Percent.
    loss: f64,
    resent: u64,
    recovered: u64,
    memory: f64,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        let [
            peer,
            conv,
            sent,
            sent_unit,
            received,
            received_unit,
            rtt,
            loss,
            resent,
            recovered,
            memory,
            unit,
        ] = words[..]
        else {
            return None;
        };
        peer.parse::<SocketAddr>().ok()?;
        Some(Self {
            conv: u32::from_str_radix(conv, 16).ok()?,
            sent: bytes(sent, sent_unit)?,
            received: bytes(received, received_unit)?,
            rtt: rtt.parse().ok()?,
            loss: loss.parse().ok()?,
            resent: resent.parse().ok()?,
            recovered: recovered.parse().ok()?,
            memory: bytes(memory, unit)?,
        })
    }

    /// Whether this is what the session's own statistics say, now that nothing goes on.
    fn is_of(&self, session: &KcpHandle) -> bool {
        let stats = session.stats();
        self.conv == session.conv()
            && (self.rtt - stats.path.rtt.as_secs_f64() * 1e3).abs() < 0.051
            && self.resent == stats.recovery.resends()
            && self.recovered == stats.fec.recovered
            && is_near(self.memory, stats.queues.memory_bytes as f64)
            && (self.sent, self.received, self.loss) == (0.0, 0.0, 0.0)
    }
}

fn bytes(count: &str, unit: &str) -> Option<f64> {
    let unit = match unit.trim_end_matches("/s") {
        "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    };
    Some(count.parse::<f64>().ok()? * unit)
}

/// As far as two digits tell.
fn is_near(shown: f64, value: f64) -> bool {
    (shown - value).abs() <= 0.06 * value.max(10.0)
}

/// The rates of all sessions, in the first line.
fn sums(screen: &str) -> Option<(f64, f64)> {
    let words: Vec<_> = screen.lines().next()?.split_whitespace().collect();
    let rate = |name: &str| {
        let place = words.iter().position(|word| *word == name)?;
        bytes(words.get(place + 1)?, words.get(place + 2)?)
    };
    Some((rate("out")?, rate("in")?))
}

/// The rows of a screen that is sorted by `title`, from the top.
fn rows(screen: &str, title: &str) -> Option<[Row; 3]> {
    let rows: Vec<_> = screen.lines().filter_map(Row::parse).collect();
    screen.contains(title).then_some(rows)?.try_into().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_shows_live_figures_of_each_session_in_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kcp9.sock");
    let listener = KcpListener::bind(ANY, config()).await.unwrap();
    let millis = Duration::from_millis;
    let (idle, download, upload) = (
        Session::begin(&listener, millis(20)).await,
        Session::begin(&listener, millis(40)).await,
        Session::begin(&listener, millis(5)).await,
    );
    let sessions = feed::Sessions::default();
    for session in [&idle, &download, &upload] {
        sessions.add(&session.server);
    }
    let handles = [&idle, &download, &upload].map(|session| session.server.handle());
    let [idle_conv, down_conv, up_conv] = [0, 1, 2].map(|number: usize| handles[number].conv());
    let answers_resent = handles[2].stats().recovery.resends();
    let (path, endpoint) = (socket.clone(), listener.endpoint().clone());
    let feed = spawn(async move { sessions.serve(&path, endpoint).await });

    // From here on bytes go one way only in two of them, and some are lost.
    download.relay.set_loss(0.05);
    upload.relay.set_loss(0.05);
    let goes_on = Arc::new(AtomicBool::new(true));
    let writers = [download.server, upload.client].map(|stream| spawn(write(stream, Arc::clone(&goes_on))));
    let readers = [download.client, upload.server].map(|stream| spawn(read(stream)));

    until(20, "the socket", || UnixStream::connect(&socket).is_ok()).await;
    let terminal = folder.path().join("tmux");
    let tmux = Tmux(&terminal);
    tmux.start(&socket).await;
    let order = |rows: &[Row; 3]| rows.map(|row| row.conv);
    // As the server sees it. What is acknowledged goes the other way, in a tenth of the bytes or so.
    let live = |screen: &str| {
        let rows = rows(screen, "out/s v")?;
        let [down, up, idle] = rows;
        let (sent, received) = sums(screen)?;
        let is_live = order(&rows) == [down_conv, up_conv, idle_conv]
            && down.sent > 100e3
            && down.received < down.sent / 5.0
            && up.received > 100e3
            && up.sent < up.received / 5.0
            && idle.sent + idle.received < 1e3
            && is_near(sent, down.sent + up.sent + idle.sent)
            && is_near(received, down.received + up.received + idle.received)
            && (down.rtt >= 80.0 && up.rtt >= 10.0 && idle.rtt >= 40.0)
            && (down.loss > 0.0 && down.resent > 0 && down.memory > 0.0)
            && (up.loss, up.resent) == (0.0, answers_resent)
            && up.recovered > 0;
        is_live.then_some(())
    };
    let (mut seen, ()) = tmux.until("live figures", live).await;

    let sorted = async |title: &str, convs: [u32; 3]| {
        let look = |screen: &str| (order(&rows(screen, title)?) == convs).then_some(());
        tmux.until(&format!("{convs:08x?} by {title}"), look).await.0
    };
    tmux.press("Right").await;
    seen += &sorted("in/s v", [up_conv, down_conv, idle_conv]).await;
    tmux.press("r").await;
    seen += &sorted("in/s ^", [idle_conv, down_conv, up_conv]).await;

    // When nothing goes on any more, each row has what the session says of itself.
    goes_on.store(false, Ordering::Relaxed);
    let mut ends = Vec::new();
    for end in writers.into_iter().chain(readers) {
        ends.push(within(60, "the rest of the bytes", end).await.unwrap());
    }
    let quiet = |screen: &str| {
        let rows = rows(screen, "in/s ^")?;
        let is_told = |row: &Row| handles.iter().any(|session| row.is_of(session));
        rows.iter().all(is_told).then_some(())
    };
    tmux.until("quiet sessions as their statistics have them", quiet).await;
    let mut by_rtt: Vec<_> =
        handles.iter().map(|session| (session.stats().path.rtt, session.conv())).collect();
    by_rtt.sort_unstable();
    let [first, second, third] = [0, 1, 2].map(|number: usize| by_rtt[number].1);
    tmux.press("Right").await;
    seen += &sorted("rtt ms ^", [first, second, third]).await;
    tmux.press("r").await;
    seen += &sorted("rtt ms v", [third, second, first]).await;
    // `.ci/run examples` keeps it.
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("top.txt"), seen).unwrap();
    feed.abort();
}
