//! Loss against offered load (RFC 2544, section 26.3).

use sonde_results::bench::{BenchRun, Case};

use super::{id, split};
use crate::chart::{Axis, AxisScale, Chart, Series, Shape};
use crate::group::Labels;
use crate::line_rate_fps;
use crate::trials::{LossPoint, loss_curve};

pub(super) fn charts(run: &BenchRun) -> Vec<Chart> {
    let curves = loss_curve(run, |c| c.procedure.contains("loss"));
    let cases: Vec<Case> = curves.iter().map(|c| c.0.clone()).collect();
    let labels = Labels::of(&cases);
    let inside: &[&str] = if cases.iter().any(|c| !c.condition.is_empty()) {
        &["frame"]
    } else {
        &["frame", "direction"]
    };
    let chart = |set: Vec<usize>| {
        let mut chosen: Vec<&(Case, Vec<LossPoint>)> = set.iter().map(|&i| &curves[i]).collect();
        chosen.sort_by(|a, b| a.0.frame_bytes.total_cmp(&b.0.frame_bytes));
        one(run, &chosen, &labels, inside)
    };
    split(&cases, inside).into_iter().map(chart).collect()
}

fn one(
    run: &BenchRun,
    curves: &[&(Case, Vec<LossPoint>)],
    labels: &Labels,
    inside: &[&str],
) -> Chart {
    // The axis of the standard where the medium has a rate, frames a second where not.
    let of_line = curves.iter().all(|c| line_rate_fps(run, c.0.frame_bytes).is_some());
    let rate = |case: &Case, fps: f64| match line_rate_fps(run, case.frame_bytes) {
        Some(line) if of_line => fps / line,
        _ => fps,
    };
    let outside: Vec<&str> = ["procedure", "device", "condition", "flows", "load", "ip"].to_vec();
    let mut series = Vec::new();
    for (i, (case, points)) in curves.iter().enumerate() {
        // Repetitions of a rate: their frames together.
        let mut joined: Vec<LossPoint> = Vec::new();
        for p in points {
            match joined.last_mut() {
                Some(last) if last.rate_fps == p.rate_fps => {
                    // What was offered in truth: the mean of the repetitions, by their frames.
                    let (a, b) = (last.sent as f64, p.sent as f64);
                    last.offered_fps =
                        (last.offered_fps * a + p.offered_fps * b) / (a + b).max(1.0);
                    last.sent += p.sent;
                    last.lost += p.lost;
                }
                _ => joined.push(*p),
            }
        }
        let points = joined
            .iter()
            .map(|p| (rate(case, p.offered_fps), p.lost as f64 / p.sent.max(1) as f64))
            .collect();
        series.push(Series {
            name: labels.name(case, &outside),
            colour: Some(i),
            shape: Shape::Line { points, dashed: false, marks: true },
        });
    }
    let case = &curves[0].0;
    let title = labels.title(case, inside);
    let greatest = curves.iter().flat_map(|c| c.1.iter().map(|p| p.rate_fps)).fold(0.0, f64::max);
    let worst = series.iter().flat_map(|s| match &s.shape {
        Shape::Line { points, .. } => points.iter().map(|p| p.1).collect::<Vec<f64>>(),
        _ => Vec::new(),
    });
    let worst = worst.fold(0.0, f64::max);
    // Small losses are to be seen: on an axis to 100 % they would lie on it.
    let magnified = worst < MAGNIFIED;
    let mut caption = match of_line {
        true => "Share of the frames sent in valid trials, repetitions together.".to_string(),
        false => "Share of the frames sent in valid trials, repetitions together. The load is in \
                  frames/s: a port has no nominal speed."
            .to_string(),
    };
    if magnified {
        caption.push_str(" The axis of the loss is magnified; that of the standard ends at 100 %.");
    }
    Chart {
        minor: false,
        id: id(&["loss", &title]),
        title: format!("Frame loss by offered load: {title}"),
        caption,
        x: match of_line {
            true => Axis::percent("Offered load, of the theoretical rate", AxisScale::Whole),
            false => Axis::rate(
                "Offered load in each direction",
                greatest,
                "frames/s",
                AxisScale::Linear,
            ),
        },
        y: match magnified {
            true => Axis::percent("Frame loss rate", AxisScale::Linear),
            false => Axis::percent("Frame loss rate", AxisScale::Whole),
        },
        series,
    }
}

/// Losses below this share have an axis of their own size.
const MAGNIFIED: f64 = 0.2;
