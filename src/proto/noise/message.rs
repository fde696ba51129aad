//! What is around the messages of the framework: a header, and a hint by which a responder knows that it is meant.
//!
//! ```text
//! first    version u8 | 1 | pattern u8 | cipher u8 | hint 8 (NK and NKpsk0) | e 32 | tag 16 (all but XX)
//! answer   version u8 | 2 | pattern u8 | cipher u8 | e 32 | s 32 + tag 16 (XX and XXpsk3) | digest 16 | route secret 16 (all but NNpsk0) | tag 16
//! last     version u8 | 3 | pattern u8 | cipher u8 | s 32 + tag 16 | tag 16                (XX and XXpsk3 only)
//! refusal  version u8 | 255 | reason u8 | 0
//! ```

use super::{
    VERSION,
    error::NoiseError,
    keys::PublicKey,
    pattern::{Pattern, SessionCipher},
    route::RouteSecret,
    schedule::{derive, digest},
};

pub(super) const HEADER_LEN: usize = 4;
pub(super) const HINT_LEN: usize = 8;
pub(super) const DIGEST_LEN: usize = 16;
const PUBLIC_LEN: usize = 32;
const TAG_LEN: usize = 16;

pub(super) const FIRST: u8 = 1;
pub(super) const ANSWER: u8 = 2;
pub(super) const LAST: u8 = 3;
pub(super) const REFUSAL: u8 = 255;

/// The most bytes of the application's that a first message carries: as many as fit a HELLO of 1,200 bytes beside all else.
pub const MAX_EARLY_DATA: usize = 1_000;

/// No message is longer.
pub(super) const MAX_LEN: usize = HEADER_LEN + HINT_LEN + PUBLIC_LEN + MAX_EARLY_DATA + TAG_LEN;

/// What the first message says in the clear, and all others repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) pattern: Pattern,
    pub(super) cipher: SessionCipher,
}

impl Terms {
    pub(super) fn header(self, number: u8) -> [u8; HEADER_LEN] {
        [VERSION, number, self.pattern.number(), self.cipher.number()]
    }

    /// Bytes of a message, which its terms decide, without early data.
    pub(super) const fn len(self, number: u8) -> usize {
        let hint_len = if self.pattern.knows_responder() { HINT_LEN } else { 0 };
        let static_len = if self.pattern.sends_keys() { PUBLIC_LEN + TAG_LEN } else { 0 };
        // Nothing is shared before the first message of XX, not even the ephemeral key is mixed in.
        let first_tag_len = if matches!(self.pattern, Pattern::Xx) { 0 } else { TAG_LEN };
        let route_secret_len = if self.pattern.responder_has_key() { RouteSecret::LEN } else { 0 };
        HEADER_LEN
            + match number {
                FIRST => hint_len + PUBLIC_LEN + first_tag_len,
                ANSWER => PUBLIC_LEN + static_len + DIGEST_LEN + route_secret_len + TAG_LEN,
                _ => static_len + TAG_LEN,
            }
    }

    /// The part of a message behind the header, if the message is the one with this number and has these terms.
    pub(super) fn body(self, number: u8, message: &[u8]) -> Result<&[u8], NoiseError> {
        let body = message.strip_prefix(&self.header(number)).ok_or(NoiseError::Malformed)?;
        let takes_more = number == FIRST && self.pattern.takes_early_data();
        let most = self.len(number) + if takes_more { MAX_EARLY_DATA } else { 0 };
        let fits = (self.len(number)..=most).contains(&message.len());
        if fits { Ok(body) } else { Err(NoiseError::Malformed) }
    }

    /// The terms of a first message, for an end that has `own` pattern.
    pub(super) fn of_first(message: &[u8], own: Pattern) -> Result<Self, NoiseError> {
        let [version, number, pattern, cipher] = *message.first_chunk().ok_or(NoiseError::Malformed)?;
        // The first two bytes mean the same in all versions.
        if number != FIRST {
            return Err(NoiseError::Malformed);
        }
        if version != VERSION {
            return Err(NoiseError::Version { peer: version });
        }
        let peer = Pattern::from_number(pattern);
        if peer != Some(own) {
            return Err(NoiseError::Pattern { own, peer });
        }
        let cipher = SessionCipher::from_number(cipher).ok_or(NoiseError::Cipher)?;
        Ok(Self { pattern: own, cipher })
    }

    /// What both ends must agree on before a handshake, and what they say beside its first message.
    pub(super) fn prologue(self, context: &[u8]) -> alloc::vec::Vec<u8> {
        [LABEL, &self.header(FIRST), context].concat()
    }
}

/// Nothing else that speaks the framework has this prologue.
const LABEL: &[u8] = b"kcp9 noise";

/// Tells the responder with this key, and whoever knows its key, that it is meant. It changes with `ephemeral`, so that it is no mark of
/// the responder.
///
/// It costs two hashes. So who is not meant computes nothing else, nor does who is sent random bytes: an attacker must know the public key
/// of a responder to have it compute with it.
pub(super) fn hint(responder: &PublicKey, ephemeral: &[u8]) -> [u8; HINT_LEN] {
    let key = digest(b"kcp9 hint", responder.as_bytes());
    let mut hint = [0; HINT_LEN];
    hint.copy_from_slice(&derive(&key, b"kcp9 hint", ephemeral)[..HINT_LEN]);
    hint
}

/// What the answer says of the text beside it, and of the early data.
pub(super) fn context_digest(context: &[u8], early_data_taken: bool) -> [u8; DIGEST_LEN] {
    let label: &[u8] = if early_data_taken { b"kcp9 answer to early data" } else { b"kcp9 answer" };
    let mut short = [0; DIGEST_LEN];
    short.copy_from_slice(&digest(label, context)[..DIGEST_LEN]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_long_as_the_page_says() {
        let lens = |pattern| {
            let terms = Terms { pattern, cipher: SessionCipher::ChaCha20Poly1305 };
            [FIRST, ANSWER, LAST].map(|number| terms.len(number))
        };
        assert_eq!(lens(Pattern::NnPsk0)[..2], [52, 68]);
        assert_eq!(lens(Pattern::NkPsk0)[..2], [60, 84]);
        assert_eq!(lens(Pattern::Nk)[..2], [60, 84]);
        assert_eq!(lens(Pattern::Xx), [36, 132, 68]);
        assert_eq!(lens(Pattern::XxPsk3), [52, 132, 68]);
        assert_eq!(MAX_LEN, 60 + MAX_EARLY_DATA);
    }

    #[test]
    fn only_first_messages_of_patterns_that_encrypt_them_may_be_longer() {
        for pattern in Pattern::all() {
            let terms = Terms { pattern, cipher: SessionCipher::ChaCha20Poly1305 };
            let takes = |number, more: usize| {
                let mut message = terms.header(number).to_vec();
                message.resize(terms.len(number) + more, 0);
                terms.body(number, &message).is_ok()
            };
            let takes_early_data = !pattern.sends_keys();
            assert_eq!(pattern.takes_early_data(), takes_early_data);
            assert!(takes(FIRST, 0) && !takes(FIRST, MAX_EARLY_DATA + 1), "{pattern:?}");
            assert_eq!([takes(FIRST, 1), takes(FIRST, MAX_EARLY_DATA)], [takes_early_data; 2], "{pattern:?}");
            assert!(!takes(ANSWER, 1) && !takes(LAST, 1), "{pattern:?}");
        }
    }

    #[test]
    fn a_hint_is_of_one_key_and_one_message() {
        let (one, other) = (PublicKey::from_bytes([1; 32]), PublicKey::from_bytes([2; 32]));
        assert_ne!(hint(&one, &[3; 32]), hint(&other, &[3; 32]));
        assert_ne!(hint(&one, &[3; 32]), hint(&one, &[4; 32]));
        assert_eq!(hint(&one, &[3; 32]), hint(&one, &[3; 32]));
    }
}
