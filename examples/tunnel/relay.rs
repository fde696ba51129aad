//! Both directions of one connection.

use std::{io, time::Duration};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{carrier::Carried, local::Local};

/// Copies both ways until both directions have ended, or one fails.
///
/// An end of one direction is passed on, and the other goes on. kcptun does not know half-closed streams: its end of one direction
/// is that of both, so what it has sent is delivered and then the connection is closed. A tunnel that was cut off is told as a
/// reset, not as an end.
pub(crate) async fn relay(mut local: Local, mut carried: Carried) -> io::Result<()> {
    let outcome = copy_both(&mut local, &mut carried).await;
    drop(carried);
    match outcome {
        Ok(Ended::Both) => Ok(()),
        Ok(Ended::ByPeer) => {
            discard(&mut local).await;
            Ok(())
        }
        Err(error) => {
            local.reset();
            Err(error)
        }
    }
}

enum Ended {
    Both,
    /// By a peer that closes both directions at once.
    ByPeer,
}

async fn copy_both(local: &mut Local, carried: &mut Carried) -> io::Result<Ended> {
    let Carried { io, peer, needs_flush, .. } = carried;
    let (mut from_local, mut to_local) = tokio::io::split(local);
    let (mut from_peer, mut to_peer) = tokio::io::split(io);
    let out = async {
        copy(&mut from_local, &mut to_peer, *needs_flush).await?;
        to_peer.shutdown().await
    };
    let back = async {
        copy(&mut from_peer, &mut to_local, false).await?;
        // It may be gone, which its own direction tells.
        let _ = to_local.shutdown().await;
        io::Result::Ok(())
    };
    tokio::pin!(out, back);
    tokio::select! {
        outcome = &mut out => {
            outcome?;
            back.await?;
            return Ok(Ended::Both);
        }
        outcome = &mut back => outcome?,
    }
    // By now it has said what it is.
    if peer.half_closes() {
        out.await?;
        return Ok(Ended::Both);
    }
    Ok(Ended::ByPeer)
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    flush: bool,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count]).await?;
        if flush {
            to.flush().await?;
        }
    }
}

/// Reads until the other side closes, within limits: a TCP socket that is closed before it has read everything resets the
/// connection, and with it what was not delivered yet.
async fn discard(local: &mut Local) {
    let mut buffer = vec![0; BUFFER];
    let reading = async { while matches!(local.read(&mut buffer).await, Ok(1..)) {} };
    // Whether it ends in time or not: now it may be closed.
    let _ = tokio::time::timeout(DISCARD, reading).await;
}

/// As much as one frame of smux carries.
const BUFFER: usize = 32 << 10;
/// Long enough for the last packets to arrive.
const DISCARD: Duration = Duration::from_secs(5);
