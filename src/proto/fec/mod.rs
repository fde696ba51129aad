//! Forward error correction: [`ReedSolomon`], the erasure code of kcp-go, usable on its own.
//!
//! A sender makes parity shards of a group of data shards, and a receiver recovers as many lost shards as it has parity
//! shards. The bytes are those of kcp-go (klauspost/reedsolomon) for every number of shards; the work is done by the
//! CPU's vector instructions where there is a [`Kernel`] for them.
//!
//! ```
//! use kcp9::fec::ReedSolomon;
//!
//! let code = ReedSolomon::new(10, 3)?;
//! let data: Vec<Vec<u8>> = (0..10).map(|n| vec![n; 1_400]).collect();
//! let mut parity = vec![vec![0; 1_400]; 3];
//! code.encode(&data, &mut parity)?;
//!
//! let mut shards: Vec<_> = data.iter().chain(&parity).cloned().map(Some).collect();
//! shards[0] = None;
//! shards[7] = None;
//! shards[11] = None;
//! code.reconstruct_data(&mut shards)?;
//! assert_eq!(shards[7].as_ref(), Some(&data[7]));
//! # Ok::<(), kcp9::fec::FecError>(())
//! ```

mod accumulator;
#[doc(hidden)]
pub mod bench;
mod decoder;
mod detector;
mod encoder;
mod error;
mod gf;
mod matrix;
pub(super) mod packet;
mod pattern;
mod pool;
mod reconstruct;
mod reed_solomon;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod tests;

#[cfg(feature = "tokio")]
pub(crate) use self::packet::seqid_of;
pub use self::{
    accumulator::ParityAccumulator, error::FecError, gf::Kernel, pattern::DecodeCache,
    reed_solomon::ReedSolomon,
};
pub(super) use self::{
    decoder::Decoder,
    encoder::Encoder,
    packet::{
        HEADER_LEN, Kind, OUT_OF_BAND_HEADER_LEN, OutOfBand, Packet, segments_of, write_out_of_band_header,
    },
};
