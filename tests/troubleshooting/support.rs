//! What the cases share.

use std::{
    io::{self, ErrorKind},
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpConfigBuilder, KcpError, KcpListener, KcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub use kcp9_tests::within;

/// Any free port of the loopback.
pub const ANY: &str = "127.0.0.1:0";
/// How long a peer may be silent here: the page says `dead_timeout`, which is 30 s by default.
pub const DEAD_TIMEOUT: Duration = Duration::from_secs(1);

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The default settings, but that a silent peer counts as dead after [`DEAD_TIMEOUT`].
pub fn impatient() -> KcpConfigBuilder {
    KcpConfig::builder().dead_timeout(DEAD_TIMEOUT)
}

pub async fn listen(config: KcpConfig) -> KcpListener {
    KcpListener::bind(ANY, config).await.unwrap()
}

pub async fn connect(listener: &KcpListener, config: KcpConfig) -> KcpStream {
    KcpStream::connect(listener.local_addr().unwrap(), config).await.unwrap()
}

/// A session of which one byte has arrived at the server.
pub async fn session(listener: &KcpListener, config: KcpConfig) -> (KcpStream, KcpStream) {
    let client = connect(listener, config).await;
    accept(listener, client).await
}

/// The session that `client` begins with one byte.
pub async fn accept(listener: &KcpListener, mut client: KcpStream) -> (KcpStream, KcpStream) {
    let greeting = async {
        client.write_all(b"!").await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), b'!');
        server
    };
    let server = within(5, "a client is accepted", greeting).await;
    (client, server)
}

/// Waits until `condition` holds; panics with `what` when it does not within `seconds`.
pub async fn until(seconds: u64, what: &str, mut condition: impl FnMut() -> bool + Send) {
    within(seconds, what, async {
        while !condition() {
            tokio::time::sleep(ms(5)).await;
        }
    })
    .await;
}

/// The kind of an error, and the reason inside of it.
pub fn why(error: &io::Error) -> (ErrorKind, Option<KcpError>) {
    (error.kind(), KcpError::find(error))
}

/// How `work` failed, and after what time.
pub async fn failure<T: std::fmt::Debug>(
    seconds: u64,
    what: &str,
    work: impl Future<Output = io::Result<T>> + Send,
) -> (ErrorKind, Option<KcpError>, Duration) {
    let begun = Instant::now();
    let error = within(seconds, what, work).await.expect_err(what);
    let (kind, reason) = why(&error);
    (kind, reason, begun.elapsed())
}

/// Asserts that a time is [`DEAD_TIMEOUT`], as far as one can tell on a busy machine.
pub fn assert_dead_timeout(took: Duration) {
    assert!(took >= DEAD_TIMEOUT - ms(50), "after {took:?} already");
    assert!(took < DEAD_TIMEOUT + Duration::from_secs(2), "only after {took:?}");
}
