//! Latency, packet delay variation and inter-packet delay variation (RFC 8219, sections 7.2 and
//! 7.3). Each is the summary of 20 trials, their median between 1st and 99th percentile.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::procedure::purpose::{DELAY_VARIATION, LATENCY};
use sonde_results::trial::Offer;

use super::delays::{DelayStats, TrialDelays};
use super::script::{Script, scripted};
use super::values::{SECOND, add_spread, discard_within, labelled, mean};
use super::{NextTrial, Procedure};

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayKind {
    /// Typical and worst-case latency: median and 99.9th percentile of at least 500 frames
    /// after the first 60 s of 120 (section 7.2).
    Latency,
    /// 99.9th percentile above the minimum of all frames of 60 s (section 7.3.1).
    Pdv,
    /// Minimum, median and maximum of the differences between successive frames (7.3.2).
    Ipdv,
}

/// Where and how they are measured.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayConfig {
    /// Which delay is measured.
    pub kind: DelayKind,
    /// Frames/s in each direction: the throughput, or a share of it.
    pub rate_fps: f64,
    /// Duration of a trial, ns (at least 120 s for latency, 60 s for the others).
    pub duration_ns: i64,
    /// Frames of the first so many ns are not timed (60 s for latency).
    pub discard_ns: i64,
    /// Trials (20).
    pub trials: u32,
}

impl DelayConfig {
    /// With the durations of the standard.
    pub fn new(kind: DelayKind, rate_fps: f64) -> DelayConfig {
        let (duration, discard) = if kind == DelayKind::Latency { (120, 60) } else { (60, 0) };
        DelayConfig {
            kind,
            rate_fps,
            duration_ns: duration * SECOND,
            discard_ns: discard * SECOND,
            trials: 20,
        }
    }
}

/// Frames of a trial from which RFC 8219, section 7.2, takes a latency.
const LEAST_SAMPLES: u64 = 500;
/// Trials that its summaries are of.
const LEAST_TRIALS: u64 = 20;

/// One of the three measurements under way.
#[derive(Clone, Debug)]
pub struct DelaySummary {
    config: DelayConfig,
    script: Script<(Vec<Group>, f64)>,
}

/// What a trial showed of a direction, or of all together.
#[derive(Clone, Debug)]
struct Group {
    direction: String,
    /// The quantities of the kind, in the order of their names.
    values: Vec<f64>,
    frames: u64,
}

impl DelaySummary {
    /// One of the three measurements.
    pub fn new(config: DelayConfig) -> DelaySummary {
        let purpose = match config.kind {
            DelayKind::Latency => LATENCY.into(),
            DelayKind::Pdv => format!("packet {DELAY_VARIATION}"),
            DelayKind::Ipdv => format!("inter-packet {DELAY_VARIATION}"),
        };
        let discard_ns = discard_within(config.discard_ns, config.duration_ns);
        let offer = Offer { discard_ns, ..Offer::steady(config.rate_fps, config.duration_ns) };
        let next = NextTrial { offer, purpose };
        let script = Script::new(vec![next; config.trials as usize]);
        DelaySummary { config, script }
    }

    fn names(&self) -> &'static [&'static str] {
        match self.config.kind {
            DelayKind::Latency => &["typical_latency", "worst_case_latency"],
            DelayKind::Pdv => &["pdv"],
            DelayKind::Ipdv => &["ipdv_min", "ipdv_p50", "ipdv_max"],
        }
    }

    /// In the order of `names`; empty where nothing arrived.
    fn read(kind: DelayKind, delays: &DelayStats) -> Vec<f64> {
        let (latency, ipdv) = (&delays.latency, &delays.ipdv);
        let values: Option<Vec<f64>> = match kind {
            DelayKind::Latency => {
                [0.5, 0.999].iter().map(|&q| latency.quantile(q).map(|v| v as f64)).collect()
            }
            DelayKind::Pdv => delays.pdv_ns().map(|v| vec![v]),
            DelayKind::Ipdv => [ipdv.min(), ipdv.quantile(0.5), ipdv.max()]
                .map(|v| v.map(|v| v as f64))
                .into_iter()
                .collect(),
        };
        values.unwrap_or_default()
    }
}

impl Procedure for DelaySummary {
    scripted!();

    fn observe(&mut self, trial: &Trial) {
        let kind = self.config.kind;
        self.script.observe(trial, |trial| {
            let groups = TrialDelays::of(trial).groups();
            let read = |(direction, delays): &(String, DelayStats)| Group {
                direction: direction.clone(),
                values: DelaySummary::read(kind, delays),
                frames: delays.latency.count,
            };
            (groups.iter().map(read).collect(), trial.offered_fps())
        });
    }

    fn finding(&self) -> Finding {
        let mut finding = self.script.finding();
        let Some((_, (first, _))) = self.script.seen().next() else { return finding };
        for (i, group) in first.iter().enumerate() {
            // Variation is of one stream (RFC 5481, section 4.2): of all together there is none.
            if self.config.kind == DelayKind::Pdv && first.len() > 1 && group.direction.is_empty() {
                continue;
            }
            for (k, name) in self.names().iter().enumerate() {
                let groups = self.script.seen().filter_map(|(_, (groups, _))| groups.get(i));
                let values: Vec<f64> = groups.filter_map(|g| g.values.get(k)).copied().collect();
                add_spread(&mut finding, &labelled(name, &group.direction), "ns", &values);
            }
        }
        let frames = self.script.seen().flat_map(|(_, (groups, _))| groups);
        let least = frames.map(|g| g.frames).min().unwrap_or(0);
        if self.config.kind == DelayKind::Latency && least < LEAST_SAMPLES {
            finding.notes.push(format!(
                "A trial has only {least} frames to time; RFC 8219 asks for {LEAST_SAMPLES}."
            ));
        }
        if self.config.kind != DelayKind::Ipdv && least < 10_000 {
            finding.notes.push(format!(
                "A trial has only {least} frames: fewer than 10 lie beyond the 99.9th percentile."
            ));
        }
        let offered: Vec<f64> = self.script.seen().map(|(_, (_, offered))| *offered).collect();
        let rate = mean(&offered).unwrap_or(self.config.rate_fps);
        let trials = offered.len() as u64;
        finding.values.push(Quantity::new("offered_load", "frames/s", rate, trials));
        if trials < LEAST_TRIALS {
            finding.notes.push(format!("{trials} trials; RFC 8219 asks for {LEAST_TRIALS}."));
        }
        finding.notes.push("Medians of the trials, between their 1st and 99th percentile.".into());
        finding
    }
}
