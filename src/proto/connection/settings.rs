//! The settings of a live session.

use super::Connection;
use crate::proto::{
    config::{SessionSettings, limits},
    error::SettingError,
    fec,
};

impl Connection {
    /// The settings as they are now: those of the configuration, with the changes made since.
    #[must_use]
    pub fn settings(&self) -> SessionSettings {
        SessionSettings {
            mtu: self.mtu(),
            fec: self.pipeline.next_shards(),
            fec_adaptive: self.pipeline.adaptive_limits(),
            ..self.arq.settings()
        }
    }

    /// Changes settings: `change` is given the present ones. They are applied together, or not at all where one of them is
    /// refused. Call [`poll_transmit`](Self::poll_transmit) afterwards, since a change may make more sendable.
    ///
    /// # Errors
    /// [`SettingError::Config`] for a value that the configuration would not take either. [`SettingError::MtuBelowQueued`]
    /// while segments are queued or in flight that do not fit the new packets, because the mtu is smaller, or because FEC is
    /// turned on for the first time and its header takes room.
    pub fn update_settings(&mut self, change: impl FnOnce(&mut SessionSettings)) -> Result<(), SettingError> {
        let old = self.settings();
        let mut new = old;
        change(&mut new);
        if new == old {
            return Ok(());
        }
        new.check()?;
        // The room for FEC's header stays once it is there. While segments are in flight that fill the packets without it,
        // FEC could not be turned on again.
        let gets_fec_room = new.has_fec() && !self.pipeline.has_fec_room();
        let overhead = self.pipeline.overhead() + if gets_fec_room { fec::HEADER_LEN } else { 0 };
        limits::check_mtu(new.mtu, overhead, self.pipeline.crypto())?;
        // The last that may refuse the change, and it changes nothing where it does.
        if new.mtu != old.mtu || gets_fec_room {
            self.arq.set_mtu(new.mtu, overhead)?;
        }
        self.apply_settings(&old, &new);
        Ok(())
    }

    /// Hands what has changed to the layers below.
    fn apply_settings(&mut self, old: &SessionSettings, new: &SessionSettings) {
        if new.fec != old.fec {
            self.pipeline.set_code(limits::fec_code(new.fec));
        }
        self.pipeline.set_adaptive(new.fec_adaptive);
        if new.fec_flush != old.fec_flush {
            self.arq.set_fec_flush(new.fec_flush);
        }
        if new.nodelay != old.nodelay {
            self.arq.set_nodelay(new.nodelay);
        }
        if (new.send_window, new.recv_window) != (old.send_window, old.recv_window) {
            self.arq.set_windows(new.send_window, new.recv_window);
        }
        self.arq.set_stream(new.stream);
        self.arq.set_ack_no_delay(new.ack_no_delay);
        if new.write_delay != old.write_delay {
            self.arq.set_write_delay(new.write_delay);
        }
        // Larger windows may have room for a writer that waits, or make a message whole that waits to be read.
        self.after_progress();
    }
}
