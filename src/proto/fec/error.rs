//! Why the codec refused a call.

use core::fmt;

/// Why a [`ReedSolomon`](super::ReedSolomon) was not made, or did not do its work. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FecError {
    /// No code has so many shards: there must be one of each kind or more, and no more than 256 in all.
    ShardCounts {
        /// Data shards asked for.
        data: usize,
        /// Parity shards asked for.
        parity: usize,
    },
    /// A list of shards that is longer or shorter than the code needs.
    WrongCount {
        /// Shards needed.
        expected: usize,
        /// Shards given.
        found: usize,
    },
    /// There is no data shard of this number.
    WrongIndex {
        /// The number given.
        index: usize,
        /// Data shards of the code: the first is number 0.
        data: usize,
    },
    /// A shard that does not fit the others: parity shards have one length, and data shards are no longer than that.
    WrongLength {
        /// Bytes that the parity shards have.
        expected: usize,
        /// Bytes that this shard has.
        found: usize,
    },
    /// More shards are missing than the code recovers.
    TooFewShards {
        /// Shards present.
        present: usize,
        /// Shards needed: as many as there are data shards.
        needed: usize,
    },
}

impl fmt::Display for FecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShardCounts { data, parity } => {
                write!(
                    f,
                    "no code of {data} data and {parity} parity shards: 1 or more each, 256 at most in all"
                )
            }
            Self::WrongCount { expected, found } => write!(f, "{found} shards given, {expected} needed"),
            Self::WrongIndex { index, data } => write!(f, "data shard {index} of {data}, counted from 0"),
            Self::WrongLength { expected, found } => {
                write!(f, "shard of {found} bytes among parity of {expected}")
            }
            Self::TooFewShards { present, needed } => {
                write!(f, "{present} shards present, {needed} needed to recover the others")
            }
        }
    }
}

impl core::error::Error for FecError {}
