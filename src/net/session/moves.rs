//! A session whose peer has another address than before: see `proto/connection/moves.rs`.

use std::{boxed::Box, io, net::SocketAddr, sync::Arc, vec::Vec};

use super::{Session, state::PeerAddress};
use crate::{
    net::{
        clock,
        error::KcpError,
        handover::Next,
        shared::Sharing,
        socket::{self, Progress, Socket},
    },
    proto::{EcnCodepoint, Handle, Instant, RebindError, Transmit},
};

impl Session {
    /// The peer's address as it is now.
    pub(in crate::net) fn peer(&self) -> SocketAddr {
        self.handover.locked(|state, _| state.address.peer)
    }

    /// This end has another address.
    pub(in crate::net) fn network_changed(self: &Arc<Self>) -> io::Result<()> {
        self.change_address(|| {})
    }

    /// Takes another socket for that of the session, which has it for itself.
    pub(in crate::net) fn rebind(self: &Arc<Self>, socket: Socket) -> io::Result<()> {
        if self.shared.sharing == Sharing::Many {
            return Err(KcpError::SocketShared.into());
        }
        self.shared.check_family(&socket)?;
        self.change_address(|| self.shared.replace_socket(socket))
    }

    /// The socket has another address, after `change`, which is not called if the peer does not follow.
    fn change_address(self: &Arc<Self>, change: impl FnOnce()) -> io::Result<()> {
        self.act(|mut state, wakes| {
            let now = clock::now();
            match state.connection.rebind(now) {
                Ok(()) => {}
                Err(RebindError::Closed) => return (Err(state.close_error()), Next::Wait(None)),
                Err(RebindError::NotFollowed) => {
                    return (Err(KcpError::NotFollowed.into()), Next::Wait(None));
                }
            }
            change();
            state.forget_failures();
            if let Some(end) = &state.end {
                end.set_local(self.shared.socket().local_addr());
            }
            (Ok(()), self.transmit_at(state, now, wakes, false))
        })
    }

    /// The driver's name for the session, once it has one.
    pub(in crate::net) fn handle(&self) -> Option<Handle> {
        self.handle.get().copied()
    }

    /// The driver knows the session by this name from here on.
    pub(in crate::net) fn set_handle(&self, handle: Handle) {
        let _ = self.handle.set(handle);
    }

    /// Takes in decrypted packets that came from another address than the peer's, and sends what asks there. While the socket
    /// is full it is left out, as if it were lost.
    #[cold]
    pub(in crate::net) fn receive_from_elsewhere(
        &self,
        now: Instant,
        packets: &[u8],
        stride: usize,
        from: PeerAddress,
    ) {
        let _entered = self.trace.enter();
        let questions: Vec<_> = self.handover.locked(|mut state, _| {
            state.elsewhere = Some(Box::new(from));
            state.connection.handle_from_elsewhere(now, packets, stride, from.peer);
            socket::with_transmit_buffer(|buffer| {
                std::iter::from_fn(|| {
                    let (to, Transmit { len, .. }) = state.connection.poll_transmit_elsewhere(now, buffer)?;
                    Some((to, buffer[..len].to_vec()))
                })
                .collect()
            })
        });
        for (to, packet) in questions {
            let transmit = Transmit {
                len: packet.len(),
                stride: packet.len(),
                ecn: EcnCodepoint::NotEct,
                may_fragment: false,
            };
            // The counters of the socket tell how it went.
            let _ = self.shared.send(to, from.local_ip, transmit, &packet, &mut Progress::default());
        }
    }

    /// What has become of the packets from elsewhere.
    #[cold]
    pub(in crate::net) fn moving(&self) -> Moving {
        self.handover.locked(|mut state, _| {
            if std::mem::take(&mut state.moved) {
                return Moving::Done(state.address.peer);
            }
            if state.connection.may_move() { Moving::Maybe } else { Moving::No }
        })
    }
}

/// Whether a session follows its peer to another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) enum Moving {
    /// It stays where it is.
    No,
    /// It has not decided yet.
    Maybe,
    /// It is at this address now, and the endpoint is to know.
    Done(SocketAddr),
}
