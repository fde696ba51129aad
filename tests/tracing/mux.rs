//! Sessions of many streams: what they say, in their spans, and as often as the counters have it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use kcp9::{
    mux::{MuxConfig, MuxCore, MuxError, MuxRole, MuxSession, MuxStats, MuxVersion},
    proto::Instant,
};
use kcp9_tests::{
    collector::{Collector, Recorded},
    within,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, duplex};
use tracing::Level;

use crate::{
    count,
    endings::{run, until},
    named, secrets, table,
};

const PAYLOAD: &[u8] = b"what only the two ends may know";
const SYN: u8 = 0;

/// The events of one end. Each is in the span of its session, and in no other.
fn of_role(events: &[Recorded], role: &str) -> Vec<Recorded> {
    let is_of_role = |event: &&Recorded| {
        let [span] = &event.spans[..] else { panic!("not in one span: {event:?}") };
        assert_eq!(span.fields["version"], "2");
        span.fields["role"] == role
    };
    events.iter().filter(is_of_role).cloned().collect()
}

/// There are as many events as the counters say, while `handles` of streams live.
fn check_counters(events: &[Recorded], stats: MuxStats, handles: u64) {
    let seen = |name| named(events, name).len() as u64;
    assert_eq!(seen("stream_opened"), stats.opened);
    assert_eq!(seen("stream_accepted"), stats.accepted);
    assert_eq!(seen("stream_refused"), stats.refused);
    assert_eq!(seen("stream_ended") + handles, stats.opened + stats.accepted);
}

/// A session over a pipe: one stream ends by itself in both directions, one is dropped unread, one is refused.
pub fn over_a_pipe() -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let config = MuxConfig::builder().version(MuxVersion::V2).build().unwrap();
    let mut events = Vec::new();
    let (client, mut server) = run(async {
        let (one, other) = duplex(65_536);
        let client = MuxSession::client(one, config.clone());
        let server = MuxSession::server(other, config);
        let mut whole = client.open().await.unwrap();
        let mut peer = within(5, "a stream", server.accept()).await.unwrap();
        events.extend(collector.take());
        // Frames with bytes are no events.
        for _ in 0..100 {
            whole.write_all(PAYLOAD).await.unwrap();
            within(5, "its bytes", peer.read_exact(&mut [0; PAYLOAD.len()])).await.unwrap();
        }
        assert_eq!(collector.take().len(), 0);
        whole.shutdown().await.unwrap();
        peer.shutdown().await.unwrap();
        within(5, "its end", whole.read_to_end(&mut Vec::new())).await.unwrap();
        within(5, "its other end", peer.read_to_end(&mut Vec::new())).await.unwrap();
        drop((whole, peer));

        let mut unread = client.open().await.unwrap();
        unread.write_all(PAYLOAD).await.unwrap();
        let peer = within(5, "a stream", server.accept()).await.unwrap();
        until("the bytes are there", || server.stats().unread_bytes > 0).await;
        drop(peer);

        // It comes while the server accepts, and ends when that has no handle any more; `unread` keeps the session.
        let _waits = client.open().await.unwrap();
        until("it waits", || server.stats().open_streams == 1).await;
        let client_stats = client.stats();
        within(5, "closing", client.close()).await.unwrap();
        assert!(matches!(within(5, "the end", server.closed()).await, MuxError::PeerClosed));
        (client_stats, server.stats())
    });
    events.extend(collector.take());
    table::check(&events);
    secrets::assert_says_none(&events, &[PAYLOAD]);

    let (of_client, of_server) = (of_role(&events, "client"), of_role(&events, "server"));
    for (events, reason) in [(&of_client, "Closed"), (&of_server, "PeerClosed")] {
        assert_eq!(events[0].name, "mux_opened");
        assert_eq!(events[0].number("max_streams"), 16_384);
        let [ended] = named(events, "mux_ended")[..] else { panic!("not one end: {events:?}") };
        assert_eq!(ended.field("reason"), reason);
    }
    let ended = named(&of_client, "mux_ended")[0];
    assert_eq!((ended.number("opened"), ended.number("open_streams")), (3, 2));
    assert_eq!(ended.number("bytes_sent"), client.bytes_sent);
    assert_eq!(client.bytes_sent, 101 * PAYLOAD.len() as u64);
    let ended = named(&of_server, "mux_ended")[0];
    assert_eq!((ended.number("accepted"), ended.number("bytes_received")), (2, client.bytes_sent));
    // What waited when the session ended is refused with its last handle.
    check_counters(&of_client, client, 0);
    server.refused += 1;
    check_counters(&of_server, server, 0);
    let [whole, dropped] = named(&of_server, "stream_ended")[..] else { panic!("not two: {of_server:?}") };
    assert_eq!((whole.field("finished"), whole.field("peer_finished")), ("true", "true"));
    assert_eq!(whole.number("unread_bytes"), 0);
    assert_eq!((dropped.field("finished"), dropped.field("peer_finished")), ("false", "false"));
    assert_eq!(dropped.number("unread_bytes"), PAYLOAD.len() as u64);
    let streams = |name: &str| -> Vec<u64> {
        named(&events, name).iter().map(|event| event.number("stream")).collect()
    };
    assert_eq!((streams("stream_opened"), streams("stream_accepted")), (vec![3, 5, 7], vec![3, 5]));
    assert_eq!(streams("stream_refused"), [7]);
    assert_eq!(collector.spans(), 0, "spans end with what they are of");
    events
}

#[test]
fn sessions_of_streams_say_what_becomes_of_them() {
    over_a_pipe();
}

/// A stream that the peer opens.
fn syn(core: &mut MuxCore, id: u32) {
    let [a, b, c, d] = id.to_le_bytes();
    core.receive(Instant::ZERO, vec![2, SYN, 0, 0, a, b, c, d].into());
}

/// Streams that limits turn away, for each of the causes.
pub fn refusals() -> Vec<Recorded> {
    let collector = Collector::begin(Level::DEBUG);
    let config = MuxConfig::builder().version(MuxVersion::V2).max_streams(3).accept_backlog(2).send_buffer(1);
    let mut core = MuxCore::new(config.build().unwrap(), MuxRole::Server, Instant::ZERO);
    for id in [3, 5, 7] {
        syn(&mut core, id);
    }
    assert!(core.accept().is_some() && core.accept().is_some() && core.accept().is_none());
    for id in [9, 11, 13] {
        syn(&mut core, id);
    }
    let mut events = collector.take();
    let causes = |events: &[Recorded]| -> Vec<(u64, String)> {
        let refused = named(events, "stream_refused");
        refused.iter().map(|event| (event.number("stream"), event.field("cause").to_owned())).collect()
    };
    let named_so = |cause: &str, ids: &[u64]| -> Vec<(u64, String)> {
        ids.iter().map(|id| (*id, cause.to_owned())).collect()
    };
    let expected = [named_so("accept_backlog", &[7]), named_so("max_streams", &[11, 13])].concat();
    assert_eq!(causes(&events), expected);
    check_counters(&events, core.stats(), 2);

    // Each stream that is accepted and dropped adds a FIN to what nobody takes.
    let key = core.accept().unwrap();
    core.release(key);
    let mut id = 15;
    while core.stats().refused == 3 {
        syn(&mut core, id);
        if let Some(key) = core.accept() {
            core.release(key);
        }
        id += 2;
        if id % 1_024 == 1 {
            collector.take();
        }
    }
    let last = collector.take();
    assert_eq!(causes(&last), named_so("unsent", &[u64::from(id - 2)]));
    events.extend(last);

    while core.take_output(Instant::ZERO, &mut Vec::new()) {}
    syn(&mut core, id);
    core.stop_accepting();
    syn(&mut core, id + 2);
    let last = collector.take();
    assert_eq!(causes(&last), named_so("not_accepting", &[u64::from(id), u64::from(id) + 2]));
    assert_eq!(core.stats().refused, 6);
    events.extend(last);
    table::check(&events);
    assert_eq!(count(&events, "stream_refused", "cause", "max_streams"), 2);
    events
}

#[test]
fn refused_streams_name_the_limit() {
    refusals();
}

/// A transport that fails, and says something that nobody is to read.
struct Failing;

impl AsyncRead for Failing {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let text = String::from_utf8(PAYLOAD.to_vec()).unwrap();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::HostUnreachable, text)))
    }
}

impl AsyncWrite for Failing {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn of_a_failed_transport_only_the_kind_of_its_error_is_said() {
    let collector = Collector::begin(Level::DEBUG);
    run(async {
        let session = MuxSession::client(Failing, MuxConfig::default());
        assert!(matches!(within(5, "the end", session.closed()).await, MuxError::Transport(_)));
    });
    let events = collector.take();
    table::check(&events);
    secrets::assert_says_none(&events, &[PAYLOAD]);
    assert_eq!(named(&events, "mux_ended")[0].field("reason"), "Transport(HostUnreachable)");
}
