//! What carries packets between hosts: at once and whole, or over a bad path.

use std::{net::SocketAddr, thread};

use kcp9::proto::Instant;
use kcp9_simulator::{LinkSettings, Rng, link::Link};

use crate::host::Host;

/// Says which seed a random test ran with, when it fails.
pub(crate) struct SeedOnPanic(pub u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

/// Lets everything arrive that the hosts send, until nobody has anything to send.
pub(crate) fn deliver_all(now: Instant, hosts: &mut [Host]) {
    loop {
        let mut any = false;
        for index in 0..hosts.len() {
            let source = hosts[index].address;
            for batch in hosts[index].drive(now) {
                if let Some(host) = hosts.iter_mut().find(|host| host.address == batch.to) {
                    host.receive(now, source, batch.bytes, batch.stride);
                    any = true;
                }
            }
        }
        if !any {
            return;
        }
    }
}

/// Packets under way over paths that lose, double, reorder and damage them.
pub(crate) struct Network {
    link: Link,
    under_way: Vec<Packet>,
}

struct Packet {
    arrival: Instant,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Network {
    pub(crate) fn new(settings: LinkSettings, rng: Rng) -> Self {
        Self { link: Link::new(settings, rng), under_way: Vec::new() }
    }

    /// Sends what the hosts have to send.
    pub(crate) fn send(&mut self, now: Instant, hosts: &mut [Host]) {
        for host in hosts {
            let from = host.address;
            for batch in host.drive(now) {
                for packet in batch.bytes.chunks(batch.stride) {
                    for arrival in self.link.send(now, packet).into_iter().flatten() {
                        let mut bytes = packet.to_vec();
                        self.link.corrupt(&mut bytes);
                        self.under_way.push(Packet { arrival, from, to: batch.to, bytes });
                    }
                }
            }
        }
    }

    /// From here on every packet arrives, once and whole.
    #[cfg(feature = "aead")]
    pub(crate) fn calm_down(&mut self) {
        self.link.lose_nothing_more();
    }

    /// A packet under way, as somebody who listens sees it: from where, to where, and its bytes.
    #[cfg(feature = "aead")]
    pub(crate) fn overhear(&self, rng: &mut Rng) -> Option<(SocketAddr, SocketAddr, Vec<u8>)> {
        let index = rng.size(0..=self.under_way.len().checked_sub(1)?);
        let packet = &self.under_way[index];
        Some((packet.from, packet.to, packet.bytes.clone()))
    }

    /// Adds a packet that no host here has sent.
    #[cfg(feature = "aead")]
    pub(crate) fn inject(&mut self, arrival: Instant, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.under_way.push(Packet { arrival, from, to, bytes });
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.under_way.iter().map(|packet| packet.arrival).min()
    }

    /// Hands over what has arrived, as a socket does: packets of one sender and one size as one batch, in which the last
    /// may be shorter.
    pub(crate) fn receive(&mut self, now: Instant, hosts: &mut [Host]) {
        let mut arrived: Vec<_> = self.under_way.extract_if(.., |packet| packet.arrival <= now).collect();
        arrived.sort_by_key(|packet| (packet.arrival, packet.from));
        let mut arrived = arrived.into_iter().peekable();
        while let Some(Packet { from, to, mut bytes, .. }) = arrived.next() {
            let stride = bytes.len();
            let mut last = stride;
            while let Some(next) = arrived.next_if(|next| {
                (next.from, next.to) == (from, to) && last == stride && next.bytes.len() <= stride
            }) {
                last = next.bytes.len();
                bytes.extend(next.bytes);
            }
            if let Some(host) = hosts.iter_mut().find(|host| host.address == to) {
                host.receive(now, from, bytes, stride);
            }
        }
    }
}
