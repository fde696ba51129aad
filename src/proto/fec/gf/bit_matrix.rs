//! Multiplication as GFNI does it: `gf2p8affineqb` applies a matrix of bits to bytes, and the product with a constant is
//! such a matrix in any field of 256 elements. (`gf2p8mulb` knows the field of AES only, whose polynomial is another.)

use super::tables::multiply;

/// The matrices of every coefficient.
static MATRICES: [BitMatrix; 256] = all_matrices();

/// The matrix of a coefficient, as `gf2p8affineqb` takes it: bit `i` of the product is the parity of what byte `7 - i`
/// and the factor have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct BitMatrix(pub(super) u64);

impl BitMatrix {
    #[inline]
    pub(super) fn of(coefficient: u8) -> Self {
        MATRICES[usize::from(coefficient)]
    }
}

const fn all_matrices() -> [BitMatrix; 256] {
    let mut all = [BitMatrix(0); 256];
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
}
