//! What the example `plot` draws: each line is where its values are, and the pictures that are published show their records.

use std::{env, fs, io::Cursor, path::Path};

use serde_json::{Value, json};

use crate::{
    chart::{self, BINS},
    qlog::{Sample, Trace},
    svg::Picture,
};

/// What is sampled at one time.
struct Moment {
    /// Milliseconds.
    time: f64,
    /// Those that have changed.
    counters: Value,
    /// Milliseconds: smoothed and least.
    rtt: (f64, f64),
    in_flight: u32,
    /// Of this end, of the peer, of congestion control.
    windows: [u32; 3],
}

fn record(name: &str, moments: &[Moment]) -> Trace {
    let header = json!({
        "file_schema": "urn:ietf:params:qlog:file:sequential",
        "trace": { "vantage_point": { "name": name } },
    });
    let mut lines = vec![header];
    for moment in moments {
        let mut event = |name: &str, data| {
            lines.push(json!({ "time": moment.time, "name": name, "data": data }));
        };
        let [send, peer, congestion] = moment.windows;
        let windows = json!({ "send_window": send, "peer_window": peer, "congestion_window": congestion });
        event("kcp9:counters_updated", moment.counters.clone());
        event("kcp9:gauges_updated", windows);
        let (rtt, min_rtt) = moment.rtt;
        event(
            "quic:recovery_metrics_updated",
            json!({ "smoothed_rtt": rtt, "min_rtt": min_rtt, "packets_in_flight": moment.in_flight }),
        );
    }
    let text: String = lines.iter().map(|line| format!("\x1e{line}\n")).collect();
    Trace::read(Cursor::new(text)).unwrap()
}

/// Four seconds of both ends. No two counters grow in the same part of the time, or by as much.
fn known() -> [Trace; 2] {
    let moment = |time: f64, counters: Value, rtt, in_flight, windows| Moment {
        time: time * 1e3,
        counters,
        rtt,
        in_flight,
        windows,
    };
    let sender = [
        moment(0.0, json!({}), (0.0, 0.0), 0, [100, 90, 95]),
        moment(0.25, json!({ "recovery": { "fast_resends": 30 } }), (80.0, 20.0), 40, [100, 90, 70]),
        moment(0.55, json!({ "udp": { "bytes_sent": 1_000_000 } }), (60.0, 30.0), 10, [100, 50, 80]),
        moment(0.75, json!({ "recovery": { "early_resends": 10 } }), (100.0, 35.0), 30, [60, 90, 80]),
        moment(1.05, json!({ "stream": { "bytes_written": 500_000 } }), (90.0, 35.0), 20, [60, 90, 80]),
        moment(1.25, json!({ "recovery": { "timeout_resends": 20 } }), (70.0, 15.0), 20, [60, 90, 80]),
        moment(1.55, json!({ "fec": { "recovered": 4 } }), (50.0, 15.0), 20, [60, 90, 80]),
        moment(2.05, json!({ "fec": { "unrecoverable": 2 } }), (50.0, 15.0), 0, [60, 90, 80]),
        moment(4.0, json!({}), (50.0, 15.0), 0, [60, 90, 80]),
    ];
    // Little was sent by this end: its path and windows are not those that are shown.
    let receiver = [
        moment(0.15, json!({ "udp": { "bytes_sent": 70_000 } }), (300.0, 200.0), 300, [500; 3]),
        moment(2.55, json!({ "stream": { "bytes_read": 800_000 } }), (300.0, 200.0), 300, [500; 3]),
        moment(3.05, json!({ "fec": { "recovered": 12 } }), (300.0, 200.0), 300, [500; 3]),
        moment(3.55, json!({ "fec": { "unrecoverable": 6 } }), (300.0, 200.0), 300, [500; 3]),
    ];
    [record("sender", &sender), record("receiver", &receiver)]
}

/// The parts of the known record's four seconds, with a rate in one of them.
fn peak(time: f64, rate: f64) -> Vec<(f64, f64)> {
    let part = 4.0 / BINS as f64;
    let middles = (0..BINS).map(|number| (number as f64 + 0.5) * part);
    middles.map(|middle| (middle, if (middle - time).abs() < part / 4.0 { rate } else { 0.0 })).collect()
}

#[test]
fn every_line_of_a_picture_is_where_its_values_are() {
    let [sender, receiver] = known();
    let gauge = |values: [f64; 9]| {
        let times = [0.0, 0.25, 0.55, 0.75, 1.05, 1.25, 1.55, 2.05, 4.0];
        times.into_iter().zip(values).collect::<Vec<_>>()
    };
    let nothing = 0.0;
    let rtt = gauge([nothing, 80.0, 60.0, 100.0, 90.0, 70.0, 50.0, 50.0, 50.0])[1..].to_vec();
    let min_rtt = gauge([nothing, 20.0, 30.0, 35.0, 35.0, 15.0, 15.0, 15.0, 15.0])[1..].to_vec();
    // A counter that grew within 0.1 s grew by ten times as much in a second.
    let expected = [
        ("Rate", "MB/s", "sender: sent over UDP", peak(0.55, 10.0)),
        ("Rate", "MB/s", "sender: written by the application", peak(1.05, 5.0)),
        ("Rate", "MB/s", "receiver: read by the application", peak(2.55, 8.0)),
        ("Round-trip time", "ms", "smoothed", rtt),
        ("Round-trip time", "ms", "least", min_rtt),
        (
            "Window and in flight",
            "segments",
            "window",
            gauge([90.0, 70.0, 50.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0]),
        ),
        (
            "Window and in flight",
            "segments",
            "in flight",
            gauge([0.0, 40.0, 10.0, 30.0, 20.0, 20.0, 20.0, 0.0, 0.0]),
        ),
        ("Resends by cause", "segments/s", "fast: later ones were acknowledged", peak(0.25, 300.0)),
        ("Resends by cause", "segments/s", "early: the same, with nothing new to send", peak(0.75, 100.0)),
        ("Resends by cause", "segments/s", "timeout", peak(1.25, 200.0)),
        ("FEC", "packets/s", "sender: recovered", peak(1.55, 40.0)),
        ("FEC", "packets/s", "sender: not recovered", peak(2.05, 20.0)),
        ("FEC", "packets/s", "receiver: recovered", peak(3.05, 120.0)),
        ("FEC", "packets/s", "receiver: not recovered", peak(3.55, 60.0)),
    ];
    // Whichever record comes first.
    for traces in [[sender.clone(), receiver.clone()], [receiver, sender]] {
        let picture = Picture::read(&chart::draw("known", &traces).unwrap()).unwrap();
        assert_eq!(picture.title, "known");
        for (title, unit, name, values) in &expected {
            let chart = picture.charts.iter().find(|chart| chart.title == *title).unwrap();
            assert_eq!((&*chart.x.unit, &*chart.y.unit), ("s", *unit), "{title}");
            chart.shows(name, values).unwrap();
        }
        let lines: usize = picture.charts.iter().map(|chart| chart.lines.len()).sum();
        assert_eq!((picture.charts.len(), lines), (5, expected.len()));
    }
}

/// Where nothing was lost, nothing is resent: the axis has labels all the same.
#[test]
fn a_chart_of_zeros_can_be_read() {
    let moment =
        |time| Moment { time, counters: json!({}), rtt: (20.0, 10.0), in_flight: 3, windows: [9; 3] };
    let svg = chart::draw("zeros", &[record("sender", &[0.0, 1e3, 4e3].map(moment))]).unwrap();
    let picture = Picture::read(&svg).unwrap();
    let [rate, _, _, resends] = &picture.charts[..] else { panic!("{:?}", picture.marks()) };
    resends.shows("timeout", &peak(0.0, 0.0)).unwrap();
    rate.shows("sender: sent over UDP", &peak(0.0, 0.0)).unwrap();
}

/// A picture without the texts that `is_gone` picks.
fn without(svg: &str, is_gone: impl Fn(&str, &str) -> bool) -> String {
    let (mut rest, mut left) = (svg, String::new());
    while let Some(from) = rest.find("<text") {
        let to = from + rest[from..].find("</text>\n").unwrap() + "</text>\n".len();
        let element = &rest[from..to];
        left += &rest[..from];
        if !is_gone(element, element.lines().nth(1).unwrap()) {
            left += element;
        }
        rest = &rest[to..];
    }
    left + rest
}

#[test]
fn a_picture_that_lacks_anything_is_refused() {
    let svg = chart::draw("known", &known()).unwrap();
    let picture = Picture::read(&svg).unwrap();
    let smoothed = picture.charts[1].line("smoothed").unwrap();
    let smoothed: String = smoothed.points.iter().map(|(x, y)| format!("{x},{y} ")).collect();
    let first = smoothed.split_inclusive(' ').next().unwrap();
    let lacks = |text: &str| without(&svg, |_, found| found == text);
    let changed = |from: &str, to: &str| svg.replacen(from, to, 1);
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    for (what, broken) in [
        ("half of the file", svg[..svg.len() / 2].to_owned()),
        ("no title of the picture", lacks("known")),
        ("no title of the first chart", lacks("Rate")),
        ("no title of another chart", lacks("Round-trip time")),
        ("no unit", lacks("ms")),
        ("no unit of the time", lacks("s")),
        (
            "no labels of the time",
            without(&svg, |element, text| element.contains("0.76em") && is_number(text)),
        ),
        (
            "no labels of the values",
            without(&svg, |element, text| element.contains("0.5ex") && is_number(text)),
        ),
        ("a label of another value", changed("\n2.0\n", "\n2.3\n")),
        ("a line without a name", lacks("least")),
        ("a name without a line", changed(&format!("points=\"{smoothed}\""), "points=\"700,200 701,200\"")),
        ("a line outside its axes", changed(&smoothed, &smoothed.replacen(first, "75,1 ", 1))),
        ("a line that goes back", changed(&smoothed, &format!("{smoothed}{first}"))),
        ("a line of one point", changed(&smoothed, first)),
        ("a picture that ends before its charts", changed("height=\"1036\"", "height=\"900\"")),
        ("a picture that ends before its names", changed("width=\"960\"", "width=\"760\"")),
    ] {
        assert!(broken != svg, "{what}: nothing was changed");
        Picture::read(&broken).map(drop).expect_err(what);
    }

    let chart = &picture.charts[2];
    let values = |traces: &[Trace; 2]| gauges(&traces[0], |sample| sample.window);
    chart.shows("window", &values(&known())).unwrap();
    assert!(chart.shows("in flight", &values(&known())).is_err());
    assert!(chart.shows("window", &values(&known())[1..]).is_err());
    assert!(chart.shows("windows", &values(&known())).is_err());
}

fn gauges(trace: &Trace, get: fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    trace.samples.iter().map(|sample| (sample.time, get(sample))).collect()
}

/// Checks that a picture shows all that these records of a transfer's ends have: every sample, and every rate.
pub fn check(svg: &str, traces: &[Trace; 2]) -> Picture {
    let [sender, receiver] = traces;
    let picture = Picture::read(svg).unwrap();
    let end =
        gauges(sender, |_| 0.0).iter().chain(&gauges(receiver, |_| 0.0)).fold(0.0, |end, at| at.0.max(end));
    let part = end / BINS as f64;
    // How much a counter had grown up to the end of a part; the last one has all of it.
    let sum = |trace: &Trace, group: &str, name: &str, parts: usize| {
        let is_in = |sample: &&Sample| parts == BINS || sample.time <= part * parts as f64;
        let last = trace.samples.iter().rfind(is_in).filter(|_| parts > 0);
        last.map_or(0, |sample| sample.counter(group, name))
    };
    let rate = |trace: &Trace, group: &str, name: &str, unit: f64| -> Vec<_> {
        let grown = |number| sum(trace, group, name, number + 1) - sum(trace, group, name, number);
        (0..BINS).map(|number| ((number as f64 + 0.5) * part, grown(number) as f64 / part / unit)).collect()
    };
    let measured =
        |get| -> Vec<_> { gauges(sender, get).into_iter().filter(|point| point.1 > 0.0).collect() };
    let mut expected = vec![
        ("Rate", "sender: sent over UDP", rate(sender, "udp", "bytes_sent", 1e6)),
        ("Rate", "sender: written by the application", rate(sender, "stream", "bytes_written", 1e6)),
        ("Rate", "receiver: read by the application", rate(receiver, "stream", "bytes_read", 1e6)),
        ("Round-trip time", "smoothed", measured(|sample| sample.rtt)),
        ("Round-trip time", "least", measured(|sample| sample.min_rtt)),
        ("Window and in flight", "window", gauges(sender, |sample| sample.window)),
        ("Window and in flight", "in flight", gauges(sender, |sample| sample.in_flight)),
    ];
    for (name, counter) in [
        ("fast: later ones were acknowledged", "fast_resends"),
        ("early: the same, with nothing new to send", "early_resends"),
        ("timeout", "timeout_resends"),
    ] {
        expected.push(("Resends by cause", name, rate(sender, "recovery", counter, 1.0)));
    }
    // Lost ACKs are recovered by the sender, too.
    for (trace, recovered, not_recovered) in [
        (sender, "sender: recovered", "sender: not recovered"),
        (receiver, "receiver: recovered", "receiver: not recovered"),
    ] {
        if ["recovered", "unrecoverable"].iter().any(|name| sum(trace, "fec", name, BINS) > 0) {
            expected.push(("FEC", recovered, rate(trace, "fec", "recovered", 1.0)));
            expected.push(("FEC", not_recovered, rate(trace, "fec", "unrecoverable", 1.0)));
        }
    }
    for (title, name, values) in &expected {
        let chart = picture.charts.iter().find(|chart| chart.title == *title);
        chart.unwrap_or_else(|| panic!("no chart {title:?}")).shows(name, values).unwrap();
    }
    let lines: usize = picture.charts.iter().map(|chart| chart.lines.len()).sum();
    assert_eq!(lines, expected.len(), "{:?}", picture.marks());
    picture
}

/// The records that `transfer --qlog` makes in a folder.
pub fn records(folder: &Path) -> [Trace; 2] {
    ["sender", "receiver"].map(|name| {
        let trace =
            Trace::read(Cursor::new(fs::read(folder.join(format!("{name}.sqlog"))).unwrap())).unwrap();
        assert_eq!(trace.name, name);
        trace
    })
}

/// Those that the examples `transfer` and `plot` have drawn, from one pair of records.
#[test]
#[ignore = "KCP9_PICTURES names a folder with transfer.svg, session.svg and qlog: .ci/run examples"]
fn pictures_of_the_examples_show_their_records() {
    let folder =
        env::var_os("KCP9_PICTURES").expect("KCP9_PICTURES names a folder: `.ci/run examples` sets it");
    let folder = Path::new(&folder);
    let traces = records(&folder.join("qlog"));
    for name in ["transfer.svg", "session.svg"] {
        let picture = check(&fs::read_to_string(folder.join(name)).unwrap(), &traces);
        println!("{name}: {}", picture.title);
        for (chart, marks) in picture.charts.iter().zip(picture.marks()) {
            let points: Vec<_> = chart.lines.iter().map(|line| line.points.len()).collect();
            println!("  {}: {points:?} points", marks.join(" | "));
        }
    }
}

/// The README's picture has the charts that are drawn today.
#[test]
fn the_published_picture_is_as_those_that_are_drawn_today() {
    let published = Picture::read(include_str!("../../docs/lossy-link.svg")).unwrap();
    let today = Picture::read(&chart::draw("known", &known()).unwrap()).unwrap();
    assert_eq!(published.marks(), today.marks());
    assert_eq!(published.size, today.size);
    for chart in &published.charts {
        let points = chart.lines[0].points.len();
        assert!(points >= BINS && chart.lines.iter().all(|line| line.points.len() == points), "{chart:?}");
    }
}
