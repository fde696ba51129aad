//! What the tests here share.

use std::{net::SocketAddr, time::Duration};

use kcp9::{KcpConfig, KcpConfigBuilder, KcpListener, KcpStream, proto::Extensions};

pub use kcp9_tests::{spawn, within};

/// Any free port of the loopback.
pub const ANY: &str = "127.0.0.1:0";

pub fn builder() -> KcpConfigBuilder {
    KcpConfig::builder().extensions(Extensions::Preferred)
}

pub fn config() -> KcpConfig {
    builder().build().unwrap()
}

pub async fn listen() -> (KcpListener, SocketAddr) {
    let listener = KcpListener::bind(ANY, config()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

pub async fn connect(addr: SocketAddr) -> KcpStream {
    KcpStream::connect(addr, config()).await.unwrap()
}

/// Waits until `condition` holds; panics with `what` when it does not within `seconds`.
pub async fn until(seconds: u64, what: &str, mut condition: impl FnMut() -> bool + Send) {
    within(seconds, what, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
