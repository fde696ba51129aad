//! How the two directions of a stream end: FIN, its answer, and readers that are gone.
//!
//! ```text
//!   write side   Writing --shutdown--> Ending --all sent once--> FinSent --FIN_ACK--> FinAcked
//!   read side    Reading --FIN--> EndKnown --everything before the end arrived--> Eof
//! ```
//!
//! A FIN names the sequence number behind the sender's last PUSH. It is sent again after each RTO until a FIN_ACK answers it, and it
//! may overtake the data before it. So FIN_ACK says only that the end is known. What arrived is told by ACKs, as ever.
//!
//! FIN with the flag NO_READER says besides that the sender drops whatever it still receives. Its receiver gives up what it has
//! not delivered, and owes no FIN of its own.
//!
//! The two directions do not know of each other, so a half-close and two FINs that cross need no states of their own. The
//! exception is in [`on_timeout`](Ends::on_timeout): the last FIN_ACK may be lost and its sender gone. The rules are numbered in
//! `docs/extensions.md`, section 2.4.

#[cfg(test)]
mod tests;

use core::time::Duration;

use super::{MAX_WAIT_GROWTH, segment::Fin};
use crate::proto::{
    error::AbortReason,
    seq,
    time::{Instant, Micros},
};

/// The ends of both directions of one session.
#[derive(Debug, Default)]
pub(in crate::proto) struct Ends {
    write: WriteSide,
    read: ReadSide,
    /// Nobody reads at this end: our FIN says so.
    no_reader: bool,
    /// Nobody reads at the peer's end.
    peer_no_reader: bool,
    /// The FIN that is to be answered.
    answer: Option<Fin>,
    /// The session was aborted here.
    aborted: Option<Aborted>,
    /// Segments of the stream that were refused when they were last looked at.
    refused: u64,
}

/// What the peer is to learn of an abort.
#[derive(Debug, Clone, Copy)]
struct Aborted {
    reason: AbortReason,
    due: bool,
    sent: Option<Instant>,
}

/// What the peer knows of the end of what this end writes.
#[derive(Debug, Default)]
enum WriteSide {
    #[default]
    Writing,
    /// Nothing more is written. Not all of it was sent yet, or the peer does not understand FIN yet.
    Ending,
    FinSent(FinSent),
    /// The peer knows `end`, and that nobody reads here if the FIN said so.
    FinAcked(Fin),
    /// No FIN is owed: the peer has no reader, or is gone (R31a).
    Over,
}

/// A FIN that was not answered yet.
#[derive(Debug)]
struct FinSent {
    fin: Fin,
    /// It is to be sent now.
    due: bool,
    /// When it was sent last, `None` before the first time.
    sent: Option<Instant>,
    /// When it is to be sent again.
    resend_at: Instant,
    /// How long the next one waits for its answer.
    wait: Micros,
    /// How often it was sent since the peer was heard last, and since when.
    unanswered: u32,
    unanswered_since: Instant,
}

impl FinSent {
    const fn new(fin: Fin) -> Self {
        let never = Instant::NEVER;
        Self {
            fin,
            due: true,
            sent: None,
            resend_at: never,
            wait: Micros::ZERO,
            unanswered: 0,
            unanswered_since: never,
        }
    }
}

/// What is known of the end of what the peer writes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ReadSide {
    #[default]
    Reading,
    /// A FIN told the sequence number behind the last PUSH.
    EndKnown(u32),
    /// All before it arrived.
    Eof(u32),
}

/// What became of a FIN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum FinOutcome {
    /// The end was not known before.
    New,
    /// It was.
    Known,
    /// The end cannot be true: it lies before what arrived, or another one was told before. Nothing follows from it.
    Refused,
}

impl Ends {
    // ---- The application ----

    /// Nothing more is written.
    pub(in crate::proto) const fn shutdown(&mut self) {
        if matches!(self.write, WriteSide::Writing) {
            self.write = WriteSide::Ending;
        }
    }

    /// Nobody reads any more, nor writes. A FIN that did not say so is sent again, unless all that the peer wrote has arrived:
    /// then there is nothing to refuse.
    pub(in crate::proto) fn drop_reader(&mut self) {
        self.shutdown();
        if self.no_reader || self.is_eof() {
            return;
        }
        self.no_reader = true;
        match &self.write {
            WriteSide::FinSent(FinSent { fin, .. }) | WriteSide::FinAcked(fin) => {
                self.write = WriteSide::FinSent(FinSent::new(Fin { no_reader: true, ..*fin }));
            }
            // The peer has no reader, but still sends.
            WriteSide::Over if self.peer_no_reader => self.write = WriteSide::Ending,
            _ => {}
        }
    }

    // ---- Sending ----

    /// Whether a FIN is owed that waits for the last data to be sent once.
    pub(in crate::proto) const fn is_ending(&self) -> bool {
        matches!(self.write, WriteSide::Ending)
    }

    /// Everything written was sent once, in segments before `end`, and the peer understands FIN.
    pub(in crate::proto) const fn on_all_sent(&mut self, end: u32) {
        if self.is_ending() {
            let fin = Fin { end, no_reader: self.no_reader };
            self.write = WriteSide::FinSent(FinSent::new(fin));
        }
    }

    /// Whether [`take_abort`](Self::take_abort), [`take_answer`](Self::take_answer) or [`take_fin`](Self::take_fin) returns
    /// something.
    #[inline]
    pub(in crate::proto) const fn has_due(&self) -> bool {
        self.answer.is_some()
            || matches!(&self.write, WriteSide::FinSent(FinSent { due: true, .. }))
            || matches!(self.aborted, Some(Aborted { due: true, .. }))
    }

    /// Whether a FIN is to be sent, and nothing before it.
    pub(in crate::proto) const fn has_fin_due(&self) -> bool {
        self.answer.is_none()
            && self.aborted.is_none()
            && matches!(&self.write, WriteSide::FinSent(FinSent { due: true, .. }))
    }

    /// The FIN that is to be sent now. It is sent again after `rto`. Each wait is longer by `rto`, at most by 250 ms, up to `max_wait`:
    /// FIN is short, and a shutdown waits for its answer.
    pub(in crate::proto) fn take_fin(
        &mut self,
        now: Instant,
        rto: Duration,
        max_wait: Duration,
    ) -> Option<Fin> {
        let WriteSide::FinSent(sent) = &mut self.write else { return None };
        if !core::mem::take(&mut sent.due) {
            return None;
        }
        if sent.unanswered == 0 {
            sent.unanswered_since = now;
        }
        sent.unanswered += 1;
        let wait = sent.wait.get();
        let growth = if wait.is_zero() { rto } else { rto.min(MAX_WAIT_GROWTH) };
        sent.wait = (wait + growth).min(max_wait).into();
        sent.sent = Some(now);
        sent.resend_at = now + sent.wait;
        Some(sent.fin)
    }

    /// Whether the last FINs had no answer, so that the peer is to be asked by PING whether it is there. If this end has another address
    /// now and does not know it, the peer follows a PING and no FIN.
    pub(in crate::proto) const fn doubts_peer(&self) -> bool {
        matches!(&self.write, WriteSide::FinSent(sent) if sent.unanswered >= ASK_AFTER)
    }

    /// The FIN_ACK that is to be sent.
    pub(in crate::proto) const fn take_answer(&mut self) -> Option<Fin> {
        self.answer.take()
    }

    /// Whether a FIN of the peer waits for its answer.
    pub(in crate::proto) const fn owes_answer(&self) -> bool {
        self.answer.is_some()
    }

    // ---- Aborts ----

    /// The session ends here at once, and the peer is told why. If it goes on, it is told again.
    pub(in crate::proto) const fn abort(&mut self, reason: AbortReason) {
        self.answer = None;
        self.write = WriteSide::Over;
        self.aborted = Some(Aborted { reason, due: true, sent: None });
    }

    /// The session is over, and nobody reads here. Who still writes is told by an ABORT.
    pub(in crate::proto) const fn finish_without_reader(&mut self) {
        self.aborted = Some(Aborted { reason: AbortReason::Unspecified, due: false, sent: None });
    }

    /// The ABORT that is to be sent.
    pub(in crate::proto) fn take_abort(&mut self, now: Instant) -> Option<AbortReason> {
        let aborted = self.aborted.as_mut().filter(|aborted| aborted.due)?;
        aborted.due = false;
        aborted.sent = Some(now);
        Some(aborted.reason)
    }

    /// Something came for a session that has ended here: ABORT is sent again, though no more often than once in `rto`.
    pub(in crate::proto) fn repeat_abort(&mut self, now: Instant, rto: Duration) {
        if let Some(aborted) = &mut self.aborted {
            aborted.due |= aborted.sent.is_none_or(|sent| sent + rto <= now);
        }
    }

    // ---- Receiving ----

    /// Takes in a FIN. `newest` is the sequence number behind the last segment that arrived, in order or not.
    pub(in crate::proto) const fn on_fin(&mut self, fin: Fin, newest: u32) -> FinOutcome {
        let outcome = match self.read {
            // What arrived after the reader was gone was dropped. So nothing is known that `end` could contradict.
            ReadSide::Reading if self.no_reader || seq::distance(newest, fin.end) >= 0 => FinOutcome::New,
            ReadSide::EndKnown(end) | ReadSide::Eof(end) if end == fin.end => FinOutcome::Known,
            _ => return FinOutcome::Refused,
        };
        if matches!(outcome, FinOutcome::New) {
            self.read = ReadSide::EndKnown(fin.end);
        }
        // An older FIN may come late. The answer says all that is known.
        self.peer_no_reader |= fin.no_reader;
        self.answer = Some(Fin { end: fin.end, no_reader: self.peer_no_reader });
        self.give_up_fin();
        outcome
    }

    /// A peer without a reader is owed no FIN, unless ours is to tell it that nobody takes what it still sends.
    const fn give_up_fin(&mut self) {
        if self.peer_no_reader && (!self.no_reader || self.is_eof()) {
            self.write = WriteSide::Over;
        }
    }

    /// Takes in a FIN_ACK; returns whether it answers what was sent last.
    pub(in crate::proto) const fn on_fin_ack(&mut self, ack: Fin) -> bool {
        let WriteSide::FinSent(FinSent { fin, .. }) = &self.write else { return false };
        let answers = ack.end == fin.end && (ack.no_reader || !fin.no_reader);
        if answers {
            self.write = WriteSide::FinAcked(*fin);
        }
        answers
    }

    /// Everything before `nxt` has arrived. Returns whether that is all, and was not before.
    pub(in crate::proto) fn on_arrival(&mut self, nxt: u32) -> bool {
        let ended = self.read == ReadSide::EndKnown(nxt);
        if ended {
            self.read = ReadSide::Eof(nxt);
            self.give_up_fin();
        }
        ended
    }

    /// `refused` segments of the stream were refused so far. If more were than when it was told last, somebody sends what nobody
    /// will read. The FIN that says so may be lost: it is sent again an RTO after the last one.
    ///
    /// Returns whether there is such news.
    pub(in crate::proto) fn on_refused(&mut self, refused: u64, rto: Duration) -> bool {
        if core::mem::replace(&mut self.refused, refused) == refused {
            return false;
        }
        if let WriteSide::FinSent(FinSent { resend_at, sent: Some(sent), .. }) = &mut self.write {
            *resend_at = (*resend_at).min(*sent + rto);
        }
        true
    }

    /// Whether a FIN was sent and not answered.
    pub(in crate::proto) const fn awaits_answer(&self) -> bool {
        matches!(self.write, WriteSide::FinSent(_))
    }

    /// The peer was heard, so it is not gone.
    pub(in crate::proto) const fn on_heard(&mut self) {
        if let WriteSide::FinSent(sent) = &mut self.write {
            sent.unanswered = 0;
        }
    }

    /// The peer turned out not to know FIN. What it seemed to have said was not its own.
    pub(in crate::proto) const fn forget_peer(&mut self) {
        if !matches!(self.write, WriteSide::Writing) {
            self.write = WriteSide::Ending;
        }
        self.read = ReadSide::Reading;
        self.peer_no_reader = false;
        self.answer = None;
    }

    // ---- Time ----

    /// When FIN is to be sent again.
    pub(in crate::proto) const fn deadline(&self) -> Option<Instant> {
        let WriteSide::FinSent(sent) = &self.write else { return None };
        if sent.due {
            return None;
        }
        Some(sent.resend_at)
    }

    /// Has FIN sent again, if it is time.
    ///
    /// R31a: the peer had said that it was done, it has acknowledged every byte, and now it is silent. It has ended, and what is
    /// missing is its last FIN_ACK. Then the write side is over without it.
    pub(in crate::proto) fn on_timeout(&mut self, now: Instant, all_acked: bool) {
        let peer_done = all_acked && self.peer_end().is_some();
        let WriteSide::FinSent(sent) = &mut self.write else { return };
        if sent.resend_at > now {
            return;
        }
        let silent = sent.unanswered >= LAST_FINS && now - sent.unanswered_since >= LAST_FINS_TIME;
        if peer_done && silent {
            self.write = WriteSide::Over;
        } else {
            sent.due = true;
        }
    }

    /// The socket says that nobody receives what is sent to the peer, or the peer's end that it has no such session. If the peer was done
    /// it has ended, as after R31a. Returns whether the write side is over with that.
    pub(in crate::proto) fn on_unreachable(&mut self, all_acked: bool) -> bool {
        let gone = matches!(&self.write, WriteSide::FinSent(sent) if sent.sent.is_some())
            && all_acked
            && self.peer_end().is_some();
        if gone {
            self.write = WriteSide::Over;
        }
        gone
    }

    // ---- What is known ----

    /// Whether the peer knows where this end's data ends, or need not know.
    pub(in crate::proto) const fn is_write_over(&self) -> bool {
        matches!(self.write, WriteSide::FinAcked(_) | WriteSide::Over)
    }

    /// Whether everything that the peer wrote has arrived.
    pub(in crate::proto) const fn is_eof(&self) -> bool {
        matches!(self.read, ReadSide::Eof(_))
    }

    /// Whether nobody reads at the peer's end.
    pub(in crate::proto) const fn has_peer_no_reader(&self) -> bool {
        self.peer_no_reader
    }

    /// The sequence number behind the peer's last PUSH, once its FIN came.
    pub(in crate::proto) const fn peer_end(&self) -> Option<u32> {
        match self.read {
            ReadSide::Reading => None,
            ReadSide::EndKnown(end) | ReadSide::Eof(end) => Some(end),
        }
    }

    /// Whether the peer has said anything of an end.
    #[inline]
    pub(in crate::proto) const fn has_news(&self) -> bool {
        !matches!(self.read, ReadSide::Reading)
    }

    /// The peer's FIN, as it is answered.
    pub(in crate::proto) const fn peer_fin(&self) -> Option<Fin> {
        match self.peer_end() {
            Some(end) => Some(Fin { end, no_reader: self.peer_no_reader }),
            None => None,
        }
    }

    /// What the peer is told of an abort here.
    pub(in crate::proto) fn abort_reason(&self) -> Option<AbortReason> {
        self.aborted.map(|aborted| aborted.reason)
    }

    /// Whether a FIN of this end said that nobody reads.
    pub(in crate::proto) const fn has_no_reader(&self) -> bool {
        self.no_reader
    }
}

/// FINs without an answer behind which the peer is asked by PING, as behind as many transmissions of a PUSH.
const ASK_AFTER: u32 = 3;
/// How often FIN is sent to a peer that is silent and has said that it is done. If it lives all the same, it never learns of the
/// end. With 20 % loss each way, one in 3,500 exchanges loses so many in a row.
const LAST_FINS: u32 = 8;
/// At least so long: a process may stand still for a while.
const LAST_FINS_TIME: Duration = Duration::from_secs(5);
