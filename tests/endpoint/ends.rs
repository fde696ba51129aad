//! Sessions between two ends of ours that end while packets are lost: what one end still sends when the other has gone is
//! answered by the other's record.

use std::time::Duration;

use kcp9::{
    KcpConfig,
    proto::{CloseReason, Extensions, Handle, Instant, ReadError},
};
use kcp9_simulator::{Rng, ms};

use crate::{
    ciphers::aead,
    host::{Batch, Host, address, client},
    network::SeedOnPanic,
};

const NOW: Instant = Instant::ZERO;

fn configs() -> Vec<KcpConfig> {
    // Where every FIN was lost, the peer asks what has become of the session.
    let keep_alive = Some(Duration::from_secs(5));
    let plain = || KcpConfig::builder().extensions(Extensions::Preferred).keep_alive(keep_alive);
    let crypto = || aead(b"the key of both.");
    vec![
        plain().build().unwrap(),
        plain().fec(3, 1).build().unwrap(),
        plain().crypto(crypto()).build().unwrap(),
        plain().fec(3, 1).crypto(crypto()).build().unwrap(),
    ]
}

/// A host whose session is closed at the endpoint as soon as it has ended, and what became of it.
struct Side {
    host: Host,
    handle: Option<Handle>,
    received: usize,
    shut_down: bool,
    result: Option<CloseReason>,
}

impl Side {
    /// Reads, shuts down at the end of what comes or when there is nothing to wait for, and goes when all is done.
    fn work(&mut self, now: Instant, shuts_first: bool) {
        let Some(handle) = self.handle else { return };
        let mut chunk = [0; 4_096];
        let connection = self.host.connection(handle);
        let ended = loop {
            match connection.read(&mut chunk) {
                Ok(len) => self.received += len,
                Err(error) => break error == ReadError::Finished,
            }
        };
        if !self.shut_down && (shuts_first || ended) {
            self.shut_down = true;
            connection.shutdown(now);
        }
        if let Some(reason) = connection.close_reason() {
            self.result = Some(reason);
            self.host.close(now, handle);
            self.handle = None;
        }
    }
}

impl Side {
    fn has_ended(&mut self) -> bool {
        self.handle.is_some_and(|handle| self.host.connection(handle).close_reason().is_some())
    }
}

/// One exchange: the client writes, shuts down, and the server answers. Each packet is lost with the probability `loss`. Returns how
/// long it took.
fn exchange(config: &KcpConfig, rng: &mut Rng, loss: f64) -> Duration {
    let (request, answer) = (rng.size(1..=5_000), rng.size(0..=5_000));
    let server_shuts_first = rng.chance(0.3);
    let mut client_side = Host::connecting(client(1));
    let server = Host::accepting(address(1, 1), config);
    let handle = client_side.connect(NOW, server.address, 7, config);
    client_side.connection(handle).write(NOW, &vec![1; request]).unwrap();
    let side = |host, handle| Side { host, handle, received: 0, shut_down: false, result: None };
    let mut sides = [side(client_side, Some(handle)), side(server, None)];
    let mut under_way: Vec<(Instant, usize, Batch)> = Vec::new();
    let mut now = NOW;
    loop {
        for (index, side) in sides.iter_mut().enumerate() {
            side.work(now, index == 0 || server_shuts_first);
            for batch in side.host.drive(now) {
                for packet in batch.bytes.chunks(batch.stride) {
                    if !rng.chance(loss) {
                        let batch = Batch { bytes: packet.to_vec(), stride: packet.len(), ..batch };
                        under_way.push((now + ms(20) + rng.duration(ms(30)), 1 - index, batch));
                    }
                }
            }
        }
        if sides.iter().all(|side| side.result.is_some()) {
            break;
        }
        // What was due may have ended one.
        if sides.iter_mut().any(Side::has_ended) {
            continue;
        }
        let next = under_way.iter().map(|packet| packet.0).min();
        let next = next.into_iter().chain(sides.iter().filter_map(|side| side.host.poll_timeout())).min();
        now = next.unwrap_or_else(|| panic!("nothing to wait for at {now:?}")).max(now);
        assert!(now < NOW + ms(60_000), "{:?}", sides.map(|side| side.result));
        let arrived: Vec<_> = under_way.extract_if(.., |packet| packet.0 <= now).collect();
        for (_, to, batch) in arrived {
            let source = sides[1 - to].host.address;
            sides[to].host.receive(now, source, batch.bytes, batch.stride);
        }
        if let Some(accepted) = sides[1].host.take_accepted() {
            assert_eq!(sides[1].result, None, "a second session at {now:?}");
            assert_eq!(sides[1].handle.replace(accepted), None, "a second session at {now:?}");
            if answer > 0 {
                sides[1].host.connection(accepted).write(now, &vec![2; answer]).unwrap();
            }
        }
    }
    assert_eq!(sides.each_ref().map(|side| side.result), [Some(CloseReason::Finished); 2], "at {now:?}");
    assert_eq!(sides.each_ref().map(|side| side.received), [answer, request]);
    assert_eq!(sides[1].host.stats().accepted, 1);
    now - NOW
}

/// Each question that decides how a session ends is asked often enough: who was heard is there and will answer.
#[test]
#[ignore = "long; run it with `cargo test --release -p kcp9-tests --test endpoint ends -- --ignored`"]
fn no_exchange_comes_near_the_time_that_a_shutdown_waits() {
    let config = KcpConfig::default();
    for seed in 0..100_000 {
        let _seed = SeedOnPanic(seed);
        let took = exchange(&config, &mut Rng::new(seed), 0.2);
        assert!(took < ms(20_000), "{took:?}");
    }
}

#[test]
fn every_session_ends_without_error_at_both_ends() {
    for config in configs() {
        for seed in 0..500 {
            let _seed = SeedOnPanic(seed);
            let mut rng = Rng::new(seed);
            let loss = [0.0, 0.1, 0.2][rng.size(0..=2)];
            exchange(&config, &mut rng, loss);
        }
    }
}
