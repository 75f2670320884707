//! Latency over time: where a device stalls, a median cannot show it. Of trials that were run
//! to see a load over time; those of a search show the search.

use sonde_results::bench::{BenchRun, Case};
use sonde_results::procedure::purpose::{OVERLOAD, RESET};
use sonde_results::units::time_unit;
use sonde_results::{Hist, Trial};

use super::id;
use crate::LOOP;
use crate::chart::{Area, Axis, AxisScale, Chart, LEVELS, Series, Shape};
use crate::group::{Labels, key};
use crate::trials::{kind_of, valid};

/// Fewest points or windows for a picture over time.
const LEAST: usize = 8;

/// Most pictures of series: the longest trial of each case is drawn, of the first cases.
const MOST: usize = 12;

pub(super) fn charts(run: &BenchRun) -> Vec<Chart> {
    let mut longest: Vec<(String, &Case, &Trial)> = Vec::new();
    let points = |t: &Trial| t.directions.iter().map(|d| d.series.len()).max().unwrap_or(0);
    let alone = run.measurements.iter().all(|m| m.case.device == LOOP);
    // The loop stands beside the devices in a figure of its own.
    let shown =
        |case: &Case, t: &Trial| (alone || case.device != LOOP) && timed(t) && points(t) >= LEAST;
    for (case, trial) in valid(run).filter(|(case, t)| shown(case, t)) {
        let key = key(case);
        match longest.iter_mut().find(|l| l.0 == key) {
            Some((_, _, best)) if points(best) < points(trial) => *best = trial,
            Some(_) => {}
            None => longest.push((key, case, trial)),
        }
    }
    let labels = Labels::of(run.measurements.iter().map(|m| &m.case));
    let mut charts = windows(run, &labels);
    for (_, case, trial) in longest.iter().take(MOST) {
        let title = labels.title(case, &[]);
        charts.push(bands(trial, &title));
        charts.push(losses(trial, &title));
    }
    charts
}

/// Whether a trial shows what happens while a load lasts: latencies, and outages.
fn timed(trial: &Trial) -> bool {
    trial.for_latency() || [RESET, OVERLOAD].iter().any(|p| trial.purpose.starts_with(p))
}

/// A trial's time series as bands between its quantiles.
fn bands(trial: &Trial, title: &str) -> Chart {
    let direction = trial.directions.iter().max_by_key(|d| d.series.len());
    let points = direction.map_or(&[][..], |d| &d.series);
    let mut cells = Vec::new();
    for p in points.iter().filter(|p| p.received > 0) {
        let [min, median, p99, max] = p.latency_ns.map(|v| v.max(1) as f64);
        let x = (p.at_ns as f64, (p.at_ns + p.length_ns) as f64);
        for (y, level) in [((p99, max), 0), ((median, p99), 3), ((min, median), LEVELS - 1)] {
            if y.1 > y.0 {
                cells.push(Area { x, y, level });
            }
        }
    }
    let most = cells.iter().map(|c| c.y.1).fold(0.0, f64::max);
    let end = points.last().map_or(0, |p| p.at_ns + p.length_ns) as f64;
    Chart {
        minor: false,
        id: id(&["latency_over_time", title]),
        title: format!("Latency over time: {title}"),
        caption: format!(
            "Trial {}, {}, the longest of its case. Half of a column's frames lie in its \
             strongest colour, a hundredth in its faintest.",
            trial.number,
            direction.map_or("", |d| &d.name)
        ),
        x: time_axis(end),
        y: Axis::time("One-way latency", most, AxisScale::Log),
        series: vec![Series {
            name: "min to p50|p50 to p99|p99 to max".into(),
            colour: None,
            shape: Shape::Cells(cells),
        }],
    }
}

/// Frames lost over the same time, where there were any.
fn losses(trial: &Trial, title: &str) -> Chart {
    let mut series = Vec::new();
    for (i, d) in trial.directions.iter().enumerate() {
        if d.series.iter().all(|p| p.lost == 0) {
            continue;
        }
        let points = d.series.iter().map(|p| (p.at_ns as f64, p.lost as f64)).collect();
        let shape = Shape::Line { points, dashed: false, marks: false };
        series.push(Series { name: d.name.clone(), colour: Some(i), shape });
    }
    let end = trial.directions.iter().filter_map(|d| d.series.last()).map(|p| p.at_ns).max();
    Chart {
        minor: false,
        id: id(&["loss_over_time", title]),
        title: format!("Loss over time: {title}"),
        caption: format!("Trial {}, by the time of sending.", trial.number),
        x: time_axis(end.unwrap_or(0) as f64),
        y: Axis {
            title: "Frames lost".into(),
            scale: AxisScale::Linear,
            divisor: 1.0,
            numbers: Vec::new(),
        },
        series,
    }
}

/// A case whose trials are windows of one long measurement: a histogram a column.
fn windows(run: &BenchRun, labels: &Labels) -> Vec<Chart> {
    let mut sets: Vec<(String, &Case, Vec<&Trial>)> = Vec::new();
    for (case, trial) in valid(run).filter(|(_, t)| t.for_latency()) {
        let kind = kind_of(&trial.purpose);
        let key = format!("{} {kind} {}", trial.measurement, trial.offer.rate_fps);
        match sets.iter_mut().find(|s| s.0 == key) {
            Some((_, _, trials)) => trials.push(trial),
            None => sets.push((key, case, vec![trial])),
        }
    }
    sets.retain(|s| s.2.len() >= LEAST && s.2.iter().any(|t| t.latency().count > 0));
    sets.iter()
        .take(MOST)
        .map(|(_, case, trials)| heat_map(trials, &window_title(labels, case, trials[0])))
        .collect()
}

/// A measurement has a picture for each of its loads, and each repetition is a measurement.
fn window_title(labels: &Labels, case: &Case, trial: &Trial) -> String {
    let mut title = labels.title(case, &[]);
    let kind = kind_of(&trial.purpose);
    if let Some((_, load)) = kind.split_once(" at ") {
        title = format!("{title}, at {load}");
    }
    if case.repetition > 1 {
        title = format!("{title}, repetition {}", case.repetition);
    }
    title
}

fn heat_map(trials: &[&Trial], title: &str) -> Chart {
    let begin = trials.iter().map(|t| t.start_ns).min().unwrap_or(0);
    let columns: Vec<((f64, f64), Hist)> = trials
        .iter()
        .map(|t| {
            let from = (t.start_ns - begin) as f64;
            ((from, from + t.offer.duration_ns() as f64), t.latency())
        })
        .filter(|c| c.1.count > 0)
        .collect();
    // Rows of a tenth of a decade.
    let row = |v: i64| ((v.max(1) as f64).log10() * 10.0).floor() as i32;
    let mut cells = Vec::new();
    for (x, hist) in &columns {
        let mut rows: Vec<(i32, u64)> = Vec::new();
        for (value, n) in hist.values() {
            let r = row(value);
            match rows.last_mut() {
                Some((last, count)) if *last == r => *count += n,
                _ => rows.push((r, n)),
            }
        }
        for (r, count) in rows {
            // A colour a decade of the share: what is rare is what one looks for.
            let share = count as f64 / hist.count as f64;
            let level = (LEVELS as f64 - 1.0 + share.log10()).ceil().max(0.0) as usize;
            let y = (10f64.powf(f64::from(r) / 10.0), 10f64.powf(f64::from(r + 1) / 10.0));
            cells.push(Area { x: *x, y, level: level.min(LEVELS - 1) });
        }
    }
    let most = cells.iter().map(|c| c.y.1).fold(0.0, f64::max);
    let end = columns.iter().map(|c| c.0.1).fold(0.0, f64::max);
    Chart {
        minor: false,
        id: id(&["latency_heat_map", title]),
        title: format!("Heat map of latency: {title}"),
        caption: format!(
            "{} trials of the same load, each a column; the strongest colour holds more than \
             a tenth of a column's frames, each fainter step a tenth of the one before.",
            columns.len()
        ),
        x: time_axis(end),
        y: Axis::time("One-way latency", most, AxisScale::Log),
        series: vec![Series {
            name: "over 10 %|over 1 %|over 0.1 %|over 0.01 %|over 10⁻³ %|over 10⁻⁴ %|fewer".into(),
            colour: None,
            shape: Shape::Cells(cells),
        }],
    }
}

/// Time from the begin, up to `end` ns.
fn time_axis(end: f64) -> Axis {
    let (divisor, unit) = match end {
        e if e >= 7.2e12 => (3.6e12, "h"),
        e if e >= 3e11 => (6e10, "min"),
        e => time_unit(e / 2.0),
    };
    Axis { title: format!("Time, {unit}"), scale: AxisScale::Linear, divisor, numbers: Vec::new() }
}
