//! What a connection sends: batches of packets, laid out for one system call.

use super::{Connection, State};
use crate::proto::{ecn::EcnCodepoint, path::ProbeBy, time::Instant, wire::HEADER_LEN};

/// Most packets of one [`Transmit`]: what Linux takes in one GSO send.
pub(super) const MAX_BATCH: usize = 64;
/// Most bytes of one [`Transmit`]: what one GSO send takes over IPv4 and IPv6.
pub(super) const MAX_BATCH_BYTES: usize = 65_487;

/// Packets ready to be sent to the peer: the first [`len`](Self::len) bytes of the buffer that
/// [`Connection::poll_transmit`] was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "packets that are not sent are lost until their timeout"]
pub struct Transmit {
    /// Bytes of all packets together.
    pub len: usize,
    /// Bytes of every packet but the last, which may be shorter.
    pub stride: usize,
    /// How the ECN fields of their IP headers are to be set. Where that is not possible, they may go as
    /// [`EcnCodepoint::NotEct`]: see [`KcpConfigBuilder::ecn`](crate::KcpConfigBuilder::ecn).
    pub ecn: EcnCodepoint,
    /// The packets are longer than what the path carries, as far as is known: they are to be sent without IP's *don't fragment*
    /// (DF). All others are to be sent with it. A segment keeps the size that it was first sent with, so this happens when the path
    /// has changed. Where it cannot be done, such packets are probably lost.
    pub may_fragment: bool,
}

impl Transmit {
    /// How many packets there are.
    #[must_use]
    pub const fn packets(&self) -> usize {
        self.len.div_ceil(self.stride)
    }
}

impl Connection {
    /// Writes the next packets into `buf`, back to back, as one GSO send takes them: all of one size, but the last may be
    /// shorter. It writes at most 64 packets and no more than fit. `None` when there is nothing to send, or when `buf` is
    /// shorter than the mtu.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        self.transmit(now, buf, false)
    }

    /// As [`poll_transmit`](Self::poll_transmit). A `corked` call is for a writer that is about to write more. While
    /// something is in flight, it holds back less than 16 segments of written data, and the rest that does not fill a
    /// segment. A call that is not corked must follow soon.
    pub(crate) fn transmit(&mut self, now: Instant, buf: &mut [u8], corked: bool) -> Option<Transmit> {
        #[cfg(feature = "noise")]
        if self.agreement.is_some()
            && let Some(transmit) = self.transmit_agreement(now, buf)
        {
            return transmit;
        }
        if self.arq.is_validating() {
            return self.transmit_unvalidated(now, buf);
        }
        self.transmit_within(now, buf, corked, self.mtu())
    }

    /// As [`transmit`](Self::transmit). No packet is longer than `mtu`, which may be less than the session's.
    #[inline]
    pub(super) fn transmit_within(
        &mut self,
        now: Instant,
        buf: &mut [u8],
        corked: bool,
        mtu: usize,
    ) -> Option<Transmit> {
        self.extension.look();
        if let State::Closed(reason) = self.state {
            if self.has_urgent_extension() {
                return self.transmit_extension(now, buf, mtu);
            }
            if !self.answers_resends(reason) {
                return None;
            }
        } else {
            if self.has_urgent_extension()
                && let Some(transmit) = self.transmit_extension(now, buf, mtu)
            {
                return Some(self.append_first_write(now, buf, corked, transmit));
            }
            if self.ecn.is_overdue()
                && let Some(transmit) = self.transmit_ecn(now, buf, mtu)
            {
                return Some(transmit);
            }
            // Before the datagrams: these may be all that there is to send, and be the reason.
            let asks = self.arq.may_probe_mtu() || (self.datagrams.has_unsent() && self.has_mtu_question());
            if asks
                && mtu == self.mtu()
                && let Some(transmit) = self.transmit_mtu_probe(now, buf)
            {
                return Some(transmit);
            }
            if self.datagrams.is_turn()
                && let Some(transmit) = self.transmit_datagrams(now, buf, mtu)
            {
                return Some(transmit);
            }
        }
        if let Some(transmit) = self.transmit_stream(now, buf, corked, mtu, MAX_BATCH) {
            Some(transmit)
        } else if self.datagrams.has_unsent() {
            self.transmit_datagrams(now, buf, mtu)
        } else if self.has_urgent_extension() {
            // Nothing is left before the end of the stream.
            self.transmit_extension(now, buf, mtu)
        } else {
            None
        }
    }

    /// Writes the first that was written behind this end's HELLO or ANSWER, if it fits a packet that is no longer: one system call sends
    /// both, and may receive both.
    #[cold]
    fn append_first_write(
        &mut self,
        now: Instant,
        buf: &mut [u8],
        corked: bool,
        begin: Transmit,
    ) -> Transmit {
        let room = begin.len.saturating_sub(self.pipeline.head() + self.pipeline.tail() + HEADER_LEN);
        if !self.arq.is_first_write_within(room) {
            return begin;
        }
        let rest = &mut buf[begin.len..];
        let first = self.transmit_stream(now, rest, corked, begin.len, 1);
        first.map_or(begin, |first| Transmit { len: begin.len + first.len, ..begin })
    }

    /// Writes the next packets of the stream and of its FEC, at most `most`.
    #[inline]
    fn transmit_stream(
        &mut self,
        now: Instant,
        buf: &mut [u8],
        corked: bool,
        mtu: usize,
        most: usize,
    ) -> Option<Transmit> {
        self.pipeline.skip_parity_over(mtu);
        self.arq.set_flush_copies(self.pipeline.flush_copies());
        let (head, tail) = (self.pipeline.head(), self.pipeline.tail());
        let room = buf.len().min(MAX_BATCH_BYTES.max(mtu));
        let limit = mtu.min(self.arq.plpmtu());
        let mut flush = self.arq.begin_flush(now, corked);
        if limit < self.arq.plpmtu() {
            flush.limit_segments(mtu.saturating_sub(head + tail + HEADER_LEN));
        }
        let packet = self
            .pipeline
            .parity_len()
            .or_else(|| self.arq.next_oversize(now, &flush).map(|len| head + HEADER_LEN + len + tail));
        let oversize = packet.filter(|packet| limit < *packet && *packet <= mtu);
        if oversize.is_some() {
            flush.set_oversize();
        }
        let mut size = oversize.unwrap_or(limit);
        let mut len = 0;
        let mut count = 0;
        let extends = self.has_appendable_extension() || self.ecn.is_due();
        // A batch ends where the length of headers changes: where FEC is turned off at the end of a group.
        while count < most && len + size <= room && self.pipeline.head() == head {
            let packet = if let Some(parity) = self.pipeline.parity_len() {
                // A parity packet that is longer than the packets of this batch goes with the next one.
                if parity > size {
                    break;
                }
                if self.pipeline.write_parity(&mut buf[len..len + parity]) {
                    self.arq.on_parity(now);
                }
                parity
            } else {
                let out = &mut buf[len + head..len + size - tail];
                let mut written = self.arq.fill(now, out, &mut flush);
                if written == 0 {
                    break;
                }
                if extends {
                    written += self.append_extension(now, &mut buf[len + head + written..len + size - tail]);
                }
                let packet = head + written + tail;
                self.pipeline.complete(now, &mut buf[len..len + packet]);
                packet
            };
            len += packet;
            count += 1;
            if count == 1 {
                size = packet;
            } else if packet < size {
                break;
            }
            // The next one may have another size, or the PLPMTU has fallen.
            if oversize.is_some() || self.arq.plpmtu() < limit {
                break;
            }
        }
        self.arq.end_flush(now, &flush);
        self.datagrams.after_stream();
        if self.state != State::Established {
            self.check_ends(now);
        }
        if count == 0 {
            return None;
        }
        let first = self.arq.is_first_unacknowledged();
        let mut transmit = self.encrypt(now, &mut buf[..len], size, first)?;
        debug_assert!(oversize.is_none_or(|packet| len == packet), "{len} bytes instead of {oversize:?}");
        if oversize.is_some() {
            // Without ECN: fragments of one packet may be marked and bleached apart from each other.
            self.allow_fragments(&mut transmit);
        } else {
            transmit.ecn = self.arq.ecn_of_batch(now, count, &flush);
        }
        self.ecn.after_packets();
        self.note_room();
        Some(transmit)
    }

    /// The packets are longer than what the path carries, as far as is known.
    #[cold]
    pub(super) fn allow_fragments(&mut self, transmit: &mut Transmit) {
        transmit.may_fragment = true;
        self.arq.note_fragmentable(transmit.stride, transmit.packets());
    }

    /// The longest packet with a padded PING that the peer takes, if it is known to take one.
    pub(super) fn longest_ping(&self) -> usize {
        self.extension.as_ref().map_or(0, |extension| extension.longest_ping())
    }

    /// Sends a probe of the path's MTU, if it is time for one. It has no FEC header: what FEC recovers says nothing of the size of
    /// what was lost.
    #[cold]
    fn transmit_mtu_probe(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        match self.arq.poll_mtu_probe(now, self.longest_ping())? {
            ProbeBy::Ping(size) => {
                self.extension.as_mut()?.probe_mtu(size);
                self.transmit_extension(now, buf, self.mtu())
            }
            ProbeBy::Push => {
                let size = self.arq.push_probe_due()?;
                let (head, tail) = (self.pipeline.crypto_head(), self.pipeline.tail());
                let first = self.arq.is_first_unacknowledged();
                let out = buf.get_mut(head..size - tail)?;
                if !self.arq.fill_push_probe(now, out) {
                    return None;
                }
                self.note_room();
                self.encrypt(now, &mut buf[..size], size, first)
            }
        }
    }

    /// Encrypts and counts a batch of packets of `size` bytes each, of which the last may be shorter. Ends the session where
    /// the cipher can encrypt no more.
    pub(super) fn encrypt(
        &mut self,
        now: Instant,
        packets: &mut [u8],
        size: usize,
        first: bool,
    ) -> Option<Transmit> {
        if let Err(reason) = self.pipeline.encrypt(now, packets, size, first) {
            self.close(reason);
            return None;
        }
        // What congestion control does not govern must not be marked (RFC 8085, section 3.1.7). Payload is the caller's.
        let transmit =
            Transmit { len: packets.len(), stride: size, ecn: EcnCodepoint::NotEct, may_fragment: false };
        let udp = &mut self.arq.counters_mut().udp;
        udp.packets_sent += transmit.packets() as u64;
        udp.bytes_sent += transmit.len as u64;
        Some(transmit)
    }
}
