//! The typed fields at the end of HELLO, ANSWER and RETRY.
//!
//! ```text
//! type u8 | length u16 | value (length bytes)
//! ```
//!
//! A receiver ignores a field that it does not know, unless the top bit of the type says that it must understand it. The
//! other seven bits are what the field is. Fields stand in any order, and no field but padding occurs twice: two readings of
//! one packet are how handshakes are attacked. So anything that is not quite well formed makes the whole segment malformed.

/// Bytes in front of a field's value.
pub(super) const FIELD_HEADER_LEN: usize = 3;
/// The longest cookie, in bytes.
pub(super) const MAX_COOKIE_LEN: usize = 64;

/// The top bit of a type: the receiver must understand the field.
pub(super) const MUST_UNDERSTAND: u8 = 0x80;

/// Types of fields, without the top bit.
pub(super) mod kind {
    pub(in super::super) const PAD: u8 = 0x00;
    pub(in super::super) const KEEP_ALIVE: u8 = 0x01;
    pub(in super::super) const COOKIE: u8 = 0x02;
    pub(in super::super) const TOKEN: u8 = 0x03;
    pub(in super::super) const UNSUPPORTED: u8 = 0x04;
    pub(in super::super) const MAX_PACKET: u8 = 0x05;
    pub(in super::super) const RESET_KEY: u8 = 0x06;
    #[cfg(feature = "noise")]
    pub(in super::super) const NOISE: u8 = 0x20;
}

/// Why fields are not well formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum FieldError {
    /// One or two bytes are left behind the last field.
    LeftOver,
    /// The length of a field goes past the end.
    PastEnd,
    /// A field occurs twice.
    Twice,
    /// The value of a known field has a wrong length.
    WrongLength,
}

/// A set of types of fields, by their lower seven bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::proto) struct KindSet(u128);

impl KindSet {
    /// Adds a type. Returns whether it is new.
    const fn insert(&mut self, kind: u8) -> bool {
        let bit = 1 << (kind & !MUST_UNDERSTAND);
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(in crate::proto) const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The types, each with the top bit, as they stand in UNSUPPORTED.
    pub(super) fn must_understand(self) -> impl Iterator<Item = u8> {
        (0..MUST_UNDERSTAND).filter(move |kind| self.0 >> kind & 1 == 1).map(|kind| kind | MUST_UNDERSTAND)
    }
}

/// What the fields of a segment say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::proto) struct Fields<'a> {
    /// Milliseconds of silence after which the sender of a HELLO probes.
    pub(in crate::proto) keep_alive: Option<u32>,
    pub(in crate::proto) cookie: Option<&'a [u8]>,
    pub(in crate::proto) token: Option<u64>,
    /// Types of the HELLO that the sender of an ANSWER had to understand, and does not.
    pub(in crate::proto) unsupported: Option<&'a [u8]>,
    /// The longest packet that the sender takes, in bytes of UDP payload.
    pub(in crate::proto) max_packet: Option<u16>,
    pub(in crate::proto) reset_key: Option<&'a [u8; 16]>,
    /// A message of key agreement. Its type is among the unknown ones as well: who takes no part in that begins nothing by it.
    #[cfg(feature = "noise")]
    pub(in crate::proto) noise: Option<&'a [u8]>,
    /// Fields that this end had to understand, and does not know.
    pub(in crate::proto) unknown: KindSet,
}

impl<'a> Fields<'a> {
    pub(super) fn parse(mut bytes: &'a [u8]) -> Result<Self, FieldError> {
        let mut fields = Self::default();
        let mut seen = KindSet::default();
        while !bytes.is_empty() {
            let (&[kind, low, high], rest) = bytes.split_first_chunk().ok_or(FieldError::LeftOver)?;
            let len = usize::from(u16::from_le_bytes([low, high]));
            let (value, rest) = rest.split_at_checked(len).ok_or(FieldError::PastEnd)?;
            bytes = rest;
            let plain = kind & !MUST_UNDERSTAND;
            if plain != kind::PAD && !seen.insert(kind) {
                return Err(FieldError::Twice);
            }
            match plain {
                kind::PAD => {}
                kind::KEEP_ALIVE => fields.keep_alive = Some(u32::from_le_bytes(exactly(value)?)),
                kind::COOKIE if (1..=MAX_COOKIE_LEN).contains(&len) => fields.cookie = Some(value),
                kind::COOKIE => return Err(FieldError::WrongLength),
                kind::TOKEN => fields.token = Some(u64::from_le_bytes(exactly(value)?)),
                kind::UNSUPPORTED => fields.unsupported = Some(value),
                kind::MAX_PACKET => fields.max_packet = Some(u16::from_le_bytes(exactly(value)?)),
                kind::RESET_KEY => {
                    fields.reset_key = Some(value.try_into().map_err(|_| FieldError::WrongLength)?);
                }
                #[cfg(feature = "noise")]
                kind::NOISE if kind != plain => {
                    fields.noise = Some(value);
                    fields.unknown.insert(kind);
                }
                _ if kind != plain => {
                    fields.unknown.insert(kind);
                }
                _ => {}
            }
        }
        Ok(fields)
    }
}

fn exactly<const N: usize>(value: &[u8]) -> Result<[u8; N], FieldError> {
    value.try_into().map_err(|_| FieldError::WrongLength)
}

/// Writes fields one behind the other. What does not fit is left out, and [`FieldWriter::finish`] says so.
#[derive(Debug)]
pub(super) struct FieldWriter<'a> {
    out: &'a mut [u8],
    len: usize,
    fits: bool,
}

impl<'a> FieldWriter<'a> {
    pub(super) const fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0, fits: true }
    }

    pub(super) fn field(&mut self, kind: u8, value: &[u8]) {
        self.field_of(kind, value.len(), value.iter().copied());
    }

    pub(super) fn field_of(&mut self, kind: u8, len: usize, value: impl Iterator<Item = u8>) {
        let end = self.len + FIELD_HEADER_LEN + len;
        let (Some(out), Ok(value_len)) = (self.out.get_mut(self.len..end), u16::try_from(len)) else {
            self.fits = false;
            return;
        };
        let [low, high] = value_len.to_le_bytes();
        out[..FIELD_HEADER_LEN].copy_from_slice(&[kind, low, high]);
        for (byte, value) in out[FIELD_HEADER_LEN..].iter_mut().zip(value) {
            *byte = value;
        }
        self.len = end;
    }

    /// Pads what was written to `len` bytes. One or two bytes are too few for a field, and stay missing.
    pub(super) fn pad_to(&mut self, len: usize) {
        let missing = len.min(self.out.len()).saturating_sub(self.len);
        if let Some(pad) = missing.checked_sub(FIELD_HEADER_LEN) {
            self.field_of(kind::PAD, pad, core::iter::repeat_n(0, pad));
        }
    }

    /// Bytes written; `None` where a field was left out.
    pub(super) const fn finish(self) -> Option<usize> {
        if self.fits { Some(self.len) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    fn field(kind: u8, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
        bytes.extend_from_slice(value);
        bytes
    }

    #[test]
    fn fields_are_read_in_any_order_and_unknown_ones_are_skipped() {
        let parts = [
            field(kind::KEEP_ALIVE, &20_000_u32.to_le_bytes()),
            field(kind::PAD, &[1; 9]),
            field(0x6f, b"later"),
            field(kind::PAD, &[]),
            field(kind::TOKEN, &7_u64.to_le_bytes()),
        ];
        let expected = Fields { keep_alive: Some(20_000), token: Some(7), ..Fields::default() };
        let forward = parts.concat();
        let backward: Vec<u8> = parts.iter().rev().flatten().copied().collect();
        assert_eq!(Fields::parse(&forward), Ok(expected));
        assert_eq!(Fields::parse(&backward), Ok(expected));
        assert_eq!(Fields::parse(&[]), Ok(Fields::default()));
    }

    #[test]
    fn unknown_fields_that_must_be_understood_are_named() {
        let bytes = [field(0xef, b"x"), field(0xa0, b""), field(0x6e, b"")].concat();
        let unknown = Fields::parse(&bytes).unwrap().unknown;
        assert!(unknown.must_understand().eq([0xa0, 0xef]));
        assert_eq!((unknown.len(), unknown.is_empty()), (2, false));
        // A known field is understood, whether it must be or not.
        let known = field(kind::MAX_PACKET | MUST_UNDERSTAND, &1_400_u16.to_le_bytes());
        let expected = Fields { max_packet: Some(1_400), ..Fields::default() };
        assert_eq!(Fields::parse(&known), Ok(expected));
    }

    #[test]
    fn what_is_not_well_formed_is_refused_by_cause() {
        let keep_alive = field(kind::KEEP_ALIVE, &[0; 4]);
        let twice = [keep_alive.clone(), keep_alive.clone()].concat();
        let with_top_bit = [keep_alive.clone(), field(kind::KEEP_ALIVE | MUST_UNDERSTAND, &[0; 4])].concat();
        let unknown_twice = [field(0x50, &[]), field(0x50, &[])].concat();
        for bytes in [twice, with_top_bit, unknown_twice] {
            assert_eq!(Fields::parse(&bytes), Err(FieldError::Twice), "{bytes:?}");
        }
        for left_over in 1..FIELD_HEADER_LEN {
            let bytes = [keep_alive.clone(), vec![0; left_over]].concat();
            assert_eq!(Fields::parse(&bytes), Err(FieldError::LeftOver), "{left_over}");
        }
        assert_eq!(Fields::parse(&keep_alive[..6]), Err(FieldError::PastEnd));
        let lengths = [
            (kind::KEEP_ALIVE, 5),
            (kind::TOKEN, 7),
            (kind::COOKIE, 0),
            (kind::COOKIE, MAX_COOKIE_LEN + 1),
            (kind::MAX_PACKET, 4),
            (kind::RESET_KEY, 15),
        ];
        for (kind, len) in lengths {
            assert_eq!(Fields::parse(&field(kind, &vec![1; len])), Err(FieldError::WrongLength), "{kind}");
        }
    }

    #[test]
    fn padding_makes_the_length_wanted_or_misses_it_by_less_than_a_header() {
        let mut out = [0xff; 64];
        for wanted in 0..=80 {
            let mut writer = FieldWriter::new(&mut out);
            writer.field(kind::TOKEN, &[7; 8]);
            writer.pad_to(wanted);
            let len = writer.finish().unwrap();
            let reachable = wanted.clamp(11, 64);
            assert!(len <= reachable && reachable - len < FIELD_HEADER_LEN, "{len} for {wanted}");
            assert_eq!(Fields::parse(&out[..len]).unwrap().token, Some(u64::from_le_bytes([7; 8])));
        }
    }

    #[test]
    fn a_field_without_room_is_left_out_and_reported() {
        let mut out = [0; 12];
        let mut writer = FieldWriter::new(&mut out);
        writer.field(kind::TOKEN, &[7; 8]);
        writer.field(kind::PAD, &[]);
        assert_eq!(writer.finish(), None);
    }
}
