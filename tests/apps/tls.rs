//! TLS over a stream with keys of its own: each of the two has its handshake, and its ends.

use std::{io, sync::Arc};

use kcp9::{
    KcpConfig, KcpListener, KcpStream,
    proto::noise::{Initiator, Noise, Psk, Responder},
};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName},
    },
};

use crate::support::{ANY, spawn, within};

const NAME: &str = "server.example";
const LEN: usize = 1_000_000;

/// A certificate that nobody else has signed, and what a server needs to show it.
fn identity() -> (CertificateDer<'static>, ServerConfig) {
    let identity = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let certificate = identity.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .unwrap();
    (certificate, server)
}

/// A client that trusts this certificate alone.
fn connector(certificate: CertificateDer<'static>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(client))
}

async fn listen() -> (KcpListener, KcpStream) {
    let psk = || Psk::from_bytes(&[7; 32]);
    let noise = Noise::from(Responder::nn_psk0(psk())).with_initiator(Initiator::nn_psk0(psk()));
    let config = KcpConfig::builder().noise(noise).build().unwrap();
    let listener = KcpListener::bind(ANY, config.clone()).await.unwrap();
    let stream = KcpStream::connect(listener.local_addr().unwrap(), config).await.unwrap();
    (listener, stream)
}

fn name() -> ServerName<'static> {
    ServerName::try_from(NAME).unwrap()
}

#[tokio::test]
async fn tls_over_a_stream_with_keys_of_its_own_echoes_and_ends_well() {
    let (certificate, server) = identity();
    let (listener, stream) = listen().await;
    let server = spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut tls = TlsAcceptor::from(Arc::new(server)).accept(stream).await.unwrap();
        let mut buffer = vec![0; 16 << 10];
        loop {
            let len = tls.read(&mut buffer).await.unwrap();
            if len == 0 {
                break;
            }
            tls.write_all(&buffer[..len]).await.unwrap();
        }
        tls.shutdown().await.unwrap();
        let (stream, session) = tls.get_ref();
        (stream.handshake_hash(), session.protocol_version())
    });
    let sent: Vec<u8> = (0..LEN).map(|at| (at * at % 253) as u8).collect();
    let tls = within(20, "the handshake", connector(certificate).connect(name(), stream)).await.unwrap();
    let hash = tls.get_ref().0.handshake_hash();
    let (mut reader, mut writer) = tokio::io::split(tls);
    let echo = async {
        let mut got = Vec::new();
        let (wrote, read) = tokio::join!(
            async {
                writer.write_all(&sent).await?;
                writer.shutdown().await
            },
            reader.read_to_end(&mut got)
        );
        wrote.and(read).unwrap();
        got
    };
    let got = within(20, "the echo", echo).await;
    assert_eq!((got.len(), Sha256::digest(&got)), (LEN, Sha256::digest(&sent)));
    let (servers, version) = within(20, "its end", server).await.unwrap();
    assert!(hash.is_some() && hash == servers, "below TLS there are keys of this session");
    assert_eq!(version, Some(tokio_rustls::rustls::ProtocolVersion::TLSv1_3));
}

/// Who has the stream's keys is not who has the certificate.
#[tokio::test]
async fn another_certificate_is_refused_although_the_streams_keys_are_right() {
    let ((certificate, _), (_, other)) = (identity(), identity());
    let (listener, stream) = listen().await;
    let server = spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        TlsAcceptor::from(Arc::new(other)).accept(stream).await.map(|_| ())
    });
    let error = within(20, "the refusal", connector(certificate).connect(name(), stream)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    assert!(within(20, "the server hears of it", server).await.unwrap().is_err());
}
