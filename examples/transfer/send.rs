//! The sending end.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Instant,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task,
};

use super::{
    channel::Channel,
    names::printable,
    progress::{Screen, Tally, rate},
    protocol::{HEADER, Hash, Message, VERSION, unexpected},
    source::{Reader, Source},
    stop::Stop,
};

/// One session with a receiver.
pub(crate) struct Sender<R, W> {
    channel: Channel<R, W>,
    screen: Screen,
    stop: Stop,
}

enum Outcome {
    Sent { bytes: u64, resumed: u64 },
    AlreadyThere,
    Failed(String),
}

/// How the data of a file ended.
enum End {
    /// With all of it.
    Complete,
    /// Early, because the receiver has already answered.
    Answered,
    /// Early, because of this.
    Failed(String),
}

impl<R, W> Sender<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    /// Says Hello and waits for the answer.
    pub(crate) async fn start(mut channel: Channel<R, W>, screen: Screen, stop: Stop) -> io::Result<Self> {
        channel.send(&Message::Hello { version: VERSION }).await?;
        match channel.next().await? {
            Message::Hello { version: VERSION } => Ok(Self { channel, screen, stop }),
            Message::Hello { version } => Err(io::Error::other(format!(
                "the receiver speaks version {version}, this is version {VERSION}"
            ))),
            other => Err(unexpected(&other)),
        }
    }

    /// The channel, which has the session's statistics.
    pub(crate) const fn channel(&self) -> &Channel<R, W> {
        &self.channel
    }

    /// Sends the files one after the other, prints a line about each, and counts them in `tally`.
    ///
    /// # Errors
    /// The error that ended the session early. A single file that fails is only counted. After `Interrupted` (the program was
    /// asked to stop), the caller still has to finish the session.
    pub(crate) async fn send_files(&mut self, sources: &[Source], tally: &mut Tally) -> io::Result<()> {
        for source in sources {
            if self.stop.is_set() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let started = Instant::now();
            let name = &source.name;
            let outcome = self.send_file(source).await.inspect_err(|error| {
                self.screen.error(format_args!("FAILED    {name}: {}", printable(&error.to_string())));
            });
            match outcome? {
                Outcome::Sent { bytes, resumed } => {
                    tally.transferred(bytes, resumed);
                    let rate = rate(bytes - resumed, resumed, started.elapsed());
                    self.screen.line(format_args!("sent      {name}: {rate}"));
                }
                Outcome::AlreadyThere => {
                    tally.already_there += 1;
                    self.screen.line(format_args!("same      {name}: already there"));
                }
                Outcome::Failed(reason) => {
                    tally.failed += 1;
                    self.screen.error(format_args!("FAILED    {name}: {}", printable(&reason)));
                    if self.stop.is_set() {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends the session in good order; returns the channel, which has the session's statistics.
    pub(crate) async fn finish(mut self) -> io::Result<Channel<R, W>> {
        self.channel.send(&Message::Bye).await?;
        match self.channel.next().await? {
            Message::Bye => Ok(self.channel),
            other => Err(unexpected(&other)),
        }
    }

    async fn send_file(&mut self, source: &Source) -> io::Result<Outcome> {
        let path = source.path.clone();
        let mut reader = match blocking(move || Reader::open(&path)).await? {
            Ok(reader) => reader,
            Err(error) => return Ok(Outcome::Failed(error.to_string())),
        };
        let size = reader.size();
        self.channel.send(&Message::Offer { size, name: source.name.as_str().to_owned() }).await?;
        let mut answer = self.channel.next().await?;
        if let Message::Exists { hash } = answer {
            let compared;
            (reader, compared) = blocking(move || {
                let own = reader.hash();
                (reader, own.is_ok_and(|own| own == hash))
            })
            .await?;
            self.channel.send(&Message::Compared { same: compared }).await?;
            if compared {
                return Ok(Outcome::AlreadyThere);
            }
            answer = self.channel.next().await?;
        }
        match answer {
            Message::Resume { have, hash } => self.send_data(reader, have, hash, source).await,
            Message::Failed(reason) => Ok(Outcome::Failed(reason)),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends what the receiver does not have, and reads its answers meanwhile.
    async fn send_data(
        &mut self,
        mut reader: Reader,
        have: u64,
        hash: Hash,
        source: &Source,
    ) -> io::Result<Outcome> {
        let (reader, skipped) = blocking(move || {
            let skipped = reader.skip(have, &hash);
            (reader, skipped)
        })
        .await?;
        let (size, offset) = (reader.size(), reader.offset());
        self.channel.send(&Message::Begin { offset }).await?;
        if let Err(error) = skipped {
            return self.give_up(&error).await;
        }

        let (messages_in, mut messages) = mpsc::channel::<Vec<u8>>(READ_AHEAD);
        let reading = task::spawn_blocking(move || reader.read(&messages_in));
        let bar = self.screen.file(source.name.as_str(), size, offset);
        let answered = AtomicBool::new(false);
        let (incoming, outgoing, stop) = (&mut self.channel.incoming, &self.channel.outgoing, &self.stop);

        let write = async {
            let mut end = None;
            while let Some(message) = messages.recv().await {
                if answered.load(Relaxed) {
                    end = Some(End::Answered);
                    break;
                }
                if stop.is_set() {
                    end = Some(End::Failed("the sender was stopped".to_owned()));
                    break;
                }
                outgoing.send(&message).await?;
                bar.add((message.len() - HEADER) as u64);
            }
            // The reading thread stops at its next message.
            drop(messages);
            let (message, end) = match (end, reading.await?) {
                (None, Ok(hash)) => (Message::End { hash }, End::Complete),
                (None, Err(error)) => (Message::Failed(error.to_string()), End::Failed(error.to_string())),
                (Some(End::Failed(reason)), _) => (Message::Failed(reason.clone()), End::Failed(reason)),
                (Some(end), _) => (Message::Failed("stopped, as asked".to_owned()), end),
            };
            outgoing.send(&message.encode()).await?;
            Ok(end)
        };
        let listen = async {
            match incoming.next().await? {
                answer @ (Message::Done | Message::Failed(_)) => {
                    answered.store(true, Relaxed);
                    Ok(answer)
                }
                // The last message of this session: the rest of the one being written is dropped.
                other => Err(unexpected(&other)),
            }
        };
        // A receiver that gives up says why, and then reads no more. So an answer counts, though writing fails.
        let write = async { io::Result::Ok(write.await) };
        let (written, answer) = tokio::try_join!(write, listen)?;
        match (answer, written) {
            (Message::Done, Err(error)) => Err(error),
            (Message::Done, Ok(End::Complete)) => Ok(Outcome::Sent { bytes: size, resumed: offset }),
            // The receiver only repeats the error that this end sent.
            (Message::Failed(_), Ok(End::Failed(reason))) => Ok(Outcome::Failed(reason)),
            (Message::Failed(reason), _) => Ok(Outcome::Failed(reason)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Tells the receiver that the file cannot be sent.
    async fn give_up(&mut self, error: &io::Error) -> io::Result<Outcome> {
        self.channel.send(&Message::Failed(error.to_string())).await?;
        match self.channel.next().await? {
            Message::Failed(_) => Ok(Outcome::Failed(error.to_string())),
            other => Err(unexpected(&other)),
        }
    }
}

/// Runs disk work on a thread where it holds up nothing else.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    Ok(task::spawn_blocking(work).await?)
}

/// Messages read ahead of the network: half a MiB.
const READ_AHEAD: usize = 8;
