//! What tonic's server asks of a connection. The stream is a type of this crate and the trait is tonic's: an application could not
//! write this impl itself.

use tonic::transport::server::Connected;

use super::{handle::KcpHandle, stream::KcpStream};

/// For tonic's servers, with the feature `tonic`. [`KcpListener`](crate::KcpListener) is the stream of connections that
/// `serve_with_incoming` takes.
///
/// A service finds the session of a request, with its peer's address and statistics, among the request's extensions. tonic's own
/// `Request::remote_addr` looks for a `TcpConnectInfo` there; an interceptor can say it where other code asks for that:
///
/// ```
/// use kcp9::KcpHandle;
/// use tonic::{Request, Status, transport::server::TcpConnectInfo};
///
/// fn say_addresses(mut request: Request<()>) -> Result<Request<()>, Status> {
///     if let Some(session) = request.extensions().get::<KcpHandle>() {
///         let (local_addr, remote_addr) = (Some(session.local_addr()), Some(session.peer_addr()));
///         request.extensions_mut().insert(TcpConnectInfo { local_addr, remote_addr });
///     }
///     Ok(request)
/// }
/// # let _ = say_addresses;
/// ```
impl Connected for KcpStream {
    type ConnectInfo = KcpHandle;

    fn connect_info(&self) -> KcpHandle {
        self.handle()
    }
}
