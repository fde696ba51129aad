//! Multiplication as GFNI does it: `gf2p8affineqb` applies a matrix of bits to bytes, and the product with a constant is
//! such a matrix in any field of 256 elements. (`gf2p8mulb` knows the field of AES only, whose polynomial is another.)

use super::{Nibbles, ROWS, SOURCES, tables::multiply};

/// The matrices of every coefficient.
static MATRICES: [BitMatrix; 256] = all_matrices();

/// The matrix of a coefficient, as `gf2p8affineqb` takes it: bit `i` of the product is the parity of what byte `7 - i`
/// and the factor have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct BitMatrix(pub(super) u64);

impl BitMatrix {
    pub(super) const ZERO: Self = Self(0);

    pub(super) fn of(coefficient: u8) -> Self {
        MATRICES[usize::from(coefficient)]
    }
}

/// The matrices of a block, with a stride of [`ROWS`]: looked up once, for all of its columns.
pub(super) struct BlockMatrices([[BitMatrix; ROWS]; SOURCES]);

impl BlockMatrices {
    /// Those of `tables[source * stride + row]`.
    ///
    /// # Panics
    /// If there are more rows or sources than a block has, or fewer tables than that.
    #[inline]
    pub(super) fn of(tables: &[Nibbles], stride: usize, sources: usize, rows: usize) -> Self {
        let mut matrices = [[BitMatrix::ZERO; ROWS]; SOURCES];
        for (source, matrices) in matrices[..sources].iter_mut().enumerate() {
            for (matrix, table) in matrices[..rows].iter_mut().zip(&tables[source * stride..][..rows]) {
                *matrix = BitMatrix::of(table.coefficient());
            }
        }
        Self(matrices)
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[BitMatrix] {
        self.0.as_flattened()
    }
}

const fn all_matrices() -> [BitMatrix; 256] {
    let mut all = [BitMatrix::ZERO; 256];
    let mut coefficient = 0;
    while coefficient < all.len() {
        // Column `j` is the product with x^j.
        let (mut bytes, mut j) = ([0_u8; 8], 0);
        while j < 8 {
            let column = multiply(coefficient as u8, 1 << j);
            let mut i = 0;
            while i < 8 {
                bytes[7 - i] |= (column >> i & 1) << j;
                i += 1;
            }
            j += 1;
        }
        all[coefficient] = BitMatrix(u64::from_le_bytes(bytes));
        coefficient += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the processor's manual says of one byte of `gf2p8affineqb`, with nothing added.
    fn affine(matrix: BitMatrix, x: u8) -> u8 {
        let bytes = matrix.0.to_le_bytes();
        (0..8).map(|i| ((bytes[7 - i] & x).count_ones() as u8 & 1) << i).sum()
    }

    #[test]
    fn matrices_multiply() {
        // The identity, as the manual gives it.
        assert_eq!(BitMatrix::of(1), BitMatrix(0x0102_0408_1020_4080));
        for c in (0..=255).step_by(if cfg!(miri) { 51 } else { 1 }) {
            for x in 0..=255 {
                assert_eq!(affine(BitMatrix::of(c), x), multiply(c, x), "{c} * {x}");
            }
        }
    }

    #[test]
    fn the_matrices_of_a_block_are_those_of_its_tables() {
        let tables = [7, 8, 9, 0, 1, 255, 254, 2, 3].map(Nibbles::of);
        let matrices = BlockMatrices::of(&tables, 3, 3, 2);
        let expected = [[7, 8, 0, 0], [0, 1, 0, 0], [254, 2, 0, 0], [0; 4]].map(|row| row.map(BitMatrix::of));
        assert_eq!(matrices.as_slice()[..4 * ROWS], *expected.as_flattened());
    }
}
