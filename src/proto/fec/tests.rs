//! The code as a whole: small enough for Miri; kcp-go's parity and the large codes are in `tests/fec.rs`.

use alloc::{vec, vec::Vec};

use super::*;

fn data(count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| (0..len).map(|at| (n * 89 + at * 31 + (n * at) / 3) as u8).collect()).collect()
}

fn encoded(code: &ReedSolomon, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let len = data.iter().map(Vec::len).max().unwrap_or(0);
    let mut parity = vec![vec![0xee; len]; code.parity_shards()];
    code.encode(data, &mut parity).unwrap();
    parity
}

/// Klauspost's rows for 3 + 2, as the smallest known answer.
#[test]
fn coefficients_are_those_of_the_inverted_vandermonde_matrix() {
    let code = ReedSolomon::new(3, 2).unwrap();
    let unit = [vec![1, 0, 0], vec![0, 1, 0], vec![0, 0, 1]];
    assert_eq!(encoded(&code, &unit), [[1, 1, 1], [15, 8, 6]]);
}

#[test]
fn every_loss_is_recovered_by_every_kernel() {
    let (codes, len) =
        if cfg!(miri) { (&[(3, 2)][..], 40) } else { (&[(1, 1), (1, 2), (3, 2), (2, 3)][..], 70) };
    for kernel in Kernel::available() {
        for &(d, p) in codes {
            let code = ReedSolomon::with_kernel(d, p, kernel).unwrap();
            let data = data(d, len);
            let all: Vec<_> = data.iter().cloned().chain(encoded(&code, &data)).collect();
            for lost in 0u32..1 << (d + p) {
                let mut shards: Vec<_> = all
                    .iter()
                    .enumerate()
                    .map(|(n, shard)| (lost >> n & 1 == 0).then(|| shard.clone()))
                    .collect();
                let before = shards.clone();
                let present = d + p - lost.count_ones() as usize;
                let done = code.reconstruct(&mut shards);
                if present < d {
                    assert_eq!(done, Err(FecError::TooFewShards { present, needed: d }));
                    assert_eq!(shards, before);
                } else {
                    assert!(shards.iter().flatten().eq(&all), "{d}/{p}, {lost:b}, {kernel:?}");
                }
            }
        }
    }
}

#[test]
fn an_accumulator_grows_with_its_shards() {
    let code = ReedSolomon::new(4, 3).unwrap();
    let mut parity = ParityAccumulator::new();
    assert!(parity.is_empty());
    assert!(parity.rows(&code).all(<[u8]>::is_empty));
    // The first grows when it holds something; the second finds the memory of the first, with its bytes.
    for lengths in [[100, 150, 0, 40], [3, 70, 64, 65], [200, 200, 200, 200]] {
        let shards: Vec<_> =
            lengths.iter().zip(data(4, 200)).map(|(&len, shard)| shard[..len].to_vec()).collect();
        for (index, shard) in shards.iter().enumerate() {
            parity.add(&code, index, shard).unwrap();
        }
        assert_eq!(parity.len(), lengths.into_iter().max().unwrap());
        assert!(parity.rows(&code).eq(encoded(&code, &shards).iter()));
        parity.clear();
    }
    // Another code of more rows.
    let code = ReedSolomon::new(4, 7).unwrap();
    let shards = data(4, 30);
    for (index, shard) in shards.iter().enumerate().rev() {
        parity.add(&code, index, shard).unwrap();
    }
    assert!(parity.rows(&code).eq(encoded(&code, &shards).iter()));
    assert_eq!(parity.add(&code, 4, b""), Err(FecError::WrongIndex { index: 4, data: 4 }));
}
