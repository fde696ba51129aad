//! The flags that say how packets are encrypted.

use std::{fmt, io, str::FromStr};

use clap::{Args, ValueEnum};
use kcp9::crypto::{CipherError, CipherKind, Framing, Key, PacketCrypto};

/// The cipher, and where its key comes from. Both ends have to agree on all of it.
#[derive(Clone, Args)]
#[command(next_help_heading = "Encryption")]
pub(crate) struct Encryption {
    /// Cipher, by its name in kcptun: aes-128-gcm, aes-192-gcm, aes-256-gcm, chacha20-poly1305, xchacha20-poly1305
    /// (which also tell forged packets), aes (or aes-256), aes-128, aes-192, salsa20, blowfish, twofish, cast5, 3des,
    /// tea, xtea, sm4, xor, none (a checksum only), null (nothing at all)
    #[arg(long, value_name = "NAME")]
    pub(crate) crypt: Option<Crypt>,
    /// Raw key: the cipher takes as many bytes as it needs from the front
    #[arg(long, value_name = "BYTES", env = "KCP9_KEY", hide_env_values = true, conflicts_with = "password")]
    key: Option<String>,
    /// Password that the key is derived from
    #[arg(long, value_name = "WORDS", env = "KCP9_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// How the key is derived: argon2, or as kcptun does it
    #[arg(long, value_name = "NAME", default_value = "argon2")]
    kdf: Kdf,
    /// What tells damaged packets, where the cipher does not: kcp-go's CRC-32, or HighwayHash tags
    #[arg(long, value_name = "NAME", default_value = "kcp-go")]
    framing: FramingName,
}

/// Shows no key.
impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").field("crypt", &self.crypt).finish_non_exhaustive()
    }
}

/// A cipher or, as `null`, none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crypt(pub(crate) Option<CipherKind>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kdf {
    Argon2,
    Kcptun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FramingName {
    KcpGo,
    Highway,
}

impl Encryption {
    /// The cipher asked for, or `default`.
    pub(crate) fn crypt(&self, default: Crypt) -> Crypt {
        self.crypt.unwrap_or(default)
    }

    /// Whether a key or a password was given.
    #[allow(dead_code, reason = "not every example can do without")]
    pub(crate) const fn has_key(&self) -> bool {
        self.key.is_some() || self.password.is_some()
    }

    /// With this password, if no key was given.
    #[allow(dead_code, reason = "only for an example that talks to itself")]
    pub(crate) fn or_password(&self, password: &str) -> Self {
        let password = self.password.clone().or_else(|| self.key.is_none().then(|| password.to_owned()));
        Self { password, ..self.clone() }
    }

    /// What the configuration takes; `default` is the cipher if none was asked for.
    pub(crate) fn packet_crypto(&self, default: Crypt) -> io::Result<Option<PacketCrypto>> {
        let Crypt(Some(kind)) = self.crypt(default) else { return Ok(None) };
        let cipher = kind.build(&self.key(kind)?, self.framing())?;
        Ok(Some(PacketCrypto::with_os_nonces(cipher)?))
    }

    pub(crate) fn framing(&self) -> Framing {
        match self.framing {
            FramingName::KcpGo => Framing::KcpGo,
            FramingName::Highway => Framing::Highway,
        }
    }

    fn key(&self, kind: CipherKind) -> io::Result<Key> {
        if let Some(password) = &self.password {
            return Ok(match self.kdf {
                Kdf::Argon2 => Key::from_password(password)?,
                Kdf::Kcptun => Key::from_kcptun_password(password),
            });
        }
        match &self.key {
            Some(key) => raw_key(kind, key.as_bytes()),
            None if kind == CipherKind::None => Ok(Key::from_bytes(b"")),
            None => {
                Err(invalid(format!("{kind} needs --key or --password; --crypt null sends in the clear")))
            }
        }
    }
}

/// A key of as many bytes as `kind` takes, from the front of `bytes`.
fn raw_key(kind: CipherKind, bytes: &[u8]) -> io::Result<Key> {
    if kind == CipherKind::None {
        return Ok(Key::from_bytes(bytes));
    }
    let front = bytes.get(..kind.key_len());
    let too_short = || format!("{kind} needs a --key of {} bytes, not {}", kind.key_len(), bytes.len());
    front.map(Key::from_bytes).ok_or_else(|| invalid(too_short()))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

impl FromStr for Crypt {
    type Err = CipherError;

    fn from_str(name: &str) -> Result<Self, CipherError> {
        if name == "null" { Ok(Self(None)) } else { name.parse().map(|kind| Self(Some(kind))) }
    }
}

impl fmt::Display for Crypt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(kind) => kind.fmt(f),
            None => f.write_str("null"),
        }
    }
}
