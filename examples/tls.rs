//! TLS over KCP: `cargo run --release --example tls --features tls`.
//!
//! A shared key keeps strangers out. But everyone who has it can read everything, recordings included, and every client can
//! pass for the server. TLS over the stream solves both, as it does over TCP: certificates say who the server is, and the keys
//! of a session are gone when it ends (forward secrecy). Its `close_notify` is also the end of stream that KCP lacks.
//!
//! The packets are encrypted below TLS all the same, so that strangers do not even reach it.

use std::{io, sync::Arc};

use kcp9::{
    KcpConfig, KcpListener, KcpStream,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        pki_types::{PrivatePkcs8KeyDer, ServerName},
    },
};

#[tokio::main]
async fn main() -> io::Result<()> {
    let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(io::Error::other)?;
    let certificate = identity.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());

    let server_tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .map_err(io::Error::other)?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(io::Error::other)?;
    let client_tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();

    let shared = Key::from_bytes(b"what both ends have been told...");
    let cipher = CipherKind::Aes256Gcm.build(&shared, Framing::KcpGo)?;
    let config = KcpConfig::builder().crypto(PacketCrypto::with_os_nonces(cipher)?).build()?;

    let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await?;
    let addr = listener.local_addr()?;
    let server = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(server_tls))));

    let stream = KcpStream::connect(addr, config).await?;
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let mut tls = TlsConnector::from(Arc::new(client_tls)).connect(name, stream).await?;
    tls.write_all(b"hello through TLS through KCP").await?;
    // Sends `close_notify`, and waits until the server has acknowledged all of it.
    tls.shutdown().await?;
    let mut answer = String::new();
    tls.read_to_string(&mut answer).await?;
    println!("{answer}");
    let (_, session) = tls.get_ref();
    println!("{:?}, {:?}", session.protocol_version(), session.negotiated_cipher_suite());
    assert_eq!(answer, "HELLO THROUGH TLS THROUGH KCP");
    server.await?
}

/// Reads all that a client sends, and answers in capitals.
async fn serve(listener: KcpListener, acceptor: TlsAcceptor) -> io::Result<()> {
    let (stream, _) = listener.accept().await?;
    let mut tls = acceptor.accept(stream).await?;
    let mut question = String::new();
    tls.read_to_string(&mut question).await?;
    tls.write_all(question.to_uppercase().as_bytes()).await?;
    tls.shutdown().await
}
