//! What a scenario leaves in a file: a line of JSON. The table and the charts are made from these lines alone.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::bottleneck::Lateness;

/// Name of the file: JSON lines.
pub(crate) const FILE: &str = "results.jsonl";

/// Everything of a scenario. Rates are MB/s of payload that arrived, in the evaluated window unless said otherwise; packets are
/// those on their way forward.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) link: String,
    pub(crate) seconds: u32,
    /// When the evaluated window begins; it lasts to the end.
    pub(crate) from: f64,
    pub(crate) seed: u64,
    /// The controller of plain kcp9, if it was not the library's default.
    pub(crate) kcp9_cc: Option<String>,
    pub(crate) groups: Vec<GroupRecord>,
    pub(crate) flows: Vec<FlowRecord>,
    /// Of all flows.
    pub(crate) rate: f64,
    /// What left the link, headers included, of what it could carry, percent.
    pub(crate) link_percent: f64,
    /// Jain's index of the flows' rates.
    pub(crate) jain: f64,
    /// Of the packets that came to the queue.
    pub(crate) queue_drops_percent: f64,
    /// Of all packets.
    pub(crate) random_drops_percent: f64,
    pub(crate) queue_mean_ms: f64,
    pub(crate) queue_p95_ms: f64,
    /// The first second of all flows.
    pub(crate) first_second: FirstSecond,
    pub(crate) late_comer: Option<LateComer>,
    pub(crate) lateness_forward: Lateness,
    pub(crate) lateness_back: Lateness,
    pub(crate) realtime: bool,
    /// Packets that got lost outside of the link, in the devices before it.
    pub(crate) device_drops: u64,
    /// Seconds between two values of what is drawn over time.
    pub(crate) step: f64,
    /// Mean of each step, ms.
    pub(crate) queue_ms: Vec<f64>,
    pub(crate) machine: String,
}

/// Flows that are alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GroupRecord {
    /// As in the scenario's name.
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) count: usize,
    pub(crate) start: u32,
    /// Of the payload of all groups.
    pub(crate) share_percent: f64,
    /// Their rate in each step.
    pub(crate) rates: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FlowRecord {
    pub(crate) kind: String,
    pub(crate) start: u32,
    pub(crate) rate: f64,
    /// Packets that the queue let in, that were lost at random, and that the queue dropped.
    pub(crate) passed: u64,
    pub(crate) lost: u64,
    pub(crate) dropped: u64,
    /// Bytes that left the link, with headers.
    pub(crate) departed_bytes: u64,
    /// Of packets that came to the queue.
    pub(crate) queue_drops_percent: f64,
    pub(crate) first_second: FirstSecond,
}

/// A second that begins with a flow's first packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FirstSecond {
    pub(crate) packets: u64,
    /// By the queue.
    pub(crate) drops: u64,
    pub(crate) drops_percent: f64,
}

/// The last group, if it starts later than the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct LateComer {
    /// When its window begins.
    pub(crate) from: f64,
    /// Its flows' rate over that of all flows in this window: 1 is a fair share.
    pub(crate) of_fair_share: f64,
}

/// The records of a folder, in the order in which they were first made.
#[derive(Debug)]
pub(crate) struct Results {
    path: PathBuf,
    pub(crate) records: Vec<Record>,
}

impl Results {
    /// Where results go from now on: with those that the folder has, or in their place. The folder is made if there is none.
    pub(crate) fn open(folder: &Path, keep: bool) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(FILE);
        if keep && path.exists() { Self::read(folder) } else { Ok(Self { path, records: Vec::new() }) }
    }

    /// # Errors
    /// If there are none, or they are of another version of this program.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        let context =
            |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
        let text = fs::read_to_string(&path).map_err(|error| context(&error))?;
        let records = text
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .map_err(|error| context(&error))?;
        Ok(Self { path, records })
    }

    /// Writes them with one more, which takes the place of an older one of its name.
    pub(crate) fn add(&mut self, record: Record) -> io::Result<()> {
        match self.records.iter_mut().find(|known| known.name == record.name) {
            Some(known) => *known = record,
            None => self.records.push(record),
        }
        let mut text = String::new();
        for record in &self.records {
            text += &serde_json::to_string(record)?;
            text.push('\n');
        }
        fs::write(&self.path, text)
    }
}

impl Record {
    /// What is printed when it is done.
    pub(crate) fn line(&self) -> String {
        let Self { name, rate, link_percent, jain, queue_drops_percent, queue_mean_ms, queue_p95_ms, .. } =
            self;
        let mut line = format!(
            "{name}: {rate:.2} MB/s ({link_percent:.0} % of the link), Jain {jain:.2}, queue drops \
             {queue_drops_percent:.2} %, random {:.2} %, queue {queue_mean_ms:.1} ms (p95 {queue_p95_ms:.1}), first second \
             {} drops ({:.1} %)",
            self.random_drops_percent, self.first_second.drops, self.first_second.drops_percent
        );
        if self.groups.len() > 1 {
            line += &format!(", shares {}", self.shares());
        }
        if let Some(late) = self.late_comer {
            line += &format!(", late comer {:.2} of its fair share", late.of_fair_share);
        }
        line
    }

    /// Each side's part of the payload.
    pub(crate) fn shares(&self) -> String {
        let share = |group: &GroupRecord| format!("{} {:.0} %", group.kind, group.share_percent);
        self.groups.iter().map(share).collect::<Vec<_>>().join(" / ")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A record as a scenario may leave it.
    pub(crate) fn sample(groups: &[(&str, usize, u32)], link: &str) -> Record {
        let name = |(kind, count, start): &(&str, usize, u32)| match start {
            0 => format!("{count} {kind}"),
            _ => format!("{count} {kind}@{start}"),
        };
        let names: Vec<_> = groups.iter().map(name).collect();
        let first_second = FirstSecond { packets: 5_000, drops: 1_200, drops_percent: 24.0 };
        let group = |(index, of): (usize, &(&str, usize, u32))| GroupRecord {
            name: names[index].clone(),
            kind: of.0.to_owned(),
            count: of.1,
            start: of.2,
            share_percent: 100.0 / groups.len() as f64,
            rates: vec![0.0, 3.5, 11.75],
        };
        Record {
            name: format!("{}, {link}", names.join(" + ")),
            link: link.to_owned(),
            seconds: 30,
            from: 10.0,
            seed: 1,
            kcp9_cc: None,
            groups: groups.iter().enumerate().map(group).collect(),
            flows: Vec::new(),
            rate: 11.75,
            link_percent: 99.5,
            jain: 0.98,
            queue_drops_percent: 1.25,
            random_drops_percent: 0.0,
            queue_mean_ms: 12.5,
            queue_p95_ms: 33.25,
            first_second,
            late_comer: groups
                .last()
                .filter(|last| last.2 > 0)
                .map(|_| LateComer { from: 20.0, of_fair_share: 0.75 }),
            lateness_forward: Lateness { mean_us: 12.0, max_us: 900.0, late_percent: 0.0 },
            lateness_back: Lateness::default(),
            realtime: true,
            device_drops: 0,
            step: 0.2,
            queue_ms: vec![0.0, 25.0, 50.0],
            machine: "a machine".to_owned(),
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_a_newer_record_replaces_an_older_one() {
        let folder = std::env::temp_dir().join(format!("kcp9-lab-{}", std::process::id()));
        let mut results = Results::open(&folder, true).unwrap();
        results.add(sample(&[("kcp9", 1, 0)], "1 BDP")).unwrap();
        results.add(sample(&[("kcp9", 4, 0), ("cubic", 1, 10)], "1 BDP")).unwrap();
        let newer = Record { rate: 3.5, ..sample(&[("kcp9", 1, 0)], "1 BDP") };
        results.add(newer.clone()).unwrap();
        let read = Results::open(&folder, true).unwrap().records;
        assert!(Results::open(&folder, false).unwrap().records.is_empty());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read, results.records);
        assert_eq!(read.len(), 2);
        assert_eq!(read[0], newer);
    }

    #[test]
    fn a_line_tells_shares_and_late_comers_only_where_there_are_some() {
        let alone = sample(&[("kcp9", 1, 0)], "1 BDP").line();
        assert!(alone.starts_with("1 kcp9, 1 BDP: 11.75 MB/s (") && !alone.contains("share"), "{alone}");
        let late = sample(&[("kcp9", 4, 0), ("cubic", 1, 10)], "1 BDP").line();
        assert!(late.ends_with("shares kcp9 50 % / cubic 50 %, late comer 0.75 of its fair share"), "{late}");
    }
}
