//! kcp9 with its default settings, but for the controller.

use std::io;

use kcp9::{KcpConfig, KcpListener, KcpStream};

use super::{Setting, clock::Clock, count, write};
use crate::kind::Controller;

pub(super) async fn receive(setting: &Setting) -> io::Result<()> {
    let listener = KcpListener::bind(setting.addr, KcpConfig::default()).await?;
    let clock = Clock::wait("")?;
    count(&clock, async { Ok(listener.accept().await?.0) }).await
}

pub(super) async fn send(setting: &Setting, controller: Option<Controller>) -> io::Result<()> {
    let mut config = KcpConfig::builder();
    if let Some(controller) = controller.or(setting.kcp9_cc) {
        config = (controller.choose)(config);
    }
    let config = config.build().map_err(io::Error::other)?;
    let clock = Clock::wait("")?;
    clock.until_start().await;
    write(&clock, KcpStream::connect(setting.addr, config).await?).await
}
