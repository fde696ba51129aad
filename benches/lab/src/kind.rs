//! What flows are made of, by the names that scenarios use.

use std::{fmt, str::FromStr};

use kcp9::{CongestionControl, KcpConfig, KcpConfigBuilder, NoDelay};

/// A controller of kcp9.
#[derive(Clone, Copy)]
pub(crate) struct Controller {
    pub(crate) name: &'static str,
    pub(crate) choose: fn(KcpConfigBuilder) -> KcpConfigBuilder,
}

/// The controllers of kcp9 by name.
pub(crate) const CONTROLLERS: [Controller; 6] = [
    Controller { name: "bbr", choose: |config| config.congestion_control(CongestionControl::BbrLike) },
    Controller { name: "bbr3", choose: |config| config.congestion_control(CongestionControl::Bbr3) },
    Controller { name: "cubic", choose: |config| config.congestion_control(CongestionControl::Cubic) },
    Controller { name: "delay", choose: |config| config.congestion_control(CongestionControl::DelayBased) },
    Controller { name: "kcp", choose: |config| config.congestion_control(CongestionControl::Kcp) },
    Controller {
        name: "none",
        choose: |config| config.nodelay(NoDelay { nc: true, ..KcpConfig::default().nodelay() }),
    },
];

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Controller {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl FromStr for Controller {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = CONTROLLERS.map(|known| known.name).join(", ");
        CONTROLLERS
            .into_iter()
            .find(|known| known.name == name)
            .ok_or_else(|| format!("no controller of kcp9 is called {name}: there are {names}"))
    }
}

/// What a flow is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// Without a controller, that of the command line, or else the library's default.
    Kcp9(Option<Controller>),
    /// Linux's TCP with a controller of the kernel's.
    Tcp(&'static str),
    Quinn,
    KcpGo,
}

/// The kernel's names are ours.
const TCP: [&str; 3] = ["cubic", "bbr", "reno"];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kcp9(None) => f.write_str("kcp9"),
            Self::Kcp9(Some(controller)) => write!(f, "kcp9:{}", controller.name),
            Self::Tcp(name) => f.write_str(name),
            Self::Quinn => f.write_str("quinn"),
            Self::KcpGo => f.write_str("kcp-go"),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(controller) = name.strip_prefix("kcp9:") {
            return Ok(Self::Kcp9(Some(controller.parse()?)));
        }
        if let Some(known) = TCP.into_iter().find(|known| *known == name) {
            return Ok(Self::Tcp(known));
        }
        match name {
            "kcp9" => Ok(Self::Kcp9(None)),
            "quinn" => Ok(Self::Quinn),
            "kcp-go" => Ok(Self::KcpGo),
            _ => Err(format!("no flow is called {name}")),
        }
    }
}

/// Flows that are alike and start together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    /// Whole seconds after the scenario's beginning.
    pub(crate) start: u32,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.count, self.kind)?;
        if self.start > 0 { write!(f, "@{}", self.start) } else { Ok(()) }
    }
}

/// Reads groups like `4 kcp9 + 1 cubic@10`.
pub(crate) fn groups(text: &str) -> Result<Vec<Group>, String> {
    text.split('+').map(|part| group(part.trim()).map_err(|why| format!("{part:?}: {why}"))).collect()
}

fn group(text: &str) -> Result<Group, String> {
    let (count, flow) = text.split_once(' ').ok_or("a group is a count and a kind of flow")?;
    let (kind, start) = flow.split_once('@').unwrap_or((flow, "0"));
    let count = count.parse().map_err(|_| format!("{count} is no count"))?;
    if count == 0 {
        return Err("a group has flows".to_owned());
    }
    let start = start.parse().map_err(|_| format!("{start} is no number of seconds"))?;
    Ok(Group { kind: kind.parse()?, count, start })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_and_written() {
        for text in ["1 kcp9", "8 cubic + 2 bbr", "4 kcp9 + 1 cubic@10", "1 kcp9:none + 1 quinn + 3 kcp-go@5"]
        {
            let written: Vec<_> = groups(text).unwrap().iter().map(Group::to_string).collect();
            assert_eq!(written.join(" + "), text);
        }
        let late = &groups("4 kcp9 + 1 cubic@10").unwrap()[1];
        assert_eq!((late.kind, late.count, late.start), (Kind::Tcp("cubic"), 1, 10));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("kcp9", "a count and a kind"),
            ("x kcp9", "x is no count"),
            ("0 kcp9", "has flows"),
            ("1 tcp", "no flow is called tcp"),
            ("1 kcp9:vegas", "there are bbr, bbr3, cubic, delay, kcp, none"),
            ("1 kcp9@soon", "soon is no number"),
            ("1 kcp9 +", "a count"),
        ] {
            let error = groups(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
