//! The handshake: who it is with, and its two or three messages.

mod initiator;
mod responder;

use alloc::boxed::Box;

use snow::{Builder, Error, HandshakeState};
use zeroize::Zeroizing;

pub use self::{
    initiator::{Established, Initiator, InitiatorHandshake},
    responder::{Answer, AnswerNext, FirstMessage, Responder, ResponderHandshake},
};
use super::{
    error::NoiseError,
    keys::{KEY_LEN, KeyPair, Psk, PublicKey, Trust},
    message::MAX_LEN,
    pattern::{Pattern, SessionCipher},
    resolver::Resolver,
    route::{RouteKey, RouteSecret},
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
    /// The key of the routes of sessions with the responder that has said `secret`.
    fn route_key(&self, secret: Option<&RouteSecret>) -> RouteKey {
        RouteKey::new(self.psk.as_ref(), secret)
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
) -> Result<(Zeroizing<[u8; MAX_LEN]>, usize), NoiseError> {
    let mut payload = Zeroizing::new([0; MAX_LEN]);
    match state.read_message(message, &mut *payload) {
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
    route_key: RouteKey,
) -> Result<SessionKeys, NoiseError> {
    let hash = state.get_handshake_hash().try_into().map_err(|_| NoiseError::Over)?;
    let (initiator, responder) = state.dangerously_get_raw_split();
    let (initiator, responder) = (Zeroizing::new(initiator), Zeroizing::new(responder));
    SessionKeys::new(&initiator, &responder, &hash, role, cipher, peer, route_key).ok_or(NoiseError::Cipher)
}
