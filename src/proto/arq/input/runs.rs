//! Runs of PUSHes: what of a stream arrives in order, one segment behind the other, and says nothing else that is new.
//!
//! Most of what a receiver gets is such. A sender fills packet after packet within the same millisecond, so the headers differ in
//! nothing but `sn` and `len`. What they repeat is compared, and not taken in again, and all of a run needs one ACK. There are two kinds:
//! many short segments in a packet ([`Arq::input_run`]), and packets of one long segment that were received together
//! ([`Arq::continue_run`]).

use super::{super::acks::Ack, Arq, Arrived, BlockPosition};
use crate::proto::{
    time::Instant,
    wire::{HEADER_LEN, SegmentHeader, Segments},
};

/// Packets that were taken in by [`Arq::continue_run`], one after the other.
#[derive(Debug, Default)]
pub(in crate::proto) struct Run {
    arrived: Arrived,
    /// Bytes around their segments.
    overhead: u64,
    /// The `ts` of the last.
    ts: u32,
}

impl Arq {
    /// Takes in what follows the PUSH `first`, as far as it is like that but for number and payload, and next in order: what else it
    /// says is taken in already. `place` is where the payload of the next one lies, if it may stay there.
    #[inline(never)]
    pub(super) fn input_run<'a>(
        &mut self,
        now: Instant,
        first: &SegmentHeader,
        mut place: Option<BlockPosition<'_>>,
        mut rest: Segments<'a>,
    ) -> Segments<'a> {
        let mut arrived = Arrived::default();
        let mut next = rest.clone();
        while let Some(payload) = next.next_of_run(first, self.recv.nxt())
            && self.recv.insert_in_order(first.frg, payload, place)
        {
            arrived.add(Arrived::segment(payload.len()));
            place = place.map(|place| place.forward(payload.len() + HEADER_LEN));
            rest = next.clone();
        }
        if arrived.segments > 0 {
            self.acknowledge_run(now, arrived, first.ts, false);
        }
        rest
    }

    /// Takes in a packet, if its `segments` are a PUSH alone that is next in order and repeats what the peer said last, and if
    /// `passes_replay_check` says so: that is asked last, since it remembers the packet. `overhead` is how much longer than its segments the packet is, and
    /// `place` is where these lie, if the payload may stay there. Returns whether it was taken in.
    ///
    /// [`end_run`](Self::end_run) must follow, before anything else of this session is taken in or sent.
    #[inline]
    pub(in crate::proto) fn continue_run(
        &mut self,
        now: Instant,
        (segments, overhead): (&[u8], usize),
        place: Option<BlockPosition<'_>>,
        run: &mut Run,
        passes_replay_check: impl FnOnce() -> bool,
    ) -> bool {
        let Some((header, payload)) = SegmentHeader::of_push_alone(segments) else { return false };
        let continues = header.conv == self.conv
            && header.sn == self.recv.nxt()
            && header.una == self.peer_una
            && u32::from(header.wnd) == self.peer_window
            && self.alive.peer_time.admits(now, header.ts)
            && self.recv.fits_in_order(header.frg, payload.len())
            && passes_replay_check();
        if continues {
            let place = place.map(|place| place.forward(HEADER_LEN));
            self.recv.push_in_order(header.frg, payload, place);
            run.arrived.add(Arrived::segment(payload.len()));
            run.overhead += overhead as u64;
            run.ts = header.ts;
        }
        continues
    }

    /// Draws the conclusions from the packets of a run.
    #[inline]
    pub(in crate::proto) fn end_run(&mut self, now: Instant, run: &mut Run) {
        if run.arrived.segments > 0 {
            self.after_run(now, core::mem::take(run));
        }
    }

    #[inline(never)]
    fn after_run(&mut self, now: Instant, Run { arrived, overhead, ts }: Run) {
        let (packets, bytes) = (u64::from(arrived.segments), u64::from(arrived.bytes));
        self.counters.udp.packets_received += packets;
        self.counters.udp.bytes_received += bytes + packets * HEADER_LEN as u64 + overhead;
        let is_first = self.counters.segments.push_received == 0;
        self.on_new_payload(now);
        self.acknowledge_run(now, arrived, ts, is_first);
        self.note_heard(now, true);
    }

    /// Counts the segments of a run, which have this `ts`, and has them acknowledged by the ACK of the last.
    #[inline(always)]
    fn acknowledge_run(&mut self, now: Instant, arrived: Arrived, ts: u32, is_urgent: bool) {
        self.counters.segments.received += u64::from(arrived.segments);
        self.counters.segments.push_received += u64::from(arrived.segments);
        let last = Ack { sn: self.recv.nxt().wrapping_sub(1), ts };
        self.acknowledge(now, last, arrived, is_urgent);
    }
}
