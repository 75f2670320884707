//! What an event is about: whose samples, and which of them count against it.

use serde_json::Value;
use sonde_store::query::Delay;
use sonde_store::series::{MODULE_RTT, MODULE_STAMP, SeriesDirection};
use sonde_store::{SeriesLabels, StoredEvent};

use super::EXPLAINED;

/// Whose trouble it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExplainSubject {
    /// Stations that share a store may have units of one name.
    pub station: String,
    pub unit: String,
    /// Empty: all of the unit.
    pub target: String,
    class: String,
    pub measure: SubjectMeasure,
    /// The share of bad samples that the objective allows.
    pub limit_share: f64,
    /// Length of a window of the objective, ns: its excess begins in the first one that missed.
    pub window_ns: i64,
    /// The event is that nothing could be judged: it is mostly about the station.
    pub unjudged: bool,
}

/// What counts against an objective.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SubjectMeasure {
    /// Packets that were lost.
    Loss(SeriesDirection),
    /// Delays beyond a limit.
    Delay {
        /// Which delay.
        delay: Delay,
        /// The greatest that is allowed, ns; `None`: not known.
        limit_ns: Option<i64>,
        /// The limit is one above the least delay.
        above_least: bool,
    },
}

impl ExplainSubject {
    /// `None`: an event of its kind is not explained.
    pub fn of(event: &StoredEvent) -> Option<ExplainSubject> {
        if !EXPLAINED.contains(&event.kind.as_str()) {
            return None;
        }
        let evidence = &event.evidence;
        let label =
            |name: &str| evidence["labels"][name].as_str().map_or_else(String::new, str::to_owned);
        let window = &evidence["window"];
        let ns = |name: &str| window[name].as_i64();
        let window_ns = match (ns("start_ns"), ns("end_ns")) {
            (Some(start), Some(end)) => (end - start).max(0),
            _ => 0,
        };
        let passive = label("unit").starts_with("rtt.");
        let (measure, limit_share) = measure(evidence, &label("direction"), passive);
        Some(ExplainSubject {
            station: label("station"),
            unit: label("unit"),
            target: label("target"),
            class: label("class"),
            measure,
            limit_share,
            window_ns,
            unjudged: matches!(event.kind.as_str(), "unjudged" | "station_doubt"),
        })
    }

    /// Whether a series is one of those that it is about.
    pub fn fits(&self, labels: &SeriesLabels) -> bool {
        let unit = labels.station == self.station
            && labels.free.get("unit").is_some_and(|unit| *unit == self.unit);
        if self.is_passive() {
            return unit && labels.module == MODULE_RTT;
        }
        let whole = self.target.is_empty();
        unit && labels.module == MODULE_STAMP
            && (whole || (labels.target == self.target && labels.class == self.class))
    }

    /// Of passive round trips the group that it is about.
    pub fn groups(&self) -> Vec<String> {
        if self.is_passive() && !self.target.is_empty() {
            return vec![self.target.clone()];
        }
        Vec::new()
    }

    /// It is about round trips of others' traffic.
    pub fn is_passive(&self) -> bool {
        matches!(self.measure, SubjectMeasure::Delay { delay: Delay::Passive, .. })
    }
}

/// What counts against it, and which share of it is allowed.
fn measure(evidence: &Value, direction: &str, passive: bool) -> (SubjectMeasure, f64) {
    let window = &evidence["window"];
    let bound = window["bound"].as_f64();
    let metric = evidence["metric"]["kind"].as_str().unwrap_or_default();
    let above_least = matches!(metric, "pdv_percentile" | "ipdv_percentile");
    let delay = match direction {
        _ if passive => Delay::Passive,
        "forward" => Delay::Forward,
        "backward" => Delay::Backward,
        _ => Delay::RttNet,
    };
    let of =
        |limit: f64| SubjectMeasure::Delay { delay, limit_ns: Some(limit as i64), above_least };
    let is_ns = window["unit"].as_str() == Some("nanoseconds");
    match window["limit_ns"].as_f64() {
        Some(limit) => return (of(limit), bound.filter(|share| *share > 0.0).unwrap_or(0.01)),
        None if is_ns => {
            let limit = bound.map(|limit| limit as i64);
            return (SubjectMeasure::Delay { delay, limit_ns: limit, above_least }, MEAN_SHARE);
        }
        None if metric.starts_with("delay") || passive => {
            return (SubjectMeasure::Delay { delay, limit_ns: None, above_least }, 0.05);
        }
        None => {}
    }
    let direction = match direction {
        "forward" => SeriesDirection::Forward,
        "backward" => SeriesDirection::Backward,
        _ => SeriesDirection::RoundTrip,
    };
    let rule = evidence["rule"]["loss_ratio"].as_f64();
    let share = rule.or(bound.filter(|_| window["unit"].as_str() == Some("ratio")));
    let share = share.filter(|share| (0.0..1.0).contains(share)).unwrap_or(0.01);
    (SubjectMeasure::Loss(direction), share)
}

/// Where a mean delay is missed, a tenth of the samples beyond its limit matters.
const MEAN_SHARE: f64 = 0.1;
