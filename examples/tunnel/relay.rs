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

/// Why one direction stopped before its end.
enum Failed {
    /// Nothing more comes from the one side.
    Reading(io::Error),
    /// The other side takes nothing more. What it has sent may still be on its way.
    Writing(io::Error),
}

async fn copy_both(local: &mut Local, carried: &mut Carried) -> io::Result<Ended> {
    let Carried { io, peer, needs_flush, .. } = carried;
    let (mut from_local, mut to_local) = tokio::io::split(local);
    let (mut from_peer, mut to_peer) = tokio::io::split(io);
    let mut out = Box::pin(async {
        copy(&mut from_local, &mut to_peer, *needs_flush).await?;
        to_peer.shutdown().await.map_err(Failed::Writing)
    });
    let mut back = Box::pin(async {
        copy(&mut from_peer, &mut to_local, false).await?;
        // It may be gone, which its own direction tells.
        let _ = to_local.shutdown().await;
        Ok(())
    });
    let first = tokio::select! {
        outcome = &mut out => First::Out(outcome),
        outcome = &mut back => First::Back(outcome),
    };
    match first {
        First::Out(Ok(())) => back.await?,
        // By now the peer has said what it is.
        First::Back(Ok(())) if !peer.half_closes() => return Ok(Ended::ByPeer),
        First::Back(Ok(())) => match out.await {
            // What it has sent is whole, and must not be lost to a reset.
            Err(Failed::Writing(_)) => return Ok(Ended::ByPeer),
            outcome => outcome?,
        },
        First::Out(Err(Failed::Writing(_))) => {
            // Who takes no more may have answered before, and have ended that answer.
            back.await?;
            return Ok(Ended::ByPeer);
        }
        First::Back(Err(Failed::Writing(error))) => {
            // The same on this side. Meanwhile what comes is dropped: left where it is it would hold up other streams.
            drop(back);
            tokio::select! {
                outcome = &mut out => outcome?,
                () = drain(&mut from_peer) => out.await?,
            }
            return Err(error);
        }
        First::Out(Err(failed)) | First::Back(Err(failed)) => return Err(failed.into()),
    }
    Ok(Ended::Both)
}

/// The direction that ended first.
enum First {
    /// To the peer.
    Out(Result<(), Failed>),
    /// From the peer.
    Back(Result<(), Failed>),
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    flush: bool,
) -> Result<(), Failed> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await.map_err(Failed::Reading)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count]).await.map_err(Failed::Writing)?;
        if flush {
            to.flush().await.map_err(Failed::Writing)?;
        }
    }
}

/// Reads until the other side closes, within limits: a TCP socket that is closed before it has read everything resets the
/// connection, and with it what was not delivered yet.
async fn discard(local: &mut Local) {
    // Whether it ends in time or not: now it may be closed.
    let _ = tokio::time::timeout(DISCARD, drain(local)).await;
}

/// Reads to the end, or to a failure.
async fn drain(from: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = vec![0; BUFFER];
    while matches!(from.read(&mut buffer).await, Ok(1..)) {}
}

impl From<Failed> for io::Error {
    fn from(failed: Failed) -> Self {
        let (Failed::Reading(error) | Failed::Writing(error)) = failed;
        error
    }
}

/// As much as one frame of smux carries.
const BUFFER: usize = 32 << 10;
/// Long enough for the last packets to arrive.
const DISCARD: Duration = Duration::from_secs(5);
