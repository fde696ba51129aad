//! Arithmetic in GF(2^8) with the polynomial 0x11d, and the tables that the kernels multiply by.

/// x^8 + x^4 + x^3 + x^2 + 1, the polynomial of kcp-go and of all who share its matrix; 2 generates the field.
const POLYNOMIAL: u16 = 0x11d;
/// Number of elements other than zero: powers of the generator repeat after so many.
const ORDER: usize = 255;

/// Powers of the generator, twice over, so that a sum of two logarithms needs no reduction.
static EXP: [u8; 2 * ORDER] = powers();
/// Logarithms to the base 2; that of zero does not exist and reads 0.
static LOG: [u8; 256] = logarithms();
/// The tables of every coefficient: 8 KiB.
static NIBBLES: [Nibbles; 256] = all_nibbles();

/// The products of one coefficient with each low and each high half of a byte: `lo[x & 15] ^ hi[x >> 4]` is the
/// product with `x`. The byte shuffles of SSSE3, AVX2 and NEON look up 16-byte tables, which these are.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(super) struct Nibbles {
    pub(super) lo: [u8; 16],
    pub(super) hi: [u8; 16],
}

impl Nibbles {
    #[inline]
    pub(super) fn of(coefficient: u8) -> &'static Self {
        &NIBBLES[usize::from(coefficient)]
    }

    /// The product of the coefficient with `x`.
    #[inline]
    pub(super) const fn product(&self, x: u8) -> u8 {
        self.lo[(x & 15) as usize] ^ self.hi[(x >> 4) as usize]
    }

    /// The product with each byte.
    pub(super) fn products(&self) -> [u8; 256] {
        let mut products = [0; 256];
        let lo = u128::from_ne_bytes(self.lo);
        for (row, &hi) in products.chunks_exact_mut(16).zip(&self.hi) {
            row.copy_from_slice(&(lo ^ u128::from_ne_bytes([hi; 16])).to_ne_bytes());
        }
        products
    }
}

/// A non-zero element as its logarithm: products of many factors, as interpolation has them, are sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proto::fec) struct Log(u8);

impl Log {
    pub(in crate::proto::fec) const ONE: Self = Self(0);

    /// The logarithm of `x`, which must not be zero.
    #[inline]
    pub(in crate::proto::fec) fn of(x: u8) -> Self {
        debug_assert_ne!(x, 0, "zero has no logarithm");
        Self(LOG[usize::from(x)])
    }

    /// The product.
    #[inline]
    pub(in crate::proto::fec) fn times(self, other: Self) -> Self {
        let sum = usize::from(self.0) + usize::from(other.0);
        Self(if sum >= ORDER { sum - ORDER } else { sum } as u8)
    }

    /// The product of as many as there are shards. It divides once, so that the CPU need not wait for each before the next.
    #[inline]
    pub(in crate::proto::fec) fn product(factors: impl Iterator<Item = Self>) -> Self {
        let sum: usize = factors.map(|factor| usize::from(factor.0)).sum();
        Self((sum % ORDER) as u8)
    }

    /// The quotient.
    #[inline]
    pub(in crate::proto::fec) fn over(self, other: Self) -> Self {
        let difference = usize::from(self.0) + ORDER - usize::from(other.0);
        Self(if difference >= ORDER { difference - ORDER } else { difference } as u8)
    }

    /// The element itself.
    #[inline]
    pub(in crate::proto::fec) fn element(self) -> u8 {
        EXP[usize::from(self.0)]
    }
}

/// The product by shifts and additions: slow, and needs no table.
pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut shifted, mut product, mut bit) = (a as u16, 0, 0);
    while bit < 8 {
        if b >> bit & 1 == 1 {
            product ^= shifted;
        }
        shifted <<= 1;
        if shifted > 0xff {
            shifted ^= POLYNOMIAL;
        }
        bit += 1;
    }
    product as u8
}

const fn powers() -> [u8; 2 * ORDER] {
    let mut exp = [1; 2 * ORDER];
    let mut n = 1;
    while n < exp.len() {
        exp[n] = multiply(exp[n - 1], 2);
        n += 1;
    }
    exp
}

const fn logarithms() -> [u8; 256] {
    let exp = powers();
    let mut log = [0; 256];
    let mut n = 0;
    while n < ORDER {
        log[exp[n] as usize] = n as u8;
        n += 1;
    }
    log
}

const fn all_nibbles() -> [Nibbles; 256] {
    let mut all = [Nibbles { lo: [0; 16], hi: [0; 16] }; 256];
    let mut coefficient = 0;
    while coefficient < 256 {
        let mut x = 0;
        while x < 16 {
            all[coefficient].lo[x] = multiply(coefficient as u8, x as u8);
            all[coefficient].hi[x] = multiply(coefficient as u8, (x as u8) << 4);
            x += 1;
        }
        coefficient += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_agree_with_multiplication_by_shifts() {
        // Miri has time for some of them.
        for a in (0..=255).step_by(if cfg!(miri) { 51 } else { 1 }) {
            let products = Nibbles::of(a).products();
            for b in 0..=255 {
                let expected = multiply(a, b);
                assert_eq!(Nibbles::of(a).product(b), expected);
                assert_eq!(products[usize::from(b)], expected);
                if a != 0 && b != 0 {
                    assert_eq!(Log::of(a).times(Log::of(b)).element(), expected);
                    assert_eq!(Log::of(expected).over(Log::of(b)).element(), a);
                }
            }
        }
    }

    #[test]
    fn the_generator_reaches_every_element() {
        let mut seen = [false; 256];
        for n in 0..ORDER {
            assert!(!core::mem::replace(&mut seen[usize::from(EXP[n])], true));
        }
        assert!(!seen[0]);
    }
}
