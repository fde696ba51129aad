//! How sessions end: shut down, dropped and aborted in every state, over paths that lose, delay, double and reorder.
//!
//! The rules are in `docs/extensions.md`, section 2.4, and the races in 6.3.

mod cases;
mod operations;
mod random;
mod unheard;

use std::time::Duration;

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{CloseReason, Connection, Event, Extensions, Instant, Random, SessionSeed},
};
use kcp9_simulator::{CLIENT, LinkSettings, Rng, SERVER, Simulation};

const SECOND: Duration = Duration::from_secs(1);

/// Which ends know the extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Know {
    Both,
    Client,
    Server,
    Neither,
}

impl Know {
    const fn knows(self, side: usize) -> bool {
        match self {
            Self::Both => true,
            Self::Client => side == CLIENT,
            Self::Server => side == SERVER,
            Self::Neither => false,
        }
    }
}

/// The simulator's generator as a source of ids.
struct Ids(Rng);

impl Random for Ids {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.0.next() as u8);
    }
}

fn config(know: Know, side: usize, settings: impl Fn(KcpConfigBuilder) -> KcpConfigBuilder) -> KcpConfig {
    let extensions = if know.knows(side) { Extensions::Preferred } else { Extensions::Off };
    settings(KcpConfig::builder()).extensions(extensions).build().unwrap()
}

/// A session between two ends of which `know` know the extensions.
fn session(
    seed: u64,
    know: Know,
    links: [LinkSettings; 2],
    settings: impl Fn(KcpConfigBuilder) -> KcpConfigBuilder,
) -> Simulation {
    session_at(seed, know, links, 0, settings)
}

/// As [`session`], with segments numbered from `first_sn`.
fn session_at(
    seed: u64,
    know: Know,
    links: [LinkSettings; 2],
    first_sn: u32,
    settings: impl Fn(KcpConfigBuilder) -> KcpConfigBuilder,
) -> Simulation {
    let configs = [CLIENT, SERVER].map(|side| config(know, side, &settings));
    let clocks = [Duration::ZERO; 2];
    let mut simulation = Simulation::with(seed, [&configs[0], &configs[1]], links, first_sn, clocks);
    // An end that does not know the extensions refuses them.
    simulation.may_refuse = know != Know::Both;
    let mut ids = Ids(Rng::new(!seed));
    let conv = simulation.client().connection.conv();
    let now = simulation.now;
    for side in [CLIENT, SERVER].into_iter().filter(|side| know.knows(*side)) {
        let seed = SessionSeed::new(&mut ids);
        simulation.ends[side].connection = if side == CLIENT {
            Connection::connecting_at(conv, &configs[side], now, seed, first_sn)
        } else {
            Connection::accepting_at(conv, &configs[side], now, seed, first_sn)
        };
    }
    simulation
}

/// The same path in both directions.
fn both(link: &LinkSettings) -> [LinkSettings; 2] {
    [link.clone(), link.clone()]
}

fn closed(reason: CloseReason) -> Event {
    Event::Closed(reason)
}

/// Why the session has ended at one end.
fn reason(simulation: &Simulation, side: usize) -> Option<CloseReason> {
    simulation.ends[side].connection.close_reason()
}

/// When one end had an event first, since the start.
fn when(simulation: &Simulation, side: usize, event: Event) -> Option<Duration> {
    let found = simulation.events(side).iter().find(|(_, found)| *found == event)?;
    Some(found.0 - Instant::ZERO)
}
