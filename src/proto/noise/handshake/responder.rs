//! The end that answers handshakes.

use alloc::{boxed::Box, vec::Vec};
use core::{fmt, net::SocketAddr};

use snow::HandshakeState;
use zeroize::Zeroizing;

use super::{Credentials, Role, draw, finish, read, remote_static, write};
use crate::proto::{
    Random,
    noise::{
        error::NoiseError,
        keys::{KEY_LEN, KeyPair, Psk, Trust},
        message::{ANSWER, DIGEST_LEN, FIRST, HINT_LEN, LAST, Terms, context_digest, hint},
        pattern::Pattern,
        reset::{ResetKey, ResetSecret},
        route::{RouteKey, RouteSecret},
        session::SessionKeys,
    },
};

/// The end that answers handshakes, with its keys. It serves any number of them.
#[derive(Debug, Clone)]
pub struct Responder {
    credentials: Credentials,
    route_secret: Option<RouteSecret>,
    route_key: RouteKey,
    reset_secret: Option<ResetSecret>,
    takes_early_data: bool,
}

impl Responder {
    /// [`Pattern::NnPsk0`]: both ends have `psk`, and nothing else.
    #[must_use]
    pub fn nn_psk0(psk: Psk) -> Self {
        Self::new(Pattern::NnPsk0, None, Some(psk), Trust::any())
    }

    /// [`Pattern::Nk`]: peers know the public key of `keys`.
    #[must_use]
    pub fn nk(keys: KeyPair) -> Self {
        Self::new(Pattern::Nk, Some(keys), None, Trust::any())
    }

    /// [`Pattern::NkPsk0`]: peers know the public key of `keys`, and have `psk`.
    #[must_use]
    pub fn nk_psk0(keys: KeyPair, psk: Psk) -> Self {
        Self::new(Pattern::NkPsk0, Some(keys), Some(psk), Trust::any())
    }

    /// [`Pattern::Xx`]: this end shows `keys`, and the peer a key that `trust` trusts.
    #[must_use]
    pub fn xx(keys: KeyPair, trust: Trust) -> Self {
        Self::new(Pattern::Xx, Some(keys), None, trust)
    }

    /// [`Pattern::XxPsk3`]: as [`xx`](Self::xx), and both ends have `psk`.
    #[must_use]
    pub fn xx_psk3(keys: KeyPair, trust: Trust, psk: Psk) -> Self {
        Self::new(Pattern::XxPsk3, Some(keys), Some(psk), trust)
    }

    fn new(pattern: Pattern, keys: Option<KeyPair>, psk: Option<Psk>, trust: Trust) -> Self {
        let route_secret = keys.as_ref().map(RouteSecret::of);
        let reset_secret = keys.as_ref().map(ResetSecret::of);
        let credentials = Credentials { pattern, keys, psk, trust };
        let route_key = credentials.route_key(route_secret.as_ref());
        Self { credentials, route_secret, route_key, reset_secret, takes_early_data: false }
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

    /// Has the sessions of this end take the early data of their peers: what `KcpStream::connect_with_early_data` sends with its first
    /// message. Such a stream is there before the round trip that shows who its peer is, and what it writes meanwhile goes out at once, as
    /// far as an address that is not validated gets it.
    ///
    /// **What is read first may be a recording that somebody sends again**: `KcpStream::may_be_replayed` says so until the peer has
    /// shown that it is there. This end takes the data of one message once, as long as it has not taken those of 16,384 others since, and
    /// was not started again. So a server should do nothing with it that must not be done twice. Nor does early data have forward
    /// secrecy: who learns the shared key, or the secret key of this end, reads it in a recording.
    ///
    /// Data that is not taken comes as any other, a round trip later: so it is under load, where cookies are asked for. The default takes
    /// none. Patterns whose first message is in the clear have none ([`Pattern::takes_early_data`]).
    #[must_use]
    pub const fn with_early_data(mut self) -> Self {
        self.takes_early_data = true;
        self
    }

    /// The key under which the routes of packets are found, of all sessions that this end accepts.
    #[must_use]
    pub const fn route_key(&self) -> &RouteKey {
        &self.route_key
    }

    pub(in crate::proto) const fn takes_early_data(&self) -> bool {
        self.takes_early_data && self.credentials.pattern.takes_early_data()
    }

    pub(in crate::proto) const fn has_reset_secret(&self) -> bool {
        self.reset_secret.is_some()
    }

    /// What tells `peer` that its session of `conv` is lost.
    pub(in crate::proto) fn reset_key(&self, peer: SocketAddr, conv: u32) -> Option<ResetKey> {
        self.reset_secret.as_ref().map(|secret| secret.key(peer, conv))
    }

    /// Answers a first message. `context` is what is said in the clear beside it, `answer_context` what will be said beside the answer:
    /// neither is sent, and the handshake fails where the initiator has others. `random` must be unpredictable. No early data is taken.
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
        self.read_first(first, context, random)?.answer(answer_context)
    }

    /// Reads a first message, of which the caller then says whether its early data is taken. Otherwise as [`answer`](Self::answer).
    ///
    /// **Early data may come again.** Whoever has a recording of a first message can send it any number of times, from any address, and
    /// each time it is read here. A caller that takes early data remembers the messages of which it has, and takes that of none twice; it
    /// should do so only with what does no harm if it is done twice, since it cannot remember all for ever, nor across a restart.
    ///
    /// # Errors
    /// Those of [`answer`](Self::answer).
    pub fn read_first(
        &self,
        first: &[u8],
        context: &[u8],
        random: &mut dyn Random,
    ) -> Result<FirstMessage, NoiseError> {
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
            responder: self.clone(),
            terms,
            ephemeral: draw(random),
            prologue: terms.prologue(context),
            first: noise.to_vec(),
            digest: [0; DIGEST_LEN],
        };
        let wrong = if pattern.psk_position() == Some(0) { NoiseError::WrongPsk } else { NoiseError::Forged };
        let (state, early) = made_of.read(wrong)?;
        Ok(FirstMessage { made_of, state, early })
    }
}

/// A first message that was read, and that waits to be answered.
pub struct FirstMessage {
    made_of: MadeOf,
    state: Box<HandshakeState>,
    early: Box<[u8]>,
}

impl FirstMessage {
    /// The data of the initiator's application. Empty if there is none.
    #[must_use]
    pub fn early_data(&self) -> &[u8] {
        &self.early
    }

    /// Answers the message. The initiator learns that its early data was not taken, if it has sent any.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn answer(self, answer_context: &[u8]) -> Result<Answer, NoiseError> {
        self.finish(context_digest(answer_context, false))
    }

    /// Answers the message, and has the initiator learn that its early data was taken. With it comes the early data.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn answer_early_data(mut self, answer_context: &[u8]) -> Result<(Answer, Box<[u8]>), NoiseError> {
        let early = core::mem::take(&mut self.early);
        let taken = !early.is_empty();
        Ok((self.finish(context_digest(answer_context, taken))?, early))
    }

    fn finish(self, digest: [u8; DIGEST_LEN]) -> Result<Answer, NoiseError> {
        let Self { mut made_of, mut state, .. } = self;
        made_of.digest = digest;
        let (message, terms) = (made_of.write(&mut state)?, made_of.terms);
        let next = if state.is_handshake_finished() {
            let route_key = made_of.responder.route_key.clone();
            AnswerNext::Session(finish(&mut state, Role::Responder, terms.cipher, None, route_key)?)
        } else {
            AnswerNext::Last(ResponderHandshake { state: State::Waiting(state), made_of, left: MAX_REMADE })
        };
        Ok(Answer { message, next })
    }
}

impl fmt::Debug for FirstMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstMessage").field("early_data", &self.early.len()).finish_non_exhaustive()
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
    responder: Responder,
    terms: Terms,
    /// The secret of the ephemeral key.
    ephemeral: Zeroizing<[u8; KEY_LEN]>,
    prologue: Vec<u8>,
    /// The first message, without what is around it.
    first: Vec<u8>,
    digest: [u8; DIGEST_LEN],
}

impl MadeOf {
    /// The handshake after the first message, and its early data. `wrong` is what a wrong tag means.
    fn read(&self, wrong: NoiseError) -> Result<(Box<HandshakeState>, Box<[u8]>), NoiseError> {
        let ephemeral = self.ephemeral.clone();
        let mut state = self.responder.credentials.begin(&self.prologue, Role::Responder, None, ephemeral)?;
        let (early, len) = read(&mut state, &self.first, wrong)?;
        Ok((Box::new(state), early[..len].into()))
    }

    /// The answer.
    fn write(&self, state: &mut HandshakeState) -> Result<Vec<u8>, NoiseError> {
        let route_secret = self.responder.route_secret.as_ref().map_or(&[][..], |secret| secret.as_bytes());
        let payload = Zeroizing::new([&self.digest, route_secret].concat());
        let (noise, len) = write(state, &payload)?;
        Ok([&self.terms.header(ANSWER), &noise[..len]].concat())
    }

    /// The handshake after the answer.
    fn make_again(&self) -> Result<Box<HandshakeState>, NoiseError> {
        let (mut state, _) = self.read(NoiseError::Forged)?;
        self.write(&mut state)?;
        Ok(state)
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
        self.state = self.made_of.make_again().map_or(State::Over, State::Waiting);
    }

    /// Reads the third message. It shows who the peer is: [`SessionKeys::peer`].
    ///
    /// # Errors
    /// Why it is none. The handshake goes on, unless it [is over](Self::is_over), because the peer is not trusted; it may have to be
    /// [renewed](Self::is_spent) first.
    pub fn read_last(&mut self, last: &[u8]) -> Result<SessionKeys, NoiseError> {
        let MadeOf { responder: Responder { credentials, route_key, .. }, terms, .. } = &self.made_of;
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
        let keys = peer.and_then(|peer| finish(state, Role::Responder, cipher, peer, route_key.clone()));
        self.state = State::Over;
        keys
    }
}

impl fmt::Debug for ResponderHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponderHandshake").field("terms", &self.made_of.terms).finish_non_exhaustive()
    }
}
