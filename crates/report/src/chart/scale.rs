//! From values to positions, and where the ticks are.

use sonde_results::units::format_number;

use super::{Axis, AxisScale, Chart, Shape};

/// An axis with its range and ticks.
pub(super) struct ScaledAxis<'a> {
    axis: &'a Axis,
    low: f64,
    high: f64,
    /// Value and label.
    pub ticks: Vec<(f64, String)>,
}

impl ScaledAxis<'_> {
    /// 0 at the axis' begin, 1 at its end.
    pub fn at(&self, value: f64) -> f64 {
        let (v, low, high) = (self.along(value), self.along(self.low), self.along(self.high));
        if high > low { (v - low) / (high - low) } else { 0.5 }
    }

    /// Least and greatest value that it shows.
    pub fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    fn along(&self, value: f64) -> f64 {
        along(&self.axis.scale, value)
    }
}

/// The chart's axes, wide enough for all that is drawn.
pub(super) fn axes(chart: &Chart) -> (ScaledAxis<'_>, ScaledAxis<'_>) {
    let (mut xs, mut ys) = (Vec::new(), Vec::new());
    for series in &chart.series {
        match &series.shape {
            Shape::Line { points, .. } => {
                xs.extend(points.iter().map(|p| p.0));
                ys.extend(points.iter().map(|p| p.1));
            }
            Shape::Intervals(points) => {
                xs.extend(points.iter().map(|p| p.x));
                ys.extend(points.iter().flat_map(|p| [p.y, p.low, p.high]));
            }
            Shape::Rows(points) => {
                xs.extend(points.iter().flat_map(|p| [p.x, p.low, p.high]));
                ys.extend(points.iter().map(|p| p.y));
            }
            Shape::Bars(bars) => {
                xs.extend(bars.iter().map(|b| b.x));
                ys.extend(bars.iter().flat_map(|b| {
                    let (low, high) = b.interval.unwrap_or((b.to, b.to));
                    [b.from, b.to, low, high]
                }));
            }
            Shape::Cells(cells) => {
                xs.extend(cells.iter().flat_map(|c| [c.x.0, c.x.1]));
                ys.extend(cells.iter().flat_map(|c| [c.y.0, c.y.1]));
            }
        }
    }
    // The ends of intervals need room.
    let tight = !chart.series.iter().any(|s| matches!(s.shape, Shape::Rows(_)));
    (scale_axis(&chart.x, &xs, tight), scale_axis(&chart.y, &ys, false))
}

/// `tight`: the axis ends with its values, not with a whole step.
fn scale_axis<'a>(axis: &'a Axis, values: &[f64], tight: bool) -> ScaledAxis<'a> {
    let shown = values.iter().copied().filter(|v| along(&axis.scale, *v).is_finite());
    let (low, high) =
        shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let (low, high) = if low <= high { (low, high) } else { (1.0, 2.0) };
    match &axis.scale {
        AxisScale::Names(names) => ScaledAxis {
            axis,
            low: -0.5,
            high: names.len() as f64 - 0.5,
            ticks: names.iter().enumerate().map(|(i, n)| (i as f64, n.clone())).collect(),
        },
        // Room above the data: a mark on the frame of the figure is half a mark.
        AxisScale::Linear if !tight && high > 0.0 => linear(axis, low.min(0.0), high * ROOM, tight),
        AxisScale::Linear => linear(axis, low.min(0.0), high.max(0.0), tight),
        AxisScale::Whole => linear(axis, 0.0, 1.0, false),
        AxisScale::Log if !tight => log(axis, low, high * ROOM),
        AxisScale::Log => log(axis, low, high),
        AxisScale::Nines => nines(axis, high),
    }
}

/// The greatest value lies below the axis' end by this at least.
const ROOM: f64 = 1.04;

fn along(scale: &AxisScale, value: f64) -> f64 {
    match scale {
        AxisScale::Linear | AxisScale::Whole | AxisScale::Names(_) => value,
        AxisScale::Log => value.log10(),
        AxisScale::Nines => -(1.0 - value).log10(),
    }
}

/// Steps of 1, 2 or 5 times a power of ten, about five of them, and whole steps at the ends.
fn linear(axis: &Axis, low: f64, high: f64, tight: bool) -> ScaledAxis<'_> {
    let high = if high > low { high } else { low + axis.divisor };
    let rough = (high - low) / axis.divisor / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * power).into_iter().find(|s| *s >= rough * 0.999);
    let step = step.unwrap_or(power) * axis.divisor;
    let (first, last) = ((low / step + 1e-9).floor() as i64, (high / step - 1e-9).ceil() as i64);
    let (begin, end) = match tight {
        true => (low, high),
        false => (first as f64 * step, last as f64 * step),
    };
    let hair = step * 1e-6;
    let ticks = (first..=last)
        .map(|i| i as f64 * step)
        .filter(|v| (begin - hair..=end + hair).contains(v))
        .map(|v| (v, format_number(v / axis.divisor).replace('-', "\u{2212}")));
    ScaledAxis { axis, low: begin, high: end, ticks: ticks.collect() }
}

/// Ends at 1, 2 or 5 times a power of ten; ticks at the decades, and where there are fewer than
/// three, at all of these steps.
fn log(axis: &Axis, low: f64, high: f64) -> ScaledAxis<'_> {
    let steps: Vec<(f64, bool)> = (-12..=15)
        .flat_map(|e| [1.0, 2.0, 5.0].map(|s| (s * 10f64.powi(e) * axis.divisor, s == 1.0)))
        .collect();
    // A hair's breadth, for powers that are not exact.
    let begin = steps.iter().rposition(|s| s.0 <= low * 1.000_001).unwrap_or(0);
    let begin = begin.min(steps.len() - 2);
    let end = steps.iter().position(|s| s.0 >= high * 0.999_999).unwrap_or(steps.len() - 1);
    let shown = &steps[begin..=end.max(begin + 1)];
    let decades = shown.iter().filter(|s| s.1).count() > 2;
    let label = |v: f64| format_number((v / axis.divisor * 1e9).round() / 1e9);
    let ticks = shown.iter().filter(|s| s.1 || !decades).map(|s| (s.0, label(s.0))).collect();
    ScaledAxis { axis, low: shown[0].0, high: shown[shown.len() - 1].0, ticks }
}

/// From 0 to the nines that the greatest share needs.
fn nines(axis: &Axis, high: f64) -> ScaledAxis<'_> {
    let high = high.clamp(0.9, 1.0 - 1e-9);
    let shares = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999, 0.9999999];
    let names = ["0", "50", "90", "99", "99.9", "99.99", "99.999", "99.9999", "99.99999"];
    let ticks = shares.iter().zip(names).filter(|(s, _)| **s <= high + 1e-12);
    let ticks = ticks.map(|(s, n)| (*s, n.to_string())).collect();
    ScaledAxis { axis, low: 0.0, high, ticks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks<'a>(scaled: &'a ScaledAxis<'_>) -> Vec<&'a str> {
        scaled.ticks.iter().map(|t| t.1.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let axis = |scale| Axis { title: String::new(), scale, divisor: 1e3, numbers: Vec::new() };
        let linear_axis = axis(AxisScale::Linear);
        let scaled = scale_axis(&linear_axis, &[0.0, 740_000.0], false);
        assert_eq!(ticks(&scaled), ["0", "200", "400", "600", "800"]);
        assert_eq!(scaled.at(400_000.0), 0.5);
        let scaled = scale_axis(&linear_axis, &[-3_000.0, 11_000.0], false);
        assert_eq!(ticks(&scaled), ["\u{2212}5", "0", "5", "10", "15"]);
        let scaled = scale_axis(&linear_axis, &[0.0, 740_000.0], true);
        assert_eq!((ticks(&scaled), scaled.at(740_000.0)), (vec!["0", "200", "400", "600"], 1.0));
        let whole = Axis { divisor: 0.01, ..axis(AxisScale::Whole) };
        let scaled = scale_axis(&whole, &[0.0, 0.03], true);
        assert_eq!(
            (ticks(&scaled), scaled.at(0.5)),
            (vec!["0", "20", "40", "60", "80", "100"], 0.5)
        );
        let log_axis = axis(AxisScale::Log);
        let scaled = scale_axis(&log_axis, &[900.0, 1.5e6], false);
        assert_eq!(
            (ticks(&scaled), scaled.range()),
            (vec!["1", "10", "100", "1000"], (500.0, 2e6))
        );
        assert_eq!(ticks(&scale_axis(&log_axis, &[1_100.0, 3_000.0], false)), ["1", "2", "5"]);
        // A value at the end of the axis would have its mark on the figure's frame.
        assert_eq!(scale_axis(&log_axis, &[1e3, 1e6], false).range(), (1e3, 2e6));
        assert_eq!(scale_axis(&linear_axis, &[0.0, 800_000.0], false).range(), (0.0, 1e6));
        let nine_axis = axis(AxisScale::Nines);
        let scaled = scale_axis(&nine_axis, &[0.2, 0.9992], true);
        assert_eq!(ticks(&scaled), ["0", "50", "90", "99", "99.9"]);
        assert!((scaled.at(0.999) - 3.0 / -(0.0008f64).log10()).abs() < 1e-9);
    }

    #[test]
    fn odd_values_have_axes_all_the_same() {
        for scale in [
            AxisScale::Linear,
            AxisScale::Log,
            AxisScale::Nines,
            AxisScale::Names(vec!["a".into()]),
        ] {
            let axis = Axis { title: String::new(), scale, divisor: 1.0, numbers: Vec::new() };
            for values in [&[][..], &[0.0], &[5.0, 5.0], &[f64::NAN, 3.0], &[-1.0, 0.0]] {
                let scaled = scale_axis(&axis, values, values.len() == 1);
                assert!(scaled.at(scaled.range().0).is_finite(), "{:?} {values:?}", axis.scale);
                assert!(!scaled.ticks.is_empty(), "{:?} {values:?}", axis.scale);
            }
        }
    }
}
