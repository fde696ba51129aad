//! A port that several endpoints serve, and the table that they share.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use kcp9::{
    KcpConfig,
    proto::{Handle, Instant, ShardTable},
};
use kcp9_simulator::ms;

use crate::host::{Batch, Host, address};

/// A table that is slow, and notices what is not right.
#[derive(Debug, Default)]
pub(super) struct Table {
    shards: u16,
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    owned: HashMap<u64, (u16, usize)>,
    sessions: usize,
    received: HashSet<u64>,
    sent: HashSet<u64>,
}

impl Table {
    /// Whether nothing is held or counted any more.
    pub(super) fn is_empty(&self) -> bool {
        let contents = self.contents.lock().unwrap();
        contents.owned.is_empty() && contents.sessions == 0
    }
}

impl ShardTable for Table {
    fn shards(&self) -> u16 {
        self.shards
    }

    fn owner(&self, key: u64) -> Option<u16> {
        self.contents.lock().unwrap().owned.get(&key).map(|owned| owned.0)
    }

    fn hold(&self, key: u64, shard: u16) -> Result<(), u16> {
        let mut contents = self.contents.lock().unwrap();
        let owned = contents.owned.entry(key).or_insert((shard, 0));
        if owned.0 != shard {
            return Err(owned.0);
        }
        owned.1 += 1;
        Ok(())
    }

    fn take_over(&self, key: u64, shard: u16) -> Option<u16> {
        let before = self.contents.lock().unwrap().owned.insert(key, (shard, 1));
        before.map(|before| before.0).filter(|before| *before != shard)
    }

    fn release(&self, key: u64, shard: u16) {
        let mut contents = self.contents.lock().unwrap();
        let Some(owned) = contents.owned.get_mut(&key).filter(|owned| owned.0 == shard) else { return };
        owned.1 -= 1;
        if owned.1 == 0 {
            contents.owned.remove(&key);
        }
    }

    fn add_session(&self, max: usize) -> bool {
        let mut contents = self.contents.lock().unwrap();
        let has_room = contents.sessions < max;
        contents.sessions += usize::from(has_room);
        has_room
    }

    fn remove_session(&self) {
        self.contents.lock().unwrap().sessions -= 1;
    }

    fn sessions(&self) -> usize {
        self.contents.lock().unwrap().sessions
    }

    fn remember_first(&self, identity: u64) -> bool {
        let mut contents = self.contents.lock().unwrap();
        !contents.sent.contains(&identity) && contents.received.insert(identity)
    }

    fn remember_resend(&self, identity: u64) -> bool {
        self.remember_first(identity)
    }

    fn remember_sent(&self, identity: u64) {
        self.contents.lock().unwrap().sent.insert(identity);
    }
}

/// The shards of one address.
pub(super) struct Port {
    pub(super) address: SocketAddr,
    pub(super) shards: Vec<Host>,
    max_half_open: usize,
    table: Arc<Table>,
}

impl Port {
    pub(super) fn new(shards: u16, config: &KcpConfig) -> Self {
        let table = Arc::new(Table { shards, ..Table::default() });
        let address = address(1, 1);
        let shard = |index| Host::shard(address, config, Arc::clone(&table) as Arc<dyn ShardTable>, index);
        let shards = (0..shards).map(shard).collect();
        Self { address, shards, max_half_open: config.max_half_open(), table }
    }

    /// Packets arrive at a shard, and where they belong.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        shard: usize,
        source: SocketAddr,
        bytes: Vec<u8>,
        stride: usize,
    ) {
        self.shards[shard].receive(now, source, bytes, stride);
        for (packets, bytes) in std::mem::take(&mut self.shards[shard].handed_over) {
            let owner = usize::from(packets.shard);
            assert_ne!(owner, shard, "handed over to itself");
            self.shards[owner].receive_handed_over(now, &packets, bytes);
            assert!(self.shards[owner].handed_over.is_empty(), "handed over again");
        }
        self.settle(now);
    }

    pub(super) fn receive_one(&mut self, now: Instant, shard: usize, source: SocketAddr, packet: &[u8]) {
        self.receive(now, shard, source, packet.to_vec(), packet.len());
    }

    pub(super) fn drive(&mut self, now: Instant) -> Vec<Batch> {
        let batches = self.shards.iter_mut().flat_map(|shard| shard.drive(now)).collect();
        self.settle(now);
        batches
    }

    /// Sessions end whose address those of other shards have taken.
    fn settle(&mut self, now: Instant) {
        for index in 0..self.shards.len() {
            for replaced in std::mem::take(&mut self.shards[index].replaced_elsewhere) {
                self.shards[usize::from(replaced.shard)].end_replaced(now, &replaced);
            }
        }
        let mut routes = HashSet::new();
        for shard in &self.shards {
            for handle in shard.endpoint.sessions() {
                let route = shard.endpoint.route(handle).unwrap();
                assert!(routes.insert(route), "{route:?} has sessions in two shards");
            }
        }
        assert_eq!(self.table.sessions(), routes.len());
        // Each shard has room for one.
        let max = self.max_half_open.max(self.shards.len());
        assert!(self.half_open() <= max, "{} are half-open, and {max} may be", self.half_open());
    }

    /// Half-open sessions of all shards.
    pub(super) fn half_open(&self) -> usize {
        self.shards.iter().map(|shard| shard.endpoint.half_open()).sum()
    }

    /// Sessions of each shard.
    pub(super) fn sessions(&self) -> Vec<usize> {
        self.shards.iter().map(|shard| shard.endpoint.len()).collect()
    }

    /// What the shards have counted.
    pub(super) fn sum(&self, count: impl Fn(&kcp9::proto::RoutingStats) -> u64) -> u64 {
        self.shards.iter().map(|shard| count(&shard.stats())).sum()
    }

    /// Ends all sessions, waits until nothing of them is remembered, and looks whether something is left in the table.
    pub(super) fn end(mut self, now: Instant) {
        for shard in &mut self.shards {
            let sessions: Vec<Handle> = shard.endpoint.sessions().collect();
            sessions.into_iter().for_each(|session| shard.close(now, session));
        }
        assert_eq!((self.table.sessions(), self.half_open()), (0, 0));
        for shard in &mut self.shards {
            shard.endpoint.forget_expired(now + ms(61_000));
        }
        assert!(self.table.is_empty(), "{:?}", self.table);
    }
}
