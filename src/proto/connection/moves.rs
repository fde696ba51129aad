//! A session goes on although one of its ends has another address than before.
//!
//! A connection knows no address: its caller sends what [`Connection::poll_transmit`] returns to the peer. But an end that
//! follows its peer must ask at the new address before it believes in it. So what comes from elsewhere is handed in together
//! with its source, and what is to be sent elsewhere has a call of its own.

#[cfg(feature = "noise")]
use alloc::vec::Vec;
use core::{fmt, net::SocketAddr};

use super::{Connection, State, Transmit, ends::EndEvents};
use crate::proto::{
    time::Instant,
    trace::tell,
    wire::{Command, Segments},
};

/// Why a session cannot go on at another address of this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RebindError {
    /// The peer does not follow: it has no extensions, has not answered yet, or the session has no authenticating cipher.
    NotFollowed,
    /// The session has ended.
    Closed,
}

impl fmt::Display for RebindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFollowed => "the peer does not follow to another address",
            Self::Closed => "the session has ended",
        })
    }
}

impl core::error::Error for RebindError {}

impl Connection {
    // ---- The end that has another address ----

    /// Whether [`rebind`](Self::rebind) is possible. The peer follows if it accepted this session, if both ends have the
    /// [extensions](crate::proto::Extensions), and if the cipher authenticates packets.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.extension.as_ref().is_some_and(|extension| extension.is_followed())
    }

    /// This end has another address from now on: its program has another socket, or knows that its network has changed. The
    /// peer is told at once, and follows when it has seen that nobody answers at the old address, which takes three of its
    /// retransmission timeouts. What is lost meanwhile is sent again. Nothing is known of the new path, so round-trip times
    /// and congestion control begin anew.
    ///
    /// Without this call a peer that follows notices too, but later: when this end has sent something three times without an
    /// answer, or by [`keep_alive`](crate::KcpConfigBuilder::keep_alive).
    ///
    /// # Errors
    /// [`RebindError`]: the peer would not follow. Then the session should end, or keep its socket.
    pub fn rebind(&mut self, now: Instant) -> Result<(), RebindError> {
        if let State::Closed(_) = self.state {
            return Err(RebindError::Closed);
        }
        let extension = self.extension.as_mut().filter(|extension| extension.is_followed());
        extension.ok_or(RebindError::NotFollowed)?.rebind();
        self.arq.change_path(now);
        tell!(rebound());
        Ok(())
    }

    // ---- The end that follows ----

    /// The tag in PINGs and PONGs of the peer, if this end follows it.
    pub(crate) fn followed_tag(&self) -> Option<u32> {
        self.extension.as_ref().filter(|extension| extension.follows()).map(|extension| extension.tag())
    }

    /// Whether the peer may have another address, which is not decided yet.
    #[cfg(feature = "tokio")]
    pub(crate) fn may_move(&self) -> bool {
        self.extension.as_ref().is_some_and(|extension| extension.may_move())
    }

    /// Takes in decrypted packets of this session that came from another address than the peer's:
    /// [`Routed::FromElsewhere`](crate::proto::Routed::FromElsewhere). (Those of a session with keys of its own are opened here, in a copy.) They lie back to back and have `stride` bytes each, the last may be
    /// shorter. Only what asks and answers whether the peer is there counts in them. If it is, and no longer at the old
    /// address, [`Event::Moved`](super::Event::Moved) comes.
    pub fn handle_from_elsewhere(&mut self, now: Instant, packets: &[u8], stride: usize, source: SocketAddr) {
        if let State::Closed(_) = self.state {
            return;
        }
        let conditions = self.arq.conditions();
        for packet in packets.chunks(stride.max(1)) {
            let Some(extension) = self.extension.as_mut() else { return };
            let udp = &mut self.arq.counters_mut().udp;
            udp.packets_received += 1;
            udp.bytes_received += packet.len() as u64;
            // They are not opened for good: what comes from there may be a copy.
            #[cfg(feature = "noise")]
            let mut copy = Vec::new();
            #[cfg(feature = "noise")]
            let packet = match self.pipeline.sealed_mut() {
                None => packet,
                Some(sealed) => {
                    copy.extend_from_slice(packet);
                    match sealed.peek(&mut copy) {
                        Ok(()) => &copy[..],
                        Err(error) => {
                            udp.count_refused(error);
                            continue;
                        }
                    }
                }
            };
            let Some(segments) = self.pipeline.segments_from_elsewhere(packet) else {
                udp.replayed += 1;
                continue;
            };
            for (header, body) in Segments::new(segments).map_while(Result::ok) {
                if header.cmd == Command::Extension && header.conv == self.arq.conv() {
                    let is_fresh = |ts| self.arq.is_fresh(now, ts);
                    extension.input_from(now, source, &header, body, &conditions, is_fresh);
                }
            }
        }
        self.after_extension_input(now);
    }

    /// Writes the next packet that is to be sent to another address than the peer's, and returns that address. To be called
    /// after [`handle_from_elsewhere`](Self::handle_from_elsewhere) until it returns `None`. `None` also when `buf` is shorter than
    /// the mtu.
    pub fn poll_transmit_elsewhere(
        &mut self,
        now: Instant,
        buf: &mut [u8],
    ) -> Option<(SocketAddr, Transmit)> {
        if let State::Closed(_) = self.state {
            return None;
        }
        let (head, tail) = (self.pipeline.crypto_head(), self.pipeline.tail());
        let out = buf.get_mut(head..self.mtu().saturating_sub(tail))?;
        let extension = self.extension.as_mut()?;
        let (to, len) = extension.write_elsewhere(self.arq.envelope(now), out)?;
        let len = head + len + tail;
        self.arq.charge(now, len);
        self.arq.counters_mut().segments.sent += 1;
        Some((to, self.encrypt(now, &mut buf[..len], len, false)?))
    }

    /// The peer is at another address, and there it was heard.
    #[cold]
    pub(super) fn follow_peer(&mut self, now: Instant) {
        self.arq.change_path(now);
        self.arq.note_answer(now);
        self.end_events.add(EndEvents::MOVED);
    }
}
