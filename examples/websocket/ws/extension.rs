//! What two ends agree on about compression: RFC 7692.
//!
//! This is not left to yawc, for three reasons. Its server limits the client's window although the client did not offer that, which
//! browsers refuse. It takes the smallest window for an offer without a number, as browsers send it. And it reads one offer only,
//! where a client may send several to choose from.

use std::fmt;

/// How an end wants to compress, and to have compressed what it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deflate {
    /// 0 to 9, as in zlib; of this end only, the peer does not learn it.
    pub(crate) level: u32,
    /// Whether each message is compressed by itself. Both ends need little memory then, but repetitions across messages take space.
    pub(crate) no_context_takeover: bool,
    /// 9 to 15: repetitions are looked for in the last 2 to the power of this many bytes.
    pub(crate) window_bits: u8,
}

impl Default for Deflate {
    fn default() -> Self {
        Self { level: 6, no_context_takeover: false, window_bits: MAX_BITS }
    }
}

/// The answer to an offer, which both ends keep to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) server_no_context_takeover: bool,
    pub(crate) client_no_context_takeover: bool,
    pub(crate) server_max_window_bits: Option<u8>,
    pub(crate) client_max_window_bits: Option<u8>,
}

/// As the header of the answer has it.
impl fmt::Display for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)?;
        for (name, given) in [
            ("server_no_context_takeover", self.server_no_context_takeover),
            ("client_no_context_takeover", self.client_no_context_takeover),
        ] {
            if given {
                write!(f, "; {name}")?;
            }
        }
        for (name, bits) in [
            ("server_max_window_bits", self.server_max_window_bits),
            ("client_max_window_bits", self.client_max_window_bits),
        ] {
            if let Some(bits) = bits {
                write!(f, "; {name}={bits}")?;
            }
        }
        Ok(())
    }
}

impl Deflate {
    /// What a client asks for.
    pub(crate) fn offer(self) -> String {
        let mut offer = format!("{NAME}; client_max_window_bits");
        if self.window_bits < MAX_BITS {
            offer += &format!("={0}; server_max_window_bits={0}", self.window_bits);
        }
        if self.no_context_takeover {
            offer += "; server_no_context_takeover; client_no_context_takeover";
        }
        offer
    }

    /// What a server answers: to the first of the offers that it can keep to.
    pub(crate) fn accept(self, header: &str) -> Option<Agreed> {
        let smaller = Some(self.window_bits).filter(|bits| *bits < MAX_BITS);
        header.split(',').filter_map(Parameters::parse).find_map(|offer| {
            // zlib has no window of 8 bits, and uses 9, which such a client could not read.
            if offer.server_bits.is_some_and(|bits| bits < MIN_BITS) {
                return None;
            }
            let least = |ours: Option<u8>, theirs: Option<u8>| ours.into_iter().chain(theirs).min();
            Some(Agreed {
                server_no_context_takeover: offer.server_no_context || self.no_context_takeover,
                client_no_context_takeover: offer.client_no_context || self.no_context_takeover,
                server_max_window_bits: least(smaller, offer.server_bits),
                // Only a client that offers it can be told to use less, and none more than it offers.
                client_max_window_bits: offer
                    .client_bits
                    .and_then(|most| least(smaller, most))
                    .filter(|bits| *bits >= MIN_BITS),
            })
        })
    }

    /// What a client makes of the answer to its [`offer`](Self::offer); without a header, there is no compression.
    ///
    /// # Errors
    /// The answer is not one to this offer. The connection has to fail then.
    pub(crate) fn confirm(self, header: &str) -> Result<Agreed, &'static str> {
        let answer =
            Parameters::parse(header).ok_or("the server answered with an extension that is unknown")?;
        let client_bits = match answer.client_bits {
            Some(None) => return Err("the server gave the client's window without a size"),
            Some(bits) => bits,
            None => None,
        };
        if client_bits.is_some_and(|bits| !(MIN_BITS..=self.window_bits).contains(&bits)) {
            return Err("the server asks for a window that this client does not have");
        }
        if answer.server_bits.unwrap_or(MAX_BITS) > self.window_bits {
            return Err("the server's window is larger than was asked for");
        }
        if self.no_context_takeover && !answer.server_no_context {
            return Err("the server does not compress each message by itself, as was asked for");
        }
        Ok(Agreed {
            server_no_context_takeover: answer.server_no_context,
            client_no_context_takeover: answer.client_no_context,
            server_max_window_bits: answer.server_bits,
            client_max_window_bits: client_bits,
        })
    }
}

/// What an offer or an answer says.
#[derive(Default)]
struct Parameters {
    server_no_context: bool,
    client_no_context: bool,
    server_bits: Option<u8>,
    client_bits: Option<Option<u8>>,
}

impl Parameters {
    /// `None` for another extension, or one with a parameter that is unknown, invalid or given twice.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case(NAME) {
            return None;
        }
        let mut this = Self::default();
        for part in parts {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.trim(), Some(bits(value.trim())?)),
                None => (part, None),
            };
            let new = match (name, value) {
                ("server_no_context_takeover", None) => !std::mem::replace(&mut this.server_no_context, true),
                ("client_no_context_takeover", None) => !std::mem::replace(&mut this.client_no_context, true),
                ("server_max_window_bits", Some(bits)) => this.server_bits.replace(bits).is_none(),
                ("client_max_window_bits", bits) => this.client_bits.replace(bits).is_none(),
                _ => false,
            };
            if !new {
                return None;
            }
        }
        Some(this)
    }
}

/// 8 to 15, without leading zeros; it may be quoted.
fn bits(text: &str) -> Option<u8> {
    let digits = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    (8..=MAX_BITS).find(|bits| bits.to_string() == digits)
}

const NAME: &str = "permessage-deflate";
/// The smallest window of zlib, and the largest of deflate.
pub(crate) const MIN_BITS: u8 = 9;
const MAX_BITS: u8 = 15;
