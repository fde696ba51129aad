//! Which charts there are.

use super::draw::{Bars, Chart, Line, Lines};
use crate::results::{GroupRecord, Record};

pub(super) struct Section {
    pub(super) title: &'static str,
    /// Names of files, and what they show.
    pub(super) charts: Vec<(String, Chart)>,
}

/// Those that these results have something for.
pub(super) fn all(records: &[Record]) -> Vec<Section> {
    let sections = [
        ("Rate and queue over time, one flow alone", alone(records)),
        ("Rate over time, flows of two sorts", together(records)),
        ("Shares", shares(records)),
        ("Drops by the number of flows", drops(records)),
    ];
    sections
        .into_iter()
        .filter(|(_, charts)| !charts.is_empty())
        .map(|(title, charts)| Section { title, charts })
        .collect()
}

/// One flow alone on each link: how fast, and how long the queue is.
fn alone(records: &[Record]) -> Vec<(String, Chart)> {
    let single =
        |record: &&Record| record.groups.len() == 1 && record.groups[0].count == 1 && is_of_grid(record);
    let singles: Vec<_> = records.iter().filter(single).collect();
    let mut charts = Vec::new();
    for link in distinct(singles.iter().map(|record| record.link.as_str())) {
        let of_link = || singles.iter().filter(|record| record.link == link);
        let rates =
            of_link().map(|record| line(&record.groups[0].kind, record.step, &record.groups[0].rates));
        charts.push((file("rate", link), lines(format!("1 flow alone, {link}"), "MB/s", rates.collect())));
        let queues = of_link().map(|record| line(&record.groups[0].kind, record.step, &record.queue_ms));
        charts.push((
            file("queue", link),
            lines(format!("1 flow alone, {link}"), "queue, ms", queues.collect()),
        ));
    }
    charts
}

/// Flows of two groups.
fn together(records: &[Record]) -> Vec<(String, Chart)> {
    let chart = |record: &Record| {
        let groups = record.groups.iter().map(|group| line(&group.name, record.step, &group.rates));
        (file("rate", &record.name), lines(record.name.clone(), "MB/s", groups.collect()))
    };
    records.iter().filter(|record| record.groups.len() > 1).map(chart).collect()
}

/// Who gets how much.
fn shares(records: &[Record]) -> Vec<(String, Chart)> {
    let of: Vec<_> = records.iter().filter(|record| record.groups.len() == 2).collect();
    if of.is_empty() {
        return Vec::new();
    }
    let side = |side: usize| of.iter().map(|record| Some(record.groups[side].share_percent)).collect();
    let bars = Bars {
        title: "Share of the payload".to_owned(),
        unit: "%".to_owned(),
        groups: of.iter().map(|record| record.name.clone()).collect(),
        series: vec![("first side".to_owned(), side(0)), ("second side".to_owned(), side(1))],
    };
    vec![("share.svg".to_owned(), Chart::Bars(bars))]
}

/// What the queue drops as more flows share it.
fn drops(records: &[Record]) -> Vec<(String, Chart)> {
    let single = |record: &&Record| record.groups.len() == 1 && is_of_grid(record);
    let singles: Vec<_> = records.iter().filter(single).collect();
    let links = distinct(singles.iter().map(|record| record.link.as_str()));
    links.into_iter().filter_map(|link| drops_of(link, &singles)).collect()
}

/// Those on one link, of the kinds of which more than one number of flows was measured.
fn drops_of(link: &str, singles: &[&Record]) -> Option<(String, Chart)> {
    let of_link: Vec<(&GroupRecord, f64)> = singles
        .iter()
        .filter(|record| record.link == link)
        .map(|record| (&record.groups[0], record.queue_drops_percent))
        .collect();
    let mut counts: Vec<_> = of_link.iter().map(|(group, _)| group.count).collect();
    counts.sort_unstable();
    counts.dedup();
    let values = |kind: &str| -> Vec<Option<f64>> {
        let find = |count| of_link.iter().find(|(group, _)| group.kind == kind && group.count == count);
        counts.iter().map(|count| find(*count).map(|(_, drops)| *drops)).collect()
    };
    let series: Vec<_> = distinct(of_link.iter().map(|(group, _)| group.kind.as_str()))
        .into_iter()
        .map(|kind| (kind.to_owned(), values(kind)))
        .filter(|(_, values)| values.iter().flatten().count() > 1)
        .collect();
    if series.is_empty() {
        return None;
    }
    let bars = Bars {
        title: format!("Packets dropped by the queue, {link}"),
        unit: "%".to_owned(),
        groups: counts.iter().map(|count| format!("flows: {count}")).collect(),
        series,
    };
    Some((file("drops", link), Chart::Bars(bars)))
}

/// The self-check is not of the grid, and would be drawn twice.
fn is_of_grid(record: &Record) -> bool {
    record.name.starts_with(|first: char| first.is_ascii_digit())
}

fn line(name: &str, step: f64, values: &[f64]) -> Line {
    let point = |(index, value): (usize, &f64)| (index as f64 * step, *value);
    Line { name: name.to_owned(), points: values.iter().enumerate().map(point).collect() }
}

fn lines(title: String, unit: &str, lines: Vec<Line>) -> Chart {
    Chart::Lines(Lines { title, unit: unit.to_owned(), lines })
}

/// The name of a chart's file.
fn file(what: &str, name: &str) -> String {
    let mut slug = String::from(what);
    for part in
        name.split(|character: char| !character.is_ascii_alphanumeric()).filter(|part| !part.is_empty())
    {
        slug.push('-');
        slug += part;
    }
    slug + ".svg"
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn each_sort_of_scenario_has_its_charts_and_all_can_be_drawn() {
        let mut check = sample(&[("cubic", 1, 0)], "1 BDP");
        check.name.insert_str(0, "self-check: ");
        let records = [
            check,
            sample(&[("kcp9", 1, 0)], "1 BDP"),
            sample(&[("cubic", 1, 0)], "1 BDP"),
            sample(&[("kcp9", 8, 0)], "1 BDP"),
            sample(&[("kcp9", 4, 0), ("cubic", 1, 10)], "1 BDP"),
            sample(&[("kcp9", 1, 0)], "1/4 BDP"),
        ];
        let sections = all(&records);
        let files: Vec<_> =
            sections.iter().flat_map(|section| &section.charts).map(|(file, _)| file.as_str()).collect();
        assert_eq!(
            files,
            [
                "rate-1-BDP.svg",
                "queue-1-BDP.svg",
                "rate-1-4-BDP.svg",
                "queue-1-4-BDP.svg",
                "rate-4-kcp9-1-cubic-10-1-BDP.svg",
                "share.svg",
                "drops-1-BDP.svg"
            ]
        );
        let folder = std::env::temp_dir().join(format!("kcp9-lab-charts-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (file, chart) in sections.iter().flat_map(|section| &section.charts) {
            chart.draw(&folder.join(file)).unwrap();
            assert!(std::fs::read_to_string(folder.join(file)).unwrap().contains("</svg>"));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn without_results_there_are_none() {
        assert!(all(&[]).is_empty());
    }
}
