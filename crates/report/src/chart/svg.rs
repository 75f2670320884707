//! Charts as SVG: no script, colours by classes, so that one style sheet serves light and dark.

use std::fmt::Write as _;

use super::scale::{ScaledAxis, axes};
use super::{AxisScale, COLOURS, Chart, HEAT, Point, Series, Shape};

/// The chart as an `svg` element. `alone`: a file of its own, with its style inside.
pub fn render(chart: &Chart, alone: bool) -> String {
    Drawing::new(chart).render(alone)
}

/// Colours that a page shares with its charts.
pub(crate) struct Ground {
    pub ink: &'static str,
    pub soft: &'static str,
    pub rule: &'static str,
    pub ground: &'static str,
}

pub(crate) const LIGHT: Ground =
    Ground { ink: "#1d2328", soft: "#5a646d", rule: "#dfe3e7", ground: "#ffffff" };
pub(crate) const DARK: Ground =
    Ground { ink: "#e6e9ec", soft: "#a3adb6", rule: "#333b43", ground: "#14181c" };
/// When the dark is asked for. Paper is light.
pub(crate) const WHEN_DARK: &str = "@media screen and (prefers-color-scheme:dark)";

/// The style of charts. Light unless the reader prefers dark. Without variables: viewers of
/// SVG files, other than browsers, do not know them and paint all black.
pub fn style() -> String {
    type Pick = fn(&(&'static str, &'static str)) -> &'static str;
    let colours = |ground: &Ground, pick: Pick| {
        let Ground { ink, soft, rule, ground } = ground;
        let mut text = format!(
            ".chart text{{fill:{ink}}}.chart .soft,.chart .inkf{{fill:{soft}}}\
             .chart .rule{{stroke:{rule}}}.chart .axis,.chart .ink{{stroke:{soft}}}\
             .chart .ground{{fill:{ground}}}"
        );
        for (i, pair) in COLOURS.iter().enumerate() {
            let colour = pick(pair);
            let _ = write!(text, ".chart .s{i}{{stroke:{colour}}}.chart .f{i}{{fill:{colour}}}");
        }
        for (i, pair) in HEAT.iter().enumerate() {
            let _ = write!(text, ".chart .h{i}{{fill:{}}}", pick(pair));
        }
        text
    };
    format!(
        ".chart{{font:12px system-ui,'DejaVu Sans',sans-serif}}\
         .chart .rule,.chart .axis{{stroke-width:1}}\
         .chart .line{{fill:none;stroke-width:2;stroke-linejoin:round}}\
         .chart .thin{{stroke-width:1.5;fill:none}}.chart .open{{stroke-width:1.8}}\
         .chart .dash{{stroke-dasharray:5 4;stroke-width:1.5}}{}{WHEN_DARK}{{{}}}",
        colours(&LIGHT, |c| c.0),
        colours(&DARK, |c| c.1)
    )
}

const WIDTH: f64 = 680.0;
const PLOT_HEIGHT: f64 = 290.0;
/// Of a row where y has names.
const ROW_HEIGHT: f64 = 24.0;
const TOP: f64 = 12.0;
/// Above bars, for the lines of their values.
const TOP_OF_BARS: f64 = 34.0;
/// Tick labels and the axis' title.
const BOTTOM: f64 = 46.0;
/// An average character of the font at 12 px.
const CHARACTER: f64 = 6.7;
/// Between the baselines of labels that stand above each other.
const LABEL_STEP: f64 = 14.0;

struct Drawing<'a> {
    chart: &'a Chart,
    x: ScaledAxis<'a>,
    y: ScaledAxis<'a>,
    left: f64,
    right: f64,
    top: f64,
    height: f64,
    out: String,
}

impl<'a> Drawing<'a> {
    fn new(chart: &'a Chart) -> Self {
        let (x, y) = axes(chart);
        let wide =
            |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0) as f64 * CHARACTER;
        let ticks = wide(&mut y.ticks.iter().map(|t| t.1.chars().count()));
        // A heat map's name is the texts of its key.
        let names = chart.series.iter().flat_map(|s| s.name.split('|'));
        let labels = wide(&mut names.map(|n| n.chars().count()));
        let beside = if labels > 0.0 { labels.min(WIDTH * 0.36) + 32.0 } else { 14.0 };
        let height = match &chart.y.scale {
            AxisScale::Names(names) => (names.len() as f64 * ROW_HEIGHT).max(60.0),
            _ => PLOT_HEIGHT,
        };
        let left = ticks.min(WIDTH * 0.48) + 32.0;
        let bars = chart.series.iter().any(|s| matches!(s.shape, Shape::Bars(_)));
        let top = if bars { TOP_OF_BARS } else { TOP };
        Drawing { chart, x, y, left, right: WIDTH - beside, top, height, out: String::new() }
    }

    fn px(&self, value: f64) -> f64 {
        self.left + self.x.at(value) * (self.right - self.left)
    }

    fn py(&self, value: f64) -> f64 {
        self.top + (1.0 - self.y.at(value)) * self.height
    }

    fn render(mut self, alone: bool) -> String {
        let below = self.slot().map_or(1, |slot| most_lines(&self.chart.x.scale, slot)) - 1;
        let total = self.top + self.height + BOTTOM + below as f64 * LABEL_STEP;
        let _ = write!(
            self.out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" \
             viewBox=\"0 0 {WIDTH} {total}\" width=\"{WIDTH}\" height=\"{total}\">\
             <title>{}</title>",
            escape(&self.chart.title)
        );
        if alone {
            let _ = write!(
                self.out,
                "<style>{}</style><rect width=\"100%\" height=\"100%\" class=\"ground\"/>",
                style()
            );
        }
        self.grid();
        let mut labels = Vec::new();
        for (i, series) in self.chart.series.iter().enumerate() {
            self.series(i, series, &mut labels);
        }
        self.labels(labels);
        self.out.push_str("</svg>\n");
        self.out
    }

    fn grid(&mut self) {
        let (left, right, bottom) = (self.left, self.right, self.top + self.height);
        for (value, label) in &self.y.ticks {
            let y = self.py(*value);
            let _ = write!(
                self.out,
                "<line class=\"rule\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"soft\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                left - 8.0,
                y + 4.0,
                escape(&shortened(label, 48))
            );
        }
        // Names are broken into lines. Of values, those that would touch the one before are left
        // out; their ticks stay.
        let slot = self.slot();
        let below = match slot {
            Some(slot) => (most_lines(&self.chart.x.scale, slot) - 1) as f64 * LABEL_STEP,
            None => 0.0,
        };
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in self.x.ticks.clone() {
            let x = self.px(value);
            let half = label.chars().count() as f64 * CHARACTER / 2.0;
            let _ = write!(
                self.out,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom:.1}\" y2=\"{:.1}\"/>",
                bottom + 4.0
            );
            if let Some(slot) = slot {
                let lines = wrapped(&label, slot);
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                self.lines(x, bottom + 18.0, " class=\"soft\"", &lines);
            } else if x - half >= free_from {
                self.lines(x, bottom + 18.0, " class=\"soft\"", &[&label]);
                free_from = x + half + 6.0;
            }
        }
        let _ = write!(
            self.out,
            "<line class=\"axis\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{bottom:.1}\" y2=\"{bottom:.1}\"/>\
             <text text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <text text-anchor=\"middle\" transform=\"translate(13 {:.1}) rotate(-90)\">{}</text>",
            (left + right) / 2.0,
            bottom + 38.0 + below,
            escape(&self.chart.x.title),
            self.top + self.height / 2.0,
            escape(&self.chart.y.title)
        );
        let (low, high) = self.x.range();
        if matches!(self.chart.x.scale, AxisScale::Linear) && low < 0.0 && high > 0.0 {
            let x = self.px(0.0);
            let _ = write!(
                self.out,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\"/>",
                self.top
            );
        }
    }

    /// Draws a series; its label goes to `labels` as (y, index, x of the mark).
    fn series(&mut self, i: usize, series: &Series, labels: &mut Vec<(f64, usize)>) {
        let stroke = series.colour.map_or("ink".into(), |c| format!("s{}", c % COLOURS.len()));
        let fill = series.colour.map_or("inkf".into(), |c| format!("f{}", c % COLOURS.len()));
        match &series.shape {
            Shape::Line { points, dashed, marks } => {
                let dash = if *dashed { " dash" } else { "" };
                self.polyline(points.iter().copied(), &format!("line {stroke}{dash}"));
                if *marks {
                    for &(x, y) in points {
                        self.mark(i, self.px(x), self.py(y), &fill);
                    }
                }
                labels.extend(points.last().map(|p| (self.py(p.1), i)));
            }
            Shape::Intervals(points) => {
                self.polyline(points.iter().map(|p| (p.x, p.y)), &format!("line {stroke}"));
                for p in points {
                    let x = self.px(p.x) + self.dodge(i);
                    self.whisker((x, self.py(p.low)), (x, self.py(p.high)), &stroke);
                    self.mark(i, x, self.py(p.y), &marked(p.open, &fill, &stroke));
                }
                labels.extend(points.last().map(|p| (self.py(p.y), i)));
            }
            Shape::Rows(points) => {
                for &Point { x, y, low, high, open } in points {
                    let level = self.py(y) + self.dodge(i);
                    self.whisker((self.px(low), level), (self.px(high), level), &stroke);
                    self.mark(i, self.px(x), level, &marked(open, &fill, &stroke));
                }
                labels.extend(points.first().map(|p| (self.py(p.y), i)));
            }
            Shape::Bars(bars) => {
                let half = ((self.px(1.0) - self.px(0.0)) * 0.32).min(34.0);
                for bar in bars {
                    let x = self.px(bar.x);
                    let (a, b) = (self.py(bar.from), self.py(bar.to));
                    let _ = write!(
                        self.out,
                        "<rect class=\"{fill}\" opacity=\"0.8\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                        x - half,
                        a.min(b),
                        2.0 * half,
                        (a - b).abs().max(1.0)
                    );
                    let mut top = a.min(b);
                    if let Some((low, high)) = bar.interval {
                        let (low, high) = (self.py(low), self.py(high));
                        self.whisker((x, low), (x, high), "axis");
                        top = top.min(high).min(low);
                    }
                    let lines: Vec<&str> = bar.label.lines().collect();
                    let first = top - 5.0 - (lines.len().max(1) - 1) as f64 * LABEL_STEP;
                    self.lines(x, first, "", &lines);
                }
            }
            Shape::Cells(cells) => {
                for cell in cells {
                    let (x, right) = (self.px(cell.x.0), self.px(cell.x.1));
                    let (bottom, y) = (self.py(cell.y.0), self.py(cell.y.1));
                    let _ = write!(
                        self.out,
                        "<rect class=\"h{}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{:.2}\" \
                         shape-rendering=\"crispEdges\"/>",
                        cell.level.min(HEAT.len() - 1),
                        // A little over the next, or rounding leaves a gap.
                        right - x + 0.4,
                        bottom - y + 0.2
                    );
                }
                self.key(&series.name);
            }
        }
    }

    /// Characters that a name on the x axis has room for; `None`: it has numbers.
    fn slot(&self) -> Option<usize> {
        match &self.chart.x.scale {
            AxisScale::Names(names) => {
                let width = (self.right - self.left) / names.len().max(1) as f64;
                Some(((width - 6.0) / CHARACTER).max(4.0) as usize)
            }
            _ => None,
        }
    }

    /// Centred lines of text, the first one's baseline at `y`.
    fn lines(&mut self, x: f64, y: f64, class: &str, lines: &[&str]) {
        for (i, line) in lines.iter().enumerate() {
            let _ = write!(
                self.out,
                "<text{class} text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                y + i as f64 * LABEL_STEP,
                escape(line)
            );
        }
    }

    /// A step aside, so that intervals of several series at one position can be distinguished.
    fn dodge(&self, i: usize) -> f64 {
        let beside = |s: &&Series| {
            matches!(s.shape, Shape::Intervals(_) | Shape::Rows(_)) && !s.name.is_empty()
        };
        let all = self.chart.series.iter().filter(beside).count();
        let before = self.chart.series[..i].iter().filter(beside).count();
        if all < 2 {
            0.0
        } else {
            (before as f64 - (all - 1) as f64 / 2.0) * (15.0 / all as f64).min(5.0)
        }
    }

    fn polyline(&mut self, points: impl Iterator<Item = (f64, f64)>, class: &str) {
        let mut path = String::new();
        let mut before = (f64::NAN, f64::NAN);
        for (x, y) in points {
            let (x, y) = (self.px(x), self.py(y));
            // Points closer than a pixel cannot be seen apart.
            let close = (x - before.0).abs() < 0.4 && (y - before.1).abs() < 0.4;
            if x.is_finite() && y.is_finite() && !close {
                let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
                before = (x, y);
            }
        }
        let _ = write!(self.out, "<path class=\"{class}\" d=\"{path}\"/>");
    }

    fn whisker(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        if !(from.0 + from.1 + to.0 + to.1).is_finite() {
            return;
        }
        let upright = from.0 == to.0;
        let (dx, dy) = if upright { (4.0, 0.0) } else { (0.0, 4.0) };
        let _ = write!(self.out, "<path class=\"thin {class}\" d=\"");
        for (x, y) in [from, to] {
            let _ = write!(self.out, "M{:.1} {:.1}L{:.1} {:.1}", x - dx, y - dy, x + dx, y + dy);
        }
        let _ = write!(self.out, "M{:.1} {:.1}L{:.1} {:.1}\"/>", from.0, from.1, to.0, to.1);
    }

    /// A mark of the series' own form, for those who do not see the colours.
    fn mark(&mut self, i: usize, x: f64, y: f64, class: &str) {
        if !(x + y).is_finite() {
            return;
        }
        let path = match i % 4 {
            0 => {
                let _ = write!(
                    self.out,
                    "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\"/>"
                );
                return;
            }
            1 => format!("M{:.1} {:.1}h6.6v6.6h-6.6z", x - 3.3, y - 3.3),
            2 => format!("M{x:.1} {:.1}l4.4 7.6h-8.8z", y - 4.8),
            _ => format!("M{x:.1} {:.1}l4.7 4.7l-4.7 4.7l-4.7 -4.7z", y - 4.7),
        };
        let _ = write!(self.out, "<path class=\"{class}\" d=\"{path}\"/>");
    }

    /// Labels beside the last points, moved apart where they would overlap.
    fn labels(&mut self, mut labels: Vec<(f64, usize)>) {
        labels.retain(|(y, i)| y.is_finite() && !self.chart.series[*i].name.is_empty());
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Labels that would overlap stand in the series' own order: sizes from small to great.
        let mut begin = 0;
        for i in 1..=labels.len() {
            if i == labels.len() || labels[i].0 - labels[i - 1].0 >= LABEL_STEP {
                let mut order: Vec<usize> = labels[begin..i].iter().map(|l| l.1).collect();
                order.sort_unstable();
                labels[begin..i].iter_mut().zip(order).for_each(|(label, i)| label.1 = i);
                begin = i;
            }
        }
        let lowest = self.top + self.height;
        let mut positions: Vec<f64> = labels.iter().map(|l| l.0).collect();
        for i in 1..positions.len() {
            positions[i] = positions[i].max(positions[i - 1] + LABEL_STEP);
        }
        // What was pushed out at the bottom comes back up, and pushes the others.
        let mut limit = lowest;
        for position in positions.iter_mut().rev() {
            *position = position.min(limit);
            limit = *position - LABEL_STEP;
        }
        for (&(_, i), y) in labels.iter().zip(positions) {
            let series = &self.chart.series[i];
            let x = self.right + 10.0;
            let fill = series.colour.map_or("inkf".into(), |c| format!("f{}", c % COLOURS.len()));
            let (dashed, marked) = match &series.shape {
                Shape::Line { dashed, marks, .. } => (*dashed, *marks),
                _ => (false, true),
            };
            if marked {
                self.mark(i, x, y, &fill);
            } else {
                let stroke =
                    series.colour.map_or("ink".into(), |c| format!("s{}", c % COLOURS.len()));
                let dash = if dashed { " dash" } else { "" };
                let _ = write!(
                    self.out,
                    "<path class=\"line {stroke}{dash}\" d=\"M{:.1} {y:.1}h12\"/>",
                    x - 6.0
                );
            }
            let most = ((WIDTH - x - 12.0) / CHARACTER) as usize;
            let _ = write!(
                self.out,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 9.0,
                y + 4.0,
                escape(&shortened(&series.name, most.max(6)))
            );
        }
    }

    /// The key of a heat map, above its right end: least and greatest colour.
    fn key(&mut self, name: &str) {
        let x = self.right + 12.0;
        for (i, text) in name.split('|').enumerate() {
            let y = self.top + 8.0 + i as f64 * 18.0;
            let level = match name.split('|').count() {
                0 | 1 => HEAT.len() - 1,
                n => (n - 1 - i) * (HEAT.len() - 1) / (n - 1),
            };
            let _ = write!(
                self.out,
                "<rect class=\"h{level}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                y - 6.0,
                x + 17.0,
                y + 4.0,
                escape(text)
            );
        }
    }
}

/// The classes of a mark: an open one has its colour at its edge, and the ground inside.
fn marked(open: bool, fill: &str, stroke: &str) -> String {
    if open { format!("ground open {stroke}") } else { fill.into() }
}

/// A name in lines of at most `most` characters, broken after hyphens, pluses and spaces; a
/// longer word is cut.
pub(crate) fn wrapped(name: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in name.split_inclusive(['-', '+', ' ', '_']) {
        let word = shortened(word, most);
        let last = lines.len() - 1;
        match lines[last].chars().count() + word.trim_end().chars().count() {
            n if n <= most || lines[last].is_empty() => lines[last].push_str(&word),
            _ => lines.push(word),
        }
    }
    lines
}

fn most_lines(scale: &AxisScale, most: usize) -> usize {
    match scale {
        AxisScale::Names(names) => names.iter().map(|n| wrapped(n, most).len()).max().unwrap_or(1),
        _ => 1,
    }
}

/// At most so many characters; what is left out is marked.
fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() <= most {
        true => text.to_string(),
        false => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Text for XML: names in a run come from files and from the network.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML 1.0 has no other control characters, not even as references.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
