//! The portable kernel, and the oracle of the others.

use super::Nibbles;

/// Below so many bytes the two lookups a byte cost less than the table that makes them one.
const TABLE_PAYS_FROM: usize = 128;

/// See [`Kernel::combine`](super::Kernel::combine).
pub(super) fn combine(
    tables: &[Nibbles],
    stride: usize,
    sources: &[&[u8]],
    rows: &mut [&mut [u8]],
    add: bool,
) {
    if !add {
        rows.iter_mut().for_each(|row| row.fill(0));
    }
    for (source, tables) in sources.iter().zip(tables.chunks(stride)) {
        for (row, table) in rows.iter_mut().zip(tables) {
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
