//! Requests to stop: Ctrl-C or SIGTERM.

use std::time::Duration;

use tokio::{signal, sync::watch, time};

/// Shows whether the program was asked to stop.
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

/// Waits for a signal and announces it through `stop`. Returns at the second signal, or when stopping takes too long.
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

/// Long enough to tell the other end, short enough for a person who waits for the prompt.
const GRACE: Duration = Duration::from_secs(2);
