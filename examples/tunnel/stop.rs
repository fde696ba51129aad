//! Ending in order: what the tunnel carries is finished, within a limit of time.

use std::{convert::Infallible, time::Duration};

use tokio::sync::{mpsc, watch};

/// The end of the program, as its tasks see it.
#[derive(Clone)]
pub(crate) struct Stop {
    stopping: watch::Receiver<bool>,
    alive: mpsc::WeakSender<Infallible>,
}

/// Somebody has something to finish while this is held.
pub(crate) struct Busy {
    _alive: mpsc::Sender<Infallible>,
}

/// The end of the program, as it is brought about.
pub(crate) struct Stopper {
    stopping: watch::Sender<bool>,
    alive: mpsc::Sender<Infallible>,
    all_done: mpsc::Receiver<Infallible>,
}

impl Stopper {
    pub(crate) fn new() -> Self {
        let (alive, all_done) = mpsc::channel(1);
        Self { stopping: watch::Sender::new(false), alive, all_done }
    }

    pub(crate) fn stop(&self) -> Stop {
        Stop { stopping: self.stopping.subscribe(), alive: self.alive.downgrade() }
    }

    /// Says that the program is to end, and waits until nobody has something to finish. Whether that came within `limit`.
    pub(crate) async fn drain(self, limit: Duration) -> bool {
        let Self { stopping, alive, mut all_done } = self;
        stopping.send_replace(true);
        drop(alive);
        tokio::time::timeout(limit, all_done.recv()).await.is_ok()
    }
}

impl Stop {
    /// For work that is to be finished before the program ends. None is begun once it is about to end.
    pub(crate) fn begin(&self) -> Option<Busy> {
        if *self.stopping.borrow() {
            return None;
        }
        Some(Busy { _alive: self.alive.upgrade()? })
    }
}
