//! The portable kernel, and the oracle of the others.

use super::{Nibbles, Sum};

/// Below so many bytes the two lookups a byte cost less than the table that makes them one.
const TABLE_PAYS_FROM: usize = 128;

/// See [`Kernel::combine`](super::Kernel::combine).
pub(super) fn combine(Sum { coefficients, stride, sources, rows, range, add }: Sum<'_, '_, '_>) {
    if !add {
        rows.iter_mut().for_each(|row| row[range.clone()].fill(0));
    }
    for (source, coefficients) in sources.iter().zip(coefficients.chunks(stride)) {
        for (row, &coefficient) in rows.iter_mut().zip(coefficients) {
            let (row, table) = (&mut row[range.clone()], Nibbles::of(coefficient));
            if source.len() < TABLE_PAYS_FROM {
                for (sum, &x) in row.iter_mut().zip(*source) {
                    *sum ^= table.product(x);
                }
            } else {
                let products = table.products();
                for (sum, &x) in row.iter_mut().zip(*source) {
                    *sum ^= products[usize::from(x)];
                }
            }
        }
    }
}
