//! Cache lines asked for before they are needed.
#![allow(unsafe_code)]

/// Asks for the cache lines of `bytes`, which will be overwritten; where the CPU has no such instruction, does nothing.
#[inline]
pub(super) fn for_writing(bytes: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in bytes.chunks(64) {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: every x86-64 CPU has SSE. A prefetch changes nothing that a program can see, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.as_ptr().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = bytes;
}
