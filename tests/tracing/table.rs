//! The tables of `docs/tracing.md`, which events must be as.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use kcp9_tests::collector::{Recorded, Span};

use crate::{agreements, drops, endings, mux, nonces, path, simulated};

const PAGE: &str = include_str!("../../docs/tracing.md");

/// A row of the table of events, or of that of spans.
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

/// The rows of events (`| event |`) or of spans (`| span |`).
fn table(head: &str) -> BTreeMap<String, Row> {
    rows(head)
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

/// What a field says that has a word in it: the event or span, the field and the word.
type Word = (String, String, String);

/// All words of the page.
fn known_words() -> BTreeSet<Word> {
    let mut known = BTreeSet::new();
    let mut add =
        |name: &str, field: &str, word: &str| known.insert((name.into(), field.into(), word.into()));
    for cells in rows("| of |") {
        let field = words(cells[1]).next().unwrap();
        for name in words(cells[0]) {
            words(cells[2]).for_each(|word| _ = add(name, field, word));
        }
    }
    for cells in rows("| `cause` of `all_dropped`") {
        for name in ["all_dropped", "dropped"] {
            words(cells[0]).for_each(|word| _ = add(name, "cause", word));
        }
    }
    known
}

/// The words that fields say. Reasons are values of an enum, and modes have a test of their own.
fn said<'a>(name: &'a str, fields: &'a BTreeMap<&'static str, String>) -> impl Iterator<Item = Word> + 'a {
    let is_word = |value: &str| {
        value.parse::<i128>().is_err()
            && value.parse::<bool>().is_err()
            && value.parse::<SocketAddr>().is_err()
    };
    let is_elsewhere =
        move |field: &str| field == "reason" || name == "mode" && ["from", "to"].contains(&field);
    fields
        .iter()
        .filter(move |(field, value)| is_word(value) && !is_elsewhere(field))
        .map(move |(field, value)| (name.into(), (*field).into(), value.clone()))
}

fn words_of(recorded: &[Recorded]) -> BTreeSet<Word> {
    let mut all = BTreeSet::new();
    for event in recorded {
        all.extend(said(event.name, &event.fields));
        event.spans.iter().for_each(|span| all.extend(said(span.name, &span.fields)));
    }
    all
}

fn keys(fields: &BTreeMap<&'static str, String>) -> BTreeSet<String> {
    fields.keys().map(|field| (*field).to_owned()).collect()
}

/// Panics unless each event is as its row says, and each span, with no other words than those of the page.
pub fn check(recorded: &[Recorded]) {
    let (events, spans) = (table("| event |"), table("| span |"));
    for event in recorded {
        let row = events.get(event.name).unwrap_or_else(|| panic!("no row of {event:?}"));
        assert_eq!((&*row.level, &*row.target), (event.level.as_str(), event.target), "{event:?}");
        assert_eq!(keys(&event.fields), row.fields, "{event:?}");
        assert!(!event.text.is_empty(), "{event:?}");
        for span in &event.spans {
            let row = spans.get(span.name).unwrap_or_else(|| panic!("no row of {span:?}"));
            assert_eq!((&*row.level, &*row.target), (span.level.as_str(), span.target), "{span:?}");
            assert_eq!(keys(&span.fields), row.fields, "{span:?}");
        }
    }
    let unlisted: Vec<_> = words_of(recorded).difference(&known_words()).cloned().collect();
    assert!(unlisted.is_empty(), "words that docs/tracing.md does not list: {unlisted:?}");
}

/// Everything that the other tests provoke, in one run: each row and each word occurs, and nothing else does.
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
    all.extend(drops::causes());
    all.extend(drops::replays());
    all.extend(drops::a_source_that_nothing_is_accepted_of());
    all.extend(agreements::refusals());
    all.extend(nonces::used_up());
    all.extend(endings::sessions_over_sockets());
    all.extend(endings::fec_of_one_end());
    all.extend(endings::fec_of_no_code());
    all.extend(mux::over_a_pipe());
    all.extend(mux::refusals());
    let seen: BTreeSet<&str> = all.iter().map(|event| event.name).collect();
    let rows = table("| event |");
    assert_eq!(seen, rows.keys().map(String::as_str).collect());
    assert!(rows.len() >= 20, "the table was read");
    let spans: Vec<&Span> = all.iter().flat_map(|event| &event.spans).collect();
    let seen: BTreeSet<&str> = spans.iter().map(|span| span.name).collect();
    assert_eq!(seen, table("| span |").keys().map(String::as_str).collect());
    assert_eq!(words_of(&all), known_words());
}
