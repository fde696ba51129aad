//! Draws the life of a session as SVG: rate, round-trip time, windows, resends by cause and FEC over time.

use std::error::Error;

use plotters::{coord::Shift, prelude::*};

use super::qlog::{Sample, Trace};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Draws the records of one session: of one end, or of both. The end that sent more is the one whose path and resends are shown; what
/// FEC repaired is known at the others.
///
/// # Errors
/// If there is nothing to be drawn.
pub(crate) fn draw(title: &str, traces: &[Trace]) -> Outcome<String> {
    let sent = |trace: &&Trace| trace.samples.last().map(|last| last.counter("udp", "bytes_sent"));
    let sender = traces.iter().max_by_key(sent).filter(|trace| trace.samples.len() >= MIN_SAMPLES);
    let sender = sender.ok_or("a record of at least two samples is needed")?;
    let end = traces.iter().flat_map(|trace| &trace.samples).map(|sample| sample.time).fold(0.0, f64::max);
    let panels = panels(traces, sender, end);
    let mut svg = String::new();
    {
        let height = TITLE + PANEL * panels.len() as u32;
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(TITLE);
        head.titled(title, ("sans-serif", 20))?;
        for (panel, area) in panels.iter().zip(body.split_evenly((panels.len(), 1))) {
            panel.draw(&area, end)?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn panels(traces: &[Trace], sender: &Trace, end: f64) -> Vec<Panel> {
    let rate = |trace: &Trace, what: &str, group: &str, name: &str| Line {
        name: format!("{}: {what}", trace.name),
        points: rates(&trace.samples, end, group, name, 1e-6),
    };
    let mut rates_of_all = vec![rate(sender, "sent over UDP", "udp", "bytes_sent")];
    for trace in traces {
        let reads = trace.samples.last().map_or(0, |last| last.counter("stream", "bytes_read"));
        let writes = trace.samples.last().map_or(0, |last| last.counter("stream", "bytes_written"));
        if reads > writes {
            rates_of_all.push(rate(trace, "read by the application", "stream", "bytes_read"));
        } else {
            rates_of_all.push(rate(trace, "written by the application", "stream", "bytes_written"));
        }
    }
    let resent = |what: &str, name| Line {
        name: what.to_owned(),
        points: rates(&sender.samples, end, "recovery", name, 1.0),
    };
    let measured = |get: fn(&Sample) -> f64| {
        let points = sender.samples.iter().map(|sample| (sample.time, get(sample)));
        points.filter(|point| point.1 > 0.0).collect::<Vec<_>>()
    };
    let every =
        |get: fn(&Sample) -> f64| sender.samples.iter().map(|sample| (sample.time, get(sample))).collect();
    let mut panels = vec![
        Panel { title: "Rate", unit: "MB/s", lines: rates_of_all },
        Panel {
            title: "Round-trip time",
            unit: "ms",
            lines: vec![
                Line { name: "smoothed".to_owned(), points: measured(|sample| sample.rtt) },
                Line { name: "least".to_owned(), points: measured(|sample| sample.min_rtt) },
            ],
        },
        Panel {
            title: "Window and in flight",
            unit: "segments",
            lines: vec![
                Line { name: "window".to_owned(), points: every(|sample| sample.window) },
                Line { name: "in flight".to_owned(), points: every(|sample| sample.in_flight) },
            ],
        },
        // Not the losses: some of what is found lost arrives before it is sent again, and some that was sent again was only late.
        Panel {
            title: "Resends by cause",
            unit: "segments/s",
            lines: vec![
                resent("fast: later ones were acknowledged", "fast_resends"),
                resent("early: the same, with nothing new to send", "early_resends"),
                resent("timeout", "timeout_resends"),
            ],
        },
    ];
    let fec: Vec<_> =
        traces.iter().filter(|trace| has_fec(trace)).flat_map(|trace| fec_lines(trace, end)).collect();
    if !fec.is_empty() {
        panels.push(Panel { title: "FEC", unit: "packets/s", lines: fec });
    }
    panels
}

fn has_fec(trace: &Trace) -> bool {
    trace
        .samples
        .last()
        .is_some_and(|last| last.counter("fec", "recovered") > 0 || last.counter("fec", "unrecoverable") > 0)
}

fn fec_lines(trace: &Trace, end: f64) -> [Line; 2] {
    [("recovered", "recovered"), ("not recovered", "unrecoverable")].map(|(what, name)| Line {
        name: format!("{}: {what}", trace.name),
        points: rates(&trace.samples, end, "fec", name, 1.0),
    })
}

/// How fast a counter grew, a point for each of [`BINS`] parts of the time, in units of `1 / scale` per second.
fn rates(samples: &[Sample], end: f64, group: &str, name: &str, scale: f64) -> Vec<(f64, f64)> {
    let width = end / BINS as f64;
    let mut samples = samples.iter().peekable();
    let (mut before, mut now) = (0, 0);
    (1..=BINS)
        .map(|bin| {
            let until = width * bin as f64;
            while let Some(sample) = samples.next_if(|sample| sample.time <= until || bin == BINS) {
                now = sample.counter(group, name);
            }
            let grown = (now - before) as f64;
            before = now;
            (until - width / 2.0, grown * scale / width)
        })
        .collect()
}

/// Lines over the same time, with one unit.
struct Panel {
    title: &'static str,
    unit: &'static str,
    lines: Vec<Line>,
}

struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Panel {
    fn draw(&self, area: &Area<'_>, end: f64) -> Outcome<()> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let highest = points().map(|point| point.1).fold(0.0, f64::max);
        // Where there is nothing but zeros, an axis still needs a length.
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_right(RIGHT)
            .caption(self.title, ("sans-serif", 14))
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..end, 0.0..highest * 1.05)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("s").y_desc(self.unit).x_labels(10).y_labels(5).light_line_style(TRANSPARENT).draw()?;
        let (left, top) = (WIDTH as i32 - RIGHT + 4, 14);
        for (number, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            chart.draw_series([PathElement::new(line.points.clone(), colour.stroke_width(1))])?;
            // Beside the panel, where it hides no line.
            let y = top + 18 * number as i32;
            area.draw(&PathElement::new(vec![(left, y), (left + 14, y)], colour.stroke_width(2)))?;
            area.draw(&Text::new(line.name.as_str(), (left + 20, y - 6), ("sans-serif", 12)))?;
        }
        Ok(())
    }
}

/// Of a colour-blind-safe palette (Okabe and Ito).
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];
/// Pixels.
const WIDTH: u32 = 960;
const TITLE: u32 = 36;
const PANEL: u32 = 200;
/// Room for the names of the lines.
const RIGHT: i32 = 270;
/// Points of a rate. In the README's picture each stands for little more than a round trip: with more, rates show bursts.
pub(crate) const BINS: usize = 40;
const MIN_SAMPLES: usize = 2;
