//! What the core tells [`tracing`](https://docs.rs/tracing), with the feature `tracing`; without it, nothing.
//!
//! Every event is a function here, and one line with [`tell!`](tell) where it happens. Without the feature that line is code behind a
//! constant `false`, so that not an instruction is left of it. An event has numbers, addresses and words of this
//! crate in it, never a byte of an application or of a key. `docs/tracing.md` has the table of all events, and
//! `tests/tracing` holds it against what comes.

use core::{net::SocketAddr, time::Duration};

use super::{
    congestion::{Controller, LossCause},
    connection::Connection,
    error::CloseReason,
    fec::FecEvent,
};

/// Where an event belongs: what filters name.
#[cfg(feature = "tracing")]
pub(crate) mod target {
    pub(crate) const SESSION: &str = "kcp9::session";
    pub(crate) const PATH: &str = "kcp9::path";
    pub(crate) const CONGESTION: &str = "kcp9::congestion";
    pub(crate) const LOSS: &str = "kcp9::loss";
    pub(crate) const FEC: &str = "kcp9::fec";
    pub(crate) const WINDOW: &str = "kcp9::window";
    pub(crate) const ENDPOINT: &str = "kcp9::endpoint";
    #[cfg(feature = "mux")]
    pub(crate) const MUX: &str = "kcp9::mux";
}

/// Calls one of the functions below, in builds with the feature.
macro_rules! tell {
    ($name:ident($($argument:expr),*)) => {
        if cfg!(feature = "tracing") {
            $crate::proto::trace::$name($($argument),*);
        }
    };
}
pub(crate) use tell;

/// Defines each function twice: as it is written, and empty for a build without the feature.
macro_rules! events {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {$(
        $(#[$doc])*
        #[cfg(feature = "tracing")]
        #[inline]
        pub(crate) fn $name($($argument: $type),*) $body

        $(#[$doc])*
        #[cfg(not(feature = "tracing"))]
        #[inline(always)]
        pub(crate) const fn $name($(_: $type),*) {}
    )*};
}

/// One event. The name and the fields are those of the table.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $target:ident, $name:literal, { $($fields:tt)* }, $text:literal) => {
        tracing::event!(name: $name, target: target::$target, tracing::Level::$level, { $($fields)* }, $text)
    };
}

events! {
    // ---- A session's life ----

    /// The peer has answered for the first time.
    fn connected() {
        event!(DEBUG, SESSION, "connected", {}, "the peer has answered");
    }

    /// The peer of an accepted session has shown that it hears this end.
    fn validated() {
        event!(DEBUG, SESSION, "validated", {}, "the peer hears this end");
    }

    /// The session has ended.
    fn ended(session: &Connection, reason: CloseReason) {
        if tracing::enabled!(target: target::SESSION, tracing::Level::DEBUG) {
            let super::stats::Stats { udp, stream, recovery, .. } = session.stats();
            let (packets_sent, packets_received) = (udp.packets_sent, udp.packets_received);
            let (bytes_written, bytes_read) = (stream.bytes_written, stream.bytes_read);
            event!(DEBUG, SESSION, "ended", {
                reason = ?reason, packets_sent, packets_received, bytes_written, bytes_read, resends = recovery.resends()
            }, "the session has ended");
        }
    }

    // ---- Its path ----

    /// The session follows its peer to another address.
    fn peer_moved(peer: SocketAddr) {
        event!(DEBUG, PATH, "peer_moved", { peer = %peer }, "the peer is at another address");
    }

    /// This end has another address, and has told its peer.
    fn rebound() {
        event!(DEBUG, PATH, "rebound", {}, "this end has another address");
    }

    /// New segments are cut for another PLPMTU than before, `from`, because of `cause`.
    fn plpmtu(from: usize, to: usize, cause: &'static str) {
        if from != to {
            event!(DEBUG, PATH, "plpmtu", { from, to, cause }, "new packets have another size");
        }
    }

    /// Probes of `size` bytes, which passed before, are lost while packets of the PLPMTU pass.
    fn black_hole(size: usize, plpmtu: usize) {
        event!(DEBUG, PATH, "black_hole", { size, plpmtu }, "the path drops packets that are longer");
    }

    /// Packets of so many bytes each are sent without DF.
    fn fragmentable(bytes: usize, packets: usize, plpmtu: usize) {
        event!(TRACE, PATH, "fragmentable", { bytes, packets, plpmtu }, "packets may go as fragments");
    }

    /// The path carries the marks of ECN.
    fn ecn_capable() {
        event!(DEBUG, PATH, "ecn_capable", {}, "the path carries ECN");
    }

    /// Packets go without ECN from here on, because of `cause`.
    fn ecn_failed(cause: &'static str) {
        event!(DEBUG, PATH, "ecn_failed", { cause }, "ECN is turned off for this path");
    }

    /// The peer has reported marks. Whether congestion control was told of them.
    fn ecn_marked(packets: u32, told: bool) {
        event!(TRACE, CONGESTION, "ecn_marked", { packets, told }, "the peer reports congestion");
    }

    // ---- Losses ----

    /// A segment was found lost, by `cause`.
    fn lost(sn: u32, bytes: u64, cause: LossCause) {
        let cause = match cause {
            LossCause::Skipped => "skipped",
            LossCause::SkippedEarly => "skipped_early",
            LossCause::Timeout => "timeout",
        };
        event!(TRACE, LOSS, "lost", { sn, bytes, cause }, "a segment is found lost");
    }

    /// A segment is sent again.
    fn resent(sn: u32, bytes: u64, cause: &'static str) {
        event!(TRACE, LOSS, "resent", { sn, bytes, cause }, "a segment is sent again");
    }

    /// The RTO of a segment has passed.
    fn rto(sn: u32, rto: Duration, in_flight: u32) {
        let rto_us = rto.as_micros() as u64;
        event!(DEBUG, LOSS, "rto", { sn, rto_us, in_flight }, "the RTO of a segment has passed");
    }

    /// Segments of so many bytes that were found lost have arrived before they were sent again.
    fn spurious(bytes: u64) {
        if bytes > 0 {
            event!(TRACE, LOSS, "spurious", { bytes }, "segments were not lost after all");
        }
    }

    // ---- Forward error correction ----

    /// Packets of the group that begins with the number `group` were computed from parity.
    fn recovered(group: u32, packets: u64) {
        if packets > 0 {
            event!(TRACE, FEC, "recovered", { group, packets }, "lost packets are recovered");
        }
    }

    /// Packets of a group are missing and will not be recovered.
    fn gave_up(group: u32, packets: u64) {
        if packets > 0 {
            event!(TRACE, FEC, "gave_up", { group, packets }, "lost packets are not recovered");
        }
    }

    /// The peer's FEC is not as this end's, or cannot be decoded.
    fn peer_fec(event: FecEvent) {
        match event {
            FecEvent::PeerShards { data, parity } => {
                event!(DEBUG, FEC, "peer_shards", { data, parity }, "the peer's group size is known, and another one");
            }
            FecEvent::Undecodable => {
                event!(DEBUG, FEC, "undecodable", {}, "nothing can be recovered from the peer's parity");
            }
        }
    }

    // ---- Windows ----

    /// The peer told its free window.
    fn peer_window(before: u32, window: u32) {
        match (before, window) {
            (1.., 0) => event!(DEBUG, WINDOW, "window_closed", { side = "peer" }, "a receive window is closed"),
            (0, 1..) => event!(DEBUG, WINDOW, "window_reopened", { side = "peer", window }, "a receive window is open again"),
            _ => {}
        }
    }

    /// This end tells its free window.
    fn own_window(before: u32, window: u32) {
        match (before, window) {
            (1.., 0) => event!(DEBUG, WINDOW, "window_closed", { side = "own" }, "a receive window is closed"),
            (0, 1..) => event!(DEBUG, WINDOW, "window_reopened", { side = "own", window }, "a receive window is open again"),
            _ => {}
        }
    }

    /// A window probe is sent.
    fn window_probe() {
        event!(TRACE, WINDOW, "window_probe", {}, "the peer is asked for its window");
    }

    // ---- Keys ----

    /// Half of the packets are sealed that may be sealed under one key with random nonces.
    fn nonces_half_used(sealed: u64, limit: u64) {
        event!(WARN, ENDPOINT, "nonces_half_used", { sealed, limit }, "a key has sealed half of the packets that it may: it is time for another one");
    }

    // ---- Many sessions over one socket ----

    /// Packets that would begin a session do not.
    fn refused(peer: SocketAddr, conv: u32, cause: &'static str, packets: u64) {
        event!(DEBUG, ENDPOINT, "refused", { peer = %peer, conv, cause, packets }, "no session is begun");
    }
}

/// The mode that a congestion controller was in when it was looked at last. Nothing without the feature.
#[derive(Debug, Default)]
pub(super) struct ModeWatch {
    #[cfg(feature = "tracing")]
    last: Option<&'static str>,
}

impl ModeWatch {
    /// Looks at the mode, after calls of the controller.
    #[cfg(feature = "tracing")]
    #[inline]
    pub(super) fn look(&mut self, controller: Option<&dyn Controller>) {
        if tracing::enabled!(target: target::CONGESTION, tracing::Level::DEBUG) {
            let now = controller.and_then(|controller| controller.mode());
            if now != self.last
                && let Some(controller) = controller
                && let Some((from, to)) = self.last.zip(now)
            {
                let (window, pacing_rate) = (controller.window(), controller.pacing_rate().unwrap_or(0));
                event!(DEBUG, CONGESTION, "mode", { from, to, window, pacing_rate }, "the congestion controller changes its mode");
            }
            self.last = now;
        }
    }

    /// Looks at the mode, after calls of the controller.
    #[cfg(not(feature = "tracing"))]
    #[inline(always)]
    pub(super) const fn look(&mut self, _: Option<&dyn Controller>) {}
}
