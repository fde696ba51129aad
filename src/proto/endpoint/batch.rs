//! A batch of packets from one address, cut into runs of packets of one conversation. A session is looked up once a run
//! and takes the run in at once.

use core::{
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
};

use super::{decryptor::Opened, keys::KeyPhase, stats::RoutingStats};
use crate::proto::fec::packet::conv_of;

/// The batch that is being routed.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) source: SocketAddr,
    pub(super) stride: usize,
    /// How its packets were decrypted.
    pub(super) opened: Opened,
    /// The key of accepted sessions that the last run was opened under; `None` where it was the cipher of a peer.
    pub(super) run_phase: Option<KeyPhase>,
    /// Another shard has handed it over.
    pub(super) handed_over: bool,
    /// It was left as it came, though accepted sessions have a cipher: its packets are of sessions that open them.
    #[cfg(feature = "noise")]
    pub(super) raw: bool,
    /// A session has learned since the batch came what hides the routes of packets from its source.
    #[cfg(feature = "noise")]
    pub(super) learned: bool,
    /// Bytes of all packets together.
    len: usize,
    /// Where the next packet begins.
    at: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            source: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            stride: 1,
            opened: Opened::default(),
            run_phase: None,
            handed_over: false,
            #[cfg(feature = "noise")]
            raw: false,
            #[cfg(feature = "noise")]
            learned: false,
            len: 0,
            at: 0,
        }
    }
}

impl Batch {
    /// Begins with a batch whose packets were decrypted as `opened` says.
    pub(super) fn begin(&mut self, source: SocketAddr, len: usize, stride: usize) {
        self.source = source;
        self.stride = stride;
        self.handed_over = false;
        #[cfg(feature = "noise")]
        {
            (self.raw, self.learned) = (false, false);
        }
        self.len = len;
        self.at = 0;
    }

    /// The next packets of one conversation, under one key, that lie one behind the other: their conv, and where they are. Counts the
    /// packets that are left out. `is_sealed` is as in [`conv_of`].
    pub(super) fn next_run(
        &mut self,
        bytes: &[u8],
        stats: &mut RoutingStats,
        is_sealed: impl Fn(u32) -> bool,
    ) -> Option<(u32, Range<usize>)> {
        // A caller may hand in fewer bytes than were decrypted. Then the rest is not routed, and nothing panics.
        let bytes = &bytes[..bytes.len().min(self.len)];
        let mut run: Option<(u32, Range<usize>)> = None;
        while self.at < bytes.len() {
            let end = bytes.len().min(self.at + self.stride);
            let conv = self.conv(&bytes[self.at..end], stats, &is_sealed);
            match (&mut run, conv) {
                (None, Some(conv)) => {
                    self.run_phase = self.phase();
                    run = Some((conv, self.at..end));
                }
                (Some((of_run, range)), Some(conv)) if *of_run == conv && self.phase() == self.run_phase => {
                    range.end = end;
                }
                // The next run begins with this one.
                (Some(_), Some(_)) => break,
                (_, None) => {}
            }
            self.at = end;
            if conv.is_none() && run.is_some() {
                break;
            }
        }
        run
    }

    /// How many packets there are.
    #[cfg(feature = "tracing")]
    pub(super) const fn packets(&self) -> usize {
        self.len.div_ceil(self.stride)
    }

    /// The decrypted contents of the packets of a run.
    pub(super) fn payloads<'a>(&self, run: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let frame = self.opened.frame;
        run.chunks(self.stride).map(move |packet| frame.payload(packet))
    }

    /// Whether the last run may be of a session with this key. Under the cipher of a peer, all that comes from there is.
    #[inline]
    pub(super) fn is_under(&self, phase: KeyPhase) -> bool {
        self.run_phase.is_none_or(|of_run| of_run == phase)
    }

    /// The key that the packet that comes next was opened under.
    #[inline]
    fn phase(&self) -> Option<KeyPhase> {
        let Opened { phase, retiring, .. } = &self.opened;
        if !retiring.is_empty() && retiring.get(self.at / self.stride) == Some(&true) {
            return phase.map(KeyPhase::before);
        }
        *phase
    }

    /// The conv of the packet that comes next.
    fn conv(&self, packet: &[u8], stats: &mut RoutingStats, is_sealed: &impl Fn(u32) -> bool) -> Option<u32> {
        if let Some(Err(error)) = self.opened.outcomes.get(self.at / self.stride) {
            stats.count_refused(*error);
            return None;
        }
        let conv = conv_of(self.opened.frame.payload(packet), is_sealed);
        if conv.is_none() {
            stats.dropped_short += 1;
        }
        conv
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;
    use crate::{crypto::OpenError, proto::HEADER_LEN};

    const STRIDE: usize = HEADER_LEN + 6;

    /// Packets of these convs, back to back.
    fn packets(convs: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; convs.len() * STRIDE];
        for (packet, conv) in bytes.chunks_mut(STRIDE).zip(convs) {
            packet[..4].copy_from_slice(&conv.to_le_bytes());
        }
        bytes
    }

    fn runs(bytes: &[u8], outcomes: Vec<Result<(), OpenError>>) -> (Vec<(u32, Range<usize>)>, RoutingStats) {
        runs_of(bytes, Opened { outcomes, ..Opened::default() })
    }

    fn runs_of(bytes: &[u8], opened: Opened) -> (Vec<(u32, Range<usize>)>, RoutingStats) {
        let mut batch = Batch { opened, ..Batch::default() };
        batch.begin(SocketAddr::from(([127, 0, 0, 1], 1)), bytes.len(), STRIDE);
        let mut stats = RoutingStats::default();
        let runs = core::iter::from_fn(|| batch.next_run(bytes, &mut stats, |conv| conv == 9)).collect();
        (runs, stats)
    }

    #[test]
    fn neighbours_of_one_conv_are_one_run() {
        let (runs, stats) = runs(&packets(&[7, 7, 8, 7]), Vec::new());
        assert_eq!(runs, [(7, 0..2 * STRIDE), (8, 2 * STRIDE..3 * STRIDE), (7, 3 * STRIDE..4 * STRIDE)]);
        assert_eq!(stats, RoutingStats::default());
    }

    #[test]
    fn sealed_packets_that_look_like_fec_are_found_by_what_they_begin_with() {
        for fec_type in [0xf1_u8, 0xf2, 0xf3] {
            let mut bytes = packets(&[9, 9, 7]);
            bytes[STRIDE + 4..STRIDE + 6].copy_from_slice(&[fec_type, 0]);
            let (runs, stats) = runs(&bytes, Vec::new());
            assert_eq!(runs, [(9, 0..2 * STRIDE), (7, 2 * STRIDE..3 * STRIDE)], "{fec_type}");
            assert_eq!(stats, RoutingStats::default());
        }
    }

    #[test]
    fn a_shorter_last_packet_belongs_to_the_run() {
        let bytes = packets(&[7, 7]);
        let (runs, _) = runs(&bytes[..STRIDE + HEADER_LEN], Vec::new());
        assert_eq!(runs, [(7, 0..STRIDE + HEADER_LEN)]);
    }

    #[test]
    fn a_last_packet_without_room_for_a_header_is_counted_and_left_out() {
        let bytes = packets(&[7, 7]);
        let (runs, stats) = runs(&bytes[..STRIDE + HEADER_LEN - 1], Vec::new());
        assert_eq!(runs, [(7, 0..STRIDE)]);
        assert_eq!(stats.dropped_short, 1);
    }

    #[test]
    fn what_was_not_decrypted_splits_a_run_and_is_counted_by_cause() {
        let bytes = packets(&[7, 7, 7, 7, 7]);
        let outcomes = vec![
            Err(OpenError::TooLong),
            Ok(()),
            Err(OpenError::BadTag),
            Err(OpenError::BadChecksum),
            Ok(()),
        ];
        let (runs, stats) = runs(&bytes, outcomes);
        assert_eq!(runs, [(7, STRIDE..2 * STRIDE), (7, 4 * STRIDE..5 * STRIDE)]);
        assert_eq!((stats.dropped_long, stats.dropped_bad_tag, stats.dropped_bad_checksum), (1, 1, 1));
        assert_eq!(stats.dropped_short, 0);
    }

    #[test]
    fn another_key_begins_another_run() {
        let retiring = vec![true, true, false, true];
        let opened = Opened { retiring, phase: Some(KeyPhase::default()), ..Opened::default() };
        let (runs, _) = runs_of(&packets(&[7, 7, 7, 7]), opened);
        assert_eq!(runs, [(7, 0..2 * STRIDE), (7, 2 * STRIDE..3 * STRIDE), (7, 3 * STRIDE..4 * STRIDE)]);
    }

    #[test]
    fn fewer_bytes_than_were_decrypted_are_no_panic() {
        let bytes = packets(&[7, 7]);
        let mut batch = Batch::default();
        batch.begin(SocketAddr::from(([127, 0, 0, 1], 1)), bytes.len(), STRIDE);
        assert_eq!(
            batch.next_run(&bytes[..STRIDE], &mut RoutingStats::default(), |_| false),
            Some((7, 0..STRIDE))
        );
        assert_eq!(batch.next_run(&[], &mut RoutingStats::default(), |_| false), None);
    }
}
