//! What the flags and the file ask for, checked: every value out of its limits is refused by its name.

use std::{fmt, time::Duration};

use kcp9::{
    ConfigError, Extensions, KcpConfig, NoDelay,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    mux::{MuxConfig, MuxVersion},
};

use crate::{
    address::{AddressError, HostPorts, StreamAddress},
    options::{Client, Common, DEFAULT_KEY, Kdf, Mux, Server},
};

/// What both ends have.
pub(crate) struct Settings {
    pub(crate) kcp: KcpConfig,
    /// `None` where each connection has a session of its own.
    pub(crate) mux: Option<MuxConfig>,
    pub(crate) compress: bool,
    pub(crate) dscp: u8,
    pub(crate) sockbuf: usize,
    pub(crate) quiet: bool,
    pub(crate) drain: Duration,
}

pub(crate) struct ClientSettings {
    pub(crate) local: StreamAddress,
    pub(crate) remote: HostPorts,
    pub(crate) conn: usize,
    pub(crate) autoexpire: Option<Duration>,
    pub(crate) scavengettl: Duration,
    pub(crate) common: Settings,
}

pub(crate) struct ServerSettings {
    pub(crate) listen: HostPorts,
    pub(crate) target: StreamAddress,
    pub(crate) oldkeyttl: Duration,
    pub(crate) common: Settings,
}

/// What was asked for and cannot be had, by the name of the flag or key.
#[derive(Debug)]
pub(crate) struct SettingsError {
    name: &'static str,
    why: String,
}

impl SettingsError {
    fn new(name: &'static str, why: impl fmt::Display) -> Self {
        Self { name, why: why.to_string() }
    }
}

impl ClientSettings {
    pub(crate) fn new(client: &Client) -> Result<Self, SettingsError> {
        Ok(Self {
            local: StreamAddress::parse(&client.localaddr).map_err(address("localaddr"))?,
            remote: HostPorts::parse(&client.remoteaddr).map_err(address("remoteaddr"))?,
            conn: number("conn", client.conn, 1, 65_535)? as usize,
            // As with kcptun, what is below 0 is as good as 0.
            autoexpire: (client.autoexpire > 0)
                .then(|| seconds("autoexpire", client.autoexpire))
                .transpose()?,
            scavengettl: seconds("scavengettl", client.scavengettl)?,
            common: Settings::new(&client.common, (128, 512))?,
        })
    }
}

impl ServerSettings {
    pub(crate) fn new(server: &Server) -> Result<Self, SettingsError> {
        if server.pprof {
            return Err(SettingsError::new(
                "pprof",
                "is Go's profiler, which this program has not: leave it out",
            ));
        }
        Ok(Self {
            listen: HostPorts::parse(&server.listen).map_err(address("listen"))?,
            target: StreamAddress::parse(&server.target).map_err(address("target"))?,
            oldkeyttl: seconds("oldkeyttl", server.oldkeyttl)?,
            common: Settings::new(&server.common, (1_024, 1_024))?,
        })
    }
}

impl Settings {
    /// `windows` are the defaults of the role, to send and to receive.
    fn new(common: &Common, windows: (i64, i64)) -> Result<Self, SettingsError> {
        if common.tcp {
            let why =
                "would send TCP packets from a raw socket, which is not supported: leave it out at both ends";
            return Err(SettingsError::new("tcp", why));
        }
        Ok(Self {
            kcp: kcp_config(common, windows)?,
            mux: (common.mux == Mux::Smux).then(|| mux_config(common)).transpose()?,
            compress: !common.nocomp,
            dscp: number("dscp", common.dscp, 0, 63)? as u8,
            sockbuf: number("sockbuf", common.sockbuf, 1, i64::from(i32::MAX))? as usize,
            quiet: common.quiet,
            drain: seconds("drain", common.drain)?,
        })
    }
}

/// The cipher with its key; none for `null`.
pub(crate) fn crypto(common: &Common) -> Result<Option<PacketCrypto>, SettingsError> {
    let refused = |why: &dyn fmt::Display| SettingsError::new("crypt", format!("{}: {why}", common.crypt));
    if common.crypt == "null" {
        return Ok(None);
    }
    let kind: CipherKind = common.crypt.parse().map_err(|error| refused(&error))?;
    let key = match common.kdf {
        _ if kind == CipherKind::None => Key::from_bytes(b""),
        Kdf::Kcptun => Key::from_kcptun_password(&common.key),
        Kdf::Argon2 => Key::from_password(&common.key).map_err(|error| SettingsError::new("key", error))?,
    };
    let cipher = kind.build(&key, Framing::KcpGo).map_err(|error| refused(&error))?;
    PacketCrypto::with_os_nonces(cipher).map(Some).map_err(|error| refused(&error))
}

/// What is to be said of the key, if anything.
pub(crate) fn warning(common: &Common) -> Option<&'static str> {
    match &*common.crypt {
        "null" | "none" | "xor" => {
            Some("this crypt protects against nothing: everyone can read and forge what is sent")
        }
        _ if common.key == DEFAULT_KEY => Some("the key is kcptun's default, which everyone knows: set key"),
        _ => None,
    }
}

/// Data and parity packets of a group. As with kcptun, there is no FEC unless both are more than 0.
pub(crate) fn shards(common: &Common) -> (i64, i64) {
    let defaults = if common.mode == AUTO { (0, 0) } else { (10, 3) };
    match (common.datashard.unwrap_or(defaults.0), common.parityshard.unwrap_or(defaults.1)) {
        (data @ 1.., parity @ 1..) => (data, parity),
        _ => (0, 0),
    }
}

fn kcp_config(common: &Common, windows: (i64, i64)) -> Result<KcpConfig, SettingsError> {
    let keep_alive = keep_alive(common)?;
    let library = KcpConfig::default();
    let windows = if common.mode == AUTO {
        (library.send_window().into(), library.recv_window().into())
    } else {
        windows
    };
    let mut builder = KcpConfig::builder()
        .crypto(crypto(common)?)
        // As long as any packet that kcp-go receives.
        .mtu(number("mtu", common.mtu, 64, 1_500)? as usize)
        .send_window(number("sndwnd", common.sndwnd.unwrap_or(windows.0), 1, 65_535)? as u32)
        .recv_window(number("rcvwnd", common.rcvwnd.unwrap_or(windows.1), 1, 65_535)? as u32)
        .nodelay(nodelay(common)?)
        .ack_no_delay(common.acknodelay)
        .stream(true)
        .write_delay(false);
    let (data, parity) = shards(common);
    if data > 0 {
        let data = number("datashard", data, 1, 255)?;
        let parity = number("parityshard", parity, 1, 256 - data as i64)?;
        builder = builder.fec(data as usize, parity as usize);
    }
    if common.mux == Mux::None {
        // Only peers with extensions say where a stream ends, and nothing above KCP would.
        builder = builder.extensions(Extensions::Required).keep_alive(Some(keep_alive));
    }
    builder.build().map_err(|error| refused(&error))
}

/// What the library refuses, by kcptun's name of it.
fn refused(error: &ConfigError) -> SettingsError {
    let name = match error.field {
        "fec data" => "datashard",
        "fec parity" => "parityshard",
        "send_window" => "sndwnd",
        "recv_window" => "rcvwnd",
        "receive_buffer" => "smuxbuf",
        "stream_buffer" => "streambuf",
        "keep_alive" => "keepalive",
        field => field,
    };
    SettingsError::new(name, format!("is {}, outside {}..={}", error.value, error.min, error.max))
}

fn nodelay(common: &Common) -> Result<NoDelay, SettingsError> {
    match &*common.mode {
        "normal" => Ok(NoDelay::NORMAL),
        "fast" => Ok(NoDelay::FAST),
        "fast2" => Ok(NoDelay::FAST2),
        "fast3" => Ok(NoDelay::FAST3),
        AUTO => Ok(KcpConfig::default().nodelay()),
        "manual" => Ok(NoDelay {
            nodelay: number("nodelay", common.nodelay, 0, i64::MAX)? != 0,
            // KCP itself takes 10 ms for less, and 5 s for more.
            interval: Duration::from_millis(
                number("interval", common.interval, 0, i64::MAX)?.clamp(10, 5_000),
            ),
            resend: number("resend", common.resend, 0, 255)? as u32,
            nc: number("nc", common.nc, 0, i64::MAX)? != 0,
        }),
        other => Err(SettingsError::new(
            "mode",
            format!("is {other}: not one of fast3, fast2, fast, normal, manual, auto"),
        )),
    }
}

fn mux_config(common: &Common) -> Result<MuxConfig, SettingsError> {
    let version = match common.smuxver {
        1 => MuxVersion::V1,
        2 => MuxVersion::V2,
        other => {
            return Err(SettingsError::new("smuxver", format!("is {other}: there are versions 1 and 2")));
        }
    };
    let receive_buffer = number("smuxbuf", common.smuxbuf, 1, i64::from(i32::MAX))?;
    // smux checks it in version 1 as well, where it means nothing.
    let stream_buffer = number("streambuf", common.streambuf, 1, receive_buffer as i64)
        .map_err(|error| SettingsError::new("streambuf", format!("{}, which is smuxbuf", error.why)))?;
    MuxConfig::builder()
        .version(version)
        .receive_buffer(receive_buffer as usize)
        .stream_buffer(stream_buffer as usize)
        .keep_alive(Some(keep_alive(common)?))
        .build()
        .map_err(|error| refused(&error))
}

/// Go's smux gives up after 30 s of silence, so it takes no longer interval.
fn keep_alive(common: &Common) -> Result<Duration, SettingsError> {
    Ok(Duration::from_secs(number("keepalive", common.keepalive, 1, 30)?))
}

fn number(name: &'static str, value: i64, min: i64, max: i64) -> Result<u64, SettingsError> {
    match u64::try_from(value) {
        Ok(number) if (min..=max).contains(&value) => Ok(number),
        _ if max == i64::MAX => Err(SettingsError::new(name, format!("is {value}, less than {min}"))),
        _ => Err(SettingsError::new(name, format!("is {value}, outside {min}..={max}"))),
    }
}

fn seconds(name: &'static str, value: i64) -> Result<Duration, SettingsError> {
    Ok(Duration::from_secs(number(name, value, 0, LONGEST)?))
}

fn address(name: &'static str) -> impl Fn(AddressError) -> SettingsError {
    move |error| SettingsError::new(name, error)
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

impl std::error::Error for SettingsError {}

/// Our own mode: the library's defaults, which have congestion control, so that windows can be larger than what the path holds.
const AUTO: &str = "auto";
/// A year, in seconds: far enough from where times overflow.
const LONGEST: i64 = 366 * 86_400;

#[cfg(test)]
mod tests;
