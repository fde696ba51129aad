//! The program `c-peer`: building it with the C library that `KCP9_IKCP` names. It has go-peer's flags, and runs like it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::go_peer;

/// The environment variable with the folder of `ikcp.c` and `ikcp.h`.
const LIBRARY: &str = "KCP9_IKCP";

/// Live peers that are programs: kcp-go and, where its source is, ikcp.
pub fn programs() -> impl Iterator<Item = PathBuf> {
    go_peer::all().into_iter().chain(built())
}

/// The program, if the library's folder is named.
fn built() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| env::var_os(LIBRARY).map(|library| build(Path::new(&library)))).clone()
}

/// # Panics
/// Without a C compiler or the library: whoever names it wants it tested.
fn build(library: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/c-peer/main.c");
    let peer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-peer");
    let cc = Command::new("cc")
        .args(["-O2", "-o"])
        .args([&peer, &source, &library.join("ikcp.c")])
        .arg("-I")
        .arg(library)
        .output()
        .unwrap_or_else(|error| panic!("cannot run `cc`: {error}"));
    assert!(cc.status.success(), "c-peer does not build: {}", String::from_utf8_lossy(&cc.stderr));
    peer
}
