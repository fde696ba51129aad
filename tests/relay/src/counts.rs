//! What a relay knows about its packets.

use std::ops::Add;

use kcp9_simulator::link::LinkCounts;

/// What became of packets, of one direction or of both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came, and their bytes.
    pub offered: u64,
    pub bytes_offered: u64,
    /// Packets sent on, duplicates included, and their bytes.
    pub passed: u64,
    pub bytes_passed: u64,
    /// Dropped by the settings of the path.
    pub lost: u64,
    /// Dropped because the queue before the path's transmitter, or the relay's own, was full.
    pub overflowed: u64,
    /// Held up while later ones passed.
    pub reordered: u64,
    pub duplicated: u64,
    pub corrupted: u64,
}

impl Counts {
    /// Packets that were not sent on, for any reason.
    pub const fn dropped(&self) -> u64 {
        self.lost + self.overflowed
    }

    /// Bytes that the senders put on the wire, headers of IPv4 and UDP included, those of lost packets as well.
    pub const fn wire_bytes(&self) -> u64 {
        self.bytes_offered + IP_AND_UDP * self.offered
    }
}

impl From<LinkCounts> for Counts {
    fn from(link: LinkCounts) -> Self {
        Self {
            offered: link.offered,
            bytes_offered: link.bytes_offered,
            passed: 0,
            bytes_passed: 0,
            lost: link.lost,
            overflowed: link.overflowed,
            reordered: link.reordered,
            duplicated: link.duplicated,
            corrupted: link.corrupted,
        }
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            bytes_offered: self.bytes_offered + other.bytes_offered,
            passed: self.passed + other.passed,
            bytes_passed: self.bytes_passed + other.bytes_passed,
            lost: self.lost + other.lost,
            overflowed: self.overflowed + other.overflowed,
            reordered: self.reordered + other.reordered,
            duplicated: self.duplicated + other.duplicated,
            corrupted: self.corrupted + other.corrupted,
        }
    }
}

const IP_AND_UDP: u64 = 28;
