//! The `TOS` (IPv4) or traffic class (IPv6) of the packets of a socket: DSCP and ECN field.
//!
//! The socket has one as an option, and a packet that is to have another takes a control message. A message makes the system call
//! dearer, and most packets of a socket have the same codepoint for long. So the option follows the packets: once
//! [`OTHERS`] in a row took a message, it becomes what the next has. Elsewhere than on Linux `quinn-udp` decides what takes a message,
//! and the option stays.

use std::{
    io,
    sync::{
        Mutex,
        atomic::{AtomicU8, Ordering},
    },
};

use socket2::SockRef;

use crate::{net::sendmsg, proto::EcnCodepoint};

/// So many packets with another codepoint cost more than the system call or two that make it the socket's.
const OTHERS: u8 = 64;

#[derive(Debug)]
pub(super) struct Tos {
    is_ipv6: bool,
    /// Without the ECN field, which takes its lower two bits.
    dscp: AtomicU8,
    /// What a packet without a control message has. The application's own bits count as none.
    default_ecn: AtomicU8,
    /// Packets in a row, or batches of them, that had another.
    others: AtomicU8,
    /// Held while the options change, so that they are what the fields say.
    changes: Mutex<()>,
}

impl Tos {
    /// As the socket's options are.
    pub(super) fn of(options: &SockRef<'_>, is_ipv6: bool) -> Self {
        let tos = if is_ipv6 { tclass_v6(options) } else { options.tos_v4() };
        Self {
            is_ipv6,
            dscp: AtomicU8::new(tos.map_or(0, |tos| tos as u8 & !0b11)),
            default_ecn: AtomicU8::new(EcnCodepoint::NotEct as u8),
            others: AtomicU8::new(0),
            changes: Mutex::default(),
        }
    }

    pub(super) fn has_dscp(&self) -> bool {
        self.dscp.load(Ordering::Relaxed) != 0
    }

    /// That of a packet with `ecn`.
    pub(super) fn with(&self, ecn: EcnCodepoint) -> u8 {
        self.dscp.load(Ordering::Relaxed) | ecn as u8
    }

    /// Whether a packet has `ecn` without a control message.
    pub(super) fn is_default(&self, ecn: EcnCodepoint) -> bool {
        let is_default = self.default_ecn.load(Ordering::Relaxed) == ecn as u8;
        if is_default && self.others.load(Ordering::Relaxed) > 0 {
            self.others.store(0, Ordering::Relaxed);
        }
        is_default
    }

    /// Sets the DSCP (0 to 63).
    pub(super) fn set_dscp(&self, options: &SockRef<'_>, dscp: u8) -> io::Result<()> {
        let _changing = self.changes.lock();
        self.set_options(options, dscp << 2 | self.default_ecn.load(Ordering::Relaxed))?;
        self.dscp.store(dscp << 2, Ordering::Relaxed);
        Ok(())
    }

    /// A packet with `ecn` is to be sent, or a batch of them. Returns whether it needs a control message.
    pub(super) fn needs_message(&self, options: &SockRef<'_>, ecn: EcnCodepoint) -> bool {
        if self.is_default(ecn) {
            return false;
        }
        if !sendmsg::HAS_GSO || self.others.fetch_add(1, Ordering::Relaxed) < OTHERS {
            return true;
        }
        self.others.store(0, Ordering::Relaxed);
        let _changing = self.changes.lock();
        let is_set = self.set_options(options, self.with(ecn)).is_ok();
        if is_set {
            self.default_ecn.store(ecn as u8, Ordering::Relaxed);
        }
        !is_set
    }

    fn set_options(&self, options: &SockRef<'_>, tos: u8) -> io::Result<()> {
        if !self.is_ipv6 {
            return options.set_tos_v4(tos.into());
        }
        set_tclass_v6(options, tos.into())?;
        // For the IPv4 peers of a dual-stack socket. A socket of IPv6 only refuses it.
        let _ = options.set_tos_v4(tos.into());
        Ok(())
    }
}

#[cfg(unix)]
fn tclass_v6(options: &SockRef<'_>) -> io::Result<u32> {
    options.tclass_v6()
}

/// Windows does not have this option.
#[cfg(not(unix))]
fn tclass_v6(_: &SockRef<'_>) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(unix)]
fn set_tclass_v6(options: &SockRef<'_>, tclass: u32) -> io::Result<()> {
    options.set_tclass_v6(tclass)
}

/// Windows does not have this option.
#[cfg(not(unix))]
fn set_tclass_v6(_: &SockRef<'_>, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn options_after(tos: &Tos, socket: &std::net::UdpSocket, ecn: EcnCodepoint) -> (bool, u32) {
        let options = SockRef::from(socket);
        (tos.needs_message(&options, ecn), options.tos_v4().unwrap())
    }

    #[test]
    fn the_option_follows_many_packets_and_no_single_one() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        SockRef::from(&socket).set_tos_v4(0xb8).unwrap();
        let tos = Tos::of(&SockRef::from(&socket), false);
        for _ in 0..2 * OTHERS {
            assert_eq!(options_after(&tos, &socket, EcnCodepoint::Ect0), (true, 0xb8));
            assert_eq!(options_after(&tos, &socket, EcnCodepoint::NotEct), (false, 0xb8));
        }
        for _ in 0..OTHERS {
            assert_eq!(options_after(&tos, &socket, EcnCodepoint::Ect0), (true, 0xb8));
        }
        assert_eq!(options_after(&tos, &socket, EcnCodepoint::Ect0), (false, 0xba));
        assert_eq!(options_after(&tos, &socket, EcnCodepoint::NotEct), (true, 0xba));
        // Another DSCP leaves the ECN field as it is.
        tos.set_dscp(&SockRef::from(&socket), 8).unwrap();
        assert_eq!(options_after(&tos, &socket, EcnCodepoint::Ect0), (false, 0x22));
    }
}
