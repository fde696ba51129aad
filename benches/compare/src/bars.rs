//! What kcp9 has to reach compared with its peers, and whether it does.

use crate::{
    OURS,
    cell::{Cell, Crypt, Path, Work},
    go,
    summary::{Metric, Summary},
};

/// Losses through the relay, percent, at which kcp9's latency may not exceed kcp-go's.
const LOSSES: [u32; 2] = [5, 10];

/// One requirement: a ratio of medians and its limit.
struct Bar {
    what: String,
    /// `None` when one of both was not measured.
    ratio: Option<f64>,
    limit: Limit,
}

#[derive(Clone, Copy)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Limit {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(limit) => ratio >= limit,
            Self::AtMost(limit) => ratio <= limit,
        }
    }
}

/// The section of the results; empty when none of it was measured.
pub(crate) fn markdown(summary: &Summary) -> String {
    let bars = all(summary);
    if bars.iter().all(|bar| bar.ratio.is_none()) {
        return String::new();
    }
    let mut text = String::from(
        "## Bars\n\nRatios of medians, kcp9 over the peer; of two versions of kcp-go the better one counts, unless named.\n\n\
         | what | ratio | bar | |\n|---|---|---|---|\n",
    );
    for Bar { what, ratio, limit } in bars {
        let bar = match limit {
            Limit::AtLeast(limit) => format!("at least {limit}"),
            Limit::AtMost(limit) => format!("at most {limit}"),
        };
        let (ratio, verdict) = match ratio {
            None => ("-".to_owned(), "not measured"),
            Some(ratio) => (format!("{ratio:.2}"), if limit.holds(ratio) { "met" } else { "**missed**" }),
        };
        text += &format!("| {what} | {ratio} | {bar} | {verdict} |\n");
    }
    text.push('\n');
    text
}

fn all(summary: &Summary) -> Vec<Bar> {
    let bulk = |work, crypt| Cell::bulk(work, crypt, 1, 64 << 10);
    let sink = bulk(Work::Sink, Crypt::Plain);
    let echo = bulk(Work::Echo, Crypt::Plain);
    let gcm = bulk(Work::Sink, Crypt::Aes128Gcm);
    let fec = bulk(Work::Echo, Crypt::Salsa20Fec);
    let small = Cell::bulk(Work::Sink, Crypt::Plain, 1, 64);
    let eight = Cell::bulk(Work::Sink, Crypt::Plain, 8, 64 << 10);
    let loopback = Cell::ping(Path::Loopback);

    let of = |cell: &Cell, peer: &str, metric| summary.median(cell, peer, metric);
    let over = |cell: &Cell, peer: &str, metric| Some(of(cell, OURS, metric)? / of(cell, peer, metric)?);
    let over_go = |cell: &Cell, metric| {
        let both = [go::DEBIAN, go::NEWEST].into_iter().filter_map(|peer| over(cell, peer, metric));
        // The better peer leaves the smaller ratio of a rate and the larger one of a cost.
        if matches!(metric, Metric::Rate | Metric::Messages) {
            both.min_by(f64::total_cmp)
        } else {
            both.max_by(f64::total_cmp)
        }
    };
    let bar = |what: &str, ratio, limit| Bar { what: what.to_owned(), ratio, limit };

    let mut bars = vec![
        bar("sink, plain: MB/s, kcp-go", over_go(&sink, Metric::Rate), Limit::AtLeast(4.0)),
        bar("sink, plain: MB/s, quinn", over(&sink, "quinn", Metric::Rate), Limit::AtLeast(2.0)),
        bar("echo, plain: MB/s, kcp-go", over_go(&echo, Metric::Rate), Limit::AtLeast(4.0)),
        bar("echo, plain: MB/s, quinn", over(&echo, "quinn", Metric::Rate), Limit::AtLeast(1.6)),
        bar("sink, aes-128-gcm: MB/s, kcp-go", over_go(&gcm, Metric::Rate), Limit::AtLeast(3.0)),
        bar("sink, aes-128-gcm: MB/s, quinn", over(&gcm, "quinn", Metric::Rate), Limit::AtLeast(2.0)),
        bar("echo, salsa20-fec: MB/s, kcp-go", over_go(&fec, Metric::Rate), Limit::AtLeast(5.0)),
        bar("sink, plain: CPU s/GB, kcp-go", over_go(&sink, Metric::Cpu), Limit::AtMost(0.25)),
        bar("sink, plain: CPU s/GB, quinn", over(&sink, "quinn", Metric::Cpu), Limit::AtMost(0.5)),
        bar("sink, plain, 64 B: messages/s, kcp-go", over_go(&small, Metric::Messages), Limit::AtLeast(3.0)),
        bar(
            "sink, plain: MB/s, 8 connections over 1 of kcp9's own",
            of(&eight, OURS, Metric::Rate).zip(of(&sink, OURS, Metric::Rate)).map(|(eight, one)| eight / one),
            Limit::AtLeast(1.0),
        ),
        bar("ping, loopback: p50, UDP", over(&loopback, "udp", Metric::P50), Limit::AtMost(1.1)),
        bar("ping, loopback: p99, kcp-go", over_go(&loopback, Metric::P99), Limit::AtMost(0.5)),
    ];
    for loss in LOSSES {
        let cell = Cell::ping(Path::Relay(loss));
        for peer in [go::DEBIAN, go::NEWEST] {
            for (name, metric) in [("p99", Metric::P99), ("wire bytes", Metric::Wire)] {
                let what = format!("ping, {}: {name}, {peer}", cell.variant());
                bars.push(Bar { what, ratio: over(&cell, peer, metric), limit: Limit::AtMost(1.0) });
            }
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Measured, Outcome, Run};

    fn run(peer: &str, cell: Cell, secs: f64, cpu_s: f64) -> Run {
        let measured = Measured {
            bytes: 1_000_000_000,
            messages: 1_000,
            secs,
            cpu_s,
            peak_kb: 1,
            latency: None,
            wire_bytes: None,
        };
        Run { peer: peer.to_owned(), cell, outcome: Outcome::Done(measured) }
    }

    #[test]
    fn the_better_version_of_kcp_go_counts() {
        let cell = Cell::bulk(Work::Sink, Crypt::Plain, 1, 64 << 10);
        let runs =
            [run(OURS, cell, 1.0, 1.0), run(go::DEBIAN, cell, 10.0, 3.0), run(go::NEWEST, cell, 3.0, 8.0)];
        let text = markdown(&Summary::of(&runs));
        assert!(text.contains("| sink, plain: MB/s, kcp-go | 3.00 | at least 4 | **missed** |"), "{text}");
        assert!(
            text.contains("| sink, plain: CPU s/GB, kcp-go | 0.33 | at most 0.25 | **missed** |"),
            "{text}"
        );
        assert!(text.contains("| sink, plain: MB/s, quinn | - | at least 2 | not measured |"), "{text}");
    }

    #[test]
    fn without_ours_there_are_none() {
        let cell = Cell::bulk(Work::Sink, Crypt::Plain, 1, 64 << 10);
        assert_eq!(markdown(&Summary::of(&[run("quinn", cell, 1.0, 1.0)])), "");
    }
}
