//! The example `scale`, as its users run it: its one line of JSON has the fields that its page names, and says what was done.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use kcp9_tests::example;
use serde_json::Value;

/// The page: the comment in front of the program.
const PAGE: &str = include_str!("../../examples/scale/main.rs");

/// The words in backticks of the cells of the table, field and meaning.
fn table() -> Vec<[Vec<&'static str>; 2]> {
    let words = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect();
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("//! | ")).filter(|row| row.starts_with('`'));
    rows.map(|row| row.split_once(" | ").unwrap())
        .map(|(fields, meaning)| [words(fields), words(meaning)])
        .collect()
}

fn keys(report: &Value) -> BTreeSet<&str> {
    report.as_object().unwrap().keys().map(String::as_str).collect()
}

/// What a run prints, which is one line.
fn scale(arguments: &str) -> Value {
    let mut command = Command::new(example("scale"));
    let command = command.args(arguments.split_whitespace()).arg("--json");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let report: Value = serde_json::from_str(&text).unwrap();
    let documented: BTreeSet<&str> = table().into_iter().flat_map(|[fields, _]| fields).collect();
    assert!(documented.len() > 10, "the table was read: {documented:?}");
    assert_eq!(keys(&report), documented, "{arguments}");
    let limits = table().into_iter().find(|[fields, _]| fields == &["limits"]).unwrap();
    assert_eq!(keys(&report["limits"]), BTreeSet::from_iter(limits[1].iter().copied()), "{arguments}");
    report
}

/// Panics unless these fields are numbers of at least the one beside them.
fn assert_at_least(report: &Value, expected: &[(&str, f64)]) {
    for (field, least) in expected {
        let figure = report[field].as_f64().unwrap_or_else(|| panic!("{field} of {report}"));
        assert!(figure >= *least, "{field} of {report}");
    }
}

#[test]
fn its_line_has_the_fields_of_its_page() {
    let report = scale("--sessions 30");
    assert_eq!((&report["sessions"], &report["failed"]), (&30.into(), &0.into()), "{report}");
    assert_eq!((&report["client_sockets"], &report["sessions_of_shards"]), (&1.into(), &vec![30].into()));
    for field in ["echo_s", "echoes_while_held", "server_cpu_percent_idle", "server_wakeups_per_s_idle"] {
        assert!(report[field].is_null(), "nothing was echoed or held: {field} of {report}");
    }
    assert_at_least(&report, &[("open_s", 0.0), ("server_pid", 1.0), ("server_cpu_us_per_session", 0.0)]);
    assert_eq!(report["limits"]["max_sessions"], 30, "{report}");
}

#[test]
fn sessions_that_are_held_have_an_echo_now_and_then() {
    let report = scale("--sessions 40 --echo 64 --hold 4 --keep-alive 1 --every 2 --shards 2");
    assert_eq!((&report["sessions"], &report["failed"]), (&40.into(), &0.into()), "{report}");
    let shards = report["sessions_of_shards"].as_array().unwrap();
    assert_eq!((shards.len(), shards.iter().filter_map(Value::as_u64).sum::<u64>()), (2, 40), "{report}");
    assert_at_least(&report, &[("echo_s", 0.0), ("echoes_while_held", 72.0), ("client_sockets", 32.0)]);
}

#[test]
fn sessions_that_are_held_with_keep_alive_are_asked_for() {
    let report = scale("--sessions 40 --hold 3 --keep-alive 1");
    // Each asks its peer once a second, and some are asked at the same time.
    assert_at_least(&report, &[("server_wakeups_per_s_idle", 1.0), ("server_cpu_percent_idle", 0.0)]);
}
