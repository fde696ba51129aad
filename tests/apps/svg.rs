//! Reads the pictures that the example `plot` draws, as a person does: by titles, ticks, names and colours.

/// A picture, all of whose marks are where a reader looks for them.
#[derive(Debug)]
pub struct Picture {
    pub size: (f64, f64),
    pub title: String,
    pub charts: Vec<Chart>,
}

#[derive(Debug, Default)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    /// What the grid covers.
    area: Area,
    /// The colour of a mark of the legend whose name comes next.
    mark: Option<String>,
}

#[derive(Debug, Default)]
pub struct Axis {
    pub unit: String,
    ticks: Vec<Tick>,
}

#[derive(Debug)]
struct Tick {
    value: f64,
    pixel: f64,
}

#[derive(Debug)]
pub struct Line {
    pub name: String,
    colour: String,
    /// Pixels.
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

type Outcome<T> = Result<T, String>;

/// How far a mark may be from its place, in pixels: it is at a whole one, and so are the ticks that say where that is.
const TOLERANCE: f64 = 2.0;
/// The width of a letter for its height, with room to spare.
const LETTER: f64 = 0.6;
/// What is no data: axes, ticks and texts.
const BLACK: &str = "#000000";

impl Picture {
    /// Reads a picture and checks that each chart has a title, axes with units and even ticks, lines of data and their names, and all
    /// of that within the picture.
    ///
    /// # Errors
    /// What is missing or out of place.
    pub fn read(svg: &str) -> Outcome<Self> {
        if !svg.starts_with("<svg ") || !svg.trim_end().ends_with("</svg>") {
            return Err("no SVG, or half of one".to_owned());
        }
        let mut picture = Self { size: (0.0, 0.0), title: String::new(), charts: Vec::new() };
        for element in svg.split('<').skip(1).filter(|element| !element.starts_with('/')) {
            let (tag, _) = element.split_once(' ').ok_or(element)?;
            match tag {
                "svg" => picture.size = (number(element, "width")?, number(element, "height")?),
                "rect" => {}
                "text" => picture.text(element)?,
                "line" => picture.chart()?.grid(element)?,
                "polyline" => picture.chart()?.polyline(element)?,
                _ => return Err(format!("an element that is not known: {element}")),
            }
        }
        if picture.title.is_empty() || picture.charts.is_empty() {
            return Err("no title, or no chart".to_owned());
        }
        for chart in &picture.charts {
            chart.check(picture.size).map_err(|error| format!("{}: {error}", chart.title))?;
        }
        for pair in picture.charts.windows(2) {
            let [above, below] = [pair[0].area, pair[1].area];
            if above.bottom >= below.top || (above.left, above.right) != (below.left, below.right) {
                return Err(format!("{} is not below {}", pair[1].title, pair[0].title));
            }
        }
        Ok(picture)
    }

    /// Of each chart: its title, the units of both axes, and the names of the lines.
    pub fn marks(&self) -> Vec<Vec<String>> {
        let marks = |chart: &'_ Chart| {
            let names = chart.lines.iter().map(|line| &line.name);
            [&chart.title, &chart.x.unit, &chart.y.unit].into_iter().chain(names).cloned().collect()
        };
        self.charts.iter().map(marks).collect()
    }

    fn chart(&mut self) -> Outcome<&mut Chart> {
        self.charts.last_mut().ok_or_else(|| "a mark before the title of a chart".to_owned())
    }

    fn text(&mut self, element: &str) -> Outcome<()> {
        let text = element.split_once('>').map_or("", |(_, text)| text.trim());
        let (x, y, size) = (number(element, "x")?, number(element, "y")?, number(element, "font-size")?);
        let anchor = attribute(element, "text-anchor")?;
        let long = text.chars().count() as f64 * size * LETTER;
        let is_rotated = element.contains(" transform=\"rotate(270, ");
        let before = match anchor {
            "start" => 0.0,
            "middle" => long / 2.0,
            "end" => long,
            _ => return Err(format!("{text}: anchor {anchor}")),
        };
        // Turned by 270 degrees, a text runs upwards.
        let (from, to, end) = if is_rotated {
            (y - long + before, y + before, self.size.1)
        } else {
            (x - before, x - before + long, self.size.0)
        };
        let is_inside = |at: f64, end: f64| (0.0..=end).contains(&at);
        if text.is_empty() || ![from, to].iter().all(|at| is_inside(*at, end)) {
            return Err(format!("{text:?} from {from} to {to} is not within the picture"));
        }
        if !is_inside(x, self.size.0) || !is_inside(y, self.size.1) {
            return Err(format!("{text:?} at {x}, {y} is not within the picture"));
        }

        if self.title.is_empty() {
            text.clone_into(&mut self.title);
            return Ok(());
        }
        let value = text.parse::<f64>();
        let is_below = |chart: &Chart| y > chart.area.bottom;
        match (anchor, value) {
            ("middle", _) if is_rotated => set(&mut self.chart()?.y.unit, text),
            ("middle", Ok(value)) => push(&mut self.chart()?.x, value, x),
            ("end", Ok(value)) => push(&mut self.chart()?.y, value, y),
            // Below the ticks, where a chart's title is above all else of it.
            ("middle", Err(_)) if attribute(element, "dy")? == "-0.5ex" => {
                set(&mut self.chart()?.x.unit, text)
            }
            ("middle", Err(_)) if self.charts.last().is_none_or(is_below) => {
                self.charts.push(Chart { title: text.to_owned(), ..Chart::default() });
                Ok(())
            }
            ("start", _) => self.chart()?.name(text, (x, y)),
            _ => Err(format!("a text that is not known: {element}")),
        }
    }
}

impl Chart {
    /// The line of that name.
    pub fn line(&self, name: &str) -> Outcome<&Line> {
        let line = self.lines.iter().find(|line| line.name == name);
        line.ok_or_else(|| format!("{}: no line {name:?}", self.title))
    }

    /// Checks that the line called `name` goes through these values and no others.
    pub fn shows(&self, name: &str, values: &[(f64, f64)]) -> Outcome<()> {
        let line = self.line(name)?;
        if line.points.len() != values.len() {
            let (drawn, expected) = (line.points.len(), values.len());
            return Err(format!("{}: {name}: {drawn} points for {expected} values", self.title));
        }
        for (pixels, value) in line.points.iter().zip(values) {
            let place = (self.x.pixel(value.0), self.y.pixel(value.1));
            if (pixels.0 - place.0).abs() > TOLERANCE || (pixels.1 - place.1).abs() > TOLERANCE {
                return Err(format!("{}: {name}: {value:?} is at {pixels:?}, not {place:?}", self.title));
            }
        }
        Ok(())
    }

    fn grid(&mut self, element: &str) -> Outcome<()> {
        for (x, y) in [("x1", "y1"), ("x2", "y2")] {
            let (x, y) = (number(element, x)?, number(element, y)?);
            let Area { left, right, top, bottom } = self.area;
            self.area =
                Area { left: left.min(x), right: right.max(x), top: top.min(y), bottom: bottom.max(y) };
        }
        Ok(())
    }

    fn polyline(&mut self, element: &str) -> Outcome<()> {
        let colour = attribute(element, "stroke")?.to_owned();
        if colour == BLACK {
            return Ok(());
        }
        let mut points = Vec::new();
        for point in attribute(element, "points")?.split_whitespace() {
            let parse = |text: &str| text.parse::<f64>().map_err(|error| format!("{point}: {error}"));
            let (x, y) = point.split_once(',').ok_or(point)?;
            points.push((parse(x)?, parse(y)?));
        }
        // Beside the grid, it is the mark before a name.
        if points.iter().all(|point| point.0 > self.area.right) {
            self.mark = Some(colour);
        } else {
            self.lines.push(Line { name: String::new(), colour, points });
        }
        Ok(())
    }

    fn name(&mut self, text: &str, place: (f64, f64)) -> Outcome<()> {
        let colour = self.mark.take().ok_or_else(|| format!("{text}: a name without a colour"))?;
        if place.0 <= self.area.right || place.1 > self.area.bottom {
            return Err(format!("{text}: a name that is not beside its chart"));
        }
        let line = self.lines.iter_mut().find(|line| line.colour == colour && line.name.is_empty());
        text.clone_into(&mut line.ok_or_else(|| format!("{text}: a name without a line"))?.name);
        Ok(())
    }

    fn check(&self, size: (f64, f64)) -> Outcome<()> {
        let Area { left, right, top, bottom } = self.area;
        if !(0.0 < left && left < right && right < size.0 && 0.0 < top && top < bottom && bottom < size.1) {
            return Err(format!("{:?} is not within the picture", self.area));
        }
        self.x.check((left, right)).map_err(|error| format!("time: {error}"))?;
        self.y.check((bottom, top))?;
        if self.lines.is_empty() {
            return Err("no lines".to_owned());
        }
        for (number, line) in self.lines.iter().enumerate() {
            let is_double = self.lines[..number]
                .iter()
                .any(|other| other.name == line.name || other.colour == line.colour);
            if line.name.is_empty() || is_double {
                return Err(format!("no name or colour of its own: {line:?}"));
            }
            let inside = |point: &(f64, f64)| {
                (left - 1.0..=right + 1.0).contains(&point.0) && (top - 1.0..=bottom + 1.0).contains(&point.1)
            };
            if line.points.len() < 2 || !line.points.iter().all(inside) {
                return Err(format!("{}: too short, or not within the axes: {:?}", line.name, line.points));
            }
            if !line.points.is_sorted_by(|a, b| a.0 <= b.0) {
                return Err(format!("{}: it goes back in time", line.name));
            }
        }
        Ok(())
    }
}

impl Axis {
    /// Where a value is, by the first tick and the last one.
    fn pixel(&self, value: f64) -> f64 {
        let (first, last) = (&self.ticks[0], &self.ticks[self.ticks.len() - 1]);
        first.pixel + (value - first.value) * (last.pixel - first.pixel) / (last.value - first.value)
    }

    /// Checks the unit, and that ticks are even on the way between these pixels.
    fn check(&self, (from, to): (f64, f64)) -> Outcome<()> {
        if self.unit.is_empty() || self.ticks.len() < 3 {
            return Err(format!("no unit, or too few ticks: {self:?}"));
        }
        let goes_on = |pair: &[Tick]| {
            pair[1].value > pair[0].value && (pair[1].pixel - pair[0].pixel) * (to - from).signum() > 0.0
        };
        let is_even = |tick: &Tick| (self.pixel(tick.value) - tick.pixel).abs() <= TOLERANCE;
        let is_inside = |tick: &Tick| (from.min(to) - 1.0..=from.max(to) + 1.0).contains(&tick.pixel);
        if !self.ticks.windows(2).all(goes_on)
            || !self.ticks.iter().all(|tick| is_even(tick) && is_inside(tick))
        {
            return Err(format!("uneven ticks: {self:?}"));
        }
        Ok(())
    }
}

impl Default for Area {
    /// None.
    fn default() -> Self {
        let (least, most) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { left: least, right: most, top: least, bottom: most }
    }
}

fn set(unit: &mut String, text: &str) -> Outcome<()> {
    if !unit.is_empty() {
        return Err(format!("{text} beside the unit {unit}: a chart without title?"));
    }
    text.clone_into(unit);
    Ok(())
}

fn push(axis: &mut Axis, value: f64, pixel: f64) -> Outcome<()> {
    axis.ticks.push(Tick { value, pixel });
    Ok(())
}

fn attribute<'a>(element: &'a str, name: &str) -> Outcome<&'a str> {
    let value = element.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
    value.map(|(value, _)| value).ok_or_else(|| format!("no {name} in {element}"))
}

fn number(element: &str, name: &str) -> Outcome<f64> {
    let value = attribute(element, name)?;
    value.parse().map_err(|error| format!("{name} {value:?}: {error}"))
}
