//! Routes of sealed packets, which are hidden (R98 of `docs/secure-sessions.md`): the mask is taken off as soon as packets are received,
//! in place. From there on such a packet begins with its conv, for all that looks at it afterwards, also in other shards.
//!
//! The key is known by the address that a packet comes from: that of the peer's answer, where sessions were begun with it here, else that
//! of the sessions that are accepted. What is in the clear has no mask. What lies in one batch with the answer, behind it, keeps its mask:
//! its session takes it off. (Where this end accepts sessions as well, such a packet is lost, and comes again.)

use core::net::SocketAddr;

use super::{
    Endpoint,
    agreements::{Agreements, is_sealed},
    decryptor::BegunHere,
    routes::{Handle, Routes, SEALED_TAG},
    sealed_records::SealedRecords,
};
use crate::proto::{agreement::is_clear, noise::RouteKey};

impl Endpoint {
    /// Takes the masks off the routes of the packets of a batch that may be sealed. Returns whether the batch is to be left as it is
    /// besides, although accepted sessions have a cipher: its packets are opened by their sessions, or are in the clear. The first one
    /// tells: nobody sends both kinds from one address.
    pub(super) fn unmask(&mut self, source: SocketAddr, bytes: &mut [u8], stride: usize) -> bool {
        let Self { decryptor, agreements, routes, sealed_records, .. } = self;
        let (agreements, records) = (agreements.as_deref(), sealed_records.as_deref());
        let has_cipher = decryptor.accepted().current().is_some();
        match (decryptor.begun_with(source), agreements) {
            (BegunHere::Masked(keys), of_accepted) => match (&**keys, of_accepted.map(Agreements::route_key))
            {
                ([key], None) => unmask_all(key, bytes, stride),
                (keys, of_accepted) => {
                    for packet in masked(bytes, stride) {
                        let is_begun =
                            |key: &&RouteKey| is_begun_here((source, key.route(packet)), routes, records);
                        if let Some(key) = keys.iter().find(is_begun).or(of_accepted) {
                            key.unmask(packet);
                        }
                    }
                }
            },
            (BegunHere::Nothing, Some(of_accepted)) => {
                if has_cipher && !is_agreed(source, bytes, stride, of_accepted, routes, records) {
                    return false;
                }
                unmask_all(of_accepted.route_key(), bytes, stride);
            }
            (BegunHere::Plain, Some(of_accepted)) if !has_cipher => {
                for packet in masked(bytes, stride) {
                    if !is_begun_plain(source, packet, routes) {
                        of_accepted.route_key().unmask(packet);
                    }
                }
            }
            (BegunHere::Nothing | BegunHere::Plain | BegunHere::Encrypted, _) => return false,
        }
        has_cipher
    }

    /// The session of a packet that came in one batch with the answer which has brought the key of its route.
    pub(super) fn find_masked(&mut self, packet: &[u8]) -> Option<Handle> {
        let source = self.batch.source;
        let BegunHere::Masked(keys) = self.decryptor.begun_with(source) else { return None };
        let mut convs = keys.iter().filter_map(|key| key.route(packet));
        convs.find_map(|conv| self.routes.find(&(source, conv)))
    }
}

fn conv_of(packet: &[u8]) -> Option<u32> {
    packet.first_chunk().map(|conv| u32::from_le_bytes(*conv))
}

/// The packets of a batch that are not in the clear.
fn masked(bytes: &mut [u8], stride: usize) -> impl Iterator<Item = &mut [u8]> {
    bytes.chunks_mut(stride).filter(|packet| !is_clear(packet))
}

fn unmask_all(key: &RouteKey, bytes: &mut [u8], stride: usize) {
    masked(bytes, stride).for_each(|packet| key.unmask(packet));
}

/// Whether a packet of this route, under the key of sessions that were begun here, is of one, or of a record. If both ends begin sessions
/// with each other, those that were accepted may have another key.
fn is_begun_here(
    (source, conv): (SocketAddr, Option<u32>),
    routes: &Routes,
    records: Option<&SealedRecords>,
) -> bool {
    let Some(conv) = conv else { return false };
    let route = (source, conv);
    routes.find(&route).is_some() || records.is_some_and(|records| records.contains(&route))
}

/// Whether a packet is of a session without keys and cipher that was begun here.
fn is_begun_plain(source: SocketAddr, packet: &[u8], routes: &Routes) -> bool {
    let handle = conv_of(packet).and_then(|conv| routes.find(&(source, conv)));
    handle.and_then(|handle| routes.get(handle)).is_some_and(|entry| !entry.sealed)
}

/// Whether a batch is of a peer that has agreed on keys, or does so now, where there are others as well.
fn is_agreed(
    source: SocketAddr,
    bytes: &[u8],
    stride: usize,
    agreements: &Agreements,
    routes: &Routes,
    records: Option<&SealedRecords>,
) -> bool {
    let packet = &bytes[..bytes.len().min(stride)];
    if is_clear(packet) {
        let found = conv_of(packet).and_then(|conv| routes.find(&(source, conv)));
        return found.and_then(|handle| routes.get(handle)).is_none_or(|entry| entry.sealed);
    }
    let Some(conv) = agreements.route_key().route(packet) else { return false };
    let route = (source, conv);
    is_sealed(&route, routes, Some(agreements), records)
        || routes.find(&route).is_none() && routes.find_by_tag(conv, SEALED_TAG).is_some()
}
