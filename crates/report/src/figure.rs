//! The figures of a run.

mod ablation;
mod difference;
mod latency;
mod loss;
mod over_time;
mod throughput;

use sonde_results::bench::{BenchRun, Case};

pub use ablation::{Ablation, ablations};
pub use difference::chart as difference;

use crate::LOOP;
use crate::chart::Chart;

/// All that the run has data for, in the order of a report.
pub fn charts(run: &BenchRun) -> Vec<Chart> {
    let mut charts = throughput::charts(run);
    charts.extend(loss::charts(run));
    charts.extend(latency::charts(run));
    charts.extend(over_time::charts(run));
    charts.extend(ablation::charts(run));
    charts.extend(difference::charts(run));
    charts.retain(|c| !c.is_empty());
    charts
}

/// Cases in sets of which each makes one figure: all but the named fields are the same.
fn split(cases: &[Case], inside: &[&str]) -> Vec<Vec<usize>> {
    let outside = |case: &Case| {
        let mut case = Case { repetition: 0, ..case.clone() };
        for field in inside {
            match *field {
                "frame" => (case.frame, case.frame_bytes) = Default::default(),
                "device" => case.device.clear(),
                "condition" => (case.condition, case.layers) = Default::default(),
                "direction" => case.direction.clear(),
                "load" => case.load.clear(),
                _ => {}
            }
        }
        case
    };
    let mut sets: Vec<(Case, Vec<usize>)> = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        let rest = outside(case);
        match sets.iter_mut().find(|(c, _)| *c == rest) {
            Some((_, set)) => set.push(i),
            None => sets.push((rest, vec![i])),
        }
    }
    sets.into_iter().map(|s| s.1).collect()
}

/// The colour of a device in one of its states, the same on every figure of a run; `None`: without
/// a device.
fn colour(run: &BenchRun, case: &Case) -> Option<usize> {
    if case.device == LOOP {
        return None;
    }
    let mut known: Vec<(&str, &str)> = Vec::new();
    for other in run.measurements.iter().map(|m| &m.case).filter(|c| c.device != LOOP) {
        let state = (other.device.as_str(), other.condition.as_str());
        if !known.contains(&state) {
            known.push(state);
        }
    }
    // In the order of their names: repetitions come in a random one.
    known.sort_unstable();
    known.iter().position(|k| *k == (case.device.as_str(), case.condition.as_str()))
}

/// A name for files: letters, digits and single underscores.
fn id(parts: &[&str]) -> String {
    let mut out = String::new();
    for c in parts.join("_").chars() {
        match c {
            c if c.is_ascii_alphanumeric() => out.push(c.to_ascii_lowercase()),
            _ if !out.ends_with('_') => out.push('_'),
            _ => {}
        }
    }
    out.trim_matches('_').to_string()
}
