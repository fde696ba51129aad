//! Tests over many seeds, cut into batches that run in parallel.

/// Makes tests of `$seeds` seeds each. Batch `n` hands the seeds from `n * $seeds` on to `$run`, one by one.
#[macro_export]
macro_rules! batches {
    ($run:path, $seeds:expr; $($(#[$meta:meta])* $name:ident: $batch:expr;)*) => {$(
        #[test]
        $(#[$meta])*
        fn $name() {
            ($batch * $seeds..($batch + 1) * $seeds).for_each($run);
        }
    )*};
}
