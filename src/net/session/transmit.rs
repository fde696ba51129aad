//! Sending a session's packets, from a task of the application or from the driver.

use std::{boxed::Box, io, vec::Vec};

use super::{
    Guard, Session,
    state::{PeerAddress, State},
};
use crate::{
    net::{
        clock,
        handover::{self, Next, Sender},
        socket::{self, Progress},
        wake_list::WakeList,
    },
    proto::{Instant, Transmit},
};

impl Session {
    /// Sends what is sendable, in a task of the application, and lists the tasks that this concerns.
    ///
    /// With `corked`, less than a batch stays behind data in flight: the next write may share its system call, unless the
    /// driver comes first.
    pub(super) fn transmit(&self, state: Guard<'_>, wakes: &mut WakeList, corked: bool) -> Next {
        self.transmit_at(state, clock::now(), wakes, corked)
    }

    pub(super) fn transmit_at(
        &self,
        state: Guard<'_>,
        now: Instant,
        wakes: &mut WakeList,
        corked: bool,
    ) -> Next {
        let (mut state, next) = socket::with_transmit_buffer(|buffer| {
            handover::transmit_in_task(
                state,
                &mut Batches { session: self, now, corked, buffer, progress: Progress::default() },
            )
        });
        state.collect_events(wakes);
        next
    }

    /// Sends what is sendable. The lock is released for each system call.
    ///
    /// `now` was read under this lock: others may have sent before, and a connection's time must not run backwards.
    pub(super) fn send_batches<'g>(&self, state: Guard<'g>, now: Instant, corked: bool) -> (Guard<'g>, Next) {
        socket::with_transmit_buffer(|buffer| {
            handover::transmit(
                state,
                &mut Batches { session: self, now, corked, buffer, progress: Progress::default() },
            )
        })
    }

    /// Sends a batch that found the socket full, or the rest of it. Puts it back if the socket still is.
    #[cold]
    fn send_blocked(&self, state: &mut State, now: Instant, mut blocked: Box<Blocked>) -> Result<(), Next> {
        let mut progress = Progress::default();
        let PeerAddress { peer, local_ip } = state.address;
        let outcome = self.shared.send(peer, local_ip, blocked.transmit, &blocked.bytes, &mut progress);
        if outcome.as_ref().is_err_and(is_full) {
            blocked.bytes.drain(..progress.done);
            blocked.transmit.len -= progress.done;
            state.blocked = Some(blocked);
            return Err(Next::Blocked);
        }
        state.note_transmit(now, blocked.transmit, &progress, outcome);
        Ok(())
    }
}

/// The batches of a session, laid out in this thread's transmit buffer one after the other.
struct Batches<'a> {
    session: &'a Session,
    now: Instant,
    corked: bool,
    buffer: &'a mut [u8],
    /// How far the present batch has come.
    progress: Progress,
}

/// A batch that found the socket full.
#[derive(Debug)]
pub(super) struct Blocked {
    bytes: Vec<u8>,
    transmit: Transmit,
}

/// A batch in the transmit buffer.
struct Batch {
    transmit: Transmit,
    to: PeerAddress,
    /// The identities of packets in it that would begin a session if somebody sent them back to this socket.
    first_packets: Vec<u64>,
}

impl Sender<State> for Batches<'_> {
    type Batch = Batch;

    #[inline]
    fn take(&mut self, state: &mut State) -> Result<Batch, Next> {
        if state.held {
            // The driver serves it when it may begin.
            return Err(Next::Wait(None));
        }
        if let Some(blocked) = state.blocked.take() {
            self.session.send_blocked(state, self.now, blocked)?;
        }
        if self.corked && state.connection.holds_all_back() {
            return Err(state.next(true));
        }
        match state.connection.transmit(self.now, self.buffer, self.corked) {
            Some(transmit) => {
                let first_packets = state.connection.take_sent_first();
                Ok(Batch { transmit, to: state.address, first_packets })
            }
            None => Err(state.next(self.corked)),
        }
    }

    #[inline]
    fn send(&mut self, batch: &Batch) -> io::Result<()> {
        let shared = &self.session.shared;
        let PeerAddress { peer, local_ip } = batch.to;
        shared.note_sent_first(&batch.first_packets);
        self.progress = Progress::default();
        shared.send(peer, local_ip, batch.transmit, self.buffer, &mut self.progress)
    }

    #[inline]
    fn sent(&mut self, state: &mut State, batch: Batch, outcome: io::Result<()>) -> Result<(), Next> {
        if outcome.as_ref().is_err_and(is_full) {
            let bytes = self.buffer[self.progress.done..batch.transmit.len].to_vec();
            let transmit = Transmit { len: bytes.len(), ..batch.transmit };
            state.blocked = Some(Box::new(Blocked { bytes, transmit }));
            return Err(Next::Blocked);
        }
        state.note_transmit(self.now, batch.transmit, &self.progress, outcome);
        Ok(())
    }
}

#[inline]
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
