//! What a session's configuration says of key agreement.

use alloc::sync::Arc;

use super::{Initiator, Responder};

/// How sessions agree on keys, for [`KcpConfigBuilder::noise`](crate::KcpConfigBuilder::noise): what an end that connects has, what an
/// end that accepts has, or both. It is made of an [`Initiator`] or a [`Responder`], and both ends need the same
/// [`Pattern`](super::Pattern).
///
/// ```
/// use kcp9::{KcpConfig, proto::{Random, noise::{Initiator, KeyPair, Noise, Responder}}};
///
/// # struct Entropy;
/// # impl Random for Entropy {
/// #     fn fill(&mut self, bytes: &mut [u8]) {
/// #         bytes.fill(4);
/// #     }
/// # }
/// // `Entropy` draws from the operating system.
/// let keys = KeyPair::generate(&mut Entropy);
/// let public = *keys.public();
/// let server = KcpConfig::builder().noise(Responder::nk(keys)).build()?;
/// let client = KcpConfig::builder().noise(Initiator::nk(public)).build()?;
/// assert!(server.noise().is_some_and(Noise::accepts) && client.noise().is_some_and(Noise::connects));
/// # Ok::<(), kcp9::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Noise {
    initiator: Option<Arc<Initiator>>,
    responder: Option<Arc<Responder>>,
    serves_static: bool,
}

impl Noise {
    /// Sessions can be begun here as well, with this. To be used where one endpoint connects and accepts.
    ///
    /// With [`NnPsk0`](super::Pattern::NnPsk0) and the same key for both, somebody between could send what this end says back to it, and
    /// have it begin a session with itself. Where that matters, take another pattern, or another key for each direction.
    #[must_use]
    pub fn with_initiator(mut self, initiator: Initiator) -> Self {
        self.initiator = Some(Arc::new(initiator));
        self
    }

    /// An end that accepts serves peers without key agreement, too: kcp-go, kcptun, ikcp, and ourselves without `noise`. They get
    /// what [`crypto`](crate::KcpConfigBuilder::crypto) says, without the properties of key agreement. Without any cipher for them the
    /// configuration is refused. Default: they are refused.
    ///
    /// No peer that agrees on keys is brought to a static cipher by it: an end that connects with key agreement knows nothing
    /// else. What a static session is worth stays what its shared key is worth.
    #[must_use]
    pub const fn serving_static_peers(mut self) -> Self {
        self.serves_static = true;
        self
    }

    /// Whether sessions can be begun with it.
    #[must_use]
    pub const fn connects(&self) -> bool {
        self.initiator.is_some()
    }

    /// Whether sessions can be accepted with it.
    #[must_use]
    pub const fn accepts(&self) -> bool {
        self.responder.is_some()
    }

    /// Whether an end that accepts serves peers without key agreement, too.
    #[must_use]
    pub const fn serves_static_peers(&self) -> bool {
        self.serves_static
    }

    pub(in crate::proto) fn initiator(&self) -> Option<&Initiator> {
        self.initiator.as_deref()
    }

    pub(in crate::proto) const fn responder(&self) -> Option<&Arc<Responder>> {
        self.responder.as_ref()
    }
}

impl From<Initiator> for Noise {
    fn from(initiator: Initiator) -> Self {
        Self { initiator: Some(Arc::new(initiator)), responder: None, serves_static: false }
    }
}

impl From<Responder> for Noise {
    fn from(responder: Responder) -> Self {
        Self { initiator: None, responder: Some(Arc::new(responder)), serves_static: false }
    }
}

impl From<Initiator> for Option<Noise> {
    fn from(initiator: Initiator) -> Self {
        Some(initiator.into())
    }
}

impl From<Responder> for Option<Noise> {
    fn from(responder: Responder) -> Self {
        Some(responder.into())
    }
}

/// Two are equal if they are clones of each other: keys are not compared.
impl PartialEq for Noise {
    fn eq(&self, other: &Self) -> bool {
        fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
            match (one, other) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (None, None) => true,
                _ => false,
            }
        }
        same(self.initiator.as_ref(), other.initiator.as_ref())
            && same(self.responder.as_ref(), other.responder.as_ref())
            && self.serves_static == other.serves_static
    }
}

impl Eq for Noise {}
