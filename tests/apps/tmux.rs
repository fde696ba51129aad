//! A terminal for the example `top`.

use std::{path::Path, process::Stdio, time::Duration};

use kcp9_tests::{example, within};
use tokio::process::Command;

/// What is on the screen once the program has exited without an error.
pub const EXITED: &str = "top: exit status 0";

/// A terminal of tmux, on a server of its own.
pub struct Tmux<'a>(pub &'a Path);

impl Tmux<'_> {
    /// Starts `top`, which is to read from `socket`.
    pub async fn start(&self, socket: &Path) {
        let program = example("top");
        // The shell stays, as the screen goes with what is in it.
        let command =
            format!("'{}' '{}'; echo \"top: exit status $?\"; sleep 60", program.display(), socket.display());
        self.run(&["-f", "/dev/null", "new-session", "-d", "-s", "top", "-x", "120", "-y", "20", &command])
            .await;
    }

    /// Presses a key.
    pub async fn press(&self, key: &str) {
        self.run(&["send-keys", "-t", "top", key]).await;
    }

    async fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command
            .arg("-S")
            .arg(self.0)
            .args(arguments)
            .env_remove("TMUX")
            .env("LC_ALL", "C.UTF-8")
            .kill_on_drop(true);
        let output =
            within(20, "tmux", command.output()).await.expect("tmux is needed: apt-get install tmux");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What is on the screen once it has all of `marks`.
    pub async fn shows(&self, marks: &[&str]) -> String {
        let has_all = |screen: &str| marks.iter().all(|mark| screen.contains(mark)).then_some(());
        self.until(&format!("{marks:?}"), has_all).await.0
    }

    /// The screen once `look` finds something in it, and that; panics with `what` when it never does.
    pub async fn until<T>(&self, what: &str, mut look: impl FnMut(&str) -> Option<T>) -> (String, T) {
        let mut screen = String::new();
        for _ in 0..600 {
            screen = self.run(&["capture-pane", "-p", "-t", "top"]).await;
            if let Some(found) = look(&screen) {
                return (screen, found);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no {what} on the screen:\n{screen}");
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let mut command = std::process::Command::new("tmux");
        drop(command.arg("-S").arg(self.0).arg("kill-server").stderr(Stdio::null()).status());
    }
}
