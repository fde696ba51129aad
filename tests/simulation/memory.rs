//! Sessions whose buffers share one memory: no more is ever taken than there is, each session goes on, and nothing is lost.

use std::time::Duration;

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{BufferMemory, Instant, ReadError, WriteError},
};
use kcp9_simulator::{CLIENT, LinkSettings, Reader, Rng, SERVER, Simulation, Writer, batches, ms};

/// What a session holds of what its peer sent without asking for memory.
const FLOOR: usize = 16 << 10;
const MINUTE: Duration = Duration::from_secs(60);
const NEVER: Instant = Instant::from_millis(1 << 40);

/// Simulations on one clock, with the memory of their servers.
struct Sharing {
    memory: BufferMemory,
    sessions: Vec<Simulation>,
    /// Whether their servers share it.
    shares: Vec<bool>,
    now: Instant,
}

impl Sharing {
    fn new(limit: usize) -> Self {
        Self {
            memory: BufferMemory::new(limit),
            sessions: Vec::new(),
            shares: Vec::new(),
            now: Instant::ZERO,
        }
    }

    /// Adds a session whose server shares the memory.
    fn add(&mut self, seed: u64, config: &KcpConfig, link: &LinkSettings) -> &mut Simulation {
        let mut session = Simulation::new(seed, config, link);
        session.now = self.now;
        session.server().connection.set_buffer_memory(&self.memory);
        self.sessions.push(session);
        self.shares.push(true);
        self.sessions.last_mut().unwrap()
    }

    /// Runs, event by event, until `done`, which is asked after each.
    fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut [Simulation]) -> bool) -> Duration {
        let start = self.now;
        self.sessions.iter_mut().for_each(Simulation::start);
        while !done(&mut self.sessions) {
            let next = self.sessions.iter_mut().filter_map(|session| Some((session.next_event()?, session)));
            let (at, session) = next.min_by_key(|(at, _)| *at).expect("stalled: nothing will ever happen");
            self.now = self.now.max(at);
            if self.now - start > limit {
                panic!("not done after {limit:?}: {:?}{}", self.memory, self.report());
            }
            session.step();
            if session.is_complete() {
                // As a driver does with idle sessions.
                session.ends.iter_mut().for_each(|end| end.connection.trim());
            }
            self.check();
        }
        self.now - start
    }

    /// What each session that is not done holds.
    fn report(&self) -> String {
        let unfinished = self.sessions.iter().filter(|session| !session.is_complete());
        let lines = unfinished.map(|session| {
            let [client, server] = [CLIENT, SERVER].map(|side| {
                let flow = &session.flows[side];
                let (stats, writer) = (session.ends[side].connection.stats(), &session.ends[side].writer);
                let (written, read) = (flow.written, flow.read);
                format!("{written} of {} written, {read} read, {:?}", writer.total, stats.queues)
            });
            format!("\nseed {}\n  client {client}\n  server {server}", session.seed)
        });
        lines.collect()
    }

    fn check(&mut self) {
        assert!(self.memory.taken() <= self.memory.limit(), "{:?}", self.memory);
        let sharing = self.sessions.iter_mut().zip(&self.shares).filter(|(_, shares)| **shares);
        let unread = |session: &mut Simulation| session.server().connection.readable_bytes();
        let unread: usize = sharing.map(|(session, _)| unread(session)).sum();
        let most = self.memory.limit() + self.sessions.len() * FLOOR;
        assert!(unread <= most, "{unread} bytes, more than {most}");
    }

    /// Adds sessions whose peers send and whose readers never read, until they have taken all there is for them.
    fn hoard(&mut self, count: u64) {
        for seed in 0..count {
            let session = self.add(seed, &KcpConfig::default(), &LinkSettings::delay(ms(10)));
            session.client().writer = Writer::bulk(1 << 20);
            session.server().reader = Reader { not_before: NEVER, ..Reader::eager() };
        }
        let memory = self.memory.clone();
        let most = memory.limit() / 4 * 3;
        self.run_until(MINUTE, |_| memory.taken() + (32 << 10) > most);
    }
}

fn messages() -> KcpConfigBuilder {
    KcpConfig::builder().stream(false)
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn a_session_beside_hoarders_goes_on_at_five_segments_a_round_trip() {
    let mut sharing = Sharing::new(1 << 20);
    sharing.hoard(200);
    let honest = sharing.add(1_000, &KcpConfig::default(), &LinkSettings::delay(ms(20)));
    honest.client().writer = Writer::bulk(1 << 20);
    let took = sharing.run_until(MINUTE, |sessions| sessions.last().unwrap().is_complete());
    // About 5,000 bytes in 40 ms.
    assert!(took < Duration::from_secs(10), "{took:?}");
    let honest = sharing.sessions.last_mut().unwrap();
    let (sender, receiver) = (honest.client().connection.stats(), honest.server().connection.stats());
    assert!(sender.recovery.timeout_resends < 100, "it keeps to the window: {sender:?}");
    assert!(sender.segments.window_probes == 0, "and is told when there is room: {sender:?}");
    assert!(receiver.queues.recv_window == 2_048, "{receiver:?}");
    assert!(sharing.memory.refused_segments() > 0, "the hoarders had been told of larger windows");
    sharing.sessions.clear();
    assert_eq!(sharing.memory.taken(), 0);
}

/// What is written as well: peers that acknowledge nothing, and one that does.
#[test]
fn a_writer_beside_peers_that_acknowledge_nothing_goes_on() {
    let mut sharing = Sharing::new(1 << 20);
    for seed in 0..200 {
        let session = sharing.add(seed, &KcpConfig::default(), &LinkSettings::delay(ms(10)));
        session.server().writer = Writer::bulk(1 << 20);
        session.server().link.lose_if(|_, _| true);
    }
    let memory = sharing.memory.clone();
    sharing.run_until(MINUTE, |_| memory.taken() + (32 << 10) > memory.limit() / 4 * 3);
    let written: u64 = sharing.sessions.iter().map(|session| session.flows[SERVER].written).sum();
    assert!(written as usize <= memory.limit() + 200 * FLOOR, "{written} bytes");
    let honest = sharing.add(1_000, &KcpConfig::default(), &LinkSettings::delay(ms(20)));
    honest.server().writer = Writer::bulk(1 << 20);
    let took = sharing.run_until(MINUTE, |sessions| sessions.last().unwrap().is_complete());
    // 16 KiB in 40 ms.
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// A reader that pauses at the floor closes the window, and opens it when it reads on.
#[test]
#[ignore = "seconds: cargo test --release --test simulation memory -- --ignored"]
fn a_reader_at_the_floor_tells_of_room_at_once() {
    let mut sharing = Sharing::new(1 << 20);
    sharing.hoard(200);
    let start = sharing.now;
    let honest = sharing.add(1_000, &KcpConfig::default(), &LinkSettings::delay(ms(20)));
    honest.client().writer = Writer { sizes: 1_300..=1_300, pace: Some(ms(100)), ..Writer::bulk(20_000) };
    honest.server().reader = Reader { not_before: start + ms(20_000), ..Reader::eager() };
    let until = start + ms(19_999);
    sharing.run_until(MINUTE, |sessions| sessions.last().unwrap().next_event().is_none_or(|at| at > until));
    let honest = sharing.sessions.last_mut().unwrap();
    let (sender, receiver) = (honest.client().connection.stats(), honest.server().connection.stats());
    assert_eq!((sender.queues.peer_window, sender.queues.in_flight), (0, 0), "{sender:?}");
    assert!((6_000..=FLOOR).contains(&receiver.queues.unread_bytes), "{receiver:?}");
    let probes = sender.segments.window_probes;
    // Three windows.
    sharing.run_until(MINUTE, |sessions| sessions.last().unwrap().is_complete());
    let took = sharing.now - (start + ms(20_000));
    assert!(took < ms(200), "{took:?}");
    let sender = sharing.sessions.last_mut().unwrap().client().connection.stats();
    assert_eq!(sender.segments.window_probes, probes, "it went on without a probe");
}

/// The message is longer than the floor, and nothing of its session is under way: nobody but the timer wakes its writer.
#[test]
fn a_message_that_waits_for_memory_goes_soon_after_there_is_some() {
    const LEN: usize = 250_000;
    let mut sharing = Sharing::new(2 << 20);
    for seed in 0..40 {
        let session = sharing.add(seed, &KcpConfig::default(), &LinkSettings::delay(ms(10)));
        session.server().writer = Writer::bulk(1 << 20);
        session.server().link.lose_if(|_, _| true);
    }
    let memory = sharing.memory.clone();
    sharing.run_until(MINUTE, |_| memory.taken() + LEN / 2 > memory.limit() / 4 * 3);
    let config = messages().keep_alive(None).build().unwrap();
    let waiting = sharing.add(1_000, &config, &LinkSettings::delay(ms(20)));
    waiting.server().writer = Writer::messages(3, LEN);
    waiting.client().reader = Reader::messages();
    let (start, mut wakeups) = (sharing.now, 0);
    sharing.run_until(MINUTE, |sessions| {
        let waiting = sessions.last_mut().unwrap();
        wakeups = waiting.server().activity.wakeups;
        assert_eq!(waiting.flows[SERVER].written, 0);
        waiting.now > start + ms(20_000)
    });
    assert!((20..40).contains(&wakeups), "it looks again each second at last: {wakeups}");
    // The others end.
    let waiting = sharing.sessions.pop().unwrap();
    sharing.sessions = vec![waiting];
    let took = sharing.run_until(MINUTE, |sessions| sessions[0].is_complete());
    assert!(took < Duration::from_secs(3), "{took:?}");
    sharing.sessions[0].complete(MINUTE);
}

/// Readers and writers that pause, in both directions, streams and messages, through losses: each byte comes.
fn everything_is_delivered(seed: u64) {
    let mut rng = Rng::new(seed);
    let limit = rng.magnitude(64 << 10..=2 << 20) as usize;
    let count = rng.within(2..=10);
    let clients = BufferMemory::new(limit);
    let mut sharing = Sharing::new(limit);
    for index in 0..count {
        let link = LinkSettings {
            loss: *rng.choose(&[0.0, 0.0, 0.02, 0.15]),
            jitter: ms(rng.within(0..=10)),
            duplicate: *rng.choose(&[0.0, 0.05]),
            ..LinkSettings::delay(ms(rng.within(1..=60)))
        };
        let in_messages = rng.chance(0.4);
        let window = *rng.choose(&[8, 64, 2_048]);
        let config = KcpConfig::builder()
            .dead_timeout(MINUTE)
            .stream(!in_messages)
            .send_window(window)
            .recv_window(window)
            .fec(*rng.choose(&[0, 0, 4]), 0)
            .fec(0, 0);
        let session = sharing.add(seed << 8 | index, &config.build().unwrap(), &link);
        session.client().connection.set_buffer_memory(&clients);
        for side in [CLIENT, SERVER] {
            // A quarter of the memory is for what is sent alone, and three for what arrives.
            let longest = (limit / 4).min(250_000);
            let total = rng.within(0..=400_000);
            session.ends[side].writer = Writer {
                messages: in_messages,
                sizes: 1..=if rng.chance(0.5) { 2_000 } else { longest },
                ..Writer::bulk(total)
            };
            session.ends[1 - side].reader = Reader {
                messages: in_messages,
                size: rng.size(1_000..=65_536),
                pace: rng.chance(0.4).then(|| rng.duration(ms(20))),
                not_before: Instant::ZERO + rng.duration(ms(2_000)),
                ..Reader::eager()
            };
        }
    }
    let hour = 60 * MINUTE;
    sharing.run_until(hour, |sessions| sessions.iter().all(Simulation::is_complete));
    assert!(clients.taken() <= clients.limit());
    for session in &mut sharing.sessions {
        session.ends.iter_mut().for_each(|end| end.connection.trim());
    }
    assert_eq!((sharing.memory.taken(), clients.taken()), (0, 0), "seed {seed}: idle sessions hold nothing");
}

batches! { everything_is_delivered, 40;
    everything_is_delivered_0: 0;
    everything_is_delivered_1: 1;
}

/// Sessions in pairs, each with a program that copies from the one to the other, message by message or in bytes. All of the
/// program's ends share one memory, which is too little for all.
fn relays(limit: usize, pairs: u64, len: usize, in_messages: bool) {
    const COUNT: u64 = 10;
    let config = KcpConfig::builder().stream(!in_messages).dead_timeout(MINUTE).build().unwrap();
    let link = LinkSettings { loss: 0.02, ..LinkSettings::delay(ms(10)) };
    let mut sharing = Sharing::new(limit);
    let memory = sharing.memory.clone();
    for pair in 0..pairs {
        let incoming = sharing.add(pair, &config, &link);
        incoming.client().writer =
            Writer { messages: in_messages, sizes: len..=len, ..Writer::bulk(COUNT * len as u64) };
        incoming.server().reader = Reader { not_before: NEVER, ..Reader::eager() };
        let mut outgoing = Simulation::new(1_000 + pair, &config, &link);
        outgoing.client().connection.set_buffer_memory(&memory);
        // Slowly, behind the relay.
        outgoing.server().reader =
            Reader { messages: in_messages, pace: Some(ms(50)), size: 8_000, ..Reader::eager() };
        sharing.sessions.push(outgoing);
        sharing.shares.push(false);
    }
    // What each program has read and not written.
    let mut in_hand: Vec<Vec<u8>> = vec![Vec::new(); pairs as usize];
    sharing.run_until(60 * MINUTE, |sessions| {
        let mut done = true;
        for (pair, hand) in sessions.chunks_mut(2).zip(&mut in_hand) {
            let [incoming, outgoing] = pair else { unreachable!() };
            // Its bytes are checked by the reader at the end, as those of the other flow.
            outgoing.flows[CLIENT].payload = incoming.flows[CLIENT].payload;
            let mut moved = false;
            loop {
                if hand.is_empty() {
                    let connection = &mut incoming.server().connection;
                    let outcome = if in_messages {
                        connection.recv().map(|message| hand.extend(&message))
                    } else {
                        let mut bytes = [0; 8_192];
                        connection.read(&mut bytes).map(|count| hand.extend(&bytes[..count]))
                    };
                    if outcome == Err(ReadError::Blocked) {
                        break;
                    }
                    outcome.unwrap();
                    moved = true;
                }
                let now = outgoing.now;
                let connection = &mut outgoing.client().connection;
                let outcome = if in_messages {
                    connection.send(now, hand).map(|()| hand.len())
                } else {
                    connection.write(now, hand)
                };
                if outcome == Err(WriteError::Blocked) {
                    break;
                }
                let count = outcome.unwrap();
                hand.drain(..count);
                outgoing.flows[CLIENT].written += count as u64;
                if in_messages {
                    outgoing.flows[CLIENT].messages.push_back(count);
                }
                moved = true;
            }
            if moved {
                incoming.drive(SERVER);
                outgoing.drive(CLIENT);
            }
            done &= outgoing.flows[CLIENT].read == COUNT * len as u64;
        }
        done
    });
}

#[test]
fn relays_that_share_little_memory_go_on() {
    relays(64 << 10, 8, 100_000, false);
}

/// A message can be taken in and written only whole. If memory were full of halves of messages, or of messages that wait to be
/// written, all would stand still.
#[test]
fn relays_of_messages_that_share_little_memory_go_on() {
    relays(400_000, 8, 90_000, true);
    relays(1_600_000, 20, 250_000, true);
}
