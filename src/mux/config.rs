//! The settings of a session.

use core::time::Duration;

use super::frame::INITIAL_WINDOW;
use crate::ConfigError;

/// Which version of smux a session speaks. Both ends must say the same: smux does not negotiate, and a frame of the other
/// version ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MuxVersion {
    /// Without windows for streams: what one stream does not read takes room that all share. The default of Go's smux and of
    /// kcptun.
    #[default]
    V1,
    /// With a window for each stream: one that is not read delays no other. The better one wherever both ends can be chosen.
    V2,
}

impl MuxVersion {
    /// The number in each frame: 1 or 2.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// The settings of a session: by default those of Go's smux, but for a larger `stream_buffer`.
///
/// ```
/// use kcp9::mux::{MuxConfig, MuxVersion};
///
/// let config = MuxConfig::builder().version(MuxVersion::V2).max_streams(100).build()?;
/// assert_eq!(config.max_frame(), 32_768);
/// # Ok::<(), kcp9::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MuxConfig {
    pub(super) version: MuxVersion,
    pub(super) max_frame: usize,
    pub(super) receive_buffer: usize,
    pub(super) stream_buffer: usize,
    pub(super) send_buffer: usize,
    pub(super) keep_alive: Option<Duration>,
    pub(super) dead_timeout: Option<Duration>,
    pub(super) max_streams: usize,
    pub(super) accept_backlog: usize,
}

impl Default for MuxConfig {
    fn default() -> Self {
        Self {
            version: MuxVersion::V1,
            max_frame: 32_768,
            receive_buffer: 4 << 20,
            // What a peer may send before it is told of a window: less would hold back long links, and protect nothing.
            stream_buffer: INITIAL_WINDOW as usize,
            // A few frames at a time: with half of it, 100 writers move 7 % less.
            send_buffer: 131_072,
            keep_alive: Some(Duration::from_secs(10)),
            dead_timeout: Some(Duration::from_secs(30)),
            // About 5 MiB of state, should a peer open as many and send nothing.
            max_streams: 16_384,
            accept_backlog: 1_024,
        }
    }
}

impl MuxConfig {
    /// Begins with the defaults.
    pub fn builder() -> MuxConfigBuilder {
        MuxConfigBuilder { config: Self::default(), stream_buffer: None }
    }

    /// How long something waits for the peer that must not wait for ever.
    pub(super) fn patience(&self) -> Duration {
        self.dead_timeout.unwrap_or(PATIENCE)
    }

    /// See [`MuxConfigBuilder::version`].
    #[must_use]
    pub const fn version(&self) -> MuxVersion {
        self.version
    }

    /// See [`MuxConfigBuilder::max_frame`].
    #[must_use]
    pub const fn max_frame(&self) -> usize {
        self.max_frame
    }

    /// See [`MuxConfigBuilder::receive_buffer`].
    #[must_use]
    pub const fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// See [`MuxConfigBuilder::stream_buffer`].
    #[must_use]
    pub const fn stream_buffer(&self) -> usize {
        self.stream_buffer
    }

    /// See [`MuxConfigBuilder::send_buffer`].
    #[must_use]
    pub const fn send_buffer(&self) -> usize {
        self.send_buffer
    }

    /// See [`MuxConfigBuilder::keep_alive`].
    #[must_use]
    pub const fn keep_alive(&self) -> Option<Duration> {
        self.keep_alive
    }

    /// See [`MuxConfigBuilder::dead_timeout`].
    #[must_use]
    pub const fn dead_timeout(&self) -> Option<Duration> {
        self.dead_timeout
    }

    /// See [`MuxConfigBuilder::max_streams`].
    #[must_use]
    pub const fn max_streams(&self) -> usize {
        self.max_streams
    }

    /// See [`MuxConfigBuilder::accept_backlog`].
    #[must_use]
    pub const fn accept_backlog(&self) -> usize {
        self.accept_backlog
    }
}

/// Builds a [`MuxConfig`]; [`build`](Self::build) checks every value.
#[derive(Debug, Clone)]
#[must_use]
pub struct MuxConfigBuilder {
    config: MuxConfig,
    /// As it was set.
    stream_buffer: Option<usize>,
}

impl MuxConfigBuilder {
    /// The version of the protocol, which the peer must speak too. Default [`MuxVersion::V1`], as that of Go's smux.
    pub const fn version(mut self, version: MuxVersion) -> Self {
        self.config.version = version;
        self
    }

    /// Bytes that one frame carries at most: 1 to 65,535, default 32,768. Streams that write at the same time take turns by
    /// frames. It limits what is sent; any frame is received.
    pub const fn max_frame(mut self, bytes: usize) -> Self {
        self.config.max_frame = bytes;
        self
    }

    /// Bytes that may wait to be read in all streams together: 1 to 2^31 - 1, default 4 MiB. While they are used up, nothing is
    /// received (what has come already, 64 KiB at most, may go beyond).
    pub const fn receive_buffer(mut self, bytes: usize) -> Self {
        self.config.receive_buffer = bytes;
        self
    }

    /// Bytes that may wait to be read in one stream: 1 to [`receive_buffer`](Self::receive_buffer), default 256 KiB or, if that is
    /// less, `receive_buffer`. Only version 2 has this limit. A stream moves at most so much in a round trip: 2.6 MB/s at 100 ms
    /// with the default. A peer may send 256 KiB before it is told of less, as the protocol has it. So that streams that are not
    /// read never stop the others, `receive_buffer` must hold the buffers of as many as may be stuck at a time.
    pub const fn stream_buffer(mut self, bytes: usize) -> Self {
        self.stream_buffer = Some(bytes);
        self
    }

    /// Bytes that may wait to be sent in all streams together: 1 to 2^31 - 1, default 128 KiB. Writers that take turns may
    /// have twice as much in frames that were promised to them, and as much is on its way to the transport.
    pub const fn send_buffer(mut self, bytes: usize) -> Self {
        self.config.send_buffer = bytes;
        self
    }

    /// After how long without sending a NOP shows the peer that this end lives: 1 ms to a day, default 10 s, or never. Go's
    /// peers end a session from which they hear nothing for 30 s.
    pub const fn keep_alive(mut self, interval: Option<Duration>) -> Self {
        self.config.keep_alive = interval;
        self
    }

    /// After how long without a byte from the peer the session ends: 1 ms to a day, default 30 s, or never. The time in which
    /// nothing is received because [`receive_buffer`](Self::receive_buffer) is used up does not count. It is also how long a write
    /// waits for the window of a peer that has ended its own direction, and how long [`close`](super::MuxSession::close) waits
    /// until the transport has taken everything: 30 s where it is `None`.
    pub const fn dead_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.config.dead_timeout = timeout;
        self
    }

    /// Streams that the peer may have open at a time: 1 to 2^30, default 16,384. Another one is refused: it ends at once.
    pub const fn max_streams(mut self, streams: usize) -> Self {
        self.config.max_streams = streams;
        self
    }

    /// Streams of the peer that may wait to be accepted: 1 to 2^30, default 1,024. Another one is refused: it ends at once.
    pub const fn accept_backlog(mut self, streams: usize) -> Self {
        self.config.accept_backlog = streams;
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// A [`ConfigError`] that names the first field out of its limits.
    pub fn build(self) -> Result<MuxConfig, ConfigError> {
        let mut config = self.config;
        config.stream_buffer = self.stream_buffer.unwrap_or(config.stream_buffer.min(config.receive_buffer));
        check("max_frame", config.max_frame, usize::from(u16::MAX))?;
        check("receive_buffer", config.receive_buffer, MAX_BUFFER)?;
        check("stream_buffer", config.stream_buffer, config.receive_buffer)?;
        check("send_buffer", config.send_buffer, MAX_BUFFER)?;
        check_duration("keep_alive", config.keep_alive)?;
        check_duration("dead_timeout", config.dead_timeout)?;
        check("max_streams", config.max_streams, MAX_STREAMS)?;
        check("accept_backlog", config.accept_backlog, MAX_STREAMS)?;
        Ok(config)
    }
}

fn check(field: &'static str, value: usize, max: usize) -> Result<(), ConfigError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(ConfigError { field, value: value as u64, min: 1, max: max as u64 })
}

fn check_duration(field: &'static str, value: Option<Duration>) -> Result<(), ConfigError> {
    let Some(value) = value else { return Ok(()) };
    if (Duration::from_millis(1)..=MAX_DURATION).contains(&value) {
        return Ok(());
    }
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Err(ConfigError { field, value: millis(value), min: 1, max: millis(MAX_DURATION) })
}

/// The largest buffer: Go's smux counts in 32 bits with a sign.
const MAX_BUFFER: usize = i32::MAX as usize;
const MAX_STREAMS: usize = 1 << 30;
/// As long as the default `dead_timeout`.
const PATIENCE: Duration = Duration::from_secs(30);
const MAX_DURATION: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_their_limits_are_refused() {
        let builder = MuxConfig::builder;
        let refused = |builder: MuxConfigBuilder| builder.build().unwrap_err().field;
        assert_eq!(refused(builder().max_frame(0)), "max_frame");
        assert_eq!(refused(builder().max_frame(65_536)), "max_frame");
        assert_eq!(refused(builder().receive_buffer(0)), "receive_buffer");
        assert_eq!(refused(builder().receive_buffer(1_000).stream_buffer(1_001)), "stream_buffer");
        assert_eq!(refused(builder().send_buffer(0)), "send_buffer");
        assert_eq!(refused(builder().keep_alive(Some(Duration::ZERO))), "keep_alive");
        assert_eq!(refused(builder().dead_timeout(Some(Duration::MAX))), "dead_timeout");
        assert_eq!(refused(builder().max_streams(0)), "max_streams");
        assert_eq!(refused(builder().accept_backlog(0)), "accept_backlog");
        assert_eq!(builder().build(), Ok(MuxConfig::default()));
        assert_eq!(builder().receive_buffer(1_000).build().unwrap().stream_buffer(), 1_000);
    }
}
