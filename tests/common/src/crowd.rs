//! Sessions side by side: in each direction, the packets of all of them wait in one queue for one transmitter.

use std::time::Duration;

use kcp9::{KcpConfig, proto::Instant};

use super::{
    link::LinkSettings,
    simulation::{CLIENT, SERVER, Simulation},
};

/// Several simulations on one clock.
pub struct Crowd {
    pub now: Instant,
    pub sessions: Vec<Simulation>,
}

impl Crowd {
    /// `count` sessions of the same configuration that share a path.
    pub fn new(seed: u64, count: usize, config: &KcpConfig, link: &LinkSettings) -> Self {
        Self::of(seed, core::iter::repeat_n(config, count), link)
    }

    /// A session of each configuration, which share a path.
    pub fn of<'a>(seed: u64, configs: impl Iterator<Item = &'a KcpConfig>, link: &LinkSettings) -> Self {
        let mut sessions: Vec<_> = (0..)
            .zip(configs)
            .map(|(index, config)| Simulation::new(seed ^ index << 32, config, link))
            .collect();
        if let Some((first, others)) = sessions.split_first_mut() {
            for other in others {
                for side in [CLIENT, SERVER] {
                    other.ends[side].link.share_transmitter(&first.ends[side].link);
                }
            }
        }
        Self { now: Instant::ZERO, sessions }
    }

    /// Runs all of them for a time, event by event, and leaves their clocks at its end.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.sessions.iter_mut().for_each(Simulation::start);
        let next = |session: &mut Simulation| session.next_event().filter(|at| *at <= end);
        while let Some((_, session)) = self
            .sessions
            .iter_mut()
            .filter_map(|session| Some((next(session)?, session)))
            .min_by_key(|(at, _)| *at)
        {
            session.step_within(end);
        }
        self.now = end;
        // All their events up to `end` are done; this moves their clocks.
        self.sessions.iter_mut().for_each(|session| session.run_for(end - session.now));
    }

    /// Bytes that each server reads over `time`.
    pub fn read_in(&mut self, time: Duration) -> Vec<u64> {
        let read = |crowd: &Self| -> Vec<u64> {
            crowd.sessions.iter().map(|session| session.flows[CLIENT].read).collect()
        };
        let before = read(self);
        self.run_for(time);
        read(self).iter().zip(before).map(|(after, before)| after - before).collect()
    }

    /// Most bytes that have waited for the transmitter of the clients since the last call.
    pub fn take_longest_queue(&mut self) -> usize {
        self.sessions.first_mut().map_or(0, |session| session.client().link.take_longest_queue())
    }
}
