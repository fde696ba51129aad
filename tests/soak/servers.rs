//! A server that echoes, and restarts.

use std::{io::ErrorKind, net::SocketAddr, time::Duration};

use kcp9::{KcpConfig, KcpListener};
use kcp9_tests::{spawn, within};
use tokio::task::JoinHandle;

/// Nobody else here uses this address, so nobody takes a server's port while it restarts.
const ANY: &str = "127.0.0.77:0";

pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    config: KcpConfig,
    serving: JoinHandle<()>,
    endpoint: kcp9::KcpEndpoint,
}

impl Server {
    pub(crate) async fn start(config: KcpConfig) -> Self {
        Self::over(ANY.parse().unwrap(), config).await
    }

    async fn over(addr: SocketAddr, config: KcpConfig) -> Self {
        let listener = bind(addr, &config).await;
        let (addr, endpoint) = (listener.local_addr().unwrap(), listener.endpoint().clone());
        Self { addr, config, serving: spawn(serve(listener)), endpoint }
    }

    /// As a program that crashes and is started again: nobody is told anything.
    pub(crate) async fn restart(&mut self) {
        // What is sent from here on goes out of a port where nobody listens.
        let elsewhere = std::net::UdpSocket::bind(ANY).unwrap();
        self.endpoint.rebind(elsewhere).unwrap();
        self.endpoint.abort();
        let before = std::mem::replace(&mut self.serving, spawn(async {}));
        before.await.unwrap();
        *self = Self::over(self.addr, self.config.clone()).await;
    }

    pub(crate) async fn stop(self) {
        let _ = self.endpoint.shutdown(Duration::from_secs(20)).await;
        within(30, "the server ends", self.serving).await.unwrap();
        assert_eq!(self.endpoint.endpoint_stats().state.sessions, 0);
    }
}

/// Listens as soon as the socket before is closed.
async fn bind(addr: SocketAddr, config: &KcpConfig) -> KcpListener {
    let attempts = async {
        loop {
            match KcpListener::bind(addr, config.clone()).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                outcome => return outcome.unwrap(),
            }
        }
    };
    within(5, "the port is free", attempts).await
}

async fn serve(listener: KcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        spawn(async move {
            let (mut reader, mut writer) = stream.into_split();
            if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
                let _ = tokio::io::AsyncWriteExt::shutdown(&mut writer).await;
            }
        });
    }
}
