//! A UDP socket registered with the runtime: always for packets to receive, and for room to send only while somebody waits
//! for it.
//!
//! Linux reports room each time that a packet has left the socket's buffer, even if the buffer is almost empty. A socket that
//! is registered for both would wake its driver once more for each packet that it sends.

#[cfg(not(unix))]
pub(super) use other::AsyncSocket;
#[cfg(unix)]
pub(super) use unix::AsyncSocket;

#[cfg(unix)]
mod unix {
    use std::{
        io,
        net::{SocketAddr, UdpSocket},
        sync::{Mutex, PoisonError},
        task::{Context, Poll, ready},
    };

    use tokio::io::{Interest, unix::AsyncFd};

    #[derive(Debug)]
    pub(in crate::net) struct AsyncSocket {
        readable: AsyncFd<UdpSocket>,
        /// The same socket with a second descriptor, registered while somebody waits for room.
        writable: Mutex<Option<AsyncFd<UdpSocket>>>,
    }

    impl AsyncSocket {
        /// Registers a socket, which must be in non-blocking mode. Panics outside a Tokio runtime.
        pub(in crate::net) fn new(socket: UdpSocket) -> io::Result<Self> {
            let readable = watch(socket, Interest::READABLE)?;
            Ok(Self { readable, writable: Mutex::new(None) })
        }

        pub(in crate::net) fn socket(&self) -> &UdpSocket {
            self.readable.get_ref()
        }

        /// Sends a packet, if there is room for it.
        pub(in crate::net) fn send_to(&self, packet: &[u8], peer: SocketAddr) -> io::Result<usize> {
            self.socket().send_to(packet, peer)
        }

        /// Calls `recv` when something may have arrived. `recv` returns whether it has received everything there was.
        pub(in crate::net) fn poll_recv(
            &self,
            cx: &mut Context<'_>,
            mut recv: impl FnMut() -> io::Result<bool>,
        ) -> Poll<io::Result<()>> {
            loop {
                let mut guard = ready!(self.readable.poll_read_ready(cx))?;
                let outcome = recv();
                let nothing = outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
                if nothing || matches!(outcome, Ok(true)) {
                    // This clears the readiness from before `recv` only. What has arrived since makes the socket ready again.
                    guard.clear_ready();
                }
                if !nothing {
                    return Poll::Ready(outcome.map(drop));
                }
            }
        }

        /// Calls `send`, which fails with `WouldBlock` when there is no room.
        pub(in crate::net) fn try_send(&self, send: impl Fn() -> io::Result<()>) -> io::Result<()> {
            send()
        }

        /// Waits until there is room. If the system has no descriptor left to wait with, this stays pending: the driver tries
        /// again after a while whatever the socket reports.
        pub(in crate::net) fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
            let mut writable = self.writable.lock().unwrap_or_else(PoisonError::into_inner);
            if writable.is_none() {
                // A socket that already has room is reported at once.
                *writable =
                    self.socket().try_clone().and_then(|socket| watch(socket, Interest::WRITABLE)).ok();
            }
            let Some(watched) = &*writable else { return Poll::Pending };
            let _ = ready!(watched.poll_write_ready(cx));
            *writable = None;
            Poll::Ready(())
        }
    }

    #[allow(
        deprecated,
        reason = "its successor is `unsafe`, for types that may close their descriptor early. A `UdpSocket` does not"
    )]
    fn watch(socket: UdpSocket, interest: Interest) -> io::Result<AsyncFd<UdpSocket>> {
        AsyncFd::with_interest(socket, interest)
    }
}

#[cfg(not(unix))]
mod other {
    use std::{
        io,
        net::SocketAddr,
        task::{Context, Poll, ready},
    };

    use socket2::SockRef;
    use tokio::{io::Interest, net::UdpSocket};

    #[derive(Debug)]
    pub(in crate::net) struct AsyncSocket(UdpSocket);

    impl AsyncSocket {
        /// Registers a socket, which must be in non-blocking mode. Panics outside a Tokio runtime.
        pub(in crate::net) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
            UdpSocket::from_std(socket).map(Self)
        }

        pub(in crate::net) fn socket(&self) -> &UdpSocket {
            &self.0
        }

        /// Sends a packet, if there is room for it.
        pub(in crate::net) fn send_to(&self, packet: &[u8], peer: SocketAddr) -> io::Result<usize> {
            SockRef::from(&self.0).send_to(packet, &peer.into())
        }

        /// Calls `recv` when something may have arrived. `recv` returns whether it has received everything there was.
        pub(in crate::net) fn poll_recv(
            &self,
            cx: &mut Context<'_>,
            mut recv: impl FnMut() -> io::Result<bool>,
        ) -> Poll<io::Result<()>> {
            loop {
                ready!(self.0.poll_recv_ready(cx))?;
                let mut all = false;
                // This clears the readiness from before `recv` only. What has arrived since makes the socket ready again.
                let outcome = self.0.try_io(Interest::READABLE, || {
                    all = recv()?;
                    if all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
                });
                match outcome {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && !all => {}
                    outcome => return Poll::Ready(if all { Ok(()) } else { outcome }),
                }
            }
        }

        /// Calls `send`, which fails with `WouldBlock` when there is no room.
        pub(in crate::net) fn try_send(&self, send: impl Fn() -> io::Result<()>) -> io::Result<()> {
            // Tokio learns only after a while that a new socket is ready, so the first call goes to the socket itself. If
            // that one is full, the second goes through Tokio, which then clears the readiness from before this call. A
            // readiness that came between the two calls is kept.
            match send() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.0.try_io(Interest::WRITABLE, send)
                }
                outcome => outcome,
            }
        }

        /// Waits until there is room.
        pub(in crate::net) fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
            self.0.poll_send_ready(cx).map(|_| ())
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::{
        future::poll_fn,
        io,
        net::UdpSocket,
        os::{fd::OwnedFd, unix::net::UnixDatagram},
        task::{Context, Waker},
        time::Duration,
    };

    use super::AsyncSocket;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Two connected sockets. The first is full when the second does not read. UDP sockets on loopback are never full, since a
    /// packet leaves the sender's buffer as it is sent; so these are Unix sockets.
    fn pair() -> (AsyncSocket, UdpSocket) {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_read_timeout(Some(LIMIT)).unwrap();
        (AsyncSocket::new(OwnedFd::from(ours).into()).unwrap(), OwnedFd::from(theirs).into())
    }

    fn would_block<T>(outcome: &io::Result<T>) -> bool {
        outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Also when the wait begins after there is room, and time after time.
    #[tokio::test]
    async fn a_full_socket_reports_room_after_its_peer_has_read() {
        let (socket, peer) = pair();
        for round in 0..20 {
            let mut sent = 0;
            while !would_block(&socket.try_send(|| socket.socket().send(&[7; 1_000]).map(drop))) {
                sent += 1;
                assert!(sent < 100_000, "it is never full");
            }
            assert!(sent > 0, "round {round}");
            if round % 2 == 0 {
                let mut pending = Context::from_waker(Waker::noop());
                assert!(socket.poll_send_ready(&mut pending).is_pending(), "round {round}");
            }
            for _ in 0..sent {
                assert_eq!(peer.recv(&mut [0; 2_000]).unwrap(), 1_000);
            }
            let ready = poll_fn(|cx| socket.poll_send_ready(cx));
            tokio::time::timeout(LIMIT, ready).await.unwrap_or_else(|_| panic!("no room in round {round}"));
        }
    }

    /// `recv` may take one packet a call and say that there may be more, or that this was the last.
    #[tokio::test]
    async fn every_packet_that_arrives_is_reported() {
        let (socket, peer) = pair();
        let mut received = 0;
        for round in 0..100 {
            for _ in 0..round % 5 + 1 {
                peer.send(&[round]).unwrap();
            }
            while received < round % 5 + 1 {
                let receiving = poll_fn(|cx| {
                    socket.poll_recv(cx, || {
                        let from = socket.socket().recv(&mut [0; 9])?;
                        assert_eq!(from, 1);
                        received += 1;
                        Ok(received == round % 5 + 1)
                    })
                });
                tokio::time::timeout(LIMIT, receiving).await.expect("something had arrived").unwrap();
            }
            received = 0;
            let mut cx = Context::from_waker(Waker::noop());
            let nothing = socket.poll_recv(&mut cx, || socket.socket().recv(&mut [0; 9]).map(|_| true));
            assert!(nothing.is_pending(), "round {round}");
        }
    }

    #[tokio::test]
    async fn errors_are_returned_and_leave_the_socket_ready() {
        let (socket, peer) = pair();
        peer.send(&[1]).unwrap();
        let outcome =
            poll_fn(|cx| socket.poll_recv(cx, || Err(io::ErrorKind::ConnectionRefused.into()))).await;
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        // It stays ready: the packet is still there.
        let again = poll_fn(|cx| socket.poll_recv(cx, || socket.socket().recv(&mut [0; 9]).map(|_| true)));
        tokio::time::timeout(LIMIT, again).await.unwrap().unwrap();
        assert!(matches!(
            socket.try_send(|| Err(io::ErrorKind::PermissionDenied.into())),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied
        ));
    }
}
