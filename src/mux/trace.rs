//! The span of a session, and what it tells [`tracing`](https://docs.rs/tracing), with the feature `tracing`. Without it, a type without
//! a size and functions without a body.
//!
//! The events name the span as their parent, whoever works on the session: nobody enters it, so that reads, writes and frames cost
//! nothing. No event is of a frame that carries bytes. `docs/tracing.md` has the table of all events.

#[cfg(feature = "tracing")]
use tracing::{Level, Span};

use super::{MuxConfig, MuxError, MuxRole, MuxStats};
#[cfg(feature = "tracing")]
use crate::proto::trace::target;

/// The span of a session.
#[derive(Debug)]
pub(super) struct MuxTrace {
    #[cfg(feature = "tracing")]
    span: Span,
}

/// Defines each function twice: as it is written, and empty for a build without the feature.
macro_rules! events {
    ($($(#[$doc:meta])* fn $name:ident(&$this:ident $(, $argument:ident: $type:ty)*) $body:block)*) => {
        impl MuxTrace {$(
            $(#[$doc])*
            #[cfg(feature = "tracing")]
            pub(super) fn $name(&$this $(, $argument: $type)*) $body

            $(#[$doc])*
            #[cfg(not(feature = "tracing"))]
            #[inline(always)]
            pub(super) const fn $name(&self $(, _: $type)*) {}
        )*}
    };
}

/// One event. The name and the fields are those of the table.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($this:ident, $name:literal, { $($fields:tt)* }, $text:literal) => {
        tracing::event!(name: $name, target: target::MUX, parent: &$this.span, Level::DEBUG, { $($fields)* }, $text)
    };
}

impl MuxTrace {
    /// The span of a session that begins, inside of the one that its maker is in.
    #[cfg(feature = "tracing")]
    pub(super) fn new(config: &MuxConfig, role: MuxRole) -> Self {
        let role = match role {
            MuxRole::Client => "client",
            MuxRole::Server => "server",
        };
        let version = config.version.number();
        let this = Self { span: tracing::debug_span!(target: target::MUX, "mux", role, version) };
        let MuxConfig { receive_buffer, stream_buffer, send_buffer, max_streams, .. } = *config;
        event!(this, "mux_opened", { receive_buffer, stream_buffer, send_buffer, max_streams }, "a session of streams is begun");
        this
    }

    /// Without the feature there is none.
    #[cfg(not(feature = "tracing"))]
    pub(super) const fn new(_: &MuxConfig, _: MuxRole) -> Self {
        Self {}
    }
}

events! {
    /// This end has opened a stream.
    fn stream_opened(&self, stream: u32) {
        event!(self, "stream_opened", { stream }, "this end has opened a stream");
    }

    /// A stream of the peer is handed to the application.
    fn stream_accepted(&self, stream: u32) {
        event!(self, "stream_accepted", { stream }, "a stream of the peer is accepted");
    }

    /// A stream of the peer ends before it was accepted, because of `cause`.
    fn stream_refused(&self, stream: u32, cause: &'static str) {
        event!(self, "stream_refused", { stream, cause }, "a stream of the peer is refused");
    }

    /// The handle of a stream is gone. Whether this end had ended its direction before, and the peer; how many bytes nobody has read.
    fn stream_ended(&self, stream: u32, finished: bool, peer_finished: bool, unread_bytes: usize) {
        event!(self, "stream_ended", { stream, finished, peer_finished, unread_bytes }, "a stream is forgotten");
    }

    /// The session has ended.
    fn ended(&self, reason: &MuxError, stats: MuxStats) {
        let MuxStats { open_streams, opened, accepted, refused, bytes_sent, bytes_received, .. } = stats;
        event!(self, "mux_ended", {
            reason = ?Reason(reason), open_streams, opened, accepted, refused, bytes_sent, bytes_received
        }, "the session of streams has ended");
    }
}

/// A reason as `Debug` writes it, but for what a transport says: that may be anything.
#[cfg(feature = "tracing")]
struct Reason<'a>(&'a MuxError);

#[cfg(feature = "tracing")]
impl core::fmt::Debug for Reason<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            MuxError::Transport(error) => write!(f, "Transport({:?})", error.kind()),
            other => other.fmt(f),
        }
    }
}
