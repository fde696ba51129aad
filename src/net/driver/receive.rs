//! From the socket into the sessions.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::Driver;
#[cfg(feature = "noise")]
use crate::proto::{Endpoint, Handle, KcpConfig, SessionSeed};
use crate::{
    net::{
        accept_queue::Admission,
        clock,
        error::KcpError,
        session::{PeerAddress, Session, is_refusal},
        shared::Sharing,
        socket::{Progress, Received},
        trace::Role,
    },
    proto::{Connection, EcnCodepoint, Incoming, Instant, Refusal, Reply, Routed, Run, Transmit},
};

/// How much was received at once.
pub(super) struct Batch {
    pub(super) packets: usize,
    pub(super) bytes: usize,
}

/// Keeps the driver from spinning over a socket that is ready and cannot be read: after [`MAX_RECV_ERRORS`] in a row it pauses.
///
/// Nothing but time ends a pause, neither another turn nor what wakes the driver meanwhile. Then it goes on, whatever the error.
#[derive(Debug, Default)]
pub(super) struct RecvErrors {
    in_a_row: u32,
    paused_until: Option<Instant>,
}

/// How many receive calls may fail in a row before the driver pauses.
const MAX_RECV_ERRORS: u32 = 16;
/// The pause.
const RECV_ERROR_PAUSE: Duration = Duration::from_millis(10);

impl RecvErrors {
    /// A receive call has failed.
    #[cold]
    fn note(&mut self) {
        self.in_a_row += 1;
        if self.in_a_row >= MAX_RECV_ERRORS {
            *self = Self { in_a_row: 0, paused_until: Some(clock::now() + RECV_ERROR_PAUSE) };
        }
    }

    /// A receive call has succeeded.
    const fn clear(&mut self) {
        self.in_a_row = 0;
    }

    /// Until when the driver must not receive, if it pauses.
    pub(super) const fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Ends a pause that has lasted long enough.
    pub(super) fn end_pause(&mut self) {
        if self.paused_until.is_some_and(|until| until <= clock::now()) {
            self.paused_until = None;
        }
    }
}

impl Driver {
    /// Receives one batch; `None` if there was none. `now` is set to the time at which the first of it was there.
    pub(super) fn receive(&mut self, cx: &mut Context<'_>, now: &mut Option<Instant>) -> Option<Batch> {
        let shared = Arc::clone(&self.shared);
        let (mut count, mut bytes, mut all_known) = (0, 0, true);
        let socket = Arc::clone(&self.socket);
        let outcome = socket.poll_recv(cx, |received| {
            let now = *now.get_or_insert_with(|| {
                self.before_packets();
                clock::now()
            });
            count += received.len.div_ceil(received.stride).max(1);
            bytes += received.len;
            all_known &= self.deliver(now, received);
        });
        match outcome {
            Poll::Pending => return None,
            Poll::Ready(Ok(())) => {
                self.recv_errors.clear();
                shared.counters.socket.recv_calls.add(1);
                shared.counters.socket.packets_received.add(count);
            }
            Poll::Ready(Err(error)) => {
                // An ICMP answer to something sent, or a shortage of memory: the socket itself is fine.
                self.recv_errors.note();
                shared.counters.socket.recv_errors.add(1);
                if shared.sharing == Sharing::OneStream && is_refusal(&error) {
                    self.sessions.iter().for_each(|slot| slot.session.note_refused());
                }
            }
        }
        // Of packets for known sessions the endpoint counts nothing.
        if !all_known {
            self.count_routed();
        }
        Some(Batch { packets: count, bytes })
    }

    /// Learns what other tasks did before the packets that were just received could be answers to it.
    pub(super) fn before_packets(&mut self) {
        // Sessions that were begun here.
        self.take_scheduled();
        // Packets that would begin a session if an attacker sent them back.
        if self.shared.has_sent_first() {
            self.endpoint.remember_first_packets(&self.shared.take_sent_first());
        }
        if let Some(queue) = &self.shared.accept_queue {
            self.endpoint.set_backlogged(queue.wants_cookies());
        }
    }

    /// Hands a batch of packets of one peer to their sessions. Returns whether all of them were for sessions that are known.
    pub(super) fn deliver(&mut self, now: Instant, mut received: Received<'_>) -> bool {
        let (peer, stride) = (received.peer, received.stride);
        let Some(bytes) = received.bytes_mut() else { return true };
        self.endpoint.receive(peer, bytes, stride);
        self.route(now, &mut received)
    }

    /// Hands decrypted packets to their sessions, as [`deliver`](Self::deliver) does.
    #[inline(always)]
    pub(super) fn route(&mut self, now: Instant, received: &mut Received<'_>) -> bool {
        let mut known = 0;
        while let Some(routed) = self.endpoint.poll_routed(now, received.bytes()) {
            let run = match routed {
                Routed::Session(run) => {
                    known += run.range.len();
                    run
                }
                Routed::Incoming(incoming) => match self.accept(now, incoming, received.local_ip) {
                    Some(run) => run,
                    None => continue,
                },
                Routed::FromElsewhere(run, peer) => {
                    let Some(slot) = self.sessions.get_mut(run.handle) else { continue };
                    slot.may_move = true;
                    let from = PeerAddress { peer, local_ip: answerable(received.local_ip) };
                    let packets = received.bytes().get(run.range).unwrap_or_default();
                    slot.session.receive_from_elsewhere(now, packets, run.stride, from);
                    self.sessions.mark_dirty(run.handle);
                    continue;
                }
                Routed::Reply(reply) => {
                    self.send_reply(reply, received.local_ip);
                    // It may be the answer of an agreement, which is kept for a while.
                    self.plan_forgetting();
                    continue;
                }
                Routed::OtherShard(packets) => {
                    self.hand_over(packets, received);
                    continue;
                }
            };
            let Some(slot) = self.sessions.get(run.handle) else { continue };
            slot.session.receive(now, received.block, run.range, run.stride, received.ecn);
            #[cfg(feature = "noise")]
            if slot.awaits_route_key {
                self.learn_route_key(run.handle);
            }
            self.sessions.mark_dirty(run.handle);
        }
        // Not of a packet without bytes.
        known == received.len && known > 0
    }

    /// A session that was begun here has received something, which may be its peer's answer. What comes right behind it is sealed.
    #[cfg(feature = "noise")]
    #[cold]
    fn learn_route_key(&mut self, handle: Handle) {
        let Some(slot) = self.sessions.get_mut(handle) else { return };
        if let Some(key) = slot.session.route_key() {
            slot.awaits_route_key = false;
            self.endpoint.set_route_key(handle, &key);
        }
    }

    /// Sends an answer of the endpoint. While the socket is full it is left out, as if it were lost: whoever asked asks again.
    #[inline(never)]
    fn send_reply(&self, reply: Reply, local_ip: Option<IpAddr>) {
        let packet = self.endpoint.reply();
        let transmit = Transmit {
            len: packet.len(),
            stride: packet.len(),
            ecn: EcnCodepoint::NotEct,
            may_fragment: false,
        };
        // The counters of the socket tell how it went.
        let _ = self.shared.send(reply.to, answerable(local_ip), transmit, packet, &mut Progress::default());
    }

    /// Puts a session that a peer begins into the accept queue, if there is room. Returns the packets that begin it.
    #[inline(never)]
    fn accept(&mut self, now: Instant, incoming: Incoming, local_ip: Option<IpAddr>) -> Option<Run> {
        let shared = Arc::clone(&self.shared);
        let queue = shared.accept_queue.as_ref()?;
        match queue.admission(incoming.validated) {
            Admission::Room => {}
            Admission::Full => {
                self.endpoint.refuse(Refusal::QueueFull);
                return None;
            }
            Admission::Ended => {
                self.endpoint.stop_accepting();
                return None;
            }
        }
        let local_ip = answerable(local_ip);
        let config = match &self.rotated {
            None => &queue.config,
            Some(rotated) => rotated.config(incoming.retiring_key),
        };
        #[cfg(feature = "noise")]
        let mut connection =
            Self::accepted_connection(&mut self.endpoint, shared.seed(), now, incoming, config)?;
        #[cfg(not(feature = "noise"))]
        let mut connection = Connection::accept(incoming.conv, config, now, shared.seed());
        if incoming.validated {
            connection.set_validated();
        }
        // Before the application has the session, which may write at once.
        connection.set_message_at(incoming.message_at);
        let tag = connection.followed_tag();
        let peer = incoming.source;
        let session = Arc::new(Session::new(Arc::clone(&shared), connection, peer, local_ip, Role::Accepts));
        match queue.push(Arc::clone(&session), incoming.validated) {
            Admission::Room => {}
            // Another shard has taken the last place.
            Admission::Full => {
                #[cfg(feature = "noise")]
                if let Some(keys) = session.take_keys() {
                    self.endpoint.return_session_keys(keys);
                }
                self.endpoint.refuse(Refusal::QueueFull);
                return None;
            }
            // The listener has ended in this very moment.
            Admission::Ended => {
                self.endpoint.stop_accepting();
                return None;
            }
        }
        let Some(accepted) = self.endpoint.accept(now) else {
            session.fail(KcpError::ConvInUse);
            return None;
        };
        #[cfg(feature = "metrics")]
        shared.registry.insert(&session, crate::net::metrics::Side::Accepted);
        if shared.shard.is_some() {
            self.tell_replaced();
        }
        if let Some(replaced) = accepted.replaced.and_then(|replaced| self.remove(replaced)) {
            replaced.fail(KcpError::Replaced);
        }
        if let Some(evicted) = accepted.evicted.and_then(|evicted| self.remove(evicted)) {
            evicted.fail(KcpError::Evicted);
        }
        if let Some(tag) = tag {
            self.endpoint.follow_tag(accepted.run.handle, tag);
        }
        #[cfg(feature = "noise")]
        if incoming.sealed {
            self.plan_reseeding(now);
        }
        self.sessions.insert(accepted.run.handle, session, !incoming.validated);
        self.sessions.defer(accepted.run.handle);
        shared.counters.state.sessions.set(self.endpoint.len());
        shared.counters.state.half_open.set(self.endpoint.half_open());
        self.count_routed();
        Some(accepted.run)
    }

    /// The connection of a session that a peer begins: with keys of its own, or without, where such peers are served, too.
    #[cfg(feature = "noise")]
    fn accepted_connection(
        endpoint: &mut Endpoint,
        seed: SessionSeed,
        now: Instant,
        incoming: Incoming,
        config: &KcpConfig,
    ) -> Option<Connection> {
        let conv = incoming.conv;
        if incoming.sealed {
            let (keys, early) = (endpoint.take_session_keys()?, endpoint.take_early_data());
            return Some(Connection::accept_with_keys(conv, config, now, seed, keys, early));
        }
        Some(match config.noise() {
            None => Connection::accept(conv, config, now, seed),
            Some(_) => Connection::accept(conv, &config.without_noise(), now, seed),
        })
    }

    /// Adds what the endpoint has counted since the last call to the counters of the socket.
    #[cold]
    pub(super) fn count_routed(&mut self) {
        let (now, before) = (*self.endpoint.stats(), self.counted);
        self.counted = now;
        let counters = &self.shared.counters;
        for (counter, now, before) in [
            (&counters.driver.accepted, now.accepted, before.accepted),
            (&counters.driver.handed_over, now.handed_over, before.handed_over),
            (&counters.dropped.short, now.dropped_short, before.dropped_short),
            (&counters.dropped.long, now.dropped_long, before.dropped_long),
            (&counters.dropped.bad_checksum, now.dropped_bad_checksum, before.dropped_bad_checksum),
            (&counters.dropped.bad_tag, now.dropped_bad_tag, before.dropped_bad_tag),
            (&counters.dropped.no_agreement, now.dropped_no_agreement, before.dropped_no_agreement),
            (&counters.dropped.no_session, now.dropped_no_session, before.dropped_no_session),
            (&counters.dropped.no_hello, now.dropped_no_hello, before.dropped_no_hello),
            (&counters.dropped.recently_closed, now.dropped_recently_closed, before.dropped_recently_closed),
            (&counters.dropped.replayed, now.dropped_replayed, before.dropped_replayed),
            (&counters.dropped.backlog, now.dropped_queue_full, before.dropped_queue_full),
            (&counters.dropped.max_sessions, now.dropped_max_sessions, before.dropped_max_sessions),
            (&counters.dropped.max_half_open, now.dropped_max_half_open, before.dropped_max_half_open),
            (
                &counters.dropped.max_half_open_of_network,
                now.dropped_max_half_open_of_network,
                before.dropped_max_half_open_of_network,
            ),
            (&counters.dropped.no_cookie, now.dropped_no_cookie, before.dropped_no_cookie),
            (&counters.dropped.over_share, now.dropped_over_share, before.dropped_over_share),
            (&counters.driver.evicted, now.evicted, before.evicted),
            (&counters.driver.retries, now.retries, before.retries),
            (&counters.driver.replies, now.replies_sent, before.replies_sent),
            (&counters.driver.replies_limited, now.replies_limited, before.replies_limited),
        ] {
            counter.add((now - before) as usize);
        }
    }
}

/// The address that a packet was sent to, if answers can be sent from it. A peer may send to an address that many listen to.
fn answerable(local_ip: Option<IpAddr>) -> Option<IpAddr> {
    local_ip.filter(|ip| !ip.is_multicast() && *ip != IpAddr::V4(Ipv4Addr::BROADCAST))
}
