//! Settings that may change while a session lives.

use core::time::Duration;

use super::Connection;
use crate::proto::{
    config::{NoDelay, limits},
    error::SettingError,
    fec::{self, AdaptiveFec},
    wire::HEADER_LEN,
};

impl Connection {
    /// Changes the windows, in segments.
    ///
    /// # Errors
    /// [`SettingError::Config`] for a window outside 1 to 65,535.
    pub fn set_windows(&mut self, send: u32, recv: u32) -> Result<(), SettingError> {
        limits::check_window("send_window", send)?;
        limits::check_window("recv_window", recv)?;
        self.arq.set_windows(send, recv);
        self.after_progress();
        Ok(())
    }

    /// Changes the four knobs of `ikcp_nodelay`.
    ///
    /// # Errors
    /// [`SettingError::Config`] for an interval outside 1 ms to 5 s.
    pub fn set_nodelay(&mut self, nodelay: NoDelay) -> Result<(), SettingError> {
        nodelay.validate()?;
        self.arq.set_nodelay(nodelay);
        Ok(())
    }

    /// Changes the size of the packets to come.
    ///
    /// # Errors
    /// [`SettingError::Config`] for an mtu outside 64 to 65,507, [`SettingError::MtuBelowQueued`] while segments are
    /// queued or in flight that would not fit.
    pub fn set_mtu(&mut self, mtu: usize) -> Result<(), SettingError> {
        let overhead = self.pipeline.overhead();
        limits::check_mtu(mtu, overhead, self.pipeline.crypto())?;
        self.arq.set_mss(mtu - overhead - HEADER_LEN, overhead)?;
        self.mtu = mtu;
        Ok(())
    }

    /// Changes the forward error correction of what is sent: data and parity packets of a group, 1 to 256 together, or
    /// none for 0 and 0. Takes effect when the group under way is complete.
    ///
    /// kcp-go's receiver decodes by its own shards until it has found out these, for which it needs packets without a gap;
    /// 5.6.72 recovers nothing from groups larger than before, until it counts as many of them.
    ///
    /// # Errors
    /// [`SettingError::Config`] for other numbers, [`SettingError::MtuBelowQueued`] when FEC is turned on for the first
    /// time while segments are queued or in flight that leave no room for its header.
    pub fn set_fec(&mut self, data: usize, parity: usize) -> Result<(), SettingError> {
        let code = limits::fec_code(data, parity)?;
        // Room for the header stays when FEC is turned off: while segments are in flight that take it, it could not be
        // turned on again.
        if code.is_some() && !self.pipeline.has_fec_room() {
            let overhead = self.pipeline.overhead() + fec::HEADER_LEN;
            limits::check_mtu(self.mtu, overhead, self.pipeline.crypto())?;
            self.arq.set_mss(self.mtu - overhead - HEADER_LEN, overhead)?;
        }
        self.pipeline.set_code(code);
        Ok(())
    }

    /// Changes whether the parity of what is sent follows the losses: see
    /// [`KcpConfigBuilder::fec_adaptive`](crate::KcpConfigBuilder::fec_adaptive).
    ///
    /// # Errors
    /// [`SettingError::Config`] for a budget outside 1 to 1,000 or a `min_parity` above 255; one above what a group has
    /// counts as that.
    pub fn set_fec_adaptive(&mut self, limits: Option<AdaptiveFec>) -> Result<(), SettingError> {
        limits::check_adaptive(limits)?;
        self.pipeline.set_adaptive(limits);
        Ok(())
    }

    /// Changes how long segments wait for the parity of an incomplete group: see
    /// [`KcpConfigBuilder::fec_flush`](crate::KcpConfigBuilder::fec_flush).
    ///
    /// # Errors
    /// [`SettingError::Config`] for a time outside 1 ms to 1 s.
    pub fn set_fec_flush(&mut self, after: Option<Duration>) -> Result<(), SettingError> {
        limits::check_flush(after)?;
        self.arq.set_copies_after(after);
        Ok(())
    }

    /// Changes whether later writes form a byte stream.
    pub const fn set_stream(&mut self, stream: bool) {
        self.arq.set_stream(stream);
    }

    /// Changes whether an ACK is sent for every batch of packets.
    pub const fn set_ack_no_delay(&mut self, ack_no_delay: bool) {
        self.arq.set_ack_no_delay(ack_no_delay);
    }

    /// Changes whether writes wait for more.
    pub const fn set_write_delay(&mut self, write_delay: bool) {
        self.arq.set_write_delay(write_delay);
    }
}
