//! The command line.

use std::{io, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use kcp9::{
    KcpConfig, NoDelay,
    crypto::{CipherKind, Key, PacketCrypto},
};

use kcp9_simulator::LinkSettings;

use super::{
    encryption::{Crypt, Encryption},
    fec::Fec,
};

/// Sends files over KCP, and checks that they arrive.
///
/// Without a command it shows itself: a file goes through a relay on this machine that loses, delays and reorders
/// packets.
#[derive(Debug, Parser)]
#[command(name = "transfer", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) demo: Demo,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send a file through a bad network on this machine (what happens without a command)
    Demo(Demo),
    /// Send files and folders to a receiver
    ///
    /// What a broken transfer has left at the receiver is resumed. Files that it has already are not sent again.
    Send(Send),
    /// Receive files into a folder
    ///
    /// Serves any number of senders until it is stopped. A file appears under its name when it is complete and its
    /// SHA-256 is that of the sender's. One that is there already is not overwritten.
    Receive(Receive),
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The file to send; 64 MiB made on the spot when not given
    pub(crate) file: Option<PathBuf>,
    /// Packets that the relay loses each way, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = percent)]
    pub(crate) loss: f64,
    /// Delay each way, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=1_000))]
    pub(crate) delay: u64,
    /// What the delay swings by, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(..=1_000))]
    pub(crate) jitter: u64,
    /// Draw the session, as both ends saw it
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Keep the records of both ends (qlog) in this folder; made when it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) session: Session,
}

impl Demo {
    /// The path between the two ends, each way.
    pub(crate) fn path(&self) -> LinkSettings {
        let jitter = Duration::from_millis(self.jitter);
        LinkSettings {
            // The delay swings by the jitter either way; a link's jitter comes on top.
            delay: Duration::from_millis(self.delay).saturating_sub(jitter),
            jitter: 2 * jitter,
            jitter_hold: JITTER_HOLD,
            loss: self.loss / 100.0,
            reorder: REORDERED,
            reorder_delay: REORDERED_BY,
            ..LinkSettings::default()
        }
    }

    /// The path in words.
    pub(crate) fn describe_path(&self) -> String {
        let Self { loss, delay, jitter, .. } = self;
        let reordered = REORDERED * 100.0;
        format!("{loss} % lost, {delay} +- {jitter} ms of delay, {reordered} % out of order, each way")
    }
}

/// How long a swing of the delay holds: it takes all packets of that time along, as a queue does.
const JITTER_HOLD: Duration = Duration::from_millis(20);
/// Part of the packets that others overtake.
const REORDERED: f64 = 0.01;
/// How long at most a packet is held up while others overtake it.
const REORDERED_BY: Duration = Duration::from_millis(2);

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Files and folders
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The receiver
    #[arg(value_name = "HOST:PORT")]
    pub(crate) to: String,
    /// Record the session (qlog), for the example `plot`
    #[arg(long, value_name = "FILE.sqlog")]
    pub(crate) qlog: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) session: Session,
}

#[derive(Debug, Args)]
pub(crate) struct Receive {
    /// The folder to put files into; made when it is not there
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The address to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:4009")]
    pub(crate) listen: String,
    /// Replace files that are there already
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// End after the first sender
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) session: Session,
}

/// Settings of a session. Both ends have to agree on the encryption, and on nothing else.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Session")]
pub(crate) struct Session {
    /// normal, fast, fast2, fast3, ikcp, or nodelay,interval,resend,nc in numbers
    #[arg(long, value_name = "NAME", default_value = "fast3")]
    preset: NoDelay,
    /// Largest packet, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1_400)]
    mtu: usize,
    /// Segments in flight, each way
    #[arg(long, value_name = "SEGMENTS", default_value_t = 2_048)]
    window: u32,
    /// How long the other end may be silent, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout: u64,
    /// Forward error correction of what is sent: data and parity packets of a group; 0/0 is none. The ends need not
    /// agree. The demonstration sends 10/3 unless told otherwise
    #[arg(long, value_name = "DATA/PARITY")]
    fec: Option<Fec>,
    #[command(flatten)]
    encryption: Encryption,
}

const NO_FEC: Fec = Fec { data: 0, parity: 0 };
const DEMO_FEC: Fec = Fec { data: 10, parity: 3 };

/// The cipher, unless the command line names another.
const DEFAULT_CIPHER: Crypt = Crypt(Some(CipherKind::Aes256Gcm));

impl Session {
    /// The cipher's name.
    pub(crate) fn crypt(&self) -> Crypt {
        self.encryption.crypt(DEFAULT_CIPHER)
    }

    /// The settings of either end. Deriving a key from a password takes a moment.
    pub(crate) fn config(&self) -> io::Result<KcpConfig> {
        self.config_with(self.encryption.packet_crypto(DEFAULT_CIPHER)?, self.fec.unwrap_or(NO_FEC))
    }

    /// The settings of both ends on this machine, with a random key unless one was given.
    pub(crate) fn demo_config(&self) -> io::Result<KcpConfig> {
        let crypto = match self.crypt() {
            Crypt(Some(kind)) if !self.encryption.has_key() => {
                let mut key = [0; 32];
                getrandom::fill(&mut key).map_err(io::Error::other)?;
                let key = Key::from_bytes(&key[..kind.key_len()]);
                let cipher = kind.build(&key, self.encryption.framing())?;
                Some(PacketCrypto::with_os_nonces(cipher)?)
            }
            _ => self.encryption.packet_crypto(DEFAULT_CIPHER)?,
        };
        self.config_with(crypto, self.demo_fec())
    }

    pub(crate) fn demo_fec(&self) -> Fec {
        self.fec.unwrap_or(DEMO_FEC)
    }

    fn config_with(&self, crypto: Option<PacketCrypto>, fec: Fec) -> io::Result<KcpConfig> {
        let config = KcpConfig::builder()
            .nodelay(self.preset)
            .mtu(self.mtu)
            .send_window(self.window)
            .recv_window(self.window)
            .dead_timeout(self.timeout())
            .linger(self.timeout())
            .crypto(crypto)
            .fec(fec.data, fec.parity)
            .build()?;
        Ok(config)
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=90.0).contains(&percent) => Ok(percent),
        _ => Err("not a number from 0 to 90".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_lines() {
        Options::command().debug_assert();
        let parse = |line: &str| Options::try_parse_from(line.split(' '));
        assert!(parse("transfer").unwrap().command.is_none());
        assert_eq!(parse("transfer file").unwrap().demo.file, Some("file".into()));
        assert!(matches!(parse("transfer demo file --loss 3").unwrap().command, Some(Command::Demo(_))));
        let Some(Command::Send(send)) = parse("transfer send a b host:1 --preset 1,10,2,1").unwrap().command
        else {
            panic!("not a send");
        };
        assert_eq!((send.files, send.to), (vec!["a".into(), "b".into()], "host:1".to_owned()));
        for bad in ["transfer send a", "transfer receive", "transfer --loss 100", "transfer --preset faster"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let Some(Command::Receive(receive)) =
            parse("transfer receive d --crypt null --mtu 3").unwrap().command
        else {
            panic!("not a receive");
        };
        assert!(receive.session.config().is_err());
    }
}
