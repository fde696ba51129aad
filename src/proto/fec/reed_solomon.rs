//! The code and its encoder.

use alloc::boxed::Box;
use core::fmt;

use super::{FecError, gf::Kernel, matrix::Matrix};

/// Most shards of a group: the field has so many points.
const MAX_SHARDS: usize = 256;

/// A systematic Reed-Solomon code over GF(2^8): from `data` shards it makes `parity` shards, and any `data` of them all
/// give back the others.
///
/// Its parity is that of kcp-go, of klauspost/reedsolomon and of the crate `reed-solomon-erasure`. It holds a byte
/// for each pair of a data shard and a parity shard; all methods take `&self`, so that one in an
/// [`Arc`](alloc::sync::Arc) serves any number of sessions.
///
/// * Encoding: [`encode`](Self::encode) has all data shards at hand; [`encode_one`](Self::encode_one) adds them one by
///   one, as does [`ParityAccumulator`](super::ParityAccumulator), which grows with them.
/// * Decoding: [`reconstruct`](Self::reconstruct) fills in all shards that are missing,
///   [`reconstruct_data`](Self::reconstruct_data) the data shards, and
///   [`reconstruct_data_into`](Self::reconstruct_data_into) does that into memory of the caller's.
///
/// Data shards may differ in length: they count as padded with zeros to the longest, which is the length of the parity
/// shards and of recovered shards.
///
/// ```
/// use kcp9::fec::ReedSolomon;
///
/// let code = ReedSolomon::new(3, 2)?;
/// let data = [b"one,", b"two,", b"3..."];
/// let mut parity = [[0; 4]; 2];
/// code.encode(&data, &mut parity)?;
///
/// let mut shards = vec![None, Some(data[1].to_vec()), None, Some(parity[0].to_vec()), Some(parity[1].to_vec())];
/// code.reconstruct(&mut shards)?;
/// assert_eq!(shards[0].as_deref(), Some(&b"one,"[..]));
/// assert_eq!(shards[2].as_deref(), Some(&b"3..."[..]));
/// # Ok::<(), kcp9::fec::FecError>(())
/// ```
pub struct ReedSolomon {
    data: usize,
    parity: usize,
    pub(super) kernel: Kernel,
    pub(super) matrix: Matrix,
    /// For each data shard the coefficients of all parity shards.
    coefficients: Box<[u8]>,
}

impl ReedSolomon {
    /// The code of so many data and parity shards, with the fastest kernel that runs here.
    ///
    /// # Errors
    /// [`FecError::ShardCounts`] unless there is at least one of each kind and 256 at most in all.
    pub fn new(data: usize, parity: usize) -> Result<Self, FecError> {
        Self::with_kernel(data, parity, Kernel::fastest())
    }

    /// The same with a kernel of the caller's choice, to compare or to test them: the bytes are the same.
    ///
    /// # Errors
    /// As for [`ReedSolomon::new`].
    pub fn with_kernel(data: usize, parity: usize, kernel: Kernel) -> Result<Self, FecError> {
        let all = data.checked_add(parity).filter(|&all| all <= MAX_SHARDS);
        let (Some(all), 1.., 1..) = (all, data, parity) else {
            return Err(FecError::ShardCounts { data, parity });
        };
        let matrix = Matrix::new(data, parity);
        let coefficients = (0..data)
            .flat_map(|column| (data..all).map(move |row| (row, column)))
            .map(|(row, column)| matrix.coefficient(row, column))
            .collect();
        Ok(Self { data, parity, kernel, matrix, coefficients })
    }

    /// Number of data shards.
    pub fn data_shards(&self) -> usize {
        self.data
    }

    /// Number of parity shards: as many shards can be recovered.
    pub fn parity_shards(&self) -> usize {
        self.parity
    }

    /// Bytes of its tables.
    pub(super) const fn memory(&self) -> usize {
        size_of::<Self>() + self.coefficients.len() + self.data + self.parity
    }

    /// What it computes with.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Writes the parity of all data shards. Parity shards longer than the longest data shard end in zeros.
    ///
    /// # Errors
    /// [`FecError::WrongCount`] unless there are as many shards as the code has, [`FecError::WrongLength`] if parity
    /// shards differ in length or a data shard is longer.
    pub fn encode(&self, data: &[impl AsRef<[u8]>], parity: &mut [impl AsMut<[u8]>]) -> Result<(), FecError> {
        check_count(data.len(), self.data)?;
        check_count(parity.len(), self.parity)?;
        let len = parity[0].as_mut().len();
        let lengths = parity.iter_mut().map(|row| row.as_mut().len());
        if let Some(found) = lengths.into_iter().find(|&found| found != len) {
            return Err(FecError::WrongLength { expected: len, found });
        }
        if let Some(found) = data.iter().map(|shard| shard.as_ref().len()).find(|&found| found > len) {
            return Err(FecError::WrongLength { expected: len, found });
        }
        let sources = data.iter().map(AsRef::as_ref);
        let rows = parity.iter_mut().map(AsMut::as_mut);
        let filled = self.kernel.add_products(&self.coefficients, self.parity, sources, rows, 0);
        if filled < len {
            parity.iter_mut().for_each(|row| row.as_mut()[filled..].fill(0));
        }
        Ok(())
    }

    /// Adds data shard number `index` to the parity, which is zero before the first of a group and complete after the
    /// last, in any order. The shard may be shorter than the parity shards.
    ///
    /// ```
    /// # use kcp9::fec::ReedSolomon;
    /// let code = ReedSolomon::new(2, 1)?;
    /// let mut parity = [[0; 5]];
    /// code.encode_one(0, b"first", &mut parity)?;
    /// code.encode_one(1, b"2nd", &mut parity)?;
    ///
    /// let mut at_once = [[0; 5]];
    /// code.encode(&[&b"first"[..], b"2nd"], &mut at_once)?;
    /// assert_eq!(parity, at_once);
    /// # Ok::<(), kcp9::fec::FecError>(())
    /// ```
    ///
    /// # Errors
    /// [`FecError::WrongIndex`] if the code has no such data shard, [`FecError::WrongCount`] unless there are as many
    /// parity shards as the code has, [`FecError::WrongLength`] if the data shard is longer than one of them.
    pub fn encode_one(
        &self,
        index: usize,
        shard: &[u8],
        parity: &mut [impl AsMut<[u8]>],
    ) -> Result<(), FecError> {
        self.check_index(index)?;
        check_count(parity.len(), self.parity)?;
        let mut lengths = parity.iter_mut().map(|row| row.as_mut().len());
        if let Some(expected) = lengths.find(|&len| len < shard.len()) {
            return Err(FecError::WrongLength { expected, found: shard.len() });
        }
        let rows = parity.iter_mut().map(AsMut::as_mut);
        let source = core::iter::once(shard);
        self.kernel.add_products(self.coefficients_of(index), self.parity, source, rows, shard.len());
        Ok(())
    }

    /// Adds a data shard to all parity rows, which begin at every `stride` bytes of `memory` and whose first `filled`
    /// bytes count; see [`Kernel::add_product`].
    #[inline]
    pub(super) fn add(
        &self,
        index: usize,
        shard: &[u8],
        memory: &mut [u8],
        stride: usize,
        filled: usize,
    ) -> usize {
        self.kernel.add_product(self.coefficients_of(index), shard, memory, stride, filled)
    }

    /// The coefficients of a data shard in all parity shards.
    #[inline]
    fn coefficients_of(&self, index: usize) -> &[u8] {
        &self.coefficients[index * self.parity..][..self.parity]
    }

    /// Parity row number `index` of all data shards, none longer than `row`, which is zero.
    pub(super) fn encode_row<'s>(
        &self,
        index: usize,
        data: impl Iterator<Item = &'s [u8]> + Clone,
        row: &mut [u8],
    ) {
        let coefficients = self.coefficients.get(index..).unwrap_or_default();
        self.kernel.add_products(coefficients, self.parity, data, core::iter::once(row), 0);
    }

    #[inline]
    pub(super) fn check_index(&self, index: usize) -> Result<(), FecError> {
        if index < self.data { Ok(()) } else { Err(FecError::WrongIndex { index, data: self.data }) }
    }
}

impl fmt::Debug for ReedSolomon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReedSolomon")
            .field("data_shards", &self.data)
            .field("parity_shards", &self.parity)
            .field("kernel", &self.kernel)
            .finish()
    }
}

pub(super) fn check_count(found: usize, expected: usize) -> Result<(), FecError> {
    if found == expected { Ok(()) } else { Err(FecError::WrongCount { expected, found }) }
}
