//! What each layer of optimisation contributes: a waterfall of Shapley shares.

use sonde_results::bench::{BenchRun, Case};
use sonde_results::stats::{self, ConfidenceInterval, ShapleyValue};
use sonde_results::units::format_percent;

use super::id;
use crate::chart::{Axis, AxisScale, Bar, Chart, Series, Shape};
use crate::group::{Labels, key};
use crate::quantity::{quantity_title, show};
use crate::{LOOP, quantity};

/// An ablation of one case and quantity: every combination of the layers, block by block.
#[derive(Clone, Debug, PartialEq)]
pub struct Ablation {
    /// The case, without condition and layers.
    pub case: Case,
    /// What was measured, and its unit.
    pub quantity: (String, String),
    /// The layers, in the order in which they first appear.
    pub layers: Vec<String>,
    /// Median of the baseline, over blocks.
    pub baseline: f64,
    /// Median with all layers on.
    pub all: f64,
    /// Share of each layer.
    pub shares: Vec<ShapleyValue>,
    /// Joint effect of two layers beyond both alone, mean over blocks: (layer, layer, value).
    pub interactions: Vec<(String, String, f64)>,
    /// Blocks that were measured in full.
    pub blocks: usize,
}

/// Quantities that are attributed, whatever load they were found at.
const QUANTITIES: [&str; 5] =
    ["throughput", "conditional_throughput", "latency_p50", "latency_p99_9", "latency_max"];

/// The ablations of a run: cases that were measured with every subset of two or more layers, a
/// repetition being a block.
pub fn ablations(run: &BenchRun) -> Vec<Ablation> {
    let mut layers: Vec<String> = Vec::new();
    for layer in run.measurements.iter().flat_map(|m| &m.case.layers) {
        if !layers.contains(layer) {
            layers.push(layer.clone());
        }
    }
    layers.sort();
    if layers.is_empty() || layers.len() > 12 {
        return Vec::new();
    }
    let bare = |case: &Case| Case {
        condition: String::new(),
        layers: Vec::new(),
        repetition: 0,
        ..case.clone()
    };
    let mut cases: Vec<(String, Case)> = Vec::new();
    for m in run.measurements.iter().filter(|m| m.case.device != LOOP) {
        let case = bare(&m.case);
        if !cases.iter().any(|c| c.0 == key(&case)) {
            cases.push((key(&case), case));
        }
    }
    let mut found = Vec::new();
    for (case_key, case) in cases {
        let of_case: Vec<_> = run
            .measurements
            .iter()
            .filter(|m| {
                m.finding.complete && m.case.device != LOOP && key(&bare(&m.case)) == case_key
            })
            .collect();
        let mut names: Vec<(&str, &str)> = Vec::new();
        for q in of_case.iter().flat_map(|m| &m.finding.values) {
            let base = q.name.split('@').next().unwrap_or("");
            if QUANTITIES.contains(&base) && !names.iter().any(|n| n.0 == q.name) {
                names.push((&q.name, &q.unit));
            }
        }
        for (name, unit) in names {
            let value = |subset: usize, repetition: u32| {
                let on = |i: &usize| subset >> i & 1 == 1;
                let wanted: Vec<&String> =
                    (0..layers.len()).filter(on).map(|i| &layers[i]).collect();
                let m = of_case.iter().find(|m| {
                    m.case.repetition == repetition
                        && m.case.layers.len() == wanted.len()
                        && wanted.iter().all(|l| m.case.layers.contains(l))
                })?;
                m.finding.value(name).map(|q| q.value).filter(|v| v.is_finite())
            };
            let last = of_case.iter().map(|m| m.case.repetition).max().unwrap_or(0);
            let blocks: Vec<Vec<f64>> = (1..=last)
                .filter_map(|r| (0..1 << layers.len()).map(|s| value(s, r)).collect())
                .collect();
            if blocks.is_empty() {
                continue;
            }
            found.push(ablation(run, &case, (name, unit), &layers, &blocks));
        }
    }
    found
}

fn ablation(
    run: &BenchRun,
    case: &Case,
    (name, unit): (&str, &str),
    layers: &[String],
    blocks: &[Vec<f64>],
) -> Ablation {
    let column = |subset: usize| -> Vec<f64> { blocks.iter().map(|b| b[subset]).collect() };
    let mut joint: Vec<(usize, usize, f64)> = Vec::new();
    for block in blocks {
        for (k, (i, j, v)) in stats::interactions(block).into_iter().enumerate() {
            match joint.get_mut(k) {
                Some(sum) => sum.2 += v,
                None => joint.push((i, j, v)),
            }
        }
    }
    let mean = |column: Vec<f64>| column.iter().sum::<f64>() / column.len() as f64;
    Ablation {
        case: case.clone(),
        quantity: (name.into(), unit.into()),
        layers: layers.to_vec(),
        // Means, as the shares are: only so do the bars add up.
        baseline: mean(column(0)),
        all: mean(column(blocks[0].len() - 1)),
        shares: stats::shares(blocks, run.config.seed),
        interactions: joint
            .into_iter()
            .map(|(i, j, v)| (layers[i].clone(), layers[j].clone(), v / blocks.len() as f64))
            .collect(),
        blocks: blocks.len(),
    }
}

pub(super) fn charts(run: &BenchRun) -> Vec<Chart> {
    let found = ablations(run);
    let labels = Labels::of(found.iter().map(|a| &a.case));
    found.iter().map(|a| waterfall(a, &labels.title(&a.case, &[]))).collect()
}

fn waterfall(a: &Ablation, title: &str) -> Chart {
    let (name, unit) = (&a.quantity.0, a.quantity.1.as_str());
    // Greatest share first: order says nothing, every order is in the shares.
    let mut order: Vec<usize> = (0..a.layers.len()).collect();
    order.sort_by(|&i, &j| a.shares[j].mean.abs().total_cmp(&a.shares[i].mean.abs()));
    let sign = |v: f64| if v >= 0.0 { "+" } else { "\u{2212}" };
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut level = a.baseline;
    for (position, &i) in order.iter().enumerate() {
        let ShapleyValue { mean, interval } = a.shares[i];
        let bar = Bar {
            x: (position + 1) as f64,
            from: level,
            to: level + mean,
            interval: interval.map(|ConfidenceInterval { low, high }| (level + low, level + high)),
            label: match a.baseline {
                0.0 => format!("{}{}", sign(mean), show(mean.abs(), unit)),
                whole => format!(
                    "{}{}\n({}{})",
                    sign(mean),
                    show(mean.abs(), unit),
                    sign(mean),
                    format_percent((mean / whole * 1e3).round().abs() / 1e3)
                ),
            },
        };
        let better = match quantity::sense(name, unit) {
            Some(quantity::Sense::Less) => mean <= 0.0,
            _ => mean >= 0.0,
        };
        if better {
            good.push(bar)
        } else {
            bad.push(bar)
        }
        level += mean;
    }
    let end = |x: usize, to: f64| Bar {
        x: x as f64,
        from: 0.0,
        to,
        interval: None,
        label: show(to, unit),
    };
    let ends = vec![end(0, a.baseline), end(order.len() + 1, a.all)];
    let names = std::iter::once("baseline".to_string())
        .chain(order.iter().map(|&i| a.layers[i].clone()))
        .chain(["all".to_string()])
        .collect();
    let most = ends.iter().chain(&good).chain(&bad).map(|b| b.to.max(b.from)).fold(0.0, f64::max);
    let series = |colour: Option<usize>, bars: Vec<Bar>| Series {
        name: String::new(),
        colour,
        shape: Shape::Bars(bars),
    };
    let intervals = match a.shares.first().is_some_and(|s| s.interval.is_some()) {
        true => "Whiskers: 95 % intervals of the shares, blocks resampled.",
        false => "No intervals: fewer than five blocks were measured in full.",
    };
    Chart {
        minor: false,
        id: id(&["ablation", title, name]),
        title: format!("Contribution of each layer to {}: {title}", quantity_title(name)),
        caption: format!(
            "Shapley shares: a layer's effect averaged over all orders of switching on, over {} \
             blocks; in brackets, of the baseline. Blue: for the better, orange: for the worse. {intervals}",
            a.blocks
        ),
        x: Axis::names("Layer", names),
        y: match unit {
            "ns" => Axis::time(&quantity_title(name), most, AxisScale::Linear),
            unit => Axis::rate(&quantity_title(name), most, unit, AxisScale::Linear),
        },
        series: vec![series(None, ends), series(Some(0), good), series(Some(1), bad)],
    }
}
