//! A batch gives the same bytes and results as its packets one by one.

use kcp9::crypto::{OpenError, SealError};

use super::{bytes, each, header_len};

/// Lengths of packets around the sizes of headers and blocks, up to a whole one.
const SIZES: [usize; 11] = [24, 25, 31, 32, 33, 40, 47, 64, 129, 1_399, 1_500];

#[test]
fn a_batch_comes_out_as_its_packets_one_by_one() {
    for (_, framing, cipher) in each() {
        for (size, count) in SIZES.into_iter().flat_map(|size| (1..=20).map(move |count| (size, count))) {
            // Counts around the number of packets that are encrypted side by side. The shortest packets take every count.
            let counts: &[usize] = if size > 1_000 { &[2, 9, 16] } else { &[1, 2, 7, 8, 9, 15, 17] };
            if size != SIZES[0] && !counts.contains(&count) {
                continue;
            }
            for last in [size, size - 1, size / 2, header_len(framing)] {
                if last < header_len(framing) || last > size {
                    continue;
                }
                let original = bytes((count - 1) * size + last, size as u64);
                let mut one_by_one = original.clone();
                one_by_one.chunks_mut(size).for_each(|packet| cipher.seal(packet).unwrap());
                let mut batch = original;
                cipher.seal_batch(&mut batch, size).unwrap();
                assert!(batch == one_by_one, "{cipher:?}: sealing {count} of {size}, the last of {last}");

                // Damage every third packet.
                for packet in batch.chunks_mut(size).step_by(3) {
                    *packet.last_mut().unwrap() ^= 0x10;
                }
                let mut one_by_one = batch.clone();
                let expected: Vec<_> =
                    one_by_one.chunks_mut(size).map(|packet| cipher.open(packet)).collect();
                let mut outcomes = vec![Err(OpenError::TooShort); count];
                cipher.open_batch(&mut batch, size, &mut outcomes);
                assert!(outcomes == expected, "{cipher:?}: opening {count} of {size}, the last of {last}");
                assert!(batch == one_by_one, "{cipher:?}: opening {count} of {size}, the last of {last}");
                assert_eq!(
                    expected.iter().filter(|outcome| outcome.is_ok()).count(),
                    count - count.div_ceil(3)
                );
            }
        }
    }
}

#[test]
fn empty_batches_are_accepted_and_impossible_strides_refused() {
    for (_, framing, cipher) in each() {
        let header = header_len(framing);
        assert_eq!(cipher.seal_batch(&mut [], 0), Ok(()));
        assert_eq!(cipher.seal_batch(&mut [], 100), Ok(()));
        assert_eq!(cipher.seal_batch(&mut bytes(100, 1), 0), Err(SealError::TooShort));
        assert_eq!(cipher.seal_batch(&mut bytes(100, 1), header - 1), Err(SealError::TooShort));
        assert_eq!(cipher.seal_batch(&mut bytes(header - 1, 1), 100), Err(SealError::TooShort));
        // One packet, shorter than `size`.
        let (mut batch, mut packet) = (bytes(header + 3, 1), bytes(header + 3, 1));
        assert_eq!((cipher.seal_batch(&mut batch, usize::MAX), cipher.seal(&mut packet)), (Ok(()), Ok(())));
        assert!(batch == packet);

        // The last packet is too short. The others are sealed.
        let mut batch = bytes(2 * 100 + header - 1, 1);
        assert_eq!(cipher.seal_batch(&mut batch, 100), Err(SealError::TooShort));
        let mut outcomes = [Ok(()); 3];
        cipher.open_batch(&mut batch, 100, &mut outcomes);
        assert_eq!(outcomes, [Ok(()), Ok(()), Err(OpenError::TooShort)]);
        // Packets for which there is no outcome are not opened.
        cipher.seal_batch(&mut batch[..200], 100).unwrap();
        let before = batch.clone();
        cipher.open_batch(&mut batch, 100, &mut outcomes[..1]);
        assert!(batch[100..] == before[100..] && batch[..100] != before[..100] || !changes(&*cipher));
    }
}

/// Whether opening changes a packet: `none` does not encrypt.
fn changes(cipher: &dyn kcp9::crypto::PacketCipher) -> bool {
    !format!("{cipher:?}").contains("none")
}
