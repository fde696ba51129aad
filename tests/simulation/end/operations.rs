//! Any sequence of what two applications and a path may do, with the checks of [`random`](super::random) at its end. proptest
//! shrinks a sequence that fails.

use std::time::Duration;

use kcp9::proto::Instant;
use kcp9_simulator::{CLIENT, LinkSettings, SERVER, ms};
use proptest::{collection::vec, prelude::*, test_runner::RngAlgorithm};

use super::{
    Know, SECOND, both,
    random::{How, Run},
    session_at,
};

#[derive(Debug, Clone)]
enum Operation {
    Write {
        side: usize,
        bytes: u64,
    },
    /// Reads no more, or again.
    Pause {
        side: usize,
    },
    Resume {
        side: usize,
    },
    End {
        side: usize,
        how: How,
    },
    /// The next packets of this end are lost.
    Lose {
        side: usize,
        count: u32,
    },
    /// Packets of this end take so long from here on. Later ones may overtake earlier ones.
    Delay {
        side: usize,
        delay: Duration,
    },
    /// Every other packet of this end arrives twice, from here on or no more.
    Double {
        side: usize,
        twice: bool,
    },
    Wait {
        time: Duration,
    },
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let side = || 0..2_usize;
    let how = prop_oneof![4 => Just(How::Shutdown), 3 => Just(How::Drop), 1 => Just(How::Abort)];
    prop_oneof![
        4 => (side(), prop_oneof![1..3_000_u64, 1..100_000_u64])
            .prop_map(|(side, bytes)| Operation::Write { side, bytes }),
        1 => side().prop_map(|side| Operation::Pause { side }),
        2 => side().prop_map(|side| Operation::Resume { side }),
        2 => (side(), how).prop_map(|(side, how)| Operation::End { side, how }),
        3 => (side(), 1..12_u32).prop_map(|(side, count)| Operation::Lose { side, count }),
        1 => (side(), 0..200_u64).prop_map(|(side, delay)| Operation::Delay { side, delay: ms(delay) }),
        1 => (side(), any::<bool>()).prop_map(|(side, twice)| Operation::Double { side, twice }),
        6 => prop_oneof![0..40_u64, 0..400_u64].prop_map(|time| Operation::Wait { time: ms(time) }),
    ]
}

fn apply(run: &mut Run, operation: &Operation) {
    let simulation = &mut run.simulation;
    match *operation {
        Operation::Write { side, bytes } => {
            if !run.plans[side].done {
                simulation.ends[side].writer.total += bytes;
                simulation.drive(side);
            }
        }
        Operation::Pause { side } => {
            simulation.ends[side].reader.not_before = Instant::ZERO + 100_000 * SECOND;
        }
        Operation::Resume { side } => {
            simulation.ends[side].reader.not_before = Instant::ZERO;
            simulation.drive(side);
        }
        Operation::End { side, how } => run.end(side, how),
        Operation::Lose { side, mut count } => simulation.ends[side].link.lose_if(move |_, _| {
            let loses = count > 0;
            count = count.saturating_sub(1);
            loses
        }),
        Operation::Delay { side, delay } => simulation.ends[side].link.settings.delay = delay,
        Operation::Double { side, twice } => {
            simulation.ends[side].link.settings.duplicate = if twice { 0.5 } else { 0.0 };
        }
        Operation::Wait { time } => simulation.run_for(time),
    }
}

/// With the fastest generator: unoptimised, the others take longer than the code under test.
fn cases(count: u32) -> ProptestConfig {
    let rng_algorithm = RngAlgorithm::XorShift;
    ProptestConfig { failure_persistence: None, rng_algorithm, ..ProptestConfig::with_cases(count) }
}

fn any_run(operations: &[Operation], seed: u64, window: u32, first_sn: u32, fec: (usize, usize)) {
    let link = LinkSettings { reorder: 0.05, reorder_delay: ms(60), ..LinkSettings::delay(ms(20)) };
    let mut simulation = session_at(seed, Know::Both, both(&link), first_sn, |config| {
        let config = config.send_window(window).recv_window(window).fec(fec.0, fec.1);
        config.keep_alive(Some(20 * SECOND))
    });
    simulation.start();
    // The server is there with the first packet, and knows no more than that.
    simulation.run_until(60 * SECOND, |simulation| {
        simulation.ends[SERVER].connection.stats().udp.packets_received > 0
    });
    let mut run = Run::of(simulation, Know::Both);
    for operation in operations {
        apply(&mut run, operation);
    }
    for side in [CLIENT, SERVER] {
        run.simulation.ends[side].link.lose_nothing_more();
        run.simulation.ends[side].reader.not_before = Instant::ZERO;
    }
    // A reader that waits with data in its hands is as good as gone: what it has not read yet must come first.
    run.simulation.run_for(ms(1));
    for side in [CLIENT, SERVER] {
        run.end(side, How::Shutdown);
    }
    run.simulation.run_for(400 * SECOND);
    run.check();
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn any_sequence_of_operations_comes_to_an_end(
        operations in vec(any_operation(), 0..40),
        seed in any::<u64>(),
        window in prop_oneof![1..8_u32, 8..256_u32],
        first_sn in prop_oneof![Just(0_u32), (u32::MAX - 30)..=u32::MAX],
        fec in prop::sample::select(vec![(0, 0), (3, 2)]),
    ) {
        any_run(&operations, seed, window, first_sn, fec);
    }
}
