//! Who sent what when.

use kcp9::proto::{Command, Instant, SegmentHeader};

/// One segment as it was sent, in simulation time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    pub at: Instant,
    pub header: SegmentHeader,
    /// The PLPMTU before.
    pub plpmtu: usize,
}

/// When each transmission of the PUSH `sn` happened, in microseconds.
pub fn transmissions_of(sent: &[Sent], sn: u32) -> Vec<u64> {
    times(sent, |header| header.cmd == Command::Push && header.sn == sn)
}

/// When each segment of the command was sent, in microseconds.
pub fn times_of(sent: &[Sent], cmd: Command) -> Vec<u64> {
    times(sent, |header| header.cmd == cmd)
}

fn times(sent: &[Sent], wanted: impl Fn(&SegmentHeader) -> bool) -> Vec<u64> {
    sent.iter().filter(|sent| wanted(&sent.header)).map(|sent| sent.at.as_micros()).collect()
}
