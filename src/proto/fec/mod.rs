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

//! # In a session
//!
//! [`KcpConfigBuilder::fec`](crate::KcpConfigBuilder::fec) makes a session send parity. Two settings make it fit the traffic:
//!
//! * [`fec_adaptive`](crate::KcpConfigBuilder::fec_adaptive): a group sends only as much of its parity as the losses call for.
//!   The numbers of the other parity packets are skipped, so that a receiver with the same group size, kcp-go's too, has
//!   nothing to detect.
//! * [`fec_flush`](crate::KcpConfigBuilder::fec_flush): where too little is sent to complete groups in time, segments are
//!   copied instead. Any receiver takes a copy for a resend.
//!
//! What they cost and gain for messages of 200 bytes, 50 a second, round trip 100 ms (virtual time; the whole table and a
//! plot are in `benches/fec_latency/results`). "Sent" is bytes of packets per byte of messages:
//!
//! | losses each way | FEC | p50 | p99 | p99.9 | sent |
//! |----------------:|-----|----:|----:|------:|-----:|
//! | 0 % | off | 50 ms | 50 ms | 50 ms | 1.12 |
//! | 0 % | 10/3 | 50 ms | 50 ms | 50 ms | 1.51 |
//! | 0 % | 10/3, flush | 50 ms | 50 ms | 50 ms | 3.02 |
//! | 0 % | adaptive to 10/8, with flush or without | 50 ms | 50 ms | 50 ms | 1.16 |
//! | 5 % | off | 50 ms | 220 ms | 300 ms | 1.24 |
//! | 5 % | 10/3 | 50 ms | 170 ms | 190 ms | 1.65 |
//! | 5 % | 10/3, flush | 50 ms | 60 ms | 140 ms | 3.06 |
//! | 5 % | adaptive to 10/8 | 50 ms | 170 ms | 190 ms | 1.72 |
//! | 5 % | adaptive to 10/8, flush | 50 ms | 101 ms | 170 ms | 2.82 |
//! | 10 % | off | 60 ms | 311 ms | 440 ms | 1.35 |
//! | 10 % | 10/3 | 50 ms | 193 ms | 305 ms | 1.74 |
//! | 10 % | 10/3, flush | 50 ms | 140 ms | 180 ms | 3.09 |
//! | 10 % | adaptive to 10/8 | 50 ms | 180 ms | 200 ms | 2.13 |
//! | 10 % | adaptive to 10/8, flush | 50 ms | 80 ms | 170 ms | 4.55 |
//! | 20 % | off | 141 ms | 440 ms | 570 ms | 1.61 |
//! | 20 % | 10/3 | 83 ms | 330 ms | 460 ms | 2.04 |
//! | 20 % | 10/3, flush | 50 ms | 240 ms | 356 ms | 3.24 |
//! | 20 % | adaptive to 10/8 | 60 ms | 190 ms | 230 ms | 2.77 |
//! | 20 % | adaptive to 10/8, flush | 50 ms | 140 ms | 220 ms | 6.30 |
//!
//! In a bulk transfer over a full link, parity takes its share of the link: 16 Mbit/s deliver 1,937 kB/s without FEC and 1,488 with
//! 10/3 where nothing is lost, 1,629 and 1,380 at 10 %, 1,208 and 1,180 at 20 %. Adaptive parity delivered 1,926, 1,114 and
//! 935.
//!
//! A sender keeps the parity of the current group: its parity packets, each as long as the longest packet. A receiver keeps
//! nothing before the first FEC packet. Then it keeps up to 128 packets of 1,500 bytes until it knows its peer's group size, and
//! after that the packets of three groups, or 128 packets where groups are small, but never more than 2 MiB. A session without FEC
//! of its own decodes its peer's too. It keeps nothing of it before it knows the group size, and 64 KiB after that: all that groups
//! of 10 and 3 take, and 30 and 15 where few packets are lost. Larger ones need FEC at both ends.
//!
//! What is computed is bounded too. A peer whose groups have more parity than 16 packets, and than this end's, is helped as
//! long as it loses no more than 16 packets of a group on average.
//!
//! A peer whose group size differs from this end's is reported by [`Event::Fec`](crate::proto::Event::Fec) and in
//! [`FecState`](crate::proto::FecState): both ends should be given the same, since kcp-go may take garbage for data where
//! they differ.

mod accumulator;
mod adaptive;
#[doc(hidden)]
pub mod bench;
mod decode_cache;
mod decoder;
mod detector;
mod encoder;
mod error;
mod gf;
mod groups;
mod limits;
mod matrix;
pub(super) mod packet;
mod peer_check;
mod pool;
mod reconstruct;
mod reed_solomon;
#[cfg(test)]
mod session_tests;
mod set_aside;
#[cfg(test)]
mod tests;

pub use self::{
    accumulator::ParityAccumulator, adaptive::AdaptiveFec, decode_cache::DecodeCache, error::FecError,
    gf::Kernel, peer_check::FecEvent, reed_solomon::ReedSolomon,
};
pub(super) use self::{
    adaptive::{Adaptive, copies_for},
    decoder::Decoder,
    encoder::Encoder,
    packet::{
        HEADER_LEN, Kind, OUT_OF_BAND_HEADER_LEN, OutOfBand, Packet, segments_of, write_out_of_band_header,
    },
};
