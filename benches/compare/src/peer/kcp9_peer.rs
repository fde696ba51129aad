//! kcp9 with its defaults; `fast3` for pings, as the others.

use std::io;

use kcp9::{
    KcpConfig, KcpListener, KcpStream, NoDelay, OwnedReadHalf, OwnedWriteHalf,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
};

use super::{ANY, Bound, Listener, Peer};
use crate::{
    cell::{Crypt, Work},
    options::{Setting, Task},
};

pub(super) struct Kcp9;

impl Peer for Kcp9 {
    type Listener = KcpListener;
    type Reader = OwnedReadHalf;
    type Writer = OwnedWriteHalf;

    async fn listen(setting: Setting) -> io::Result<Bound<KcpListener>> {
        let listener = KcpListener::bind(ANY, config(setting)?).await?;
        let addr = listener.local_addr()?;
        Ok(Bound { listener, addr, token: String::new() })
    }

    async fn connect(setting: Setting, task: &Task) -> io::Result<(OwnedReadHalf, OwnedWriteHalf)> {
        Ok(KcpStream::connect(task.addr, config(setting)?).await?.into_split())
    }
}

impl Listener for KcpListener {
    type Reader = OwnedReadHalf;
    type Writer = OwnedWriteHalf;

    async fn accept(&mut self) -> io::Result<(OwnedReadHalf, OwnedWriteHalf)> {
        let (stream, _) = Self::accept(self).await?;
        Ok(stream.into_split())
    }
}

fn config(setting: Setting) -> io::Result<KcpConfig> {
    // The comparison encrypts for the cost of it: any key will do.
    let crypto = |kind: CipherKind| {
        let cipher = kind.build(&Key::from_bytes(&[7; 32][..kind.key_len()]), Framing::KcpGo)?;
        Ok::<_, io::Error>(PacketCrypto::with_os_nonces(cipher)?)
    };
    let mut builder = KcpConfig::builder();
    match setting.crypt {
        Crypt::Plain => {}
        Crypt::Aes128Gcm => builder = builder.crypto(crypto(CipherKind::Aes128Gcm)?),
        Crypt::Salsa20Fec => builder = builder.crypto(crypto(CipherKind::Salsa20)?).fec(10, 3),
    }
    if setting.work == Work::Ping {
        builder = builder.nodelay(NoDelay::FAST3);
    }
    builder.build().map_err(io::Error::other)
}
