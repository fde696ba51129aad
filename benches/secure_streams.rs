//! What keys of its own cost a stream: `cargo bench --bench secure_streams`, about a minute; `-- --quick` for three rounds in place of nine.
//!
//! Bytes go over loopback to a reader that counts them: through a stream with `noise`, and through one with a static key of the same
//! AEAD. Rounds of all take turns. The bar is the rate of the static key.

use std::{io, time::Instant};

use kcp9::{
    KcpConfig, KcpListener, KcpStream,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::noise::{Initiator, Noise, Psk, Responder, SessionCipher},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CIPHERS: [(SessionCipher, CipherKind); 2] = [
    (SessionCipher::Aes256Gcm, CipherKind::Aes256Gcm),
    (SessionCipher::ChaCha20Poly1305, CipherKind::ChaCha20Poly1305),
];
/// Bytes of a round.
const BYTES: usize = 400_000_000;
const WRITE: usize = 64 << 10;
const ROUNDS: usize = 9;
const QUICK: usize = 3;

#[tokio::main]
async fn main() -> io::Result<()> {
    let rounds = if std::env::args().any(|argument| argument == "--quick") { QUICK } else { ROUNDS };
    let mut kinds = Vec::new();
    for (session, fixed) in CIPHERS {
        kinds.push((format!("{fixed}, static key"), static_key(fixed)?));
        kinds.push((format!("{fixed}, keys of the session"), keys_of_the_session(session)?));
    }
    let mut rates = vec![Vec::new(); kinds.len()];
    // The first round warms up.
    for round in 0..=rounds {
        for at in 0..kinds.len() {
            let kind = (at + round) % kinds.len();
            let rate = one_round(&kinds[kind].1).await?;
            if round > 0 {
                rates[kind].push(rate);
            }
        }
    }
    println!("one stream, medians of {rounds} rounds in turn:");
    let medians: Vec<f64> = rates.iter_mut().map(|rates| median(rates)).collect();
    for (pair, medians) in kinds.chunks(2).zip(medians.chunks(2)) {
        for ((name, _), rate) in pair.iter().zip(medians) {
            println!("{name}: {rate:.0} MB/s, ratio {:.2}", rate / medians[0]);
        }
    }
    Ok(())
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn static_key(kind: CipherKind) -> io::Result<KcpConfig> {
    let cipher = kind.build(&Key::from_bytes(&[7; 32]), Framing::KcpGo).map_err(io::Error::other)?;
    let crypto = PacketCrypto::with_os_nonces(cipher).map_err(io::Error::other)?;
    KcpConfig::builder().crypto(crypto).build().map_err(io::Error::other)
}

fn keys_of_the_session(cipher: SessionCipher) -> io::Result<KcpConfig> {
    let psk = || Psk::from_bytes(&[7; 32]);
    let initiator = Initiator::nn_psk0(psk()).with_cipher(cipher);
    let noise = Noise::from(Responder::nn_psk0(psk())).with_initiator(initiator);
    KcpConfig::builder().noise(noise).build().map_err(io::Error::other)
}

/// MB/s of a transfer, the handshake not among it.
async fn one_round(config: &KcpConfig) -> io::Result<f64> {
    let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await?;
    let mut stream = KcpStream::connect(listener.local_addr()?, config.clone()).await?;
    stream.write_u8(1).await?;
    let (mut server, _) = listener.accept().await?;
    server.read_u8().await?;
    let reader = tokio::spawn(async move {
        let (mut buffer, mut count) = (vec![0; WRITE], 0);
        loop {
            match server.read(&mut buffer).await? {
                0 => return Ok::<_, io::Error>(count),
                more => count += more,
            }
        }
    });
    let (buffer, mut left) = (vec![7; WRITE], BYTES);
    let began = Instant::now();
    while left > 0 {
        let count = left.min(WRITE);
        stream.write_all(&buffer[..count]).await?;
        left -= count;
    }
    stream.shutdown().await?;
    let count = reader.await.map_err(io::Error::other)??;
    let seconds = began.elapsed().as_secs_f64();
    if count != BYTES {
        return Err(io::Error::other(format!("{count} bytes came")));
    }
    Ok(count as f64 / seconds / 1e6)
}
