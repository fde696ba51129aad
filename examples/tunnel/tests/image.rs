//! The container file, by buildah: what the image has in it, and that it runs from there.

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use super::{
    chat, connect, echo,
    support::{Program, target, unshared},
};

/// Images in a folder of their own, without a daemon.
struct Buildah<'a> {
    store: &'a Path,
}

impl Buildah<'_> {
    /// What it prints.
    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("buildah");
        command.arg("--root").arg(self.store.join("root")).arg("--runroot").arg(self.store.join("run"));
        // As little as it needs of the system: no overlay, and no runtime for containers.
        command.args(["--storage-driver", "vfs"]).args(arguments);
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let Output { status, stdout, stderr } =
            command.output().expect("is Debian's package buildah installed?");
        assert!(status.success(), "buildah {arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap().trim().to_owned()
    }
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|word| word.as_str().expect("a string")).collect()
}

/// By buildah 1.28, as root: `.ci/run image`, which builds the static binary first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's buildah, root, and the static binary: .ci/run image"]
async fn the_image_runs() {
    let folder = tempfile::tempdir().unwrap();
    let buildah = Buildah { store: folder.path() };
    buildah.run(&[
        "bud",
        "--isolation",
        "chroot",
        "-f",
        "examples/tunnel/Containerfile",
        "-t",
        "tunnel",
        ".",
    ]);
    let image: Value = serde_json::from_str(&buildah.run(&["inspect", "--type", "image", "tunnel"])).unwrap();
    let config = &image["OCIv1"]["config"];
    let (entry, default) = (strings(&config["Entrypoint"]), strings(&config["Cmd"]));
    let (user, signal) = (config["User"].as_str().unwrap(), config["StopSignal"].as_str().unwrap());
    let container = buildah.run(&["from", "--pull-never", "tunnel"]);
    let root = buildah.run(&["mount", &container]);
    let files: Vec<_> = std::fs::read_dir(&root).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["tunnel"], "the program alone");

    // As a runtime does it: the image is the root folder, the process is the user's.
    let start = |arguments: &[&str]| {
        let user = format!("--userspec={user}");
        Program::start(Path::new("chroot"), &[&[user.as_str(), &*root][..], &*entry, arguments].concat())
    };
    assert!(start(&default).says("Usage: tunnel").await.contains("<COMMAND>"));
    let far = format!("{}:4000", unshared());
    let target = target(echo).await.to_string();
    let mut server = start(&["server", "-l", &far, "-t", &target]);
    server.says("listening on: ").await;
    let mut client = start(&["client", "-l", "127.0.0.1:0", "-r", &far]);
    let mut stream = connect(client.addr().await).await;
    chat(&mut stream).await.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(status.lines().any(|line| line == "Uid:\t65534\t65534\t65534\t65534"), "{status}");

    server.signal(signal).await;
    server.says("stopping: ").await;
    // What is open goes on.
    chat(&mut stream).await.unwrap();
    drop(stream);
    assert!(server.ended().await.success(), "{}", server.said());
    client.signal(signal).await;
    assert!(client.ended().await.success(), "{}", client.said());
    buildah.run(&["umount", &container]);
}
