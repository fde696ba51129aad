//! What begins a session, and what does not.

use kcp9::{
    KcpConfig,
    proto::{Command, Connection, Endpoint, HEADER_LEN, Instant, Refusal, Routed},
};
use kcp9_simulator::{Rng, ms};

use crate::host::{Entropy, Host, address, client, first_packet, segment};

const NOW: Instant = Instant::ZERO;

fn server() -> Host {
    Host::accepting(address(1, 1), &KcpConfig::default())
}

#[test]
fn the_first_push_begins_a_session() {
    let mut server = server();
    server.receive_one(NOW, client(5), &first_packet(7));
    let handle = server.take_accepted().unwrap();
    assert_eq!(server.endpoint.route(handle), Some((client(5), 7)));
    assert_eq!(server.endpoint.is_accepted(handle), Some(true));
    assert_eq!(server.read(handle), b"!");
    assert_eq!(server.stats().accepted, 1);
    assert_eq!(server.take_accepted(), None);
}

/// A session may begin in the middle of a batch whose other packets are of other sessions, or of none.
#[test]
fn a_batch_is_cut_by_conversation() {
    let mut server = server();
    let stray = segment(9, Command::Wins, 0);
    let packets = [first_packet(1), [stray, vec![0]].concat(), first_packet(2), first_packet(1)];
    let stride = packets[0].len();
    let last = &first_packet(2)[..HEADER_LEN - 1];
    server.receive(NOW, client(1), [&packets.concat(), last].concat(), stride);
    let [one, two] = [(); 2].map(|()| server.take_accepted().unwrap());
    assert_eq!(server.endpoint.route(one), Some((client(1), 1)));
    assert_eq!(server.endpoint.route(two), Some((client(1), 2)));
    assert_eq!(server.connection(one).stats().udp.packets_received, 2);
    assert_eq!(server.connection(two).stats().udp.packets_received, 1);
    let stats = server.stats();
    assert_eq!((stats.accepted, stats.dropped_no_session, stats.dropped_short), (2, 1, 1), "{stats:?}");
}

#[test]
fn what_begins_no_session_is_counted_by_its_cause() {
    let mut server = server();
    let mut torn = first_packet(7);
    torn.truncate(HEADER_LEN);
    let strays = [
        segment(7, Command::Ack, 0),
        segment(7, Command::Wask, 0),
        segment(7, Command::Wins, 0),
        segment(7, Command::Push, 1),
        segment(7, Command::Push, 1 << 20),
        // A PUSH that claims more bytes than it has.
        torn,
    ];
    for packet in &strays {
        server.receive_one(NOW, client(1), packet);
    }
    for len in 0..HEADER_LEN {
        server.receive_one(NOW, client(1), &first_packet(7)[..len]);
    }
    // Nobody can be answered there.
    server.receive_one(NOW, address(7, 0), &first_packet(7));
    let stats = server.stats();
    assert_eq!(stats.dropped_no_session, strays.len() as u64 + 1, "{stats:?}");
    assert_eq!(stats.dropped_short, HEADER_LEN as u64, "{stats:?}");
    assert_eq!((stats.accepted, server.endpoint.len()), (0, 0));
}

#[test]
fn noise_is_counted_packet_by_packet_and_begins_nothing() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut server = server();
        let mut sent = 0;
        for _ in 0..500 {
            let mut noise = vec![0; rng.size(0..=3_000)];
            noise.fill_with(|| rng.next() as u8);
            let stride = rng.size(1..=1_500);
            // Never a PUSH by chance.
            noise.chunks_mut(stride).filter_map(|packet| packet.get_mut(4)).for_each(|cmd| *cmd |= 0x80);
            sent += noise.len().div_ceil(stride).max(1) as u64;
            server.receive(NOW, client(rng.size(0..=3) as u32), noise, stride);
        }
        let stats = server.stats();
        let counted = stats.dropped_short + stats.dropped_no_session;
        assert_eq!((counted, stats.accepted), (sent, 0), "seed {seed}: {stats:?}");
    }
}

/// However many begin at once: what is not accepted leaves nothing behind, and is no worse off later.
#[test]
fn a_flood_of_first_packets_takes_no_more_than_the_accept_queue() {
    const FLOOD: u32 = 50_000;
    const ROOM: usize = 16;
    let config = KcpConfig::builder().accept_backlog(ROOM).build().unwrap();
    let mut server = Host::accepting(address(1, 1), &config);
    for number in 0..FLOOD {
        server.receive_one(NOW, client(number), &first_packet(number));
    }
    let stats = server.stats();
    assert_eq!((stats.accepted, server.endpoint.len()), (ROOM as u64, ROOM), "{stats:?}");
    assert_eq!(stats.dropped_queue_full, u64::from(FLOOD) - ROOM as u64, "{stats:?}");

    // An honest client was refused with them. It sends its first packet again, until there is room.
    let mut honest = Connection::new(77, &config, NOW);
    honest.write(NOW, b"hello").unwrap();
    let (mut now, mut buffer) = (NOW, vec![0; 65_536]);
    let mut sent = 0;
    let handle = loop {
        honest.handle_timeout(now);
        while let Some(transmit) = honest.poll_transmit(now, &mut buffer) {
            sent += 1;
            server.receive(now, client(FLOOD), buffer[..transmit.len].to_vec(), transmit.stride);
        }
        if let Some(handle) = server.endpoint.find(client(FLOOD), 77) {
            break handle;
        }
        if sent == 3 {
            server.take_accepted().unwrap();
        }
        now = honest.poll_timeout().unwrap();
        assert!(now < NOW + ms(10_000), "never accepted");
    };
    assert_eq!((sent, server.read(handle)), (4, b"hello".to_vec()));
}

#[test]
fn an_endpoint_that_stopped_accepting_serves_the_sessions_that_it_has() {
    let mut server = server();
    assert!(server.endpoint.is_accepting());
    server.receive_one(NOW, client(1), &first_packet(7));
    server.endpoint.stop_accepting();
    assert!(!server.endpoint.is_accepting());
    server.receive_one(NOW, client(2), &first_packet(8));
    server.receive_one(NOW, client(1), &segment(7, Command::Wask, 0));
    let handle = server.endpoint.find(client(1), 7).unwrap();
    assert_eq!(server.connection(handle).stats().udp.packets_received, 2);
    assert_eq!((server.stats().dropped_no_session, server.endpoint.len()), (1, 1));
}

#[test]
fn what_is_offered_and_not_accepted_is_dropped_and_counted() {
    let mut endpoint = Endpoint::accepting(&KcpConfig::default(), &mut Entropy(Rng::new(1)));
    let mut batch = [first_packet(1), first_packet(1), first_packet(2)].concat();
    let stride = batch.len() / 3;
    endpoint.receive(client(1), &mut batch, stride);
    assert_eq!(endpoint.accept(NOW), None, "nothing was offered yet");
    let Some(Routed::Incoming(first)) = endpoint.poll_routed(NOW, &batch) else { panic!() };
    assert_eq!((first.source, first.conv, first.packets), (client(1), 1, 2));
    // Left unanswered.
    let Some(Routed::Incoming(second)) = endpoint.poll_routed(NOW, &batch) else { panic!() };
    assert_eq!((second.conv, second.packets), (2, 1));
    assert_eq!(endpoint.stats().dropped_no_session, 2);
    endpoint.refuse(Refusal::Unwanted);
    assert_eq!(endpoint.stats().dropped_no_session, 3);
    endpoint.refuse(Refusal::QueueFull);
    assert_eq!((endpoint.poll_routed(NOW, &batch), endpoint.accept(NOW)), (None, None));
    // Left unanswered at the end of a batch.
    endpoint.receive(client(1), &mut batch[2 * stride..], stride);
    assert!(matches!(endpoint.poll_routed(NOW, &batch[2 * stride..]), Some(Routed::Incoming(_))));
    endpoint.receive(client(1), &mut [0; 1], 1);
    let stats = endpoint.stats();
    assert_eq!((stats.dropped_no_session, stats.dropped_queue_full, stats.accepted), (4, 0, 0), "{stats:?}");
    assert!(endpoint.is_empty());
}

#[test]
fn an_endpoint_that_only_connects_accepts_nothing() {
    let mut host = Host::connecting(address(1, 1));
    let handle = host.connect(NOW, client(1), 7, &KcpConfig::default());
    host.receive_one(NOW, client(1), &first_packet(8));
    host.receive_one(NOW, client(2), &first_packet(7));
    assert_eq!((host.stats().dropped_no_session, host.endpoint.len()), (2, 1));
    host.receive_one(NOW, client(1), &first_packet(7));
    assert_eq!(host.read(handle), b"!");
}
