//! Figures as data: what is drawn, apart from how. SVG and pgfplots draw the same charts.

pub mod pgf;
mod scale;
pub mod svg;

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Name for files and links: "throughput_router".
    pub id: String,
    /// What it shows, in a line.
    pub title: String,
    /// How to read it, and what was left out.
    pub caption: String,
    /// Left to right.
    pub x: Axis,
    /// Bottom to top.
    pub y: Axis,
    /// What is drawn, in this order.
    pub series: Vec<Series>,
    /// One of many alike, which a reader opens when wanted.
    pub minor: bool,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its title, with the unit of its tick labels.
    pub title: String,
    /// How values lie on it.
    pub scale: Scale,
    /// Values are divided by this for the tick labels: 1000 for ns shown as µs.
    pub divisor: f64,
}

/// How values lie on an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Even. From zero where all values are positive.
    Linear,
    /// Decades.
    Log,
    /// A share q of the values, each nine as wide as the last: -log10(1 - q).
    Nines,
    /// Names; value i is the place of name i.
    Names(Vec<String>),
}

/// Something that is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its label, beside its last point; empty: none.
    pub name: String,
    /// Which of [`COLOURS`]; `None`: the colour of the text, for what is no measurement.
    pub colour: Option<usize>,
    /// Its form.
    pub shape: Shape,
}

/// Forms.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A line through points.
    Line {
        /// (x, y), by rising x.
        points: Vec<(f64, f64)>,
        /// Dashed: a calculation, not a measurement.
        dashed: bool,
        /// A mark at each point.
        marks: bool,
    },
    /// Points with intervals in y, joined by a line.
    Intervals(Vec<Point>),
    /// Points with intervals in x, not joined; y is the place of a name.
    Rows(Vec<Point>),
    /// Rectangles between two values of y, one at each place of x, with an interval at `to`.
    Bars(Vec<Bar>),
    /// Cells of a heat map.
    Cells(Vec<Area>),
}

/// A value with its interval. In [`Shape::Rows`] the interval is that of x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Left to right.
    pub x: f64,
    /// Bottom to top.
    pub y: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A bar of a waterfall.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Place.
    pub x: f64,
    /// Begin.
    pub from: f64,
    /// End.
    pub to: f64,
    /// Interval of the end.
    pub interval: Option<(f64, f64)>,
    /// The number beside it.
    pub label: String,
}

/// A cell of a heat map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Left and right.
    pub x: (f64, f64),
    /// Bottom and top.
    pub y: (f64, f64),
    /// 0 to [`LEVELS`] - 1.
    pub level: usize,
}

impl Axis {
    /// Of times in ns: the tick labels are in the unit that fits `greatest`.
    pub fn time(title: &str, greatest: f64, scale: Scale) -> Axis {
        // A decade more before the next unit: 5000 µs reads better than 5 ms beside 1 µs.
        let (divisor, unit) = crate::quantity::time_unit(greatest / 10.0);
        Axis { title: format!("{title}, {unit}"), scale, divisor }
    }

    /// Of rates, with a prefix that fits `greatest`.
    pub fn rate(title: &str, greatest: f64, unit: &str, scale: Scale) -> Axis {
        let (divisor, prefix) = crate::quantity::prefix(greatest);
        let title = match prefix {
            "" => format!("{title}, {unit}"),
            "k" => format!("{title}, thousand {unit}"),
            "M" => format!("{title}, million {unit}"),
            _ => format!("{title}, 10^9 {unit}"),
        };
        Axis { title, scale, divisor }
    }

    /// Of ratios, in per cent.
    pub fn percent(title: &str, scale: Scale) -> Axis {
        Axis { title: format!("{title}, %"), scale, divisor: 0.01 }
    }

    /// Of names.
    pub fn names(title: &str, names: Vec<String>) -> Axis {
        Axis { title: title.into(), scale: Scale::Names(names), divisor: 1.0 }
    }
}

impl Chart {
    /// Whether there is anything to see.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|s| match &s.shape {
            Shape::Line { points, dashed, .. } => points.is_empty() || *dashed,
            Shape::Intervals(points) | Shape::Rows(points) => points.is_empty(),
            Shape::Bars(bars) => bars.is_empty(),
            Shape::Cells(cells) => cells.is_empty(),
        })
    }
}

/// Series colours on a light and on a dark ground: those of Okabe and Ito (2008), which people
/// see apart whatever their colour vision; for lines on white the two brightest are darker,
/// and on black all are lighter.
pub const COLOURS: [(&str, &str); 6] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff9d5c"),
    ("#009e73", "#3fd0a4"),
    ("#b3558c", "#e79fc7"),
    ("#b07a00", "#f0c04a"),
    ("#3d8fc4", "#a9d8f5"),
];

/// Steps of a heat map's colour.
pub const LEVELS: usize = 7;

/// Colours of a heat map's steps on a light and on a dark ground, few to many: one hue, so
/// that lightness alone tells.
pub const HEAT: [(&str, &str); LEVELS] = [
    ("#d6e6f4", "#16304a"),
    ("#b9d4ea", "#1a4468"),
    ("#97c2e0", "#1c5a8a"),
    ("#62a3cf", "#2a7ab5"),
    ("#3481ba", "#4f9fd6"),
    ("#12609f", "#8cc5ec"),
    ("#083d70", "#d6ecfb"),
];
