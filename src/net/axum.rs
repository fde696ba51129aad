//! What axum's server asks of a listener and of its connections. Both are types of this crate and the traits are axum's: an
//! application could not write these impls itself.

use std::{future::pending, io, net::SocketAddr};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};

use super::{handle::KcpHandle, listener::KcpListener, stream::KcpStream};

/// For `axum::serve`, with the feature `axum`.
///
/// A session takes the place of a TCP connection. When the listener has ended, by [`close`](KcpListener::close) or another of its
/// calls, no connection comes any more, and those that there are go on: axum's server has no error that would end it, and ends by
/// `with_graceful_shutdown`, which drops the listener.
///
/// Handlers learn who asks by `ConnectInfo<KcpHandle>`; or by `ConnectInfo<SocketAddr>`, as over TCP, where the listener went
/// through axum's `ListenerExt::tap_io`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use axum::{Router, extract::ConnectInfo, routing::get};
/// use kcp9::{KcpConfig, KcpHandle, KcpListener, KcpStream};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// async fn who(ConnectInfo(session): ConnectInfo<KcpHandle>) -> String {
///     format!("{} in conversation {}", session.peer_addr(), session.conv())
/// }
///
/// let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
/// let addr = listener.local_addr()?;
/// let app = Router::new().route("/", get(who)).into_make_service_with_connect_info::<KcpHandle>();
/// tokio::spawn(async move { axum::serve(listener, app).await });
///
/// let mut stream = KcpStream::connect(addr, KcpConfig::default()).await?;
/// stream.write_all(b"GET / HTTP/1.1\r\nhost: kcp9\r\nconnection: close\r\n\r\n").await?;
/// let mut answer = String::new();
/// stream.read_to_string(&mut answer).await?;
/// assert!(answer.ends_with(&format!("in conversation {}", stream.conv())));
/// # Ok(())
/// # }
/// ```
impl Listener for KcpListener {
    type Io = KcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (KcpStream, SocketAddr) {
        match Self::accept(self).await {
            Ok(accepted) => accepted,
            // It has ended: no error of a listener passes, so there is nothing to try again.
            Err(_) => pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

/// For axum's `ConnectInfo`, with the feature `axum`: the session of a request, with its peer's address and statistics.
impl Connected<IncomingStream<'_, KcpListener>> for KcpHandle {
    fn connect_info(stream: IncomingStream<'_, KcpListener>) -> Self {
        stream.io().handle()
    }
}
