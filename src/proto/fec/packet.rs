//! FEC packets on the wire.
//!
//! ```text
//! data          seqid u32 | 0x00f1 | size u16 | segments
//! parity        seqid u32 | 0x00f2 | parity of `size | segments` of a group's data packets
//! out-of-band   0xffffffff | 0x00f3 | size u16 | conv u32 | datagram
//! ```
//!
//! `size` counts its own two bytes and what follows. All integers are little-endian. An out-of-band packet belongs to no
//! group: it carries a datagram. kcp-go has such packets since 5.6.60, and recognizes them by this header.

use crate::proto::wire::HEADER_LEN as SEGMENT_HEADER_LEN;

/// Bytes in front of the segments: seqid, type and size.
pub(in crate::proto) const HEADER_LEN: usize = 8;
/// Bytes in front of an out-of-band datagram: seqid, type, size and conv.
pub(in crate::proto) const OUT_OF_BAND_HEADER_LEN: usize = HEADER_LEN + 4;
/// Bytes in front of a packet's shard, which is what parity is computed over.
pub(super) const SHARD_AT: usize = 6;
/// Bytes of the size field.
pub(super) const SIZE_LEN: usize = 2;

const DATA: u16 = 0xf1;
const PARITY: u16 = 0xf2;
const OUT_OF_BAND: u16 = 0xf3;
/// The seqid of out-of-band packets, which are not numbered.
const NO_SEQID: u32 = u32::MAX;

/// Seqids that a sender of this crate skips where it changes its group size, so that a receiver sees the change. They do not
/// disturb kcp-go's receiver.
pub(super) const LEAP: u32 = 1_024;

/// What an FEC packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum Kind {
    Data,
    Parity,
    OutOfBand,
}

/// An FEC packet, parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) struct Packet<'a> {
    pub(in crate::proto) seqid: u32,
    pub(in crate::proto) kind: Kind,
    /// What follows the type: the size and its payload in data and out-of-band packets, or the parity.
    pub(in crate::proto) shard: &'a [u8],
}

impl<'a> Packet<'a> {
    /// The packet in `bytes`. `None` where they are not an FEC packet; they may be plain segments then, because no `cmd` of a
    /// segment reads as one of the types.
    pub(in crate::proto) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (seqid, rest) = bytes.split_first_chunk()?;
        let (kind, shard) = rest.split_first_chunk()?;
        let kind = match u16::from_le_bytes(*kind) {
            DATA => Kind::Data,
            PARITY => Kind::Parity,
            OUT_OF_BAND => Kind::OutOfBand,
            _ => return None,
        };
        Some(Self { seqid: u32::from_le_bytes(*seqid), kind, shard })
    }
}

/// What an out-of-band packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) struct OutOfBand<'a> {
    pub(in crate::proto) conv: u32,
    pub(in crate::proto) datagram: &'a [u8],
}

impl<'a> OutOfBand<'a> {
    /// Reads the shard of an out-of-band packet. `None` where its size field does not fit.
    pub(in crate::proto) fn parse(shard: &'a [u8]) -> Option<Self> {
        let (conv, datagram) = payload(shard)?.split_first_chunk()?;
        Some(Self { conv: u32::from_le_bytes(*conv), datagram })
    }
}

/// The payload of a data shard, which was received or recovered. `None` where its size field does not fit.
pub(super) fn payload(shard: &[u8]) -> Option<&[u8]> {
    let (size, _) = shard.split_first_chunk()?;
    shard.get(SIZE_LEN..usize::from(u16::from_le_bytes(*size)))
}

/// The conversation that a parity shard belongs to. All data shards of a group have the same conv at the same place. Parity of
/// equal bytes is that byte again, so that the parity shard has the conv there too.
pub(super) fn parity_conv(shard: &[u8]) -> Option<u32> {
    shard.get(SIZE_LEN..)?.first_chunk().map(|conv| u32::from_le_bytes(*conv))
}

/// The segments that a packet carries, with an FEC header or without. Empty for parity and out-of-band packets.
pub(crate) fn segments_of(packet: &[u8]) -> &[u8] {
    match Packet::parse(packet) {
        None => packet,
        Some(Packet { kind: Kind::Data, shard, .. }) => payload(shard).unwrap_or_default(),
        Some(_) => &[],
    }
}

/// The conversation that a decrypted packet belongs to, with an FEC header or without. Nothing else is read or checked.
///
/// A parity packet has the conv of its group at the same place as data packets. `None` for a packet that is too short: one with
/// segments must have a whole segment header.
#[must_use]
pub fn peek_conv(packet: &[u8]) -> Option<u32> {
    conv_of(packet, |_| false)
}

/// As [`peek_conv`], where some sessions open their packets themselves: `is_sealed` says whether packets that begin with a conv are of
/// one. What follows the conv in such a packet is as good as random, and reads as the type of an FEC packet in one of 21,845.
pub(in crate::proto) fn conv_of(packet: &[u8], is_sealed: impl Fn(u32) -> bool) -> Option<u32> {
    let segments = match Packet::parse(packet) {
        None => packet,
        // Where an FEC packet has its number, a sealed one has its conv.
        Some(Packet { seqid, .. }) if is_sealed(seqid) => return Some(seqid),
        Some(Packet { kind: Kind::OutOfBand, shard, .. }) => {
            return OutOfBand::parse(shard).map(|packet| packet.conv);
        }
        Some(Packet { kind: Kind::Parity, shard, .. }) => return parity_conv(shard),
        Some(Packet { kind: Kind::Data, shard, .. }) => payload(shard).unwrap_or_default(),
    };
    let conv = segments.first_chunk().filter(|_| segments.len() >= SEGMENT_HEADER_LEN);
    conv.map(|conv| u32::from_le_bytes(*conv))
}

/// Writes the header of a data packet in front of its payload.
pub(super) fn write_data_header(packet: &mut [u8], seqid: u32) {
    write_type(packet, seqid, DATA);
    write_size(packet);
}

/// Writes the header of a parity packet.
pub(super) fn write_parity_header(packet: &mut [u8], seqid: u32) {
    write_type(packet, seqid, PARITY);
}

/// Writes the header of an out-of-band packet in front of its datagram.
pub(in crate::proto) fn write_out_of_band_header(packet: &mut [u8], conv: u32) {
    write_type(packet, NO_SEQID, OUT_OF_BAND);
    write_size(packet);
    packet[HEADER_LEN..OUT_OF_BAND_HEADER_LEN].copy_from_slice(&conv.to_le_bytes());
}

fn write_type(packet: &mut [u8], seqid: u32, kind: u16) {
    packet[..4].copy_from_slice(&seqid.to_le_bytes());
    packet[4..SHARD_AT].copy_from_slice(&kind.to_le_bytes());
}

fn write_size(packet: &mut [u8]) {
    let size = (packet.len() - SHARD_AT) as u16;
    packet[SHARD_AT..HEADER_LEN].copy_from_slice(&size.to_le_bytes());
}

/// The seqid at which numbering begins again at 0: the largest multiple of the group size. kcp-go's rule.
pub(super) const fn seqid_wrap(group: u32) -> u32 {
    u32::MAX / group * group
}
