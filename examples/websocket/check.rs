//! A server and clients in one process, which check each other: over KCP, and over TCP.

use std::{io, net::SocketAddr};

use hyper::body::Bytes;
use kcp9::KcpConfig;
use tokio::sync::oneshot;

use crate::{
    server::Server,
    ws::{self, Close, Deflate, Error, Event, Listener, Settings, Socket, Stream, Transport, code},
};

pub(crate) async fn run() -> Result<(), Error> {
    for transport in [Transport::Kcp, Transport::Tcp] {
        over(transport).await?;
        println!("{}: ok", transport.name());
    }
    Ok(())
}

async fn over(transport: Transport) -> Result<(), Error> {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(transport, local, KcpConfig::default()).await.map_err(Error::Stream)?;
    let addr = listener.local_addr().map_err(Error::Stream)?.to_string();
    let settings = Settings {
        max_message: 100_000,
        deflate: Some(Deflate::default()),
        subprotocols: vec!["chat".to_owned(), "echo".to_owned()],
        ..Settings::default()
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::new(settings, 100, false);
    let serving = tokio::spawn(async { server.serve(listener, async { drop(stopped.await) }).await });

    let plain = Settings { subprotocols: vec!["echo".to_owned()], ..Settings::default() };
    let mut socket = open(transport, &addr, &plain).await?;
    assert_eq!((socket.subprotocol(), socket.compression()), (Some("echo"), None));
    socket.send_text("hello over KCP").await?;
    assert_eq!(socket.recv().await?, Event::Text(Bytes::from_static(b"hello over KCP")));
    let long = Bytes::from(vec![7; 100_000]);
    socket.send_binary(long.clone()).await?;
    assert_eq!(socket.recv().await?, Event::Binary(long));
    socket.ping("are you there?").await?;
    assert_eq!(socket.recv().await?, Event::Pong(Bytes::from_static(b"are you there?")));
    let answer = socket.close(4_000, "enough").await?;
    assert_eq!(answer, Close { code: Some(4_000), reason: "enough".to_owned() });

    // Compressed, and in several frames.
    let compressed =
        Settings { fragment: Some(1_000), deflate: Some(Deflate::default()), ..Settings::default() };
    let mut socket = open(transport, &addr, &compressed).await?;
    assert!(socket.subprotocol().is_none() && socket.compression().is_some());
    let text = Bytes::from("again and ".repeat(5_000));
    for _ in 0..3 {
        socket.send_text(text.clone()).await?;
        assert_eq!(socket.recv().await?, Event::Text(text.clone()));
    }

    // Longer than the server takes.
    socket.send_binary(vec![0; 100_001]).await?;
    let Event::Close(close) = socket.recv().await? else { panic!("a message that is too long was answered") };
    assert_eq!(close.code, Some(code::MESSAGE_TOO_BIG));

    // The server ends, and says so.
    let mut socket = open(transport, &addr, &plain).await?;
    drop(stop);
    let Event::Close(close) = socket.recv().await? else { panic!("the server ended without a word") };
    assert_eq!(close.code, Some(code::GOING_AWAY));
    serving.await.map_err(io::Error::other).flatten().map_err(Error::Stream)
}

async fn open(transport: Transport, addr: &str, settings: &Settings) -> Result<Socket, Error> {
    let stream = Stream::connect(transport, addr, KcpConfig::default()).await.map_err(Error::Stream)?;
    ws::connect(stream, addr, "/", settings).await
}
