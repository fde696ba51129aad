//! quinn's defaults, with windows that are no limit: one stream of a QUIC connection, under TLS with AES-128-GCM. The server
//! makes a certificate for each run, and its token is that certificate.

use std::{io, sync::Arc};

use quinn::{
    Connection, Endpoint, EndpointConfig, RecvStream, SendStream, ServerConfig, TokioRuntime,
    TransportConfig, VarInt,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    version::TLS13,
};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{Bound, Listener, Peer, udp_socket};
use crate::options::{Setting, Task};

pub(crate) const NAME: &str = "localhost";
/// Bytes of a stream and of a connection that may be under way.
const WINDOW: u32 = 16 << 20;

pub(super) struct Quinn;

/// Accepts the first stream of each connection.
pub(super) struct Streams {
    streams: mpsc::Receiver<(RecvStream, SendStream)>,
    accepting: JoinHandle<()>,
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Peer for Quinn {
    type Listener = Streams;
    type Reader = RecvStream;
    type Writer = SendStream;

    async fn listen(_: Setting) -> io::Result<Bound<Streams>> {
        let (endpoint, certificate) = server()?;
        let addr = endpoint.local_addr()?;
        let token = certificate.iter().map(|byte| format!("{byte:02x}")).collect();
        // `accept_bi` returns when a stream's first bytes arrive, so each connection waits in a task of its own.
        let (sender, streams) = mpsc::channel(64);
        let accepting = tokio::spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                let sender = sender.clone();
                tokio::spawn(async move {
                    let Ok(connection) = incoming.await else { return };
                    if let Ok((send, recv)) = connection.accept_bi().await {
                        let _ = sender.send((recv, send)).await;
                    }
                });
            }
        });
        Ok(Bound { listener: Streams { streams, accepting }, addr, token })
    }

    async fn connect(_: Setting, task: &Task) -> io::Result<(RecvStream, SendStream)> {
        let config = client(CertificateDer::from(from_hex(&task.token)?))?;
        // The endpoint lives on in its connection, and that in its streams.
        let connecting = endpoint(None)?.connect_with(config, task.addr, NAME).map_err(io::Error::other)?;
        let connection: Connection = connecting.await?;
        let (send, recv) = connection.open_bi().await?;
        Ok((recv, send))
    }
}

impl Listener for Streams {
    type Reader = RecvStream;
    type Writer = SendStream;

    async fn accept(&mut self) -> io::Result<(RecvStream, SendStream)> {
        self.streams.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

/// An endpoint that accepts and one that connects to it.
#[cfg(feature = "handshakes")]
pub(crate) fn ends() -> io::Result<(Endpoint, Endpoint)> {
    let (server, certificate) = server()?;
    let mut connecting = endpoint(None)?;
    connecting.set_default_client_config(client(certificate)?);
    Ok((server, connecting))
}

/// An endpoint that accepts, and its certificate.
fn server() -> io::Result<(Endpoint, CertificateDer<'static>)> {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .map_err(io::Error::other)?;
    // No session is resumed.
    tls.send_tls13_tickets = 0;
    let crypto = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport());
    Ok((endpoint(Some(config))?, cert.der().clone()))
}

/// What a client needs that trusts this certificate alone.
fn client(certificate: CertificateDer<'static>) -> io::Result<quinn::ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(io::Error::other)?;
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let crypto = QuicClientConfig::try_from(tls).map_err(io::Error::other)?;
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport());
    Ok(config)
}

fn endpoint(server: Option<ServerConfig>) -> io::Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), server, udp_socket()?, Arc::new(TokioRuntime))
}

fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(WINDOW.into());
    Arc::new(config)
}

/// Only the one of ring's ciphers that the other peers have too.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}

fn from_hex(digits: &str) -> io::Result<Vec<u8>> {
    let byte = |at| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<_>>>();
    bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the token is no certificate"))
}
