//! The end that accepts, with a session whose early data it has taken: ANSWER goes out with the first packets, and again for each HELLO
//! that comes again, until a packet of the peer has opened. Only then is it known that the peer is there.

use alloc::boxed::Box;
use core::time::Duration;

use super::packet::{CONTEXT_LEN, Clear, Greeting, write_answer};
use crate::proto::{extension::SessionId, time::Instant};

/// A peer that begins anew from the same address, with the same conv, has this session give way to it once it is so old. What is there is
/// a recording, or the peer has given up on it: one that is there has said something in this time, whatever was lost. Anybody can send a
/// message in the peer's name. That is for a session that began with a cookie: beside one that is half-open the endpoint lets others agree,
/// and it gives way to what they seal.
const GIVES_WAY: Duration = Duration::from_secs(5);

/// Data of a session's peer that came with its first message: [`Endpoint::take_early_data`](crate::proto::Endpoint::take_early_data).
#[derive(Debug)]
pub struct EarlyData {
    pub(in crate::proto) answering: Answering,
    pub(in crate::proto) data: Box<[u8]>,
}

#[derive(Debug)]
pub(in crate::proto) struct Answering {
    conv: u32,
    since: Instant,
    /// The HELLO's message, and what was said beside it.
    first: Box<[u8]>,
    context: [u8; CONTEXT_LEN],
    /// The id of this end in the ANSWER, and its message.
    id: SessionId,
    answer: Box<[u8]>,
    /// Tag and time of the HELLO that is to be answered.
    due: Option<(u32, u32)>,
}

impl Answering {
    /// `echo`: tag and time of the HELLO.
    pub(in crate::proto) fn new(
        now: Instant,
        conv: u32,
        greeting: &Greeting<'_>,
        echo: (u32, u32),
        id: SessionId,
        answer: Box<[u8]>,
    ) -> Self {
        let (first, context) = (greeting.message.into(), greeting.context);
        Self { conv, since: now, first, context, id, answer, due: Some(echo) }
    }

    /// Takes in a packet of this conversation that is in the clear. Returns whether the session is to give way to another one.
    pub(in crate::proto) fn input(&mut self, now: Instant, packet: &Clear<'_>) -> bool {
        let Clear::Hello { ts, greeting, .. } = packet else { return false };
        if *greeting.message == *self.first && greeting.context == self.context {
            self.due = Some((greeting.id.tag(), *ts));
            return false;
        }
        now - self.since >= GIVES_WAY
    }

    /// Writes the ANSWER, if it is due.
    pub(in crate::proto) fn write(&mut self, out: &mut [u8]) -> Option<usize> {
        let echo = self.due.take()?;
        write_answer(self.conv, self.id, echo, &self.answer, out)
    }
}
