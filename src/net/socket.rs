//! The UDP socket: batches in, batches out.
//!
//! `quinn-udp` does the system calls (GSO, GRO, recvmmsg and their fallbacks). It marks every packet with an ECN
//! field of its own, which overrides a socket's DSCP on Linux; with a DSCP set, batches go out through `socket2`
//! instead, with the same GSO.

mod slots;

use std::{
    boxed::Box,
    cell::RefCell,
    format,
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    vec,
    vec::Vec,
};

use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use socket2::SockRef;

use self::slots::Slots;
use super::{async_socket::AsyncSocket, dscp};
use crate::proto::{Block, Transmit};

/// What is asked of the operating system for the buffers of a socket that this crate opens: room for what arrives in a
/// few milliseconds on a fast link. It grants as much as it allows.
const BUFFER_SIZE: usize = 4 << 20;
/// Whether one system call receives several packets: `quinn-udp` knows others that take one, and has slots for more.
const RECEIVES_MANY: bool = cfg!(any(target_os = "linux", target_os = "android", target_os = "freebsd"));
/// Receive slots of one system call. With GRO they are a megabyte: twice as much would leave the caches before it is read.
const SLOTS: usize = if RECEIVES_MANY { 16 } else { 1 };
/// Slots of a call behind one that found a single packet: most find another then, and to lay out all slots takes longer
/// than to receive it.
const FEW_SLOTS: usize = if SLOTS < 2 { SLOTS } else { 2 };
/// Bytes that one transmission may take.
const TRANSMIT_SIZE: usize = 65_536;

#[derive(Debug)]
pub(super) struct Socket {
    io: AsyncSocket,
    state: UdpSocketState,
    /// Bound to all addresses: what is sent may have to say from which.
    any_ip: bool,
    /// The last receive call found a single packet.
    was_single: AtomicBool,
    /// A DSCP was set.
    has_dscp: AtomicBool,
    /// A marked batch showed that GSO does not work; quinn-udp sees only its own.
    dscp_without_gso: AtomicBool,
}

/// One receive slot's packets: equal in size, but for the last.
pub(super) struct Received<'a> {
    pub(super) peer: SocketAddr,
    /// The address that the peer sent to.
    pub(super) local_ip: Option<IpAddr>,
    /// They lie at its start. Nobody else refers to it at first.
    pub(super) block: &'a mut Block,
    /// Bytes of them all.
    pub(super) len: usize,
    /// Bytes of each but the last.
    pub(super) size: usize,
}

impl Received<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.block[..self.len]
    }

    /// To be opened in place; `None` once somebody else refers to them.
    pub(super) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(self.block).map(|block| &mut block[..self.len])
    }
}

#[derive(Default)]
struct RecvBuffers {
    slots: Slots,
    meta: [RecvMeta; SLOTS],
}

std::thread_local! {
    // Both are used within one call only, so that a socket or session that is idle holds no buffer.
    static RECV: RefCell<Option<Box<RecvBuffers>>> = const { RefCell::new(None) };
    static TRANSMIT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends this thread's transmit buffer.
pub(super) fn with_transmit_buffer<R>(lend: impl FnOnce(&mut [u8]) -> R) -> R {
    TRANSMIT.with(|buffer| {
        let mut buffer = buffer.borrow_mut();
        if buffer.is_empty() {
            *buffer = vec![0; TRANSMIT_SIZE];
        }
        lend(&mut buffer)
    })
}

/// Turns off what quinn-udp asks the system to tell of each packet and nobody here looks at: control messages take time,
/// and with the hour of arrival asked for, the kernel reads its clock for every packet of the machine. What fails stays on.
fn ask_for_less(socket: &std::net::UdpSocket, any_ip: bool) {
    let options = SockRef::from(socket);
    let _ = options.set_recv_tos_v4(false);
    let _ = options.set_recv_tclass_v6(false);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use nix::sys::socket::{setsockopt, sockopt};
        let _ = setsockopt(socket, sockopt::ReceiveTimestampns, &false);
        if !any_ip {
            let _ = setsockopt(socket, sockopt::Ipv4PacketInfo, &false);
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = any_ip;
}

#[cfg(unix)]
fn set_tclass_v6(options: &SockRef<'_>, tclass: u32) -> io::Result<()> {
    options.set_tclass_v6(tclass)
}

/// Windows has no such option.
#[cfg(not(unix))]
fn set_tclass_v6(_: &SockRef<'_>, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Socket {
    /// Opens a socket with large buffers.
    pub(super) fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(addr)?;
        let options = SockRef::from(&socket);
        // As much as the system allows; a small buffer is slower, not wrong.
        let _ = options.set_recv_buffer_size(BUFFER_SIZE);
        let _ = options.set_send_buffer_size(BUFFER_SIZE);
        Self::from_std(socket)
    }

    /// Takes a socket over as it is.
    pub(super) fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        // Tokio's own call panics without one.
        tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let any_ip = socket.local_addr()?.ip().is_unspecified();
        ask_for_less(&socket, any_ip);
        Ok(Self {
            any_ip,
            io: AsyncSocket::new(socket)?,
            state,
            was_single: AtomicBool::new(false),
            has_dscp: AtomicBool::new(false),
            dscp_without_gso: AtomicBool::new(!cfg!(any(target_os = "linux", target_os = "android"))),
        })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.socket().local_addr()
    }

    pub(super) fn options(&self) -> SockRef<'_> {
        SockRef::from(self.io.socket())
    }

    /// Sets the DSCP (0 to 63) of what is sent.
    pub(super) fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        if dscp > 63 {
            let message = format!("dscp is {dscp}, outside 0..=63");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let tos = u32::from(dscp) << 2;
        let options = self.options();
        if self.local_addr()?.is_ipv6() {
            set_tclass_v6(&options, tos)?;
            // Reaches IPv4 peers of a dual-stack socket; an IPv6-only one refuses it.
            let _ = options.set_tos_v4(tos);
        } else {
            options.set_tos_v4(tos)?;
        }
        self.has_dscp.store(dscp != 0, Ordering::Relaxed);
        Ok(())
    }

    /// Datagrams that one system call takes.
    fn max_packets(&self) -> usize {
        if self.has_dscp.load(Ordering::Relaxed) && self.dscp_without_gso.load(Ordering::Relaxed) {
            return 1;
        }
        self.state.max_gso_segments().max(1)
    }

    /// Sends the packets of `transmit`, which lie in `bytes`; `sent` counts the bytes of those that it is done with.
    ///
    /// # Errors
    /// `WouldBlock` when the socket's buffer is full: what lies behind `sent` was not sent. Others when all
    /// packets were lost.
    pub(super) fn try_send(
        &self,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
        transmit: Transmit,
        bytes: &[u8],
        sent: &mut usize,
    ) -> io::Result<()> {
        let local_ip = local_ip.filter(|_| self.any_ip);
        if transmit.len <= transmit.stride && local_ip.is_none() {
            let outcome = self.send_plain(peer, &bytes[..transmit.len]);
            if !outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                *sent = transmit.len;
            }
            return outcome;
        }
        self.send_parts(peer, local_ip, transmit, bytes, sent)
    }

    /// Sends them in as many parts as it takes.
    fn send_parts(
        &self,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
        transmit: Transmit,
        bytes: &[u8],
        sent: &mut usize,
    ) -> io::Result<()> {
        let mut outcome = Ok(());
        let mut any = false;
        while *sent < transmit.len {
            let most = self.max_packets();
            let rest = &bytes[*sent..transmit.len];
            let part = &rest[..rest.len().min(most * transmit.stride)];
            match self.send_batch(peer, local_ip, transmit.stride, part) {
                Ok(()) => any = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // The kernel or the interface cannot do GSO after all, and that was noted. One by one, then.
                Err(_) if part.len() > transmit.stride && self.max_packets() == 1 => continue,
                // These are lost; those behind them may fare better.
                Err(error) => outcome = Err(error),
            }
            *sent += part.len();
        }
        if any { Ok(()) } else { outcome }
    }

    /// Sends a packet that there is nothing to say about: without control messages.
    fn send_plain(&self, peer: SocketAddr, packet: &[u8]) -> io::Result<()> {
        self.io.try_send(|| self.io.send_to(packet, peer).map(drop))
    }

    fn send_batch(
        &self,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
        segment_size: usize,
        contents: &[u8],
    ) -> io::Result<()> {
        let segment_size = (contents.len() > segment_size).then_some(segment_size);
        if segment_size.is_none() && local_ip.is_none() {
            return self.send_plain(peer, contents);
        }
        let send = || {
            if self.has_dscp.load(Ordering::Relaxed) {
                let outcome = dscp::send(self.options(), peer, local_ip, segment_size, contents);
                if segment_size.is_some() && outcome.as_ref().is_err_and(dscp::tells_of_gso) {
                    self.dscp_without_gso.store(true, Ordering::Relaxed);
                }
                return outcome;
            }
            let transmit = quinn_udp::Transmit {
                destination: peer,
                ecn: None,
                contents,
                segment_size,
                src_ip: local_ip,
            };
            self.state.try_send(UdpSockRef::from(self.io.socket()), &transmit)
        };
        self.io.try_send(send)
    }

    /// Waits until a send may succeed.
    pub(super) fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_send_ready(cx)
    }

    /// Receives what has arrived, at most one system call's worth, and hands it out slot by slot.
    pub(super) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        mut handle: impl FnMut(Received<'_>),
    ) -> Poll<io::Result<()>> {
        let receive = || {
            if self.was_single.load(Ordering::Relaxed) {
                self.receive::<FEW_SLOTS>(&mut handle)
            } else {
                self.receive::<SLOTS>(&mut handle)
            }
        };
        self.io.poll_recv(cx, receive)
    }

    /// Receives into up to `N` slots, at most [`SLOTS`], and hands them out; returns whether that was all there is.
    fn receive<const N: usize>(&self, handle: &mut impl FnMut(Received<'_>)) -> io::Result<bool> {
        RECV.with_borrow_mut(|buffers| {
            let RecvBuffers { slots, meta } = &mut **buffers.get_or_insert_default();
            let blocks = slots.free(N);
            let count = {
                let mut blocks = blocks.iter_mut();
                let mut slices: [IoSliceMut<'_>; N] = std::array::from_fn(|_| {
                    let block = blocks.next().and_then(Arc::get_mut);
                    IoSliceMut::new(block.map(|block| &mut block[..]).unwrap_or_default())
                });
                self.state.recv(UdpSockRef::from(self.io.socket()), &mut slices, meta)?
            };
            for (block, meta) in blocks.iter_mut().zip(&meta[..count]) {
                let (peer, local_ip) = (meta.addr, meta.dst_ip);
                handle(Received { peer, local_ip, block, len: meta.len, size: meta.stride.max(1) });
            }
            self.was_single.store(count == 1 && meta[0].len <= meta[0].stride, Ordering::Relaxed);
            // With slots to spare nothing was left, and to say so spares a call that finds that out. Of one slot none is.
            Ok(count < N)
        })
    }
}
