//! A tunnel for TCP and Unix-socket connections over KCP: with kcptun's clients and servers, or between its own.
//!
//! ```text
//! tunnel server --listen :29900 --target 127.0.0.1:8080 --key WORDS
//! tunnel client --localaddr :8080 --remoteaddr vps:29900 --key WORDS
//! ```
//!
//! # What carries a connection
//!
//! ```text
//! TCP connection <-> stream of smux <-> session of smux <-> Snappy (unless nocomp) <-> KCP session <-> UDP
//! TCP connection <-----------------  mux none  ----------> Snappy (unless nocomp) <-> KCP session <-> UDP
//! ```
//!
//! The first line is kcptun's. The second one is for two ends of this program: each connection has a session of its own, so that
//! losses on one delay no other, at the price of a session's state.
//!
//! # Design
//!
//! * **Options.** `options` has kcptun's flags, `go_flags` reads them as Go does (`-mode fast3`), `file` lays the JSON file over them.
//!   `settings` checks what comes of it and makes the library's configurations. It is the only place that knows both names of a
//!   setting. What kcptun takes and then ignores (an unknown mode or cipher, an MTU that is too long) is refused by name.
//! * **Client.** `sessions` keeps `conn` sessions. A connection takes the next in turn; one that is missing, ended or expired is
//!   made anew by the connection that finds it so. An expired one goes on until its connections are done, for `scavengettl` at most.
//! * **Server.** One listener for each port of the range, one task for each session, one for each connection.
//! * **Ends.** `relay` passes the end of one direction on, and keeps the other. A peer without this crate's extensions is a
//!   kcptun, which closes both directions at either end: what it had sent is delivered first, then the connection is closed. A
//!   connection whose session failed is reset, so that nobody takes a part for the whole.
//! * **Stopping.** SIGTERM and SIGINT end the accepting and let connections finish, for `drain` seconds at most (`stop`). Then the
//!   sessions are closed, so that peers with extensions know at once. A second signal ends the program as it stands.
//! * **Keys.** SIGHUP reads flags and file anew and takes the key from them, nothing else. A server accepts the old one for
//!   `oldkeyttl` more seconds; a client begins new sessions under the new one, and treats those of the old one as expired.
//! * **Bounds.** What a peer can make this program hold is what the library's settings allow: windows, `smuxbuf`, and one chunk of
//!   Snappy for each session. A connection has 32 KiB for each direction.

mod address;
mod carrier;
mod client;
mod counters;
mod file;
mod go_flags;
mod go_time;
mod local;
mod log;
mod options;
mod relay;
mod server;
mod sessions;
mod settings;
mod signals;
mod snappy;
mod stop;

use std::{error::Error, process::ExitCode, sync::Arc, time::Duration};

use clap::{CommandFactory, FromArgMatches};
use tokio::time::{Instant, MissedTickBehavior};

use self::{
    client::Client,
    counters::Counters,
    local::LocalListener,
    log::say,
    options::{Arguments, Common, Kdf, Mux, Role},
    server::Server,
    settings::{ClientSettings, ServerSettings},
    signals::{Signal, Signals},
    stop::{Stop, Stopper},
};

type AnyError = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let outcome = load().and_then(|role| {
        if !role.common().log.is_empty() {
            log::to_file(&role.common().log)
                .map_err(|error| format!("log: {}: {error}", role.common().log))?;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(run(role))
    });
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tunnel: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The flags, with the file over them.
fn load() -> Result<Role, AnyError> {
    let command = Arguments::command();
    let arguments = go_flags::normalise(&command, std::env::args());
    let matches = command.get_matches_from(arguments);
    let mut role = Arguments::from_arg_matches(&matches)?.role;
    if let Some(path) = role.common().c.clone() {
        let unknown =
            file::merge(&path, &mut role).map_err(|error| format!("{}: {error}", path.display()))?;
        for key in unknown {
            say!("{}: there is no {key} here: it is ignored", path.display());
        }
    }
    Ok(role)
}

/// One of the roles, running.
enum Running {
    Client(Client),
    Server(Server),
}

async fn run(role: Role) -> Result<ExitCode, AnyError> {
    // Before anything is said to listen: whoever reads that may send signals.
    let mut signals = Signals::new()?;
    let counters = Arc::new(Counters::default());
    let (running, listener) = match &role {
        Role::Client(client) => {
            let settings = ClientSettings::new(client)?;
            let (client, listener) = Client::bind(settings, Arc::clone(&counters)).await?;
            (Running::Client(client), Some(listener))
        }
        Role::Server(server) => {
            let settings = ServerSettings::new(server)?;
            (Running::Server(Server::bind(settings, Arc::clone(&counters)).await?), None)
        }
    };
    let common = role.common();
    describe(common);
    if !common.snmplog.is_empty() && common.snmpperiod > 0 {
        let (path, counters) = (common.snmplog.clone(), Arc::clone(&counters));
        let period = Duration::from_secs(common.snmpperiod.unsigned_abs());
        tokio::spawn(async move { counters.log(&path, period).await });
    }

    let stopper = Stopper::new();
    let mut key = Secret::of(common);
    let mut every_second = tokio::time::interval(Duration::from_secs(1));
    every_second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    {
        let stop = stopper.stop();
        let work = running.run(listener, stop);
        tokio::pin!(work);
        loop {
            tokio::select! {
                () = &mut work => return Err("the sockets have failed".into()),
                _ = every_second.tick() => running.count(),
                signal = signals.next() => match signal {
                    Signal::Stop => break,
                    Signal::Report => counters.report(),
                    Signal::Reload => match running.reload(&mut key) {
                        Ok(message) => say!("{message}"),
                        Err(error) => say!("the key stays as it is: {error}"),
                    },
                },
            }
        }
    }
    tokio::select! {
        () = running.end(stopper, &counters) => Ok(ExitCode::SUCCESS),
        signal = second_stop(&mut signals) => {
            say!("ending at once: {signal:?} came again");
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn second_stop(signals: &mut Signals) -> Signal {
    loop {
        let signal = signals.next().await;
        if signal == Signal::Stop {
            return signal;
        }
    }
}

impl Running {
    /// Accepts. Dropping the future ends that.
    async fn run(&self, listener: Option<LocalListener>, stop: Stop) {
        match (self, listener) {
            (Self::Client(client), Some(listener)) => client.run(listener, stop).await,
            (Self::Server(server), _) => server.run(stop).await,
            (Self::Client(_), None) => {}
        }
    }

    fn count(&self) {
        if let Self::Server(server) = self {
            server.count_forged();
        }
    }

    /// Takes the key anew. What it says of that.
    fn reload(&self, current: &mut Secret) -> Result<&'static str, AnyError> {
        let role = load_again()?;
        let common = role.common();
        let new = Secret::of(common);
        if new == *current {
            return Ok("the key is the same as before");
        }
        if new.crypt != current.crypt {
            return Err("crypt has changed, which needs a restart".into());
        }
        let crypto = settings::crypto(common)?.ok_or("crypt is null, which has no key")?;
        match self {
            Self::Client(client) => client.set_key(crypto)?,
            Self::Server(server) => server.set_key(&crypto)?,
        }
        *current = new;
        Ok("sessions begin under the new key")
    }

    async fn end(&self, stopper: Stopper, counters: &Counters) {
        let limit = match self {
            Self::Client(client) => client.drain(),
            Self::Server(server) => {
                server.stop_accepting();
                server.drain()
            }
        };
        say!("stopping: connections have {} s to finish", limit.as_secs());
        let end = Instant::now() + limit;
        if !stopper.drain(limit).await {
            say!("some connections have not finished: they are cut off");
        }
        // Connections are done when their sessions have their last bytes. A slow path may take long over these.
        if tokio::time::timeout_at(end, counters.delivered()).await.is_err() {
            say!("not everything has reached the other end");
        }
        match self {
            Self::Client(client) => client.close().await,
            Self::Server(server) => server.close().await,
        }
    }
}

/// As [`load`], for a program that goes on whatever is wrong now.
fn load_again() -> Result<Role, AnyError> {
    let command = Arguments::command();
    let arguments = go_flags::normalise(&command, std::env::args());
    let mut role = Arguments::from_arg_matches(&command.try_get_matches_from(arguments)?)?.role;
    let path = role.common().c.clone().ok_or("there is no file to read it from: give one with -c")?;
    file::merge(&path, &mut role).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(role)
}

/// All that makes a key.
#[derive(PartialEq, Eq)]
struct Secret {
    key: String,
    kdf: Kdf,
    crypt: String,
}

impl Secret {
    fn of(common: &Common) -> Self {
        Self { key: common.key.clone(), kdf: common.kdf, crypt: common.crypt.clone() }
    }
}

/// Says what the other end must have as well.
fn describe(common: &Common) {
    let Common { crypt, mux, smuxver, nocomp, mode, mtu, .. } = common;
    let (data, parity) = settings::shards(common);
    say!("crypt: {crypt}, mode: {mode}, mtu: {mtu}, shards: {data}/{parity}");
    match mux {
        Mux::Smux => say!("mux: smux {smuxver}, nocomp: {nocomp}"),
        Mux::None => say!("mux: none, nocomp: {nocomp}"),
    }
    if let Some(warning) = settings::warning(common) {
        say!("warning: {warning}");
    }
}
