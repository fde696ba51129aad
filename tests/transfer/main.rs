//! The `transfer` example, as its users run it: the built program, over real sockets.

#![cfg(all(feature = "tokio", feature = "aead", feature = "password"))]

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output},
    sync::Arc,
};

use kcp9::KcpStream;
use kcp9_simulator::payload::Payload;
use kcp9_tests::example;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use self::{
    receiver::{KEY, Receiver, command, config},
    transfer::protocol::{Message, VERSION},
};

mod receiver;
/// The example's own modules, with their unit tests.
#[allow(dead_code)]
#[path = "../../examples/transfer/main.rs"]
mod transfer;

#[test]
fn files_and_folders_arrive() {
    let receiver = Receiver::start(&[]);
    let source = TempDir::new().unwrap();
    let files = [
        ("plain.bin", content(1, 1_000_000)),
        ("with two spaces.txt", content(2, 65_536)),
        ("grüße – 你好 🦀.txt", content(3, 100_001)),
        ("empty", Vec::new()),
        ("-dash", content(4, 1)),
    ];
    let mut arguments = vec!["--".to_owned()];
    for (name, bytes) in &files {
        arguments.push(write(source.path(), name, bytes));
    }
    write(source.path(), "folder/sub folder/deep", b"deep");
    write(source.path(), "folder/shallow", b"shallow");
    arguments.push(source.path().join("folder").to_str().unwrap().to_owned());

    let output = receiver.send(&arguments);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output).contains("7 transferred"), "{output:?}");
    for (name, bytes) in &files {
        assert!(&fs::read(receiver.path(name)).unwrap() == bytes, "{name}");
    }
    assert_eq!(fs::read(receiver.path("folder/sub folder/deep")).unwrap(), b"deep");
    assert_eq!(fs::read(receiver.path("folder/shallow")).unwrap(), b"shallow");
    assert_eq!(receiver.unfinished(), 0);

    let output = receiver.send(&arguments);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output).contains("0 transferred"), "{output:?}");
    assert!(text(&output).contains("7 already there, 0 failed"), "{output:?}");
}

#[test]
fn an_existing_file_is_kept_unless_told_otherwise() {
    let source = TempDir::new().unwrap();
    let files = ["same size", "other size", "fine"].map(|name| write(source.path(), name, b"12345"));

    let receiver = Receiver::start(&[]);
    write(receiver.folder.path(), "same size", b"abcde");
    write(receiver.folder.path(), "other size", b"abcdefg");
    let output = receiver.send(&files);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output).contains("same size: the receiver has another file of this name"), "{output:?}");
    assert!(text(&output).contains("1 transferred"), "{output:?}");
    assert!(text(&output).contains("2 failed"), "{output:?}");
    assert_eq!(fs::read(receiver.path("same size")).unwrap(), b"abcde");
    assert_eq!(fs::read(receiver.path("other size")).unwrap(), b"abcdefg");
    assert_eq!(fs::read(receiver.path("fine")).unwrap(), b"12345");

    let folder = receiver.stop();
    let receiver = Receiver::start_in(folder, &["--overwrite"]);
    let output = receiver.send(&files);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output).contains("2 transferred"), "{output:?}");
    assert_eq!(fs::read(receiver.path("same size")).unwrap(), b"12345");
    assert_eq!(fs::read(receiver.path("other size")).unwrap(), b"12345");
}

#[test]
fn a_killed_sender_leaves_nothing_half_done_and_is_resumed() {
    let receiver = Receiver::start(&["--timeout", "1"]);
    let source = TempDir::new().unwrap();
    let bytes = content(5, 12 << 20);
    let file = write(source.path(), "large file.bin", &bytes);

    let mut sender = receiver.start_slow_sender(&file);
    let partial = receiver.wait_for_part(PART);
    sender.kill().unwrap();
    sender.wait().unwrap();
    assert!(!receiver.path("large file.bin").exists());

    // Immediately: the receiver does not know yet that the first sender is dead.
    let output = receiver.send(&[file]);
    assert!(output.status.success(), "{output:?}");
    let resumed: u64 = number_after(&text(&output), "resumed after ");
    assert!(resumed >= partial && resumed < bytes.len() as u64, "{output:?}");
    assert!(fs::read(receiver.path("large file.bin")).unwrap() == bytes);
    assert_eq!(receiver.unfinished(), 0);
}

#[test]
fn a_killed_receiver_is_restarted_and_resumed() {
    let receiver = Receiver::start(&[]);
    let source = TempDir::new().unwrap();
    let bytes = content(13, 12 << 20);
    let file = write(source.path(), "large file.bin", &bytes);

    let sender = receiver.sender(std::slice::from_ref(&file), &["--window", "32", "--timeout", "1"]).spawn();
    receiver.wait_for_part(2 << 20);
    let address = receiver.address.clone();
    let folder = receiver.stop();
    let output = sender.unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!folder.path().join("large file.bin").exists());

    let receiver = Receiver::spawn(command(&[]), folder, &address, &[]);
    assert_eq!(receiver.address, address);
    let partial = receiver.wait_for_part(2 << 20);
    let output = receiver.send(&[file]);
    assert!(output.status.success(), "{output:?}");
    let resumed = number_after(&text(&output), "resumed after ");
    assert_eq!(resumed, partial, "{output:?}");
    assert!(fs::read(receiver.path("large file.bin")).unwrap() == bytes);
    assert_eq!(receiver.unfinished(), 0);
}

#[test]
fn the_demo_shows_that_a_file_arrives() {
    let source = TempDir::new().unwrap();
    let file = write(source.path(), "small file.bin", &content(14, 300_000));
    let temporary = TempDir::new().unwrap();
    for arguments in [&["demo"][..], &[]] {
        let mut demo = command(arguments);
        demo.env("TMPDIR", temporary.path());
        let output = demo.arg(&file).args(["--loss", "5", "--delay", "5", "--jitter", "1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        for figure in DEMO_FIGURES {
            assert!(text(&output).contains(figure), "{figure:?} in {output:?}");
        }
    }
    assert_eq!(fs::read_dir(source.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "what it made is gone");
}

/// Two receivers share a folder: the second leaves a file alone that the first is writing.
#[test]
fn a_file_on_its_way_to_another_receiver_is_left_alone() {
    let first = Receiver::start(&[]);
    let source = TempDir::new().unwrap();
    let bytes = content(15, 4 << 20);
    let file = write(source.path(), "file", &bytes);
    let sender = first.start_slow_sender(&file);
    first.wait_for_part(PART);

    let second = Receiver::start_in(Arc::clone(&first.folder), &[]);
    let other = TempDir::new().unwrap();
    let output = second.send(&[write(other.path(), "file", b"of the same name")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output).contains("another receiver"), "{output:?}");

    let output = sender.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(first.path("file")).unwrap() == bytes);
}

#[test]
fn an_unfinished_file_of_other_content_is_not_resumed() {
    let receiver = Receiver::start(&["--timeout", "1"]);
    let source = TempDir::new().unwrap();
    let file = write(source.path(), "file", &content(6, 12 << 20));
    let mut sender = receiver.start_slow_sender(&file);
    receiver.wait_for_part(PART);
    sender.kill().unwrap();
    sender.wait().unwrap();

    let bytes = content(7, 3 << 20);
    write(source.path(), "file", &bytes);
    let output = receiver.send(&[file]);
    assert!(output.status.success(), "{output:?}");
    assert!(!text(&output).contains("resumed"), "{output:?}");
    assert!(fs::read(receiver.path("file")).unwrap() == bytes);
}

#[test]
fn a_file_that_shrinks_is_an_error_and_the_next_one_is_sent() {
    let receiver = Receiver::start(&[]);
    let source = TempDir::new().unwrap();
    let file = write(source.path(), "shrinking", &content(8, 12 << 20));
    let next = write(source.path(), "next", b"next");
    let sender = receiver.sender(&[file.clone(), next], &["--window", "32"]).spawn().unwrap();
    receiver.wait_for_part(1 << 20);
    fs::File::options().write(true).open(&file).unwrap().set_len(100).unwrap();
    let output = sender.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output).contains("shrinking: the file shrank"), "{output:?}");
    assert!(!receiver.path("shrinking").exists());
    assert_eq!(fs::read(receiver.path("next")).unwrap(), b"next");
}

#[test]
fn several_senders_at_once() {
    let receiver = Receiver::start(&[]);
    let source = TempDir::new().unwrap();
    let senders: Vec<_> = (0..4)
        .map(|i| {
            let bytes = content(10 + i, 1_000_000);
            let file = write(source.path(), &format!("file {i}"), &bytes);
            (i, bytes, receiver.sender(&[file], &[]).spawn().unwrap())
        })
        .collect();
    for (i, bytes, sender) in senders {
        let output = sender.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(fs::read(receiver.path(&format!("file {i}"))).unwrap() == bytes, "{i}");
    }
}

#[tokio::test]
async fn a_hostile_sender_writes_nothing_outside_the_folder() {
    let receiver = Receiver::start(&["--timeout", "2"]);
    let outside = TempDir::new().unwrap();
    write(outside.path(), "precious", b"precious");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(outside.path(), receiver.path("link")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("precious"), receiver.path("file link")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("new"), receiver.path("dangling")).unwrap();
    }
    let absolute = outside.path().join("evil").to_str().unwrap().to_owned();
    let tricks = ["../evil", "a/../../evil", "a\\b", "C:evil", "nul", "a\0b", "", ".x.kcp9-part", &absolute];
    let links: &[&str] =
        if cfg!(unix) { &["link/evil", "link/precious", "file link", "dangling"] } else { &[] };

    let mut channel = receiver.connect().await;
    channel.send(&Message::Hello { version: VERSION }).await.unwrap();
    assert_eq!(channel.next().await.unwrap(), Message::Hello { version: VERSION });
    for name in tricks.iter().chain(links) {
        channel.send(&Message::Offer { size: 8, name: (*name).to_owned() }).await.unwrap();
        let answer = channel.next().await;
        assert!(matches!(answer, Ok(Message::Failed(_))), "{name:?}: {answer:?}");
    }

    // More data than offered, a wrong hash, a message out of order, noise, another version, silence.
    channel.send(&Message::Offer { size: 4, name: "wrong".to_owned() }).await.unwrap();
    assert!(matches!(channel.next().await, Ok(Message::Resume { have: 0, .. })));
    channel.send(&Message::Begin { offset: 0 }).await.unwrap();
    channel.send(&Message::Data(b"data"[..].into())).await.unwrap();
    channel.send(&Message::End { hash: [0; 32] }).await.unwrap();
    assert!(matches!(channel.next().await, Ok(Message::Failed(_))));
    channel.send(&Message::Offer { size: 4, name: "long".to_owned() }).await.unwrap();
    assert!(matches!(channel.next().await, Ok(Message::Resume { have: 0, .. })));
    channel.send(&Message::Begin { offset: 0 }).await.unwrap();
    channel.send(&Message::Data(b"too long"[..].into())).await.unwrap();
    assert!(matches!(channel.next().await, Ok(Message::Fatal(_))));

    let mut channel = receiver.connect().await;
    channel.send(&Message::Hello { version: 9_999 }).await.unwrap();
    assert!(matches!(channel.next().await, Ok(Message::Fatal(_))));
    let mut noise = KcpStream::connect(&*receiver.address, config()).await.unwrap();
    noise.write_all(&content(9, 10_000)).await.unwrap();
    let mut silent = KcpStream::connect(&*receiver.address, config()).await.unwrap();
    silent.write_all(b"\x01").await.unwrap();

    let source = TempDir::new().unwrap();
    let output = receiver.send(&[write(source.path(), "good", b"good")]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(receiver.path("good")).unwrap(), b"good");
    assert!(!receiver.path("wrong").exists() && !receiver.path("long").exists());
    assert_eq!(receiver.unfinished(), 0);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(fs::read(outside.path().join("precious")).unwrap(), b"precious");
}

/// A limit on the size of files stands in for a full disk.
#[cfg(unix)]
#[test]
fn a_disk_error_is_told_to_the_sender() {
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\""])
        .arg(example("transfer"))
        .env("KCP9_KEY", KEY);
    let receiver = Receiver::spawn(limited, TempDir::new().unwrap(), "127.0.0.1:0", &[]);
    let source = TempDir::new().unwrap();
    let large = write(source.path(), "large", &content(11, 8 << 20));
    let small = write(source.path(), "small", b"small");
    let output = receiver.send(&[large, small]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output).contains("large: the receiver cannot store it: File too large"), "{output:?}");
    assert!(!receiver.path("large").exists());
    assert_eq!(fs::read(receiver.path("small")).unwrap(), b"small");
}

#[cfg(unix)]
#[test]
fn interrupts_are_told_to_the_other_end() {
    let receiver = Receiver::start(&[]);
    let source = TempDir::new().unwrap();
    let file = write(source.path(), "file", &content(12, 12 << 20));

    let sender = receiver.start_slow_sender(&file);
    receiver.wait_for_part(PART);
    interrupt(&sender);
    assert_eq!(sender.wait_with_output().unwrap().status.code(), Some(130));
    receiver.wait_for_line("FAILED    file: the sender was stopped");
    let kept = receiver.wait_for_part(PART);

    let sender = receiver.start_slow_sender(&file);
    // More than the first sender had sent when it stopped: so the second one is sending.
    receiver.wait_for_part(kept + PART);
    interrupt(&receiver.child);
    let output = sender.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output).contains("the receiver was stopped"), "{output:?}");
    assert!(!receiver.path("file").exists());
    let (status, _folder) = receiver.wait();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn once_ends_the_receiver_after_one_sender_and_sending_then_fails() {
    let receiver = Receiver::start(&["--once"]);
    let source = TempDir::new().unwrap();
    let file = write(source.path(), "file", b"file");
    assert!(receiver.send(std::slice::from_ref(&file)).status.success());
    let address = receiver.address.clone();
    assert!(receiver.wait().0.success());

    let output = command(&["send", &file, &address, "--timeout", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = command(&["send", "/no/such/file", &address, "--timeout", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[cfg(unix)]
fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Payload::new(seed).fill(0, &mut bytes);
    bytes
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

fn number_after(text: &str, label: &str) -> u64 {
    let (_, rest) = text.split_once(label).unwrap_or_else(|| panic!("no {label:?} in {text}"));
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// What the demo prints about its transfer.
const DEMO_FIGURES: [&str; 5] = ["the same at both ends", "\nrate ", "\nrtt ", "\nresent ", "\non wire "];

/// An unfinished file of so many bytes shows that the transfer is under way.
const PART: u64 = 512 << 10;
