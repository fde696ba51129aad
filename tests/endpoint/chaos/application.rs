//! The programs at both ends of a session: what they write, check and want.

use kcp9::proto::{AbortReason, CloseReason, Connection, Instant};
use kcp9_simulator::{Rng, ms, payload::Payload};

/// How an end goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// It shuts down when it has written all, and reads to the end.
    ShutDown,
    /// It drops its stream at that time.
    Drop(Instant),
    /// It aborts the session at that time.
    Abort(Instant),
}

impl How {
    pub(super) fn random(now: Instant, rng: &mut Rng) -> Self {
        let at = now + rng.duration(ms(8_000));
        match rng.within(0..=9) {
            0..=6 => Self::ShutDown,
            7..=8 => Self::Drop(at),
            _ => Self::Abort(at),
        }
    }
}

/// One end of a session.
#[derive(Debug)]
pub(super) struct Application {
    pub(super) how: How,
    /// What it writes, and how much of it.
    ours: Payload,
    limit: u64,
    pub(super) written: u64,
    /// What it reads.
    theirs: Payload,
    pub(super) read: u64,
    /// The server was restarted before its ANSWER came. The next server takes the session for a new one, and what came of both
    /// cannot be told apart: see R17a in `docs/extensions.md`.
    pub(super) may_read_of_two: bool,
    /// It reads only in every so many steps.
    pace: u64,
    steps: u64,
    /// It has done what `how` says.
    gone: bool,
    pub(super) result: Option<CloseReason>,
}

impl Application {
    /// The end of session `number` that has connected, or the one that has accepted it.
    pub(super) fn new(number: u64, connects: bool, now: Instant, rng: &mut Rng) -> Self {
        let (ours, theirs) = (Payload::new(number * 2_221), Payload::new(number * 2_221 + 1_109));
        let (ours, theirs) = if connects { (ours, theirs) } else { (theirs, ours) };
        Self {
            how: How::random(now, rng),
            ours,
            limit: if rng.chance(0.1) { 0 } else { rng.magnitude(1..=60_000) },
            written: 0,
            theirs,
            read: 0,
            may_read_of_two: false,
            pace: if rng.chance(0.2) { 20 } else { 1 },
            steps: 0,
            gone: false,
            result: None,
        }
    }

    pub(super) fn has_written_all(&self) -> bool {
        self.written == self.limit
    }

    /// Reads what has come, and panics at the first wrong byte.
    pub(super) fn read(&mut self, connection: &mut Connection) {
        let mut bytes = [0; 4_096];
        while let Ok(count) = connection.read(&mut bytes) {
            let wrong = self.theirs.first_difference(self.read, &bytes[..count]);
            assert!(
                wrong.is_none() || self.may_read_of_two,
                "{wrong:?} of {count} bytes at {}: {self:?}",
                self.read
            );
            self.read += count as u64;
        }
    }

    /// One turn of the program.
    pub(super) fn work(&mut self, now: Instant, connection: &mut Connection) {
        self.steps += 1;
        let reads = !matches!(self.how, How::Drop(_)) || !self.gone;
        if reads && self.steps.is_multiple_of(self.pace) {
            self.read(connection);
        }
        let mut bytes = [0; 2_000];
        while !self.gone && self.written < self.limit {
            let len = (bytes.len() as u64).min(self.limit - self.written) as usize;
            self.ours.fill(self.written, &mut bytes[..len]);
            let Ok(count) = connection.write(now, &bytes[..len]) else { break };
            self.written += count as u64;
        }
        if self.gone {
            return;
        }
        let without_reader = connection.write_ready() == Err(kcp9::proto::WriteError::NoReader);
        match self.how {
            How::ShutDown if self.has_written_all() || without_reader => connection.shutdown(now),
            How::Drop(at) if at <= now => connection.drop_reader(now),
            How::Abort(at) if at <= now => connection.abort(now, AbortReason::Application),
            _ => return,
        }
        self.gone = true;
    }

    /// When it does something by itself.
    pub(super) fn next(&self) -> Option<Instant> {
        match self.how {
            How::Drop(at) | How::Abort(at) if !self.gone => Some(at),
            _ => None,
        }
    }
}

/// What must be true when both ends of a session have ended, and nothing but the two wanted it to end.
pub(super) fn check(number: usize, client: &Application, server: &Application) {
    let ends = [(client, server), (server, client)];
    let what = format!("session {number}: {client:?} {server:?}");
    if ends.iter().any(|(end, _)| matches!(end.how, How::Abort(_)) && end.gone) {
        return;
    }
    for (end, peer) in ends {
        assert_eq!(end.result, Some(CloseReason::Finished), "{what}");
        if end.how == How::ShutDown {
            assert_eq!(end.read, peer.written, "{what}");
            assert!(end.has_written_all() || peer.how != How::ShutDown, "{what}");
        }
    }
}
