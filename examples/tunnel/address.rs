//! Addresses as kcptun's flags have them: `host:port`, `:port`, `host:3000-4000`, or the path of a Unix socket.

use std::{fmt, io, net::Ipv6Addr, ops::RangeInclusive, path::PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// A host, and the ports there. An empty host means every address of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPorts {
    pub(crate) host: String,
    pub(crate) ports: RangeInclusive<u16>,
}

/// Where TCP connections come from or go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Why an address cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddressError {
    NoPort,
    BadPort(String),
    EmptyRange(u16, u16),
    Range,
}

impl HostPorts {
    /// `host:port`, or `host:first-last`.
    pub(crate) fn parse(text: &str) -> Result<Self, AddressError> {
        let (host, ports) = split(text).ok_or(AddressError::NoPort)?;
        let ports = match ports.split_once('-') {
            None => {
                let port = parse_port(ports)?;
                port..=port
            }
            Some((first, last)) => {
                let (first, last) = (parse_port(first)?, parse_port(last)?);
                if first > last || first == 0 {
                    return Err(AddressError::EmptyRange(first, last));
                }
                first..=last
            }
        };
        Ok(Self { host: host.to_owned(), ports })
    }
}

impl StreamAddress {
    /// `host:port`; what has no port is the path of a Unix socket, as with kcptun's targets.
    pub(crate) fn parse(text: &str) -> Result<Self, AddressError> {
        let Some((host, port)) = split(text).filter(|_| !text.contains('/')) else {
            return if text.is_empty() { Err(AddressError::NoPort) } else { Ok(Self::Unix(text.into())) };
        };
        if port.contains('-') {
            return Err(AddressError::Range);
        }
        Ok(Self::Tcp { host: host.to_owned(), port: parse_port(port)? })
    }
}

/// Host and port. Brackets around an IPv6 address are taken off.
fn split(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(inside) => Some((inside.strip_suffix(']')?, port)),
        None => (!host.contains(':')).then_some((host, port)),
    }
}

fn parse_port(text: &str) -> Result<u16, AddressError> {
    text.parse().map_err(|_| AddressError::BadPort(text.to_owned()))
}

/// A socket for every address of this machine, IPv6 and IPv4, or IPv4 where the system has no IPv6.
pub(crate) fn bind_wildcard(kind: Type, port: u16) -> io::Result<Socket> {
    let both = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV6, kind, None)?;
        socket.set_only_v6(false)?;
        reuse(&socket, kind)?;
        socket.bind(&SockAddr::from(std::net::SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))))?;
        Ok(socket)
    };
    both().or_else(|error| {
        if error.kind() == io::ErrorKind::AddrInUse {
            return Err(error);
        }
        let socket = Socket::new(Domain::IPV4, kind, None)?;
        reuse(&socket, kind)?;
        socket.bind(&SockAddr::from(std::net::SocketAddr::from(([0, 0, 0, 0], port))))?;
        Ok(socket)
    })
}

/// A TCP port can be bound again while connections of before are in TIME-WAIT. For UDP that would share the port.
fn reuse(socket: &Socket, kind: Type) -> io::Result<()> {
    if cfg!(unix) && kind == Type::STREAM { socket.set_reuse_address(true) } else { Ok(()) }
}

impl fmt::Display for HostPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.ports.start(), self.ports.end());
        write_host(&self.host, f)?;
        if first == last { write!(f, ":{first}") } else { write!(f, ":{first}-{last}") }
    }
}

impl fmt::Display for StreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => {
                write_host(host, f)?;
                write!(f, ":{port}")
            }
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

fn write_host(host: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if host.contains(':') { write!(f, "[{host}]") } else { f.write_str(host) }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPort => {
                f.write_str("no port: write HOST:PORT, or :PORT for every address of this machine")
            }
            Self::BadPort(port) => write!(f, "`{port}` is no port: a number from 0 to 65535"),
            Self::EmptyRange(first, last) => write!(f, "there is no port from {first} to {last}"),
            Self::Range => f.write_str("a range of ports stands for UDP only, here it is one TCP port"),
        }
    }
}

impl std::error::Error for AddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(host: &str, ports: RangeInclusive<u16>) -> Result<HostPorts, AddressError> {
        Ok(HostPorts { host: host.into(), ports })
    }

    #[test]
    fn hosts_have_a_port_or_a_range_of_them() {
        for (text, expected) in [
            ("vps:29900", ports("vps", 29_900..=29_900)),
            (":29900", ports("", 29_900..=29_900)),
            ("127.0.0.1:0", ports("127.0.0.1", 0..=0)),
            ("host:3000-4000", ports("host", 3_000..=4_000)),
            ("[::1]:7-7", ports("::1", 7..=7)),
            ("host", Err(AddressError::NoPort)),
            ("::1", Err(AddressError::NoPort)),
            ("host:http", Err(AddressError::BadPort("http".into()))),
            ("host:1-65536", Err(AddressError::BadPort("65536".into()))),
            ("host:5-4", Err(AddressError::EmptyRange(5, 4))),
        ] {
            assert_eq!(HostPorts::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn what_has_no_port_is_a_unix_socket() {
        for (text, path) in [
            ("/run/app.sock", true),
            ("app.sock", true),
            ("./a:5", true),
            ("127.0.0.1:80", false),
            (":80", false),
        ] {
            let parsed = StreamAddress::parse(text).unwrap();
            assert_eq!(matches!(parsed, StreamAddress::Unix(_)), path, "{text}");
            assert_eq!(parsed.to_string(), text);
        }
        assert_eq!(StreamAddress::parse("host:1-2"), Err(AddressError::Range));
        assert_eq!(StreamAddress::parse("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(StreamAddress::parse(""), Err(AddressError::NoPort));
    }
}
