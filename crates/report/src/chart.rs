//! Figures as data: what is drawn, apart from how. SVG and pgfplots draw the same charts.

pub mod pgf;
mod scale;
pub mod svg;

pub(crate) use svg::wrapped;

use sonde_results::units::time_unit;

/// A figure of a report: axes and what is drawn between them.
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

#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its title, with the unit of its tick labels.
    pub title: String,
    /// How values lie on it.
    pub scale: AxisScale,
    /// Values are divided by this for the tick labels: 1000 for ns shown as us.
    pub divisor: f64,
    /// The values that names stand for, for files that programs read; empty: none.
    pub numbers: Vec<f64>,
}

/// How values lie on an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum AxisScale {
    /// Even. From zero where all values are positive.
    Linear,
    /// Even, from 0 to 1 whatever is drawn (RFC 2544, section 26.3).
    Whole,
    /// Logarithmic, with a tick at each power of ten.
    Log,
    /// A share q of the values, each nine as wide as the last: -log10(1 - q).
    Nines,
    /// Names; value i is the position of name i.
    Names(Vec<String>),
}

/// Something that is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its label, beside its last point; empty: none.
    pub name: String,
    /// Which of [`COLOURS`]; `None`: the colour of the text, for what is no measurement.
    pub colour: Option<usize>,
    pub shape: Shape,
}

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
    /// Points with intervals in x, not joined; y is the index of a name.
    Rows(Vec<Point>),
    /// Rectangles between two values of y, one at each value of x, with an interval at `to`.
    Bars(Vec<Bar>),
    /// Cells of a heat map.
    Cells(Vec<Area>),
}

/// A value with its interval. In [`Shape::Rows`] the interval is that of x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The tester set it: the value is no less than this, and its mark is open.
    pub open: bool,
}

/// A bar of a waterfall.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub x: f64,
    pub from: f64,
    pub to: f64,
    /// Interval of the end.
    pub interval: Option<(f64, f64)>,
    /// The value beside it; lines are parted by a line feed.
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
    pub fn time(title: &str, greatest: f64, scale: AxisScale) -> Axis {
        // A decade more before the next unit: 5000 us reads better than 5 ms beside 1 us.
        let (divisor, unit) = time_unit(greatest / 10.0);
        Axis { title: format!("{title}, {unit}"), scale, divisor, numbers: Vec::new() }
    }

    /// Of rates, with a prefix that fits `greatest`.
    pub fn rate(title: &str, greatest: f64, unit: &str, scale: AxisScale) -> Axis {
        let (divisor, prefix) = crate::quantity::prefix(greatest);
        let title = match prefix {
            prefix if unit == "bit/s" => format!("{title}, {prefix}{unit}"),
            "" => format!("{title}, {unit}"),
            "k" => format!("{title}, thousand {unit}"),
            "M" => format!("{title}, million {unit}"),
            _ => format!("{title}, 10^9 {unit}"),
        };
        Axis { title, scale, divisor, numbers: Vec::new() }
    }

    /// Of ratios, in per cent.
    pub fn percent(title: &str, scale: AxisScale) -> Axis {
        Axis { title: format!("{title}, %"), scale, divisor: 0.01, numbers: Vec::new() }
    }

    pub fn names(title: &str, names: Vec<String>) -> Axis {
        Axis {
            title: title.into(),
            scale: AxisScale::Names(names),
            divisor: 1.0,
            numbers: Vec::new(),
        }
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

/// Series colours on a light and on a dark ground: blue, orange, green, purple, and two more.
/// Each pair stays apart for people with any colour vision, and each colour stands out from its
/// ground; a test computes both.
pub const COLOURS: [(&str, &str); 6] = [
    ("#0d78b3", "#83b8ff"),
    ("#f56200", "#ff9915"),
    ("#26623b", "#3f9a7e"),
    ("#731d85", "#b862d5"),
    ("#432600", "#d2ff64"),
    ("#2a99d8", "#ffc5c1"),
];

/// Steps of a heat map's colour.
pub const LEVELS: usize = 7;

/// Colours of a heat map's steps on a light and on a dark ground, few to many: one hue, so
/// that lightness alone distinguishes.
pub const HEAT: [(&str, &str); LEVELS] = [
    ("#d6e6f4", "#16304a"),
    ("#b9d4ea", "#1a4468"),
    ("#97c2e0", "#1c5a8a"),
    ("#62a3cf", "#2a7ab5"),
    ("#3481ba", "#4f9fd6"),
    ("#12609f", "#8cc5ec"),
    ("#083d70", "#d6ecfb"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Linear red, green and blue, each 0 to 1.
    fn linear(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|i| {
            let c = f64::from(u8::from_str_radix(&colour[i..i + 2], 16).unwrap()) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn times(m: &[[f64; 3]; 3], v: [f64; 3]) -> [f64; 3] {
        m.map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum())
    }

    /// Oklab: lightness and two coordinates of the hue, in which distances are those seen.
    fn seen(rgb: [f64; 3]) -> [f64; 3] {
        const CONES: [[f64; 3]; 3] = [
            [0.412_221, 0.536_333, 0.051_446],
            [0.211_903, 0.680_700, 0.107_397],
            [0.088_302, 0.281_719, 0.629_979],
        ];
        const LAB: [[f64; 3]; 3] = [
            [0.210_454, 0.793_618, -0.004_072],
            [1.977_998, -2.428_592, 0.450_594],
            [0.025_904, 0.782_772, -0.808_676],
        ];
        times(&LAB, times(&CONES, rgb.map(|c| c.clamp(0.0, 1.0))).map(f64::cbrt))
    }

    /// Contrast as WCAG 2 has it, 1 to 21.
    fn contrast(a: &str, b: &str) -> f64 {
        let light = |c: &str| times(&[[0.2126, 0.7152, 0.0722]; 3], linear(c))[0] + 0.05;
        (light(a) / light(b)).max(light(b) / light(a))
    }

    /// Normal vision, and the full loss of the red, green or blue cones (Machado, Oliveira and
    /// Fernandes 2009).
    const VISIONS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
        [
            [1.255_528, -0.076_749, -0.178_779],
            [-0.078_411, 0.930_809, 0.147_602],
            [0.004_733, 0.691_367, 0.303_900],
        ],
    ];

    #[test]
    fn colours_are_distinguished_by_everybody() {
        let light: Vec<&str> = COLOURS.iter().map(|c| c.0).collect();
        let dark: Vec<&str> = COLOURS.iter().map(|c| c.1).collect();
        for (colours, ground) in [(light, svg::LIGHT.ground), (dark, svg::DARK.ground)] {
            for (i, a) in colours.iter().enumerate() {
                assert!(contrast(a, ground) >= 3.0, "{a} on {ground}: {}", contrast(a, ground));
                for (b, vision) in
                    colours[..i].iter().flat_map(|b| VISIONS.iter().map(move |v| (b, v)))
                {
                    let [a_seen, b_seen] = [a, b].map(|c| seen(times(vision, linear(c))));
                    let apart = a_seen.iter().zip(b_seen).map(|(x, y)| (x - y).powi(2));
                    // A fiftieth is just seen where colours touch.
                    let apart = apart.sum::<f64>().sqrt();
                    assert!(apart > 0.1, "{a} and {b} on {ground}: {apart}");
                }
            }
        }
    }
}
