//! What an end of a WebSocket allows and asks for.

use yawc::{CompressionLevel, DeflateOptions, DeflatePool, Options};

use super::extension::Deflate;

#[derive(Clone)]
pub(crate) struct Settings {
    /// The longest message that is taken, in bytes as the application sees them.
    pub(crate) max_message: usize,
    /// Longer messages are sent in several frames; `None` for always one.
    pub(crate) fragment: Option<usize>,
    /// Without it, nothing is compressed.
    pub(crate) deflate: Option<Deflate>,
    /// A client's wishes, the best first; what a server speaks.
    pub(crate) subprotocols: Vec<String>,
    /// What a server answers to a browser that asks for `/`: HTML.
    pub(crate) page: Option<&'static str>,
    /// What compresses is lent to connections for a message, where it does not have to remember the messages before.
    pub(crate) pool: DeflatePool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            // Enough for most, and a thousand clients that each send one take a gigabyte.
            max_message: 1 << 20,
            fragment: None,
            deflate: None,
            subprotocols: Vec::new(),
            page: None,
            // As many as may compress at one moment on an ordinary machine.
            pool: DeflatePool::new(16),
        }
    }
}

impl Settings {
    /// yawc's form of them.
    pub(super) fn options(&self) -> Options {
        // It is checked for each frame, compressed and not; what does not shrink becomes a little longer. The message itself is
        // counted by `Socket`.
        let longest_frame = self.max_message.saturating_add(self.max_message / 1_024 + 64);
        let options = Options::default()
            .with_max_payload_read(longest_frame)
            .with_read_buffer_capacity(BUFFER)
            .with_write_buffer_capacity(BUFFER);
        let Some(deflate) = self.deflate else { return options };
        let compression = DeflateOptions {
            level: CompressionLevel::new(deflate.level.min(9)),
            pool: Some(self.pool.clone()),
            // An empty message is sent as it is: yawc 0.5.0 would try to compress it for ever, if anything was sent before.
            compression_threshold: 1,
            ..DeflateOptions::default()
        };
        Options { compression: Some(compression), ..options }
    }
}

/// Bytes of each of the two buffers that an idle connection keeps. They grow for a longer frame, and the one that reads shrinks again.
const BUFFER: usize = 512;
