//! The latencies as a picture: for each loss, the share of messages that took longer, on a logarithmic scale.

use std::{error::Error, path::Path, time::Duration};

use plotters::prelude::*;

use crate::{
    LOSSES,
    measure::{Mode, Outcome},
};

const SIZE: (u32, u32) = (1_200, 480);
/// Latencies shown, in milliseconds.
const X: std::ops::Range<f64> = 40.0..400.0;
/// Share of messages that take longer, as a power of ten.
const Y: std::ops::Range<f64> = -4.0..0.0;

pub fn draw(path: &Path, outcomes: &[Outcome]) -> Result<(), Box<dyn Error + Send + Sync>> {
    draw_to(path, outcomes).map_err(|error| error.to_string().into())
}

fn color(mode: Mode) -> RGBColor {
    match mode {
        Mode::Off => RGBColor(90, 90, 90),
        Mode::Fixed => RGBColor(31, 119, 180),
        Mode::FixedFlush => RGBColor(23, 190, 207),
        Mode::Adaptive => RGBColor(214, 39, 40),
        Mode::AdaptiveFlush => RGBColor(255, 140, 0),
    }
}

fn draw_to(path: &Path, outcomes: &[Outcome]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(
        "Latency of 200-byte messages, 50 a second, round trip 100 ms: share that takes longer",
        ("sans-serif", 22),
    )?;
    let lossy: Vec<u32> = LOSSES.into_iter().filter(|loss| *loss > 0).collect();
    for (area, loss) in root.split_evenly((1, lossy.len())).iter().zip(lossy) {
        let mut chart = ChartBuilder::on(area)
            .caption(format!("{loss} % loss each way"), ("sans-serif", 18))
            .margin(8)
            .margin_right(18)
            .x_label_area_size(42)
            .y_label_area_size(58)
            .build_cartesian_2d(X, Y)?;
        chart
            .configure_mesh()
            .x_desc("latency, ms")
            .y_desc("share of messages")
            .x_labels(8)
            .y_labels(5)
            .max_light_lines(1)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| match *y as i32 {
                0 => "1".into(),
                power => format!("{}", 10_f64.powi(power)),
            })
            .label_style(("sans-serif", 14))
            .draw()?;
        for outcome in outcomes.iter().filter(|outcome| outcome.loss == loss) {
            let color = color(outcome.mode);
            chart
                .draw_series(LineSeries::new(longer(outcome), color.stroke_width(2)))?
                .label(outcome.mode.name())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(3)));
        }
        if loss == LOSSES[1] {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperRight)
                .background_style(WHITE.mix(0.85))
                .border_style(RGBColor(200, 200, 200))
                .label_font(("sans-serif", 14))
                .draw()?;
        }
    }
    root.present()?;
    Ok(())
}

/// The steps of the curve within the picture: latency and the logarithm of the share that takes longer.
fn longer(outcome: &Outcome) -> Vec<(f64, f64)> {
    let all = outcome.latencies.len();
    let mut points = vec![(X.start, 0.0)];
    let mut shorter = 0;
    while shorter < all {
        // Finer steps would only make the picture larger.
        let latency = Duration::from_millis(outcome.latencies[shorter].as_millis() as u64 + 1);
        let x = latency.as_secs_f64() * 1e3;
        let y = |left: usize| (left as f64 / all as f64).log10().max(Y.start);
        if x > X.end {
            points.push((X.end, y(all - shorter)));
            return points;
        }
        points.push((x, y(all - shorter)));
        shorter += outcome.latencies[shorter..].partition_point(|other| *other < latency);
        points.push((x, y(all - shorter)));
    }
    points
}
