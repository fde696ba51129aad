//! Linux's TCP with one of the kernel's controllers.

use std::{io, os::fd::AsFd};

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket};

use super::{Setting, clock::Clock, count, write};

pub(super) async fn receive(setting: &Setting) -> io::Result<()> {
    let listener = TcpListener::bind(setting.addr).await?;
    let clock = Clock::wait("")?;
    count(&clock, async { Ok(listener.accept().await?.0) }).await
}

pub(super) async fn send(setting: &Setting, controller: &str) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    SockRef::from(&socket.as_fd()).set_tcp_congestion(controller.as_bytes()).map_err(|error| {
        io::Error::new(error.kind(), format!("the kernel does not take the controller {controller}: {error}"))
    })?;
    let clock = Clock::wait("")?;
    clock.until_start().await;
    write(&clock, socket.connect(setting.addr).await?).await
}
