//! Tells the example `top` of the sessions, over a Unix socket: whoever may open its file may look.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use kcp9::{KcpEndpoint, KcpHandle, KcpStream};
use tokio::{
    io::AsyncWriteExt,
    net::{UnixListener, UnixStream},
    time,
};

use super::top::{MAX_SESSIONS, Session, Snapshot};

/// The sessions that live.
#[derive(Clone, Default)]
pub(crate) struct Sessions {
    handles: Arc<Mutex<Vec<KcpHandle>>>,
}

impl Sessions {
    /// Lists a session until its end.
    pub(crate) fn add(&self, stream: &KcpStream) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if handles.len().is_power_of_two() {
            // Whether or not anybody looks, there are at most twice as many as live.
            handles.retain(|handle| handle.close_reason().is_none());
        }
        handles.push(stream.handle());
    }

    fn now(&self, began: Instant, endpoint: &KcpEndpoint) -> Snapshot {
        let handles = {
            let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
            handles.retain(|handle| handle.close_reason().is_none());
            handles.iter().take(MAX_SESSIONS).cloned().collect::<Vec<_>>()
        };
        let sessions = handles.iter().map(Session::of).collect();
        Snapshot::of(began.elapsed().as_millis() as u64, &endpoint.endpoint_stats(), sessions)
    }

    /// Tells whoever connects to the socket at `path`, for ever.
    ///
    /// # Errors
    /// If there can be no socket at that path: a file that is there already is not removed.
    pub(crate) async fn serve(self, path: &Path, endpoint: KcpEndpoint) -> io::Result<()> {
        let listener = UnixListener::bind(path)?;
        let _removed = Removed(path);
        let began = Instant::now();
        loop {
            let (stream, _) = listener.accept().await?;
            let (sessions, endpoint) = (self.clone(), endpoint.clone());
            // One that goes away is no failure of this program.
            tokio::spawn(async move { sessions.tell(stream, began, &endpoint).await });
        }
    }

    async fn tell(&self, mut stream: UnixStream, began: Instant, endpoint: &KcpEndpoint) -> io::Result<()> {
        let mut ticks = time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mut line = serde_json::to_vec(&self.now(began, endpoint))?;
            line.push(b'\n');
            time::timeout(PATIENCE, stream.write_all(&line)).await??;
        }
    }
}

/// Removes the file of the socket in the end.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

const INTERVAL: Duration = Duration::from_secs(1);
/// One that does not read for so long is left.
const PATIENCE: Duration = Duration::from_secs(10);
