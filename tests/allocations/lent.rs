//! What an application receives as a message is lent to it out of a buffer that many packets were put into, not copied for it. But what it
//! keeps holds no more memory than a few times its own length, whatever came with it.

use std::time::Duration;

use kcp9::{
    KcpConfig,
    proto::{Connection, Instant},
};

const NOW: Instant = Instant::ZERO;
const MESSAGES: usize = 16;
/// A smaller message is copied: it could keep a whole buffer for as long as the application keeps it.
const LEN: usize = 6_000;

#[test]
fn messages_are_slices_of_the_buffer_that_they_came_in() {
    let config = KcpConfig::builder().stream(false).build().unwrap();
    let (mut sender, mut receiver) = (Connection::new(7, &config, NOW), Connection::new(7, &config, NOW));
    for number in 0..MESSAGES {
        sender.send(NOW, &[number as u8; LEN]).unwrap();
    }
    let mut buffer = vec![0; 65_536];
    // Acknowledgements make room for more.
    for round in 0..50 {
        let now = NOW + Duration::from_millis(round * 20);
        for turn in 0..2 {
            let (from, to) =
                if turn == 0 { (&mut sender, &mut receiver) } else { (&mut receiver, &mut sender) };
            from.handle_timeout(now);
            while let Some(sent) = from.poll_transmit(now, &mut buffer) {
                for packet in buffer[..sent.len].chunks_mut(sent.stride) {
                    to.handle_packet(now, packet).unwrap();
                }
            }
        }
    }
    let mut messages = Vec::with_capacity(MESSAGES);
    let info = allocation_counter::measure(|| {
        while let Ok(message) = receiver.recv() {
            messages.push(message);
        }
    });
    assert_eq!(messages.len(), MESSAGES);
    for (number, message) in messages.iter().enumerate() {
        assert_eq!(message[..], [number as u8; LEN]);
    }
    // Only those that lie across the ends of two buffers are copied. Where a buffer begins to be shared, its count is made.
    let copied = info.bytes_total as usize / LEN;
    assert!(copied <= MESSAGES / 2, "{copied} of {MESSAGES}: {info:?}");
    let side_by_side =
        messages.windows(2).filter(|pair| pair[0].as_ptr_range().end == pair[1].as_ptr()).count();
    assert!(side_by_side >= 3, "{side_by_side} of {MESSAGES} lie behind the one before");
}

/// Of a few long datagrams and a short one the application keeps the short one, again and again.
#[test]
fn a_datagram_that_is_kept_holds_nothing_but_itself() {
    const KEPT: usize = 100;
    let config = KcpConfig::builder().datagram_queue(1 << 20).build().unwrap();
    let mut buffer = vec![0; 65_536];
    for len in [1, 20, 300, 1_388] {
        let mut kept = Vec::with_capacity(KEPT);
        let info = allocation_counter::measure(|| {
            let mut sender = Connection::new(7, &config, NOW);
            let mut receiver = Connection::new(7, &config, NOW);
            for number in 0..KEPT {
                for len in [1_388, len, 1_300, 1_200] {
                    sender.send_datagram(&vec![number as u8; len]).unwrap();
                }
                while let Some(sent) = sender.poll_transmit(NOW, &mut buffer) {
                    for packet in buffer[..sent.len].chunks_mut(sent.stride) {
                        receiver.handle_packet(NOW, packet).unwrap();
                    }
                }
                let mut datagrams: Vec<_> = std::iter::from_fn(|| receiver.recv_datagram()).collect();
                assert_eq!(datagrams.len(), 4);
                kept.push(datagrams.swap_remove(1));
            }
        });
        assert!(kept.iter().enumerate().all(|(number, kept)| kept[..] == vec![number as u8; len]));
        assert_eq!(info.bytes_current, (KEPT * len) as i64, "{len} bytes each");
    }
}
