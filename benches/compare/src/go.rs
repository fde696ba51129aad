//! Building `go/`, the peer on kcp-go: with Debian's package, and with the module of the newest release that `go.mod` names.
//! A program that cannot be built is left out, with a message.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::process::Program;

/// Where Debian puts Go packages.
const GOPATH: &str = "/usr/share/gocode";
pub(crate) const DEBIAN: &str = "kcp-go-5.6.1";
pub(crate) const NEWEST: &str = "kcp-go-newest";

/// The programs that are wanted and that build.
pub(crate) fn programs(wanted: impl Fn(&str) -> bool) -> Vec<Program> {
    let builds = [(DEBIAN, build_debian as fn() -> Result<Program, String>), (NEWEST, build_newest)];
    let mut programs = Vec::new();
    for (name, build) in builds.into_iter().filter(|(name, _)| wanted(name)) {
        match build() {
            Ok(program) => programs.push(program),
            Err(why) => eprintln!("{name} is left out: {why}"),
        }
    }
    programs
}

fn build_debian() -> Result<Program, String> {
    if !Path::new(GOPATH).join("src/github.com/xtaci/kcp-go").is_dir() {
        return Err("Debian's package golang-github-xtaci-kcp-dev is not installed".to_owned());
    }
    let output = output_path(DEBIAN)?;
    build(go().envs([("GO111MODULE", "off"), ("GOPATH", GOPATH), ("GOFLAGS", "")]), &[], &output)?;
    let package = run(Command::new("dpkg-query").args([
        "--show",
        "--showformat=${Version}",
        "golang-github-xtaci-kcp-dev",
    ]));
    let release = package.unwrap_or_else(|_| "of Debian".to_owned());
    Ok(Program::new(DEBIAN, format!("{release}, {}", go_version(&output)?), output))
}

fn build_newest() -> Result<Program, String> {
    let output = output_path(NEWEST)?;
    build(go().envs([("GOFLAGS", "-buildvcs=false")]), &["-tags", "v5"], &output)?;
    Ok(Program::new(NEWEST, go_version(&output)?, output))
}

fn go() -> Command {
    Command::new("go")
}

fn build(command: &mut Command, flags: &[&str], output: &Path) -> Result<(), String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
    run(command.current_dir(source).arg("build").args(flags).arg("-o").args([output, Path::new(".")]))
        .map(drop)
}

/// The version of kcp-go, where the program knows it, and of the Go that built it.
fn go_version(program: &Path) -> Result<String, String> {
    let versions = run(Command::new(program).arg("version"))?;
    match versions.rsplit_once(' ') {
        Some((kcp, go)) if !kcp.is_empty() => Ok(format!("{kcp}, Go {go}")),
        _ => Ok(format!("Go {}", versions.trim())),
    }
}

fn output_path(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name(name))
}

/// What a program prints; the error is what it prints on standard error.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}
