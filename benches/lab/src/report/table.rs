//! The table, as Markdown.

use crate::results::Record;

const COLUMNS: [&str; 14] = [
    "scenario",
    "s",
    "MB/s",
    "link %",
    "Jain",
    "queue drops %",
    "random %",
    "queue ms",
    "p95",
    "first second: drops",
    "%",
    "shares",
    "late comer",
    "late us: mean / max",
];

pub(super) fn markdown(records: &[Record]) -> String {
    let mut text = String::from("# The lab's results\n\n");
    let mut machines: Vec<_> = records.iter().map(|record| without_load(&record.machine)).collect();
    machines.sort_unstable();
    machines.dedup();
    for machine in machines {
        text += &format!("* {machine}\n");
    }
    let mut controllers: Vec<_> = records.iter().filter_map(|record| record.kcp9_cc.as_deref()).collect();
    controllers.sort_unstable();
    controllers.dedup();
    if !controllers.is_empty() {
        text += &format!("* `kcp9` is `kcp9:{}`\n", controllers.join("` or `kcp9:"));
    }
    text += "\nThe README beside the crate's manifest says what the columns are.\n\n";
    text += &format!("| {} |\n", COLUMNS.join(" | "));
    text += &format!("|---{}---|\n", "|--:".repeat(COLUMNS.len() - 3) + "|--:|");
    for record in records {
        text += &row(record);
    }
    text += &warnings(records);
    text
}

fn without_load(machine: &str) -> &str {
    machine.rsplit_once(", load").map_or(machine, |(machine, _)| machine)
}

fn row(record: &Record) -> String {
    let late = record.late_comer.map_or_else(|| "-".to_owned(), |late| format!("{:.2}", late.of_fair_share));
    let lateness = record.lateness_forward;
    let cells = [
        record.name.clone(),
        record.seconds.to_string(),
        format!("{:.2}", record.rate),
        format!("{:.1}", record.link_percent),
        format!("{:.2}", record.jain),
        format!("{:.2}", record.queue_drops_percent),
        format!("{:.2}", record.random_drops_percent),
        format!("{:.1}", record.queue_mean_ms),
        format!("{:.1}", record.queue_p95_ms),
        record.first_second.drops.to_string(),
        format!("{:.1}", record.first_second.drops_percent),
        if record.groups.len() > 1 { record.shares() } else { "-".to_owned() },
        late,
        format!("{:.0} / {:.0}", lateness.mean_us, lateness.max_us),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// Half the round trip, microseconds: flows notice such a pause.
const PAUSE_US: f64 = 25_000.0;

/// What makes figures doubtful.
fn warnings(records: &[Record]) -> String {
    let mut text = String::new();
    for record in records {
        if record.device_drops > 0 {
            text += &format!(
                "* {}: the shaper did not read {} packets in time\n",
                record.name, record.device_drops
            );
        }
        if !record.realtime {
            text += &format!("* {}: the shaper had no real-time priority\n", record.name);
        }
        let (forward, back) = (record.lateness_forward, record.lateness_back);
        let pause = forward.max_us.max(back.max_us);
        if pause > PAUSE_US {
            text += &format!("* {}: the link paused for {:.0} ms\n", record.name, pause / 1e3);
        }
        let late = forward.late_percent.max(back.late_percent);
        if late > 1.0 {
            text +=
                &format!("* {}: {late:.1} % of the packets were more than a millisecond late\n", record.name);
        }
    }
    if text.is_empty() { text } else { format!("\nDoubtful:\n\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn a_scenario_is_a_row_and_a_machine_is_said_once() {
        let records =
            [sample(&[("kcp9", 1, 0)], "1 BDP"), sample(&[("kcp9", 4, 0), ("cubic", 1, 10)], "1 BDP")];
        let text = markdown(&records);
        assert!(text.contains(
            "| 1 kcp9, 1 BDP | 30 | 11.75 | 99.5 | 0.98 | 1.25 | 0.00 | 12.5 | 33.2 | 1200 | 24.0 | - | - | 12 / 900 |"
        ), "{text}");
        assert!(text.contains("| kcp9 50 % / cubic 50 % | 0.75 |"), "{text}");
        assert_eq!(text.matches("a machine").count(), 1, "{text}");
        assert!(!text.contains("Doubtful"), "{text}");
        let columns: Vec<_> =
            text.lines().filter(|line| line.starts_with('|')).map(|line| line.matches('|').count()).collect();
        assert_eq!(columns, [COLUMNS.len() + 1; 4]);
    }

    #[test]
    fn another_controller_than_the_default_is_said() {
        let record = Record { kcp9_cc: Some("kcp".to_owned()), ..sample(&[("kcp9", 1, 0)], "1 BDP") };
        assert!(markdown(&[record]).contains("* `kcp9` is `kcp9:kcp`\n"));
    }

    #[test]
    fn what_makes_figures_doubtful_is_said() {
        let mut record = sample(&[("kcp9", 1, 0)], "1 BDP");
        record.device_drops = 3;
        record.realtime = false;
        record.lateness_back.late_percent = 2.5;
        record.lateness_back.max_us = 100_400.0;
        let text = markdown(&[record]);
        for part in
            ["did not read 3 packets", "no real-time priority", "2.5 % of the packets", "paused for 100 ms"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
}
