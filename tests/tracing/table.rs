//! The tables of `docs/tracing.md`, which events must be as.

use std::collections::{BTreeMap, BTreeSet};

use kcp9_tests::collector::Recorded;

use crate::{drops, endings, path, simulated};

const PAGE: &str = include_str!("../../docs/tracing.md");

/// A row of the table of events.
struct Row {
    level: String,
    target: String,
    fields: BTreeSet<String>,
}

/// The words in backticks of a cell.
fn words(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The cells of the rows below the line that begins with `head`.
fn rows(head: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = PAGE.lines().skip_while(move |line| !line.starts_with(head)).skip(2);
    lines.take_while(|line| line.starts_with('|')).map(|line| line.trim_matches('|').split(" | ").collect())
}

fn events() -> BTreeMap<String, Row> {
    rows("| event |")
        .map(|cells| {
            let only = |at: usize| words(cells[at]).next().unwrap().to_owned();
            let fields = words(cells[3]).map(str::to_owned).collect();
            (only(0), Row { level: only(1), target: only(2), fields })
        })
        .collect()
}

/// The modes of a controller.
pub fn modes(controller: &str) -> BTreeSet<&'static str> {
    let row = rows("| controller |").find(|cells| words(cells[0]).next() == Some(controller));
    words(row.unwrap_or_else(|| panic!("no row of {controller}"))[1]).collect()
}

/// Panics unless each event is as its row says.
pub fn check(recorded: &[Recorded]) {
    let rows = events();
    for event in recorded {
        let row = rows.get(event.name).unwrap_or_else(|| panic!("no row of {event:?}"));
        assert_eq!((&*row.level, &*row.target), (event.level.as_str(), event.target), "{event:?}");
        let fields: BTreeSet<String> = event.fields.keys().map(|field| (*field).to_owned()).collect();
        assert_eq!(fields, row.fields, "{event:?}");
        assert!(!event.text.is_empty(), "{event:?}");
    }
}

/// Everything that the other tests provoke, in one run: each row occurs, and nothing else does.
#[test]
fn every_event_of_the_table_occurs() {
    let mut all = simulated::losses(1, (0, 0), true);
    all.extend(simulated::losses(0, (10, 3), false));
    all.extend(simulated::spurious());
    all.extend(simulated::peers_with_other_fec());
    all.extend(simulated::windows());
    all.extend(simulated::modes());
    all.extend(simulated::life());
    all.extend(path::mtu());
    all.extend(path::marks());
    all.extend(path::ecn_failures());
    all.extend(drops::limits());
    all.extend(drops::a_source_that_nothing_is_accepted_of());
    all.extend(endings::sessions_over_sockets());
    all.extend(endings::fec_of_one_end());
    let seen: BTreeSet<&str> = all.iter().map(|event| event.name).collect();
    let rows = events();
    assert_eq!(seen, rows.keys().map(String::as_str).collect());
    assert!(rows.len() >= 20, "the table was read");
}
