//! Charts as pgfplots, with the values in the source, so that an author can change their look.

use std::fmt::Write as _;

use super::scale::{ScaledAxis, axes};
use super::{Axis, AxisScale, COLOURS, Chart, HEAT, Series, Shape, wrapped};
use crate::latex_text::escape;

/// The chart as a `tikzpicture`. The document needs what [`preamble`] gives.
pub fn render(chart: &Chart) -> String {
    let (x, y) = axes(chart);
    let mut out = String::from("\\begin{tikzpicture}\n\\begin{axis}[\n");
    let height = match &chart.y.scale {
        AxisScale::Names(names) => format!("{:.1}cm", 2.4 + 0.55 * names.len() as f64),
        _ => "0.55\\linewidth".into(),
    };
    // A legend stands to the right; that of a heat map is in the caption.
    let longest = chart.series.iter().filter(|s| !s.name.contains('|'));
    let longest = longest.map(|s| s.name.chars().count()).max().unwrap_or(0);
    let width = 0.97 - 0.011 * longest.min(36) as f64 - if longest > 0 { 0.09 } else { 0.0 };
    let _ = writeln!(
        out,
        "  width={width:.2}\\linewidth, height={height}, clip=false,\n  \
         grid=major, grid style={{black!12}}, axis lines=left,\n  \
         label style={{font=\\small}}, tick label style={{font=\\footnotesize, align=center}},\n  \
         legend style={{font=\\footnotesize, draw=none, fill=none, at={{(1.02,1)}}, anchor=north west}},"
    );
    for (letter, axis, scaled) in [("x", &chart.x, &x), ("y", &chart.y, &y)] {
        self::axis(&mut out, letter, axis, scaled);
    }
    out.push_str("]\n");
    for (i, series) in chart.series.iter().enumerate() {
        draw(&mut out, chart, i, series);
    }
    out.push_str("\\end{axis}\n\\end{tikzpicture}\n");
    out
}

/// Packages and colours.
pub fn preamble() -> String {
    let mut out = String::from("\\usepackage{pgfplots}\n\\pgfplotsset{compat=1.16}\n");
    for (i, (light, _)) in COLOURS.iter().enumerate() {
        let _ = writeln!(out, "\\definecolor{{sonde{i}}}{{HTML}}{{{}}}", light[1..].to_uppercase());
    }
    for (i, (light, _)) in HEAT.iter().enumerate() {
        let _ =
            writeln!(out, "\\definecolor{{sondeheat{i}}}{{HTML}}{{{}}}", light[1..].to_uppercase());
    }
    out
}

fn axis(out: &mut String, letter: &str, axis: &Axis, scaled: &ScaledAxis<'_>) {
    let (low, high) = scaled.range();
    let ticks: Vec<String> = scaled.ticks.iter().map(|t| coordinate(axis, t.0)).collect();
    // Names are broken into lines that fit between two ticks.
    let room = match &axis.scale {
        AxisScale::Names(names) if letter == "x" => CHARACTERS / names.len().max(1),
        _ => CHARACTERS,
    };
    let broken = |text: &str| {
        let lines = wrapped(text, room.max(4));
        lines.iter().map(|l| escape(l)).collect::<Vec<_>>().join("\\\\")
    };
    let labels: Vec<String> =
        scaled.ticks.iter().map(|t| format!("{{{}}}", broken(&t.1))).collect();
    let mode = match axis.scale {
        AxisScale::Log => format!("  {letter}mode=log,\n"),
        _ => String::new(),
    };
    let _ = writeln!(
        out,
        "{mode}  {letter}label={{{}}}, {letter}min={}, {letter}max={},\n  \
         {letter}tick={{{}}}, {letter}ticklabels={{{}}},",
        escape(&axis.title),
        coordinate(axis, low),
        coordinate(axis, high),
        ticks.join(","),
        labels.join(",")
    );
}

/// A value in the units of the tick labels. Nines are drawn on a linear axis by their count:
/// pgfplots has no such scale.
fn coordinate(axis: &Axis, value: f64) -> String {
    let value = match axis.scale {
        AxisScale::Nines => -(1.0 - value).log10(),
        _ => value / axis.divisor,
    };
    // TeX's own arithmetic does not read 1e-7; pgf's does.
    if value != 0.0 && !(1e-4..1e6).contains(&value.abs()) {
        format!("{value:.6e}")
    } else {
        let text = format!("{value:.6}");
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    }
}

fn draw(out: &mut String, chart: &Chart, i: usize, series: &Series) {
    let colour = series.colour.map_or("black!60".into(), |c| format!("sonde{}", c % COLOURS.len()));
    let mark = ["*", "square*", "triangle*", "diamond*"][i % 4];
    let at = |x: f64, y: f64| format!("({},{})", coordinate(&chart.x, x), coordinate(&chart.y, y));
    let finite = |v: f64, axis: &Axis| match axis.scale {
        AxisScale::Log => v > 0.0,
        _ => v.is_finite(),
    };
    let shown = |x: f64, y: f64| finite(x, &chart.x) && finite(y, &chart.y);
    let legend = |out: &mut String| {
        if !series.name.is_empty() {
            let _ = writeln!(out, "\\addlegendentry{{{}}}", escape(&series.name));
        }
    };
    match &series.shape {
        Shape::Line { points, dashed, marks } => {
            let style = if *dashed { ", dashed" } else { "" };
            let mark = if *marks { mark } else { "none" };
            let _ = write!(out, "\\addplot[{colour}, thick{style}, mark={mark}] coordinates {{");
            for (x, y) in points.iter().filter(|p| shown(p.0, p.1)) {
                out.push_str(&at(*x, *y));
            }
            out.push_str("};\n");
            legend(out);
        }
        Shape::Intervals(points) | Shape::Rows(points) => {
            let upright = matches!(series.shape, Shape::Intervals(_));
            let (style, direction) = if upright { ("thick", "y") } else { ("only marks", "x") };
            // Open marks, where the tester set the values.
            let open = points.iter().any(|p| p.open);
            let fill = if open { "white" } else { colour.as_str() };
            let _ = writeln!(
                out,
                "\\addplot+[{colour}, {style}, mark={mark}, mark options={{fill={fill}}}, \
                 error bars/.cd, {direction} dir=both, {direction} explicit] \
                 table[x=x, y=y, {direction} error plus=plus, {direction} error minus=minus] {{\n\
                 x y plus minus"
            );
            for p in points.iter().filter(|p| shown(p.x, p.y)) {
                let (axis, value) = if upright { (&chart.y, p.y) } else { (&chart.x, p.x) };
                let error =
                    |d: f64| coordinate(&Axis { scale: AxisScale::Linear, ..axis.clone() }, d);
                let _ = writeln!(
                    out,
                    "{} {} {} {}",
                    coordinate(&chart.x, p.x),
                    coordinate(&chart.y, p.y),
                    error(p.high - value),
                    error(value - p.low)
                );
            }
            out.push_str("};\n");
            legend(out);
        }
        Shape::Bars(bars) => {
            for bar in bars {
                let _ = writeln!(
                    out,
                    "\\fill[{colour}, opacity=0.8] (axis cs:{},{}) rectangle (axis cs:{},{});",
                    coordinate(&chart.x, bar.x - 0.32),
                    coordinate(&chart.y, bar.from),
                    coordinate(&chart.x, bar.x + 0.32),
                    coordinate(&chart.y, bar.to)
                );
                let mut top = bar.from.max(bar.to);
                if let Some((low, high)) = bar.interval {
                    let x = coordinate(&chart.x, bar.x);
                    let _ = writeln!(
                        out,
                        "\\draw[|-|] (axis cs:{x},{}) -- (axis cs:{x},{});",
                        coordinate(&chart.y, low),
                        coordinate(&chart.y, high)
                    );
                    top = top.max(high);
                }
                let _ = writeln!(
                    out,
                    "\\node[above, align=center, font=\\footnotesize] at (axis cs:{},{}) {{{}}};",
                    coordinate(&chart.x, bar.x),
                    coordinate(&chart.y, top),
                    bar.label.lines().map(escape).collect::<Vec<_>>().join("\\\\")
                );
            }
        }
        Shape::Cells(cells) => {
            for cell in cells {
                let _ = writeln!(
                    out,
                    "\\fill[sondeheat{}] (axis cs:{},{}) rectangle (axis cs:{},{});",
                    cell.level.min(HEAT.len() - 1),
                    coordinate(&chart.x, cell.x.0),
                    coordinate(&chart.y, cell.y.0),
                    coordinate(&chart.x, cell.x.1),
                    coordinate(&chart.y, cell.y.1)
                );
            }
        }
    }
}

/// Characters of a tick label that a whole line has room for.
const CHARACTERS: usize = 85;
