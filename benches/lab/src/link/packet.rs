//! Which flow a packet belongs to.

/// The port at which the first flow's receiver listens; the next flows follow.
pub(crate) const FIRST_PORT: u16 = 5_000;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Which end of a packet is the flow's receiver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Way {
    Forward,
    Back,
}

/// The number of the flow, by the receiver's port; none if it is no IPv4 packet of TCP or UDP to or from one of `flows`
/// receivers.
pub(crate) fn flow_of(packet: &[u8], way: Way, flows: usize) -> Option<usize> {
    let first = *packet.first()?;
    let header = usize::from(first & 15) * 4;
    if first >> 4 != 4 || header < 20 || !matches!(packet.get(9)?, &TCP | &UDP) {
        return None;
    }
    // Ports are only in the first fragment.
    if u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0 {
        return None;
    }
    let at = header + if way == Way::Forward { 2 } else { 0 };
    let port = u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]);
    let flow = usize::from(port.checked_sub(FIRST_PORT)?);
    (flow < flows).then_some(flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u8, source: u16, destination: u16) -> Vec<u8> {
        let mut packet = vec![0; 28];
        packet[0] = 0x45;
        packet[9] = protocol;
        packet[20..22].copy_from_slice(&source.to_be_bytes());
        packet[22..24].copy_from_slice(&destination.to_be_bytes());
        packet
    }

    #[test]
    fn flows_are_told_by_the_receivers_port() {
        assert_eq!(flow_of(&packet(UDP, 40_000, 5_003), Way::Forward, 8), Some(3));
        assert_eq!(flow_of(&packet(TCP, 5_003, 40_000), Way::Back, 8), Some(3));
        assert_eq!(flow_of(&packet(TCP, 40_000, 5_003), Way::Back, 8), None);
        assert_eq!(flow_of(&packet(UDP, 40_000, 5_003), Way::Forward, 3), None);
    }

    #[test]
    fn other_packets_have_no_flow() {
        assert_eq!(flow_of(&packet(1, 40_000, 5_000), Way::Forward, 8), None);
        assert_eq!(flow_of(&[0x60; 40], Way::Forward, 8), None);
        assert_eq!(flow_of(&[], Way::Forward, 8), None);
        assert_eq!(flow_of(&packet(UDP, 1, 5_000)[..22], Way::Forward, 8), None);
        let mut fragment = packet(UDP, 40_000, 5_000);
        fragment[7] = 8;
        assert_eq!(flow_of(&fragment, Way::Forward, 8), None);
    }
}
