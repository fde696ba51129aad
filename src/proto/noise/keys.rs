//! Key pairs, their text, shared keys, and whose keys are trusted.

use alloc::{string::String, sync::Arc, vec::Vec};
use core::{fmt, str::FromStr};

use curve25519_dalek::montgomery::MontgomeryPoint;
use zeroize::Zeroizing;

use super::schedule::derive;
use crate::{crypto::Key, proto::Random};

/// Bytes of every key here.
pub(super) const KEY_LEN: usize = 32;

/// What stands before a public key's digits.
const PUBLIC_PREFIX: &str = "kcp9-public-";
/// What stands before a secret key's digits.
const SECRET_PREFIX: &str = "kcp9-secret-";

/// The static key pair of an end: who it is. Its secret key is zeroed when it is dropped, and never printed.
///
/// ```
/// use kcp9::proto::{Random, noise::KeyPair};
///
/// # struct Entropy;
/// # impl Random for Entropy {
/// #     fn fill(&mut self, bytes: &mut [u8]) {
/// #         bytes.fill(4);
/// #     }
/// # }
/// let keys = KeyPair::generate(&mut Entropy); // An application's source of random bytes.
/// let file = keys.secret_text(); // To be kept where only this end can read it.
/// let again: KeyPair = file.parse()?;
/// assert_eq!(again.public(), keys.public());
/// assert!(keys.public().to_string().starts_with("kcp9-public-"));
/// # Ok::<(), kcp9::proto::noise::KeyTextError>(())
/// ```
#[derive(Clone)]
pub struct KeyPair {
    secret: Zeroizing<[u8; KEY_LEN]>,
    public: PublicKey,
}

impl KeyPair {
    /// A new key pair. `random` must be unpredictable: whoever can foretell it is this end.
    #[must_use]
    pub fn generate(random: &mut dyn Random) -> Self {
        let mut secret = Zeroizing::new([0; KEY_LEN]);
        random.fill(&mut *secret);
        Self::from_secret(secret)
    }

    /// The key pair with this secret key of X25519 (RFC 7748). Any 32 bytes are one.
    #[must_use]
    pub fn from_secret_bytes(secret: &[u8; KEY_LEN]) -> Self {
        Self::from_secret(Zeroizing::new(*secret))
    }

    /// The pair as somebody has it who shows other bytes for the same public key.
    #[cfg(test)]
    pub(super) fn showing(self, public: PublicKey) -> Self {
        Self { public, ..self }
    }

    fn from_secret(secret: Zeroizing<[u8; KEY_LEN]>) -> Self {
        let public = PublicKey(MontgomeryPoint::mul_base_clamped(*secret).to_bytes());
        Self { secret, public }
    }

    /// The public key, which peers may know.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The secret key as text, `kcp9-secret-` and 64 digits, from which [`FromStr`] makes the pair again. It is zeroed when it is
    /// dropped.
    #[must_use]
    pub fn secret_text(&self) -> Zeroizing<String> {
        Zeroizing::new(text(SECRET_PREFIX, &self.secret))
    }

    pub(super) fn secret(&self) -> &[u8; KEY_LEN] {
        &self.secret
    }
}

impl FromStr for KeyPair {
    type Err = KeyTextError;

    /// Reads what [`secret_text`](Self::secret_text) has written. White space around it is left out.
    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let text = text.trim();
        if text.starts_with(PUBLIC_PREFIX) {
            return Err(KeyTextError::IsPublic);
        }
        Ok(Self::from_secret(parse(SECRET_PREFIX, text)?))
    }
}

impl fmt::Debug for KeyPair {
    /// The public key only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

/// The public key of an end's [`KeyPair`].
///
/// Its text is `kcp9-public-` and 64 hexadecimal digits ([`Display`](fmt::Display), [`FromStr`]): a line of a file of known keys.
///
/// ```
/// use kcp9::proto::noise::{KeyTextError, PublicKey};
///
/// let key = PublicKey::from_bytes([7; 32]);
/// assert_eq!(key.to_string().parse(), Ok(key));
/// assert_eq!("kcp9-secret-07".parse::<PublicKey>(), Err(KeyTextError::IsSecret));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; KEY_LEN]);

impl PublicKey {
    /// The key of these bytes (RFC 7748).
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// Whether no other bytes are the same point of the curve: as a number they are below 2^255 - 19 (RFC 7748, section 5).
    pub(super) fn is_canonical(&self) -> bool {
        let [lowest, middle @ .., highest] = &self.0;
        *highest < 0x7f || *highest == 0x7f && (*lowest < 0xed || middle.iter().any(|byte| *byte != 0xff))
    }
}

impl FromStr for PublicKey {
    type Err = KeyTextError;

    /// White space around the text is left out.
    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let text = text.trim();
        if text.starts_with(SECRET_PREFIX) {
            return Err(KeyTextError::IsSecret);
        }
        parse(PUBLIC_PREFIX, text).map(|bytes| Self(*bytes))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(PUBLIC_PREFIX, &self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyTextError {
    /// It begins neither with `kcp9-public-` nor with `kcp9-secret-`.
    Prefix,
    /// It is a secret key, where a public one belongs. It should be kept secret.
    IsSecret,
    /// It is a public key, where a secret one belongs.
    IsPublic,
    /// There are not 64 digits behind the prefix.
    Length,
    /// There is something else than a hexadecimal digit.
    Digit,
}

impl fmt::Display for KeyTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prefix => "not the text of a key",
            Self::IsSecret => "a secret key where a public one belongs",
            Self::IsPublic => "a public key where a secret one belongs",
            Self::Length => "a key has 64 digits",
            Self::Digit => "a key has hexadecimal digits only",
        })
    }
}

impl core::error::Error for KeyTextError {}

/// A key that both ends know before the handshake. It is zeroed when it is dropped, and never printed.
#[derive(Clone)]
pub struct Psk(Zeroizing<[u8; KEY_LEN]>);

impl Psk {
    /// The key of these bytes, as they are. They must be unpredictable: a password is not, and has [`from_key`](Self::from_key).
    #[must_use]
    pub fn from_bytes(bytes: &[u8; KEY_LEN]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// A key made of a [`Key`] of 32 bytes: of `Key::from_password` (Argon2id) for a password. `None` where it has another length.
    ///
    /// It is another key than `key`, so `key` may encrypt packets, too.
    ///
    /// ```
    /// # #[cfg(feature = "password")] {
    /// use kcp9::{crypto::Key, proto::noise::Psk};
    ///
    /// let key = Key::from_password("correct horse battery staple").expect("memory");
    /// let psk = Psk::from_key(&key).expect("such a key has 32 bytes");
    /// assert_eq!(format!("{psk:?}"), "Psk(..)");
    /// # }
    /// ```
    #[must_use]
    pub fn from_key(key: &Key) -> Option<Self> {
        Some(Self(derive(key.as_32_bytes()?, b"kcp9 psk", &[])))
    }

    pub(super) fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(..)")
    }
}

/// Which static keys of peers are trusted, in the patterns in which the ends show their keys.
///
/// ```
/// use kcp9::proto::noise::{PublicKey, Trust};
///
/// let server = PublicKey::from_bytes([7; 32]);
/// let pinned = Trust::pinned([server]);
/// let by_rule = Trust::by(|key| key.as_bytes()[0] == 7); // A look into a table of users.
/// # let _ = (pinned, by_rule);
/// ```
#[derive(Clone)]
pub struct Trust(Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>);

impl Trust {
    /// These keys and no others.
    #[must_use]
    pub fn pinned(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        let keys: Vec<PublicKey> = keys.into_iter().collect();
        Self::by(move |key| keys.contains(key))
    }

    /// The keys for which `is_trusted` returns `true`. It is called in the midst of a handshake, by whoever reads the message, with keys of
    /// strangers, too. In the Tokio layer that is the task which drives all sessions of a socket: it must return at once, and must not
    /// panic.
    #[must_use]
    pub fn by(is_trusted: impl Fn(&PublicKey) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_trusted))
    }

    /// Every key. A server that does so must look at [`peer`](super::SessionKeys::peer) before it gives anything away; a client that
    /// does so talks to whoever answers, unless it does the same.
    #[must_use]
    pub fn any() -> Self {
        Self::by(|_| true)
    }

    pub(super) fn trusts(&self, key: &PublicKey) -> bool {
        (self.0)(key)
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust(..)")
    }
}

/// The text of a key.
fn text(prefix: &str, bytes: &[u8; KEY_LEN]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // With all its room at once: a string that grows leaves copies of its beginning behind.
    let mut text = String::with_capacity(prefix.len() + 2 * KEY_LEN);
    text.push_str(prefix);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The key behind `prefix`.
fn parse(prefix: &str, text: &str) -> Result<Zeroizing<[u8; KEY_LEN]>, KeyTextError> {
    let digits = text.strip_prefix(prefix).ok_or(KeyTextError::Prefix)?.as_bytes();
    if digits.len() != 2 * KEY_LEN {
        return Err(KeyTextError::Length);
    }
    let mut bytes = Zeroizing::new([0; KEY_LEN]);
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let digit = char::from(*digit).to_digit(16).ok_or(KeyTextError::Digit)?;
            *byte = *byte << 4 | digit as u8;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString};

    use super::*;

    #[test]
    fn the_text_of_keys_is_read_again_and_nothing_else() {
        let keys = KeyPair::from_secret_bytes(&[0xa9; 32]);
        let secret = keys.secret_text();
        assert_eq!(secret.as_str(), format!("kcp9-secret-{}", "a9".repeat(32)));
        assert_eq!(format!(" {}\n", *secret).parse::<KeyPair>().unwrap().secret(), &[0xa9; 32]);
        let public = keys.public().to_string();
        assert_eq!(format!("{public}\r\n").parse(), Ok(*keys.public()));
        assert_eq!(public.to_uppercase().parse::<PublicKey>(), Err(KeyTextError::Prefix));
        assert_eq!(public[..public.len() - 1].parse::<PublicKey>(), Err(KeyTextError::Length));
        assert_eq!(format!("{public}0").parse::<PublicKey>(), Err(KeyTextError::Length));
        for other in ["g", "+", "-"] {
            let text = format!("{}{other}", &public[..public.len() - 1]);
            assert_eq!(text.parse::<PublicKey>(), Err(KeyTextError::Digit), "{text}");
        }
        assert_eq!(secret.parse::<PublicKey>(), Err(KeyTextError::IsSecret));
        assert_eq!(public.parse::<KeyPair>().err(), Some(KeyTextError::IsPublic));
    }

    #[test]
    fn nothing_secret_is_printed() {
        let keys = KeyPair::from_secret_bytes(&[0xa9; 32]);
        assert_eq!(format!("{keys:?}"), format!("KeyPair {{ public: {}, .. }}", keys.public()));
        assert_eq!(format!("{:?}", Psk::from_bytes(&[1; 32])), "Psk(..)");
    }

    #[test]
    fn a_psk_of_a_key_is_another_key() {
        let psk = Psk::from_key(&Key::from_bytes(&[3; 32])).unwrap();
        assert_ne!(psk.as_bytes(), &[3; 32]);
        assert_ne!(psk.as_bytes(), Psk::from_key(&Key::from_bytes(&[4; 32])).unwrap().as_bytes());
        assert!(Psk::from_key(&Key::from_bytes(&[3; 16])).is_none());
        assert!(Psk::from_key(&Key::from_bytes(&[3; 33])).is_none());
    }

    #[test]
    fn pinned_keys_are_trusted_and_no_others() {
        let (one, other) = (PublicKey::from_bytes([1; 32]), PublicKey::from_bytes([2; 32]));
        let pinned = Trust::pinned([one]);
        assert!(pinned.trusts(&one) && !pinned.trusts(&other));
        assert!(!Trust::pinned([]).trusts(&one) && Trust::any().trusts(&other));
    }
}
