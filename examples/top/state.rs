//! What is shown and how it is sorted, without a terminal.

use std::{cmp::Ordering, collections::HashMap, net::SocketAddr};

use super::feed::{Session, Snapshot};

/// What the user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// Sort by the column on the right of the present one, or on the left.
    Right,
    Left,
    Reverse,
    Up,
    Down,
    /// Shows the present figures until the same key comes again.
    Pause,
    Quit,
}

/// By what rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Peer,
    Conv,
    Sent,
    Received,
    Rtt,
    Loss,
    Resent,
    Recovered,
    Memory,
}

impl Column {
    pub(crate) const ALL: [Self; 9] = [
        Self::Peer,
        Self::Conv,
        Self::Sent,
        Self::Received,
        Self::Rtt,
        Self::Loss,
        Self::Resent,
        Self::Recovered,
        Self::Memory,
    ];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Conv => "conv",
            Self::Sent => "out/s",
            Self::Received => "in/s",
            Self::Rtt => "rtt ms",
            Self::Loss => "loss %",
            Self::Resent => "resent",
            Self::Recovered => "fec",
            Self::Memory => "memory",
        }
    }
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) peer: SocketAddr,
    pub(crate) conv: u32,
    /// Bytes per second.
    pub(crate) sent: f64,
    pub(crate) received: f64,
    /// Milliseconds.
    pub(crate) rtt: f64,
    /// Segments that were sent again, in percent of those sent for the first time, since the snapshot before.
    pub(crate) loss: f64,
    /// Since the session began: segments sent again, and packets that FEC recovered.
    pub(crate) resent: u64,
    pub(crate) recovered: u64,
    /// Bytes of its buffers.
    pub(crate) memory: u64,
}

/// All that is shown.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) rows: Vec<Row>,
    pub(crate) sort: Column,
    pub(crate) descending: bool,
    pub(crate) selected: usize,
    pub(crate) paused: bool,
    /// Why nothing more comes.
    pub(crate) ended: Option<String>,
    pub(crate) count: u64,
    pub(crate) memory: u64,
    before: Option<Before>,
}

/// The snapshot before.
#[derive(Debug)]
struct Before {
    time: u64,
    sessions: HashMap<(SocketAddr, u32), Session>,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            rows: Vec::new(),
            sort: Column::Sent,
            descending: true,
            selected: 0,
            paused: false,
            ended: None,
            count: 0,
            memory: 0,
            before: None,
        }
    }

    /// Takes what the server says. Rates are those since the snapshot before, and zero in the first.
    pub(crate) fn update(&mut self, snapshot: Snapshot) {
        let before = self.before.take();
        let seconds = match &before {
            Some(before) => snapshot.time.saturating_sub(before.time) as f64 / 1e3,
            None => 0.0,
        };
        if !self.paused {
            let known = |session: &Session| before.as_ref()?.sessions.get(&(session.peer, session.conv));
            self.rows = snapshot.sessions.iter().map(|now| Row::of(now, known(now), seconds)).collect();
            (self.count, self.memory) = (snapshot.count, snapshot.memory);
            self.order();
        }
        let sessions = snapshot.sessions.into_iter().map(|session| ((session.peer, session.conv), session));
        self.before = Some(Before { time: snapshot.time, sessions: sessions.collect() });
    }

    /// Returns whether the program goes on.
    pub(crate) fn press(&mut self, key: Key) -> bool {
        match key {
            Key::Quit => return false,
            Key::Right => self.sort_by_next(1),
            Key::Left => self.sort_by_next(Column::ALL.len() - 1),
            Key::Reverse => self.descending = !self.descending,
            Key::Up => self.selected = self.selected.saturating_sub(1),
            Key::Down => self.selected += 1,
            Key::Pause => self.paused = !self.paused,
        }
        self.order();
        true
    }

    /// All rates together: sent and received.
    pub(crate) fn rates(&self) -> (f64, f64) {
        (self.rows.iter().map(|row| row.sent).sum(), self.rows.iter().map(|row| row.received).sum())
    }

    fn sort_by_next(&mut self, by: usize) {
        let place = Column::ALL.iter().position(|column| *column == self.sort).unwrap_or(0);
        self.sort = Column::ALL[(place + by) % Column::ALL.len()];
    }

    /// Sorts the rows. Those that are equal stay in the order of their peers, so that lines do not jump.
    fn order(&mut self) {
        let (sort, descending) = (self.sort, self.descending);
        self.rows.sort_by(|a, b| {
            let order = a.compare(b, sort);
            let order = if descending { order.reverse() } else { order };
            order.then_with(|| (a.peer, a.conv).cmp(&(b.peer, b.conv)))
        });
        self.selected = self.selected.min(self.rows.len().saturating_sub(1));
    }
}

impl Row {
    fn of(now: &Session, before: Option<&Session>, seconds: f64) -> Self {
        let grown =
            |get: fn(&Session) -> u64| before.map_or(0, |before| get(now).saturating_sub(get(before))) as f64;
        let rate = |bytes: f64| if seconds > 0.0 { bytes / seconds } else { 0.0 };
        let (pushed, resent) = (grown(|session| session.pushed), grown(|session| session.resent));
        Self {
            peer: now.peer,
            conv: now.conv,
            sent: rate(grown(|session| session.sent)),
            received: rate(grown(|session| session.received)),
            rtt: now.rtt as f64 / 1e3,
            // What was sent before may be resent when nothing new is.
            loss: if pushed > 0.0 { (resent / pushed * 100.0).min(100.0) } else { 0.0 },
            resent: now.resent,
            recovered: now.recovered,
            memory: now.memory,
        }
    }

    fn compare(&self, other: &Self, column: Column) -> Ordering {
        match column {
            Column::Peer => self.peer.cmp(&other.peer),
            Column::Conv => self.conv.cmp(&other.conv),
            Column::Sent => self.sent.total_cmp(&other.sent),
            Column::Received => self.received.total_cmp(&other.received),
            Column::Rtt => self.rtt.total_cmp(&other.rtt),
            Column::Loss => self.loss.total_cmp(&other.loss),
            Column::Resent => self.resent.cmp(&other.resent),
            Column::Recovered => self.recovered.cmp(&other.recovered),
            Column::Memory => self.memory.cmp(&other.memory),
        }
    }
}
