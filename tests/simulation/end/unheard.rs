//! Ends of which nobody is there to learn.

use std::time::Duration;

use kcp9::proto::{Connection, Event};
use kcp9_simulator::{CLIENT, LinkSettings, SERVER, Writer, ms};

use super::{Know, SECOND, both, reason, session, when};

const DELAY: Duration = ms(25);

/// Nothing was written, and nobody answers: nothing can be lost. A peer that is heard after all learns of the end.
#[test]
fn an_empty_shutdown_towards_nobody_is_done_soon_and_told_later() {
    let mut simulation = session(1, Know::Both, both(&LinkSettings::delay(DELAY)), |config| config);
    simulation.ends[CLIENT].link.lose_if(|_, _| true);
    simulation.call(CLIENT, Connection::shutdown);
    simulation.run_for(5 * SECOND);
    let done = when(&simulation, CLIENT, Event::Flushed).expect("the shutdown is done");
    // 8 RTO of 200 ms.
    assert!((ms(1_600)..ms(2_000)).contains(&done), "after {done:?}");
    assert_eq!(reason(&simulation, CLIENT), None, "the peer may still answer");

    simulation.ends[CLIENT].link.lose_nothing_more();
    simulation.ends[SERVER].writer = Writer::bulk(100);
    simulation.run_for(20 * SECOND);
    assert!(when(&simulation, SERVER, Event::Finished).is_some(), "the end is not known");
    assert_eq!(simulation.flows[SERVER].read, 100);
}
