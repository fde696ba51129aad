//! Sessions that begin with a HELLO of the extensions.

use kcp9::{
    KcpConfig,
    proto::{Command, Extensions, Instant, Segments},
};
use kcp9_simulator::ms;

use crate::{
    ciphers::aead,
    host::{Batch, Host, address, client, first_packet},
    network::deliver_all,
};

const NOW: Instant = Instant::ZERO;
const KEY: &[u8; 16] = b"the key of both.";
const ANSWER: u8 = 2;
const MARK: u8 = 0x60;

fn config(extensions: Extensions) -> KcpConfig {
    KcpConfig::builder().extensions(extensions).build().unwrap()
}

fn preferred() -> KcpConfig {
    config(Extensions::Preferred)
}

fn encrypted() -> KcpConfig {
    KcpConfig::builder().extensions(Extensions::Preferred).crypto(aead(KEY)).build().unwrap()
}

fn server(config: &KcpConfig) -> Host {
    Host::accepting(address(1, 1), config)
}

/// A client at `address` that has begun a session and written `request`, and what it sends at once.
fn begun(at: u32, server: &Host, config: &KcpConfig, request: &[u8]) -> (Host, Vec<Batch>) {
    let mut host = Host::connecting(client(at));
    let handle = host.connect(NOW, server.address, 7, config);
    if !request.is_empty() {
        host.connection(handle).write(NOW, request).unwrap();
    }
    let sent = host.drive_packets(NOW);
    (host, sent)
}

fn receive(server: &mut Host, now: Instant, from: u32, batch: &Batch) {
    server.receive(now, client(from), batch.bytes.clone(), batch.stride);
}

#[test]
fn a_client_that_only_reads_hears_a_server_that_speaks_first() {
    for config in [preferred(), encrypted(), config(Extensions::Required)] {
        let mut hosts = [server(&config), Host::connecting(client(1))];
        let peer = hosts[0].address;
        let handle = hosts[1].connect(NOW, peer, 7, &config);
        deliver_all(NOW, &mut hosts);
        let session = hosts[0].take_accepted().unwrap();
        hosts[0].connection(session).write(NOW, b"220 ready").unwrap();
        deliver_all(NOW, &mut hosts);
        assert_eq!(hosts[1].read(handle), b"220 ready");
        assert!(hosts[1].connection(handle).is_peer_confirmed());
        assert_eq!((hosts[0].stats().accepted, hosts[0].endpoint.len()), (1, 1));
    }
}

/// One system call sends both, and one may receive both.
#[test]
fn a_hello_and_a_short_first_write_go_in_one_batch() {
    for config in [preferred(), encrypted(), config(Extensions::Required)] {
        for (len, batches) in [(1, 1), (1_000, 1), (1_300, 2), (5_000, 2)] {
            let request = vec![7; len];
            let mut hosts = [server(&config), Host::connecting(client(1))];
            let peer = hosts[0].address;
            let handle = hosts[1].connect(NOW, peer, 7, &config);
            hosts[1].connection(handle).write(NOW, &request).unwrap();
            let sent = hosts[1].drive(NOW);
            assert_eq!(sent.len(), batches, "{len} bytes");
            assert!(sent[0].bytes.len() >= 1_200 && sent[0].stride == 1_200);
            for batch in &sent {
                receive(&mut hosts[0], NOW, 1, batch);
            }
            let session = hosts[0].take_accepted().unwrap();
            for at in [0, 50, 100] {
                deliver_all(NOW + ms(at), &mut hosts);
            }
            assert_eq!((hosts[0].read(session), hosts[0].stats().accepted), (request, 1));
            assert!(hosts[0].connection(session).is_peer_confirmed());
        }
    }
}

/// Both begin it, and which one comes first makes no difference.
#[test]
fn hello_and_the_first_push_begin_one_session_in_any_order() {
    for config in [preferred(), encrypted()] {
        for order in [[0, 1], [1, 0]] {
            let mut server = server(&config);
            let (mut host, sent) = begun(1, &server, &config, b"request");
            assert_eq!(sent.len(), 2, "HELLO has a packet of its own");
            for nth in order {
                receive(&mut server, NOW, 1, &sent[nth]);
            }
            let session = server.take_accepted().unwrap();
            assert_eq!((server.take_accepted(), server.stats().accepted), (None, 1));
            assert_eq!(server.read(session), b"request");
            let mut hosts = [server, host];
            for at in [0, 50] {
                deliver_all(NOW + ms(at), &mut hosts);
            }
            [server, host] = hosts;
            assert!(server.connection(session).is_peer_confirmed());
            assert_eq!(host.stats().dropped_no_session, 0);
        }
    }
}

#[test]
fn where_extensions_are_off_a_hello_begins_nothing() {
    let mut server = server(&config(Extensions::Off));
    let (_, sent) = begun(1, &server, &preferred(), b"request");
    receive(&mut server, NOW, 1, &sent[0]);
    assert_eq!((server.endpoint.len(), server.stats().dropped_no_session), (0, 1));
    receive(&mut server, NOW, 1, &sent[1]);
    assert_eq!(server.endpoint.len(), 1);
}

#[test]
fn where_extensions_are_required_the_first_push_begins_nothing() {
    let required = config(Extensions::Required);
    let mut server = server(&required);
    server.receive_one(NOW, client(2), &first_packet(7));
    assert_eq!((server.endpoint.len(), server.stats().dropped_no_hello), (0, 1));

    // Its HELLO is lost. Both are sent again.
    let (host, sent) = begun(1, &server, &required, b"request");
    receive(&mut server, NOW, 1, &sent[1]);
    assert_eq!((server.endpoint.len(), server.stats().dropped_no_hello), (0, 2));
    let mut hosts = [server, host];
    let (mut now, mut read) = (NOW, Vec::new());
    while read.is_empty() {
        now += ms(10);
        assert!(now < NOW + ms(3_000));
        deliver_all(now, &mut hosts);
        let session = hosts[0].endpoint.find(client(1), 7);
        read = session.map(|session| hosts[0].read(session)).unwrap_or_default();
    }
    assert_eq!((read, hosts[0].stats().accepted), (b"request".to_vec(), 1));
}

/// An attacker has recorded the HELLO.
#[test]
fn an_authentic_hello_begins_one_session_whoever_sends_it_again() {
    let config = encrypted();
    let mut server = server(&config);
    let (_, sent) = begun(1, &server, &config, b"");
    receive(&mut server, NOW, 1, &sent[0]);
    let session = server.take_accepted().unwrap();
    for attacker in 2..10 {
        receive(&mut server, NOW, attacker, &sent[0]);
    }
    server.close(NOW, session);
    for attacker in 1..10 {
        receive(&mut server, NOW + ms(70_000), attacker, &sent[0]);
    }
    assert_eq!((server.stats().accepted, server.stats().dropped_replayed), (1, 17));
}

/// Both ends have one key: what an end has sent decrypts there.
#[test]
fn a_hello_that_is_sent_back_begins_no_session_at_its_sender() {
    let config = encrypted();
    let mut host = server(&config);
    host.connect(NOW, client(5), 7, &config);
    let sent = host.drive(NOW);
    receive(&mut host, NOW, 2, &sent[0]);
    assert_eq!((host.endpoint.len(), host.stats().dropped_replayed), (1, 1));
}

#[test]
fn a_hello_of_another_conversation_ends_the_session_of_its_address() {
    let config =
        KcpConfig::builder().extensions(Extensions::Preferred).one_session_per_address(true).build().unwrap();
    let mut server = server(&config);
    let mut host = Host::connecting(client(1));
    let mut begin = |server: &mut Host, conv| {
        host.connect(NOW, server.address, conv, &config);
        for batch in host.drive(NOW) {
            server.receive(NOW, client(1), batch.bytes.clone(), batch.stride);
        }
        server.take_accepted().unwrap()
    };
    let old = begin(&mut server, 1);
    let new = begin(&mut server, 2);
    assert_eq!(server.replaced, [old]);
    assert_eq!(server.endpoint.find(client(1), 2), Some(new));
}

/// Where thousands of sessions begin at once, each packet less counts.
#[test]
fn the_answer_to_a_hello_takes_the_ack_of_the_first_push_along() {
    let config = preferred();
    let mut server = server(&config);
    let (mut host, sent) = begun(1, &server, &config, b"request");
    for batch in &sent {
        receive(&mut server, NOW, 1, batch);
    }
    let answers = server.drive(NOW);
    let segments: Vec<_> = answers
        .iter()
        .map(|batch| {
            let headers = Segments::new(&batch.bytes).map(|segment| segment.unwrap().0);
            headers.map(|header| (header.cmd, header.frg)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(segments, [[(Command::Ack, MARK), (Command::Extension, ANSWER)]]);
    host.receive(NOW, server.address, answers[0].bytes.clone(), answers[0].stride);
    let handle = host.endpoint.find(server.address, 7).unwrap();
    let client = host.connection(handle);
    assert!(client.is_peer_confirmed());
}

/// The record of a session that began with a HELLO knows its first PUSH all the same.
#[test]
fn a_request_behind_a_hello_is_taken_in_once() {
    for config in [preferred(), encrypted()] {
        let mut server = server(&config);
        let (mut host, sent) = begun(1, &server, &config, b"request");
        for batch in &sent {
            receive(&mut server, NOW, 1, batch);
        }
        let session = server.take_accepted().unwrap();
        assert_eq!(server.read(session), b"request");
        // ANSWER and ACKs are lost.
        server.drive(NOW);
        server.close(NOW, session);
        let mut now = NOW;
        while now < NOW + ms(8_000) {
            now = host.poll_timeout().unwrap();
            for batch in host.drive(now) {
                server.receive(now, client(1), batch.bytes, batch.stride);
            }
            server.drive(now);
        }
        let stats = server.stats();
        assert_eq!((stats.accepted, server.endpoint.len()), (1, 0), "{stats:?}");
        assert!(stats.replies_sent > 0, "{stats:?}");
    }
}
