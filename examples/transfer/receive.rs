//! The receiving end.

use std::{io, sync::Arc, time::Duration, time::Instant};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task, time,
};

use super::{
    channel::Channel,
    names::{RelativeName, printable},
    progress::{Screen, Tally, rate},
    protocol::{Hash, Message, VERSION, unexpected},
    stop::Stop,
    store::{Existing, Part, Store},
};

/// What all sessions of a receiver share.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) store: Arc<Store>,
    pub(crate) screen: Screen,
    pub(crate) stop: Stop,
    /// How long a sender may be silent.
    pub(crate) timeout: Duration,
}

impl Receiver {
    /// Serves one sender until it sends Bye. Returns what became of its files, the error if one ended the session early, and the
    /// channel.
    pub(crate) async fn serve<R, W>(&self, channel: Channel<R, W>) -> (Tally, io::Result<()>, Channel<R, W>)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let mut session = Session { receiver: self.clone(), channel, tally: Tally::default() };
        let outcome = session.run().await;
        if let Err(error) = &outcome
            && matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::Interrupted)
        {
            session.say_why(error).await;
        }
        (session.tally, outcome, session.channel)
    }
}

struct Session<R, W> {
    receiver: Receiver,
    channel: Channel<R, W>,
    tally: Tally,
}

enum Outcome {
    Received {
        bytes: u64,
        resumed: u64,
    },
    AlreadyThere,
    /// The sender was told why.
    Failed(String),
}

/// Messages to the thread that writes a file.
enum Piece {
    Data(Bytes),
    End(Hash),
}

impl<R, W> Session<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    async fn run(&mut self) -> io::Result<()> {
        match self.next().await? {
            Message::Hello { version: VERSION } => {
                self.channel.send(&Message::Hello { version: VERSION }).await?
            }
            Message::Hello { version } => {
                let text = format!("this receiver speaks version {VERSION}, not {version}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            other => return Err(unexpected(&other)),
        }
        loop {
            match self.next().await? {
                Message::Offer { size, name } => self.receive_file(size, &name).await?,
                Message::Bye => {
                    self.channel.send(&Message::Bye).await?;
                    // The sender has all it needs. No harm is done if it left before its last acknowledgement arrived.
                    let _ = self.channel.shutdown().await;
                    return Ok(());
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// The next message, unless the program is to stop.
    async fn next(&mut self) -> io::Result<Message> {
        tokio::select! {
            message = self.channel.next() => message,
            () = self.receiver.stop.wait() => {
                Err(io::Error::new(io::ErrorKind::Interrupted, "the receiver was stopped"))
            }
        }
    }

    /// Receives one file, and shows its progress.
    async fn receive_file(&mut self, size: u64, name: &str) -> io::Result<()> {
        let started = Instant::now();
        let outcome = self.take(size, name).await;
        let (screen, tally) = (&self.receiver.screen, &mut self.tally);
        let name = printable(name);
        match outcome {
            Ok(Outcome::Received { bytes, resumed }) => {
                tally.transferred(bytes, resumed);
                screen.line(format_args!(
                    "received  {name}: {}",
                    rate(bytes - resumed, resumed, started.elapsed())
                ));
                Ok(())
            }
            Ok(Outcome::AlreadyThere) => {
                tally.already_there += 1;
                screen.line(format_args!("same      {name}: already there"));
                Ok(())
            }
            Ok(Outcome::Failed(reason)) => {
                tally.failed += 1;
                screen.error(format_args!("FAILED    {name}: {}", printable(&reason)));
                Ok(())
            }
            Err(error) => {
                tally.failed += 1;
                screen.error(format_args!("FAILED    {name}: the session ended"));
                Err(error)
            }
        }
    }

    async fn take(&mut self, size: u64, name: &str) -> io::Result<Outcome> {
        let name = match RelativeName::parse(name) {
            Ok(name) => name,
            Err(error) => return self.refuse(error.to_string()).await,
        };
        // The session of a sender that died holds its file until it times out. Its successor waits for that here.
        let patience = self.receiver.timeout * 3 / 2;
        let Some(slot) = self.receiver.store.reserve(&name, patience).await else {
            return self.refuse("another sender is sending a file of this name".to_owned()).await;
        };
        let (slot, existing) = blocking(move || {
            let existing = slot.look(size);
            (slot, existing)
        })
        .await?;
        match existing {
            Ok(Existing::Nothing) => {}
            Ok(Existing::SameSize(hash)) => {
                self.channel.send(&Message::Exists { hash }).await?;
                match self.next().await? {
                    Message::Compared { same: true } => return Ok(Outcome::AlreadyThere),
                    Message::Compared { same: false } if slot.overwrite() => {}
                    Message::Compared { same: false } => return self.refuse(EXISTS.to_owned()).await,
                    other => return Err(unexpected(&other)),
                }
            }
            Ok(Existing::Different) if slot.overwrite() => {}
            Ok(Existing::Different) => return self.refuse(EXISTS.to_owned()).await,
            Err(error) => return self.refuse(cannot_write(&error)).await,
        }
        let part = match blocking(move || slot.open_part(size)).await? {
            Ok(part) => part,
            Err(error) => return self.refuse(cannot_write(&error)).await,
        };
        let have = part.have();
        self.channel.send(&Message::Resume { have, hash: part.hash() }).await?;
        match self.next().await? {
            Message::Begin { offset } if offset == 0 || offset == have => {
                self.take_data(part, size, offset, name.as_str()).await
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn take_data(&mut self, part: Part, size: u64, offset: u64, name: &str) -> io::Result<Outcome> {
        // If this ends early, the thread gets no more pieces and keeps what it has.
        let (pieces, waiting) = mpsc::channel(WRITE_BEHIND);
        let writing = task::spawn_blocking(move || write(part, offset, waiting));
        let bar = self.receiver.screen.file(name, size, offset);
        let mut arrived = offset;
        loop {
            let piece = match self.next().await? {
                Message::Data(bytes) if bytes.len() as u64 <= size - arrived => {
                    arrived += bytes.len() as u64;
                    bar.add(bytes.len() as u64);
                    Piece::Data(bytes)
                }
                Message::End { hash } if arrived == size => Piece::End(hash),
                Message::Failed(reason) => {
                    drop(pieces);
                    let _ = writing.await?;
                    return self.refuse(reason).await;
                }
                other => return Err(unexpected(&other)),
            };
            let is_last = matches!(piece, Piece::End(_));
            let is_stuck = pieces.send(piece).await.is_err();
            if !is_last && !is_stuck {
                continue;
            }
            return match writing.await? {
                Ok(()) => {
                    self.channel.send(&Message::Done).await?;
                    Ok(Outcome::Received { bytes: size, resumed: offset })
                }
                Err(error) => {
                    let outcome = self.refuse(cannot_write(&error)).await?;
                    if !is_last {
                        self.discard_data().await?;
                    }
                    Ok(outcome)
                }
            };
        }
    }

    /// Skips what the sender sent before it got to know of a failure.
    async fn discard_data(&mut self) -> io::Result<()> {
        loop {
            match self.next().await? {
                Message::Data(_) => {}
                Message::End { .. } | Message::Failed(_) => return Ok(()),
                other => return Err(unexpected(&other)),
            }
        }
    }

    async fn refuse(&self, reason: String) -> io::Result<Outcome> {
        self.channel.send(&Message::Failed(reason.clone())).await?;
        Ok(Outcome::Failed(reason))
    }

    /// Tells the sender why the session ends, if it listens.
    async fn say_why(&self, error: &io::Error) {
        let _ = time::timeout(LAST_WORDS, async {
            self.channel.send(&Message::Fatal(error.to_string())).await?;
            self.channel.shutdown().await
        })
        .await;
    }
}

/// The thread that writes one file.
fn write(mut part: Part, offset: u64, mut pieces: mpsc::Receiver<Piece>) -> io::Result<()> {
    let mut outcome = part.start_at(offset);
    while outcome.is_ok() {
        outcome = match pieces.blocking_recv() {
            Some(Piece::Data(bytes)) => part.write(&bytes),
            Some(Piece::End(hash)) => return part.finish(&hash),
            None => Err(io::ErrorKind::Interrupted.into()),
        };
    }
    part.keep();
    outcome
}

fn cannot_write(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => EXISTS.to_owned(),
        _ => format!("the receiver cannot store it: {error}"),
    }
}

/// Runs disk work on a thread where it holds up nothing else.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    Ok(task::spawn_blocking(work).await?)
}

const EXISTS: &str = "the receiver has another file of this name and does not overwrite it";
/// Messages between the network and the disk: a MiB at most.
const WRITE_BEHIND: usize = 16;
/// How long a failed session tries to tell the sender why.
const LAST_WORDS: Duration = Duration::from_secs(1);
