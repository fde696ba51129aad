//! The handshake: who it is with, and its two or three messages.

use alloc::{boxed::Box, vec::Vec};
use core::{fmt, net::SocketAddr};

use snow::{Builder, Error, HandshakeState};
use zeroize::Zeroizing;

use super::{
    error::{NoiseError, Refusal},
    keys::{KEY_LEN, KeyPair, Psk, PublicKey, Trust},
    message::{ANSWER, DIGEST_LEN, FIRST, HINT_LEN, LAST, MAX_LEN, Terms, context_digest, hint},
    pattern::{Pattern, SessionCipher},
    reset::{ResetKey, ResetSecret},
    resolver::Resolver,
    session::{Role, SessionKeys},
};
use crate::proto::Random;

/// What an end has before a handshake: its keys, and what it knows of its peer.
#[derive(Debug, Clone)]
struct Credentials {
    pattern: Pattern,
    keys: Option<KeyPair>,
    psk: Option<Psk>,
    trust: Trust,
}

impl Credentials {
    fn new(pattern: Pattern, keys: Option<KeyPair>, psk: Option<Psk>, trust: Trust) -> Self {
        Self { pattern, keys, psk, trust }
    }

    /// snow's handshake of one session.
    fn begin(
        &self,
        prologue: &[u8],
        role: Role,
        responder: Option<&PublicKey>,
        ephemeral: Zeroizing<[u8; KEY_LEN]>,
    ) -> Result<HandshakeState, NoiseError> {
        let params = self.pattern.protocol_name().parse().map_err(|_| NoiseError::Over)?;
        let build = || {
            let mut builder =
                Builder::with_resolver(params, Box::new(Resolver { ephemeral, keys: self.keys.clone() }))
                    .prologue(prologue)?;
            if let Some(keys) = &self.keys {
                builder = builder.local_private_key(keys.secret())?;
            }
            if let Some(responder) = responder {
                builder = builder.remote_public_key(responder.as_bytes())?;
            }
            if let (Some(position), Some(psk)) = (self.pattern.psk_position(), &self.psk) {
                builder = builder.psk(position, psk.as_bytes())?;
            }
            match role {
                Role::Initiator => builder.build_initiator(),
                Role::Responder => builder.build_responder(),
            }
        };
        // The constructors have seen to it that nothing is missing.
        build().map_err(|_: Error| NoiseError::Over)
    }

    /// The peer's static key, if it has sent one and it is trusted.
    fn trusted(&self, state: &HandshakeState) -> Result<Option<PublicKey>, NoiseError> {
        if !self.pattern.sends_keys() {
            return Ok(None);
        }
        let key = remote_static(state).ok_or(NoiseError::Forged)?;
        // With two forms of one key, whoever keeps a list of keys that it does not want would be fooled.
        if key.is_canonical() && self.trust.trusts(&key) {
            Ok(Some(key))
        } else {
            Err(NoiseError::UntrustedKey(key))
        }
    }
}

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
        Self::new(Credentials::new(Pattern::NnPsk0, None, Some(psk), Trust::any()), None)
    }

    /// [`Pattern::Nk`]: the peer is who has the key `responder`. The peer does not learn who this is.
    #[must_use]
    pub fn nk(responder: PublicKey) -> Self {
        Self::new(Credentials::new(Pattern::Nk, None, None, Trust::any()), Some(responder))
    }

    /// [`Pattern::NkPsk0`]: the peer is who has the key `responder`, and both ends have `psk`.
    #[must_use]
    pub fn nk_psk0(responder: PublicKey, psk: Psk) -> Self {
        Self::new(Credentials::new(Pattern::NkPsk0, None, Some(psk), Trust::any()), Some(responder))
    }

    /// [`Pattern::Xx`]: this end shows `keys`, and the peer a key that `trust` trusts.
    #[must_use]
    pub fn xx(keys: KeyPair, trust: Trust) -> Self {
        Self::new(Credentials::new(Pattern::Xx, Some(keys), None, trust), None)
    }

    /// [`Pattern::XxPsk3`]: as [`xx`](Self::xx), and both ends have `psk`.
    #[must_use]
    pub fn xx_psk3(keys: KeyPair, trust: Trust, psk: Psk) -> Self {
        Self::new(Credentials::new(Pattern::XxPsk3, Some(keys), Some(psk), trust), None)
    }

    fn new(credentials: Credentials, responder: Option<PublicKey>) -> Self {
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
        if !self.cipher.is_built() {
            return Err(NoiseError::Cipher);
        }
        let terms = Terms { pattern: self.credentials.pattern, cipher: self.cipher };
        let (prologue, ephemeral) = (terms.prologue(context), draw(random));
        let initiator = self.clone();
        let mut handshake =
            InitiatorHandshake { initiator, terms, ephemeral, prologue, state: None, message: Vec::new() };
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
    /// [`answer`](Responder::answer). Keys for the session's packets come of it.
    ///
    /// # Errors
    /// Why it is none. The handshake goes on: the true answer may still come.
    pub fn read_answer(&mut self, answer: &[u8], context: &[u8]) -> Result<Established, NoiseError> {
        if let Some(refusal) = Refusal::from_message(answer) {
            return Err(NoiseError::Refused(refusal));
        }
        let noise = self.terms.body(ANSWER, answer)?;
        let state = self.state.as_mut().ok_or(NoiseError::Over)?;
        let (digest, len) = read(state, noise, NoiseError::Forged)?;
        // A responder has made it. Whether it is the one that is meant, with what it has said beside it, is not known yet.
        let mut state = self.state.take().ok_or(NoiseError::Over)?;
        let peer = if digest[..len] == context_digest(context) {
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
        let session = finish(&mut state, Role::Initiator, self.terms.cipher, peer)?;
        Ok(Established { session, last_message })
    }

    /// The handshake after the first message, and that message.
    fn make(&self) -> Result<(Box<HandshakeState>, Vec<u8>), NoiseError> {
        let Initiator { credentials, responder, .. } = &self.initiator;
        let (prologue, ephemeral) = (&self.prologue, self.ephemeral.clone());
        let mut state = credentials.begin(prologue, Role::Initiator, responder.as_ref(), ephemeral)?;
        let (noise, len) = write(&mut state, &[])?;
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
}

/// The end that answers handshakes, with its keys. It serves any number of them.
#[derive(Debug, Clone)]
pub struct Responder {
    credentials: Credentials,
    reset_secret: Option<ResetSecret>,
}

impl Responder {
    /// [`Pattern::NnPsk0`]: both ends have `psk`, and nothing else.
    #[must_use]
    pub fn nn_psk0(psk: Psk) -> Self {
        Self::new(Credentials::new(Pattern::NnPsk0, None, Some(psk), Trust::any()))
    }

    /// [`Pattern::Nk`]: peers know the public key of `keys`.
    #[must_use]
    pub fn nk(keys: KeyPair) -> Self {
        Self::new(Credentials::new(Pattern::Nk, Some(keys), None, Trust::any()))
    }

    /// [`Pattern::NkPsk0`]: peers know the public key of `keys`, and have `psk`.
    #[must_use]
    pub fn nk_psk0(keys: KeyPair, psk: Psk) -> Self {
        Self::new(Credentials::new(Pattern::NkPsk0, Some(keys), Some(psk), Trust::any()))
    }

    /// [`Pattern::Xx`]: this end shows `keys`, and the peer a key that `trust` trusts.
    #[must_use]
    pub fn xx(keys: KeyPair, trust: Trust) -> Self {
        Self::new(Credentials::new(Pattern::Xx, Some(keys), None, trust))
    }

    /// [`Pattern::XxPsk3`]: as [`xx`](Self::xx), and both ends have `psk`.
    #[must_use]
    pub fn xx_psk3(keys: KeyPair, trust: Trust, psk: Psk) -> Self {
        Self::new(Credentials::new(Pattern::XxPsk3, Some(keys), Some(psk), trust))
    }

    fn new(credentials: Credentials) -> Self {
        let reset_secret = credentials.keys.as_ref().map(ResetSecret::of);
        Self { credentials, reset_secret }
    }

    /// Has this end tell the peers of sessions that it has lost, since it was started again, by `secret`: 32 random bytes that are the
    /// same after the restart. They end their sessions after some seconds then, and not by a timeout.
    ///
    /// Default: what follows from the static key pair. With [`nn_psk0`](Self::nn_psk0), which has none, peers are told nothing, as
    /// the shared key would not do: all who have it could end each other's sessions. So `secret` must be known to nobody but this
    /// end.
    ///
    /// ```
    /// use kcp9::proto::noise::{Psk, Responder};
    ///
    /// // Both come from files.
    /// let (psk, secret) = (Psk::from_bytes(&[1; 32]), [2; 32]);
    /// let responder = Responder::nn_psk0(psk).with_reset_secret(&secret);
    /// # drop(responder);
    /// ```
    #[must_use]
    pub fn with_reset_secret(mut self, secret: &[u8; 32]) -> Self {
        self.reset_secret = Some(ResetSecret::from_bytes(secret));
        self
    }

    pub(in crate::proto) const fn has_reset_secret(&self) -> bool {
        self.reset_secret.is_some()
    }

    /// What tells `peer` that its session of `conv` is lost.
    pub(in crate::proto) fn reset_key(&self, peer: SocketAddr, conv: u32) -> Option<ResetKey> {
        self.reset_secret.as_ref().map(|secret| secret.key(peer, conv))
    }

    /// Answers a first message. `context` is what is said in the clear beside it, `answer_context` what will be said beside the answer:
    /// neither is sent, and the handshake fails where the initiator has others. `random` must be unpredictable.
    ///
    /// Nobody is known by a first message: it may have been recorded, and comes from an address that may be false. The same message that
    /// comes again should get the same [`Answer::message`] again, not another answer. Each answer takes three multiplications on the
    /// curve ([`Pattern::NnPsk0`]: two), so an end that is asked more often than it can answer should ask for a proof of
    /// the address first.
    ///
    /// # Errors
    /// Why there is no answer. Nothing is kept of the message then; [`NoiseError::refusal`] is what its sender may be told.
    pub fn answer(
        &self,
        first: &[u8],
        context: &[u8],
        answer_context: &[u8],
        random: &mut dyn Random,
    ) -> Result<Answer, NoiseError> {
        let pattern = self.credentials.pattern;
        let terms = Terms::of_first(first, pattern)?;
        let mut noise = terms.body(FIRST, first)?;
        if let (true, Some(keys)) = (pattern.knows_responder(), &self.credentials.keys) {
            let (said, rest) = noise.split_at_checked(HINT_LEN).ok_or(NoiseError::Malformed)?;
            if said != hint(keys.public(), &rest[..KEY_LEN.min(rest.len())]) {
                return Err(NoiseError::UnknownServerKey);
            }
            noise = rest;
        }
        let made_of = MadeOf {
            credentials: self.credentials.clone(),
            terms,
            ephemeral: draw(random),
            prologue: terms.prologue(context),
            first: noise.to_vec(),
            digest: context_digest(answer_context),
        };
        let wrong = if pattern.psk_position() == Some(0) { NoiseError::WrongPsk } else { NoiseError::Forged };
        let (mut state, message) = made_of.make(wrong)?;
        let next = if state.is_handshake_finished() {
            AnswerNext::Session(finish(&mut state, Role::Responder, terms.cipher, None)?)
        } else {
            AnswerNext::Last(ResponderHandshake { state: State::Waiting(state), made_of, left: MAX_REMADE })
        };
        Ok(Answer { message, next })
    }
}

/// An answer, and what comes next.
#[derive(Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The message to be sent.
    pub message: Vec<u8>,
    /// What comes next.
    pub next: AnswerNext,
}

/// What comes after an answer.
#[derive(Debug)]
pub enum AnswerNext {
    /// Packets, in the patterns of two messages. Who has the keys of a session shows it by the first packet that opens
    /// ([`SessionKeys::is_peer_heard`]).
    Session(SessionKeys),
    /// The third message, in the others.
    Last(ResponderHandshake),
}

/// A handshake of the end that has answered, and that waits for the third message.
pub struct ResponderHandshake {
    state: State,
    /// What it was made of: it can be made again.
    made_of: MadeOf,
    /// How often it may be before it is [spent](ResponderHandshake::is_spent).
    left: u8,
}

enum State {
    Waiting(Box<HandshakeState>),
    Spent,
    Over,
}

/// How often a responder makes a handshake again without being asked to. It takes as much as an answer, and who has begun the handshake,
/// or sees it, can have it done.
const MAX_REMADE: u8 = 8;

/// All that a responder's handshake depends on until it has answered.
struct MadeOf {
    credentials: Credentials,
    terms: Terms,
    /// The secret of the ephemeral key.
    ephemeral: Zeroizing<[u8; KEY_LEN]>,
    prologue: Vec<u8>,
    /// The first message, without what is around it.
    first: Vec<u8>,
    digest: [u8; DIGEST_LEN],
}

impl MadeOf {
    /// The handshake after the answer, and the answer. `wrong` is what a wrong tag means.
    fn make(&self, wrong: NoiseError) -> Result<(Box<HandshakeState>, Vec<u8>), NoiseError> {
        let MadeOf { credentials, terms, ephemeral, prologue, first, digest } = self;
        let mut state = credentials.begin(prologue, Role::Responder, None, ephemeral.clone())?;
        read(&mut state, first, wrong)?;
        let (noise, len) = write(&mut state, digest)?;
        Ok((Box::new(state), [&terms.header(ANSWER), &noise[..len]].concat()))
    }
}

impl ResponderHandshake {
    /// Whether nothing more can come of it.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Whether so many last messages were almost right that none is read before [`renew`](Self::renew). Whoever sees the true one can make
    /// such, and each takes as much as an answer: so their number in a second is the caller's to limit.
    #[must_use]
    pub const fn is_spent(&self) -> bool {
        matches!(self.state, State::Spent)
    }

    /// Has one more last message read, if the handshake [is spent](Self::is_spent).
    pub fn renew(&mut self) {
        if self.is_spent() {
            self.make_again();
        }
    }

    fn make_again(&mut self) {
        // It could be made before.
        self.state = match self.made_of.make(NoiseError::Forged) {
            Ok((state, _)) => State::Waiting(state),
            Err(_) => State::Over,
        };
    }

    /// Reads the third message. It shows who the peer is: [`SessionKeys::peer`].
    ///
    /// # Errors
    /// Why it is none. The handshake goes on, unless it [is over](Self::is_over), because the peer is not trusted; it may have to be
    /// [renewed](Self::is_spent) first.
    pub fn read_last(&mut self, last: &[u8]) -> Result<SessionKeys, NoiseError> {
        let MadeOf { credentials, terms, .. } = &self.made_of;
        let (noise, pattern, cipher) = (terms.body(LAST, last)?, terms.pattern, terms.cipher);
        let State::Waiting(state) = &mut self.state else { return Err(NoiseError::Over) };
        if let Err(error) = read(state, noise, NoiseError::Forged) {
            if remote_static(state).is_none() {
                return Err(error);
            }
            // The static key could be read, and what is behind it could not. snow goes on from there with another key than before, so the
            // handshake is made again, for the true message. An honest peer that comes that far differs in the shared key only.
            self.state = State::Spent;
            if let Some(left) = self.left.checked_sub(1) {
                self.left = left;
                self.make_again();
            }
            return Err(if pattern == Pattern::XxPsk3 { NoiseError::WrongPsk } else { error });
        }
        let peer = credentials.trusted(state);
        let keys = peer.and_then(|peer| finish(state, Role::Responder, cipher, peer));
        self.state = State::Over;
        keys
    }
}

impl fmt::Debug for ResponderHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponderHandshake").field("terms", &self.made_of.terms).finish_non_exhaustive()
    }
}

/// The secret of a new ephemeral key.
fn draw(random: &mut dyn Random) -> Zeroizing<[u8; KEY_LEN]> {
    let mut secret = Zeroizing::new([0; KEY_LEN]);
    random.fill(&mut *secret);
    secret
}

/// The static key of the peer, as far as it is known.
fn remote_static(state: &HandshakeState) -> Option<PublicKey> {
    state.get_remote_static()?.try_into().ok().map(PublicKey::from_bytes)
}

/// The next message of the framework.
fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<([u8; MAX_LEN], usize), NoiseError> {
    let mut message = [0; MAX_LEN];
    // Nothing but a bad key of the peer can be in its way.
    let len = state.write_message(payload, &mut message).map_err(|_| NoiseError::WeakKey)?;
    Ok((message, len.min(MAX_LEN)))
}

/// Reads a message of the framework: its payload. `wrong` is what a wrong tag means.
fn read(
    state: &mut HandshakeState,
    message: &[u8],
    wrong: NoiseError,
) -> Result<([u8; MAX_LEN], usize), NoiseError> {
    let mut payload = [0; MAX_LEN];
    match state.read_message(message, &mut payload) {
        Ok(len) => Ok((payload, len.min(MAX_LEN))),
        Err(Error::Decrypt) => Err(wrong),
        Err(Error::Dh) => Err(NoiseError::WeakKey),
        Err(_) => Err(NoiseError::Malformed),
    }
}

/// The keys of a session whose handshake has come to its end.
fn finish(
    state: &mut HandshakeState,
    role: Role,
    cipher: SessionCipher,
    peer: Option<PublicKey>,
) -> Result<SessionKeys, NoiseError> {
    let hash = state.get_handshake_hash().try_into().map_err(|_| NoiseError::Over)?;
    let (initiator, responder) = state.dangerously_get_raw_split();
    let (initiator, responder) = (Zeroizing::new(initiator), Zeroizing::new(responder));
    SessionKeys::new(&initiator, &responder, &hash, role, cipher, peer).ok_or(NoiseError::Cipher)
}
