//! The opening handshakes, by hyper.
//!
//! yawc has them, too, but its client does not tell which subprotocol the server chose, and its server negotiates compression in a way
//! that browsers refuse (see `extension`).

use std::{
    convert::Infallible,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use http_body_util::{Empty, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Version,
    body::{Bytes, Incoming},
    header::{
        CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT,
        SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
    },
    service::service_fn,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::timeout;
use yawc::{HttpWebSocket, Role};

use super::{
    extension::Agreed,
    settings::Settings,
    socket::{Error, Socket},
    transport::Stream,
};

/// Asks the server at the other end of `stream` for a WebSocket at `path`. `host` is what the URL calls it.
///
/// # Errors
/// Those of the stream; the server refuses, does not answer in ten seconds, or answers what it was not asked.
pub(crate) async fn connect(
    stream: Stream,
    host: &str,
    path: &str,
    settings: &Settings,
) -> Result<Socket, Error> {
    within(ask(stream, host, path, settings)).await
}

/// Answers a client's request for a WebSocket; other requests are refused, but for the page's.
///
/// # Errors
/// Those of the stream; the client has ended or takes more than ten seconds without having asked for a WebSocket.
pub(crate) async fn accept(stream: Stream, settings: &Settings) -> Result<Socket, Error> {
    within(answer(stream, settings)).await
}

async fn within(handshake: impl Future<Output = Result<Socket, Error>>) -> Result<Socket, Error> {
    timeout(HANDSHAKE, handshake).await.unwrap_or_else(|_| Err(refused("the peer takes too long")))
}

async fn ask(stream: Stream, host: &str, path: &str, settings: &Settings) -> Result<Socket, Error> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(refused)?;
    let key = BASE64_STANDARD.encode(nonce);
    let mut request = Request::get(path)
        .header(HOST, host)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, key);
    if !settings.subprotocols.is_empty() {
        request = request.header(SEC_WEBSOCKET_PROTOCOL, settings.subprotocols.join(", "));
    }
    if let Some(deflate) = settings.deflate {
        request = request.header(SEC_WEBSOCKET_EXTENSIONS, deflate.offer());
    }
    let mut request = request.body(Empty::<Bytes>::new()).map_err(refused)?;
    // What a server has to answer to this key.
    let (expected, _) = HttpWebSocket::upgrade(&mut request).map_err(refused)?;

    let (mut requests, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(refused)?;
    // It ends with the upgrade, or when `requests` is dropped.
    tokio::spawn(connection.with_upgrades());
    let mut response = requests.send_request(request).await.map_err(refused)?;
    let headers = response.headers();
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refused(format!("the server answered {}", response.status())));
    }
    if !lists(headers, UPGRADE, "websocket") || !lists(headers, CONNECTION, "upgrade") {
        return Err(refused("the server switches to another protocol"));
    }
    if headers.get(SEC_WEBSOCKET_ACCEPT) != expected.headers().get(SEC_WEBSOCKET_ACCEPT) {
        return Err(refused("the server answered to another key"));
    }
    let subprotocol = all_of(headers, SEC_WEBSOCKET_PROTOCOL);
    if let Some(chosen) = &subprotocol
        && !settings.subprotocols.contains(chosen)
    {
        return Err(refused("the server chose a subprotocol that was not offered"));
    }
    let agreed = match (all_of(headers, SEC_WEBSOCKET_EXTENSIONS), settings.deflate) {
        (None, _) => None,
        (Some(extensions), Some(deflate)) => Some(deflate.confirm(&extensions).map_err(refused)?),
        (Some(_), None) => return Err(refused("the server chose an extension that was not offered")),
    };
    let upgraded = hyper::upgrade::on(&mut response).await.map_err(refused)?;
    socket(upgraded, Role::Client, agreed, subprotocol, settings)
}

async fn answer(stream: Stream, settings: &Settings) -> Result<Socket, Error> {
    let switching = Mutex::new(None);
    let service = service_fn(|request| {
        let response = match switch(request, settings) {
            Ok((response, switched)) => {
                *switching.lock().unwrap_or_else(PoisonError::into_inner) = Some(switched);
                response
            }
            Err(other) => other.answer(),
        };
        async { Ok::<_, Infallible>(response) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE).max_buf_size(MAX_HEAD);
    http.serve_connection(TokioIo::new(stream), service).with_upgrades().await.map_err(refused)?;
    let switched = switching.into_inner().unwrap_or_else(PoisonError::into_inner);
    let Switched { upgrade, agreed, subprotocol } =
        switched.ok_or_else(|| refused("the client asked for no WebSocket"))?;
    socket(upgrade.await.map_err(refused)?, Role::Server, agreed, subprotocol, settings)
}

struct Switched {
    upgrade: OnUpgrade,
    agreed: Option<Agreed>,
    subprotocol: Option<String>,
}

type Answer = Response<Full<Bytes>>;

/// What a request that is not for a WebSocket gets. The connection ends behind it.
enum Other {
    Page(&'static str),
    Refusal(StatusCode),
}

/// The answer to a request for a WebSocket, and what was agreed on by it.
fn switch(mut request: Request<Incoming>, settings: &Settings) -> Result<(Answer, Switched), Other> {
    let headers = request.headers();
    if request.method() != Method::GET || request.version() != Version::HTTP_11 {
        return Err(Other::Refusal(StatusCode::METHOD_NOT_ALLOWED));
    }
    if !lists(headers, UPGRADE, "websocket") || !lists(headers, CONNECTION, "upgrade") {
        let page = settings.page.filter(|_| request.uri().path() == "/" && !headers.contains_key(UPGRADE));
        return Err(page.map_or(Other::Refusal(StatusCode::UPGRADE_REQUIRED), Other::Page));
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(Other::Refusal(StatusCode::UPGRADE_REQUIRED));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| BASE64_STANDARD.decode(key).ok());
    if key.is_none_or(|key| key.len() != 16) {
        return Err(Other::Refusal(StatusCode::BAD_REQUEST));
    }
    let wishes = all_of(headers, SEC_WEBSOCKET_PROTOCOL).unwrap_or_default();
    let mut wishes = wishes.split(',').map(str::trim);
    let subprotocol = wishes.find(|wish| settings.subprotocols.iter().any(|name| name == wish));
    let subprotocol = subprotocol.map(str::to_owned);
    let offers = all_of(headers, SEC_WEBSOCKET_EXTENSIONS).unwrap_or_default();
    let agreed = settings.deflate.and_then(|deflate| deflate.accept(&offers));

    let upgrade = hyper::upgrade::on(&mut request);
    let Ok((response, _)) = HttpWebSocket::upgrade(&mut request) else {
        return Err(Other::Refusal(StatusCode::BAD_REQUEST));
    };
    let mut response = response.map(|_| Full::default());
    let named = subprotocol.clone().map(|name| (SEC_WEBSOCKET_PROTOCOL, name));
    let extended = agreed.map(|agreed| (SEC_WEBSOCKET_EXTENSIONS, agreed.to_string()));
    for (name, value) in named.into_iter().chain(extended) {
        let value = HeaderValue::try_from(value).map_err(|_| Other::Refusal(StatusCode::BAD_REQUEST))?;
        response.headers_mut().insert(name, value);
    }
    Ok((response, Switched { upgrade, agreed, subprotocol }))
}

impl Other {
    fn answer(self) -> Answer {
        let mut response = Response::new(Full::default());
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        match self {
            Self::Page(page) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
                *response.body_mut() = Full::from(page);
            }
            Self::Refusal(status) => {
                // The only version that is spoken here, which a client with another learns by this.
                headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
                *response.status_mut() = status;
            }
        }
        response
    }
}

fn socket(
    upgraded: Upgraded,
    role: Role,
    agreed: Option<Agreed>,
    subprotocol: Option<String>,
    settings: &Settings,
) -> Result<Socket, Error> {
    let parts =
        upgraded.downcast::<TokioIo<Stream>>().map_err(|_| refused("not the stream that was given"))?;
    Socket::new(parts.io.into_inner(), parts.read_buf, role, agreed, subprotocol, settings)
}

/// Whether a header that is a list has `token` in it.
fn lists(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    all_of(headers, name)
        .is_some_and(|list| list.split(',').any(|entry| entry.trim().eq_ignore_ascii_case(token)))
}

/// A list may be spread over several headers of one name.
fn all_of(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let values: Vec<_> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

fn refused(reason: impl ToString) -> Error {
    Error::Handshake(reason.to_string())
}

/// How long a handshake may take: a slow network has answered by then, and who holds connections open in vain does not hold many.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes of a request's head, at most. It is the least that hyper takes.
const MAX_HEAD: usize = 8_192;
