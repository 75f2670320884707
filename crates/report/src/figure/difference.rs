//! The relative difference of two conditions or runs, case by case.

use sonde_results::bench::BenchRun;

use super::id;
use crate::chart::{Axis, AxisScale, Chart, Point, Series, Shape};
use crate::compare::{Comparison, ComparisonVerdict, Metrics, conditions};
use crate::quantity::quantity_title;

/// More conditions than this are an ablation's, which has a figure of its own.
const MOST: usize = 4;

pub(super) fn charts(run: &BenchRun) -> Vec<Chart> {
    let pairs = conditions(run, &Metrics::First);
    if pairs.len() > MOST {
        return Vec::new();
    }
    pairs.iter().map(|(base, other, c)| chart(c, base, other)).collect()
}

/// How far `other` lies from `base`.
pub fn chart(comparison: &Comparison, base: &str, other: &str) -> Chart {
    let rows: Vec<_> = comparison.rows.iter().filter(|r| r.relative.is_some()).rev().collect();
    let names = rows.iter().map(|r| format!("{}: {}", quantity_title(&r.metric), r.name)).collect();
    let shown = |wanted: fn(ComparisonVerdict) -> bool| {
        let rows = rows.iter().enumerate().filter(|(_, r)| wanted(r.verdict));
        let points = rows.filter_map(|(index, r)| {
            let x = r.relative?;
            let (low, high) = r.relative_interval.map_or((x, x), |i| (i.low, i.high));
            Some(Point { x, y: index as f64, low, high, open: false })
        });
        Shape::Rows(points.collect())
    };
    let series = [
        (Some(0), shown(|v| v == ComparisonVerdict::Better)),
        (Some(1), shown(|v| v == ComparisonVerdict::Worse)),
        (None, shown(|v| !matches!(v, ComparisonVerdict::Better | ComparisonVerdict::Worse))),
    ];
    Chart {
        minor: false,
        id: id(&["difference", base, other]),
        title: format!("Difference of {other} from {base}"),
        caption: "Hodges-Lehmann shift as a share of the first's median, with its 95 % interval \
                  (none: too few repetitions). Blue: better, orange: worse by the rank-sum test at \
                  the 5 % level, grey: no difference shown."
            .into(),
        x: Axis::percent(&format!("Difference from {base}"), AxisScale::Linear),
        y: Axis::names("", names),
        series: series
            .into_iter()
            .map(|(colour, shape)| Series { name: String::new(), colour, shape })
            .collect(),
    }
}
