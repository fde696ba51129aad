//! When the end that accepts asks for a cookie.

/// When a listener asks a peer to show that it receives what is sent to its address, before it accepts a session of it; set by
/// [`cookies`](crate::KcpConfigBuilder::cookies).
///
/// A cookie costs the peer a round trip and the listener no memory. Only peers with the [extensions](crate::proto::Extensions) can
/// return one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CookiePolicy {
    /// Never.
    Never,
    /// While as many sessions are half-open as half of a limit allows, that of
    /// [all](crate::KcpConfigBuilder::max_half_open) or that of the peer's
    /// [network](crate::KcpConfigBuilder::max_half_open_of_network), or half of the
    /// [backlog](crate::KcpConfigBuilder::accept_backlog) waits to be accepted. Peers without the extensions have the other half.
    #[default]
    UnderLoad,
    /// Always. Peers without the extensions are not accepted.
    Always,
}
