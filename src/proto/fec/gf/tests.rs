//! Every kernel against the scalar one, and the scalar one against multiplication.

use alloc::{vec, vec::Vec};
use core::array;

use super::{tables::multiply, *};

/// Lengths around every tail, and those of full packets. Miri has time for fewer.
fn lengths() -> impl Iterator<Item = usize> {
    if cfg!(miri) {
        [0, 1, 15, 16, 33, 65, 130].to_vec().into_iter()
    } else {
        (0..=300).chain([1_400, 1_472, 1_500]).collect::<Vec<_>>().into_iter()
    }
}

/// Coefficients tested at once.
fn coefficients() -> impl Iterator<Item = [u8; ROWS]> {
    let step = if cfg!(miri) { 128 } else { ROWS };
    (0..=255u8).step_by(step).map(|first| array::from_fn(|n| first.wrapping_add(n as u8)))
}

fn noise(len: usize, seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed).wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// `count` rows of `len` bytes that start at odd addresses, with bytes around them that must stay.
struct Rows {
    memory: Vec<Vec<u8>>,
    offset: usize,
    len: usize,
}

impl Rows {
    fn new(count: usize, offset: usize, len: usize) -> Self {
        let memory = (0..count).map(|row| noise(len + 2 * offset + 1, row as u8 + 7)).collect();
        Self { memory, offset, len }
    }

    fn combine(
        mut self,
        kernel: Kernel,
        (coefficients, stride): (&[u8], usize),
        sources: &[&[u8]],
        range: Range<usize>,
        add: bool,
    ) -> Vec<Vec<u8>> {
        let slice = self.offset..self.offset + self.len;
        let mut rows: Vec<_> = self.memory.iter_mut().map(|row| &mut row[slice.clone()]).collect();
        kernel.combine(Sum { coefficients, stride, sources, rows: &mut rows, range, add });
        self.memory
    }
}

#[test]
#[cfg_attr(miri, ignore = "there is nothing unsafe in it")]
fn scalar_is_the_sum_of_products() {
    for len in [0, 1, 100, 127, 128, 129, 300] {
        for add in [false, true] {
            let sources: Vec<_> = (0..3).map(|n| noise(len, n)).collect();
            let slices: Vec<_> = sources.iter().map(Vec::as_slice).collect();
            let factors: Vec<_> = (0..6).map(|n| n * 41 + 1).collect();
            let mut rows = vec![noise(len, 9), noise(len, 10)];
            let expected: Vec<Vec<u8>> = (0..2)
                .map(|row| {
                    let sum = |at: usize| {
                        let products = (0..3).map(|s| multiply(factors[2 * s + row], sources[s][at]));
                        products.fold(if add { rows[row][at] } else { 0 }, |a, b| a ^ b)
                    };
                    (0..len).map(sum).collect()
                })
                .collect();
            let mut slices_of_rows: Vec<_> = rows.iter_mut().map(Vec::as_mut_slice).collect();
            scalar::combine(Sum {
                coefficients: &factors,
                stride: 2,
                sources: &slices,
                rows: &mut slices_of_rows,
                range: 0..len,
                add,
            });
            assert_eq!(rows, expected);
        }
    }
}

/// Those that are held against the scalar one.
fn vector_kernels() -> impl Iterator<Item = Kernel> {
    Kernel::available().filter(|kernel| kernel.0 != Set::Scalar)
}

#[test]
fn kernels_agree_for_every_coefficient_and_length() {
    for len in lengths() {
        let source = noise(len + 3, len as u8);
        // Offsets of source and rows go through all alignments as the length does.
        let source = &source[len % 3..][..len];
        for coefficients in coefficients() {
            for add in [false, true] {
                let combine = |kernel| {
                    let rows = Rows::new(ROWS, len % 37, len);
                    rows.combine(kernel, (&coefficients, ROWS), &[source], 0..len, add)
                };
                let expected = combine(Kernel(Set::Scalar));
                for kernel in vector_kernels() {
                    assert_eq!(combine(kernel), expected, "{kernel:?}, {len} bytes, {coefficients:?}, {add}");
                }
            }
        }
    }
}

#[test]
fn kernels_agree_for_every_number_of_rows_and_sources() {
    let many: Vec<usize> = if cfg!(miri) { vec![1, 3] } else { vec![1, 2, 3, 5, 10, SOURCES] };
    for len in lengths() {
        for &count in &many {
            // Longer than the rows: what is beyond does not matter.
            let sources: Vec<_> = (0..count).map(|n| noise(len + n, n as u8)).collect();
            let slices: Vec<_> = sources.iter().enumerate().map(|(n, source)| &source[n / 2..]).collect();
            for taken in (1..=ROWS).step_by(if cfg!(miri) { ROWS - 1 } else { 1 }) {
                let stride = taken + count % 3;
                let coefficients = noise(stride * count, 3);
                for add in [false, true] {
                    // Nor is what is outside the range touched.
                    let combine = |kernel| {
                        let rows = Rows::new(taken, 5, len + 7);
                        rows.combine(kernel, (&coefficients, stride), &slices, 3..3 + len, add)
                    };
                    let expected = combine(Kernel(Set::Scalar));
                    for kernel in vector_kernels() {
                        assert_eq!(
                            combine(kernel),
                            expected,
                            "{kernel:?}, {len} bytes, {count} x {taken}, {add}"
                        );
                    }
                }
            }
        }
    }
}

/// Shards of all lengths in any order, more rows and sources than a block has, rows with remains of another group.
#[test]
fn shorter_shards_count_as_padded() {
    let (most, counts) = if cfg!(miri) { (50, &[5][..]) } else { (200, &[1, 3, 4, 5, 9][..]) };
    for (round, &rows) in counts.iter().enumerate() {
        for filled in [0, 30] {
            let lengths = noise(2 * SOURCES + 3, round as u8 + 1);
            let sources: Vec<_> = lengths.iter().map(|&len| noise(usize::from(len) % most, len)).collect();
            let coefficients: Vec<_> = (0..rows * sources.len()).map(|n| (n * 7 + 1) as u8).collect();
            let before: Vec<_> = (0..rows).map(|row| noise(most, row as u8)).collect();
            let longest = sources.iter().map(Vec::len).max().unwrap().max(filled);
            // Bytes beyond the longest stay.
            let mut expected = before.clone();
            for (row, bytes) in expected.iter_mut().enumerate() {
                for (at, byte) in bytes.iter_mut().enumerate().take(longest) {
                    let start = if at < filled { *byte } else { 0 };
                    let products = sources.iter().enumerate().filter_map(|(n, source)| {
                        Some(multiply(coefficients[n * rows + row], *source.get(at)?))
                    });
                    *byte = products.fold(start, |a, b| a ^ b);
                }
            }
            for kernel in Kernel::available() {
                let mut memory = before.clone();
                let end = kernel.add_products(
                    &coefficients,
                    rows,
                    sources.iter().map(Vec::as_slice),
                    memory.iter_mut().map(Vec::as_mut_slice),
                    filled,
                );
                assert_eq!(end, longest, "{kernel:?}");
                assert!(memory == expected, "{kernel:?}");
            }
        }
    }
}

/// One source, longer or shorter than what the rows have, at all numbers of rows and lengths; nothing else is touched.
#[test]
fn one_product_is_the_sum_of_one_source() {
    for len in lengths() {
        for count in (0..=2 * ROWS + 1).step_by(if cfg!(miri) { ROWS + 1 } else { 1 }) {
            let coefficients = noise(count, len as u8);
            let source = noise(len + 3, count as u8);
            let source = &source[count % 3..][..len];
            let stride = len + 7;
            for filled in [0, len / 2, len.saturating_sub(1), len, len + 7] {
                let before = noise(count * stride + 5, 11);
                let mut expected = before.clone();
                let rows = expected.chunks_exact_mut(stride).take(count);
                let sources = core::iter::once(source);
                Kernel(Set::Scalar).add_products(&coefficients, count, sources, rows, filled);
                for kernel in Kernel::available() {
                    let mut ours = before.clone();
                    let end = kernel.add_product(&coefficients, source, &mut ours, stride, filled);
                    assert_eq!(end, filled.max(len));
                    assert!(ours == expected, "{kernel:?}, {len} bytes, {count} rows, {filled} filled");
                }
            }
        }
    }
}

#[test]
fn the_last_resort_is_scalar() {
    let names: Vec<_> = Kernel::available().map(Kernel::name).collect();
    assert_eq!(names.last(), Some(&"scalar"));
    assert_eq!(Kernel::fastest().name(), names[0]);
}
