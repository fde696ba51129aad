//! What tests of real sockets share: tasks, waits with a limit of time, and the programs of the examples.
//!
//! A task and a wait are compiled once for each type of outcome, not once for each place: nothing else takes a test of real
//! sockets as long to build.

#[cfg(feature = "tracing")]
pub mod collector;

use std::{
    path::{Path, PathBuf},
    pin::{Pin, pin},
    time::Duration,
};

use tokio::task::JoinHandle;

/// As `tokio::spawn` does.
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let work: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(work);
    tokio::spawn(work)
}

/// The outcome of `work`; panics with `what` when it takes longer than `seconds`.
pub async fn within<T>(seconds: u64, what: &str, work: impl Future<Output = T> + Send) -> T {
    let work: Pin<&mut (dyn Future<Output = T> + Send)> = pin!(work);
    match tokio::time::timeout(Duration::from_secs(seconds), work).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("{what}: not done after {seconds} s"),
    }
}

/// The program of an example, next to this test. `cargo test` builds it; `cargo test --test NAME` does not.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    let profile = test.parent().and_then(Path::parent).expect("a test lies in `deps`");
    let program = profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(program.exists(), "run `cargo build --example {name}` first: there is no {}", program.display());
    program
}

/// A program of a package of its own, next to this test. `cargo test` builds it; `cargo test --test NAME` does not.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    let profile = test.parent().and_then(Path::parent).expect("a test lies in `deps`");
    let program = profile.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(program.exists(), "run `cargo build --bin {name}` first: there is no {}", program.display());
    program
}

/// The code in the README and in `docs/` compiles and does what the pages say. It needs crates that kcp9's own doctests have not. What
/// needs `tls`, `tonic` or `websocket` is compiled only with these features, as the step `examples` of `.ci/run` does it.
#[cfg(all(
    doctest,
    feature = "tokio",
    feature = "mux",
    feature = "kcptun-ciphers",
    feature = "aead",
    feature = "password"
))]
mod pages {
    #[cfg(feature = "axum")]
    #[doc = include_str!("../README.md")]
    struct Readme;

    #[doc = include_str!("../docs/migration.md")]
    struct Migration;

    #[doc = include_str!("../docs/cookbook.md")]
    struct Cookbook;

    #[doc = include_str!("../docs/troubleshooting.md")]
    struct Troubleshooting;

    #[doc = include_str!("../docs/tuning.md")]
    struct Tuning;

    #[doc = include_str!("../docs/extensions.md")]
    struct Extensions;

    #[cfg(feature = "noise")]
    #[doc = include_str!("../docs/secure-sessions.md")]
    struct SecureSessions;

    #[cfg(feature = "metrics")]
    #[doc = include_str!("../docs/metrics.md")]
    struct Metrics;

    #[cfg(feature = "tracing")]
    #[doc = include_str!("../docs/tracing.md")]
    struct Tracing;
}
