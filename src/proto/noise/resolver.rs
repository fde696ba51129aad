//! What snow computes with: X25519 of curve25519-dalek, ChaCha20-Poly1305 and BLAKE2s of RustCrypto, all without std.
//!
//! snow's own resolver would do, too. This one is here for four reasons: randomness comes from the application, as everywhere in the
//! core; the ciphers are the versions that this crate has anyway, not a second copy; keys are zeroed when they are dropped; and a
//! public key of small order is refused (RFC 7748, section 6.1), with which the peer would decide what the shared secret is.

use alloc::boxed::Box;

use aead::{AeadInOut, KeyInit};
use blake2::{Blake2s256, Digest};
use chacha20poly1305::ChaCha20Poly1305;
use curve25519_dalek::montgomery::MontgomeryPoint;
use snow::{
    Error,
    params::{CipherChoice, DHChoice, HashChoice},
    resolvers::CryptoResolver,
    types::{Cipher, Dh, Hash, Random},
};
use zeroize::Zeroizing;

use super::keys::{KEY_LEN, KeyPair};

const TAG_LEN: usize = 16;

/// Resolves the one curve, cipher and hash of our patterns.
pub(super) struct Resolver {
    /// The secret of the ephemeral key, which was drawn for this handshake.
    pub(super) ephemeral: Zeroizing<[u8; KEY_LEN]>,
    /// The static key pair, so that its public key is not computed for each handshake.
    pub(super) keys: Option<KeyPair>,
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.ephemeral.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let dh = X25519 { keys: self.keys.clone(), ..X25519::default() };
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(dh) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::Blake2s).then(|| Box::<Blake2s>::default() as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::ChaChaPoly).then(|| Box::<ChaChaPoly>::default() as Box<dyn Cipher>)
    }
}

/// Randomness for one key: that is all that a handshake draws. It fails rather than give the same twice.
struct Once(Option<Zeroizing<[u8; KEY_LEN]>>);

impl Random for Once {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let drawn = self.0.as_ref().filter(|drawn| drawn.len() == dest.len()).ok_or(Error::Rng)?;
        dest.copy_from_slice(&**drawn);
        // In its place: what is moved out is not zeroed there.
        self.0 = None;
        Ok(())
    }
}

#[derive(Default)]
struct X25519 {
    secret: Zeroizing<[u8; KEY_LEN]>,
    public: [u8; KEY_LEN],
    /// A pair that is known.
    keys: Option<KeyPair>,
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_LEN
    }

    fn priv_len(&self) -> usize {
        KEY_LEN
    }

    fn set(&mut self, secret: &[u8]) {
        // Every caller has 32 bytes.
        for (to, from) in self.secret.iter_mut().zip(secret) {
            *to = *from;
        }
        self.public = match &self.keys {
            Some(keys) if *keys.secret() == *self.secret => *keys.public().as_bytes(),
            _ => MontgomeryPoint::mul_base_clamped(*self.secret).to_bytes(),
        };
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        let mut secret = Zeroizing::new([0; KEY_LEN]);
        random.try_fill_bytes(&mut *secret)?;
        self.set(&*secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.secret
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = public.first_chunk().ok_or(Error::Dh)?;
        let shared = Zeroizing::new(MontgomeryPoint(*public).mul_clamped(*self.secret).to_bytes());
        // In constant time: whether it is zero is the only thing that is learned.
        if shared.iter().fold(0, |all, byte| all | byte) == 0 {
            return Err(Error::Dh);
        }
        out.get_mut(..KEY_LEN).ok_or(Error::Dh)?.copy_from_slice(&*shared);
        Ok(())
    }
}

#[derive(Default)]
struct ChaChaPoly {
    key: Zeroizing<[u8; KEY_LEN]>,
}

impl ChaChaPoly {
    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new((&*self.key).into())
    }
}

/// Four bytes of 0 and the counter (section 12.3 of the framework).
fn nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; KEY_LEN]) {
        *self.key = *key;
    }

    /// snow has made sure that `out` has room for the text and a tag.
    fn encrypt(&self, counter: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let Some((text, rest)) = out.split_at_mut_checked(plaintext.len()) else { return 0 };
        text.copy_from_slice(plaintext);
        let sealed = self.cipher().encrypt_inout_detached((&nonce(counter)).into(), authtext, text.into());
        let (Ok(tag), Some(to)) = (sealed, rest.get_mut(..TAG_LEN)) else { return 0 };
        to.copy_from_slice(&tag);
        plaintext.len() + TAG_LEN
    }

    fn decrypt(
        &self,
        counter: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let (text, tag) = ciphertext.split_last_chunk::<TAG_LEN>().ok_or(Error::Decrypt)?;
        let out = out.get_mut(..text.len()).ok_or(Error::Decrypt)?;
        out.copy_from_slice(text);
        self.cipher()
            .decrypt_inout_detached((&nonce(counter)).into(), authtext, out.into(), tag.into())
            .map_err(|_| Error::Decrypt)?;
        Ok(text.len())
    }
}

#[derive(Default)]
struct Blake2s(Blake2s256);

impl Hash for Blake2s {
    fn name(&self) -> &'static str {
        "BLAKE2s"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Blake2s256::default();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        let hash = core::mem::take(&mut self.0).finalize();
        for (to, from) in out.iter_mut().zip(hash) {
            *to = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn randomness_is_given_once() {
        let resolver = Resolver { ephemeral: Zeroizing::new([7; 32]), keys: None };
        let mut random = resolver.resolve_rng().unwrap();
        let mut drawn = [0; 32];
        random.try_fill_bytes(&mut drawn).unwrap();
        assert_eq!(drawn, [7; 32]);
        assert_eq!(random.try_fill_bytes(&mut drawn), Err(Error::Rng));
    }

    /// The points of small order of RFC 7748's curve, in both of their forms where there are two.
    #[test]
    fn keys_of_small_order_are_refused() {
        let mut minus_one = [0xff; 32];
        (minus_one[0], minus_one[31]) = (0xec, 0x7f);
        let mut one = [0; 32];
        one[0] = 1;
        let mut zero_again = minus_one;
        zero_again[0] = 0xed;
        let mut keys = X25519::default();
        keys.set(&[5; 32]);
        let mut out = [0; 32];
        for public in [[0; 32], one, minus_one, zero_again] {
            assert_eq!(keys.dh(&public, &mut out), Err(Error::Dh));
        }
        let mut base = [0; 32];
        base[0] = 9;
        keys.dh(&base, &mut out).unwrap();
        assert_eq!(out, keys.pubkey());
    }
}
