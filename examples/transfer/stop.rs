//! Being asked to stop: Ctrl-C, or the system's polite signal.

use std::time::Duration;

use tokio::{signal, sync::watch, time};

/// Tells that the program was asked to stop.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// A stop that comes when the other half is told `true`.
    pub(crate) fn channel() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the program is asked to stop. Safe to cancel.
    pub(crate) async fn wait(&mut self) {
        if self.0.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Waits for the first signal, says so through `stop`, and returns when what follows takes too long or at the second.
pub(crate) async fn on_signals(stop: watch::Sender<bool>) {
    signalled().await;
    stop.send_replace(true);
    let _ = time::timeout(GRACE, signalled()).await;
}

async fn signalled() {
    #[cfg(unix)]
    if let Ok(mut terminate) = signal::unix::signal(signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    let _ = signal::ctrl_c().await;
}

/// Long enough to tell the other end, short enough for who waits for the prompt.
const GRACE: Duration = Duration::from_secs(2);
