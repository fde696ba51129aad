//! The spans of endpoints and sessions, and what this layer tells [`tracing`](https://docs.rs/tracing), with the feature `tracing`. Without
//! it, types without a size and functions without a body.
//!
//! A task works on a session inside of that session's span, be it the driver or a task of the application. So the events of
//! the core (`proto/trace.rs`) need not name the session. `docs/tracing.md` has the table of all spans and events.

pub(super) use self::spans::{EndpointTrace, SessionTrace, StateTrace};

/// Who has begun a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// This end.
    Connects,
    /// Its peer.
    Accepts,
}

#[cfg(not(feature = "tracing"))]
mod spans {
    use core::future::Future;
    use std::net::SocketAddr;

    use super::Role;
    use crate::{
        net::error::KcpError,
        proto::{Connection, fec::FecEvent},
    };

    #[derive(Debug)]
    pub(in crate::net) struct EndpointTrace;

    #[derive(Debug)]
    pub(in crate::net) struct SessionTrace;

    #[derive(Debug)]
    pub(in crate::net) struct StateTrace;

    /// While it lives, nothing is different.
    pub(in crate::net) struct Entered;

    impl EndpointTrace {
        pub(in crate::net) const fn new(_: SocketAddr) -> Self {
            Self
        }

        pub(in crate::net) fn around<F: Future>(&self, driver: F) -> F {
            driver
        }

        pub(in crate::net) const fn session(&self, _: &Connection, _: SocketAddr, _: Role) -> SessionTrace {
            SessionTrace
        }

        pub(in crate::net) const fn state(&self) -> StateTrace {
            StateTrace
        }
    }

    impl SessionTrace {
        #[inline(always)]
        pub(in crate::net) const fn enter(&self) -> Entered {
            Entered
        }
    }

    impl StateTrace {
        #[cfg(test)]
        pub(in crate::net) const fn none() -> Self {
            Self
        }

        #[inline(always)]
        pub(in crate::net) const fn failed(&self, _: KcpError) {}

        #[inline(always)]
        pub(in crate::net) const fn peer_fec(&self, _: FecEvent, _: &Connection, _: SocketAddr) {}
    }
}

#[cfg(feature = "tracing")]
mod spans {
    use core::future::Future;
    use std::{
        net::SocketAddr,
        sync::{Arc, Mutex, PoisonError},
    };

    use tracing::{Instrument, Level, Span, span::Entered};

    use super::Role;
    use crate::{
        net::{clock, error::KcpError},
        proto::{Connection, WarningLimit, fec::FecEvent, trace::target},
    };

    /// The span of a socket.
    #[derive(Debug)]
    pub(in crate::net) struct EndpointTrace {
        span: Span,
        warnings: Arc<Mutex<WarningLimit>>,
    }

    /// The span of a session.
    #[derive(Debug)]
    pub(in crate::net) struct SessionTrace(Span);

    /// What a session's state has of its socket.
    #[derive(Debug)]
    pub(in crate::net) struct StateTrace(Arc<Mutex<WarningLimit>>);

    impl EndpointTrace {
        pub(in crate::net) fn new(local: SocketAddr) -> Self {
            let span = tracing::info_span!(target: target::ENDPOINT, parent: None, "endpoint", %local);
            Self { span, warnings: Arc::default() }
        }

        /// Has a driver work inside of the span.
        pub(in crate::net) fn around<F: Future>(
            &self,
            driver: F,
        ) -> impl Future<Output = F::Output> + use<F> {
            driver.instrument(self.span.clone())
        }

        /// The span of a session that begins.
        pub(in crate::net) fn session(
            &self,
            session: &Connection,
            peer: SocketAddr,
            role: Role,
        ) -> SessionTrace {
            let conv = session.conv();
            let role = match role {
                Role::Connects => "connects",
                Role::Accepts => "accepts",
            };
            let span = tracing::debug_span!(target: target::SESSION, parent: &self.span, "session", conv, %peer, role);
            if tracing::enabled!(target: target::SESSION, Level::DEBUG) {
                let (mtu, queues) = (session.mtu(), session.stats().queues);
                let (send_window, recv_window) = (queues.send_window, queues.recv_window);
                span.in_scope(|| {
                    tracing::debug!(
                        name: "opened", target: target::SESSION, { mtu, send_window, recv_window }, "a session is begun"
                    );
                });
            }
            SessionTrace(span)
        }

        pub(in crate::net) fn state(&self) -> StateTrace {
            StateTrace(Arc::clone(&self.warnings))
        }
    }

    impl SessionTrace {
        /// The task works on the session until the returned value is dropped.
        #[inline]
        pub(in crate::net) fn enter(&self) -> Entered<'_> {
            self.0.enter()
        }
    }

    impl StateTrace {
        #[cfg(test)]
        pub(in crate::net) fn none() -> Self {
            Self(Arc::default())
        }

        /// The session ends, and it is not for the connection's own reason.
        pub(in crate::net) fn failed(&self, reason: KcpError) {
            tracing::debug!(name: "failed", target: target::SESSION, { ?reason }, "the session fails");
        }

        /// The peer's FEC does not fit this end's.
        #[cold]
        pub(in crate::net) fn peer_fec(&self, event: FecEvent, session: &Connection, peer: SocketAddr) {
            if !tracing::enabled!(target: target::FEC, Level::WARN) {
                return;
            }
            let (cause, advice) = match event {
                FecEvent::PeerShards { .. } => (
                    "other_shards",
                    "its groups have other numbers than those of this end: kcp9 decodes them, kcp-go may not",
                ),
                FecEvent::Undecodable => {
                    ("undecodable", "nothing can be recovered from its parity: is it of another code?")
                }
            };
            // Nothing panics while it holds this lock.
            let permitted =
                self.0.lock().unwrap_or_else(PoisonError::into_inner).permit(clock::now(), peer.ip(), cause);
            let Some(suppressed) = permitted else { return };
            let (conv, fec) = (session.conv(), session.stats().fec_state);
            tracing::warn!(
                name: "fec_mismatch",
                target: target::FEC,
                {
                    %peer, conv, cause,
                    data = fec.data_shards, parity = fec.parity_shards,
                    peer_data = fec.peer_data_shards, peer_parity = fec.peer_parity_shards,
                    suppressed
                },
                "the FEC of {peer} is another one: {advice}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EndpointTrace, SessionTrace, StateTrace};

    /// With the mode of its congestion controller, of 16 bytes, they are the 64 that `docs/tracing.md` says.
    #[test]
    fn a_session_is_48_bytes_larger_with_the_feature_and_none_without() {
        let bytes = size_of::<SessionTrace>() + size_of::<StateTrace>();
        assert_eq!(bytes, if cfg!(feature = "tracing") { 48 } else { 0 });
        const { assert!(cfg!(feature = "tracing") || size_of::<EndpointTrace>() == 0) };
    }
}
