//! Sending without `quinn-udp`: on Linux always, elsewhere with a DSCP.
//!
//! `quinn-udp` sets the ECN field of every packet, and with it overwrites the DSCP that the socket was given. And where a packet
//! cannot be sent because of its address, it takes Linux's `EINVAL` for a sign that GSO does not work, for as long as the socket
//! lives. So these packets are sent with `socket2`, and with the same control messages. That for ECN is sent with packets that have it,
//! and carries the DSCP as well.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use socket2::SockRef;

/// Whether [`send`] can send several packets with one system call.
pub(super) const HAS_GSO: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Sends packets that lie back to back in `contents`, `stride` bytes each; a single one without a stride. Without a `tos` they have
/// the socket's.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn send(
    socket: SockRef<'_>,
    peer: SocketAddr,
    local_ip: Option<IpAddr>,
    tos: Option<u8>,
    stride: Option<usize>,
    contents: &[u8],
) -> io::Result<()> {
    let addr = peer.into();
    let slices = [io::IoSlice::new(contents)];
    let message = socket2::MsgHdr::new().with_addr(&addr).with_buffers(&slices);
    let mut control = control::Control::new();
    if let Some(ip) = local_ip {
        control.push_source(ip);
    }
    if let Some(tos) = tos {
        control.push_tos(peer.ip(), tos);
    }
    if let Some(stride) = stride {
        control.push_stride(stride as u16);
    }
    match control.bytes() {
        [] => socket.sendmsg(&message, 0),
        bytes => socket.sendmsg(&message.with_control(bytes), 0),
    }
    .map(drop)
}

/// Control messages in the kernel's layout: each is a `cmsghdr` (length, level, type) and its data, padded to the size of a
/// pointer.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod control {
    use std::net::IpAddr;

    const IPPROTO_IP: i32 = 0;
    const IP_TOS: i32 = 1;
    const IP_PKTINFO: i32 = 8;
    const IPPROTO_IPV6: i32 = 41;
    const IPV6_PKTINFO: i32 = 50;
    const IPV6_TCLASS: i32 = 67;
    const SOL_UDP: i32 = 17;
    const UDP_SEGMENT: i32 = 103;

    const WORD: usize = size_of::<usize>();
    const HEADER_LEN: usize = WORD + 8;
    /// Room for the stride, the `TOS`, and a source address of IPv6, which is the longer kind.
    const MAX_LEN: usize = 2 * (HEADER_LEN + WORD) + HEADER_LEN + 24;

    pub(super) struct Control {
        bytes: [u8; MAX_LEN],
        len: usize,
    }

    impl Control {
        pub(super) const fn new() -> Self {
            Self { bytes: [0; MAX_LEN], len: 0 }
        }

        pub(super) fn bytes(&self) -> &[u8] {
            &self.bytes[..self.len]
        }

        /// The address to send from: an `in_pktinfo` or `in6_pktinfo` that leaves the interface open.
        pub(super) fn push_source(&mut self, ip: IpAddr) {
            match ip {
                IpAddr::V4(ip) => {
                    let mut info = [0; 12];
                    info[4..8].copy_from_slice(&ip.octets());
                    self.push(IPPROTO_IP, IP_PKTINFO, &info);
                }
                IpAddr::V6(ip) => {
                    let mut info = [0; 20];
                    info[..16].copy_from_slice(&ip.octets());
                    self.push(IPPROTO_IPV6, IPV6_PKTINFO, &info);
                }
            }
        }

        /// The `TOS` or traffic class. An IPv4 address in the form of IPv6 is one of IPv4 to the kernel.
        pub(super) fn push_tos(&mut self, peer: IpAddr, tos: u8) {
            let (level, kind) = match peer.to_canonical() {
                IpAddr::V4(_) => (IPPROTO_IP, IP_TOS),
                IpAddr::V6(_) => (IPPROTO_IPV6, IPV6_TCLASS),
            };
            self.push(level, kind, &i32::from(tos).to_ne_bytes());
        }

        /// Has the kernel cut the payload into packets of `stride` bytes (GSO).
        pub(super) fn push_stride(&mut self, stride: u16) {
            self.push(SOL_UDP, UDP_SEGMENT, &stride.to_ne_bytes());
        }

        fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
            let message = &mut self.bytes[self.len..];
            message[..WORD].copy_from_slice(&(HEADER_LEN + data.len()).to_ne_bytes());
            message[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
            message[WORD + 4..HEADER_LEN].copy_from_slice(&kind.to_ne_bytes());
            message[HEADER_LEN..HEADER_LEN + data.len()].copy_from_slice(data);
            self.len += HEADER_LEN + data.len().next_multiple_of(WORD);
        }
    }
}

/// On other systems: one packet a call, from the address that the system chooses.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn send(
    socket: SockRef<'_>,
    peer: SocketAddr,
    _: Option<IpAddr>,
    _: Option<u8>,
    stride: Option<usize>,
    contents: &[u8],
) -> io::Result<()> {
    let addr = peer.into();
    for packet in contents.chunks(stride.unwrap_or(contents.len()).max(1)) {
        socket.send_to(packet, &addr)?;
    }
    Ok(())
}
