//! What begins a session.
//!
//! KCP has no handshake: a session begins with the packet that carries the first PUSH of an unknown conversation. Peers that
//! know the extensions begin it with a HELLO, and may send nothing else; if that is lost, their first PUSH does it too. The
//! packet may be one that an attacker has recorded and sends again. So an endpoint that accepts sessions remembers, where
//! packets are authenticated, the packets that have begun a session. (It may also be a late one of a session that has ended:
//! that is for the [records](super::record).)

use core::net::SocketAddr;

use super::{
    batch::Batch,
    decryptor::Decryptor,
    first_packets::FirstPackets,
    hash::{HashKey, Map},
    record::FirstPush,
    routes::Handle,
    shard::{ReplacedElsewhere, Shard},
};
use crate::proto::{
    Extensions, KcpConfig,
    pipeline::{Begins, begins_session},
};

/// Packets of a new session among which its first PUSH and resends of its first packet are looked for: kcp-go's usual window.
const EARLY_PACKETS: u16 = 1_024;

/// What an endpoint that accepts sessions remembers.
#[derive(Debug)]
pub(super) struct Admission {
    /// Whether new sessions are accepted still.
    pub(super) open: bool,
    /// Whether only a holder of the key can make a packet. Without that, remembering packets would stop no attacker.
    authenticated: bool,
    first_packets: FirstPackets,
    /// Whether a HELLO begins a session.
    takes_hello: bool,
    /// Whether the first PUSH does.
    takes_push: bool,
    /// The session that began last from each address, where it ends the one before.
    latest: Option<Map<SocketAddr, Handle>>,
    /// Where other shards remember with it.
    shard: Option<Shard>,
    /// A session followed its peer to the address of a session of another shard.
    replaced_elsewhere: Option<ReplacedElsewhere>,
}

/// What a run of packets of an unknown conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// It begins a session, by a HELLO or else by the first PUSH.
    New { by_hello: bool },
    /// It begins none. So many of its packets began one before.
    None { replayed: usize },
    /// It carries a first PUSH, and what begins a session here is a HELLO.
    NoHello,
}

/// Which memory a packet goes to that would begin a session.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// It does.
    First,
    /// Another one has begun it.
    Resend,
}

impl Admission {
    pub(super) fn new(config: &KcpConfig, key: HashKey) -> Self {
        // Where sessions are to agree on keys, and there are none to do that with, none is accepted.
        #[cfg(feature = "noise")]
        let open = config.noise().is_none_or(crate::proto::noise::Noise::accepts);
        #[cfg(not(feature = "noise"))]
        let open = true;
        Self {
            open,
            authenticated: config.crypto().is_some_and(|crypto| crypto.cipher().is_authenticated()),
            first_packets: FirstPackets::default(),
            takes_hello: config.extensions() != Extensions::Off,
            takes_push: config.extensions() != Extensions::Required,
            latest: config.one_session_per_address().then(|| Map::with_hasher(key)),
            shard: None,
            replaced_elsewhere: None,
        }
    }

    /// Remembers with other shards.
    pub(super) fn set_shard(&mut self, shard: Shard) {
        self.shard = Some(shard);
    }

    /// Packets of an accepted session that are to be looked at: they may be a resend of the first, which is to be given to
    /// [`remember_resends`](Self::remember_resends), or hold the first PUSH, where that is not known.
    pub(super) const fn early_packets(&self, first_push: FirstPush) -> u16 {
        if self.authenticated || !first_push.is_known() { EARLY_PACKETS } else { 0 }
    }

    /// Whether [`remember_resends`](Self::remember_resends) has something to remember.
    pub(super) const fn remembers(&self) -> bool {
        self.authenticated
    }

    /// Whether who sends a HELLO is to be told that no session is accepted any more.
    pub(super) const fn refuses(&self) -> bool {
        !self.open && self.takes_hello
    }

    /// Whether `run`, which is of no session, begins one. Packets that do are remembered.
    pub(super) fn judge(&mut self, run: &[u8], batch: &Batch, decryptor: &mut Decryptor) -> Beginning {
        let (mut by_hello, mut by_push, mut no_hello, mut replayed) = (false, false, false, 0);
        let mut begun = false;
        for packet in run.chunks(batch.stride) {
            let begins = match begins_session(batch.opened.frame.payload(packet)) {
                Begins::Hello if self.takes_hello => &mut by_hello,
                Begins::Push if self.takes_push => &mut by_push,
                Begins::Push => {
                    no_hello = true;
                    continue;
                }
                Begins::Hello | Begins::No => continue,
            };
            // One that is behind another is of the same session.
            let kind = if begun { Kind::Resend } else { Kind::First };
            if self.is_new(packet, kind, batch, decryptor) {
                *begins = true;
                begun = true;
            } else {
                replayed += 1;
            }
        }
        // Nobody can be answered at port 0.
        if !begun || batch.source.port() == 0 {
            return if no_hello { Beginning::NoHello } else { Beginning::None { replayed } };
        }
        Beginning::New { by_hello }
    }

    /// Remembers the packets of `run` that carry the first PUSH or a HELLO of a session which has begun. Sent again from
    /// another address, they begin none.
    #[inline(never)]
    pub(super) fn remember_resends(&mut self, run: &[u8], batch: &Batch, decryptor: &mut Decryptor) {
        for packet in run.chunks(batch.stride) {
            if self.begins_session(batch.opened.frame.payload(packet)) {
                self.is_new(packet, Kind::Resend, batch, decryptor);
            }
        }
    }

    /// Whether a packet begins a session, by the kinds of beginning that are taken here.
    fn begins_session(&self, payload: &[u8]) -> bool {
        match begins_session(payload) {
            Begins::No => false,
            Begins::Push => self.takes_push,
            Begins::Hello => self.takes_hello,
        }
    }

    /// Whether a packet that begins a session was never seen; remembers it.
    fn is_new(&mut self, packet: &[u8], kind: Kind, batch: &Batch, decryptor: &mut Decryptor) -> bool {
        let identity = decryptor.authentic_identity(batch, packet);
        identity.is_none_or(|identity| self.is_new_identity(identity, kind))
    }

    fn is_new_identity(&mut self, identity: u64, kind: Kind) -> bool {
        match (&self.shard, kind) {
            (None, Kind::First) => self.first_packets.remember(identity),
            (None, Kind::Resend) => self.first_packets.remember_resend(identity),
            (Some(shard), Kind::First) => shard.remember_first(identity),
            (Some(shard), Kind::Resend) => shard.remember_resend(identity),
        }
    }

    /// Whether the early data of a first message was never taken; remembers that it is.
    #[cfg(feature = "noise")]
    pub(super) fn takes_early_data(&mut self, identity: u64) -> bool {
        // Somebody who is not known yet must not take the place of the address's session.
        self.latest.is_none() && self.is_new_identity(identity, Kind::First)
    }

    /// Remembers a packet that was sent from here and would begin a session.
    pub(super) fn remember_sent(&mut self, identity: u64) {
        match &self.shard {
            None => self.first_packets.remember_sent(identity),
            Some(shard) => shard.remember_sent(identity),
        }
    }

    /// Makes `handle` the session of `address`. Returns the one before, which ends by that.
    pub(super) fn replace(&mut self, address: SocketAddr, handle: Handle) -> Option<Handle> {
        let before = self.latest.as_mut()?.insert(address, handle);
        if let Some(shard) = self.shard.as_ref().filter(|_| before.is_none())
            && let Some(shard) = shard.take_address(address)
        {
            self.replaced_elsewhere = Some(ReplacedElsewhere { shard, address });
        }
        before
    }

    /// Whether an address has one session only.
    pub(super) const fn is_one_per_address(&self) -> bool {
        self.latest.is_some()
    }

    /// The session that began last from an address.
    pub(super) fn latest_of(&self, address: SocketAddr) -> Option<Handle> {
        self.latest.as_ref()?.get(&address).copied()
    }

    /// The session of another shard that ends by the last [`replace`](Self::replace).
    pub(super) fn take_replaced_elsewhere(&mut self) -> Option<ReplacedElsewhere> {
        self.replaced_elsewhere.take()
    }

    /// Notes that a session has ended.
    pub(super) fn close(&mut self, address: SocketAddr, handle: Handle) {
        if let Some(latest) = &mut self.latest
            && latest.get(&address) == Some(&handle)
        {
            latest.remove(&address);
            if let Some(shard) = &self.shard {
                shard.release_address(address);
            }
            if latest.is_empty() {
                // Gives the memory of a crowd back.
                *latest = Map::with_hasher(*latest.hasher());
            }
        }
    }
}
