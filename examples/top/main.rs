//! The sessions of a server, in a terminal: `cargo run --example top --features top -- /tmp/kcp9.sock`.
//!
//! The server is the example `metrics`: `cargo run --example metrics -- serve --socket /tmp/kcp9.sock`. For each session there is a line
//! with rates, round-trip time, the share that was sent again (`loss %`), resends, what FEC recovered, and the memory of its buffers.

#[allow(dead_code, reason = "the example `metrics` uses the rest")]
mod feed;
mod state;
mod view;

use std::{
    io::{self, BufRead, BufReader, Read},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use clap::Parser;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
};

use self::{
    feed::{MAX_LINE, Snapshot},
    state::{Key, State},
};

/// The sessions of a server, in a terminal
#[derive(Parser)]
#[command(name = "top", version)]
struct Options {
    /// The server's socket
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = snapshots(&options.socket).and_then(|feed| {
        // It gives the terminal back when the program panics, too.
        let mut terminal = ratatui::try_init()?;
        let outcome = run(&mut terminal, &feed);
        ratatui::restore();
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("top: {}: {error}", options.socket.display());
            ExitCode::FAILURE
        }
    }
}

/// What the server says, until the error with which it ends.
fn snapshots(socket: &Path) -> io::Result<Receiver<io::Result<Snapshot>>> {
    let mut lines = BufReader::new(UnixStream::connect(socket)?);
    // A reader that does not keep up is waited for.
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        loop {
            let snapshot = next(&mut lines);
            let is_last = snapshot.is_err();
            if sender.send(snapshot).is_err() || is_last {
                return;
            }
        }
    });
    Ok(receiver)
}

fn next(lines: &mut impl BufRead) -> io::Result<Snapshot> {
    let mut line = Vec::new();
    if lines.take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has ended"));
    }
    Ok(serde_json::from_slice(&line)?)
}

fn run(terminal: &mut DefaultTerminal, feed: &Receiver<io::Result<Snapshot>>) -> io::Result<()> {
    let mut state = State::new();
    loop {
        while let Ok(snapshot) = feed.try_recv() {
            match snapshot {
                Ok(snapshot) => state.update(snapshot),
                Err(error) => state.ended = Some(format!("{error}; q: quit")),
            }
        }
        terminal.draw(|frame| view::draw(&state, frame))?;
        if event::poll(TICK)?
            && let Some(key) = key(&event::read()?)
            && !state.press(key)
        {
            return Ok(());
        }
    }
}

fn key(event: &Event) -> Option<Key> {
    let Event::Key(event) = event else { return None };
    if event.kind == KeyEventKind::Release {
        return None;
    }
    Some(match event.code {
        KeyCode::Char('c') if event.modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Right | KeyCode::Char('l') => Key::Right,
        KeyCode::Left | KeyCode::Char('h') => Key::Left,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::Char('r') => Key::Reverse,
        KeyCode::Char('p') => Key::Pause,
        _ => return None,
    })
}

/// How long a key may wait, and what comes.
const TICK: Duration = Duration::from_millis(100);
