//! Bars in groups, as SVG.

use std::{io, path::Path};

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

/// A bar for each series in each group.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) groups: Vec<String>,
    /// Names, and a value for each group; `None` where there is none.
    pub(crate) series: Vec<(String, Vec<Option<f64>>)>,
}

/// Of a colour-blind-safe palette (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(213, 94, 0),
    RGBColor(153, 153, 153),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];
/// Share of a group's width that bars take.
const FILLED: f64 = 0.86;

impl Chart {
    /// Whether there is anything to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.iter().all(|(_, values)| values.iter().all(Option::is_none))
    }

    pub(crate) fn draw(&self, path: &Path) -> io::Result<()> {
        self.try_draw(path).map_err(|error| io::Error::other(error.to_string()))
    }

    fn try_draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let bars = self.groups.len() * self.series.len();
        let width = u32::try_from(bars * 30 + 160)?.clamp(560, 1_600);
        let root = SVGBackend::new(path, (width, 440)).into_drawing_area();
        root.fill(&WHITE)?;
        let values = self.series.iter().flat_map(|(_, values)| values).flatten();
        let highest = values.copied().fold(f64::MIN_POSITIVE, f64::max);
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..self.groups.len() as f64, 0.0..highest * 1.25)?;
        chart.configure_mesh().disable_x_mesh().disable_x_axis().y_desc(&self.unit).draw()?;

        let step = FILLED / self.series.len() as f64;
        let small = TextStyle::from(("sans-serif", 10).into_font()).pos(Pos::new(HPos::Center, VPos::Bottom));
        for (index, (name, values)) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let left = |group: usize| group as f64 + (1.0 - FILLED) / 2.0 + step * index as f64;
            let bars = values.iter().enumerate().filter_map(|(group, value)| Some((group, (*value)?)));
            let rectangles = bars.clone().map(|(group, value)| {
                Rectangle::new([(left(group), 0.0), (left(group) + step * 0.94, value)], colour.filled())
            });
            chart
                .draw_series(rectangles)?
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
            chart.draw_series(bars.map(|(group, value)| {
                Text::new(compact(value), (left(group) + step / 2.0, value), small.clone())
            }))?;
        }
        let below = TextStyle::from(("sans-serif", 13).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        for (group, name) in self.groups.iter().enumerate() {
            let (x, y) = chart.plotting_area().map_coordinate(&(group as f64 + 0.5, 0.0));
            root.draw(&Text::new(name.as_str(), (x, y + 8), below.clone()))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        root.present()?;
        Ok(())
    }
}

/// A figure in three digits or so.
pub(crate) fn compact(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
