//! Key pairs in files, and known keys as SSH has them: made, shown, pinned, and used between two UDP sockets.
//!
//! ```text
//! cargo run --example keys -- new server.key            # prints the public key
//! cargo run --example keys -- show server.key
//! cargo run --example keys -- serve server.key 127.0.0.1:4000
//! cargo run --example keys -- ask 127.0.0.1:4000 --known known_keys --accept-new
//! cargo run --example keys -- demo                      # all of it at once
//! ```
//!
//! `ask` looks for the server's address in the file of known keys, a line `ADDRESS PUBLIC-KEY` each. An address that is not there is
//! refused, or added with `--accept-new`; a key that differs from the one that is there is always refused. The pattern is XX: the client
//! has a key pair as well, made for this run.
//!
//! The server here serves one client after the other, and is no more than what the handshake needs: messages that are lost are sent again.

use std::{
    error::Error,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant as Clock},
};

use clap::{Parser, Subcommand};
use kcp9::proto::{
    Instant, Random,
    noise::{
        Answer, AnswerNext, HEADER_LEN, Initiator, KeyPair, NoiseError, PublicKey, Responder, SessionKeys,
        TAG_LEN, Trust, VERSION,
    },
};

/// What both ends say beside the handshake: nobody's keys for something else are taken for these.
const CONTEXT: &[u8] = b"kcp9 example keys";
/// The first byte of a packet of the session. Messages of the handshake begin with their version.
const SEALED: u8 = 0;
/// The route of every packet: with one session at a time there is nothing to choose from.
const ROUTE: u32 = 1;
const RESEND: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Parser)]
#[command(version, about = "Key pairs in files, and known keys as SSH has them")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a key pair, and print its public key.
    New { file: PathBuf },
    /// Print the public key of a key pair.
    Show { file: PathBuf },
    /// Answer clients.
    Serve { file: PathBuf, address: SocketAddr },
    /// Ask a server something.
    Ask {
        server: SocketAddr,
        /// The file of known keys.
        #[arg(long, default_value = "known_keys")]
        known: PathBuf,
        /// Add the key of a server that is not in the file.
        #[arg(long)]
        accept_new: bool,
    },
    /// Do all of it in a temporary directory.
    Demo,
}

fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().command {
        Command::New { file } => println!("{}", new(&file)?.public()),
        Command::Show { file } => println!("{}", load(&file)?.public()),
        Command::Serve { file, address } => serve(&load(&file)?, &UdpSocket::bind(address)?, usize::MAX)?,
        Command::Ask { server, known, accept_new } => {
            println!("{}", ask(server, &known, accept_new, b"hello")?);
        }
        Command::Demo => demo()?,
    }
    Ok(())
}

struct Entropy;

impl Random for Entropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system has randomness");
    }
}

// ---- Files ----

/// A new key pair, in a file that is not there yet and that nobody else can read.
fn new(file: &Path) -> Result<KeyPair, Box<dyn Error>> {
    let keys = KeyPair::generate(&mut Entropy);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(file)?;
    writeln!(file, "{}", *keys.secret_text())?;
    Ok(keys)
}

fn load(file: &Path) -> Result<KeyPair, Box<dyn Error>> {
    Ok(fs::read_to_string(file)?.parse()?)
}

/// The key that the file has for a server.
fn known_key(file: &Path, server: SocketAddr) -> Result<Option<PublicKey>, Box<dyn Error>> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    for line in text.lines() {
        if let Some((address, key)) = line.split_once(' ')
            && address == server.to_string()
        {
            return Ok(Some(key.parse()?));
        }
    }
    Ok(None)
}

fn add_known_key(file: &Path, server: SocketAddr, key: &PublicKey) -> io::Result<()> {
    let mut file: File = OpenOptions::new().append(true).create(true).open(file)?;
    writeln!(file, "{server} {key}")
}

// ---- Client ----

/// The answer of a server.
fn ask(
    server: SocketAddr,
    known: &Path,
    accept_new: bool,
    question: &[u8],
) -> Result<String, Box<dyn Error>> {
    let pinned = known_key(known, server)?;
    // Who it was, also where it is not trusted: to be shown and, if that was asked for, to be added.
    let shown = Arc::new(Mutex::new(None));
    let trust = Trust::by({
        let shown = Arc::clone(&shown);
        move |key| {
            *shown.lock().expect("no panic") = Some(*key);
            pinned.map_or(accept_new, |pinned| *key == pinned)
        }
    });
    let initiator = Initiator::xx(KeyPair::generate(&mut Entropy), trust);
    let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(RESEND))?;

    let mut handshake = initiator.begin(CONTEXT, &mut Entropy)?;
    let mut session: Option<(SessionKeys, Vec<u8>)> = None;
    let mut refused = None;
    let began = Clock::now();
    let now = || Instant::from_micros(began.elapsed().as_micros() as u64);
    let mut buffer = [0; 2_048];
    while began.elapsed() < PATIENCE {
        // Whatever was lost is sent again.
        match &mut session {
            None => socket.send(handshake.message())?,
            Some((session, last)) => {
                socket.send(last)?;
                socket.send(&sealed(session, now(), question)?)?
            }
        };
        let Ok(len) = socket.recv(&mut buffer) else { continue };
        let packet = &mut buffer[..len];
        match (&mut session, packet.first()) {
            (None, Some(&VERSION)) => match handshake.read_answer(packet, b"") {
                Ok(established) => {
                    session = Some((established.session, established.last_message.unwrap_or_default()))
                }
                // It is told if the true answer does not come.
                Err(error) => refused = Some(error),
            },
            (Some((session, _)), Some(&SEALED)) => {
                if let Ok(answer) = session.open(now(), ROUTE, &mut packet[1..]) {
                    let answer = String::from_utf8_lossy(answer).into_owned();
                    if let (None, Some(key)) = (pinned, session.peer()) {
                        add_known_key(known, server, key)?;
                    }
                    return Ok(answer);
                }
            }
            _ => {}
        }
    }
    let shown = *shown.lock().expect("no panic");
    Err(match (refused, pinned, shown) {
        (Some(NoiseError::UntrustedKey(_)), Some(_), Some(key)) => format!(
            "THE KEY OF {server} HAS CHANGED: it is {key} now, and another one in {}",
            known.display()
        )
        .into(),
        (Some(NoiseError::UntrustedKey(_)), None, Some(key)) => {
            format!("{server} is not known: its key is {key} (--accept-new adds it)").into()
        }
        (Some(error), ..) => error.into(),
        (None, ..) => format!("{server} does not answer").into(),
    })
}

/// A packet of the session.
fn sealed(session: &mut SessionKeys, now: Instant, payload: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut packet = [&[SEALED], &[0; HEADER_LEN][..], payload, &[0; TAG_LEN]].concat();
    session.seal(now, ROUTE, &mut packet[1..])?;
    Ok(packet)
}

// ---- Server ----

/// Answers the questions of `clients` clients.
fn serve(keys: &KeyPair, socket: &UdpSocket, clients: usize) -> Result<(), Box<dyn Error>> {
    println!("{} at {}", keys.public(), socket.local_addr()?);
    let responder = Responder::xx(keys.clone(), Trust::any());
    let began = Clock::now();
    let now = || Instant::from_micros(began.elapsed().as_micros() as u64);
    // The first message that was answered last, and the session that came of it.
    let mut answered: Option<(SocketAddr, Vec<u8>, Answer)> = None;
    let mut session: Option<(SocketAddr, SessionKeys)> = None;
    let mut served = 0;
    let mut buffer = [0; 2_048];
    while served < clients {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        let packet = &mut buffer[..len];
        if packet.first() == Some(&SEALED) {
            let Some((peer, session)) = session.as_mut().filter(|(peer, _)| *peer == from) else { continue };
            let first = !session.is_peer_heard();
            let Ok(question) = session.open(now(), ROUTE, &mut packet[1..]) else { continue };
            let answer = format!("you have said: {}", String::from_utf8_lossy(question));
            println!("{} at {peer} asks", session.peer().expect("XX shows it"));
            socket.send_to(&sealed(session, now(), answer.as_bytes())?, from)?;
            served += usize::from(first);
            continue;
        }
        match &mut answered {
            // The same first message gets the same answer.
            Some((peer, first, answer)) if *peer == from && first == packet => {
                socket.send_to(&answer.message, from)?;
            }
            Some((peer, _, Answer { next: AnswerNext::Last(handshake), .. }))
                if *peer == from && packet.get(1) == Some(&3) =>
            {
                if let Ok(keys) = handshake.read_last(packet) {
                    session = Some((from, keys));
                }
            }
            _ => match responder.answer(packet, CONTEXT, b"", &mut Entropy) {
                Ok(answer) => {
                    socket.send_to(&answer.message, from)?;
                    answered = Some((from, packet.to_vec(), answer));
                }
                Err(error) => {
                    if let Some(refusal) = error.refusal() {
                        socket.send_to(&refusal.to_message(), from)?;
                    }
                }
            },
        }
    }
    Ok(())
}

/// Makes keys, and asks a server that is not known, then known, then another one.
fn demo() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let (file, known) = (directory.path().join("server.key"), directory.path().join("known_keys"));
    new(&file)?;
    assert!(new(&file).is_err(), "a key that is there is not overwritten");
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let server = socket.local_addr()?;
    thread::scope(|scope| {
        let keys = load(&file)?;
        let serving = scope.spawn(move || serve(&keys, &socket, 2).map_err(|error| error.to_string()));
        let error = ask(server, &known, false, b"hello").expect_err("an unknown server");
        println!("unknown:  {error}");
        println!("added:    {}", ask(server, &known, true, b"hello")?);
        println!("known:    {}", ask(server, &known, false, b"hello again")?);
        serving.join().expect("no panic")?;
        Ok::<(), Box<dyn Error>>(())
    })?;
    // Somebody else at the same address.
    let socket = UdpSocket::bind(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let stop = Arc::new(());
    let watching = Arc::downgrade(&stop);
    thread::scope(|scope| {
        scope.spawn(move || {
            let responder = Responder::xx(KeyPair::generate(&mut Entropy), Trust::any());
            let mut buffer = [0; 2_048];
            while watching.upgrade().is_some() {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
                if let Ok(answer) = responder.answer(&buffer[..len], CONTEXT, b"", &mut Entropy) {
                    let _ = socket.send_to(&answer.message, from);
                }
            }
        });
        let error = ask(server, &known, true, b"hello").expect_err("another server");
        println!("impostor: {error}");
        assert!(error.to_string().contains("HAS CHANGED"));
        drop(stop);
    });
    Ok(())
}
