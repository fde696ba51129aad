//! A handle of a session that outlives its stream: statistics, and how it ended.

use std::{
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::{
    datagrams::KcpDatagrams, error::KcpError, session::Session, socket::Socket, udp_socket::IntoUdpSocket,
};
use crate::proto::{CloseReason, SessionSettings, Stats};

/// Looks at a session and controls it, wherever its [`KcpStream`](crate::KcpStream) has gone: into a TLS or HTTP library, say, that
/// does not give it back. From [`KcpStream::handle`](crate::KcpStream::handle). Clones are cheap.
///
/// It does not keep the session alive, nor the socket. After the end it still tells [why](Self::close_reason) it ended, and its last
/// [statistics](Self::stats).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use kcp9::{KcpConfig, KcpError, KcpListener, KcpStream, proto::CloseReason};
/// use tokio::io::AsyncWriteExt;
///
/// let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
/// let mut stream = KcpStream::connect(listener.local_addr()?, KcpConfig::default()).await?;
/// let handle = stream.handle();
/// let library = tokio::spawn(async move { stream.write_all(b"hello").await });
///
/// library.await??; // the stream is dropped there, and what was written is still delivered
/// let reason = handle.closed().await;
/// assert_eq!(reason, KcpError::Closed(CloseReason::Finished));
/// assert_eq!(handle.stats().stream.bytes_written, 5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KcpHandle {
    session: Weak<Session>,
    end: Arc<End>,
}

/// What is left of a session for its handles.
#[derive(Debug)]
pub(super) struct End {
    conv: u32,
    peer: Mutex<SocketAddr>,
    local: Mutex<SocketAddr>,
    /// Why it ended, and its last statistics.
    last: Mutex<Option<(KcpError, Stats)>>,
}

impl End {
    pub(super) fn set(&self, reason: KcpError, stats: Stats) {
        *self.last() = Some((reason, stats));
    }

    /// The peer has another address from here on.
    pub(super) fn set_peer(&self, peer: SocketAddr) {
        *lock(&self.peer) = peer;
    }

    /// This end has another address from here on.
    pub(super) fn set_local(&self, local: SocketAddr) {
        *lock(&self.local) = local;
    }

    fn last(&self) -> MutexGuard<'_, Option<(KcpError, Stats)>> {
        lock(&self.last)
    }

    fn reason(&self) -> KcpError {
        self.last().map_or(CloseReason::Aborted.into(), |(reason, _)| reason)
    }
}

impl KcpHandle {
    pub(super) fn new(session: &Arc<Session>) -> Self {
        let end = session.end(|peer| End {
            conv: session.conv,
            peer: Mutex::new(peer),
            local: Mutex::new(session.shared.socket().local_addr()),
            last: Mutex::default(),
        });
        Self { session: Arc::downgrade(session), end }
    }

    /// The conversation number.
    #[must_use]
    pub fn conv(&self) -> u32 {
        self.end.conv
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        let peer = *lock(&self.end.peer);
        (peer.ip().to_canonical(), peer.port()).into()
    }

    /// The address that the socket is bound to, or was.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        *lock(&self.end.local)
    }

    /// Counters and gauges of the session; after its end the last ones.
    #[must_use]
    pub fn stats(&self) -> Stats {
        match self.session.upgrade() {
            Some(session) => session.with(false, |connection| connection.stats()),
            None => self.end.last().map_or_else(Stats::default, |(_, stats)| stats),
        }
    }

    /// The settings as they are now; `None` once the session is gone.
    #[must_use]
    pub fn settings(&self) -> Option<SessionSettings> {
        Some(self.session.upgrade()?.with(false, |connection| connection.settings()))
    }

    /// Changes settings of the live session: see [`KcpStream::update_settings`](crate::KcpStream::update_settings).
    ///
    /// # Errors
    /// As [`KcpStream::update_settings`](crate::KcpStream::update_settings); why the session has ended, once it is gone.
    pub fn update_settings(&self, change: impl FnOnce(&mut SessionSettings)) -> io::Result<()> {
        let session = self.session.upgrade().ok_or_else(|| self.end.reason())?;
        Ok(session.with(true, |connection| connection.update_settings(change))?)
    }

    /// A handle of the datagrams: see [`KcpStream::datagrams`](crate::KcpStream::datagrams).
    #[must_use]
    pub fn datagrams(&self) -> KcpDatagrams {
        KcpDatagrams::of(Weak::clone(&self.session))
    }

    /// Why the session has ended, `None` while it lives.
    #[must_use]
    pub fn close_reason(&self) -> Option<KcpError> {
        match self.session.upgrade() {
            Some(session) => session.close_reason(),
            None => Some(self.end.reason()),
        }
    }

    /// Waits until the session has ended, and returns why: see [`KcpStream::closed`](crate::KcpStream::closed).
    pub async fn closed(&self) -> KcpError {
        poll_fn(|cx| match self.session.upgrade() {
            Some(session) => session.poll_closed(cx),
            None => std::task::Poll::Ready(self.end.reason()),
        })
        .await
    }

    /// Says that this end has another address: see [`KcpStream::network_changed`](crate::KcpStream::network_changed).
    ///
    /// # Errors
    /// As [`KcpStream::network_changed`](crate::KcpStream::network_changed).
    pub fn network_changed(&self) -> io::Result<()> {
        self.session.upgrade().ok_or_else(|| self.end.reason())?.network_changed()
    }

    /// Goes on over another socket: see [`KcpStream::rebind`](crate::KcpStream::rebind).
    ///
    /// # Errors
    /// As [`KcpStream::rebind`](crate::KcpStream::rebind).
    pub fn rebind(&self, socket: impl IntoUdpSocket) -> io::Result<()> {
        let session = self.session.upgrade().ok_or_else(|| self.end.reason())?;
        session.rebind(Socket::from_std(socket.into_udp_socket()?)?)
    }

    /// Ends the session at once: see [`KcpStream::abort`](crate::KcpStream::abort).
    pub fn abort(&self) {
        if let Some(session) = self.session.upgrade() {
            session.abort();
        }
    }
}

impl fmt::Debug for KcpHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KcpHandle")
            .field("peer", &self.peer_addr())
            .field("conv", &self.conv())
            .field("close_reason", &self.close_reason())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
