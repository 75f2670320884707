//! An objective: a value that a file, a request and a preset make alike.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::sla::{MeasuredDirection, ObjectiveUnit, Standard};
use sonde_results::units::format_duration;

use super::rule::{AvailabilityRule, SecondRule};
use super::share::least_samples;
use super::window::ObjectiveWindow;

/// What is promised of a subject: a target, a class, a group, or an ordered pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// Its name in events and reports.
    pub name: String,
    /// What is measured, and its limit.
    pub metric: ObjectiveMetric,
    /// Which way.
    pub direction: MeasuredDirection,
    /// Over which time.
    pub window: ObjectiveWindow,
    /// What the contract's local time is ahead of UTC, s (-50,400 to 50,400): where months begin.
    #[serde(default)]
    pub utc_offset_s: i32,
    /// Windows that must miss it for a breach.
    #[serde(default)]
    pub breach: OutOf,
    /// Windows that must meet it for a recovery.
    #[serde(default)]
    pub recovery: OutOf,
    /// Samples (or packets sent) that a window needs; fewer decide nothing. `None`: as many as a
    /// statement at 95 % needs, 299 of a 99th percentile.
    #[serde(default)]
    pub least_samples: Option<u64>,
    /// Share of a window that must be known, percent (0 to 100); a lesser one decides nothing.
    #[serde(default = "half")]
    pub least_known_percent: f64,
    /// Only available time by this rule counts. `None`: all time does.
    #[serde(default)]
    pub available_time: Option<AvailabilityRule>,
    /// By which standard.
    #[serde(default)]
    pub standard: Option<Standard>,
}

/// What is measured, and its limit. Equality meets every limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ObjectiveMetric {
    /// A percentile of the delay of the delivered packets (RFC 2681, RFC 7679).
    DelayPercentile {
        /// Which, percent (above 0, below 100).
        percent: f64,
        /// Greatest value, ns.
        limit: ObjectiveLimit,
    },
    /// The arithmetic mean of the delay of the delivered packets.
    DelayMean {
        /// Greatest value, ns.
        limit: ObjectiveLimit,
    },
    /// A percentile of the delay less the least delay of the window (PDV, RFC 5481, section 4.2).
    /// It is the IPDV of ITU-T Y.1541 and the frame delay range of MEF.
    PdvPercentile {
        /// Which, percent.
        percent: f64,
        /// Greatest value, ns.
        limit: ObjectiveLimit,
    },
    /// A percentile of the absolute difference of the delays of consecutive packets (IPDV, RFC
    /// 3393; inter-frame delay variation of MEF). One direction only.
    IpdvPercentile {
        /// Which, percent.
        percent: f64,
        /// Greatest value, ns.
        limit: ObjectiveLimit,
    },
    /// Packets lost, as a share of those sent that way (RFC 7680, RFC 6673).
    LossRatio {
        /// Greatest share, 0 to below 1.
        limit: ObjectiveLimit,
    },
    /// Errored seconds in available time.
    ErroredSeconds {
        /// Most seconds in a window.
        limit: u32,
        /// Only severely errored seconds count.
        #[serde(default)]
        severe: bool,
        /// When a second is errored.
        rule: SecondRule,
    },
    /// Share of time that is available.
    Availability {
        /// The least, percent (above 0, at most 100).
        target_percent: f64,
        /// When time is available.
        rule: AvailabilityRule,
    },
}

/// The greatest value that meets an objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ObjectiveLimit {
    /// This one.
    Fixed(f64),
    /// So many times the usual of the same hour of the four weeks before.
    Usual {
        /// How many times (above 0).
        times: f64,
        /// Values up to here meet it whatever is usual: what is twice next to nothing troubles
        /// nobody.
        floor: f64,
    },
}

/// So many of the last so many windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutOf {
    /// How many (1 or more).
    pub n: u32,
    /// Of how many (`n` to 64).
    pub m: u32,
}

impl Default for OutOf {
    fn default() -> Self {
        OutOf { n: 1, m: 1 }
    }
}

impl OutOf {
    pub(super) fn diagnose(&self, key: &str, errors: &mut Vec<ObjectiveError>) {
        if self.n == 0 {
            errors.push(ObjectiveError::new(&format!("{key}.n"), "0 windows are none; write 1"));
        }
        if self.m < self.n || self.m > 64 {
            let why = format!("{} windows are not within n, which is {}, and 64", self.m, self.n);
            errors.push(ObjectiveError::new(&format!("{key}.m"), why));
        }
    }
}

/// What is wrong with an objective, a maintenance window or a burn-rate alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{key}: {why}")]
pub struct ObjectiveError {
    /// The key, with dots between tables: `metric.rule.window`.
    pub key: String,
    /// What is wrong, and what may stand there.
    pub why: String,
}

impl ObjectiveError {
    /// Of `key`, because of `why`.
    pub fn new(key: &str, why: impl Into<String>) -> ObjectiveError {
        ObjectiveError { key: key.into(), why: why.into() }
    }
}

impl ObjectiveLimit {
    /// The value below which nothing is a breach, in the metric's unit.
    pub fn least(&self) -> f64 {
        match *self {
            ObjectiveLimit::Fixed(limit) => limit,
            ObjectiveLimit::Usual { floor, .. } => floor,
        }
    }

    /// Whether it hangs on what is usual.
    pub fn is_usual(&self) -> bool {
        matches!(self, ObjectiveLimit::Usual { .. })
    }
}

impl ObjectiveMetric {
    /// Unit of its limit.
    pub fn unit(&self) -> ObjectiveUnit {
        match self {
            ObjectiveMetric::DelayPercentile { .. }
            | ObjectiveMetric::DelayMean { .. }
            | ObjectiveMetric::PdvPercentile { .. }
            | ObjectiveMetric::IpdvPercentile { .. } => ObjectiveUnit::Nanoseconds,
            ObjectiveMetric::LossRatio { .. } | ObjectiveMetric::Availability { .. } => {
                ObjectiveUnit::Ratio
            }
            ObjectiveMetric::ErroredSeconds { .. } => ObjectiveUnit::Seconds,
        }
    }

    /// Its limit, where that may hang on what is usual.
    pub fn limit(&self) -> Option<ObjectiveLimit> {
        match *self {
            ObjectiveMetric::DelayPercentile { limit, .. }
            | ObjectiveMetric::DelayMean { limit }
            | ObjectiveMetric::PdvPercentile { limit, .. }
            | ObjectiveMetric::IpdvPercentile { limit, .. }
            | ObjectiveMetric::LossRatio { limit } => Some(limit),
            ObjectiveMetric::ErroredSeconds { .. } | ObjectiveMetric::Availability { .. } => None,
        }
    }

    /// The percentile that it is about.
    pub fn percent(&self) -> Option<f64> {
        match *self {
            ObjectiveMetric::DelayPercentile { percent, .. }
            | ObjectiveMetric::PdvPercentile { percent, .. }
            | ObjectiveMetric::IpdvPercentile { percent, .. } => Some(percent),
            _ => None,
        }
    }
}

impl Objective {
    /// An objective with the defaults of the keys that may be left out.
    pub fn new(
        name: impl Into<String>,
        metric: ObjectiveMetric,
        direction: MeasuredDirection,
        window: ObjectiveWindow,
    ) -> Objective {
        Objective {
            name: name.into(),
            metric,
            direction,
            window,
            utc_offset_s: 0,
            breach: OutOf::default(),
            recovery: OutOf::default(),
            least_samples: None,
            least_known_percent: half(),
            available_time: None,
            standard: None,
        }
    }

    /// The rule by which its intervals are available, if it has one.
    pub fn rule(&self) -> Option<AvailabilityRule> {
        match self.metric {
            ObjectiveMetric::Availability { rule, .. } => Some(rule),
            ObjectiveMetric::ErroredSeconds { rule, .. } => Some(rule.availability()),
            _ => self.available_time,
        }
    }

    /// Samples that a window needs.
    pub fn least_samples(&self) -> u64 {
        self.least_samples.unwrap_or(match self.metric {
            ObjectiveMetric::DelayMean { .. } => 1,
            ObjectiveMetric::LossRatio { limit } if limit.least() > 0.0 => {
                least_samples(limit.least())
            }
            // "No loss at all" can be kept by what was seen only.
            ObjectiveMetric::LossRatio { .. } => 1,
            ObjectiveMetric::ErroredSeconds { .. } | ObjectiveMetric::Availability { .. } => 0,
            _ => least_samples(1.0 - self.metric.percent().unwrap_or(0.0) / 100.0),
        })
    }

    /// All that is wrong with it, by key. Empty: it can be judged.
    pub fn diagnose(&self) -> Vec<ObjectiveError> {
        let mut errors = Vec::new();
        let mut refuse = |key: &str, why: String| errors.push(ObjectiveError::new(key, why));
        if self.name.is_empty() {
            refuse("name", "it is empty; events and reports need one".into());
        }
        if let Some(percent) = self.metric.percent().filter(|p| !(*p > 0.0 && *p < 100.0)) {
            refuse(
                "metric.percent",
                format!(
                    "{percent} must be above 0 and below 100; the greatest value is no promise"
                ),
            );
        }
        self.diagnose_limit(&mut refuse);
        self.diagnose_window(&mut refuse);
        let one_way =
            matches!(self.direction, MeasuredDirection::Forward | MeasuredDirection::Backward);
        if matches!(self.metric, ObjectiveMetric::IpdvPercentile { .. }) && !one_way {
            refuse(
                "direction",
                "the variation between consecutive packets is measured one way; write forward or \
                 backward"
                    .into(),
            );
        }
        if self.least_samples == Some(0) {
            refuse("least_samples", "0 samples decide nothing; write 1 or more".into());
        }
        if !(0.0..=100.0).contains(&self.least_known_percent) {
            refuse(
                "least_known_percent",
                format!("{} is not within 0 and 100", self.least_known_percent),
            );
        }
        self.breach.diagnose("breach", &mut errors);
        self.recovery.diagnose("recovery", &mut errors);
        match self.metric {
            ObjectiveMetric::Availability { rule, .. } => {
                rule.diagnose("metric.rule", &mut errors);
            }
            ObjectiveMetric::ErroredSeconds { rule, .. } => {
                rule.diagnose("metric.rule", &mut errors);
            }
            _ => {
                if let Some(rule) = self.available_time {
                    rule.diagnose("available_time", &mut errors);
                }
            }
        }
        errors
    }

    fn diagnose_limit(&self, refuse: &mut impl FnMut(&str, String)) {
        let ratio = self.metric.unit() == ObjectiveUnit::Ratio;
        let signed =
            matches!(self.direction, MeasuredDirection::Forward | MeasuredDirection::Backward);
        let fits = |v: f64| match ratio {
            true => (0.0..1.0).contains(&v),
            // Between clocks that differ a one-way delay may be negative; its limit may not.
            false => (0.0..=MOST_NS).contains(&v),
        };
        let wants = match (ratio, signed) {
            (true, _) => "a share of 0 or more and below 1; 0.1 % is 0.001",
            (false, _) => "0 or more and at most a day, in ns",
        };
        match self.metric.limit() {
            Some(ObjectiveLimit::Fixed(v)) if !fits(v) => {
                refuse("metric.limit.fixed", format!("{v} is not {wants}"));
            }
            Some(ObjectiveLimit::Usual { times, floor }) => {
                if !(times > 0.0 && times <= 1_000.0) {
                    refuse(
                        "metric.limit.usual.times",
                        format!("{times} must be above 0 and at most 1,000"),
                    );
                }
                if !fits(floor) {
                    refuse("metric.limit.usual.floor", format!("{floor} is not {wants}"));
                }
            }
            _ => {}
        }
        if let ObjectiveMetric::Availability { target_percent, .. } = self.metric
            && !(target_percent > 0.0 && target_percent <= 100.0)
        {
            refuse(
                "metric.target_percent",
                format!("{target_percent} must be above 0 and at most 100"),
            );
        }
        let takes_no_rule = matches!(
            self.metric,
            ObjectiveMetric::Availability { .. } | ObjectiveMetric::ErroredSeconds { .. }
        );
        if takes_no_rule && self.available_time.is_some() {
            refuse(
                "available_time",
                "this metric has a rule of its own in metric.rule; leave it out".into(),
            );
        }
    }

    fn diagnose_window(&self, refuse: &mut impl FnMut(&str, String)) {
        let usual = self.metric.limit().is_some_and(|l| l.is_usual());
        match self.window {
            ObjectiveWindow::Fixed { length_s, offset_s } => {
                if !(1..=MOST_S).contains(&length_s) {
                    refuse("window.length_s", format!("{length_s} is not within 1 and {MOST_S}"));
                } else if offset_s >= length_s {
                    refuse(
                        "window.offset_s",
                        format!("{offset_s} must be less than length_s, which is {length_s}"),
                    );
                } else if usual && (!3_600u32.is_multiple_of(length_s) || offset_s != 0) {
                    refuse(
                        "window.length_s",
                        format!(
                            "the usual is that of an hour, and windows of {length_s} s do not \
                             divide one evenly from its start"
                        ),
                    );
                }
                let interval_s = self.rule().map_or(0, |r| r.interval_ns() / super::window::SECOND);
                if i64::from(length_s) < interval_s {
                    refuse(
                        "window.length_s",
                        format!("{length_s} s are shorter than an interval of the rule"),
                    );
                }
            }
            ObjectiveWindow::Month if usual => {
                refuse("window.kind", "the usual is that of an hour, not of a month".into());
            }
            ObjectiveWindow::Month => {}
        }
        if !(-50_400..=50_400).contains(&self.utc_offset_s) {
            let why = format!("{} is not within -50,400 and 50,400 (14 hours)", self.utc_offset_s);
            refuse("utc_offset_s", why);
        }
        if usual && self.rule().is_some_and(|r| r.lag_ns() > 3_600 * super::window::SECOND) {
            refuse(
                "available_time",
                "it decides more than an hour late, and the usual is that of an hour".into(),
            );
        }
    }
}

impl fmt::Display for ObjectiveLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectiveLimit::Fixed(v) => write!(f, "{v}"),
            ObjectiveLimit::Usual { times, floor } => {
                write!(f, "{times} times the usual, at least {floor}")
            }
        }
    }
}

impl fmt::Display for Objective {
    /// In words, with its figures and units: "forward loss at most 0.1 % in each 15 min".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.direction {
            MeasuredDirection::RoundTrip => "two-way",
            MeasuredDirection::RoundTripNet => "two-way (without dwell)",
            MeasuredDirection::Forward => "forward",
            MeasuredDirection::Backward => "backward",
        };
        let ratio = self.metric.unit() == ObjectiveUnit::Ratio;
        let value = |v: f64| match ratio {
            true => format!("{} %", (v * 1e8).round() / 1e6),
            false => format_duration(v as i64),
        };
        let limit = self.metric.limit().map(|limit| match limit {
            ObjectiveLimit::Fixed(v) => value(v),
            ObjectiveLimit::Usual { times, floor } => {
                format!("{times} times the usual of the hour ({} in any case)", value(floor))
            }
        });
        let limit = limit.unwrap_or_default();
        match self.metric {
            ObjectiveMetric::DelayPercentile { percent, .. } => {
                write!(f, "{percent} % of {way} delays at most {limit}")?;
            }
            ObjectiveMetric::DelayMean { .. } => write!(f, "mean {way} delay at most {limit}")?,
            ObjectiveMetric::PdvPercentile { percent, .. } => {
                write!(f, "{percent} % of {way} delays at most {limit} above the least")?;
            }
            ObjectiveMetric::IpdvPercentile { percent, .. } => {
                write!(f, "{percent} % of {way} delay variations (IPDV) at most {limit}")?;
            }
            ObjectiveMetric::LossRatio { .. } => write!(f, "{way} loss at most {limit}")?,
            ObjectiveMetric::ErroredSeconds { limit, severe, .. } => {
                let severe = if severe { "severely " } else { "" };
                write!(f, "at most {limit} {severe}errored seconds ({way})")?;
            }
            ObjectiveMetric::Availability { target_percent, .. } => {
                write!(f, "{way} availability at least {target_percent} %")?;
            }
        }
        match self.window {
            ObjectiveWindow::Fixed { length_s, .. } if length_s.is_multiple_of(60) => {
                write!(f, " in each {} min", length_s / 60)
            }
            ObjectiveWindow::Fixed { length_s, .. } => write!(f, " in each {length_s} s"),
            ObjectiveWindow::Month => f.write_str(" in each month"),
        }
    }
}

fn half() -> f64 {
    50.0
}

/// The greatest delay of an objective, ns.
const MOST_NS: f64 = 86_400e9;
/// The longest window of a fixed length, s: 31 days.
pub(super) const MOST_S: u32 = 31 * 86_400;
