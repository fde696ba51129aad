//! Tables that are compared to the letter: runs are deterministic.

use std::{fs, path::Path};

/// Compares `found` of runs with `seed` with the committed `tests/snapshots/{name}`, or makes it that.
pub(crate) fn check(name: &str, seed: u64, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == found,
        "tests/snapshots/{name} differs (seed {seed}). If the change is meant, run the test again with UPDATE_SNAPSHOTS=1 and \
         commit it.\n\n\
         expected:\n{expected}\nfound:\n{found}"
    );
}
