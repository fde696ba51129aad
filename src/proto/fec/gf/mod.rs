//! Sums of products in GF(2^8): the work of the codec, by the instruction sets that have a fast way to do it.
//!
//! [`Kernel`] chooses; [`scalar`] is the portable way and the oracle of the others. All others are the loop of
//! [`vector`] with the registers of one instruction set. Another set is another file, another variant of [`Set`] and
//! another line in [`Kernel::available`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod bit_matrix;
#[cfg(target_arch = "x86_64")]
mod gfni_avx2;
#[cfg(target_arch = "x86_64")]
mod gfni_avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod ssse3;
mod tables;
#[cfg(test)]
mod tests;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;

use core::{fmt, ops::Range};

pub(super) use self::tables::Log;
use self::tables::Nibbles;

/// Rows computed at once: with two registers a row, as many as the 16 registers of AVX2 hold. More would save loads only,
/// of which there are fewer than products.
const ROWS: usize = 4;
/// Sources combined at once: the slices that name them are on the stack.
const SOURCES: usize = 16;

/// Sets the bytes `range` of each row (at most [`ROWS`]) to the sum over `sources` (at most [`SOURCES`], no shorter than
/// the range) of the products with `coefficients[source * stride + row]`; with `add`, adds that sum to them.
struct Sum<'a, 's, 'r> {
    coefficients: &'a [u8],
    stride: usize,
    sources: &'a [&'s [u8]],
    rows: &'a mut [&'r mut [u8]],
    range: Range<usize>,
    add: bool,
}

/// The instructions that a [`ReedSolomon`](super::ReedSolomon) computes with.
///
/// All give the same bytes. With the feature `std` the CPU is asked at run time; without it, instruction sets count
/// that the build enables (`-C target-feature`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernel(Set);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Ssse3(ssse3::Ssse3),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    GfniAvx2(gfni_avx2::GfniAvx2),
    #[cfg(target_arch = "x86_64")]
    GfniAvx512(gfni_avx512::GfniAvx512),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon),
}

impl Kernel {
    /// Those that run here, the fastest first. The last is always `scalar`, which runs everywhere.
    pub fn available() -> impl Iterator<Item = Self> {
        [
            #[cfg(target_arch = "x86_64")]
            gfni_avx512::GfniAvx512::detect().map(Set::GfniAvx512),
            #[cfg(target_arch = "x86_64")]
            gfni_avx2::GfniAvx2::detect().map(Set::GfniAvx2),
            #[cfg(target_arch = "x86_64")]
            avx2::Avx2::detect().map(Set::Avx2),
            #[cfg(target_arch = "x86_64")]
            ssse3::Ssse3::detect().map(Set::Ssse3),
            #[cfg(target_arch = "aarch64")]
            neon::Neon::detect().map(Set::Neon),
            Some(Set::Scalar),
        ]
        .into_iter()
        .flatten()
        .map(Self)
    }

    /// The first of [`Kernel::available`].
    pub fn fastest() -> Self {
        Self::available().next().unwrap_or(Self(Set::Scalar))
    }

    /// The instruction set's name in lower case: `gfni-avx512`, `gfni-avx2`, `avx2`, `ssse3`, `neon` or `scalar`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Set::Ssse3(_) => "ssse3",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::GfniAvx2(_) => "gfni-avx2",
            #[cfg(target_arch = "x86_64")]
            Set::GfniAvx512(_) => "gfni-avx512",
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => "neon",
        }
    }

    /// Computes the sum.
    #[inline(always)]
    fn combine(self, sum: Sum<'_, '_, '_>) {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        let len = sum.range.len();
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::GfniAvx512(gfni) if len >= gfni_avx512::GfniAvx512::MIN_LEN => {
                gfni.combine(sum);
            }
            #[cfg(target_arch = "x86_64")]
            Set::GfniAvx2(gfni) if len >= gfni_avx2::GfniAvx2::MIN_LEN => {
                gfni.combine(sum);
            }
            #[cfg(target_arch = "x86_64")]
            Set::GfniAvx2(gfni) => Self(Set::Ssse3(gfni.shorter)).combine(sum),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(avx2) if len >= avx2::Avx2::MIN_LEN => avx2.combine(sum),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(avx2) => Self(Set::Ssse3(avx2.shorter)).combine(sum),
            #[cfg(target_arch = "x86_64")]
            Set::Ssse3(ssse3) if len >= ssse3::Ssse3::MIN_LEN => {
                ssse3.combine(sum);
            }
            #[cfg(target_arch = "aarch64")]
            Set::Neon(neon) if len >= neon::Neon::MIN_LEN => neon.combine(sum),
            // Also rows shorter than any register: a shard has at least the size field and a segment's header, which
            // together are longer, so these are ends of longer shards only.
            _ => scalar::combine(sum),
        }
    }

    /// Adds the products of `sources` with `coefficients[source * stride + row]` to `rows`. Bytes of the rows from
    /// `filled` on count as zero whatever they hold, as do those that a source lacks. Returns how many bytes of the rows
    /// count after that.
    ///
    /// No source may be longer than a row.
    pub(super) fn add_products<'r, 's>(
        self,
        coefficients: &[u8],
        stride: usize,
        sources: impl Iterator<Item = &'s [u8]> + Clone,
        rows: impl Iterator<Item = &'r mut [u8]>,
        filled: usize,
    ) -> usize {
        let mut longest = filled;
        self.blocks(coefficients, stride, rows, filled, |block| {
            block.add(sources.clone());
            longest = longest.max(block.filled);
        });
        longest
    }

    /// [`Kernel::add_products`] of one source to as many rows as there are coefficients, which follow each other in
    /// `memory` at every `stride` bytes: what a sender does with every packet.
    #[inline]
    pub(super) fn add_product(
        self,
        coefficients: &[u8],
        source: &[u8],
        memory: &mut [u8],
        stride: usize,
        filled: usize,
    ) -> usize {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if source.len() <= filled
            && coefficients.len() <= ROWS
            && self.add_whole_product(coefficients, source, memory, stride)
        {
            return filled;
        }
        self.add_product_in_parts(coefficients, source, memory, stride, filled)
    }

    /// [`Kernel::add_product`] to at most [`ROWS`] rows that are no shorter than the source, without slices and blocks on
    /// the way, which take as long as a third of the products. Returns whether it did that: where products take longer, and
    /// for the shortest sources, it does not.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[inline]
    fn add_whole_product(self, coefficients: &[u8], source: &[u8], memory: &mut [u8], stride: usize) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::GfniAvx2(gfni) | Set::GfniAvx512(gfni_avx512::GfniAvx512 { narrow: gfni })
                if source.len() >= gfni_avx2::GfniAvx2::MIN_LEN =>
            {
                gfni.add_product(coefficients, source, memory, stride);
            }
            #[cfg(target_arch = "aarch64")]
            Set::Neon(neon) if source.len() >= neon::Neon::MIN_LEN => {
                neon.add_product(coefficients, source, memory, stride);
            }
            _ => return false,
        }
        true
    }

    /// [`Kernel::add_product`] whatever the lengths.
    fn add_product_in_parts(
        self,
        coefficients: &[u8],
        source: &[u8],
        mut memory: &mut [u8],
        stride: usize,
        filled: usize,
    ) -> usize {
        let both = filled.min(source.len());
        for coefficients in coefficients.chunks(ROWS) {
            let mut block: [&mut [u8]; ROWS] = Default::default();
            let block = &mut block[..coefficients.len()];
            for slot in block.iter_mut() {
                (*slot, memory) = memory.split_at_mut(stride);
            }
            if both > 0 {
                let (sources, range) = (&[source], 0..both);
                self.combine(Sum { coefficients, stride: ROWS, sources, rows: block, range, add: true });
            }
            if both < source.len() {
                let (sources, range) = (&[&source[both..]], both..source.len());
                self.combine(Sum { coefficients, stride: ROWS, sources, rows: block, range, add: false });
            }
        }
        filled.max(source.len())
    }

    /// Does `work` on all rows, in blocks.
    #[inline]
    fn blocks<'r>(
        self,
        coefficients: &[u8],
        stride: usize,
        mut rows: impl Iterator<Item = &'r mut [u8]>,
        filled: usize,
        mut work: impl FnMut(&mut Block<'_, '_>),
    ) {
        let mut first = 0;
        loop {
            let mut block: [&mut [u8]; ROWS] = Default::default();
            let mut taken = 0;
            // Not by `zip`, which would ask how many rows there are: a division, for chunks.
            while taken < ROWS
                && let Some(row) = rows.next()
            {
                block[taken] = row;
                taken += 1;
            }
            let rows = &mut block[..taken];
            if taken > 0 {
                let coefficients = coefficients.get(first..).unwrap_or_default();
                work(&mut Block { kernel: self, coefficients, stride, rows, filled });
            }
            if taken < ROWS {
                return;
            }
            first += taken;
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Up to [`ROWS`] rows, of which the first `filled` bytes count.
struct Block<'b, 'r> {
    kernel: Kernel,
    coefficients: &'b [u8],
    stride: usize,
    rows: &'b mut [&'r mut [u8]],
    filled: usize,
}

impl Block<'_, '_> {
    fn add<'s>(&mut self, mut sources: impl Iterator<Item = &'s [u8]>) {
        let mut first = 0;
        loop {
            let mut batch: [&[u8]; SOURCES] = [&[]; SOURCES];
            let taken = batch.iter_mut().zip(&mut sources).map(|(slot, source)| *slot = source).count();
            let batch = &mut batch[..taken];
            let Some(common) = batch.iter().map(|source| source.len()).min() else { return };
            let both = common.min(self.filled);
            self.part(first, batch, 0..both, true);
            batch.iter_mut().for_each(|source| *source = &source[both..]);
            self.part(first, batch, both..common, false);
            self.filled = self.filled.max(common);
            for (n, source) in batch.iter().enumerate() {
                let longer = &source[common - both..];
                if !longer.is_empty() {
                    self.add_from(first + n, common, longer);
                }
            }
            first += taken;
        }
    }

    /// Adds the product of source number `number` to the rows, at their bytes from `from` on.
    #[inline]
    fn add_from(&mut self, number: usize, from: usize, source: &[u8]) {
        let end = from + source.len();
        let middle = self.filled.clamp(from, end);
        for (range, add) in [(from..middle, true), (middle..end, false)] {
            self.part(number, &[&source[range.start - from..range.end - from]], range, add);
        }
        self.filled = self.filled.max(end);
    }

    /// Combines `sources`, the first being number `number`, into the bytes `range` of the rows.
    #[inline]
    fn part(&mut self, number: usize, sources: &[&[u8]], range: Range<usize>, add: bool) {
        if range.is_empty() {
            return;
        }
        let coefficients = &self.coefficients[number * self.stride..];
        self.kernel.combine(Sum { coefficients, stride: self.stride, sources, rows: self.rows, range, add });
    }
}
