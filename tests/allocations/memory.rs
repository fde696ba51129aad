//! What many sessions hold together, whatever their peers send and although nobody reads: no more than the memory that they share,
//! what each may hold without asking, and what a session is.

use std::sync::Arc;

use kcp9::{
    KcpConfig,
    proto::{BufferMemory, Command, Connection, Instant, SegmentHeader},
};

const SESSIONS: u32 = 60;
const LIMIT: usize = 1 << 20;
/// What a session may hold without asking, and what it takes besides, in these tests.
const FLOOR: usize = 32 << 10;
const REST: usize = 8 << 10;

fn push(conv: u32, sn: u32, frg: u8, len: usize) -> Vec<u8> {
    let header =
        SegmentHeader { conv, cmd: Command::Push, frg, wnd: 128, ts: 1, sn, una: 0, len: len as u32 };
    let mut packet = header.to_bytes().to_vec();
    packet.resize(packet.len() + len, 7);
    packet
}

/// The most bytes that the sessions hold while `attack` does what it does with each, and that is more than they could hold alone.
fn most(name: &str, memory: Option<&BufferMemory>, attack: fn(&mut Connection)) -> usize {
    let config = KcpConfig::default();
    let info = allocation_counter::measure(|| {
        let mut sessions: Vec<_> =
            (0..SESSIONS).map(|conv| Connection::new(conv, &config, Instant::ZERO)).collect();
        for session in &mut sessions {
            if let Some(memory) = memory {
                session.set_buffer_memory(memory);
            }
            attack(session);
            while session.poll_event().is_some() {}
        }
    });
    assert_eq!(info.bytes_current, 0, "{name}");
    usize::try_from(info.bytes_max).unwrap()
}

fn receive(session: &mut Connection, mut packet: Vec<u8>) {
    session.handle_packet(Instant::ZERO, &mut packet).unwrap();
}

/// What it is called, and what it does to a session.
type Attack = (&'static str, fn(&mut Connection));

const ATTACKS: [Attack; 9] = [
    ("full segments", |session| {
        for sn in 0..1_000 {
            receive(session, push(session.conv(), sn, 0, 1_376));
        }
    }),
    ("full segments behind a gap", |session| {
        for sn in 1..1_000 {
            receive(session, push(session.conv(), sn, 0, 1_376));
        }
    }),
    ("short segments", |session| {
        for sn in 0..2_000 {
            receive(session, push(session.conv(), sn, 0, 1));
        }
    }),
    ("short segments behind a gap", |session| {
        for sn in 1..2_000 {
            receive(session, push(session.conv(), sn, 0, 1));
        }
    }),
    ("the longest segments", |session| {
        for sn in (0..40).rev() {
            receive(session, push(session.conv(), sn, 0, 60_000));
        }
    }),
    ("messages without an end", |session| {
        for sn in 0..1_000 {
            receive(session, push(session.conv(), sn, 254, 1_376));
        }
    }),
    ("a byte in each block", |session| {
        let _ = session.read(&mut [0]);
        for sn in 0..40 {
            let mut block = vec![0; 65_536].into_boxed_slice();
            // Most of it was received before.
            for (n, packet) in block.chunks_exact_mut(1_024).enumerate() {
                let sn = if n == 0 { sn } else { 0 };
                packet.copy_from_slice(&push(session.conv(), sn, 0, 1_000));
            }
            session.handle_batch(Instant::ZERO, &Arc::new(block), 0..65_536, 1_024);
        }
    }),
    ("spare memory of a burst that was read", |session| {
        for sn in 0..500 {
            receive(session, push(session.conv(), sn, 0, 1_376));
            if sn % 100 == 99 {
                while session.read(&mut [0; 65_536]).is_ok() {}
            }
        }
        receive(session, push(session.conv(), 500, 0, 1));
    }),
    ("writes that nobody acknowledges", |session| {
        let mut buffer = [0; 65_536];
        for _ in 0..100 {
            while session.write(Instant::ZERO, &[7; 10_000]).is_ok() {}
            while session.poll_transmit(Instant::ZERO, &mut buffer).is_some() {}
        }
    }),
];

#[test]
fn all_sessions_together_hold_no_more_than_is_said_whatever_their_peers_send() {
    for (name, attack) in ATTACKS {
        let memory = BufferMemory::new(LIMIT);
        let together = most(name, Some(&memory), attack);
        assert_eq!(memory.taken(), 0, "{name}");
        let said = LIMIT + SESSIONS as usize * (FLOOR + REST);
        let alone = most(name, None, attack);
        println!("{name}: {} KiB a session, {} KiB without a limit", together / 61_440, alone / 61_440);
        assert!(together <= said, "{name}: {together} of {said}");
        assert!(alone > together, "{name}: no attack, {alone}");
    }
}

/// As above, and a session that ended or was dropped gives all of it back at once.
#[test]
fn what_ended_sessions_held_is_there_for_others() {
    let (memory, config) = (BufferMemory::new(LIMIT), KcpConfig::default());
    for round in 0..9 {
        let mut sessions: Vec<_> =
            (0..SESSIONS).map(|conv| Connection::new(conv, &config, Instant::ZERO)).collect();
        for session in &mut sessions {
            session.set_buffer_memory(&memory);
            ATTACKS[round % ATTACKS.len()].1(session);
        }
        assert!(memory.taken() > LIMIT / 2, "round {round}: {}", memory.taken());
        drop(sessions);
        assert_eq!(memory.taken(), 0, "round {round}");
    }
}
