//! Which flows run over which links.

use crate::{
    kind::{Group, groups},
    link::{LOSSES, Link, QUEUES},
};

/// Seconds of a scenario, and of a quick one.
pub(crate) const SECONDS: u32 = 30;
pub(crate) const QUICK_SECONDS: u32 = 6;

/// Flows on a link.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) groups: Vec<Group>,
    pub(crate) link: Link,
}

impl Scenario {
    pub(crate) fn new(flows: &str, link: Link) -> Result<Self, String> {
        Ok(Self { name: format!("{flows}, {}", link.name), groups: groups(flows)?, link })
    }

    pub(crate) fn flows(&self) -> usize {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// The last start of a group, seconds.
    pub(crate) fn last_start(&self) -> u32 {
        self.groups.iter().map(|group| group.start).max().unwrap_or(0)
    }
}

/// CUBIC alone, which has to fill the link, or else the machine is too slow for the rest.
pub(crate) fn self_check() -> Result<Scenario, String> {
    let check = Scenario::new("1 cubic", Link::fixed(1.0, 0.0))?;
    Ok(Scenario { name: format!("self-check: {}", check.name), ..check })
}

/// Everything.
pub(crate) fn grid() -> Result<Vec<Scenario>, String> {
    let mut all = Vec::new();
    let mut add = |flows: &str, link: Link| {
        all.push(Scenario::new(flows, link)?);
        Ok::<_, String>(())
    };
    for queue in QUEUES {
        for kind in ["kcp9", "cubic", "bbr"] {
            for count in [1, 8, 32] {
                add(&format!("{count} {kind}"), Link::fixed(queue, 0.0))?;
            }
        }
    }
    for loss in LOSSES {
        for kind in ["kcp9", "cubic", "bbr"] {
            for count in [1, 8] {
                add(&format!("{count} {kind}"), Link::fixed(1.0, loss))?;
            }
        }
    }
    for (flows, queue) in [
        ("1 quinn", 1.0),
        ("1 kcp-go", 1.0),
        ("4 kcp9 + 4 cubic", 1.0),
        ("1 kcp9 + 1 cubic", 1.0),
        ("1 kcp9 + 1 cubic", 4.0),
        ("1 kcp9 + 1 bbr", 1.0),
        ("4 kcp9 + 1 kcp9@10", 1.0),
        ("1 kcp9 + 1 kcp9@10", 1.0),
        ("4 kcp9 + 1 cubic@10", 1.0),
    ] {
        add(flows, Link::fixed(queue, 0.0))?;
    }
    for link in Link::special() {
        for flows in ["1 kcp9", "8 kcp9", "1 cubic", "1 bbr"] {
            add(flows, link.clone())?;
        }
    }
    Ok(all)
}

/// Some of each sort, to see that everything works.
pub(crate) fn quick() -> Result<Vec<Scenario>, String> {
    let plain = [
        "1 kcp9",
        "8 kcp9",
        "8 cubic",
        "1 bbr",
        "1 quinn",
        "1 kcp-go",
        "4 kcp9 + 4 cubic",
        "1 kcp9 + 1 kcp9@2",
    ];
    let mut all = plain
        .iter()
        .map(|flows| Scenario::new(flows, Link::fixed(1.0, 0.0)))
        .collect::<Result<Vec<_>, _>>()?;
    all.push(Scenario::new("1 kcp9", Link::fixed(1.0, 0.05))?);
    for link in Link::special().into_iter().take(2) {
        all.push(Scenario::new("1 kcp9", link)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for all in [grid().unwrap(), quick().unwrap()] {
            let mut names: Vec<_> = all.iter().map(|scenario| scenario.name.as_str()).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn late_flows_start_early_enough() {
        assert!(grid().unwrap().iter().all(|scenario| scenario.last_start() * 3 <= SECONDS));
        assert!(quick().unwrap().iter().all(|scenario| scenario.last_start() * 3 <= QUICK_SECONDS));
    }
}
