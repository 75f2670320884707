//! Throughput against frame size beside the theoretical rate (RFC 2544, section 26.1).

use sonde_results::bench::{BenchRun, Case};

use super::{colour, id, split};
use crate::chart::{Axis, AxisScale, Chart, Point, Series, Shape};
use crate::group::{CaseGroup, Labels, groups, is_rate, mix_name, searches_rate};
use crate::{LOOP, line_rate_fps};

pub(super) fn charts(run: &BenchRun) -> Vec<Chart> {
    let mut groups = groups(run);
    // Only what finds a rate; an ablation has a figure of its own.
    groups.retain(|g| searches_rate(&g.case.procedure));
    let layered = groups.iter().filter(|g| !g.case.layers.is_empty()).count() > 3;
    groups.retain(|g| !layered || g.case.layers.is_empty());
    let cases: Vec<Case> = groups.iter().map(|g| g.case.clone()).collect();
    let labels = Labels::of(&cases);
    let sets = split(&cases, &["frame", "device", "condition", "direction"]);
    let chart = |set: &Vec<usize>| {
        let groups: Vec<&CaseGroup<'_>> = set.iter().map(|&i| &groups[i]).collect();
        [Per::Frames, Per::Bits].map(|per| one(run, &groups, &labels, per))
    };
    // A single size is no curve.
    let sizes = |set: &&Vec<usize>| set.iter().any(|&i| cases[i].frame != cases[set[0]].frame);
    sets.iter().filter(sizes).flat_map(chart).collect()
}

/// The unit of a rate.
#[derive(Clone, Copy, PartialEq)]
enum Per {
    Frames,
    /// Of the frames with their FCS, without preamble and gap.
    Bits,
}

impl Per {
    fn of(self, fps: f64, bytes: f64) -> f64 {
        if self == Per::Bits { fps * bytes * 8.0 } else { fps }
    }
}

fn one(run: &BenchRun, groups: &[&CaseGroup<'_>], labels: &Labels, per: Per) -> Chart {
    let mut frames: Vec<(f64, &str)> = Vec::new();
    for g in groups {
        if !frames.iter().any(|f| f.1 == g.case.frame) {
            frames.push((g.case.frame_bytes, &g.case.frame));
        }
    }
    frames.sort_by(|a, b| a.0.total_cmp(&b.0));
    let position = |frame: &str| frames.iter().position(|f| f.1 == frame).unwrap_or(0) as f64;
    let mut lines: Vec<(String, Option<usize>, Vec<Point>)> = Vec::new();
    let mut limited = false;
    let rates = |g: &CaseGroup<'_>| -> Vec<String> {
        g.names().into_iter().filter(|n| is_rate(n)).map(str::to_string).collect()
    };
    for (g, rate) in groups.iter().flat_map(|g| rates(g).into_iter().map(move |r| (g, r))) {
        let Some(s) = g.summary(&rate, run.config.seed) else { continue };
        let mut name = labels.name(&g.case, &["frame", "procedure"]);
        if let Some((_, goal)) = rate.split_once('@') {
            name = format!("{name}, {goal}");
        }
        let spread = s.spread();
        let [y, low, high] =
            [s.median, spread.low, spread.high].map(|fps| per.of(fps, g.case.frame_bytes));
        // Without a device the tester is what is measured.
        let open = s.tester_limited && g.case.device != LOOP;
        limited |= open;
        let point = Point { x: position(&g.case.frame), y, low, high, open };
        match lines.iter_mut().find(|l| l.0 == name) {
            Some((_, _, points)) => points.push(point),
            None => lines.push((name, colour(run, &g.case), vec![point])),
        }
    }
    let mut series = Vec::new();
    let theory: Vec<(f64, f64)> = frames
        .iter()
        .enumerate()
        .filter_map(|(i, f)| Some((i as f64, per.of(line_rate_fps(run, f.0)?, f.0))))
        .collect();
    let speed_known = !theory.is_empty();
    if speed_known {
        series.push(Series {
            name: "theoretical".into(),
            colour: None,
            shape: Shape::Line { points: theory, dashed: true, marks: false },
        });
    }
    for (name, colour, mut points) in lines {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let name = if colour.is_none() { format!("{name} (no device)") } else { name };
        series.push(Series { name, colour, shape: Shape::Intervals(points) });
    }
    let drawn = series.iter().flat_map(|s| match &s.shape {
        Shape::Intervals(points) => points.iter().map(|p| p.y).collect::<Vec<_>>(),
        Shape::Line { points, .. } => points.iter().map(|p| p.1).collect(),
        _ => Vec::new(),
    });
    let (least, greatest) = drawn
        .filter(|y| *y > 0.0)
        .fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), y| (least.min(y), most.max(y)));
    // Beside a medium far faster than the device its line would lie on the axis.
    let scale = if greatest > 8.0 * least { AxisScale::Log } else { AxisScale::Linear };
    let case = &groups[0].case;
    let title = labels.title(case, &["frame", "device", "condition", "direction"]);
    // RFC 2544, section 26.1, wants protocol, stream and medium named.
    let mut caption = format!(
        "UDP over IPv{}, {} {}, {}. ",
        case.sweep.get("ip").map_or("4", String::as_str),
        case.flows,
        if case.flows == 1 { "flow" } else { "flows" },
        media(run)
    );
    caption.push_str(
        "Median over the repetitions in each direction. Bars: 95 % interval of the \
                       median by bootstrap where there are at least six repetitions, else least \
                       and greatest, of a single one the bounds of the search.",
    );
    if limited {
        caption.push_str(
            " Open marks: the tester, not the device, sets the value, and the device may do better.",
        );
    }
    if per == Per::Bits {
        caption.push_str(" Bits of the frames with their FCS, without preamble and gap.");
    }
    if !speed_known {
        caption.push_str(
            " No theoretical line: a port has no nominal speed (virtual Ethernet has none).",
        );
    }
    Chart {
        minor: false,
        id: match per {
            Per::Frames => id(&["throughput_by_frame_size", &title]),
            Per::Bits => id(&["throughput_in_bits_by_frame_size", &title]),
        },
        title: match per {
            Per::Frames => format!("Throughput by frame size: {title}"),
            Per::Bits => format!("Throughput in bits by frame size: {title}"),
        },
        caption,
        x: Axis {
            // Of a mix the mean.
            numbers: frames.iter().map(|f| f.0).collect(),
            ..Axis::names(
                "Frame size, octets with FCS",
                frames.iter().map(|f| mix_name(f.1).to_string()).collect(),
            )
        },
        y: match per {
            Per::Frames => Axis::rate("Throughput", greatest, "frames/s", scale),
            Per::Bits => Axis::rate("Throughput", greatest, "bit/s", scale),
        },
        series,
    }
}

/// What the tester's ports are.
fn media(run: &BenchRun) -> String {
    let mut drivers: Vec<&str> = run.bed.ports.iter().map(|p| p.driver.as_str()).collect();
    drivers.retain(|driver| !driver.is_empty());
    drivers.dedup();
    match drivers[..] {
        [] => "Ethernet".into(),
        _ => format!("Ethernet ({})", drivers.join(", ")),
    }
}
