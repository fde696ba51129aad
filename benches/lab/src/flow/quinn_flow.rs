//! quinn with its default settings: one stream of a QUIC connection. The receiver makes a certificate for each run, and its
//! token is that certificate.

use std::{io, net::Ipv4Addr, sync::Arc};

use quinn::{ClientConfig, Endpoint, ServerConfig};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

use super::{Setting, clock::Clock, count, write};

const NAME: &str = "localhost";

pub(super) async fn receive(setting: &Setting) -> io::Result<()> {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = ServerConfig::with_single_cert(vec![cert.der().clone()], key).map_err(io::Error::other)?;
    let endpoint = Endpoint::server(config, setting.addr)?;
    let token: String = cert.der().iter().map(|byte| format!("{byte:02x}")).collect();
    let clock = Clock::wait(&token)?;
    let accepting = async {
        let incoming = endpoint.accept().await.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(incoming.await?.accept_uni().await?)
    };
    count(&clock, accepting).await
}

pub(super) async fn send(setting: &Setting, token: &str) -> io::Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(from_hex(token)?)).map_err(io::Error::other)?;
    let config = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(io::Error::other)?;
    let endpoint = Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into())?;
    let clock = Clock::wait("")?;
    clock.until_start().await;
    let connecting = endpoint.connect_with(config, setting.addr, NAME).map_err(io::Error::other)?;
    let connection = connecting.await?;
    write(&clock, connection.open_uni().await?).await
}

fn from_hex(digits: &str) -> io::Result<Vec<u8>> {
    let byte = |at| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<_>>>();
    bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the token is no certificate"))
}
