//! Tokio's TCP without Nagle's delay.

use std::io;

use tokio::net::{
    TcpListener, TcpStream,
    tcp::{OwnedReadHalf, OwnedWriteHalf},
};

use super::{ANY, Bound, Listener, Peer};
use crate::options::{Setting, Task};

pub(super) struct Tcp;

impl Peer for Tcp {
    type Listener = TcpListener;
    type Reader = OwnedReadHalf;
    type Writer = OwnedWriteHalf;

    async fn listen(_: Setting) -> io::Result<Bound<TcpListener>> {
        let listener = TcpListener::bind(ANY).await?;
        let addr = listener.local_addr()?;
        Ok(Bound { listener, addr, token: String::new() })
    }

    async fn connect(_: Setting, task: &Task) -> io::Result<(OwnedReadHalf, OwnedWriteHalf)> {
        let stream = TcpStream::connect(task.addr).await?;
        stream.set_nodelay(true)?;
        Ok(stream.into_split())
    }
}

impl Listener for TcpListener {
    type Reader = OwnedReadHalf;
    type Writer = OwnedWriteHalf;

    async fn accept(&mut self) -> io::Result<(OwnedReadHalf, OwnedWriteHalf)> {
        let (stream, _) = Self::accept(self).await?;
        stream.set_nodelay(true)?;
        Ok(stream.into_split())
    }
}
