//! The end that begins handshakes.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

use snow::HandshakeState;
use zeroize::Zeroizing;

use super::{Credentials, Role, draw, finish, read, write};
use crate::proto::{
    Random,
    noise::{
        error::{NoiseError, Refusal},
        keys::{KEY_LEN, KeyPair, Psk, PublicKey, Trust},
        message::{ANSWER, FIRST, LAST, MAX_EARLY_DATA, Terms, context_digest, hint},
        pattern::{Pattern, SessionCipher},
        route::RouteSecret,
        session::SessionKeys,
    },
};

/// The end that begins a handshake, with its keys. It serves any number of handshakes.
#[derive(Debug, Clone)]
pub struct Initiator {
    credentials: Credentials,
    /// The responder's key, where it is known before.
    responder: Option<PublicKey>,
    cipher: SessionCipher,
}

impl Initiator {
    /// [`Pattern::NnPsk0`]: both ends have `psk`, and nothing else.
    ///
    /// Where a program is initiator and responder with the same key, the context should name who begins: otherwise somebody between may
    /// send its messages back to it, and it has a session with itself.
    #[must_use]
    pub fn nn_psk0(psk: Psk) -> Self {
        Self::new(Pattern::NnPsk0, None, Some(psk), Trust::any(), None)
    }

    /// [`Pattern::Nk`]: the peer is who has the key `responder`. The peer does not learn who this is.
    #[must_use]
    pub fn nk(responder: PublicKey) -> Self {
        Self::new(Pattern::Nk, None, None, Trust::any(), Some(responder))
    }

    /// [`Pattern::NkPsk0`]: the peer is who has the key `responder`, and both ends have `psk`.
    #[must_use]
    pub fn nk_psk0(responder: PublicKey, psk: Psk) -> Self {
        Self::new(Pattern::NkPsk0, None, Some(psk), Trust::any(), Some(responder))
    }

    /// [`Pattern::Xx`]: this end shows `keys`, and the peer a key that `trust` trusts.
    #[must_use]
    pub fn xx(keys: KeyPair, trust: Trust) -> Self {
        Self::new(Pattern::Xx, Some(keys), None, trust, None)
    }

    /// [`Pattern::XxPsk3`]: as [`xx`](Self::xx), and both ends have `psk`.
    #[must_use]
    pub fn xx_psk3(keys: KeyPair, trust: Trust, psk: Psk) -> Self {
        Self::new(Pattern::XxPsk3, Some(keys), Some(psk), trust, None)
    }

    fn new(
        pattern: Pattern,
        keys: Option<KeyPair>,
        psk: Option<Psk>,
        trust: Trust,
        responder: Option<PublicKey>,
    ) -> Self {
        let credentials = Credentials { pattern, keys, psk, trust };
        Self { credentials, responder, cipher: SessionCipher::default() }
    }

    /// Has the session's packets sealed by `cipher`. Default: [`SessionCipher::ChaCha20Poly1305`].
    #[must_use]
    pub const fn with_cipher(mut self, cipher: SessionCipher) -> Self {
        self.cipher = cipher;
        self
    }

    /// Begins a handshake. `context` is what is said in the clear beside the first message, or known to both ends before: it is not
    /// sent, and the handshake fails where the responder has another one. `random` must be unpredictable.
    ///
    /// # Errors
    /// * [`NoiseError::Cipher`]: the feature of the session's cipher is off.
    /// * [`NoiseError::WeakKey`]: the responder's public key must not be used.
    pub fn begin(&self, context: &[u8], random: &mut dyn Random) -> Result<InitiatorHandshake, NoiseError> {
        self.begin_with_early_data(context, &[], random)
    }

    /// As [`begin`](Self::begin), with data of the application in the first message: the responder may take it at once, and answer it
    /// with its own first message.
    ///
    /// It has less protection than what is sent later. Whoever learns the shared key, or the responder's secret key, reads it in a
    /// recording. Whoever sends a recording again may have it taken once more: see [`Responder::read_first`](super::Responder::read_first). Whether the responder
    /// has taken it says [`Established::early_data_taken`]; if not, it is to be sent again, under the session's keys.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin), and [`NoiseError::EarlyData`]: the data has more than [`MAX_EARLY_DATA`] bytes, or the pattern
    /// encrypts nothing in its first message ([`Pattern::takes_early_data`]).
    pub fn begin_with_early_data(
        &self,
        context: &[u8],
        early: &[u8],
        random: &mut dyn Random,
    ) -> Result<InitiatorHandshake, NoiseError> {
        if !self.cipher.is_built() {
            return Err(NoiseError::Cipher);
        }
        let fits = early.len() <= MAX_EARLY_DATA && self.credentials.pattern.takes_early_data();
        if !early.is_empty() && !fits {
            return Err(NoiseError::EarlyData);
        }
        let terms = Terms { pattern: self.credentials.pattern, cipher: self.cipher };
        let (prologue, ephemeral) = (terms.prologue(context), draw(random));
        let initiator = self.clone();
        let early = early.into();
        let mut handshake = InitiatorHandshake {
            initiator,
            terms,
            ephemeral,
            prologue,
            early,
            state: None,
            message: Vec::new(),
        };
        let (state, message) = handshake.make()?;
        (handshake.state, handshake.message) = (Some(state), message);
        Ok(handshake)
    }
}

/// A handshake of the end that has begun it, and that waits for the answer.
pub struct InitiatorHandshake {
    initiator: Initiator,
    terms: Terms,
    /// The secret of the ephemeral key.
    ephemeral: Zeroizing<[u8; KEY_LEN]>,
    prologue: Vec<u8>,
    early: Box<[u8]>,
    /// `None`: the handshake is over.
    state: Option<Box<HandshakeState>>,
    message: Vec<u8>,
}

impl InitiatorHandshake {
    /// The first message. It may be sent again, as it is, until there is an answer.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Whether the answer was read: another one is none any more.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.state.is_none()
    }

    /// Reads the answer. `context` is what is said in the clear beside it: what the responder has handed to
    /// [`answer`](super::Responder::answer). Keys for the session's packets come of it.
    ///
    /// # Errors
    /// Why it is none. The handshake goes on: the true answer may still come.
    pub fn read_answer(&mut self, answer: &[u8], context: &[u8]) -> Result<Established, NoiseError> {
        if let Some(refusal) = Refusal::from_message(answer) {
            return Err(NoiseError::Refused(refusal));
        }
        let noise = self.terms.body(ANSWER, answer)?;
        let state = self.state.as_mut().ok_or(NoiseError::Over)?;
        let (payload, len) = read(state, noise, NoiseError::Forged)?;
        let (digest, rest) = payload[..len].split_first_chunk().ok_or(NoiseError::Malformed)?;
        let route_secret = rest.first_chunk().map(RouteSecret::from_bytes);
        // A responder has made it. Whether it is the one that is meant, with what it has said beside it, is not known yet.
        let mut state = self.state.take().ok_or(NoiseError::Over)?;
        let says = |early_data_taken| *digest == context_digest(context, early_data_taken);
        let early_data_taken = !self.early.is_empty() && says(true);
        let peer = if early_data_taken || says(false) {
            self.initiator.credentials.trusted(&state)
        } else {
            Err(NoiseError::Context)
        };
        let peer = match peer {
            Ok(peer) => peer.or(self.initiator.responder),
            Err(error) => {
                // snow has gone on. The handshake is made again, for the true answer.
                self.state = self.make().ok().map(|(state, _)| state);
                return Err(error);
            }
        };
        let mut last_message = None;
        if self.terms.pattern.sends_keys() {
            let (noise, len) = write(&mut state, &[])?;
            last_message = Some([&self.terms.header(LAST), &noise[..len]].concat());
        }
        let route_key = self.initiator.credentials.route_key(route_secret.as_ref());
        let session = finish(&mut state, Role::Initiator, self.terms.cipher, peer, route_key)?;
        Ok(Established { session, last_message, early_data_taken })
    }

    /// The handshake after the first message, and that message.
    fn make(&self) -> Result<(Box<HandshakeState>, Vec<u8>), NoiseError> {
        let Initiator { credentials, responder, .. } = &self.initiator;
        let (prologue, ephemeral) = (&self.prologue, self.ephemeral.clone());
        let mut state = credentials.begin(prologue, Role::Initiator, responder.as_ref(), ephemeral)?;
        let (noise, len) = write(&mut state, &self.early)?;
        let noise = &noise[..len];
        let hint = responder.as_ref().map(|responder| hint(responder, &noise[..KEY_LEN.min(len)]));
        let hint = hint.as_ref().map_or(&[][..], |hint| hint);
        Ok((Box::new(state), [&self.terms.header(FIRST), hint, noise].concat()))
    }
}

impl fmt::Debug for InitiatorHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitiatorHandshake").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// What an initiator has after the answer.
#[derive(Debug)]
#[non_exhaustive]
pub struct Established {
    /// The keys of the session's packets, which may be sent at once.
    pub session: SessionKeys,
    /// The third message, in the patterns that have one. Until it has arrived, the responder opens nothing: it should go in front of the
    /// first packets, and again as long as nothing [is heard](SessionKeys::is_peer_heard) of the peer.
    pub last_message: Option<Vec<u8>>,
    /// Whether the responder has taken the data of [`Initiator::begin_with_early_data`].
    pub early_data_taken: bool,
}
