//! The JSON file of `-c`, whose values override the flags.
//!
//! Keys are those of kcptun 20210922 and our own. As Go's JSON has it, the case of a key's letters does not matter, and `null`
//! changes nothing.

use std::{fmt, fs, io, path::Path};

use clap::ValueEnum;
use serde_json::Value;

use crate::options::{Client, Common, Role, Server};

/// Why the file was not taken.
#[derive(Debug)]
pub(crate) enum FileError {
    Unreadable(io::Error),
    NotJson(serde_json::Error),
    NotAnObject,
    /// The value of a key is of another type than it must be.
    Type {
        key: String,
        expected: &'static str,
    },
    /// A key of other versions of kcptun that changes what goes over the wire.
    Refused {
        key: String,
    },
}

/// Reads the file into `role`. Returns the keys that mean nothing to it.
pub(crate) fn merge(path: &Path, role: &mut Role) -> Result<Vec<String>, FileError> {
    let text = fs::read_to_string(path).map_err(FileError::Unreadable)?;
    merge_text(&text, role)
}

fn merge_text(text: &str, role: &mut Role) -> Result<Vec<String>, FileError> {
    let Value::Object(object) = serde_json::from_str(text).map_err(FileError::NotJson)? else {
        return Err(FileError::NotAnObject);
    };
    let mut unknown = Vec::new();
    for (key, value) in object {
        if value.is_null() {
            continue;
        }
        let entry = Entry { key: key.to_lowercase(), value };
        let known = match role {
            Role::Client(client) => set_client(client, &entry)?,
            Role::Server(server) => set_server(server, &entry)?,
        };
        if !known {
            unknown.push(key);
        }
    }
    Ok(unknown)
}

struct Entry {
    key: String,
    value: Value,
}

impl Entry {
    fn text(&self) -> Result<String, FileError> {
        self.value.as_str().map(str::to_owned).ok_or_else(|| self.not("a string"))
    }

    fn number(&self) -> Result<i64, FileError> {
        self.value.as_i64().ok_or_else(|| self.not("a whole number"))
    }

    fn flag(&self) -> Result<bool, FileError> {
        self.value.as_bool().ok_or_else(|| self.not("true or false"))
    }

    fn choice<T: ValueEnum>(&self, expected: &'static str) -> Result<T, FileError> {
        T::from_str(&self.text()?, false).map_err(|_| self.not(expected))
    }

    fn not(&self, expected: &'static str) -> FileError {
        FileError::Type { key: self.key.clone(), expected }
    }
}

/// Whether the key is known.
fn set_client(client: &mut Client, entry: &Entry) -> Result<bool, FileError> {
    match &*entry.key {
        "localaddr" => client.localaddr = entry.text()?,
        "remoteaddr" => client.remoteaddr = entry.text()?,
        "conn" => client.conn = entry.number()?,
        "autoexpire" => client.autoexpire = entry.number()?,
        "scavengettl" => client.scavengettl = entry.number()?,
        _ => return set_common(&mut client.common, entry),
    }
    Ok(true)
}

fn set_server(server: &mut Server, entry: &Entry) -> Result<bool, FileError> {
    match &*entry.key {
        "listen" => server.listen = entry.text()?,
        "target" => server.target = entry.text()?,
        "pprof" => server.pprof = entry.flag()?,
        "oldkeyttl" => server.oldkeyttl = entry.number()?,
        _ => return set_common(&mut server.common, entry),
    }
    Ok(true)
}

fn set_common(common: &mut Common, entry: &Entry) -> Result<bool, FileError> {
    match &*entry.key {
        "key" => common.key = entry.text()?,
        "crypt" => common.crypt = entry.text()?,
        "kdf" => common.kdf = entry.choice("kcptun or argon2")?,
        "mode" => common.mode = entry.text()?,
        "mtu" => common.mtu = entry.number()?,
        "sndwnd" => common.sndwnd = Some(entry.number()?),
        "rcvwnd" => common.rcvwnd = Some(entry.number()?),
        "datashard" => common.datashard = Some(entry.number()?),
        "parityshard" => common.parityshard = Some(entry.number()?),
        "dscp" => common.dscp = entry.number()?,
        "nocomp" => common.nocomp = entry.flag()?,
        "acknodelay" => common.acknodelay = entry.flag()?,
        "nodelay" => common.nodelay = entry.number()?,
        "interval" => common.interval = entry.number()?,
        "resend" => common.resend = entry.number()?,
        "nc" => common.nc = entry.number()?,
        "sockbuf" => common.sockbuf = entry.number()?,
        "mux" => common.mux = entry.choice("smux or none")?,
        "smuxver" => common.smuxver = entry.number()?,
        "smuxbuf" => common.smuxbuf = entry.number()?,
        "streambuf" => common.streambuf = entry.number()?,
        "keepalive" => common.keepalive = entry.number()?,
        "log" => common.log = entry.text()?,
        "snmplog" => common.snmplog = entry.text()?,
        "snmpperiod" => common.snmpperiod = entry.number()?,
        "quiet" => common.quiet = entry.flag()?,
        "tcp" => common.tcp = entry.flag()?,
        "drain" => common.drain = entry.number()?,
        "qpp" if entry.flag()? => return Err(FileError::Refused { key: entry.key.clone() }),
        "qpp" => {}
        _ => return Ok(false),
    }
    Ok(true)
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::NotJson(error) => write!(f, "not JSON: {error}"),
            Self::NotAnObject => f.write_str("the JSON is no object"),
            Self::Type { key, expected } => write!(f, "{key} must be {expected}"),
            Self::Refused { key } => {
                write!(f, "{key} is of a later kcptun, and not supported: turn it off at both ends")
            }
        }
    }
}

impl std::error::Error for FileError {}

#[cfg(test)]
mod tests;
