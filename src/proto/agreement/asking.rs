//! The end that connects, as long as it has no keys: HELLO with the first message, again and again, until its answer has come.

use alloc::{boxed::Box, vec::Vec};
use core::time::Duration;

use super::{
    Confirming, Failing,
    packet::{Clear, own_context, write_hello},
};
use crate::proto::{
    Random,
    extension::SessionId,
    noise::{Established, Initiator, InitiatorHandshake, NoiseError, SessionKeys},
    time::{Instant, earliest},
};

/// Bytes of the first two HELLOs: as many as others have (R14).
const LONG: usize = 1_200;
/// Bytes of later ones, and the fewest that any has (R107). They get through where longer ones do not, and no ANSWER is longer.
pub(in crate::proto) const SHORT: usize = 256;
/// The same with early data. Padding may miss the length wanted by less than a field's header, where so little is missing.
const SHORT_WITH_EARLY_DATA: usize = SHORT + 8;
/// The longest wait between two HELLOs. Only peers of ours are asked, and nothing goes on before they answer: with longer waits, one
/// session of a thousand takes seven seconds to begin on a path that loses a fifth in each direction.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// The times of so many HELLOs are kept: an ANSWER or RETRY must echo one of them. They are those of the last seven seconds.
const REMEMBERED: usize = 16;
/// Cookies with which the peer is asked again at once. Later ones wait for the next HELLO: whoever sees our HELLOs can make up any number
/// of them, and neither makes us send more than usual nor keeps the true one from us.
const MAX_RETRIES: u8 = 3;

/// What comes of a packet.
#[derive(Debug)]
pub(in crate::proto) enum Outcome {
    /// Nothing yet.
    Asking,
    /// The peer is asked again at once.
    AskNow,
    /// There are keys. With three messages, the last one is to be sent. The peer has taken so many bytes of early data.
    Keys { keys: Box<SessionKeys>, confirming: Option<Confirming>, early_data: usize },
}

#[derive(Debug)]
pub(in crate::proto) struct Asking {
    conv: u32,
    id: SessionId,
    handshake: InitiatorHandshake,
    /// Bytes of the stream that go with the message.
    early_data: usize,
    /// What the times of HELLOs begin with: nobody else can foretell them.
    ts_base: u32,
    due: bool,
    at: Option<Instant>,
    wait: Duration,
    sent: u32,
    sent_ts: [Option<u32>; REMEMBERED],
    first_sent: Option<Instant>,
    cookie: Option<Box<[u8]>>,
    retries: u8,
    failing: Failing,
    /// The peer says that it accepts no sessions.
    refused: bool,
}

impl Asking {
    pub(in crate::proto) fn new(
        conv: u32,
        initiator: &Initiator,
        early: &[u8],
        random: &mut dyn Random,
    ) -> Result<Self, NoiseError> {
        let (mut id, mut ts_base) = ([0; 8], [0; 4]);
        random.fill(&mut id);
        random.fill(&mut ts_base);
        let id = SessionId::non_zero(id);
        Ok(Self {
            conv,
            id,
            handshake: initiator.begin_with_early_data(&own_context(conv, id), early, random)?,
            early_data: early.len(),
            ts_base: u32::from_le_bytes(ts_base),
            due: true,
            at: None,
            wait: Duration::ZERO,
            sent: 0,
            sent_ts: [None; REMEMBERED],
            first_sent: None,
            cookie: None,
            retries: 0,
            failing: Failing::default(),
            refused: false,
        })
    }

    /// Writes a HELLO of at most `out.len()` bytes, if one is due.
    pub(in crate::proto) fn write(&mut self, now: Instant, rto: Duration, out: &mut [u8]) -> Option<usize> {
        if !core::mem::take(&mut self.due) {
            return None;
        }
        let wait = self.wait.max(rto).min(MAX_WAIT);
        (self.at, self.wait) = (Some(now + wait), 2 * wait);
        self.first_sent.get_or_insert(now);
        let short = if self.early_data > 0 { SHORT_WITH_EARLY_DATA } else { SHORT };
        let padded = if self.sent < 2 { LONG } else { short };
        let ts = self.ts_base.wrapping_add(now.as_ts());
        let cookie = self.cookie.as_deref();
        let padded = padded.min(out.len());
        let len = write_hello(self.conv, ts, self.id, self.handshake.message(), cookie, padded, out)?;
        self.sent += 1;
        self.sent_ts.rotate_right(1);
        self.sent_ts[0] = Some(ts);
        Some(len)
    }

    /// Takes in a packet of this conversation that is in the clear.
    pub(in crate::proto) fn input(&mut self, now: Instant, packet: &Clear<'_>) -> Outcome {
        match packet {
            Clear::Answer { tag, echo_ts, greeting } if self.is_ours(*tag, *echo_ts) => {
                match self.handshake.read_answer(greeting.message, &greeting.context) {
                    Ok(Established { session, last_message, early_data_taken }) => {
                        let last = |message: Vec<u8>| Confirming::new(self.conv, greeting.id.tag(), message);
                        let (keys, confirming) = (Box::new(session), last_message.map(last));
                        let early_data = if early_data_taken { self.early_data } else { 0 };
                        return Outcome::Keys { keys, confirming, early_data };
                    }
                    Err(error) => self.failing.note(now, error),
                }
            }
            Clear::Retry { tag, ts, cookie } if self.is_ours(*tag, *ts) => {
                self.cookie = Some(Box::from(*cookie));
                if self.retries < MAX_RETRIES {
                    // One that answers a HELLO without the present cookie has nothing new to say.
                    self.sent_ts = [None; REMEMBERED];
                    self.retries += 1;
                    self.due = true;
                    self.sent = 0;
                    return Outcome::AskNow;
                }
            }
            Clear::Abort { tag } if *tag == self.id.tag() => {
                self.refused = true;
                self.failing.count(now);
            }
            _ => {}
        }
        Outcome::Asking
    }

    /// Whether a packet answers one of the last HELLOs.
    fn is_ours(&self, tag: u32, ts: u32) -> bool {
        tag == self.id.tag() && self.sent_ts.contains(&Some(ts))
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do.
    pub(in crate::proto) fn deadline(&self) -> Option<Instant> {
        earliest([self.at, self.failing.at()])
    }

    pub(in crate::proto) fn on_timeout(&mut self, now: Instant) {
        if self.at.take_if(|at| *at <= now).is_some() {
            self.due = true;
        }
    }

    /// Since when the peer owes an answer.
    pub(in crate::proto) const fn asked_since(&self) -> Option<Instant> {
        self.first_sent
    }

    /// Whether the user is to be told at `now` that the peer accepts no sessions.
    pub(in crate::proto) fn is_refused(&self, now: Instant) -> bool {
        self.refused && self.failing.error.is_none() && self.failing.is_over(now)
    }

    /// What the user is to be told at `now`.
    pub(in crate::proto) fn expired(&self, now: Instant) -> Option<NoiseError> {
        self.failing.expired(now)
    }

    /// The last error, for a user whose patience is over.
    pub(in crate::proto) const fn error(&self) -> Option<NoiseError> {
        self.failing.error
    }
}
