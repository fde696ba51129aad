//! When HELLO is sent, and when it is sent again.
//!
//! * Nothing was heard at all: as often as a lost segment would be sent again, from one RTO on up to 8 s. If nothing is in
//!   flight that the peer would acknowledge, the window is asked for as well (WASK): a peer without extensions answers that.
//! * The peer marks: a quarter of a round trip after the first mark, since the ANSWER may be on its way, then after an RTO. Each
//!   wait is longer by an RTO, at most 250 ms, up to 8 s. (Doubled waits would give the ANSWER eight chances in the 30 s that a
//!   shutdown waits. With a fifth of all packets lost each way, one exchange in 12,000 lost them all.)
//! * Something was heard, but nothing that can bear a mark: WASK alone, at the same times.

use core::time::Duration;

use crate::proto::{
    extension::{Conditions, MAX_WAIT_GROWTH},
    time::Instant,
};

/// Bytes that the first two HELLOs make a packet have. Three times as many hold an ANSWER and a first flight of data.
const LONG: usize = 1_200;
/// Bytes of packets with later ones. They get through where longer ones do not.
const SHORT: usize = 128;
/// The longest wait between two HELLOs.
const MAX_WAIT: Duration = Duration::from_secs(8);
/// The shortest time between two HELLOs to a peer that is confirmed.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// HELLOs and WASKs that are sent to who never answered, where nobody waits for an answer.
const UNASKED: u32 = 4;
/// HELLOs that are sent at most when the application is gone.
const LAST_HELLOS: u32 = 2;
/// The times of this many HELLOs are kept: an ANSWER or RETRY must echo one of them.
const REMEMBERED: usize = 4;

/// The HELLOs of the end that connects.
#[derive(Debug, Default)]
pub(super) struct Hellos {
    /// One is to be sent now.
    pub(super) due: bool,
    /// When the next one is due.
    pub(super) at: Option<Instant>,
    /// The wait behind the next one.
    pub(super) wait: Duration,
    /// How many HELLOs, and times for one, there were.
    pub(super) turns: u32,
    /// HELLOs that are padded to [`LONG`] still.
    pub(super) long: u8,
    /// When the last ones were sent.
    pub(super) sent: [Option<Instant>; REMEMBERED],
    /// The `ts` of each of these.
    pub(super) sent_ts: [u32; REMEMBERED],
    /// Something was heard from the peer.
    pub(super) heard: bool,
    /// The peer marks its segments, or used this end's tag.
    pub(super) marked: bool,
    /// The application waits for the peer.
    pub(super) awaited: bool,
}

impl Hellos {
    /// `connects`: this end is to send HELLO, and begins at once.
    pub(super) fn new(connects: bool) -> Self {
        Self { due: connects, long: 2, ..Self::default() }
    }

    /// Of a session whose peer is settled.
    pub(super) fn of_settled() -> Self {
        Self { heard: true, marked: true, ..Self::default() }
    }

    /// Has the peer told once more who this end is, though it is confirmed.
    pub(super) fn repeat(&mut self, now: Instant) {
        if !self.due {
            // One whose time is not known any more was sent long ago.
            let earliest = self.sent[0].map_or(now, |sent| sent + MIN_PAUSE);
            self.at.get_or_insert(now.max(earliest));
        }
    }

    /// The length that the next HELLO makes its packet have.
    pub(super) const fn packet_len(&self) -> usize {
        if self.long > 0 { LONG } else { SHORT }
    }

    /// The peer knows the extensions. Its ANSWER may be on its way.
    pub(super) fn on_marked(&mut self, now: Instant, conditions: &Conditions) {
        if core::mem::replace(&mut self.marked, true) {
            return;
        }
        self.long = 1;
        self.wait = conditions.rto;
        let rtt = if conditions.rtt.is_zero() { conditions.rto } else { conditions.rtt };
        self.at = Some(now + rtt / 4);
        self.due = false;
    }

    /// An answer is waited for: if none is asked for any more, it is now.
    pub(super) fn ask(&mut self, now: Instant) {
        self.awaited = true;
        if !self.due {
            self.at.get_or_insert(now);
        }
    }

    /// Nobody waits for an answer any more: only the last HELLOs are sent.
    pub(super) fn give_up(&mut self) {
        self.awaited = false;
        self.turns = self.turns.max(UNASKED - LAST_HELLOS);
    }

    pub(super) fn stop(&mut self) {
        self.due = false;
        self.at = None;
    }

    /// When the HELLO of the time `ts` was sent, if it was one of the last.
    pub(super) fn sent_at(&self, ts: u32) -> Option<Instant> {
        let mut sent = self.sent.into_iter().zip(self.sent_ts);
        sent.find_map(|(at, sent_ts)| at.filter(|_| sent_ts == ts))
    }

    /// It is time for a HELLO, or for what takes its place. Returns whether the peer's window is to be asked for.
    pub(super) fn on_turn(&mut self, now: Instant, conditions: &Conditions, keeps_alive: bool) -> bool {
        if self.marked {
            self.due = true;
            return false;
        }
        // Who was heard is there. If its only ACK was lost, its data does not tell whether it knows the extensions.
        let waits = keeps_alive || self.awaited || self.heard || conditions.in_flight;
        if !waits && self.turns >= UNASKED {
            return false;
        }
        if self.heard && !self.due {
            // A HELLO would open a session anew at a peer of another kind that has closed it meanwhile. What is asked
            // instead is answered by each peer, or the session ends.
            self.turns += 1;
            self.plan(now, conditions);
        } else {
            self.due = true;
        }
        waits && !conditions.in_flight
    }

    /// A HELLO is sent with this `ts`.
    pub(super) fn on_sent(&mut self, now: Instant, ts: u32) {
        self.sent.rotate_right(1);
        self.sent[0] = Some(now);
        self.sent_ts.rotate_right(1);
        self.sent_ts[0] = ts;
        self.turns += 1;
        self.long = self.long.saturating_sub(1);
    }

    /// Has the next HELLO sent after the wait, which grows.
    pub(super) fn plan(&mut self, now: Instant, conditions: &Conditions) {
        let wait = self.wait.max(conditions.rto).min(MAX_WAIT);
        self.at = Some(now + wait);
        let is_there = self.marked || self.heard;
        self.wait = wait + if is_there { conditions.rto.min(MAX_WAIT_GROWTH) } else { wait };
    }
}
