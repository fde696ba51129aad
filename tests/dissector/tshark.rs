//! tshark with the dissector.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;

/// What is said of a packet.
#[derive(Debug)]
pub struct Frame {
    pub protocol: String,
    /// The column "Info".
    pub info: String,
    /// The fields of the dissector; `None` for a packet that it does not take.
    pub kcp: Option<Value>,
}

/// Has tshark read a capture.
///
/// # Panics
/// If there is no tshark, or if anything is wrong in Lua.
pub fn dissect(capture: &[u8], options: &[&str]) -> Vec<Frame> {
    read(capture, options, false)
}

/// The same, and with two passes, as Wireshark has them: both say the same.
pub fn dissect_twice(capture: &[u8], options: &[&str]) -> Vec<Frame> {
    read(capture, options, true)
}

fn read(capture: &[u8], options: &[&str], twice: bool) -> Vec<Frame> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("capture.pcap");
    fs::write(&path, capture).unwrap();
    let run = |more: &[&str]| run(dir.path(), &path, &[options, more].concat());

    let json = &["-T", "json", "--no-duplicate-keys", "-J", "kcp"][..];
    let text = &["-T", "text", "-o", r#"gui.column.format:"Protocol","%p","Info","%i""#][..];
    let (json_output, columns) = (run(json), run(text));
    if twice {
        for (once, options) in [(&json_output, json), (&columns, text)] {
            assert!(
                *once == run(&[&["-2"], options].concat()),
                "{options:?}: the second pass says something else"
            );
        }
    }
    let packets: Value = json_output.parse().expect("tshark writes JSON");
    let packets = packets.as_array().expect("a list of packets");
    let lines: Vec<&str> = columns.lines().collect();
    assert_eq!(lines.len(), packets.len(), "a line for each packet");
    let frame = |(line, packet): (&str, &Value)| {
        let layers = &packet["_source"]["layers"];
        let kcp = layers.get("kcp").cloned();
        // Beside the layer, not in it: the dissector has read what is not there.
        assert!(kcp.is_none() || layers.get("_ws.malformed").is_none(), "{layers}");
        let (protocol, info) = line.trim().split_once(' ').unwrap_or((line, ""));
        Frame { protocol: protocol.to_owned(), info: info.trim().to_owned(), kcp }
    };
    lines.into_iter().zip(packets).map(frame).collect()
}

fn run(home: &Path, capture: &Path, options: &[&str]) -> String {
    let output = Command::new("tshark")
        .arg("-n")
        .arg("-r")
        .arg(capture)
        .arg("-X")
        .arg(format!("lua_script:{}", script().display()))
        .args(options)
        // Nobody's preferences, and no dissector that is installed already.
        .env("WIRESHARK_CONFIG_DIR", home)
        .env("XDG_CONFIG_HOME", home)
        .output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!(
                "there is no tshark, which this test compares with: install it (Debian: apt-get install tshark)"
            )
        }
        output => output.unwrap(),
    };
    let (said, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    let errors: Vec<&str> = errors
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with("Running as user"))
        .collect();
    assert!(
        output.status.success() && errors.is_empty(),
        "{options:?}: {}\n{}",
        output.status,
        errors.join("\n")
    );
    for wrong in ["Lua Error", "Dissector bug"] {
        let line = said.lines().find(|line| line.contains(wrong));
        assert_eq!(line, None, "{options:?}");
    }
    said
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/wireshark/kcp9.lua")
}

impl Frame {
    /// The segments of the packet.
    pub fn segments(&self) -> &[Value] {
        self.kcp.as_ref().map_or(&[], |kcp| many(kcp, "kcp.segment"))
    }

    /// The text of a field of the packet, if it has it. Those of segments are in the segments.
    pub fn text(&self, name: &str) -> Option<&str> {
        text(self.kcp.as_ref()?, name)
    }

    /// The expert infos of the packet and of everything in it, by their names.
    pub fn experts(&self) -> Vec<String> {
        let mut names = Vec::new();
        if let Some(kcp) = &self.kcp {
            collect_experts(kcp, &mut names);
        }
        names
    }

    pub fn is(&self, expert: &str) -> bool {
        self.experts().iter().any(|name| name == expert)
    }
}

/// What a field has: one value, or several.
pub fn many<'a>(node: &'a Value, name: &str) -> &'a [Value] {
    match node.get(name) {
        None => &[],
        Some(Value::Array(values)) => values,
        Some(value) => std::slice::from_ref(value),
    }
}

pub fn text<'a>(node: &'a Value, name: &str) -> Option<&'a str> {
    many(node, name).first().map(|value| value.as_str().expect("fields are texts"))
}

/// A field that is a number, in decimal or hexadecimal digits.
pub fn number(node: &Value, name: &str) -> Option<u32> {
    text(node, name).map(|text| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap_or_else(|_| panic!("{name} is {text}")),
    })
}

/// A field that is a duration: microseconds.
pub fn micros(node: &Value, name: &str) -> Option<u64> {
    text(node, name).map(|text| (text.parse::<f64>().unwrap() * 1e6).round() as u64)
}

/// The names of a node's expert infos, without `kcp.`.
pub fn experts(node: &Value) -> Vec<String> {
    let infos = many(node, "_ws.expert").iter().filter_map(Value::as_object);
    infos.flat_map(|info| info.keys().filter_map(|key| key.strip_prefix("kcp.").map(str::to_owned))).collect()
}

fn collect_experts(node: &Value, names: &mut Vec<String>) {
    match node {
        Value::Object(fields) => {
            names.extend(experts(node));
            fields
                .iter()
                .filter(|(name, _)| *name != "_ws.expert")
                .for_each(|(_, node)| collect_experts(node, names));
        }
        Value::Array(nodes) => nodes.iter().for_each(|node| collect_experts(node, names)),
        _ => {}
    }
}
