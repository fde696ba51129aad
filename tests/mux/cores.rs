//! Two sessions without I/O, joined by pipes that cut the bytes anywhere, in virtual time.

use std::{collections::HashMap, task::Poll, time::Duration};

use kcp9::{
    mux::{MuxConfig, MuxCore, MuxError, MuxEvent, MuxRole, MuxVersion, StreamKey},
    proto::Instant,
};
use kcp9_simulator::{payload::Payload, rng::Rng};

/// Bytes of each direction of a stream, of which every position of every stream has its own.
fn expected(id: u32, by_client: bool) -> Payload {
    Payload::new(u64::from(id) * 2 + u64::from(by_client))
}

/// What one end knows of one of its streams.
struct Handle {
    key: StreamKey,
    id: u32,
    written: usize,
    to_write: usize,
    read: usize,
    /// This end has sent FIN.
    finished: bool,
    /// Everything was read.
    ended: bool,
    /// Reads nothing before all others are done.
    stuck: bool,
}

struct End {
    core: MuxCore,
    is_client: bool,
    handles: Vec<Handle>,
    /// Bytes on their way to this end.
    wire: Vec<u8>,
    to_open: usize,
    /// What was written to each stream, also to those that are gone.
    sent: HashMap<u32, usize>,
    got: HashMap<u32, usize>,
    /// Bytes that may be on the wire to the peer: a pipe that is full takes no more.
    pipe: usize,
}

impl End {
    fn new(config: MuxConfig, role: MuxRole, to_open: usize, pipe: usize) -> Self {
        Self {
            core: MuxCore::new(config, role, Instant::ZERO),
            is_client: role == MuxRole::Client,
            handles: Vec::new(),
            wire: Vec::new(),
            to_open,
            sent: HashMap::new(),
            got: HashMap::new(),
            pipe,
        }
    }

    fn add(&mut self, key: StreamKey, rng: &mut Rng, stuck: bool) {
        let id = self.core.id(key).unwrap();
        let to_write = rng.magnitude(0..=300_000) as usize;
        self.handles.push(Handle {
            key,
            id,
            written: 0,
            to_write,
            read: 0,
            finished: false,
            ended: false,
            stuck,
        });
    }

    /// One step of the application.
    fn act(&mut self, now: Instant, rng: &mut Rng, stuck: f64, seed: u64) {
        if self.to_open > 0
            && rng.chance(0.3)
            && let Some(key) = self.core.open().unwrap()
        {
            self.to_open -= 1;
            let stuck = rng.chance(stuck);
            self.add(key, rng, stuck);
        }
        while let Some(key) = self.core.accept() {
            let stuck = rng.chance(stuck);
            self.add(key, rng, stuck);
        }
        if self.handles.is_empty() {
            return;
        }
        let at = rng.size(0..=self.handles.len() - 1);
        let is_client = self.is_client;
        let handle = &mut self.handles[at];
        if rng.chance(0.5) && !handle.finished {
            if handle.written < handle.to_write {
                let mut bytes = vec![
                    0;
                    rng.magnitude(1..=100_000).min((handle.to_write - handle.written) as u64)
                        as usize
                ];
                expected(handle.id, is_client).fill(handle.written as u64, &mut bytes);
                if let Poll::Ready(count) = self.core.write(now, handle.key, &bytes) {
                    let count = count.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                    assert!((1..=bytes.len()).contains(&count), "seed {seed}");
                    handle.written += count;
                    *self.sent.entry(handle.id).or_default() += count;
                }
            } else {
                self.core.finish(handle.key);
                handle.finished = true;
                let error = self.core.write(now, handle.key, b"more");
                assert!(matches!(error, Poll::Ready(Err(MuxError::ShutDown))), "seed {seed}: {error:?}");
            }
        } else if !handle.ended && !handle.stuck {
            let mut bytes = Vec::new();
            let max = rng.magnitude(1..=100_000) as usize;
            let outcome = match self.core.read_piece(handle.key, max) {
                Some(piece) => {
                    bytes.extend_from_slice(&piece);
                    Poll::Ready(Ok(piece.len()))
                }
                None => self.core.read(handle.key, max, |slice| bytes.extend_from_slice(slice)),
            };
            if let Poll::Ready(count) = outcome {
                let count = count.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                assert_eq!(count, bytes.len(), "seed {seed}");
                let mut wanted = vec![0; count];
                expected(handle.id, !is_client).fill(handle.read as u64, &mut wanted);
                assert!(bytes == wanted, "seed {seed}: stream {} at {}", handle.id, handle.read);
                handle.read += count;
                handle.ended = count == 0;
                *self.got.entry(handle.id).or_default() += count;
            }
        }
        if handle.finished && handle.ended {
            self.core.release(handle.key);
            self.handles.swap_remove(at);
        }
    }

    fn is_done(&self) -> bool {
        self.to_open == 0 && self.handles.iter().all(|handle| handle.stuck)
    }
}

/// Moves bytes from one end to the other, cut anywhere.
fn carry(now: Instant, from: &mut End, to: &mut End, rng: &mut Rng) {
    let mut buffer = Vec::new();
    while to.wire.len() < from.pipe && from.core.take_output(now, &mut buffer) {
        to.wire.extend_from_slice(&buffer);
    }
    if rng.chance(0.8) && to.core.wants_input() && !to.wire.is_empty() {
        let count = (rng.magnitude(1..=65_536) as usize).min(to.wire.len());
        let rest = to.wire.split_off(count);
        let bytes = std::mem::replace(&mut to.wire, rest);
        to.core.receive(now, bytes.into());
    }
    while from.core.poll_event().is_some() {}
}

/// Streams of both ends write, read, half-close and end in random order; everything arrives, and nothing is left.
fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let version = *rng.choose(&[MuxVersion::V1, MuxVersion::V2]);
    let config = |rng: &mut Rng| {
        MuxConfig::builder()
            .version(version)
            .max_frame(rng.magnitude(1_000..=65_535) as usize)
            .receive_buffer(4 << 20)
            .stream_buffer(rng.magnitude(5_000..=400_000) as usize)
            .send_buffer(rng.magnitude(1..=200_000) as usize)
            .build()
            .unwrap()
    };
    // In version 2 some are never read: they delay no other.
    let stuck = if version == MuxVersion::V2 { 0.1 } else { 0.0 };
    let streams = rng.size(1..=20);
    let pipe = rng.magnitude(1_000..=500_000) as usize;
    let mut client = End::new(config(&mut rng), MuxRole::Client, streams, pipe);
    let mut server = End::new(config(&mut rng), MuxRole::Server, rng.size(0..=5), pipe);
    let mut now = Instant::ZERO;
    let mut steps = 0;
    while !(client.is_done() && server.is_done()) {
        steps += 1;
        assert!(
            steps < 2_000_000,
            "seed {seed}: stuck; {client_left} and {server_left} streams left",
            client_left = client.handles.len(),
            server_left = server.handles.len()
        );
        now += Duration::from_micros(10);
        client.act(now, &mut rng, stuck, seed);
        server.act(now, &mut rng, stuck, seed);
        carry(now, &mut client, &mut server, &mut rng);
        carry(now, &mut server, &mut client, &mut rng);
        // A stuck end of a stream does not end: its peer neither hears of it nor waits for it.
        let stuck = |end: &End| -> Vec<u32> {
            end.handles.iter().filter(|handle| handle.stuck).map(|handle| handle.id).collect()
        };
        let stuck = [stuck(&client), stuck(&server)].concat();
        for handle in client.handles.iter_mut().chain(&mut server.handles) {
            handle.stuck |= stuck.contains(&handle.id);
        }
    }
    for (from, to) in [(&client, &server), (&server, &client)] {
        let stuck: Vec<u32> = client.handles.iter().chain(&server.handles).map(|handle| handle.id).collect();
        for (id, sent) in &from.sent {
            if !stuck.contains(id) {
                assert_eq!(to.got.get(id).copied().unwrap_or(0), *sent, "seed {seed}: stream {id}");
            }
        }
    }
    for end in [&mut client, &mut server] {
        let keys: Vec<_> = end.handles.iter().map(|handle| handle.key).collect();
        keys.into_iter().for_each(|key| end.core.release(key));
        // A stream that its opener is stuck with may have come in the last step.
        while let Some(key) = end.core.accept() {
            end.core.release(key);
        }
        let stats = end.core.stats();
        assert_eq!((stats.open_streams, stats.unread_bytes), (0, 0), "seed {seed}");
    }
}

#[test]
fn streams_of_both_ends_arrive_whole() {
    (0..100).for_each(run);
}

#[test]
#[ignore = "a minute: cargo test --release --test mux -- --ignored"]
fn streams_of_both_ends_arrive_whole_with_many_seeds() {
    (1_000..6_000).for_each(run);
}

fn pair(config: &MuxConfig) -> (MuxCore, MuxCore) {
    let core = |role| MuxCore::new(config.clone(), role, Instant::ZERO);
    (core(MuxRole::Client), core(MuxRole::Server))
}

fn carry_all(now: Instant, from: &mut MuxCore, to: &mut MuxCore) {
    let mut buffer = Vec::new();
    while from.take_output(now, &mut buffer) {
        to.receive(now, std::mem::take(&mut buffer).into());
    }
}

#[test]
fn writers_take_turns_by_frames() {
    let config = MuxConfig::builder().max_frame(1_000).send_buffer(2_000).build().unwrap();
    let (mut client, _) = pair(&config);
    let keys: Vec<_> = (0..10).map(|_| client.open().unwrap().unwrap()).collect();
    let (now, mut buffer) = (Instant::ZERO, Vec::new());
    let mut written = [0; 10];
    let bytes = [7; 5_000];
    // The first is greedy: it writes whenever it can. The others write when they are woken.
    let mut woken = [true; 10];
    for _ in 0..500 {
        for (at, key) in keys.iter().enumerate() {
            while woken[at] || at == 0 {
                match client.write(now, *key, &bytes) {
                    Poll::Ready(count) => written[at] += count.unwrap(),
                    Poll::Pending => {
                        woken[at] = false;
                        break;
                    }
                }
            }
        }
        client.take_output(now, &mut buffer);
        assert!(buffer.len() < 3 * 2_000 + 2_000, "{}", buffer.len());
        while let Some(event) = client.poll_event() {
            let MuxEvent::Writable(key) = event else { continue };
            woken[keys.iter().position(|other| *other == key).unwrap()] = true;
        }
    }
    let (min, max) = (written.iter().min().unwrap(), written.iter().max().unwrap());
    assert!(max - min <= 4_000 && *min > 50_000, "{written:?}");
}

#[test]
fn turns_that_are_never_used_hold_up_no_other() {
    let config = MuxConfig::builder().max_frame(1_000).send_buffer(1_000).build().unwrap();
    let (mut client, _) = pair(&config);
    let (now, mut buffer) = (Instant::ZERO, Vec::new());
    let lazy: Vec<_> = (0..600)
        .map(|_| {
            client.open().unwrap().unwrap_or_else(|| {
                client.take_output(now, &mut buffer);
                client.open().unwrap().unwrap()
            })
        })
        .collect();
    while !client.write(now, lazy[0], &[1; 1_000]).is_pending() {}
    for key in &lazy[1..] {
        // Each asks once, and never again.
        assert!(client.write(now, *key, &[1; 1_000]).is_pending());
    }
    let busy = lazy[0];
    let mut written = 0;
    for _ in 0..2_000 {
        client.take_output(now, &mut buffer);
        written += usize::from(client.write(now, busy, &[1; 1_000]).is_ready());
        while client.poll_event().is_some() {}
    }
    assert!(written > 500, "{written}");
}

#[test]
fn an_idle_session_is_kept_alive_and_a_silent_one_ends() {
    let (mut client, mut server) = pair(&MuxConfig::default());
    let mut now = Instant::ZERO;
    let mut step = |from: &mut MuxCore, to: &mut MuxCore| {
        now += Duration::from_millis(500);
        from.handle_timeout(now);
        let (mut buffer, mut nops) = (Vec::new(), 0);
        while from.take_output(now, &mut buffer) {
            assert_eq!(buffer, [1, 3, 0, 0, 0, 0, 0, 0]);
            nops += 1;
            to.receive(now, std::mem::take(&mut buffer).into());
        }
        nops
    };
    let mut nops = 0;
    for _ in 0..600 {
        nops += step(&mut client, &mut server) + step(&mut server, &mut client);
    }
    assert!(client.end().is_none() && server.end().is_none());
    // 600 s, each end every 10 s.
    assert!((110..=120).contains(&nops), "{nops}");
    // From here on the server is silent. It hears the client until that gives up.
    let steps = (0..600).take_while(|_| {
        step(&mut client, &mut server);
        client.end().is_none()
    });
    assert!((58..=60).contains(&steps.count()));
    assert!(matches!(client.end(), Some(MuxError::Dead)));
    assert!(server.end().is_none());
}

#[test]
fn a_reader_that_waits_holds_up_a_session_of_version_1_only_until_it_reads() {
    let config = MuxConfig::builder()
        .receive_buffer(100_000)
        .dead_timeout(Some(Duration::from_secs(30)))
        .build()
        .unwrap();
    let (mut client, mut server) = pair(&config);
    let mut now = Instant::ZERO;
    let stuck = client.open().unwrap().unwrap();
    let mut wire = Vec::new();
    let mut buffer = Vec::new();
    while wire.len() < 200_000 {
        while client.write(now, stuck, &[1; 10_000]).is_ready() {}
        client.take_output(now, &mut buffer);
        wire.extend_from_slice(&buffer);
    }
    let mut at = 0;
    while server.wants_input() {
        server.receive(now, wire[at..at + 1_000].to_vec().into());
        at += 1_000;
    }
    assert!((100_000..102_000).contains(&at), "{at}");
    // That no byte came is not the peer's fault.
    for _ in 0..100 {
        now += Duration::from_secs(1);
        server.handle_timeout(now);
    }
    assert!(server.end().is_none());
    let key = server.accept().unwrap();
    assert!(server.read(key, 50_000, |_| ()).is_ready());
    assert!(server.wants_input());
    // From here on it is.
    for _ in 0..70 {
        now += Duration::from_secs(1);
        server.handle_timeout(now);
    }
    assert!(matches!(server.end(), Some(MuxError::Dead)));
}

#[test]
fn a_write_to_a_stream_that_the_peer_has_closed_fails_when_its_window_stays_shut() {
    let config = MuxConfig::builder().version(MuxVersion::V2).keep_alive(None).build().unwrap();
    let (mut client, mut server) = pair(&config);
    let mut now = Instant::ZERO;
    let key = client.open().unwrap().unwrap();
    carry_all(now, &mut client, &mut server);
    let accepted = server.accept().unwrap();
    server.release(accepted);
    carry_all(now, &mut server, &mut client);
    let mut written = 0;
    while let Poll::Ready(count) = client.write(now, key, &[0; 10_000]) {
        written += count.unwrap();
        carry_all(now, &mut client, &mut server);
    }
    assert_eq!(written, 262_144);
    now += Duration::from_secs(29);
    client.handle_timeout(now);
    assert!(
        client.end().is_some_and(|end| matches!(end, MuxError::Dead))
            || client.write(now, key, &[0]).is_pending()
    );
    server.handle_timeout(now);
    // Something comes, so that the session lives.
    client.receive(now, vec![2, 3, 0, 0, 0, 0, 0, 0].into());
    now += Duration::from_secs(2);
    client.handle_timeout(now);
    assert!(matches!(client.write(now, key, &[0]), Poll::Ready(Err(MuxError::NoReader))));
    // Reading its end still works.
    assert!(matches!(client.read(key, 10, |_| ()), Poll::Ready(Ok(0))));
}

#[test]
fn clients_open_odd_ids_from_3_on_and_servers_even_ones_from_2_on() {
    let (mut client, mut server) = pair(&MuxConfig::default());
    assert_eq!(client.open().unwrap().and_then(|key| client.id(key)), Some(3));
    assert_eq!(client.open().unwrap().and_then(|key| client.id(key)), Some(5));
    assert_eq!(server.open().unwrap().and_then(|key| server.id(key)), Some(2));
    carry_all(Instant::ZERO, &mut client, &mut server);
    assert_eq!(server.stats().open_streams, 3);
}

#[test]
fn half_a_window_is_told_at_once_and_a_quarter_with_whatever_is_sent() {
    const WINDOW: usize = 65_536;
    const UPD: usize = 16;
    let config = MuxConfig::builder().version(MuxVersion::V2).stream_buffer(WINDOW).build().unwrap();
    let (mut client, mut server) = pair(&config);
    let now = Instant::ZERO;
    let streams: Vec<_> = (0..3)
        .map(|_| {
            let key = client.open().unwrap().unwrap();
            carry_all(now, &mut client, &mut server);
            (key, server.accept().unwrap())
        })
        .collect();
    // Sends so many bytes of a stream, reads them, and returns how many bytes this has the reader send.
    let mut pass = |at: usize, mut len: usize| {
        let (key, accepted) = streams[at];
        while len > 0 {
            let Poll::Ready(Ok(count)) = client.write(now, key, &vec![0; len]) else {
                panic!("the window has room")
            };
            carry_all(now, &mut client, &mut server);
            assert!(matches!(server.read(accepted, count, |_| ()), Poll::Ready(Ok(read)) if read == count));
            len -= count;
        }
        let (mut told, mut buffer) = (0, Vec::new());
        while server.take_output(now, &mut buffer) {
            told += buffer.len();
            client.receive(now, std::mem::take(&mut buffer).into());
        }
        told
    };
    for at in 0..3 {
        assert_eq!(pass(at, 1), UPD, "the first read");
    }
    assert_eq!(pass(0, WINDOW / 4 - 1), 0);
    assert_eq!(pass(1, WINDOW / 4), 0);
    assert_eq!(pass(2, WINDOW / 2), 2 * UPD);
    assert_eq!(pass(1, WINDOW / 2 - 1), 0, "counted from the last UPD");
    assert_eq!(pass(0, 1), 0);
    assert_eq!(pass(2, WINDOW / 2), 3 * UPD);
    assert_eq!(pass(2, WINDOW / 2), UPD, "the others have nothing new to tell");
}
