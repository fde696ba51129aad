//! A connection, its application and the link it sends on.

use std::{borrow::Cow, time::Duration};

use kcp9::proto::{
    Command, Connection, EcnCodepoint, Event, HEADER_LEN, Instant, SegmentHeader, Segments, Stats, Timer,
    Transmit,
};

use super::{
    application::{Flow, Reader, Writer},
    link::Link,
    rng::Rng,
    trace::Sent,
};

/// Most packets of one transmit: the limit of Linux for one GSO send.
const MAX_BATCH: usize = 64;

/// What an end has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Deadlines that were reached.
    pub wakeups: u64,
    /// Those of them after which there was no packet and no event.
    pub idle_wakeups: u64,
    /// Calls of `poll_transmit` that returned something.
    pub transmits: u64,
}

pub struct End {
    pub connection: Connection,
    pub writer: Writer,
    pub reader: Reader,
    /// The path to the other end.
    pub link: Link,
    /// Added to the clock of the simulation: the two ends need not agree on the time.
    pub clock_offset: Duration,
    /// Drive the connection after every packet, even when several arrive at once.
    pub one_by_one: bool,
    /// Whether the connection is told the ECN fields of what arrives.
    pub tells_ecn: bool,
    pub activity: Activity,
    /// Every event, in simulation time.
    pub events: Vec<(Instant, Event)>,
    /// Everything sent, once [`record`](Self::record) was called.
    pub sent: Option<Vec<Sent>>,
    rng: Rng,
    stats: Stats,
    /// The `sn` behind the last PUSH of the stream that was sent.
    next_sn: Option<u32>,
    una: Option<u32>,
}

/// A packet that the link lets arrive.
pub struct Arrival {
    pub at: Instant,
    pub packet: Vec<u8>,
    pub ecn: EcnCodepoint,
}

impl End {
    /// Whether the connection has no deadline but that of keep-alive.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.connection.next_timer().is_none_or(|(timer, _)| timer == Timer::KeepAlive)
    }

    pub fn new(connection: Connection, link: Link, clock_offset: Duration, rng: Rng) -> Self {
        Self {
            stats: connection.stats(),
            connection,
            writer: Writer::none(),
            reader: Reader::eager(),
            link,
            clock_offset,
            one_by_one: false,
            tells_ecn: true,
            activity: Activity::default(),
            events: Vec::new(),
            sent: None,
            rng,
            una: None,
            next_sn: None,
        }
    }

    /// Its process was started again: another session takes the place of this one. Nothing is left of the former, and nothing
    /// is written.
    pub fn restart(&mut self, connection: Connection) {
        self.stats = connection.stats();
        self.connection = connection;
        self.writer = Writer::none();
        self.una = None;
    }

    /// Keeps what is sent from here on.
    pub fn record(&mut self) {
        self.sent = Some(Vec::new());
    }

    /// The time on this end's own clock.
    pub fn local(&self, now: Instant) -> Instant {
        now + self.clock_offset
    }

    /// The next time at which this end has something to do, without anything arriving.
    pub fn wakeup(&self, outgoing: &Flow) -> Option<Instant> {
        let deadlines = [self.connection.poll_timeout(), self.writer.wakeup(outgoing), self.reader.wakeup()];
        let local = deadlines.into_iter().flatten().min()?;
        Some(Instant::ZERO + (local - (Instant::ZERO + self.clock_offset)))
    }

    /// One round of the calling order (timeout, application, output), repeated as long as there are events.
    pub fn drive(
        &mut self,
        now: Instant,
        outgoing: &mut Flow,
        incoming: &mut Flow,
        buffer: &mut [u8],
        arrivals: &mut Vec<Arrival>,
    ) {
        let local = self.local(now);
        let mut due = self.connection.poll_timeout().is_some_and(|at| at <= local);
        let mut timeouts = 0;
        loop {
            let mut busy = false;
            if due {
                timeouts += 1;
                assert!(
                    timeouts <= 2,
                    "spinning: {:?} stays, not after {local:?}; {:?}",
                    self.connection.next_timer(),
                    self.connection.stats()
                );
                self.connection.handle_timeout(local);
            }
            loop {
                self.writer.run(&mut self.connection, local, outgoing, &mut self.rng);
                self.reader.run(&mut self.connection, local, incoming);
                busy |= self.transmit(now, buffer, arrivals);
                if !self.take_events(now) {
                    break;
                }
                busy = true;
            }
            self.activity.wakeups += u64::from(due);
            self.activity.idle_wakeups += u64::from(due && !busy);
            due = self.connection.poll_timeout().is_some_and(|at| at <= local);
            if !due {
                break;
            }
        }
        let next = self.connection.next_timer();
        assert_eq!(next.map(|(_, at)| at), self.connection.poll_timeout(), "{next:?}");
        self.check_stats();
    }

    fn take_events(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(event) = self.connection.poll_event() {
            any = true;
            match event {
                Event::Readable => self.reader.on_readable(),
                Event::Writable => self.writer.on_writable(),
                Event::Finished | Event::Closed(_) => {
                    self.reader.on_readable();
                    self.events.push((now, event));
                }
                // Tests that send datagrams look for them.
                Event::DatagramReadable => {}
                _ => self.events.push((now, event)),
            }
        }
        any
    }

    fn transmit(&mut self, now: Instant, buffer: &mut [u8], arrivals: &mut Vec<Arrival>) -> bool {
        let local = self.local(now);
        let mut any = false;
        loop {
            let plpmtu = self.connection.stats().path.plpmtu as usize;
            let Some(transmit) = self.connection.poll_transmit(local, buffer) else { break };
            any = true;
            self.activity.transmits += 1;
            self.check_transmit(&transmit, buffer.len());
            self.check_size(&transmit, &buffer[..transmit.len], plpmtu);
            for packet in buffer[..transmit.len].chunks(transmit.stride) {
                let segments = opened(&self.connection, packet);
                self.check_packet(&segments);
                if let Some(sent) = &mut self.sent {
                    sent.extend(Segments::new(&segments).flatten().map(|(header, _)| Sent {
                        at: now,
                        header,
                        plpmtu,
                    }));
                }
                let mut ecn = transmit.ecn;
                for at in
                    self.link.send_marked(now, packet, &mut ecn, transmit.may_fragment).into_iter().flatten()
                {
                    let mut packet = packet.to_vec();
                    self.link.corrupt(&mut packet);
                    arrivals.push(Arrival { at, packet, ecn });
                }
            }
        }
        any
    }

    fn check_transmit(&self, transmit: &Transmit, room: usize) {
        let valid = transmit.len > 0
            && transmit.len <= room
            && transmit.stride > 0
            && transmit.stride <= self.connection.mtu()
            && transmit.packets() <= MAX_BATCH;
        assert!(valid, "{transmit:?} with an mtu of {} and {room} bytes of room", self.connection.mtu());
    }

    /// What may be fragmented is too long for the path, and one by one where it is of the stream. Nothing else is too long but probes.
    fn check_size(&self, transmit: &Transmit, packets: &[u8], plpmtu: usize) {
        let is_longer = transmit.stride > plpmtu;
        let packet = opened(&self.connection, &packets[..transmit.stride.min(transmit.len)]);
        let headers: Vec<_> = Segments::new(&packet).flatten().map(|(header, _)| header).collect();
        if transmit.may_fragment {
            let single = transmit.packets() == 1 && headers.len() <= 1;
            assert!(is_longer && (single || packet.is_empty()), "{transmit:?}, {plpmtu}: {headers:?}");
        } else if is_longer {
            let is_probe = transmit.packets() == 1
                && match &headers[..] {
                    [ping] => ping.cmd == Command::Extension,
                    [first, filler] => first.cmd == Command::Push && filler.cmd == Command::Push,
                    _ => false,
                };
            assert!(is_probe || packet.is_empty(), "{transmit:?}, {plpmtu}: {headers:?}");
        }
    }

    /// A packet holds whole segments of this conversation and nothing else, and `una` never goes back. An extension segment
    /// is the last of its packet. Before the peer is known to understand it, nothing but ACKs stands before it.
    fn check_packet(&mut self, packet: &[u8]) {
        let mut len = 0;
        let mut extends = false;
        let mut only_acks = true;
        for segment in Segments::new(packet) {
            let (header, payload) = segment.expect("a segment that parses");
            let is_extension = header.cmd == Command::Extension;
            assert!(is_extension || !extends, "{header:?} behind an extension segment");
            let may_share = only_acks || self.connection.is_peer_confirmed();
            only_acks &= header.cmd == Command::Ack;
            assert!(!is_extension || may_share, "{header:?} shares a packet");
            extends |= is_extension;
            len += HEADER_LEN + payload.len();
            self.check_header(&header);
        }
        assert_eq!(len, packet.len(), "bytes of segments in a packet");
    }

    fn check_header(&mut self, header: &SegmentHeader) {
        assert_eq!(header.conv, self.connection.conv(), "conv of {header:?}");
        if header.cmd == Command::Extension {
            assert_ne!(header.sn, 0, "the tag of {header:?}");
            // RETRY, ABORT and RESET tell nothing of the stream.
            if matches!(header.frg, 0x03 | 0x06 | 0x07) {
                return;
            }
        } else {
            // A peer that has not shown that it hears this end is asked to by an empty PUSH that it has received already.
            let asks = header.cmd == Command::Push && !self.connection.is_validated();
            let is_old = self.next_sn.is_none_or(|next| (header.sn.wrapping_sub(next) as i32) < 0);
            let is_full = header.len > 0;
            assert!((asks && is_old) || (header.cmd == Command::Push) == is_full, "payload of {header:?}");
            if is_full && !(is_old && self.next_sn.is_some()) {
                self.next_sn = Some(header.sn.wrapping_add(1));
            }
        }
        let back = self.una.is_some_and(|una| (header.una.wrapping_sub(una) as i32) < 0);
        assert!(!back, "una goes back from {:?} in {header:?}", self.una);
        self.una = Some(header.una);
    }

    fn check_stats(&mut self) {
        let stats = self.connection.stats();
        let (before, after) = (counters(&self.stats), counters(&stats));
        assert!(
            before.iter().zip(&after).all(|(before, after)| before <= after),
            "{:?}, then {stats:?}",
            self.stats
        );
        assert!(stats.queues.unread_bytes == 0 || stats.queues.unread_segments > 0, "{stats:?}");
        assert!(stats.path.rtt >= stats.path.min_rtt / 2, "{stats:?}");
        self.stats = stats;
    }
}

/// The segments that a packet of `connection` carries: none if it is parity or a datagram.
fn opened<'a>(connection: &Connection, packet: &'a [u8]) -> Cow<'a, [u8]> {
    let Some(crypto) = connection.crypto() else { return Cow::Borrowed(behind_fec(packet)) };
    let cipher = crypto.cipher();
    let mut packet = packet.to_vec();
    cipher.open(&mut packet).expect("a packet that opens");
    packet.truncate(packet.len() - cipher.trailer_len());
    Cow::Owned(behind_fec(&packet[cipher.header_len()..]).to_vec())
}

fn behind_fec(payload: &[u8]) -> &[u8] {
    match payload[4..6] {
        [kind @ (0xf1 | 0xf3), 0] => {
            let size = u16::from_le_bytes([payload[6], payload[7]]);
            assert_eq!(usize::from(size), payload.len() - 6, "the size of an FEC packet");
            if kind == 0xf1 { &payload[8..] } else { &[] }
        }
        [0xf2, 0] => &[],
        _ => payload,
    }
}

/// The counters, which never decrease.
const fn counters(stats: &Stats) -> [u64; 33] {
    [
        stats.stream.bytes_written,
        stats.stream.bytes_read,
        stats.udp.packets_sent,
        stats.udp.bytes_sent,
        stats.udp.packets_received,
        stats.udp.bytes_received,
        stats.segments.sent,
        stats.segments.received,
        stats.segments.push_sent,
        stats.segments.push_received,
        stats.segments.acks_sent,
        stats.segments.acks_received,
        stats.recovery.fast_resends,
        stats.recovery.early_resends,
        stats.recovery.timeout_resends,
        stats.recovery.fec_flush_copies,
        stats.segments.duplicates,
        stats.segments.out_of_window,
        stats.segments.window_probes,
        stats.udp.wrong_conv,
        stats.udp.malformed,
        stats.udp.forged,
        stats.udp.replayed,
        stats.ecn.ect0_sent,
        stats.ecn.ect0_received,
        stats.ecn.ect1_received,
        stats.ecn.ce_received,
        stats.ecn.reports_sent,
        stats.ecn.reports_received,
        stats.ecn.ce_reported,
        stats.ecn.congestion_events,
        stats.mtu.black_holes,
        stats.mtu.fragmentable,
    ]
}
