//! Charts as SVG.

use std::path::Path;

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

type Outcome = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) enum Chart {
    Lines(Lines),
    Bars(Bars),
}

/// Values over time, in seconds.
pub(super) struct Lines {
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) lines: Vec<Line>,
}

pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// A bar for each series in each group.
pub(super) struct Bars {
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) groups: Vec<String>,
    /// Names, and a value for each group; `None` where there is none.
    pub(super) series: Vec<(String, Vec<Option<f64>>)>,
}

/// Of a colour-blind-safe palette (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
/// Share of a group's width that bars take.
const FILLED: f64 = 0.8;
/// Pixels.
const HEIGHT: u32 = 380;
const LETTER: usize = 7;

impl Chart {
    pub(super) fn draw(&self, path: &Path) -> Outcome {
        match self {
            Self::Lines(lines) => lines.draw(&SVGBackend::new(path, (720, HEIGHT)).into_drawing_area()),
            Self::Bars(bars) => {
                bars.draw(&SVGBackend::new(path, (bars.width()?, HEIGHT)).into_drawing_area())
            }
        }
    }
}

impl Lines {
    fn draw(&self, root: &Area<'_>) -> Outcome {
        root.fill(&WHITE)?;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let latest = points().map(|point| point.0).fold(1.0, f64::max);
        let highest = points().map(|point| point.1).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(root)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..latest, 0.0..highest * 1.3)?;
        chart.configure_mesh().x_desc("s").y_desc(&self.unit).light_line_style(TRANSPARENT).draw()?;
        for (index, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            chart
                .draw_series([PathElement::new(line.points.clone(), colour.stroke_width(2))])?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        root.present()?;
        Ok(())
    }
}

impl Bars {
    /// Wide enough for what is written below.
    fn width(&self) -> Result<u32, std::num::TryFromIntError> {
        let label = self.groups.iter().map(String::len).max().unwrap_or(0) * LETTER;
        u32::try_from(self.groups.len() * label.max(self.series.len() * 40) + 120).map(|width| width.max(420))
    }

    fn draw(&self, root: &Area<'_>) -> Outcome {
        root.fill(&WHITE)?;
        let values = self.series.iter().flat_map(|(_, values)| values).flatten();
        let highest = values.copied().fold(0.1, f64::max);
        let mut chart = ChartBuilder::on(root)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..self.groups.len() as f64, 0.0..highest * 1.3)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_desc(&self.unit)
            .light_line_style(TRANSPARENT)
            .draw()?;
        let step = FILLED / self.series.len() as f64;
        let above = TextStyle::from(("sans-serif", 11).into_font()).pos(Pos::new(HPos::Center, VPos::Bottom));
        for (index, (name, values)) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let left = |group: usize| group as f64 + (1.0 - FILLED) / 2.0 + step * index as f64;
            let bars = values.iter().enumerate().filter_map(|(group, value)| Some((group, (*value)?)));
            let rectangle = |(group, value)| {
                Rectangle::new([(left(group), 0.0), (left(group) + step * 0.94, value)], colour.filled())
            };
            chart
                .draw_series(bars.clone().map(rectangle))?
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
            let number = |(group, value)| {
                Text::new(format!("{value:.1}"), (left(group) + step / 2.0, value), above.clone())
            };
            chart.draw_series(bars.map(number))?;
        }
        let below = TextStyle::from(("sans-serif", 12).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        for (group, name) in self.groups.iter().enumerate() {
            let (x, y) = chart.plotting_area().map_coordinate(&(group as f64 + 0.5, 0.0));
            root.draw(&Text::new(name.as_str(), (x, y + 8), below.clone()))?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        root.present()?;
        Ok(())
    }
}
