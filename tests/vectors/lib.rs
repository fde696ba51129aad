//! Known answers, made by running other implementations (kcp-go 5.6.72 unless a file says otherwise).
//!
//! A file is a list of [`Vector`]s, whose fields are read by name. Every method panics when the field is not of its type: a
//! vector that is not understood is a test that fails.

use serde_json::Value;

/// One known answer.
#[derive(Debug, Clone)]
pub struct Vector(Value);

macro_rules! files {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $(
            $(#[$doc])*
            pub fn $name() -> Vec<Vector> {
                let file: Value = include_str!(concat!(stringify!($name), ".json")).parse().unwrap();
                vectors(&file)
            }
        )*
    };
}

files! {
    /// Packets of the ciphers that authenticate.
    aead_packets,
    /// Packets of the other ciphers, in CFB mode where they are block ciphers, with CRC-32.
    cfb_packets,
    /// What clients sent in whole sessions, as it reached a server.
    client_transcripts,
    /// Extension segments: those of `docs/extensions.md`, made by `extension.py`.
    extension,
    /// Groups of data and parity packets, and an out-of-band datagram.
    fec_packets,
    /// Packets with tags of Go's `minio/highwayhash` in place of CRC-32.
    highway_packets,
    /// Keys that kcptun derives from passwords.
    kcptun_keys,
    /// Handshakes and sealed packets, made by `noise.py`.
    noise,
    /// Handshakes of the Noise Protocol Framework by the implementation cacophony, for the patterns that the crate has.
    noise_framework,
    /// Parity of Reed-Solomon codes.
    rs_parity,
    /// Segments.
    segments,
}

impl Vector {
    fn field(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or_else(|| panic!("no field {name}"))
    }

    /// Whether there is a field `name`.
    pub fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some()
    }

    /// A string.
    pub fn text(&self, name: &str) -> &str {
        self.field(name).as_str().unwrap_or_else(|| panic!("{name} is no string"))
    }

    /// A string of hexadecimal digits: the bytes that they stand for.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        from_hex(self.text(name))
    }

    /// A list of strings of hexadecimal digits.
    pub fn byte_strings(&self, name: &str) -> Vec<Vec<u8>> {
        list(self.field(name)).iter().map(|text| from_hex(text.as_str().unwrap())).collect()
    }

    /// A whole number in the range of `T`.
    pub fn number<T: TryFrom<u64>>(&self, name: &str) -> T {
        let number = self.field(name).as_u64().and_then(|number| T::try_from(number).ok());
        number.unwrap_or_else(|| panic!("{name} is out of range"))
    }

    /// A number.
    pub fn fraction(&self, name: &str) -> f64 {
        self.field(name).as_f64().unwrap_or_else(|| panic!("{name} is no number"))
    }

    /// A list of vectors.
    pub fn vectors(&self, name: &str) -> Vec<Self> {
        vectors(self.field(name))
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn vectors(value: &Value) -> Vec<Vector> {
    list(value).iter().cloned().map(Vector).collect()
}

/// The bytes that a string of hexadecimal digits stands for.
pub fn from_hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "half a byte");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
