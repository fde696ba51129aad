//! Prefetching: cache lines are loaded before they are needed.
#![allow(unsafe_code)]

/// Bytes of a cache line. Where lines are longer, some are prefetched twice.
pub(super) const CACHE_LINE: usize = 64;

/// Prefetches the cache lines of `bytes`. Does nothing on processors whose instruction for it is not known here.
#[inline]
pub(super) fn prefetch(bytes: &[u8]) {
    // Four in one step: the loop costs as much as the prefetches.
    let (blocks, rest) = bytes.as_chunks::<{ 4 * CACHE_LINE }>();
    for block in blocks {
        line(block);
        line(&block[CACHE_LINE..]);
        line(&block[2 * CACHE_LINE..]);
        line(&block[3 * CACHE_LINE..]);
    }
    rest.chunks(CACHE_LINE).for_each(line);
}

#[inline]
fn line(bytes: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 CPU has SSE. A prefetch changes nothing that a program can see, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = bytes;
}
