//! The client's sessions: `conn` of them, which take connections in turn.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use kcp9::{
    KcpConfig, KcpHandle, KcpStream,
    mux::{MuxConfig, MuxSession},
};
use tokio::time::Instant;

use crate::{
    carrier::{Carried, canonical, compressed, explain, set_options},
    counters::Counters,
    log::say,
    settings::ClientSettings,
};

pub(crate) struct Sessions {
    settings: Arc<ClientSettings>,
    /// With the key of sessions that begin.
    kcp: Mutex<KcpConfig>,
    /// One for each of `conn`. Whoever finds its session missing makes it, and others wait for that.
    slots: Vec<tokio::sync::Mutex<Option<Session>>>,
    next: AtomicUsize,
    /// Counts the keys: sessions of an earlier one are expired.
    key: AtomicUsize,
    counters: Arc<Counters>,
}

#[derive(Clone)]
struct Session {
    mux: MuxSession,
    peer: KcpHandle,
    expires: Option<Instant>,
    key: usize,
    ended: Arc<AtomicBool>,
}

impl Sessions {
    pub(crate) fn new(settings: Arc<ClientSettings>, counters: Arc<Counters>) -> Self {
        let slots = (0..settings.conn).map(|_| tokio::sync::Mutex::default()).collect();
        let kcp = Mutex::new(settings.common.kcp.clone());
        Self { settings, kcp, slots, next: AtomicUsize::new(0), key: AtomicUsize::new(0), counters }
    }

    /// A stream for a connection. It waits for a socket if there is none to be had, but not for the server's answer.
    pub(crate) async fn open(&self) -> io::Result<Carried> {
        let Some(config) = &self.settings.common.mux else {
            let stream = self.connect_patiently().await;
            return Ok(Carried::session(stream, &self.settings.common));
        };
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let mut slot = self.slots[at].lock().await;
        let current = match slot.take() {
            Some(session) if self.is_usable(&session) => Some(session),
            Some(expired) => {
                self.retire(expired);
                None
            }
            None => None,
        };
        let session = match current {
            Some(session) => session,
            None => self.begin(config.clone()).await,
        };
        *slot = Some(session.clone());
        // Before others see that the session has expired: one that is retired and has no streams is closed.
        let stream = session.mux.open().await?;
        Ok(Carried::stream(stream, session.peer))
    }

    fn is_usable(&self, session: &Session) -> bool {
        !session.ended.load(Ordering::Relaxed)
            && session.key == self.key.load(Ordering::Relaxed)
            && session.expires.is_none_or(|expires| Instant::now() < expires)
    }

    async fn begin(&self, config: MuxConfig) -> Session {
        let key = self.key.load(Ordering::Relaxed);
        let stream = self.connect_patiently().await;
        let peer = stream.handle();
        let mux = MuxSession::client(compressed(stream, &self.settings.common), config);
        let expires = self.settings.autoexpire.map(|after| Instant::now() + after);
        let ended = Arc::new(AtomicBool::new(false));
        let session = Session { mux, peer, expires, key, ended };
        let watched = session.clone();
        tokio::spawn(async move {
            let why = watched.mux.closed().await;
            watched.ended.store(true, Ordering::Relaxed);
            let peer = canonical(watched.peer.peer_addr());
            say!("session with {peer} ended: {}", explain(&why));
            if watched.peer.stats().udp.packets_received == 0 {
                say!("nothing came from there: is there a server with the same crypt and key?");
            }
        });
        session
    }

    /// Lets the connections of an expired session go on for a while, then closes it.
    fn retire(&self, session: Session) {
        let limit = self.settings.scavengettl;
        tokio::spawn(async move {
            let end = Instant::now() + limit;
            while !session.ended.load(Ordering::Relaxed)
                && session.mux.stats().open_streams > 0
                && Instant::now() < end
            {
                tokio::time::sleep(LOOK_UP).await;
            }
            // Why it had ended already was said.
            let _ = session.mux.close().await;
        });
    }

    async fn connect_patiently(&self) -> KcpStream {
        loop {
            match self.connect().await {
                Ok(stream) => return stream,
                Err(error) => {
                    say!("no session with {}: {error}; once more in a second", self.settings.remote)
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn connect(&self) -> io::Result<KcpStream> {
        let config = self.kcp.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let remote = &self.settings.remote;
        let host = if remote.host.is_empty() { "localhost" } else { &remote.host };
        let (first, last) = (*remote.ports.start(), *remote.ports.end());
        // Not a secret: it spreads sessions over the ports.
        let port =
            first + (RandomState::new().build_hasher().finish() % (u64::from(last - first) + 1)) as u16;
        let stream = KcpStream::connect((host, port), config).await?;
        set_options(&stream.socket(), &self.settings.common);
        self.counters.add_active(stream.handle());
        say!("session {} -> {}", stream.local_addr()?, canonical(stream.peer_addr()));
        Ok(stream)
    }

    /// Sessions begin with the key of `kcp` from here on. Those of the key before are expired.
    pub(crate) fn set_key(&self, kcp: KcpConfig) {
        *self.kcp.lock().unwrap_or_else(PoisonError::into_inner) = kcp;
        self.key.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes all sessions, so that the server learns of it.
    pub(crate) async fn close(&self) {
        let mut closing = tokio::task::JoinSet::new();
        for slot in &self.slots {
            if let Some(session) = slot.lock().await.take() {
                closing.spawn(async move { session.mux.close().await });
            }
        }
        let all = async { while closing.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL, all).await;
    }
}

/// How often an expired session is looked at.
const LOOK_UP: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(1);
/// For a few round trips: a server that is gone is not waited for.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);
