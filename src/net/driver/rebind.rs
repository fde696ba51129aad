//! Another socket in the place of the present one: see [`KcpStream::rebind`](crate::KcpStream::rebind) and
//! [`KcpEndpoint::rebind`](crate::KcpEndpoint::rebind).

use std::sync::Arc;

use super::{Driver, receive::RecvErrors};
use crate::net::{error::KcpError, shared::Sharing, socket::Socket};

impl Driver {
    /// Receives from the socket that the handles have set.
    #[inline]
    pub(super) fn take_socket(&mut self) {
        if let Some(socket) = self.shared.take_new_socket() {
            self.rebind(socket);
        }
    }

    #[cold]
    fn rebind(&mut self, socket: Arc<Socket>) {
        self.socket = socket;
        self.endpoint.set_resets(!self.socket.shares_port());
        self.recv_errors = RecvErrors::default();
        self.unblock_all();
        // A stream that has a socket for itself has seen to its session.
        if self.shared.sharing == Sharing::Many {
            self.move_sessions();
        }
    }

    fn move_sessions(&mut self) {
        for handle in self.endpoint.sessions() {
            let Some(slot) = self.sessions.get(handle) else { continue };
            // From another address the peer would take its packets for those of another session: a listener of kcp-go begins one,
            // and acknowledges what nobody will ever read.
            if slot.session.network_changed().is_err() {
                slot.session.fail(KcpError::NotFollowed);
            }
            self.sessions.mark_dirty(handle);
        }
    }
}
