//! Keys from passwords.

use core::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use pbkdf2::pbkdf2_hmac;
use sha1::Sha1;
use zeroize::Zeroizing;

use super::key::Key;

impl Key {
    /// A key from a password, for peers that both run this crate. It is made by Argon2id (RFC 9106, version 1.3) with 19 MiB
    /// of memory, 2 passes and 1 lane, the minimum of OWASP's Password Storage Cheat Sheet. That takes tens of milliseconds,
    /// so make the key once.
    ///
    /// The salt is the label `kcp9 password v1`: both ends must come to the same key without exchanging anything. With a
    /// common salt, guesses computed once can be tried against every deployment. An application is safer with a salt of its
    /// own ([`from_password_and_salt`](Self::from_password_and_salt)), and everyone with a password that is hard to guess.
    ///
    /// The bytes of `password` are used as they are, without Unicode normalization.
    ///
    /// ```
    /// use kcp9::crypto::Key;
    ///
    /// let key = Key::from_password("correct horse battery staple")?;
    /// # Ok::<(), kcp9::crypto::PasswordError>(())
    /// ```
    ///
    /// # Errors
    /// [`PasswordError::OutOfMemory`], [`PasswordError::TooLong`].
    pub fn from_password(password: impl AsRef<[u8]>) -> Result<Self, PasswordError> {
        Self::from_password_and_salt(password, SALT)
    }

    /// Like [`from_password`](Self::from_password), with a salt of at least 8 bytes that both ends know. The name of the
    /// application will do. Random bytes from its configuration are better.
    ///
    /// # Errors
    /// The errors of [`from_password`](Self::from_password), and [`PasswordError::SaltTooShort`].
    pub fn from_password_and_salt(
        password: impl AsRef<[u8]>,
        salt: impl AsRef<[u8]>,
    ) -> Result<Self, PasswordError> {
        let params = Params::new(MEMORY_KIB, PASSES, LANES, Some(KEY_LEN))?;
        let mut key = Zeroizing::new([0; KEY_LEN]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params).hash_password_into(
            password.as_ref(),
            salt.as_ref(),
            &mut *key,
        )?;
        Ok(Self::from_derived(&key))
    }

    /// The key that kcptun makes from its `--key`: PBKDF2-HMAC-SHA1 with the salt `kcp-go` and 4,096 iterations. Passwords
    /// are cheap to guess at that rate, so use it for peers that run kcptun only.
    ///
    /// ```
    /// use kcp9::crypto::Key;
    ///
    /// let key = Key::from_kcptun_password("it's a secrect"); // kcptun's default, as it spells it
    /// ```
    #[must_use]
    pub fn from_kcptun_password(password: impl AsRef<[u8]>) -> Self {
        let mut key = Zeroizing::new([0; KEY_LEN]);
        pbkdf2_hmac::<Sha1>(password.as_ref(), KCPTUN_SALT, KCPTUN_ITERATIONS, &mut *key);
        Self::from_derived(&key)
    }
}

/// Why no key was made from a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PasswordError {
    /// The salt has fewer than 8 bytes.
    SaltTooShort,
    /// The password or the salt has 4 GiB or more.
    TooLong,
    /// There is no memory for the 19 MiB that Argon2id works in.
    OutOfMemory,
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SaltTooShort => "salt shorter than 8 bytes",
            Self::TooLong => "password or salt too long",
            Self::OutOfMemory => "no memory for Argon2id",
        })
    }
}

impl core::error::Error for PasswordError {}

impl From<argon2::Error> for PasswordError {
    fn from(error: argon2::Error) -> Self {
        match error {
            argon2::Error::SaltTooShort => Self::SaltTooShort,
            argon2::Error::OutOfMemory => Self::OutOfMemory,
            // All other errors are about the parameters, and those are constants.
            _ => Self::TooLong,
        }
    }
}

#[cfg(feature = "std")]
impl From<PasswordError> for std::io::Error {
    fn from(error: PasswordError) -> Self {
        let kind = match error {
            PasswordError::OutOfMemory => std::io::ErrorKind::OutOfMemory,
            PasswordError::SaltTooShort | PasswordError::TooLong => std::io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// The longest key of any cipher, in bytes.
const KEY_LEN: usize = 32;

const SALT: &[u8] = b"kcp9 password v1";
const MEMORY_KIB: u32 = 19 * 1_024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

const KCPTUN_SALT: &[u8] = b"kcp-go";
const KCPTUN_ITERATIONS: u32 = 4_096;

#[cfg(test)]
mod tests {
    use alloc::{format, string::String};

    use super::*;
    use crate::crypto::kind::CipherKind;

    fn hex(key: &Key) -> String {
        bytes(key, CipherKind::Aes256).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn bytes(key: &Key, kind: CipherKind) -> &[u8] {
        key.bytes_for(kind).unwrap()
    }

    /// The keys were computed by argon2-cffi 25.1 for Python (the reference implementation in C), and are the same by
    /// golang.org/x/crypto/argon2.
    #[test]
    fn argon2id_keys_are_those_of_other_implementations() {
        let keys = [
            (
                Key::from_password("correct horse battery staple"),
                "e4365eed38526abc8fb7365e8df5e85980777c98df9215efc74e9bc2685e4012",
            ),
            (Key::from_password(""), "d80391a8df72d8b3735d168142b4363fdec5da2f52266b9249441bb168c1d32e"),
            (
                Key::from_password_and_salt("пароль", "an application's salt"),
                "1051dd5d99e860a591cb76cc769e1388853ba8139e550d90620a2bb5d6114abf",
            ),
        ];
        for (key, expected) in keys {
            assert_eq!(hex(&key.unwrap()), expected);
        }
    }

    #[test]
    fn kcptun_keys_are_those_of_kcptun() {
        let keys = kcp9_vectors::kcptun_keys();
        assert!(keys.len() >= 5);
        for known in keys {
            assert_eq!(
                (known.text("hash"), known.number("iterations"), known.text("salt")),
                ("sha1", 4_096, "kcp-go")
            );
            let password = known.text("password");
            assert_eq!(hex(&Key::from_kcptun_password(password)), known.text("key"), "{password}");
        }
    }

    #[test]
    fn a_cipher_takes_what_it_needs_of_a_password_key() {
        let key = Key::from_kcptun_password("password");
        let whole = bytes(&key, CipherKind::Aes256);
        assert_eq!(whole.len(), 32);
        assert_eq!(bytes(&key, CipherKind::Aes128), &whole[..16]);
        assert_eq!(bytes(&key, CipherKind::TripleDes), &whole[..24]);
    }

    #[test]
    fn short_salts_are_refused() {
        let refused = Key::from_password_and_salt("password", "7 bytes");
        assert_eq!(refused.err(), Some(PasswordError::SaltTooShort));
        assert!(Key::from_password_and_salt("password", "8  bytes").is_ok());
    }

    #[test]
    fn debug_shows_no_key() {
        assert_eq!(format!("{:?}", Key::from_kcptun_password("password")), "Key(..)");
    }
}
