//! The server: it sends every message back.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use kcp9::KcpConfig;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::{Semaphore, watch},
    task::JoinSet,
    time,
};

use crate::{
    options::{ServerOptions, transport},
    process,
    ws::{self, Error, Event, Listener, Settings, Socket, Stream, code},
};

/// Accepts sessions of clients that come all at once, from one address: both is so in `bench`.
const BACKLOG: usize = 65_536;
/// Connects to the server that it came from, and shows what comes back.
const PAGE: &str = include_str!("page.html");

pub(crate) async fn run(options: &ServerOptions) -> io::Result<()> {
    process::raise_descriptor_limit();
    let config = KcpConfig::builder().max_sessions(options.max_connections.max(1));
    let config = if options.figures {
        config.accept_backlog(BACKLOG).max_half_open(BACKLOG).max_half_open_of_network(BACKLOG)
    } else {
        config
    };
    let config = config.build().map_err(io::Error::other)?;
    let transport = transport(options.tcp);
    let listener = Listener::bind(transport, options.addr, config).await?;
    let addr = listener.local_addr()?;
    if options.figures {
        println!("{addr}");
    } else {
        println!("listening on {addr}, over {}", transport.name());
    }
    let settings = Settings { page: Some(PAGE), ..options.common.settings() };
    let server = Server::new(settings, options.max_connections, !options.figures);
    let figures = async {
        if !options.figures {
            std::future::pending::<()>().await;
        }
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(_)) = lines.next_line().await {
            println!("{}", process::resident());
        }
    };
    let stop = async {
        tokio::select! {
            () = figures => {}
            interrupted = tokio::signal::ctrl_c() => {
                if interrupted.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    };
    server.serve(listener, stop).await
}

/// What all connections have in common.
pub(crate) struct Server {
    settings: Arc<Settings>,
    slots: Arc<Semaphore>,
    log: bool,
}

impl Server {
    pub(crate) fn new(settings: Settings, max_connections: usize, log: bool) -> Self {
        let slots = Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS));
        Self { settings: Arc::new(settings), slots: Arc::new(slots), log }
    }

    /// Accepts connections until `stop`, and then tells all clients that it goes away.
    pub(crate) async fn serve(self, listener: Listener, stop: impl Future<Output = ()>) -> io::Result<()> {
        let (stopping, stopped) = watch::channel(());
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = &mut stop => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) if matches!(listener, Listener::Tcp(_)) => {
                    // Probably there are no descriptors left. Some come back when connections end.
                    eprintln!("websocket: {error}");
                    time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // To drop a stream refuses its client.
            let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else { continue };
            let (settings, stopped, log) = (Arc::clone(&self.settings), stopped.clone(), self.log);
            connections.spawn(async move {
                let outcome = connection(stream, peer, &settings, stopped, log).await;
                if let (Err(error), true) = (outcome, log) {
                    println!("{peer}: {error}");
                }
                drop(slot);
            });
        }
        drop(stopping);
        while connections.join_next().await.is_some() {}
        Ok(())
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

async fn connection(
    stream: Stream,
    peer: SocketAddr,
    settings: &Settings,
    mut stopped: watch::Receiver<()>,
    log: bool,
) -> Result<(), Error> {
    // What the handshake needs, hyper's buffers and state, is given back behind this line.
    let mut socket = Box::pin(ws::accept(stream, settings)).await?;
    if log {
        let compression =
            socket.compression().map_or("no compression".to_owned(), |agreed| agreed.to_string());
        println!("{peer}: open, subprotocol {}, {compression}", socket.subprotocol().unwrap_or("none"));
    }
    let event = tokio::select! {
        ended = echo(&mut socket) => Some(ended?),
        // The sender is dropped, nothing is sent.
        _ = stopped.changed() => None,
    };
    match event {
        Some(close) if log => println!("{peer}: closed by the client, {close}"),
        Some(_) => {}
        None => {
            Box::pin(socket.close(code::GOING_AWAY, "the server ends")).await?;
        }
    }
    Ok(())
}

/// Sends messages back until the client closes.
pub(crate) async fn echo(socket: &mut Socket) -> Result<ws::Close, Error> {
    loop {
        match socket.recv().await? {
            Event::Text(text) => socket.send_text(text).await?,
            Event::Binary(bytes) => socket.send_binary(bytes).await?,
            Event::Ping(_) | Event::Pong(_) => {}
            Event::Close(close) => return Ok(close),
        }
    }
}
