//! `tunnel client`: takes connections to a server.

use std::{io, sync::Arc, time::Duration};

use kcp9::{KcpConfig, crypto::PacketCrypto};

use crate::{
    carrier::is_ordinary,
    counters::Counters,
    local::{Local, LocalListener},
    log::say,
    relay::relay,
    sessions::Sessions,
    settings::ClientSettings,
    stop::Stop,
};

pub(crate) struct Client {
    sessions: Arc<Sessions>,
    settings: Arc<ClientSettings>,
}

impl Client {
    /// The client, and what it accepts connections from. No more come once that is dropped.
    pub(crate) async fn bind(
        settings: ClientSettings,
        counters: Arc<Counters>,
    ) -> io::Result<(Self, LocalListener)> {
        let listener = LocalListener::bind(&settings.local).await.map_err(|error| {
            io::Error::new(error.kind(), format!("localaddr: {}: {error}", settings.local))
        })?;
        say!("listening on: {}", listener.name()?);
        say!("remote address: {}", settings.remote);
        let settings = Arc::new(settings);
        let sessions = Arc::new(Sessions::new(Arc::clone(&settings), counters));
        Ok((Self { sessions, settings }, listener))
    }

    /// Accepts connections, for ever.
    pub(crate) async fn run(&self, listener: LocalListener, stop: Stop) {
        loop {
            match listener.accept().await {
                Ok((local, name)) => {
                    let Some(busy) = stop.begin() else { return };
                    let (sessions, quiet) = (Arc::clone(&self.sessions), self.settings.common.quiet);
                    tokio::spawn(async move {
                        carry(local, &name, &sessions, quiet).await;
                        drop(busy);
                    });
                }
                Err(error) => {
                    // Such as too many open files. Others will close some.
                    say!("accepting: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Sessions begin with this key from here on.
    pub(crate) fn set_key(&self, crypto: PacketCrypto) -> io::Result<()> {
        let kcp: KcpConfig = self.settings.common.kcp.clone().to_builder().crypto(crypto).build()?;
        self.sessions.set_key(kcp);
        Ok(())
    }

    pub(crate) fn drain(&self) -> Duration {
        self.settings.common.drain
    }

    pub(crate) async fn close(&self) {
        self.sessions.close().await;
    }
}

async fn carry(local: Local, name: &str, sessions: &Sessions, quiet: bool) {
    let carried = match sessions.open().await {
        Ok(carried) => carried,
        Err(error) => {
            local.reset();
            return say!("no stream for {name}: {error}");
        }
    };
    let out = carried.name.clone();
    if !quiet {
        say!("stream opened in: {name} out: {out}");
    }
    match relay(local, carried).await {
        Err(error) if !is_ordinary(&error) => say!("stream in: {name} out: {out}: {error}"),
        _ if quiet => {}
        _ => say!("stream closed in: {name} out: {out}"),
    }
}

const PAUSE: Duration = Duration::from_millis(100);
