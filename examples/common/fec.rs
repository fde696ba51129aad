//! The flag that says how many packets of a group are parity.

use std::{fmt, str::FromStr};

/// Data and parity packets of a group; none of either without forward error correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fec {
    pub(crate) data: usize,
    pub(crate) parity: usize,
}

impl FromStr for Fec {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let numbers = text.split_once('/').map(|(data, parity)| (data.parse(), parity.parse()));
        match numbers {
            Some((Ok(data), Ok(parity))) => Ok(Self { data, parity }),
            _ => Err("not DATA/PARITY, like 10/3; 0/0 is none"),
        }
    }
}

impl fmt::Display for Fec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.data, self.parity)
    }
}
