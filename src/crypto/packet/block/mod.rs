//! Block ciphers of this crate's own: TEA and XTEA, for which there is no crate, and Twofish, triple DES and SM4, whose
//! crates look up single bits, nibbles or bytes where tables of whole words are several times as fast.
//!
//! Like those crates' and kcp-go's own they look up tables by secret bytes: whoever shares the processor's cache might
//! learn of them.

#[cfg(feature = "sm4")]
mod sm4;
#[cfg(feature = "tea")]
mod tea;
#[cfg(all(test, feature = "twofish", feature = "3des", feature = "sm4"))]
mod tests;
#[cfg(feature = "3des")]
mod triple_des;
#[cfg(feature = "twofish")]
mod twofish;
#[cfg(any(feature = "twofish", feature = "3des", feature = "tea", feature = "xtea", feature = "sm4"))]
mod words;
#[cfg(feature = "xtea")]
mod xtea;

#[cfg(feature = "sm4")]
pub(super) use self::sm4::Sm4;
#[cfg(feature = "tea")]
pub(super) use self::tea::Tea;
#[cfg(feature = "3des")]
pub(super) use self::triple_des::TripleDes;
#[cfg(feature = "twofish")]
pub(super) use self::twofish::Twofish;
#[cfg(feature = "xtea")]
pub(super) use self::xtea::Xtea;
