//! The erasure code against kcp-go's parity, against the crate `reed-solomon-erasure`, and against every loss.

use std::collections::BTreeSet;

use kcp9::fec::{DecodeCache, FecError, Kernel, ParityAccumulator, ReedSolomon};
use proptest::prelude::*;
use reed_solomon_erasure::galois_8::ReedSolomon as Oracle;

/// A small generator: the same shards and losses every run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    fn shards(&mut self, count: usize, len: usize) -> Vec<Vec<u8>> {
        (0..count).map(|_| self.bytes(len)).collect()
    }

    /// Distinct numbers below `end`.
    fn choose(&mut self, count: usize, end: usize) -> BTreeSet<usize> {
        let mut chosen = BTreeSet::new();
        while chosen.len() < count {
            chosen.insert(self.below(end));
        }
        chosen
    }
}

fn padded(shards: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let len = shards.iter().map(Vec::len).max().unwrap_or(0);
    let mut shards = shards.to_vec();
    shards.iter_mut().for_each(|shard| shard.resize(len, 0));
    shards
}

fn encoded(code: &ReedSolomon, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let len = data.iter().map(Vec::len).max().unwrap_or(0);
    let mut parity = vec![vec![0xa5; len]; code.parity_shards()];
    code.encode(data, &mut parity).unwrap();
    parity
}

fn by_oracle(parity_shards: usize, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let data = padded(data);
    let mut parity = vec![vec![0; data[0].len()]; parity_shards];
    Oracle::new(data.len(), parity_shards).unwrap().encode_sep(&data, &mut parity).unwrap();
    parity
}

/// Loses `lost` of the group and checks every way to recover them.
fn check_loss(
    code: &ReedSolomon,
    cache: &mut DecodeCache,
    data: &[Vec<u8>],
    parity: &[Vec<u8>],
    lost: &BTreeSet<usize>,
) {
    let whole: Vec<_> = padded(data).into_iter().chain(parity.iter().cloned()).collect();
    let keep = |n: usize, shard: &Vec<u8>| (!lost.contains(&n)).then(|| shard.clone());
    let received: Vec<_> = data.iter().chain(parity).enumerate().map(|(n, shard)| keep(n, shard)).collect();

    let missing: Vec<_> = lost.iter().copied().filter(|&n| n < data.len()).collect();
    // One more than is needed.
    let mut out = vec![vec![0x5a; parity[0].len()]; missing.len() + 1];
    assert_eq!(code.reconstruct_data_into(cache, &received, &mut out), Ok(missing.len()));
    assert!(missing.iter().zip(&out).all(|(&n, shard)| *shard == whole[n]), "{code:?} {lost:?}");
    assert!(out[missing.len()].iter().all(|&byte| byte == 0x5a));

    let mut shards = received.clone();
    code.reconstruct_data(&mut shards).unwrap();
    for (n, shard) in shards.iter().enumerate() {
        match lost.contains(&n) {
            true if n < data.len() => assert_eq!(shard.as_ref(), Some(&whole[n]), "{code:?} {lost:?}"),
            true => assert!(shard.is_none()),
            false => assert_eq!(*shard, received[n]),
        }
    }

    let mut shards = received;
    code.reconstruct(&mut shards).unwrap();
    for &n in lost {
        assert_eq!(shards[n].as_ref(), Some(&whole[n]), "{code:?} {lost:?}");
    }
}

#[test]
fn parity_equals_that_of_kcp_go() {
    let groups = kcp9_vectors::rs_parity();
    assert!(groups.len() >= 14);
    for group in groups {
        let (data, parity) = (group.byte_strings("data"), group.byte_strings("parity"));
        let (data_shards, parity_shards) = (group.number("data_shards"), group.number("parity_shards"));
        let shard_len = group.number("shard_len");
        assert!(data.iter().all(|shard| shard.len() == shard_len));
        for kernel in Kernel::available() {
            let code = ReedSolomon::with_kernel(data_shards, parity_shards, kernel).unwrap();
            assert_eq!(encoded(&code, &data), parity, "{code:?}");
            let mut one_by_one = vec![vec![0; shard_len]; parity_shards];
            for (index, shard) in data.iter().enumerate().rev() {
                code.encode_one(index, shard, &mut one_by_one).unwrap();
            }
            assert_eq!(one_by_one, parity, "{code:?}");
        }
    }
}

fn check_matrix(data: usize, parity: usize) {
    let code = ReedSolomon::new(data, parity).unwrap();
    let shards = Noise((data * 256 + parity) as u64).shards(data, 3);
    assert_eq!(encoded(&code, &shards), by_oracle(parity, &shards), "{code:?}");
}

#[test]
fn matrices_equal_those_of_the_oracle() {
    for data in 1..=12 {
        (1..=20).for_each(|parity| check_matrix(data, parity));
    }
    for (data, parity) in [(1, 255), (12, 244), (30, 15), (64, 64), (100, 50)] {
        check_matrix(data, parity);
    }
}

/// Half a minute: the oracle inverts a matrix for each.
#[test]
#[ignore = "long: cargo test --release --test reed_solomon -- --ignored"]
fn matrices_equal_those_of_the_oracle_for_any_number_of_data_shards() {
    check_matrix(200, 55);
    for data in 1..=255 {
        check_matrix(data, 1);
        check_matrix(data, 256 - data);
    }
}

#[test]
fn every_loss_of_small_codes_is_recovered() {
    for (d, p) in [(1, 1), (1, 3), (3, 2), (4, 4), (2, 6), (10, 3)] {
        let code = ReedSolomon::new(d, p).unwrap();
        let mut noise = Noise(d as u64);
        let data: Vec<_> = (0..d).map(|n| noise.bytes([90, 33, 0, 90, 64][n % 5])).collect();
        let parity = encoded(&code, &data);
        assert_eq!(parity, by_oracle(p, &data));
        let mut cache = DecodeCache::new();
        for mask in 0u32..1 << (d + p) {
            if mask.count_ones() as usize <= p {
                let lost = (0..d + p).filter(|n| mask >> n & 1 == 1).collect();
                check_loss(&code, &mut cache, &data, &parity, &lost);
            }
        }
    }
}

#[test]
fn losses_of_large_codes_are_recovered() {
    let mut cache = DecodeCache::new();
    for (d, p) in [(30, 15), (100, 50), (200, 55), (255, 1), (1, 255), (128, 128), (20, 5)] {
        let code = ReedSolomon::new(d, p).unwrap();
        let mut noise = Noise(p as u64);
        let data: Vec<_> = (0..d).map(|n| noise.bytes(if n % 9 == 4 { 20 } else { 70 })).collect();
        let parity = encoded(&code, &data);
        for round in 0..12 {
            // As many as can be recovered in every other round, and all of the first shards in the first.
            let count = if round % 2 == 0 { p } else { 1 + noise.below(p) };
            let lost = if round == 0 { (0..p).collect() } else { noise.choose(count, d + p) };
            check_loss(&code, &mut cache, &data, &parity, &lost);
        }
    }
}

#[test]
fn recovered_shards_of_packet_length_equal_those_of_the_oracle() {
    let mut noise = Noise(3);
    for kernel in Kernel::available() {
        for len in [1_400, 1_472, 1_500] {
            let code = ReedSolomon::with_kernel(10, 3, kernel).unwrap();
            let data = noise.shards(10, len);
            let parity = encoded(&code, &data);
            assert_eq!(parity, by_oracle(3, &data));
            check_loss(&code, &mut DecodeCache::new(), &data, &parity, &noise.choose(3, 10));
        }
    }
}

#[test]
fn parity_longer_than_the_data_ends_in_zeros() {
    let code = ReedSolomon::new(2, 2).unwrap();
    let mut parity = [[0xff; 40]; 2];
    code.encode(&[vec![1; 30], vec![2; 20]], &mut parity).unwrap();
    let mut exact = [[0; 30]; 2];
    code.encode(&[vec![1; 30], vec![2; 20]], &mut exact).unwrap();
    for (parity, exact) in parity.iter().zip(exact) {
        assert_eq!(parity[..30], exact);
        assert_eq!(parity[30..], [0; 10]);
    }
}

#[test]
fn empty_shards_have_empty_parity() {
    let code = ReedSolomon::new(2, 2).unwrap();
    code.encode(&[[0; 0]; 2], &mut [[0; 0]; 2]).unwrap();
    let mut shards = vec![None, Some(vec![]), None, Some(vec![])];
    code.reconstruct(&mut shards).unwrap();
    assert_eq!(shards, vec![Some(vec![]); 4]);
}

#[test]
fn a_complete_group_is_left_as_it_is() {
    let code = ReedSolomon::new(2, 1).unwrap();
    let shards = [Some([1; 9]), Some([2; 9]), None];
    let mut none: [[u8; 9]; 0] = [];
    assert_eq!(code.reconstruct_data_into(&mut DecodeCache::new(), &shards, &mut none), Ok(0));
}

#[test]
fn impossible_numbers_of_shards_are_refused() {
    for (data, parity) in
        [(0, 0), (0, 1), (1, 0), (256, 0), (256, 1), (1, 256), (200, 57), (usize::MAX, 1), (2, usize::MAX)]
    {
        let refused = ReedSolomon::new(data, parity).unwrap_err();
        assert_eq!(refused, FecError::ShardCounts { data, parity });
        assert!(refused.to_string().contains("256 at most"));
    }
}

#[test]
fn wrong_shards_are_errors_and_change_nothing() {
    let code = ReedSolomon::new(3, 2).unwrap();
    let data = [[1; 8], [2; 8], [3; 8]];
    let mut parity = [[7; 8]; 2];
    let wrong_count = |expected, found| Err(FecError::WrongCount { expected, found });
    let wrong_length = |expected, found| Err(FecError::WrongLength { expected, found });
    assert_eq!(code.encode(&data[..2], &mut parity), wrong_count(3, 2));
    assert_eq!(code.encode(&data, &mut parity[..1]), wrong_count(2, 1));
    assert_eq!(code.encode(&data, &mut [[7; 5]; 2]), wrong_length(5, 8));
    assert_eq!(code.encode(&data, &mut [vec![7; 8], vec![7; 9]]), wrong_length(8, 9));
    assert_eq!(code.encode_one(3, &[1], &mut parity), Err(FecError::WrongIndex { index: 3, data: 3 }));
    assert_eq!(
        code.encode_one(usize::MAX, &[1], &mut parity),
        Err(FecError::WrongIndex { index: usize::MAX, data: 3 })
    );
    assert_eq!(code.encode_one(0, &[1; 9], &mut parity), wrong_length(8, 9));
    assert_eq!(code.encode_one(0, &[1], &mut parity[..1]), wrong_count(2, 1));
    assert_eq!(parity, [[7; 8]; 2]);
    assert!(ParityAccumulator::new().add(&code, 3, &[1]).is_err());

    let some = |len| Some(vec![1; len]);
    let cases = [
        (vec![some(8); 4], wrong_count(5, 4)),
        (vec![None, None, some(8), some(8), None], Err(FecError::TooFewShards { present: 2, needed: 3 })),
        (vec![None; 5], Err(FecError::TooFewShards { present: 0, needed: 3 })),
        (vec![None, some(9), some(8), some(8), some(8)], wrong_length(8, 9)),
        (vec![None, some(8), some(8), some(8), some(9)], wrong_length(8, 9)),
        (vec![None, some(8), some(8), some(8), some(7)], wrong_length(8, 7)),
    ];
    for (mut shards, expected) in cases {
        let before = shards.clone();
        assert_eq!(code.reconstruct(&mut shards), expected);
        assert_eq!(code.reconstruct_data(&mut shards), expected);
        let mut out = vec![vec![7; 8]; 3];
        let mut cache = DecodeCache::new();
        assert_eq!(code.reconstruct_data_into(&mut cache, &shards, &mut out).map(drop), expected);
        assert_eq!((shards, out), (before, vec![vec![7; 8]; 3]));
    }

    let shards = [None, None, some(8), some(8), some(8)];
    let mut cache = DecodeCache::new();
    assert_eq!(
        code.reconstruct_data_into(&mut cache, &shards, &mut [[7; 8]]),
        Err(FecError::WrongCount { expected: 2, found: 1 })
    );
    assert_eq!(
        code.reconstruct_data_into(&mut cache, &shards, &mut [vec![7; 8], vec![7; 9]]),
        Err(FecError::WrongLength { expected: 8, found: 9 })
    );
}

#[test]
fn a_code_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<ReedSolomon>();
    shared::<DecodeCache>();
    shared::<ParityAccumulator>();
}

proptest! {
    #[test]
    fn any_group_is_recovered_from_as_many_shards_as_it_has_data(
        (d, p) in (1usize..24, 1usize..10),
        lengths in prop::collection::vec(0usize..180, 24),
        seed in any::<u64>(),
    ) {
        let mut noise = Noise(seed);
        let data: Vec<_> = lengths[..d].iter().map(|&len| noise.bytes(len)).collect();
        let expected = by_oracle_or_empty(p, &data);
        for kernel in Kernel::available() {
            let code = ReedSolomon::with_kernel(d, p, kernel).unwrap();
            let parity = encoded(&code, &data);
            prop_assert_eq!(&parity, &expected);
            let mut accumulator = ParityAccumulator::new();
            for (index, shard) in data.iter().enumerate() {
                accumulator.add(&code, index, shard).unwrap();
            }
            prop_assert!(accumulator.rows(&code).eq(&parity));
            let count = noise.below(p + 1);
            check_loss(&code, &mut DecodeCache::new(), &data, &parity, &noise.choose(count, d + p));
        }
    }
}

/// The oracle refuses shards without bytes.
fn by_oracle_or_empty(parity: usize, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if data.iter().all(Vec::is_empty) { vec![vec![]; parity] } else { by_oracle(parity, data) }
}
