//! WebSocket by yawc: the modules of the example `websocket`, over real sessions.

use std::sync::{Arc, Mutex};

use hyper::body::Bytes;
use kcp9::{KcpEndpoint, KcpHandle, KcpListener, KcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::ws::{Close, Deflate, Error, Event, Settings, Socket, Stream, code};
use crate::support::{connect, listen, spawn, within};

#[path = "../../examples/websocket/ws/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the example uses all of it")]
mod ws;

/// Two ends of a WebSocket, and the client's session.
struct Pair {
    client: Socket,
    server: Socket,
    session: KcpHandle,
    _listener: KcpListener,
}

impl Pair {
    async fn open(client: Settings, server: Settings) -> Self {
        let (listener, addr) = listen().await;
        let stream = connect(addr).await;
        let session = stream.handle();
        let connecting = ws::connect(Stream::Kcp(stream), "kcp9", "/", &client);
        let accepting = async {
            let (stream, _) = listener.accept().await.unwrap();
            ws::accept(Stream::Kcp(stream), &server).await
        };
        let (client, server) =
            within(20, "the handshake", async { tokio::join!(connecting, accepting) }).await;
        let (client, server) = (client.unwrap(), server.unwrap());
        Self { client, server, session, _listener: listener }
    }

    /// The server receives what the client sends.
    async fn pass(&mut self, event: Event) {
        let sending = async {
            match event.clone() {
                Event::Text(text) => self.client.send_text(text).await,
                Event::Binary(bytes) => self.client.send_binary(bytes).await,
                other => panic!("{other:?} is no message"),
            }
        };
        let both = async { tokio::join!(sending, self.server.recv()) };
        let (sent, received) = within(20, "a message", both).await;
        sent.unwrap();
        assert_eq!(received.unwrap(), event);
    }

    /// What the client has written so far.
    fn written(&self) -> u64 {
        self.session.stats().stream.bytes_written
    }
}

fn plain() -> Settings {
    Settings::default()
}

fn compressing(no_context_takeover: bool, window_bits: u8) -> Settings {
    let deflate = Deflate { no_context_takeover, window_bits, ..Deflate::default() };
    Settings { deflate: Some(deflate), ..plain() }
}

/// Bytes that do not repeat, and so do not shrink.
fn noise(len: usize) -> Bytes {
    let mut state = 1_u64;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(byte).collect::<Vec<_>>().into()
}

fn close(code: u16, reason: &str) -> Close {
    Close { code: Some(code), reason: reason.to_owned() }
}

/// A client that sends frames of the test's making.
struct Raw(KcpStream);

impl Raw {
    async fn open(settings: Settings) -> (Self, Socket) {
        let (listener, addr) = listen().await;
        let mut stream = connect(addr).await;
        let accepting = spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            (ws::accept(Stream::Kcp(stream), &settings).await.unwrap(), listener)
        });
        // The key and the answer to it are those of RFC 6455, section 1.3.
        let head =
            b"GET / HTTP/1.1\r\nhost: kcp9\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
            sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(within(10, "the answer", stream.read_u8()).await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        assert!(answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
        let (socket, listener) = accepting.await.unwrap();
        // The endpoint stays while the socket does.
        drop(spawn(async move {
            let _listener = listener;
            std::future::pending::<()>().await;
        }));
        (Self(stream), socket)
    }

    /// A frame with a short payload, masked by zeroes.
    async fn send(&mut self, first: u8, payload: &[u8]) {
        let mut frame = vec![first, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        self.0.write_all(&frame).await.unwrap();
    }

    /// All that the server sends, until it ends.
    async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        within(20, "the server ends", self.0.read_to_end(&mut rest)).await.unwrap();
        rest
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_and_binary_messages_pass_whole_and_in_pieces() {
    for (fragment, deflate) in [(None, false), (Some(1), false), (Some(1_000), false), (Some(1_000), true)] {
        let side = Settings { fragment, deflate: deflate.then(Deflate::default), ..plain() };
        let mut pair = Pair::open(side.clone(), side).await;
        let len = if fragment == Some(1) { 500 } else { 50_000 };
        // Characters of several bytes, which are split between frames.
        let text = "aä€😀".repeat(len / 10);
        for _ in 0..2 {
            pair.pass(Event::Text(text.clone().into())).await;
            pair.pass(Event::Binary(noise(len))).await;
            pair.pass(Event::Text(Bytes::new())).await;
            pair.pass(Event::Binary(Bytes::new())).await;
        }
    }
}

/// The answer to a ping comes between the frames of a message, which goes on behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_are_answered_also_inside_of_a_message() {
    let (mut raw, mut server) = Raw::open(plain()).await;
    raw.send(0x01, b"hel").await;
    raw.send(0x89, b"there?").await;
    raw.send(0x80, b"lo").await;
    assert_eq!(server.recv().await.unwrap(), Event::Ping(Bytes::from_static(b"there?")));
    let mut pong = [0; 8];
    within(10, "the pong", raw.0.read_exact(&mut pong)).await.unwrap();
    assert_eq!(&pong, b"\x8a\x06there?");
    assert_eq!(
        within(10, "the message", server.recv()).await.unwrap(),
        Event::Text(Bytes::from_static(b"hello"))
    );

    let mut pair = Pair::open(plain(), plain()).await;
    pair.server.ping("you?").await.unwrap();
    let asked = within(10, "the ping", pair.client.recv()).await.unwrap();
    assert_eq!(asked, Event::Ping(Bytes::from_static(b"you?")));
    let answered = within(10, "the pong", pair.server.recv()).await.unwrap();
    assert_eq!(answered, Event::Pong(Bytes::from_static(b"you?")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_subprotocol_of_the_client_that_the_server_speaks_is_chosen() {
    let speaks = |names: &[&str]| {
        let subprotocols = names.iter().map(|name| (*name).to_owned()).collect();
        Settings { subprotocols, ..plain() }
    };
    for (client, server, chosen) in [
        (&["a", "b", "c"][..], &["c", "b"][..], Some("b")),
        (&["a"], &["b"], None),
        (&[], &["b"], None),
        (&["a"], &[], None),
    ] {
        let mut pair = Pair::open(speaks(client), speaks(server)).await;
        assert_eq!((pair.client.subprotocol(), pair.server.subprotocol()), (chosen, chosen));
        pair.pass(Event::Text(Bytes::from_static(b"hello"))).await;
    }
}

/// How many bytes it takes to send a message of `len` bytes that do not repeat within it, twice.
async fn twice(len: usize, client: Settings, server: Settings) -> (u64, u64) {
    let mut pair = Pair::open(client, server).await;
    let message = Event::Binary(noise(len));
    let before = pair.written();
    pair.pass(message.clone()).await;
    let between = pair.written();
    pair.pass(message).await;
    (between - before, pair.written() - between)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compression_saves_bytes_where_both_ends_have_it() {
    let message = Event::Text("again and ".repeat(10_000).into());
    for (client, server, compressed) in [
        (compressing(false, 15), compressing(false, 15), true),
        (compressing(true, 9), compressing(false, 15), true),
        (compressing(false, 15), plain(), false),
        (plain(), compressing(false, 15), false),
    ] {
        let mut pair = Pair::open(client, server).await;
        assert_eq!(pair.client.compression(), pair.server.compression());
        assert_eq!(pair.client.compression().is_some(), compressed);
        let before = pair.written();
        pair.pass(message.clone()).await;
        let bytes = pair.written() - before;
        assert!(if compressed { bytes < 5_000 } else { bytes > 100_000 }, "{bytes} bytes");
    }
}

/// A message that was sent before costs little, unless one of the ends does not want to remember.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_is_taken_over_unless_an_end_does_not_want_it() {
    let len = 8_000;
    let (first, second) = twice(len, compressing(false, 15), compressing(false, 15)).await;
    assert!(first >= 8_000 && second < 400, "{first} and {second} bytes");
    for (client, server) in [(true, false), (false, true)] {
        let (first, second) = twice(len, compressing(client, 15), compressing(server, 15)).await;
        assert!(first >= 8_000 && second >= 8_000, "{first} and {second} bytes");
    }
}

/// The same, of a message that is longer than the smallest window: what it repeats is forgotten by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_window_is_the_smaller_one_of_both_ends() {
    for (client, server) in [(9, 15), (15, 9), (9, 9)] {
        let (first, second) = twice(8_000, compressing(false, client), compressing(false, server)).await;
        assert!(first >= 8_000 && second >= 8_000, "{first} and {second} bytes");
    }
    // It does fit in this one.
    let (_, second) = twice(8_000, compressing(false, 14), compressing(false, 14)).await;
    assert!(second < 400, "{second} bytes");
}

/// What browsers and others send, and what must not be said to them.
#[test]
fn offers_of_compression_are_answered_as_rfc_7692_says() {
    let answer = |ours: Deflate, offer: &str| ours.accept(offer).map(|agreed| agreed.to_string());
    let any = Deflate::default();
    let small = Deflate { window_bits: 10, no_context_takeover: true, ..any };
    let name = "permessage-deflate";
    let own = "; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=10";
    for (ours, offer, expected) in [
        (any, name.to_owned(), Some(name.to_owned())),
        (any, format!("{name}; client_max_window_bits"), Some(name.to_owned())),
        (
            small,
            format!("{name}; client_max_window_bits"),
            Some(format!("{name}{own}; client_max_window_bits=10")),
        ),
        (
            any,
            format!("{name}; client_max_window_bits=12"),
            Some(format!("{name}; client_max_window_bits=12")),
        ),
        // zlib has no such window, and the client may use a larger one if it is not told to use this.
        (any, format!("{name}; client_max_window_bits=8"), Some(name.to_owned())),
        // The client cannot be told to use less.
        (small, name.to_owned(), Some(format!("{name}{own}"))),
        (
            any,
            format!("{name}; server_max_window_bits=\"12\""),
            Some(format!("{name}; server_max_window_bits=12")),
        ),
        // zlib has no such window; the second offer is one that it has.
        (any, format!("{name}; server_max_window_bits=8"), None),
        (any, format!("{name}; server_max_window_bits=8, {name}"), Some(name.to_owned())),
        (any, format!("x-webkit-deflate-frame, {name}"), Some(name.to_owned())),
        (any, format!("{name}; server_max_window_bits"), None),
        (any, format!("{name}; server_max_window_bits=16"), None),
        (any, format!("{name}; server_max_window_bits=010"), None),
        (any, format!("{name}; client_no_context_takeover; client_no_context_takeover"), None),
        (any, format!("{name}; unknown"), None),
        (any, String::new(), None),
    ] {
        assert_eq!(answer(ours, &offer), expected, "{offer}");
    }
    for (ours, wrong) in [
        (any, "other"),
        (any, "permessage-deflate; client_max_window_bits"),
        (any, "permessage-deflate; client_max_window_bits=8"),
        (small, "permessage-deflate; server_no_context_takeover"),
        (small, "permessage-deflate; server_max_window_bits=10"),
        (small, "permessage-deflate; server_no_context_takeover; server_max_window_bits=11"),
    ] {
        assert!(ours.confirm(wrong).is_err(), "{wrong}");
    }
}

/// Both in a frame that says so itself, and where it shows only when all frames are counted or decompressed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_above_the_limit_is_answered_by_close_1009() {
    let limit = 100_000;
    let cases = [
        (plain(), 10_000_000),
        (plain(), limit + 1),
        (Settings { fragment: Some(30_000), ..plain() }, limit + 1),
        (compressing(false, 15), limit + 1),
        (compressing(false, 15), 10_000_000),
    ];
    for (client, len) in cases {
        let server = Settings { max_message: limit, ..compressing(false, 15) };
        let Pair { mut client, mut server, .. } = Pair::open(client, server).await;
        // What is as long as the limit passes.
        client.send_binary(vec![0; limit]).await.unwrap();
        assert_eq!(
            within(20, "a message", server.recv()).await.unwrap(),
            Event::Binary(vec![0; limit].into())
        );
        let serving = spawn(async move { server.recv().await });
        // The server may have ended before it has all of it.
        drop(client.send_binary(vec![0; len]).await);
        let event = within(20, "the close frame", client.recv()).await;
        assert!(
            matches!(&event, Ok(Event::Close(close)) if close.code == Some(code::MESSAGE_TOO_BIG)),
            "{len} bytes: {event:?}"
        );
        let failed = within(20, "the server's error", serving).await.unwrap();
        assert!(
            matches!(&failed, Err(Error::Failed(close)) if close.code == Some(code::MESSAGE_TOO_BIG)),
            "{len} bytes: {failed:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_that_is_no_utf_8_is_answered_by_close_1007() {
    let (whole, bad, split): (u8, &[u8], &[u8]) = (0x81, b"a\xff", b"\xe2\x82");
    for frames in [
        &[(whole, bad)][..],
        // At once, although the message is not complete.
        &[(0x01, bad)],
        // The rest of a character is missing in the end.
        &[(0x01, split), (0x80, &[])],
        &[(0x01, split), (0x00, b"a")],
    ] {
        let (mut raw, mut server) = Raw::open(plain()).await;
        let serving = spawn(async move { server.recv().await });
        for (first, payload) in frames {
            raw.send(*first, payload).await;
        }
        let mut frame = [0; 4];
        within(10, "the close frame", raw.0.read_exact(&mut frame)).await.unwrap();
        assert_eq!((frame[0], u16::from_be_bytes([frame[2], frame[3]])), (0x88, code::INVALID_DATA));
        raw.0.shutdown().await.unwrap();
        let failed = within(10, "the server's error", serving).await.unwrap();
        assert!(matches!(failed, Err(Error::Failed(close)) if close.code == Some(code::INVALID_DATA)));
    }
    // The same characters in binary, and complete ones, pass.
    let (mut raw, mut server) = Raw::open(plain()).await;
    raw.send(0x82, bad).await;
    assert_eq!(server.recv().await.unwrap(), Event::Binary(Bytes::copy_from_slice(bad)));
    raw.send(0x01, split).await;
    raw.send(0x80, b"\xac").await;
    assert_eq!(server.recv().await.unwrap(), Event::Text("€".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_protocol_forbids_is_answered_by_close_1002() {
    for (first, payload) in [
        // A continuation of nothing; a reserved bit; compression that was not agreed on; a ping in pieces; a close of one byte, and one
        // with a code that is never sent.
        (0x80, &b"a"[..]),
        (0xa1, b"a"),
        (0xc1, b"a"),
        (0x09, b"a"),
        (0x88, b"a"),
        (0x88, b"\x03\xed"),
    ] {
        let (mut raw, mut server) = Raw::open(plain()).await;
        raw.send(first, payload).await;
        let serving = spawn(async move { server.recv().await });
        let mut frame = [0; 4];
        within(10, "the close frame", raw.0.read_exact(&mut frame)).await.unwrap();
        assert_eq!(
            (frame[0], u16::from_be_bytes([frame[2], frame[3]])),
            (0x88, code::PROTOCOL_ERROR),
            "{first:x}"
        );
        raw.0.shutdown().await.unwrap();
        let failed = within(10, "the server's error", serving).await.unwrap();
        assert!(matches!(failed, Err(Error::Failed(_))), "{failed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codes_and_reasons_of_closes_arrive_in_both_directions() {
    for (code, reason) in [(1_000, "done"), (1_001, ""), (4_999, "grün")] {
        for client_closes in [true, false] {
            let Pair { client, server, _listener, .. } = Pair::open(plain(), plain()).await;
            let (first, mut second) = if client_closes { (client, server) } else { (server, client) };
            let answering = spawn(async move {
                let event = second.recv().await.unwrap();
                // Behind it nothing comes.
                assert!(matches!(second.recv().await, Err(Error::Gone)));
                assert!(second.send_text("late").await.is_err());
                event
            });
            let answer = within(20, "the answer", first.close(code, reason)).await.unwrap();
            assert_eq!(answer, close(code, reason));
            let event = within(20, "the close", answering).await.unwrap();
            assert_eq!(event, Event::Close(close(code, reason)));
        }
    }
    // One without a code, and one without an answer to it: the frame is answered once.
    let (mut raw, mut server) = Raw::open(plain()).await;
    raw.send(0x88, &[]).await;
    let serving = spawn(async move { server.recv().await });
    assert_eq!(raw.rest().await, [0x88, 0]);
    raw.0.shutdown().await.unwrap();
    assert_eq!(within(10, "the close", serving).await.unwrap().unwrap(), Event::Close(Close::default()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_is_gone_is_an_error_and_no_wait() {
    // It ended without a close frame.
    let (mut raw, mut server) = Raw::open(plain()).await;
    raw.0.shutdown().await.unwrap();
    let event = within(10, "the end", server.recv()).await;
    assert!(matches!(event, Err(Error::Gone)), "{event:?}");
    // It aborted, inside of a message.
    let (mut raw, mut server) = Raw::open(plain()).await;
    raw.send(0x01, b"hel").await;
    let serving = spawn(async move { (server.recv().await, server) });
    raw.0.abort();
    let (event, mut server) = within(10, "the end", serving).await.unwrap();
    assert!(matches!(event, Err(Error::Stream(_) | Error::Gone)), "{event:?}");
    let again = within(10, "the same again", server.send_text("late")).await;
    assert!(again.is_err());
    // It does not answer a close.
    let (raw, server) = Raw::open(plain()).await;
    let closed = within(20, "the close", server.close(1_000, "")).await;
    assert!(matches!(closed, Err(Error::Gone)), "{closed:?}");
    drop(raw);
}

/// Whoever is refused learns it by the status; and a client fails at an answer to what it did not ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_that_are_none_fail_on_both_sides() {
    let version = "sec-websocket-version: 13\r\n";
    let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    for (request, status) in [
        (format!("GET / HTTP/1.1\r\nhost: k\r\n{version}{key}\r\n"), "426"),
        (format!("GET / HTTP/1.1\r\nhost: k\r\n{upgrade}sec-websocket-version: 8\r\n{key}\r\n"), "426"),
        (format!("GET / HTTP/1.1\r\nhost: k\r\n{upgrade}{version}\r\n"), "400"),
        (
            format!("GET / HTTP/1.1\r\nhost: k\r\n{upgrade}{version}sec-websocket-key: c2hvcnQ=\r\n\r\n"),
            "400",
        ),
        (format!("POST / HTTP/1.1\r\nhost: k\r\n{upgrade}{version}{key}\r\n"), "405"),
    ] {
        let (listener, addr) = listen().await;
        let mut stream = connect(addr).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let outcome = within(20, "the refusal", ws::accept(Stream::Kcp(accepted), &plain())).await;
        assert!(matches!(outcome, Err(Error::Handshake(_))), "{request}");
        let mut answer = String::new();
        within(20, "the answer", stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}\n{answer}");
    }
    let switching = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n";
    for answer in [
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
        format!("{switching}sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"),
        String::new(),
    ] {
        let (listener, addr) = listen().await;
        let stream = connect(addr).await;
        let asked = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&asked);
        let serving = spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4_096];
            let count = stream.read(&mut head).await.unwrap();
            *seen.lock().unwrap() = String::from_utf8_lossy(&head[..count]).into_owned();
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let offers =
            Settings { subprotocols: vec!["a".to_owned(), "b".to_owned()], ..compressing(false, 12) };
        let outcome =
            within(20, "the client", ws::connect(Stream::Kcp(stream), "kcp9", "/x?y", &offers)).await;
        assert!(matches!(outcome, Err(Error::Handshake(_))));
        serving.await.unwrap();
        let asked = asked.lock().unwrap().to_ascii_lowercase();
        assert!(asked.starts_with("get /x?y http/1.1\r\n"), "{asked}");
        assert!(asked.contains("sec-websocket-protocol: a, b\r\n"), "{asked}");
        assert!(asked.contains("client_max_window_bits=12; server_max_window_bits=12"), "{asked}");
    }
}

/// A client's end of a crowd on one socket; each has its own messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_of_one_endpoint_do_not_mix() {
    let (listener, addr) = listen().await;
    let serving = spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            drop(spawn(async move {
                let mut socket = ws::accept(Stream::Kcp(stream), &plain()).await.unwrap();
                while let Ok(Event::Binary(bytes)) = socket.recv().await {
                    socket.send_binary(bytes).await.unwrap();
                }
            }));
        }
    });
    let endpoint = KcpEndpoint::bind(crate::support::ANY).await.unwrap();
    let clients: Vec<_> = (0..50_u8)
        .map(|number| {
            let stream = endpoint.connect(addr, crate::support::config()).unwrap();
            spawn(async move {
                let mut socket = ws::connect(Stream::Kcp(stream), "kcp9", "/", &plain()).await.unwrap();
                for len in [10, 3_000] {
                    socket.send_binary(vec![number; len]).await.unwrap();
                    assert_eq!(socket.recv().await.unwrap(), Event::Binary(vec![number; len].into()));
                }
                socket.close(code::NORMAL, "").await.unwrap();
            })
        })
        .collect();
    for client in clients {
        within(30, "a client", client).await.unwrap();
    }
    serving.abort();
}
