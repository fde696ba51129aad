//! The table and the charts of results.

use std::{
    fs, io,
    path::{Path as FilePath, PathBuf},
};

use crate::{
    OURS, bars,
    cell::{Cell, Crypt, Path, Work},
    chart::{Chart, compact},
    results::{self, Results},
    summary::{Metric, Summary},
};

/// Writes `table.md` and the charts beside the results.
pub(crate) fn write(results: &Results, folder: &FilePath) -> io::Result<()> {
    let Results { header, summary } = results;
    let mut text = format!("# kcp9 and its peers\n\n{}\n", header.machine.markdown());
    text += &format!(
        "Medians of {} alternating rounds ({} of plain sinks in 64 KB and of pings over loopback, spread over the whole \
         run), server and driver each \
         a process. CPU and memory are those of both together; MB are 10^6 bytes; an echo's bytes count once. quinn is \
         always under TLS. `x` is kcp9's figure over the peer's. Quartiles: `{}`.\n\n",
        header.rounds,
        header.close_rounds,
        results::FILE
    );
    text += &bars::markdown(summary);
    for section in sections(summary) {
        text += &section.markdown(summary, folder)?;
    }
    fs::write(folder.join("table.md"), &text)?;
    println!("{}", folder.join("table.md").display());
    Ok(())
}

/// Cells that share a table and charts.
struct Section {
    title: String,
    /// Beginning of its charts' names.
    slug: String,
    cells: Vec<Cell>,
    columns: &'static [(&'static str, Metric)],
    /// What is drawn, and its name in a file's.
    charts: &'static [(&'static str, Metric)],
}

const BULK: &[(&str, Metric)] = &[
    ("MB/s", Metric::Rate),
    ("messages/s", Metric::Messages),
    ("CPU s/GB", Metric::Cpu),
    ("peak MiB", Metric::Memory),
];
const BULK_CHARTS: &[(&str, Metric)] = &[("MB/s", Metric::Rate), ("CPU s/GB", Metric::Cpu)];
const PINGS: &[(&str, Metric)] = &[
    ("p50 us", Metric::P50),
    ("p99 us", Metric::P99),
    ("p99.9 us", Metric::P999),
    ("wire bytes/message", Metric::Wire),
    ("CPU us/message", Metric::CpuPerMessage),
    ("peak MiB", Metric::Memory),
];
const PING_CHARTS: &[(&str, Metric)] = &[
    ("p50 us", Metric::P50),
    ("p99 us", Metric::P99),
    ("p99.9 us", Metric::P999),
    ("wire bytes/message", Metric::Wire),
];

fn sections(summary: &Summary) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for cell in summary.cells() {
        let (title, columns, charts) = match (cell.work, cell.path) {
            (Work::Ping, Path::Loopback) => ("ping, loopback".to_owned(), PINGS, PING_CHARTS),
            (Work::Ping, Path::Relay(_)) => ("ping, relay".to_owned(), PINGS, PING_CHARTS),
            (work, _) => (format!("{work}, {}", cell.crypt), BULK, BULK_CHARTS),
        };
        match sections.last_mut() {
            Some(last) if last.title == title => last.cells.push(cell),
            _ => {
                let slug = title.replace(", ", "-");
                sections.push(Section { title, slug, cells: vec![cell], columns, charts });
            }
        }
    }
    sections
}

impl Section {
    fn markdown(&self, summary: &Summary, folder: &FilePath) -> io::Result<String> {
        let mut text = format!("## {}\n\n", self.heading());
        text += "| work | peer |";
        for (name, _) in self.columns {
            text += &format!(" {name} | x |");
        }
        text += &format!("\n|---|---|{}\n", "--:|--:|".repeat(self.columns.len()));
        for cell in &self.cells {
            for peer in summary.peers(|of| of == cell) {
                text += &self.row(summary, cell, peer);
            }
        }
        text.push('\n');
        for file in self.draw(summary, folder)? {
            text += &format!("![{file}]({file})\n");
        }
        text.push('\n');
        Ok(text)
    }

    fn heading(&self) -> String {
        let first = &self.cells[0];
        match (first.work, first.path) {
            (Work::Ping, Path::Loopback) => format!("ping of {} B, loopback", first.msg),
            (Work::Ping, Path::Relay(_)) => {
                format!("ping of {} B through a relay, {} connections at once", first.msg, first.conns)
            }
            (work, _) if first.crypt == Crypt::Salsa20Fec => format!("{work}, Salsa20 and FEC 10/3"),
            _ => self.title.clone(),
        }
    }

    fn row(&self, summary: &Summary, cell: &Cell, peer: &str) -> String {
        let failed = summary.failures(cell, peer);
        let note = failed
            .map_or_else(String::new, |(count, why)| format!(" ({count} failed: {})", why.replace('|', "/")));
        let mut row = format!("| {} | {peer}{note} |", cell.variant());
        for (_, metric) in self.columns {
            let value = summary.median(cell, peer, *metric);
            let ratio = summary.median(cell, OURS, *metric).zip(value).map(|(ours, theirs)| ours / theirs);
            let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), compact);
            row += &format!(" {} | {} |", shown(value), shown(ratio.filter(|_| peer != OURS)));
        }
        row + "\n"
    }

    /// Draws the medians, and kcp9's rate or latency over the peers'. Returns the files' names.
    fn draw(&self, summary: &Summary, folder: &FilePath) -> io::Result<Vec<String>> {
        let mut files = Vec::new();
        let mut draw = |chart: Chart, what: &str| {
            if chart.is_empty() {
                return Ok(());
            }
            let file = format!("{}-{}.svg", self.slug, what.replace(['/', ' '], "-").replace('.', ""));
            chart.draw(&PathBuf::from(folder).join(&file))?;
            files.push(file);
            Ok::<_, io::Error>(())
        };
        for (name, metric) in self.charts {
            let title = format!("{}: {name}", self.heading());
            draw(self.chart(summary, title, name, *metric, false), name)?;
        }
        let metric = Metric::main_of(self.cells[0].work);
        let what = if metric == Metric::Rate { "MB/s" } else { "p99" };
        let title = format!("{}: {what} of kcp9 over the peer's", self.heading());
        draw(self.chart(summary, title, "ratio", metric, true), "ratio")?;
        Ok(files)
    }

    fn chart(&self, summary: &Summary, title: String, unit: &str, metric: Metric, ratio: bool) -> Chart {
        let peers = summary.peers(|of| self.cells.contains(of));
        let value = |cell: &Cell, peer: &str| {
            let value = summary.median(cell, peer, metric)?;
            if ratio { Some(summary.median(cell, OURS, metric)? / value) } else { Some(value) }
        };
        let series = peers.iter().filter(|peer| !(ratio && **peer == OURS));
        Chart {
            title,
            unit: unit.to_owned(),
            groups: self.cells.iter().map(Cell::variant).collect(),
            series: series
                .map(|peer| ((*peer).to_owned(), self.cells.iter().map(|cell| value(cell, peer)).collect()))
                .collect(),
        }
    }
}
