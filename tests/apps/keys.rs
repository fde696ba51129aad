//! The commands of the example `keys`: key pairs in files, and known keys as SSH has them.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::UdpSocket,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use kcp9::proto::noise::{KeyPair, PublicKey};

/// A directory with what the commands leave there.
struct Keys {
    directory: tempfile::TempDir,
}

/// What a command has said, and whether it did what it was to do.
struct Said {
    worked: bool,
    out: String,
    error: String,
}

impl Keys {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(kcp9_tests::example("keys"));
        command.args(arguments).current_dir(self.directory.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { worked: output.status.success(), out: text(output.stdout), error: text(output.stderr) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

/// A server of the example, ended when it is dropped.
struct Server {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    addr: String,
}

impl Server {
    /// One that answers with the keys in this file, at a port or any one.
    fn start(keys: &Keys, file: &str, addr: &str) -> Self {
        let mut child = keys.command(&["serve", file, addr]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let (_, addr) = first.trim().rsplit_once(' ').unwrap_or_else(|| panic!("{first}"));
        Self { addr: addr.to_owned(), child, lines }
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nobody but the owner reads or writes it.
#[cfg(unix)]
fn assert_private(file: &Path) {
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(file).unwrap());
    assert_eq!(mode & 0o777, 0o600, "{}", file.display());
}

#[cfg(not(unix))]
fn assert_private(_: &Path) {}

#[test]
fn a_key_pair_is_made_once_in_a_file_that_nobody_else_reads_and_shown() {
    let keys = Keys::new();
    let made = keys.run(&["new", "server.key"]);
    assert!(made.worked && made.error.is_empty(), "{}", made.error);
    assert_private(&keys.path("server.key"));
    let secret = keys.text("server.key");
    let pair: KeyPair = secret.parse().unwrap();
    assert_eq!(made.out, format!("{}\n", pair.public()), "the public key, and nothing else");
    assert!(made.out.starts_with("kcp9-public-") && secret.starts_with("kcp9-secret-"));

    let shown = keys.run(&["show", "server.key"]);
    assert_eq!((shown.worked, &shown.out), (true, &made.out));

    // What is there stays.
    let again = keys.run(&["new", "server.key"]);
    assert!(!again.worked && again.out.is_empty() && again.error.contains("exists"), "{}", again.error);
    assert_eq!(keys.text("server.key"), secret);
    let other = keys.run(&["new", "other.key"]);
    assert!(other.worked && other.out != made.out);
}

#[test]
fn files_without_a_secret_key_are_refused_without_being_shown() {
    let keys = Keys::new();
    let public = keys.run(&["new", "server.key"]).out;
    fs::write(keys.path("server.pub"), &public).unwrap();
    let secret = keys.text("server.key");
    let cut = &secret[..secret.len() - 3];
    fs::write(keys.path("cut.key"), cut).unwrap();
    for file in ["server.pub", "cut.key", "none.key"] {
        for command in [&["show", file][..], &["serve", file, "127.0.0.1:0"]] {
            let said = keys.run(command);
            assert!(!said.worked && said.out.is_empty() && !said.error.is_empty(), "{command:?}");
            let told = &said.error;
            assert!(!told.contains(&cut["kcp9-secret-".len()..][..16]), "{command:?} shows a secret");
        }
    }
}

#[test]
fn a_servers_key_is_pinned_in_a_file_and_a_changed_one_is_refused_by_name() {
    let keys = Keys::new();
    let public = keys.run(&["new", "server.key"]).out.trim().to_owned();
    let mut server = Server::start(&keys, "server.key", "127.0.0.1:0");
    let addr = server.addr.clone();
    let ask = |more: &[&str]| keys.run(&[&["ask", &addr, "--known", "known"], more].concat());

    // Nobody knows it yet, and nothing is added without being asked for.
    let unknown = ask(&[]);
    assert!(!unknown.worked && unknown.out.is_empty());
    assert!(
        unknown.error.contains(&format!("{addr} is not known: its key is {public}")),
        "{}",
        unknown.error
    );
    assert!(unknown.error.contains("--accept-new") && !keys.path("known").exists());

    let added = ask(&["--accept-new"]);
    assert_eq!((added.worked, added.out.as_str()), (true, "you have said: hello\n"), "{}", added.error);
    let pinned = format!("{addr} {public}\n");
    assert_eq!(keys.text("known"), pinned);
    // Who asks shows a key of its own.
    let line = server.next_line();
    let (client, _) = line.split_once(" at ").unwrap_or_else(|| panic!("{line}"));
    assert!(client.parse::<PublicKey>().is_ok_and(|key| key.to_string() != public), "{line}");

    for more in [&[][..], &["--accept-new"]] {
        let known = ask(more);
        assert_eq!((known.worked, known.out.as_str()), (true, "you have said: hello\n"), "{}", known.error);
        assert_eq!(keys.text("known"), pinned, "once");
    }
    drop(server);

    // Another one at the same address. That new keys may be added changes nothing.
    let other = keys.run(&["new", "other.key"]).out.trim().to_owned();
    let server = Server::start(&keys, "other.key", &addr);
    for more in [&[][..], &["--accept-new"]] {
        let changed = ask(more);
        assert!(!changed.worked && changed.out.is_empty());
        let told = &changed.error;
        let message = format!("THE KEY OF {addr} HAS CHANGED: it is {other} now, and another one in known");
        assert!(told.contains(&message), "{told}");
        assert_eq!(keys.text("known"), pinned, "what is pinned stays");
    }
    drop(server);

    // And the first one again.
    let _server = Server::start(&keys, "server.key", &addr);
    assert!(ask(&[]).worked);
}

#[test]
fn a_line_of_known_keys_that_is_none_is_not_taken_for_an_unknown_server() {
    let keys = Keys::new();
    keys.run(&["new", "server.key"]);
    let server = Server::start(&keys, "server.key", "127.0.0.1:0");
    let damaged = format!("{} kcp9-public-00\n", server.addr);
    fs::write(keys.path("known"), &damaged).unwrap();
    let said = keys.run(&["ask", &server.addr, "--known", "known", "--accept-new"]);
    assert!(!said.worked && !said.error.is_empty() && said.out.is_empty());
    assert_eq!(keys.text("known"), damaged);
}

#[test]
fn a_server_that_is_silent_is_told_from_a_wrong_one() {
    let keys = Keys::new();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let said = keys.run(&["ask", &addr, "--accept-new"]);
    assert!(!said.worked && said.error.contains(&format!("{addr} does not answer")), "{}", said.error);
    assert!(!keys.path("known_keys").exists());
}

#[test]
fn the_demonstration_shows_all_of_it() {
    let said = Keys::new().run(&["demo"]);
    assert!(said.worked, "{}", said.error);
    for line in [
        "unknown:  ",
        "added:    you have said: hello",
        "known:    you have said: hello again",
        "impostor: THE KEY",
    ] {
        assert!(said.out.lines().any(|said| said.starts_with(line)), "{line}: {}", said.out);
    }
}

/// A server and a client of the library, with the keys that the commands have made and shown.
#[tokio::test]
async fn streams_have_the_keys_of_files() {
    use kcp9::{
        KcpConfig, KcpListener, KcpStream,
        proto::noise::{Initiator, Noise, Responder},
    };
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let keys = Keys::new();
    assert!(keys.run(&["new", "server.key"]).worked);
    let shown = keys.run(&["show", "server.key"]);
    let public = shown.out.split_whitespace().find(|word| word.starts_with("kcp9-public-")).unwrap();
    let server = Responder::nk(keys.text("server.key").parse::<KeyPair>().unwrap());
    let client = Initiator::nk(public.parse::<PublicKey>().unwrap());
    let config = |noise: Noise| KcpConfig::builder().noise(noise).build().unwrap();
    let listener = KcpListener::bind("127.0.0.1:0", config(server.into())).await.unwrap();
    let mut stream = KcpStream::connect(listener.local_addr().unwrap(), config(client.into())).await.unwrap();
    stream.write_all(b"for that server alone").await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    let mut bytes = [0; 21];
    accepted.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"for that server alone");
    assert_eq!(stream.peer_key().unwrap().to_string(), public);
}
