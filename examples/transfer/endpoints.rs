//! The two ends as KCP sessions: sending to an address, and receiving from any number of senders.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpListener, KcpStream, OwnedReadHalf, OwnedWriteHalf};
use tokio::{net::lookup_host, task::JoinSet, time};

use super::{
    channel::Channel,
    options,
    progress::{Screen, Tally, fec_report, session_report},
    qlog::Recorder,
    receive::Receiver,
    record,
    send::Sender,
    source,
    stop::Stop,
    store::Store,
};

/// Sends what the command line names. Returns whether all of it arrived.
pub(crate) async fn send(options: &options::Send, screen: &Screen, stop: Stop) -> io::Result<bool> {
    let (sources, errors) = source::list(&options.files);
    for error in &errors {
        screen.error(format_args!("FAILED    {error}"));
    }
    let mut tally = Tally { failed: errors.len(), ..Tally::default() };
    let started = Instant::now();
    let mut sender = connect(&options.to, &options.session.config()?, screen, stop).await?;
    let session = sender.channel().incoming.reader.handle();
    let recorder = options.qlog.as_deref().map(|path| record::sender(path, session)).transpose()?;
    let outcome = sender.send_files(&sources, &mut tally).await;
    let time = started.elapsed();
    // Files that were not sent, or not completely.
    let told = tally.transferred + tally.already_there + tally.failed;
    tally.failed += (sources.len() + errors.len()).saturating_sub(told);
    screen.line(tally.summary(time));
    let in_order =
        outcome.as_ref().map_or_else(|error| error.kind() == io::ErrorKind::Interrupted, |()| true);
    if in_order && let Ok(channel) = sender.finish().await {
        screen.line(session_report(&channel.incoming.reader.stats()));
        wait_for_quiet(&channel).await;
    }
    recorder.map_or(Ok(()), Recorder::finish)?;
    outcome?;
    Ok(tally.failed == 0)
}

/// Receives until it is stopped, or from one sender. Returns whether everything that was begun was received.
pub(crate) async fn receive(options: &options::Receive, screen: &Screen, mut stop: Stop) -> io::Result<bool> {
    let timeout = options.session.timeout();
    let receiver = Receiver {
        store: Arc::new(Store::open(&options.folder, options.overwrite)?),
        screen: screen.clone(),
        stop: stop.clone(),
        timeout,
    };
    let listener = KcpListener::bind(&*options.listen, options.session.config()?).await?;
    screen.line(format_args!("listening on {}", listener.local_addr()?));
    let mut sessions = JoinSet::new();
    let (mut total, mut all_ended_well) = (Tally::default(), true);
    loop {
        tokio::select! {
            accepted = listener.accept(), if sessions.len() < MAX_SESSIONS => {
                let (stream, peer) = accepted?;
                let (receiver, started) = (receiver.clone(), Instant::now());
                sessions.spawn(async move {
                    let (tally, outcome, channel) = receiver.serve(open_channel(stream, timeout)).await;
                    report(&receiver.screen, peer, &tally, &outcome, started.elapsed());
                    if let Some(fec) = fec_report(&channel.incoming.reader.stats()) {
                        receiver.screen.line(format_args!("{peer}: {fec}"));
                    }
                    (tally, outcome)
                });
            }
            Some(ended) = sessions.join_next() => {
                let (tally, outcome) = ended?;
                total.add(&tally);
                all_ended_well &= outcome.is_ok();
                if options.once {
                    break;
                }
            }
            () = stop.wait() => break,
        }
    }
    // Stopping: each session tells its sender.
    while let Some(ended) = sessions.join_next().await {
        let (tally, outcome) = ended?;
        total.add(&tally);
        all_ended_well &= outcome.is_ok() || tally == Tally::default();
    }
    Ok(total.failed == 0 && (all_ended_well || !options.once))
}

/// Connects to a receiver. A name may have several addresses, and KCP has no handshake that shows which of them answers: the
/// first one that sends Hello is used.
pub(crate) async fn connect(
    to: &str,
    config: &KcpConfig,
    screen: &Screen,
    stop: Stop,
) -> io::Result<Sender<OwnedReadHalf, OwnedWriteHalf>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{to} has no address"));
    for address in lookup_host(to).await? {
        let stream = KcpStream::connect(address, config.clone()).await?;
        let channel = open_channel(stream, config.dead_timeout());
        match Sender::start(channel, screen.clone(), stop.clone()).await {
            Ok(sender) => return Ok(sender),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                last = io::Error::new(error.kind(), format!("no answer from {address}"));
            }
            Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(last)
}

pub(crate) fn open_channel(stream: KcpStream, timeout: Duration) -> Channel<OwnedReadHalf, OwnedWriteHalf> {
    let (reader, writer) = stream.into_split();
    Channel::new(reader, writer, timeout)
}

/// Waits until the peer sends nothing more: it resends its last message until our acknowledgement arrives.
pub(crate) async fn wait_for_quiet(channel: &Channel<OwnedReadHalf, OwnedWriteHalf>) {
    let deadline = Instant::now() + LONGEST_STAY;
    loop {
        let before = channel.incoming.reader.stats();
        time::sleep((before.path.rto * 2).clamp(SHORTEST_STAY, LONGEST_STAY)).await;
        let heard = channel.incoming.reader.stats().udp.packets_received > before.udp.packets_received;
        if !heard || Instant::now() >= deadline {
            return;
        }
    }
}

fn report(screen: &Screen, peer: SocketAddr, tally: &Tally, outcome: &io::Result<()>, time: Duration) {
    match outcome {
        Ok(()) => screen.line(format_args!("{peer}: {}", tally.summary(time))),
        Err(error) => {
            screen.error(format_args!("{peer}: ended early: {error}; {}", tally.summary(time)));
        }
    }
}

/// Senders served at once; the listener keeps a few more waiting.
const MAX_SESSIONS: usize = 256;
/// Longer than an acknowledgement is held back.
const SHORTEST_STAY: Duration = Duration::from_millis(200);
const LONGEST_STAY: Duration = Duration::from_secs(2);
