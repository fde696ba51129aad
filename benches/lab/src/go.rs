//! Building `go/`, a flow's two ends on kcp-go, with Debian's package. Where that cannot be done there are no such flows, with a
//! message.

use std::{ffi::OsString, path::Path, process::Command};

/// Where Debian puts Go packages.
const GOPATH: &str = "/usr/share/gocode";

/// The program, or why there is none.
pub(crate) fn build() -> Result<OsString, String> {
    if !Path::new(GOPATH).join("src/github.com/xtaci/kcp-go").is_dir() {
        return Err("Debian's package golang-github-xtaci-kcp-dev is not installed".to_owned());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = own.with_file_name("lab-kcp-go");
    let built = Command::new("go")
        .envs([("GO111MODULE", "off"), ("GOPATH", GOPATH), ("GOFLAGS", "")])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("go"))
        .args(["build", "-o"])
        .args([&program, Path::new(".")])
        .output()
        .map_err(|error| format!("go: {error}"))?;
    if built.status.success() {
        Ok(program.into())
    } else {
        Err(format!("go build: {}", String::from_utf8_lossy(&built.stderr).trim()))
    }
}
