//! How many packets the system has dropped because a socket's buffer was full.

use super::Socket;

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Socket {
    /// The packets dropped before the one that is received next, since the socket was made; 0 if none were, or it is not told yet.
    /// `None` if the system does not tell.
    pub(in crate::net) fn lost(&self) -> Option<u32> {
        use std::{io::IoSliceMut, os::fd::AsRawFd, vec::Vec};

        use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};

        let socket = self.io.socket();
        // It is told with packets that come from here on, and then with each: eight bytes, and no time as long as none are lost.
        setsockopt(socket, sockopt::RxqOvfl, &1).ok()?;
        let mut control = Vec::with_capacity(CONTROL_SIZE);
        let mut first = [0; 1];
        let mut slices = [IoSliceMut::new(&mut first)];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let Ok(message) = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags) else {
            return Some(0);
        };
        let told = message.cmsgs().ok()?.find_map(|message| match message {
            ControlMessageOwned::RxqOvfl(lost) => Some(lost),
            _ => None,
        });
        Some(told.unwrap_or(0))
    }
}

/// Room for all control messages of a packet.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CONTROL_SIZE: usize = 256;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Socket {
    /// No other system tells.
    pub(in crate::net) fn lost(&self) -> Option<u32> {
        None
    }
}
