//! The UDP socket: receives and sends packets in batches.
//!
//! `quinn-udp` does the system calls (GSO, GRO, recvmmsg and their fallbacks), but for those that send on Linux: they are
//! [`sendmsg`]'s, which says why.
//!
//! What comes of a call that fails:
//!
//! ```text
//! send     full (EAGAIN)              the packets wait until the socket has room
//!          GSO refused (EIO, EINVAL)  the packets go one by one; if that works, so do all later ones
//!          ECN refused (EINVAL)       the packets go without; if that works, so do all later ones
//!          too long (EMSGSIZE)        lost, and later ones are shorter; what has its size already goes as fragments. A stream that
//!                                     stands still all the same ends after dead_timeout, with this error
//!          anything else              lost, and resent as other lost packets are
//! receive  anything but EAGAIN        tried again; after many in a row the driver pauses
//! ```
//!
//! Without buffers (`ENOBUFS`) packets are lost, too, and do not wait: the queue that is full is the interface's. No system tells
//! when that has room, and the socket itself has. To send less is the congestion control's work, which takes it for the loss that
//! it is. What no error ends is ended by the peer's silence, and then a session says which error its last packets met: see
//! `State::note_send`.

#[cfg(all(test, target_os = "linux"))]
pub(super) mod faults;
mod fragments;
mod lost;
mod slots;
mod tos;

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

use self::{slots::Slots, tos::Tos};
use super::{async_socket::AsyncSocket, sendmsg};
use crate::proto::{Block, EcnCodepoint, Transmit};

/// The bytes that this crate asks for, for each buffer of a socket that it makes: as much as arrives in a few milliseconds on a
/// fast link. The operating system grants as much of that as it allows.
const BUFFER_SIZE: usize = 4 << 20;
/// Whether one system call receives several packets. On other systems `quinn-udp` receives one, whatever room it is given.
const RECEIVES_MANY: bool = cfg!(any(target_os = "linux", target_os = "android", target_os = "freebsd"));
/// Receive slots of one system call. With GRO they hold a megabyte. Twice as much would leave the processor's caches before it is
/// read.
const SLOTS: usize = if RECEIVES_MANY { 16 } else { 1 };
/// Slots of a call after one that received a single packet. Most such calls receive a single one again, and to prepare all slots
/// takes longer than to receive it.
const FEW_SLOTS: usize = if SLOTS < 2 { SLOTS } else { 2 };
/// Bytes of a batch, at most.
const TRANSMIT_SIZE: usize = 65_536;

#[derive(Debug)]
pub(super) struct Socket {
    io: AsyncSocket,
    state: UdpSocketState,
    local_addr: SocketAddr,
    /// The socket is bound to all addresses of this machine, so an answer has to say from which it is sent.
    any_ip: bool,
    /// The application has asked the system to tell of refusals: see [`Socket::tell_refusals`].
    refusals_told: bool,
    /// The last receive call received a single packet.
    was_single: AtomicBool,
    tos: Tos,
    /// Packets are sent without ECN: the system refused those that had it.
    without_ecn: AtomicBool,
    /// Received packets come with their ECN fields.
    reads_ecn: AtomicBool,
    /// A batch was refused whose packets could be sent: GSO does not work here.
    without_gso: AtomicBool,
    #[cfg(all(test, target_os = "linux"))]
    pub(super) faults: faults::Faults,
}

/// The packets of one receive slot, of one peer. They have the same size, but the last may be shorter.
pub(super) struct Received<'a> {
    pub(super) peer: SocketAddr,
    /// The address that the peer sent to.
    pub(super) local_ip: Option<IpAddr>,
    /// The memory at whose start they lie. At first nobody else refers to it.
    pub(super) block: &'a mut Block,
    /// Bytes of all packets.
    pub(super) len: usize,
    /// Bytes of each packet but the last.
    pub(super) stride: usize,
    /// The ECN field of all of them: the system joins no others.
    pub(super) ecn: EcnCodepoint,
}

/// How far a [send](Socket::try_send) has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes of the packets that the socket is done with, sent or lost. What is behind them is still to be sent.
    pub(super) done: usize,
    /// System calls that sent packets.
    pub(super) calls: usize,
    /// System calls that failed and lost packets.
    pub(super) errors: usize,
    /// The packets lost.
    pub(super) lost: usize,
    /// One of them was lost because it was too long.
    pub(super) too_long: bool,
}

impl Received<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.block[..self.len]
    }

    /// The bytes, to be decrypted in place. `None` once somebody else refers to the block.
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
    // A call needs them until it returns, and no longer. So they belong to threads: sockets and sessions have no buffers.
    static RECV: RefCell<Option<Box<RecvBuffers>>> = const { RefCell::new(None) };
    static TRANSMIT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with this thread's transmit buffer.
pub(super) fn with_transmit_buffer<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    TRANSMIT.with(|buffer| {
        let mut buffer = buffer.borrow_mut();
        if buffer.is_empty() {
            *buffer = vec![0; TRANSMIT_SIZE];
        }
        work(&mut buffer)
    })
}

/// Turns off the control messages that quinn-udp asks for with each packet and nobody here reads. They take time, and for the
/// time of arrival the kernel reads its clock for every packet of the machine. An option that cannot be turned off stays on. That for
/// ECN is turned on again for sessions that use it: [`Socket::read_ecn`].
fn turn_off_unread_messages(socket: &std::net::UdpSocket, any_ip: bool) {
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

#[cfg(any(target_os = "linux", target_os = "android"))]
fn tells_refusals(socket: &std::net::UdpSocket) -> bool {
    use nix::sys::socket::{getsockopt, sockopt};
    getsockopt(socket, sockopt::Ipv4RecvErr).unwrap_or(false)
        || getsockopt(socket, sockopt::Ipv6RecvErr).unwrap_or(false)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn tells_refusals(_: &std::net::UdpSocket) -> bool {
    false
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn set_tells_refusals(socket: &std::net::UdpSocket, tell: bool) {
    use nix::sys::socket::{setsockopt, sockopt};
    // One of them fails for a socket of the other kind; a socket of both needs both. Turned off, they also free the reports that
    // the system keeps for whoever wants to know more.
    let _ = setsockopt(socket, sockopt::Ipv4RecvErr, &tell);
    let _ = setsockopt(socket, sockopt::Ipv6RecvErr, &tell);
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn set_tells_refusals<S>(_: &S, _: bool) {}

/// Whether an error of a batch may mean that GSO does not work here.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn may_be_gso(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    const EINVAL: i32 = 22;
    matches!(error.raw_os_error(), Some(EIO | EINVAL))
}

/// Elsewhere `quinn-udp` knows.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn may_be_gso(_: &io::Error) -> bool {
    false
}

/// Whether a packet was too long to be sent.
pub(super) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(EMSGSIZE)
}

/// The system's number for "message too long".
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) const EMSGSIZE: i32 = nix::errno::Errno::EMSGSIZE as i32;
#[cfg(windows)]
pub(super) const EMSGSIZE: i32 = 10_040;
/// That of BSD and macOS.
#[cfg(not(any(target_os = "linux", target_os = "android", windows)))]
pub(super) const EMSGSIZE: i32 = 40;

/// Whether the system has refused a control message, perhaps, or an address.
fn is_invalid(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

impl Socket {
    /// Makes a socket with large buffers.
    pub(super) fn bind(addr: SocketAddr) -> io::Result<Self> {
        Self::with_large_buffers(std::net::UdpSocket::bind(addr)?)
    }

    fn with_large_buffers(socket: std::net::UdpSocket) -> io::Result<Self> {
        let options = SockRef::from(&socket);
        // The system may grant less, or refuse. A small buffer is slower, but not wrong.
        let _ = options.set_recv_buffer_size(BUFFER_SIZE);
        let _ = options.set_send_buffer_size(BUFFER_SIZE);
        Self::new(socket, false)
    }

    /// Makes a socket whose port others may have, too. The system spreads over all of them what is sent to it.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn bind_shared(addr: SocketAddr) -> io::Result<Self> {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(addr),
            socket2::Type::DGRAM,
            Some(socket2::Protocol::UDP),
        )?;
        socket.set_reuse_port(true)?;
        socket.bind(&addr.into())?;
        Self::with_large_buffers(socket.into())
    }

    /// Other systems have no `SO_REUSEPORT`, or give all packets to the socket that was bound last.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn bind_shared(_: SocketAddr) -> io::Result<Self> {
        Err(super::error::KcpError::ShardsUnsupported.into())
    }

    /// Takes a socket that the application made. Its options stay as they are.
    pub(super) fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        let refusals_told = tells_refusals(&socket);
        Self::new(socket, refusals_told)
    }

    fn new(socket: std::net::UdpSocket, refusals_told: bool) -> io::Result<Self> {
        // Without a runtime, Tokio's registration below would panic.
        tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let local_addr = socket.local_addr()?;
        let any_ip = local_addr.ip().is_unspecified();
        let tos = Tos::of(&SockRef::from(&socket), local_addr.is_ipv6());
        turn_off_unread_messages(&socket, any_ip);
        Ok(Self {
            local_addr,
            any_ip,
            refusals_told,
            io: AsyncSocket::new(socket)?,
            state,
            was_single: AtomicBool::new(false),
            tos,
            without_ecn: AtomicBool::new(false),
            reads_ecn: AtomicBool::new(false),
            without_gso: AtomicBool::new(false),
            #[cfg(all(test, target_os = "linux"))]
            faults: faults::Faults::default(),
        })
    }

    /// Whether other sockets may have the same port, and receive some of what is sent to it (`SO_REUSEPORT`).
    pub(super) fn shares_port(&self) -> bool {
        #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos", target_os = "cygwin"))))]
        return self.options().reuse_port().unwrap_or(false);
        #[cfg(not(all(
            unix,
            not(any(target_os = "solaris", target_os = "illumos", target_os = "cygwin"))
        )))]
        return false;
    }

    /// The address that it is bound to.
    pub(super) const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    pub(super) const fn io(&self) -> &AsyncSocket {
        &self.io
    }

    /// Has the system tell, or not, that nobody listens where the socket sends to: a call that sends or receives fails with that.
    /// Windows always does. Other systems but Linux cannot, for a socket that is not connected.
    pub(super) fn tell_refusals(&self, tell: bool) {
        if !self.refusals_told {
            set_tells_refusals(self.io.socket(), tell);
        }
    }

    pub(super) fn options(&self) -> SockRef<'_> {
        SockRef::from(self.io.socket())
    }

    /// Sets the DSCP (0 to 63) of the packets to be sent.
    pub(super) fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        if dscp > 63 {
            let message = format!("dscp is {dscp}, outside 0..=63");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.tos.set_dscp(&self.options(), dscp)
    }

    /// Has received packets come with their ECN fields from here on, as far as the system can tell them. This costs a system call or
    /// two, once.
    pub(super) fn read_ecn(&self) {
        if !self.reads_ecn.swap(true, Ordering::Relaxed) {
            // Sockets of one kind refuse the option of the other, and those of both kinds need both.
            let _ = self.options().set_recv_tos_v4(true);
            let _ = self.options().set_recv_tclass_v6(true);
        }
    }

    /// Whether received packets come with their ECN fields.
    pub(super) fn reads_ecn(&self) -> bool {
        self.reads_ecn.load(Ordering::Relaxed)
    }

    /// The codepoint that packets are sent with which are to have `ecn`. Elsewhere than on Linux, those of a socket with a DSCP have
    /// none: `quinn-udp` would clear the DSCP.
    fn sent_codepoint(&self, ecn: EcnCodepoint) -> EcnCodepoint {
        if self.without_ecn.load(Ordering::Relaxed) || (!sendmsg::HAS_GSO && self.tos.has_dscp()) {
            return EcnCodepoint::NotEct;
        }
        ecn
    }

    /// Packets that one system call can send.
    fn max_packets(&self) -> usize {
        let never = !sendmsg::HAS_GSO && self.tos.has_dscp();
        if never || self.without_gso.load(Ordering::Relaxed) {
            return 1;
        }
        self.state.max_gso_segments().max(1)
    }

    /// Sends the packets of `transmit`, which lie in `bytes`. `progress` begins as nothing.
    ///
    /// # Errors
    /// `WouldBlock` when the socket's buffer is full: the packets behind `progress.done` are still to be sent. Any other error when
    /// every packet was lost.
    pub(super) fn try_send(
        &self,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
        transmit: Transmit,
        bytes: &[u8],
        progress: &mut Progress,
    ) -> io::Result<()> {
        let local_ip = local_ip.filter(|_| self.any_ip);
        if transmit.len <= transmit.stride && local_ip.is_none() && self.tos.is_default(transmit.ecn) {
            let outcome = self.send_plain(peer, &bytes[..transmit.len]);
            match &outcome {
                Ok(()) => *progress = Progress { done: transmit.len, calls: 1, ..Progress::default() },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    let too_long = is_too_long(error);
                    *progress = Progress { done: transmit.len, calls: 0, errors: 1, lost: 1, too_long };
                }
            }
            return outcome;
        }
        self.send_parts(peer, local_ip, transmit, bytes, progress)
    }

    /// Sends the packets in as many system calls as it takes.
    fn send_parts(
        &self,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
        transmit: Transmit,
        bytes: &[u8],
        progress: &mut Progress,
    ) -> io::Result<()> {
        let (mut outcome, mut refused) = (Ok(()), false);
        let (mut ecn, mut ecn_refused) = (self.sent_codepoint(transmit.ecn), false);
        while progress.done < transmit.len {
            let most = if refused { 1 } else { self.max_packets() };
            let rest = &bytes[progress.done..transmit.len];
            let part = &rest[..rest.len().min(most * transmit.stride)];
            match self.send_batch(peer, local_ip, ecn, transmit.stride, part) {
                Ok(()) => {
                    progress.calls += 1;
                    progress.done += part.len();
                    if ecn_refused {
                        self.without_ecn.store(true, Ordering::Relaxed);
                    } else if refused && !progress.too_long {
                        // Where the others were too long, so was the batch.
                        self.without_gso.store(true, Ordering::Relaxed);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // The kernel or the interface cannot do GSO after all, perhaps: the packets go one by one. Only if one of them
                // can be sent, the batch was at fault. The same errors come of addresses that peers may have made up, and these
                // must not slow down everybody else for ever.
                Err(error)
                    if part.len() > transmit.stride && (may_be_gso(&error) || self.max_packets() == 1) =>
                {
                    refused = true;
                }
                // An old kernel (Linux before 3.13) does not know the control message, or a sandbox does not. As with GSO, only a packet
                // that can be sent without it shows that.
                Err(error) if ecn != EcnCodepoint::NotEct && is_invalid(&error) => {
                    (ecn, ecn_refused) = (EcnCodepoint::NotEct, true);
                }
                // These are lost. The packets behind them may still be sent.
                Err(error) => {
                    progress.too_long |= is_too_long(&error);
                    outcome = Err(error);
                    progress.errors += 1;
                    progress.lost += part.len().div_ceil(transmit.stride);
                    progress.done += part.len();
                }
            }
        }
        if progress.calls > 0 { Ok(()) } else { outcome }
    }

    /// As [`try_send`](Self::try_send), without DF. Nobody else may send meanwhile.
    pub(super) fn try_send_as_fragments(
        &self,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
        transmit: Transmit,
        bytes: &[u8],
        progress: &mut Progress,
    ) -> io::Result<()> {
        let _allowed = fragments::Allowed::on(SockRef::from(self.io.socket()));
        let local_ip = local_ip.filter(|_| self.any_ip);
        let mut outcome = Ok(());
        // GSO makes no packets that need fragments.
        for packet in bytes[progress.done..transmit.len].chunks(transmit.stride) {
            match self.send_batch(peer, local_ip, EcnCodepoint::NotEct, packet.len(), packet) {
                Ok(()) => progress.calls += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(error) => {
                    outcome = Err(error);
                    progress.errors += 1;
                    progress.lost += 1;
                }
            }
            progress.done += packet.len();
        }
        if progress.calls > 0 { Ok(()) } else { outcome }
    }

    /// Sends a single packet without control messages.
    fn send_plain(&self, peer: SocketAddr, packet: &[u8]) -> io::Result<()> {
        self.io.try_send(|| {
            #[cfg(all(test, target_os = "linux"))]
            self.faults.strike(faults::Call::Send { len: packet.len(), stride: None, has_tos: false })?;
            self.io.send_to(packet, peer).map(drop)
        })
    }

    fn send_batch(
        &self,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: EcnCodepoint,
        stride: usize,
        contents: &[u8],
    ) -> io::Result<()> {
        let stride = (contents.len() > stride).then_some(stride);
        let has_tos = self.tos.needs_message(&self.options(), ecn);
        if stride.is_none() && local_ip.is_none() && !has_tos {
            return self.send_plain(peer, contents);
        }
        let send = || {
            #[cfg(all(test, target_os = "linux"))]
            self.faults.strike(faults::Call::Send { len: contents.len(), stride, has_tos })?;
            if sendmsg::HAS_GSO || self.tos.has_dscp() {
                let tos = has_tos.then(|| self.tos.with(ecn));
                return sendmsg::send(self.options(), peer, local_ip, tos, stride, contents);
            }
            let transmit = quinn_udp::Transmit {
                destination: peer,
                ecn: quinn_udp::EcnCodepoint::from_bits(ecn as u8),
                contents,
                segment_size: stride,
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

    /// Receives with one system call, and calls `handle` for each slot that it filled.
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

    /// Receives into `N` slots, at most [`SLOTS`], and calls `handle` for each that was filled. Returns whether nothing was left
    /// to receive.
    fn receive<const N: usize>(&self, handle: &mut impl FnMut(Received<'_>)) -> io::Result<bool> {
        #[cfg(all(test, target_os = "linux"))]
        self.faults.strike(faults::Call::Receive)?;
        RECV.with_borrow_mut(|buffers| {
            let RecvBuffers { slots, meta } = &mut **buffers.get_or_insert_default();
            let blocks = slots.free(N);
            let count = {
                let mut blocks = blocks.iter_mut();
                let mut slices: [IoSliceMut<'_>; N] = std::array::from_fn(|_| {
                    let block = blocks.next().and_then(Arc::get_mut);
                    IoSliceMut::new(block.map(|block| &mut block[..]).unwrap_or_default())
                });
                #[cfg(all(test, target_os = "linux"))]
                let slices = &mut slices[..self.faults.most_filled(N)];
                self.state.recv(UdpSockRef::from(self.io.socket()), &mut slices[..], meta)?
            };
            for (block, meta) in blocks.iter_mut().zip(&meta[..count]) {
                let (peer, local_ip) = (meta.addr, meta.dst_ip);
                let ecn = meta.ecn.map_or(EcnCodepoint::NotEct, |ecn| EcnCodepoint::from_bits(ecn as u8));
                let received =
                    Received { peer, local_ip, block, len: meta.len, stride: meta.stride.max(1), ecn };
                #[cfg(all(test, target_os = "linux"))]
                self.faults.deliver(received, handle);
                #[cfg(not(all(test, target_os = "linux")))]
                handle(received);
            }
            self.was_single.store(count == 1 && meta[0].len <= meta[0].stride, Ordering::Relaxed);
            // A slot that stayed empty shows that nothing was left. That saves the call that would find nothing.
            Ok(count < N)
        })
    }
}
