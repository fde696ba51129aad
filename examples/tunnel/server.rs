//! `tunnel server`: takes the connections of clients to a target.

use std::{io, sync::Arc, time::Duration};

use kcp9::{
    KcpListener, KcpStream,
    crypto::PacketCrypto,
    mux::{MuxConfig, MuxSession},
};
use socket2::Type;
use tokio::task::JoinSet;

use crate::{
    address::bind_wildcard,
    carrier::{Carried, canonical, compressed, explain, is_ordinary, set_options},
    counters::Counters,
    local::Local,
    log::say,
    relay::relay,
    sessions::FAREWELL,
    settings::ServerSettings,
    stop::{Busy, Stop},
};

pub(crate) struct Server {
    /// One for each port.
    listeners: Vec<Arc<KcpListener>>,
    settings: Arc<ServerSettings>,
    counters: Arc<Counters>,
}

impl Server {
    pub(crate) async fn bind(settings: ServerSettings, counters: Arc<Counters>) -> io::Result<Self> {
        let mut listeners = Vec::new();
        for port in settings.listen.ports.clone() {
            let listener = bind(&settings, port).await.map_err(|error| {
                io::Error::new(error.kind(), format!("listen: {}, port {port}: {error}", settings.listen))
            })?;
            set_options(&listener.socket(), &settings.common);
            listeners.push(Arc::new(listener));
        }
        match &*listeners {
            [one] => say!("listening on: {}", one.local_addr()?),
            many => say!("listening on: {} ({} ports)", settings.listen, many.len()),
        }
        say!("target: {}", settings.target);
        Ok(Self { listeners, settings: Arc::new(settings), counters })
    }

    /// Accepts sessions, for ever.
    pub(crate) async fn run(&self, stop: Stop) {
        let mut accepting = JoinSet::new();
        for listener in &self.listeners {
            let listener = Arc::clone(listener);
            let session =
                Accepted { settings: Arc::clone(&self.settings), counters: Arc::clone(&self.counters) };
            let stop = stop.clone();
            accepting.spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(session.clone().serve(stream, stop.clone()));
                }
            });
        }
        while accepting.join_next().await.is_some() {}
    }

    /// Accepts sessions under this key from here on, and for a while under the one before.
    pub(crate) fn set_key(&self, crypto: &PacketCrypto) -> io::Result<()> {
        for listener in &self.listeners {
            listener.rotate_key(crypto.clone(), self.settings.oldkeyttl)?;
        }
        Ok(())
    }

    /// Counts what did not open.
    pub(crate) fn count_forged(&self) {
        let dropped = self.listeners.iter().map(|listener| listener.endpoint_stats().dropped);
        self.counters.set_forged(dropped.map(|dropped| dropped.bad_checksum + dropped.bad_tag).sum());
    }

    pub(crate) fn drain(&self) -> Duration {
        self.settings.common.drain
    }

    /// Accepts no more sessions. Those that live go on.
    pub(crate) fn stop_accepting(&self) {
        self.listeners.iter().for_each(|listener| listener.close());
    }

    /// Ends all sessions, so that the clients learn of it.
    pub(crate) async fn close(&self) {
        let mut closing = JoinSet::new();
        for listener in &self.listeners {
            let listener = Arc::clone(listener);
            closing.spawn(async move { listener.shutdown(FAREWELL).await });
        }
        while closing.join_next().await.is_some() {}
    }
}

async fn bind(settings: &ServerSettings, port: u16) -> io::Result<KcpListener> {
    let kcp = settings.common.kcp.clone();
    match &*settings.listen.host {
        "" => KcpListener::from_socket(std::net::UdpSocket::from(bind_wildcard(Type::DGRAM, port)?), kcp),
        host => KcpListener::bind((host, port), kcp).await,
    }
}

/// What a session is served with.
#[derive(Clone)]
struct Accepted {
    settings: Arc<ServerSettings>,
    counters: Arc<Counters>,
}

impl Accepted {
    async fn serve(self, stream: KcpStream, stop: Stop) {
        self.counters.add_passive(stream.handle());
        match &self.settings.common.mux {
            Some(config) => {
                let config = config.clone();
                self.serve_streams(stream, config, stop).await;
            }
            None => {
                let Some(busy) = stop.begin() else { return };
                let carried = Carried::session(stream, &self.settings.common);
                self.carry(carried, busy).await;
            }
        }
    }

    async fn serve_streams(self, stream: KcpStream, config: MuxConfig, stop: Stop) {
        let peer = stream.handle();
        let name = canonical(peer.peer_addr());
        say!("session of {name}");
        let session = MuxSession::server(compressed(stream, &self.settings.common), config);
        loop {
            match session.accept().await {
                Ok(stream) => match stop.begin() {
                    Some(busy) => {
                        let carried = Carried::stream(stream, peer.clone());
                        tokio::spawn(self.clone().carry(carried, busy));
                    }
                    // Its peer sees it end at once.
                    None => drop(stream),
                },
                Err(why) => return say!("session of {name} ended: {}", explain(&why)),
            }
        }
    }

    /// Takes one connection to the target.
    async fn carry(self, carried: Carried, _busy: Busy) {
        let (name, target, quiet) = (carried.name.clone(), &self.settings.target, self.settings.common.quiet);
        let local = match Local::connect(target).await {
            Ok(local) => local,
            Err(error) => return say!("target: {target}: {error}"),
        };
        if !quiet {
            say!("stream opened in: {name} out: {target}");
        }
        match relay(local, carried).await {
            Err(error) if !is_ordinary(&error) => say!("stream in: {name} out: {target}: {error}"),
            _ if quiet => {}
            _ => say!("stream closed in: {name} out: {target}"),
        }
    }
}
