//! Bytes as smux, and an application that answers them.
//!
//! Proves that no bytes from a peer make a session without I/O panic, in either role and version, whatever its application does
//! between them; that streams stay within their limit; and that a session whose streams were all released has nothing
//! unread. The first byte chooses the role and the version. Then come turns: what the application does, and how many of the bytes
//! behind it come in.

#![no_main]

mod script;

use kcp9::{
    mux::{MuxConfig, MuxCore, MuxRole, MuxVersion},
    proto::Instant,
};
use libfuzzer_sys::fuzz_target;
use script::Script;

const MAX_STREAMS: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let setup = script.byte();
    let version = if setup & 1 == 0 { MuxVersion::V1 } else { MuxVersion::V2 };
    let role = if setup & 2 == 0 { MuxRole::Client } else { MuxRole::Server };
    let config = MuxConfig::builder().version(version).max_streams(MAX_STREAMS).accept_backlog(4);
    let config = config.receive_buffer(100_000).send_buffer(1_000).build().unwrap();
    let mut now = Instant::ZERO;
    let mut core = MuxCore::new(config, role, now);
    let (mut keys, mut opened, mut buffer) = (Vec::new(), 0, Vec::new());
    while !script.0.is_empty() {
        let (action, at) = (script.byte(), usize::from(script.byte()));
        match (action % 10, keys.get(at % keys.len().max(1)).copied()) {
            (0, _) if opened < 8 => {
                if let Ok(Some(key)) = core.open() {
                    keys.push(key);
                    opened += 1;
                }
            }
            (1, Some(key)) => {
                keys.retain(|other| *other != key);
                core.release(key);
            }
            (2, Some(key)) => core.finish(key),
            (3, Some(key)) => drop(core.write(now, key, &[7; 300])),
            (4, Some(key)) => drop(core.read(key, at * 100, |_| ())),
            (5, Some(key)) => drop(core.read_piece(key, at * 1_000)),
            (6, _) => drop(core.take_output(now, &mut buffer)),
            (7, _) => {
                now += core::time::Duration::from_millis(at as u64 * 100);
                core.handle_timeout(now);
            }
            _ => {}
        }
        let count = usize::from(script.byte());
        if core.wants_input() {
            core.receive(now, script.bytes(count).into());
        }
        keys.extend(core.accept());
        while core.poll_event().is_some() {}
        assert!(core.stats().open_streams <= MAX_STREAMS + opened);
        assert!(core.stats().unread_bytes < 100_000 + 256);
    }
    core.receive_end();
    keys.into_iter().for_each(|key| core.release(key));
    core.stop_accepting();
    assert_eq!((core.stats().unread_bytes, core.stats().open_streams), (0, 0));
});
