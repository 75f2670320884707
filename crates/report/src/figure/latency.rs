//! Distributions of latency and of its variation, and the device beside the bare tester.

use sonde_results::Hist;
use sonde_results::bench::{BenchRun, Case};
use sonde_results::hist::BEYOND;

use super::{colour, id, split};
use crate::LOOP;
use crate::chart::{Axis, AxisScale, Chart, Series, Shape};
use crate::group::Labels;
use crate::quantity::show;
use crate::trials::{Pooled, percentile, pooled, reach};

pub(super) fn charts(run: &BenchRun) -> Vec<Chart> {
    let mut pools = pooled(run);
    pools.sort_by(|a, b| a.case.frame_bytes.total_cmp(&b.case.frame_bytes));
    let layered = pools.iter().filter(|p| !p.case.layers.is_empty()).count() > 3;
    pools.retain(|p| !layered || p.case.layers.is_empty());
    let cases: Vec<Case> = pools.iter().map(|p| p.case.clone()).collect();
    let labels = Labels::of(&cases);
    let bytes = |p: &Pooled| p.case.frame_bytes;
    let smallest = pools.first().map_or(0.0, bytes);
    let greatest = pools.last().map_or(0.0, bytes);
    let between = |case: &Case| (case.frame_bytes > smallest) && (case.frame_bytes < greatest);
    // Frame sizes between the smallest and the greatest seldom show anything new.
    let mut charts = with_and_without(run, &pools, &labels, between);
    for set in split(&cases, &["load"]) {
        let set: Vec<&Pooled> = set.iter().map(|&i| &pools[i]).collect();
        let case = &set[0].case;
        if case.device == LOOP && cases.iter().any(|c| c.device != LOOP) {
            // The loop stands beside the devices, above.
            continue;
        }
        let title = labels.title(case, &["load"]);
        for chart in [by_nines, cumulative, variation, signed_variation] {
            charts.push(Chart { minor: between(case), ..chart(&set, &title) });
        }
    }
    charts
}

/// A line for each load.
fn lines(set: &[&Pooled], line: impl Fn(&Pooled) -> Vec<(f64, f64)>) -> Vec<Series> {
    set.iter()
        .enumerate()
        .map(|(i, pool)| Series {
            name: load_name(pool),
            colour: Some(i),
            shape: Shape::Line { points: line(pool), dashed: false, marks: false },
        })
        .collect()
}

/// What distinguishes a pool from the others of its case: the end of "latency at 50 %", or the
/// plan's own load, or what was offered.
fn load_name(pool: &Pooled) -> String {
    match (pool.purpose.strip_prefix("latency at "), pool.case.load.as_str()) {
        (Some("0 %"), _) => "no load".into(),
        (Some(load), _) => load.to_string(),
        (None, "") => format!("{} frames/s", show(pool.rate_fps, "frames/s")),
        (None, load) => load.to_string(),
    }
}

/// Share of values up to each, and the value: a bucket a point, up to where ten samples lie
/// beyond.
fn shares(hist: &Hist) -> Vec<(f64, f64)> {
    let held: u64 = hist.buckets.iter().map(|&(_, n)| u64::from(n)).sum();
    let reach = reach(hist);
    let mut points = vec![(0.0, hist.min as f64)];
    let mut seen = 0;
    for (middle, n) in hist.values() {
        let before = seen as f64 / held as f64;
        seen += n;
        let share = seen as f64 / held as f64;
        // The last bucket that begins within reach is drawn up to there.
        if before >= reach {
            break;
        }
        points.push((share.min(reach), middle as f64));
    }
    points
}

fn count_note(set: &[&Pooled]) -> String {
    let frames: Vec<u64> = set.iter().map(|p| p.latency.count).collect();
    let (least, most) =
        (frames.iter().min().copied().unwrap_or(0), frames.iter().max().copied().unwrap_or(0));
    match least == most {
        true => format!("{most} frames each, all valid trials of a load together."),
        false => format!("{least} to {most} frames each, all valid trials of a load together."),
    }
}

fn greatest(set: &[&Pooled], of: impl Fn(&Pooled) -> f64) -> f64 {
    set.iter().map(|p| of(p)).fold(0.0, f64::max)
}

fn by_nines(set: &[&Pooled], title: &str) -> Chart {
    let most = greatest(set, |p| p.latency.max as f64);
    Chart {
        minor: false,
        id: id(&["latency_percentiles", title]),
        title: format!("Latency by percentile: {title}"),
        caption: format!(
            "{} Each line ends where fewer than {BEYOND} frames lie beyond.",
            count_note(set)
        ),
        x: Axis::percent("Percentile", AxisScale::Nines),
        y: Axis::time("One-way latency", most, AxisScale::Log),
        series: lines(set, |p| shares(&p.latency)),
    }
}

fn cumulative(set: &[&Pooled], title: &str) -> Chart {
    let most = greatest(set, |p| p.latency.max as f64);
    let swapped = |p: &Pooled| shares(&p.latency).into_iter().map(|(q, v)| (v, q)).collect();
    Chart {
        minor: false,
        id: id(&["latency_cdf", title]),
        title: format!("Cumulative distribution of latency: {title}"),
        caption: count_note(set),
        x: Axis::time("One-way latency", most, AxisScale::Log),
        y: Axis::percent("Share of frames at or below", AxisScale::Whole),
        series: lines(set, swapped),
    }
}

/// PDV (RFC 5481): latency beyond the least one of the same load.
fn variation(set: &[&Pooled], title: &str) -> Chart {
    let most = greatest(set, |p| (p.latency.max - p.latency.min) as f64);
    let line = |p: &Pooled| {
        // The least value's own point would be at 0, which is not on this axis.
        let points = shares(&p.latency).into_iter().skip(1);
        // Below the histogram's own resolution (1.6 %, 16 ns) a difference says nothing.
        let least = (p.latency.min as f64 * 0.016).max(16.0);
        points.map(|(q, v)| (q, (v - p.latency.min as f64).max(least))).collect()
    };
    Chart {
        minor: false,
        id: id(&["pdv", title]),
        title: format!("Delay variation by percentile: {title}"),
        caption: format!(
            "PDV (RFC 5481): latency above the least of the same load. {} Values below the \
             histogram's resolution are drawn at it.",
            count_note(set)
        ),
        x: Axis::percent("Percentile", AxisScale::Nines),
        y: Axis::time("PDV", most, AxisScale::Log),
        series: lines(set, line),
    }
}

/// IPDV (RFC 3393) has a sign: its distribution function on a linear axis, between the 1st and
/// the 99th percentile, which is where the two sides can be compared.
fn signed_variation(set: &[&Pooled], title: &str) -> Chart {
    let window = |p: &Pooled| Some((percentile(&p.ipdv, 0.01)?, percentile(&p.ipdv, 0.99)?));
    let line = |p: &Pooled| match window(p) {
        Some((low, high)) => {
            let (low, high) = (low as f64, high as f64);
            let points = shares(&p.ipdv).into_iter().map(|(q, v)| (v, q));
            let points = points.filter(|(v, q)| (low..=high).contains(v) && *q > 0.01);
            // A queue that empties gives many pairs one value: the line begins below it.
            std::iter::once((low, 0.01)).chain(points).collect()
        }
        None => Vec::new(),
    };
    let most = greatest(set, |p| window(p).map_or(0, |(l, h)| l.abs().max(h.abs())) as f64);
    Chart {
        minor: false,
        id: id(&["ipdv", title]),
        title: format!("Inter-packet delay variation: {title}"),
        caption: "IPDV (RFC 3393): latency of a frame less that of the one sent before it, from \
                  the 1st to the 99th percentile. RFC 4689 and RFC 3550 jitter are in the table \
                  of trials."
            .into(),
        x: Axis::time("IPDV", most, AxisScale::Linear),
        y: Axis::percent("Share of pairs at or below", AxisScale::Whole),
        series: lines(set, line),
    }
}

/// Each device beside the loop, percentile by percentile.
fn with_and_without(
    run: &BenchRun,
    pools: &[Pooled],
    labels: &Labels,
    minor: impl Fn(&Case) -> bool,
) -> Vec<Chart> {
    const QUANTILES: [(&str, f64); 6] = [
        ("p1", 0.01),
        ("p50", 0.5),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("p99.99", 0.9999),
    ];
    let cases: Vec<Case> =
        pools.iter().map(|p| Case { load: String::new(), ..p.case.clone() }).collect();
    let mut charts = Vec::new();
    for set in split(&cases, &["device", "condition", "load"]) {
        let set: Vec<&Pooled> = set.iter().map(|&i| &pools[i]).collect();
        let Some(shown) = near_each_other(&set) else { continue };
        let most = greatest(&shown, |p| {
            QUANTILES.iter().filter_map(|q| percentile(&p.latency, q.1)).max().unwrap_or(0) as f64
        });
        let quantiles: Vec<(&str, f64)> = QUANTILES
            .into_iter()
            .filter(|q| shown.iter().any(|p| percentile(&p.latency, q.1).is_some()))
            .collect();
        let rates: Vec<String> = shown
            .iter()
            .map(|p| {
                let what = labels.name(&p.case, &["frame", "procedure", "load"]);
                format!("{what} {} frames/s", show(p.rate_fps, "frames/s"))
            })
            .collect();
        let series = shown
            .iter()
            .map(|p| {
                let points = QUANTILES
                    .iter()
                    .enumerate()
                    .filter_map(|(x, q)| percentile(&p.latency, q.1).map(|v| (x as f64, v as f64)));
                let bare = p.case.device == LOOP;
                let name = match bare {
                    true => "without the device".into(),
                    false => labels.name(&p.case, &["frame", "procedure", "load", "direction"]),
                };
                Series {
                    name,
                    colour: colour(run, &p.case),
                    shape: Shape::Line { points: points.collect(), dashed: false, marks: true },
                }
            })
            .collect();
        let title = labels.title(&shown[0].case, &["device", "condition", "load"]);
        charts.push(Chart {
            minor: minor(&shown[0].case),
            id: id(&["with_and_without", &title]),
            title: format!("Latency with and without the device: {title}"),
            caption: format!(
                "Each line has the percentiles of its own frames. The distance of two lines is no \
                 percentile of the device's own delay: percentiles do not add up. Loads: {}. Only \
                 percentiles with {BEYOND} frames beyond.",
                rates.join("; ")
            ),
            x: Axis::names("Percentile", quantiles.iter().map(|q| q.0.to_string()).collect()),
            y: Axis::time("One-way latency", most, AxisScale::Log),
            series,
        });
    }
    charts
}

/// The loop's load that every device has one nearest to, and those of the devices. Rates are shares
/// of what each can do, so equal shares are no equal loads.
fn near_each_other<'a>(set: &[&'a Pooled]) -> Option<Vec<&'a Pooled>> {
    let apart = |a: &Pooled, b: &Pooled| (a.rate_fps / b.rate_fps).ln().abs();
    let mut devices: Vec<Vec<&Pooled>> = Vec::new();
    for p in set.iter().filter(|p| p.case.device != LOOP) {
        let same =
            |q: &Pooled| q.case.device == p.case.device && q.case.condition == p.case.condition;
        match devices.iter_mut().find(|d| same(d[0])) {
            Some(device) => device.push(p),
            None => devices.push(vec![p]),
        }
    }
    if devices.is_empty() {
        return None;
    }
    let nearest = |bare: &Pooled| -> Vec<&'a Pooled> {
        let near = |d: &Vec<&'a Pooled>| {
            d.iter().copied().min_by(|a, b| apart(a, bare).total_cmp(&apart(b, bare)))
        };
        devices.iter().filter_map(near).collect()
    };
    let worst = |bare: &Pooled| nearest(bare).iter().map(|p| apart(p, bare)).fold(0.0, f64::max);
    let bare = set
        .iter()
        .copied()
        .filter(|p| p.case.device == LOOP)
        .min_by(|a, b| worst(a).total_cmp(&worst(b)))?;
    Some([vec![bare], nearest(bare)].concat())
}
