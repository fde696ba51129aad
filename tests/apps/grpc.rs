//! gRPC by tonic. The service is written by hand, much as tonic's compiler would write it.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    pin::Pin,
    task::{Context, Poll},
};

use hyper::{Request as HttpRequest, Response as HttpResponse, Uri};
use hyper_util::rt::TokioIo;
use kcp9::{KcpHandle, KcpStream};
use tokio::sync::oneshot;
use tonic::{
    Request, Response, Status,
    body::Body,
    client, server,
    server::NamedService,
    service::InterceptorLayer,
    transport::{Channel, Endpoint, Server, server::TcpConnectInfo},
};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

use crate::support::{connect, listen, spawn, until, within};

const PATH: &str = "/kcp9.Echo/Say";

type Codec = ProstCodec<String, String>;

/// Answers `session` with what it knows of the request's session, `peer` with what tonic knows, and the rest with itself.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "kcp9.Echo";
}

struct Say;

impl Service<Request<String>> for Say {
    type Response = Response<String>;
    type Error = Status;
    type Future = Ready<Result<Response<String>, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let session = request.extensions().get::<KcpHandle>().expect("tonic hands it on").clone();
        ready(match request.get_ref().as_str() {
            "session" => Ok(Response::new(format!("{} {}", session.peer_addr().port(), session.conv()))),
            "peer" => Ok(Response::new(format!("{:?}", request.remote_addr().map(|peer| peer.port())))),
            "abort" => {
                session.abort();
                Err(Status::aborted("nobody hears this"))
            }
            _ => Ok(Response::new(request.into_inner())),
        })
    }
}

impl Service<HttpRequest<Body>> for Echo {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        assert_eq!(request.uri().path(), PATH);
        Box::pin(async { Ok(server::Grpc::new(Codec::default()).unary(Say, request).await) })
    }
}

/// Says the addresses where tonic looks for them.
fn say_addresses(mut request: Request<()>) -> Result<Request<()>, Status> {
    let session = request.extensions().get::<KcpHandle>().expect("tonic hands it on");
    let (local_addr, remote_addr) = (Some(session.local_addr()), Some(session.peer_addr()));
    request.extensions_mut().insert(TcpConnectInfo { local_addr, remote_addr });
    Ok(request)
}

/// A client whose stream is one that has its handle kept.
async fn client(stream: KcpStream) -> client::Grpc<Channel> {
    let mut stream = Some(stream);
    let connector = service_fn(move |_: Uri| {
        let stream = stream.take().map(TokioIo::new).ok_or_else(|| Status::unavailable("one stream only"));
        ready(stream)
    });
    let endpoint = Endpoint::from_static("http://kcp9");
    let channel =
        within(10, "the client connects", endpoint.connect_with_connector(connector)).await.unwrap();
    client::Grpc::new(channel)
}

async fn say(client: &mut client::Grpc<Channel>, words: &str) -> Result<String, Status> {
    within(10, "the client is ready", client.ready())
        .await
        .map_err(|error| Status::from_error(error.into()))?;
    let request = Request::new(words.to_owned());
    let answer = client.unary(request, PATH.parse().unwrap(), Codec::default());
    within(10, "an answer", answer).await.map(Response::into_inner)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_knows_the_session_of_a_request() {
    let (listener, addr) = listen().await;
    let serving = spawn(async move {
        Server::builder().add_service(Echo).serve_with_incoming(listener).await.unwrap();
    });
    for _ in 0..3 {
        let stream = connect(addr).await;
        let handle = stream.handle();
        let mut client = client(stream).await;
        let session = format!("{} {}", handle.local_addr().port(), handle.conv());
        assert_eq!(say(&mut client, "session").await.unwrap(), session);
        // It is no TCP connection.
        assert_eq!(say(&mut client, "peer").await.unwrap(), "None");
        let long = "kcp9 ".repeat(100_000);
        assert_eq!(say(&mut client, &long).await.unwrap(), long);
        // The handle reaches the session itself.
        assert!(say(&mut client, "abort").await.is_err());
        within(10, "the session ends", handle.closed()).await;
    }
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interceptor_says_the_address_where_tonic_looks_for_it() {
    let (listener, addr) = listen().await;
    let serving = spawn(async move {
        let layer = InterceptorLayer::new(say_addresses);
        Server::builder().layer(layer).add_service(Echo).serve_with_incoming(listener).await.unwrap();
    });
    let stream = connect(addr).await;
    let port = stream.local_addr().unwrap().port();
    assert_eq!(say(&mut client(stream).await, "peer").await.unwrap(), format!("Some({port})"));
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_told_to_stop_ends_its_sessions_in_order() {
    let (listener, addr) = listen().await;
    let endpoint = listener.endpoint().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = spawn(async move {
        let stopped = async { stopped.await.unwrap() };
        Server::builder().add_service(Echo).serve_with_incoming_shutdown(listener, stopped).await.unwrap();
    });
    let mut client = client(connect(addr).await).await;
    assert_eq!(say(&mut client, "hello").await.unwrap(), "hello");
    stop.send(()).unwrap();
    within(10, "the server ends", serving).await.unwrap();
    until(10, "no session is left", || endpoint.endpoint_stats().state.sessions == 0).await;
    assert!(say(&mut client, "hello").await.is_err(), "the server answers after its end");
}
