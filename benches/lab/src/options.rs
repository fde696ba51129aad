//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{
    flow::End,
    kind::Controller,
    link::Link,
    scenario::{self, Scenario},
};

/// Flows of kcp9, TCP, quinn and kcp-go through a real bottleneck. Linux, as root.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One end of a flow: what the lab starts in its namespaces
    #[command(subcommand, hide = true)]
    Flow(End),
    /// Makes the table and the charts again, from results.jsonl
    Report {
        /// Where it is, and where they go [default: results, beside this crate's manifest]
        folder: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// A few short scenarios of each sort: to see that everything works
    #[arg(long)]
    quick: bool,
    /// Only scenarios that have this in their names; may be given more than once. Results of others stay where they are
    #[arg(long, value_name = "SUBSTRING")]
    only: Vec<String>,
    /// These flows in place of all scenarios, like '4 kcp9:kcp + 1 cubic@10'; may be given more than once
    #[arg(long, conflicts_with = "quick")]
    flows: Vec<String>,
    /// The links of --flows; may be given more than once
    #[arg(long, value_name = "NAME", default_value = "1 BDP", requires = "flows")]
    link: Vec<String>,
    /// Seconds of each scenario [default: 30, quick: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=3_600))]
    seconds: Option<u32>,
    /// Where the results go [default: results, beside this crate's manifest]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Prints the names of the scenarios, and runs none
    #[arg(long)]
    pub(crate) list: bool,
    /// The controller of plain `kcp9` flows: bbr, kcp or none [default: the library's]
    #[arg(long, value_name = "NAME")]
    pub(crate) kcp9_cc: Option<Controller>,
    /// Of random losses and rates
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl Run {
    pub(crate) fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(if self.quick { scenario::QUICK_SECONDS } else { scenario::SECONDS })
    }

    pub(crate) fn folder(&self) -> PathBuf {
        folder_or_default(self.out.as_ref())
    }

    /// Whether scenarios were picked.
    pub(crate) fn some_only(&self) -> bool {
        !self.only.is_empty() || !self.flows.is_empty()
    }

    /// What to run.
    pub(crate) fn scenarios(&self) -> Result<Vec<Scenario>, String> {
        let mut all = match (self.flows.is_empty(), self.quick) {
            (false, _) => self.own_scenarios()?,
            (true, true) => scenario::quick()?,
            (true, false) => scenario::grid()?,
        };
        all.retain(|scenario| {
            self.only.is_empty() || self.only.iter().any(|part| scenario.name.contains(part))
        });
        if all.is_empty() {
            return Err(format!(
                "no scenario has {} in its name: --list prints them",
                self.only.join(" or ")
            ));
        }
        Ok(all)
    }

    fn own_scenarios(&self) -> Result<Vec<Scenario>, String> {
        let mut all = Vec::new();
        for link in &self.link {
            for flows in &self.flows {
                all.push(Scenario::new(flows, Link::named(link)?)?);
            }
        }
        Ok(all)
    }
}

/// Where results go by default.
pub(crate) fn folder_or_default(folder: Option<&PathBuf>) -> PathBuf {
    folder.cloned().unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/results")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> Result<Vec<String>, String> {
        let all = [&["lab"], arguments].concat();
        let run = Arguments::try_parse_from(all).map_err(|error| error.to_string())?.run;
        Ok(run.scenarios()?.into_iter().map(|scenario| scenario.name).collect())
    }

    #[test]
    fn only_filters_by_parts_of_names() {
        let names = names(&["--only", "8 cubic, 1 BDP", "--only", "quinn"]).unwrap();
        assert_eq!(names, ["8 cubic, 1 BDP", "1 quinn, 1 BDP"]);
        assert!(
            names.iter().all(|name| name.contains("8 cubic, 1 BDP") || name.contains("quinn")),
            "{names:?}"
        );
    }

    #[test]
    fn flows_and_links_may_be_given() {
        assert_eq!(names(&["--flows", "2 kcp9:kcp + 1 reno@3"]).unwrap(), ["2 kcp9:kcp + 1 reno@3, 1 BDP"]);
        let on_two = ["--flows", "1 kcp9:none", "--link", "wifi", "--link", "4 BDP"];
        assert_eq!(names(&on_two).unwrap(), ["1 kcp9:none, wifi", "1 kcp9:none, 4 BDP"]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(names(&["--only", "9 vegas"]).unwrap_err().contains("--list"));
        assert!(names(&["--kcp9-cc", "vegas"]).unwrap_err().contains("bbr, bbr3, cubic, delay, kcp, none"));
    }
}
