//! The demonstration: a file goes through a bad network on this machine, in a few seconds.

use std::{
    fs::{self, File},
    io,
    path::Path,
    sync::Arc,
    time::Instant,
};

use indicatif::HumanBytes;
use kcp9::KcpListener;
use kcp9_relay::{Counts, Relay};
use kcp9_simulator::payload::Payload;
use sha2::{Digest, Sha256};
use tokio::task;

use super::{
    endpoints::{connect, open_channel, wait_for_quiet},
    options,
    progress::{Screen, Tally, fec_report, session_report},
    protocol::{Hash, digest},
    qlog::Recorder,
    receive::Receiver,
    record::Records,
    source,
    stop::Stop,
    store::{Store, hash_up_to},
};

/// Sends a file to this machine itself, through a [`Relay`], and prints what that took. Removes the files it made, however it
/// ends.
pub(crate) async fn run(options: &options::Demo, screen: &Screen, stop: Stop) -> io::Result<bool> {
    let folder = tempfile::Builder::new().prefix("kcp9-transfer-").tempdir()?;
    let path = match &options.file {
        Some(path) => path.clone(),
        None => {
            let path = folder.path().join("sample.bin");
            make_sample(&path)?;
            path
        }
    };
    let (sources, errors) = source::list(std::slice::from_ref(&path));
    let [source] = &sources[..] else {
        return Err(io::Error::other(errors.into_iter().next().unwrap_or("one file, please".to_owned())));
    };

    let received = folder.path().join("received");
    let config = options.session.demo_config()?;
    let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await?;
    let relay = Relay::start(listener.local_addr()?, &options.path(), SEED)?;
    let receiver = Receiver {
        store: Arc::new(Store::open(&received, false)?),
        screen: Screen::silent(),
        stop: stop.clone(),
        timeout: options.session.timeout(),
    };
    let timeout = options.session.timeout();
    let records = Records::of(options, folder.path())?;
    let record = records.clone();
    let serving = task::spawn(async move {
        let (stream, _) = listener.accept().await?;
        let recorder = record.map(|records| records.receiver(stream.handle())).transpose()?;
        let (_, outcome, channel) = receiver.serve(open_channel(stream, timeout)).await;
        recorder.map_or(Ok(()), Recorder::finish)?;
        outcome.map(|()| channel.incoming.reader.stats())
    });

    screen.line(format_args!(
        "file      {} ({})",
        source.path.display(),
        HumanBytes(fs::metadata(&path)?.len())
    ));
    screen.line(format_args!("network   {}", options.describe_path()));
    screen.line(format_args!("cipher    {}, FEC {}", options.session.crypt(), options.session.demo_fec()));
    let mut sender = connect(&relay.addr().to_string(), &config, screen, stop).await?;
    let session = sender.channel().incoming.reader.handle();
    let recorder = records.as_ref().map(|records| records.sender(session)).transpose()?;
    let (mut tally, started) = (Tally::default(), Instant::now());
    sender.send_files(&sources, &mut tally).await?;
    let time = started.elapsed();
    let channel = sender.finish().await?;
    let stats = channel.incoming.reader.stats();
    wait_for_quiet(&channel).await;
    let at_receiver = serving.await??;
    recorder.map_or(Ok(()), Recorder::finish)?;
    if tally.failed > 0 {
        return Ok(false);
    }

    let (sent, arrived) = (path, source.name.below(&received));
    let (sent, arrived) = task::spawn_blocking(move || (hash_of(&sent), hash_of(&arrived))).await?;
    let (sent, arrived) = (sent?, arrived?);
    let hex: String = arrived.iter().map(|byte| format!("{byte:02x}")).collect();
    screen.line(format_args!(
        "sha256    {hex}: {}",
        if sent == arrived { "the same at both ends" } else { "DIFFERENT" }
    ));
    screen.line(format_args!("rate      {:.1} MB/s", tally.bytes as f64 / time.as_secs_f64() / 1e6));
    screen.line(session_report(&stats));
    if let Some(fec) = fec_report(&at_receiver) {
        screen.line(format_args!("receiver  {fec}"));
    }
    screen.line(format_args!("relay ->  {}", relay_report(&relay.to_server())));
    screen.line(format_args!("relay <-  {}", relay_report(&relay.to_client())));
    if let (Some(records), Some(plot)) = (&records, &options.plot) {
        records.draw(plot, &options.describe_path())?;
        screen.line(format_args!("plot      {}", plot.display()));
    }
    Ok(sent == arrived)
}

fn make_sample(path: &Path) -> io::Result<()> {
    let mut bytes = vec![0; SAMPLE];
    Payload::new(SEED).fill(0, &mut bytes);
    fs::write(path, bytes)
}

/// What the relay did to the packets of one direction.
fn relay_report(counts: &Counts) -> String {
    format!(
        "{} passed ({}), {} dropped on purpose, {} for lack of room, {} out of order",
        counts.passed,
        HumanBytes(counts.bytes_passed),
        counts.lost,
        counts.overflowed,
        counts.reordered
    )
}

fn hash_of(path: &Path) -> io::Result<Hash> {
    let mut hasher = Sha256::new();
    hash_up_to(&mut File::open(path)?, &mut hasher, u64::MAX)?;
    Ok(digest(&hasher))
}

/// Seed of the sample's bytes and of the relay's losses.
const SEED: u64 = 9;
/// Bytes of the file that is made when none is given.
const SAMPLE: usize = 64 * 1_024 * 1_024;
