//! Decoding: the missing shards, and only those.

use alloc::{vec, vec::Vec};

use super::{DecodeCache, FecError, ReedSolomon, decode_cache::ShardSet, reed_solomon::check_count};

/// What is to be computed from the shards that are present.
struct Plan {
    /// The shards to compute from: the first `data` that are present.
    present: ShardSet,
    /// Data shards that are missing.
    missing: usize,
    /// Bytes of the parity shards, hence of recovered ones.
    len: usize,
}

impl ReedSolomon {
    /// Fills in all missing shards; `shards` are the data shards followed by the parity shards. Recovered shards have
    /// the length of the parity shards, or that of the longest data shard if there is no parity.
    ///
    /// # Errors
    /// [`FecError::WrongCount`] unless there is an entry for each shard of the code, [`FecError::TooFewShards`] if more
    /// are missing than there are parity shards, [`FecError::WrongLength`] if parity shards differ in length or a data
    /// shard is longer.
    pub fn reconstruct(&self, shards: &mut [Option<Vec<u8>>]) -> Result<(), FecError> {
        self.reconstruct_data(shards)?;
        let (data, parity) = shards.split_at_mut(self.data_shards());
        if parity.iter().all(Option::is_some) {
            return Ok(());
        }
        let of_parity = parity.iter().flatten().map(Vec::len).next();
        let len = of_parity.or_else(|| data.iter().flatten().map(Vec::len).max()).unwrap_or(0);
        for (index, row) in parity.iter_mut().enumerate().filter(|(_, row)| row.is_none()) {
            let row = row.insert(vec![0; len]);
            self.encode_row(index, data.iter().flatten().map(Vec::as_slice), row);
        }
        Ok(())
    }

    /// Fills in the missing data shards and leaves missing parity shards out.
    ///
    /// # Errors
    /// As for [`ReedSolomon::reconstruct`].
    pub fn reconstruct_data(&self, shards: &mut [Option<Vec<u8>>]) -> Result<(), FecError> {
        let plan = self.plan(shards)?;
        let mut recovered = vec![vec![0; plan.len]; plan.missing];
        self.recover(&plan, &mut DecodeCache::new(), shards, &mut recovered);
        let missing = shards[..self.data_shards()].iter_mut().filter(|shard| shard.is_none());
        missing.zip(recovered).for_each(|(shard, recovered)| *shard = Some(recovered));
        Ok(())
    }

    /// Writes the missing data shards, in order, to the first of `out`; returns how many there are, which is 0 if none
    /// was missing. `shards` are the data shards followed by the parity shards.
    ///
    /// Allocates nothing but the coefficients of a new set of shards in `cache`.
    ///
    /// ```
    /// use kcp9::fec::{DecodeCache, ReedSolomon};
    ///
    /// let code = ReedSolomon::new(2, 1)?;
    /// let mut parity = [[0; 5]];
    /// code.encode(&[&b"first"[..], b"2nd"], &mut parity)?;
    ///
    /// let mut cache = DecodeCache::new();
    /// let mut out = [[0; 5]; 1];
    /// let shards = [None, Some(&b"2nd"[..]), Some(&parity[0][..])];
    /// assert_eq!(code.reconstruct_data_into(&mut cache, &shards, &mut out)?, 1);
    /// assert_eq!(&out[0], b"first");
    /// # Ok::<(), kcp9::fec::FecError>(())
    /// ```
    ///
    /// # Errors
    /// As for [`ReedSolomon::reconstruct`]; also [`FecError::WrongCount`] if `out` has fewer shards than are missing,
    /// and [`FecError::WrongLength`] if one that is needed has not the length of the parity shards.
    pub fn reconstruct_data_into(
        &self,
        cache: &mut DecodeCache,
        shards: &[Option<impl AsRef<[u8]>>],
        out: &mut [impl AsMut<[u8]>],
    ) -> Result<usize, FecError> {
        let plan = self.plan(shards)?;
        let found = out.len();
        let Some(out) = out.get_mut(..plan.missing) else {
            return Err(FecError::WrongCount { expected: plan.missing, found });
        };
        for shard in out.iter_mut() {
            let found = shard.as_mut().len();
            if found != plan.len {
                return Err(FecError::WrongLength { expected: plan.len, found });
            }
        }
        self.recover(&plan, cache, shards, out);
        Ok(plan.missing)
    }

    fn plan(&self, shards: &[Option<impl AsRef<[u8]>>]) -> Result<Plan, FecError> {
        let needed = self.data_shards();
        check_count(shards.len(), needed + self.parity_shards())?;
        let mut set = ShardSet::default();
        let (mut present, mut missing, mut longest) = (0, 0, 0);
        let (mut of_parity, mut other) = (None, None);
        // One walk over all shards: of large groups, most may be missing.
        for (index, shard) in shards.iter().enumerate() {
            let is_data = index < needed;
            let Some(shard) = shard else {
                missing += usize::from(is_data);
                continue;
            };
            if present < needed {
                set.insert(index);
                present += 1;
            }
            let len = shard.as_ref().len();
            if is_data {
                longest = longest.max(len);
            } else if *of_parity.get_or_insert(len) != len {
                other.get_or_insert(len);
            }
        }
        let len = of_parity.unwrap_or(longest);
        if let Some(found) = other.or((longest > len).then_some(longest)) {
            return Err(FecError::WrongLength { expected: len, found });
        }
        if present < needed {
            return Err(FecError::TooFewShards { present, needed });
        }
        Ok(Plan { present: set, missing, len })
    }

    /// Writes the missing data shards to `out`, which has as many shards, of the plan's length.
    fn recover(
        &self,
        plan: &Plan,
        cache: &mut DecodeCache,
        shards: &[Option<impl AsRef<[u8]>>],
        out: &mut [impl AsMut<[u8]>],
    ) {
        if plan.missing == 0 {
            return;
        }
        let (data, missing) = (self.data_shards(), plan.missing);
        let code = (data, self.parity_shards());
        let coefficients = cache.coefficients(code, &plan.present, data * missing, |coefficients| {
            self.matrix.recovery(&plan.present, coefficients);
        });
        let sources = shards.iter().flatten().take(data).map(AsRef::as_ref);
        let rows = out.iter_mut().map(AsMut::as_mut);
        let filled = self.kernel.add_products(coefficients, missing, sources, rows, 0);
        debug_assert_eq!(filled, plan.len, "a missing shard takes a parity shard");
    }
}
