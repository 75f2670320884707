//! The tables `[objective.NAME]` and `[maintenance.NAME]` of a station's configuration.
//!
//! ```toml
//! [objective.voice-delay]
//! match = { class = "EF" }
//! metric = "delay_percentile"
//! percent = 99
//! limit = "20ms"
//! window = "5m"
//! breach = { n = 3, m = 5 }
//!
//! [maintenance.night]
//! day = "sunday"
//! start = "02:00"
//! length = "2h"
//! ```

mod burn;
mod maintenance;

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use sonde_meter::sla::{
    AvailabilityRule, BurnRule, Objective, ObjectiveError, ObjectiveLimit, ObjectiveMetric,
    ObjectiveWindow, OutOf, Preset, SecondRule,
};
use sonde_results::sla::MeasuredDirection;
use sonde_results::units::{SECOND, format_duration, parse_duration, parse_share};
use sonde_run::error::SettingsError;

pub use self::burn::{BurnKind, BurnRates, BurnSettings};
pub use self::maintenance::{JudgedMaintenance, MaintenanceSettings};
use super::passive::fits_traffic;
use crate::alert::model::AlertSeverity;
use crate::alert::route::LabelPatterns;

/// What is promised of those that match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ObjectiveSettings {
    /// Whom it is about: patterns of `unit` (`probe.NAME`), `target` and `class`; all have to
    /// match. `*` stands for any characters, a `!` before the pattern for anything else. Where `unit`
    /// begins with `rtt.`, it is about passive round trips, and `target` is a group: "192.0.2.0/24".
    #[serde(rename = "match")]
    pub labels: LabelPatterns,
    /// For whom it was promised: monthly reports can be by customer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// The figures of a standard. A class of Y.1541 is a whole objective; the others are the rule of
    /// an availability or of errored seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// What is measured; absent: what the preset is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<ObjectiveMetricName>,
    /// Which way.
    pub direction: MeasuredDirection,
    /// Which percentile (above 0, below 100), of the metrics that are one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// The greatest value: of delays a duration ("20ms"), of loss a share ("0.1%"), of errored
    /// seconds a count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitText>,
    /// The limit is so many times what is usual at that hour (the median of the same hour of the four
    /// weeks before), 0 to 1,000; `limit` is then the value below which nothing is a breach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times_usual: Option<f64>,
    /// Alerts where the error budget is spent too fast: "usual", or pairs of windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burn_rates: Option<BurnRates>,
    /// The least availability, percent (above 0, at most 100).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_percent: Option<f64>,
    /// When time is available, or a second errored: a table of its own instead of a preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleSettings>,
    /// Only time that is available by this preset or rule counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_time: Option<NamedRule>,
    /// Only severely errored seconds count.
    pub severe: bool,
    /// Over which time it is judged: a duration, or "month". Absent: 5 min; of an availability and
    /// of errored seconds the month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowText>,
    /// How far windows begin after the grid of UTC.
    #[serde(with = "sonde_run::duration")]
    #[schemars(with = "String")]
    pub window_offset: i64,
    /// What the contract's local time is ahead of UTC: where months begin.
    #[serde(with = "offset")]
    #[schemars(with = "String")]
    pub utc_offset: i64,
    /// Windows that must miss it for a breach.
    pub breach: OutOf,
    /// Windows that must meet it for a recovery.
    pub recovery: OutOf,
    /// Samples that a window needs; absent: as many as a statement at 95 % needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_samples: Option<u64>,
    /// Share of a window that must be known, percent.
    pub least_known_percent: f64,
    /// How bad a breach is.
    pub severity: AlertSeverity,
}

/// What an objective measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectiveMetricName {
    /// A percentile of the delay.
    DelayPercentile,
    /// The mean delay.
    DelayMean,
    /// A percentile of the delay less the least (PDV).
    PdvPercentile,
    /// A percentile of the difference of neighbours (IPDV); one way only.
    IpdvPercentile,
    /// The share of packets lost.
    LossRatio,
    /// Errored seconds.
    ErroredSeconds,
    /// The share of time that is available.
    Availability,
}

/// A limit as it is written: "20ms", "0.1%", 0.001, 5.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum LimitText {
    /// With a unit.
    Text(String),
    /// Without one.
    Plain(f64),
}

/// A window as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum WindowText {
    /// So long, ns.
    Length(i64),
    /// A calendar month.
    Month,
}

/// When time is available. `interval` or `block` says which kind of rule it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuleSettings {
    /// The small interval of a sliding window (MEF 10.x).
    #[serde(with = "sonde_run::duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub interval: Option<i64>,
    /// A block of a fixed grid (ITU-T Y.1540).
    #[serde(with = "sonde_run::duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub block: Option<i64>,
    /// An interval or block is bad when more than this share is lost: "50%".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<LimitText>,
    /// Intervals in a row that decide; with `interval` only. Absent: 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// High loss intervals in a row that make a consecutive one; with `interval` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive: Option<u32>,
    /// A block with fewer packets is unknown; with `block` only. Absent: 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_packets: Option<u64>,
}

/// A rule: the name of a preset, or a table.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum NamedRule {
    /// That of a standard.
    Preset(Preset),
    /// The user's own.
    Own(RuleSettings),
}

/// What a station judges by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgeSettings {
    /// Objectives, in the order of their names.
    pub objectives: Vec<JudgedObjective>,
    /// Announced work.
    pub maintenance: Vec<JudgedMaintenance>,
}

impl JudgeSettings {
    /// For whom an objective was promised; empty: for none.
    pub fn customer_of(&self, objective: &str) -> String {
        let found = self.objectives.iter().find(|o| o.objective.name == objective);
        found.map(|o| o.customer.clone()).unwrap_or_default()
    }
}

/// An objective, and whom it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedObjective {
    /// Whom.
    pub labels: LabelPatterns,
    /// For which customer; empty: for none.
    pub customer: String,
    /// What.
    pub objective: Arc<Objective>,
    /// How bad a breach is.
    pub severity: AlertSeverity,
    /// Alerts where the error budget is spent too fast.
    pub burn_rates: Vec<BurnRule>,
    /// Percent that must be good: what it leaves is the budget.
    pub burn_target: f64,
}

impl Default for ObjectiveSettings {
    fn default() -> Self {
        ObjectiveSettings {
            labels: LabelPatterns::default(),
            customer: None,
            preset: None,
            metric: None,
            direction: MeasuredDirection::RoundTrip,
            percent: None,
            limit: None,
            times_usual: None,
            burn_rates: None,
            target_percent: None,
            rule: None,
            available_time: None,
            severe: false,
            window: None,
            window_offset: 0,
            utc_offset: 0,
            breach: OutOf::default(),
            recovery: OutOf::default(),
            least_samples: None,
            least_known_percent: 50.0,
            severity: AlertSeverity::Error,
        }
    }
}

impl ObjectiveSettings {
    /// The objectives that it stands for: one, or those of a class of Y.1541.
    ///
    /// # Errors
    /// All that is wrong with it, with the keys of this table.
    pub fn objectives(&self, name: &str) -> Result<Vec<JudgedObjective>, Vec<SettingsError>> {
        let mut errors = check_labels(&self.labels);
        let made = match self.class_of_y1541() {
            Some(preset) => self.of_class(name, preset),
            None => self.one(name).map(|one| vec![one]),
        };
        let made = made.unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        for objective in &made {
            let wrong = objective.diagnose().into_iter().map(|e| self.in_its_keys(&e));
            errors.extend(wrong);
        }
        let mut judged: Vec<JudgedObjective> = Vec::new();
        for objective in made {
            let (burn_rates, burn_target) = match burn::rules(self.burn_rates.as_ref(), &objective)
            {
                Ok(found) => found,
                Err(wrong) => {
                    errors.extend(wrong);
                    continue;
                }
            };
            judged.push(JudgedObjective {
                labels: self.labels.clone(),
                customer: self.customer.clone().unwrap_or_default(),
                objective: Arc::new(objective),
                severity: self.severity,
                burn_rates,
                burn_target,
            });
        }
        errors.extend(judged.iter().filter_map(usual_is_kept));
        if judged.iter().any(|one| one.is_of_traffic() && !fits_traffic(&one.objective)) {
            let why = "passive round trips have delays there and back alone; write delay_percentile, \
                       delay_mean or pdv_percentile, round_trip, without available_time";
            errors.push(SettingsError::new("metric", why));
        }
        match errors.is_empty() {
            true => Ok(judged),
            false => {
                errors.dedup();
                Err(errors)
            }
        }
    }

    fn class_of_y1541(&self) -> Option<Preset> {
        self.preset.filter(|preset| preset.rule().is_none())
    }

    /// The objectives of a class: its figures are those of the standard.
    fn of_class(&self, name: &str, preset: Preset) -> Result<Vec<Objective>, SettingsError> {
        let given = [
            ("metric", self.metric.is_some()),
            ("percent", self.percent.is_some()),
            ("limit", self.limit.is_some()),
            ("times_usual", self.times_usual.is_some()),
            ("target_percent", self.target_percent.is_some()),
            ("rule", self.rule.is_some()),
            ("window", self.window.is_some()),
        ];
        if let Some((key, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(SettingsError::new(key, "the preset has it; leave it out"));
        }
        let objectives = preset.objectives(self.direction);
        if objectives.is_empty() {
            let why = "this preset is of one way; write forward or backward";
            return Err(SettingsError::new("direction", why));
        }
        let available_time = self.available()?;
        let named = |objective: Objective| {
            let metric = objective.name.rsplit(' ').next().unwrap_or_default().to_owned();
            Objective { name: format!("{name} {metric}"), available_time, ..self.common(objective) }
        };
        Ok(objectives.into_iter().map(named).collect())
    }

    fn one(&self, name: &str) -> Result<Objective, SettingsError> {
        let metric = self.metric.or(self.preset.map(|_| ObjectiveMetricName::Availability));
        let Some(metric) = metric else {
            return Err(SettingsError::new(
                "metric",
                "name one: delay_percentile, delay_mean, pdv_percentile, ipdv_percentile, \
                 loss_ratio, errored_seconds, availability; or a preset",
            ));
        };
        let by_rule = matches!(
            metric,
            ObjectiveMetricName::Availability | ObjectiveMetricName::ErroredSeconds
        );
        let percentile = matches!(
            metric,
            ObjectiveMetricName::DelayPercentile
                | ObjectiveMetricName::PdvPercentile
                | ObjectiveMetricName::IpdvPercentile
        );
        let stray = [
            ("percent", self.percent.is_some() && !percentile, "only percentiles have it"),
            (
                "limit",
                self.limit.is_some() && metric == ObjectiveMetricName::Availability,
                "an availability has target_percent",
            ),
            (
                "times_usual",
                self.times_usual.is_some() && by_rule,
                "only delays and loss_ratio have it",
            ),
            (
                "target_percent",
                self.target_percent.is_some() && metric != ObjectiveMetricName::Availability,
                "only an availability has it; other metrics have limit",
            ),
            (
                "preset",
                self.preset.is_some() && !by_rule,
                "it is a rule of availability; write available_time",
            ),
            (
                "rule",
                self.rule.is_some() && !by_rule,
                "only availability and errored_seconds have one; write available_time",
            ),
            (
                "rule",
                self.rule.is_some() && self.preset.is_some(),
                "the preset has it; leave one of them out",
            ),
            (
                "severe",
                self.severe && metric != ObjectiveMetricName::ErroredSeconds,
                "only errored_seconds have it",
            ),
        ];
        if let Some((key, _, why)) = stray.into_iter().find(|(_, is, _)| *is) {
            return Err(SettingsError::new(key, why));
        }
        let metric = self.metric(metric)?;
        let window = match self.window {
            Some(WindowText::Length(ns)) => ObjectiveWindow::Fixed {
                length_s: seconds("window", ns)?,
                offset_s: seconds("window_offset", self.window_offset)?,
            },
            Some(WindowText::Month) => ObjectiveWindow::Month,
            None if by_rule => ObjectiveWindow::Month,
            None => ObjectiveWindow::Fixed {
                length_s: 300,
                offset_s: seconds("window_offset", self.window_offset)?,
            },
        };
        let objective = Objective::new(name, metric, self.direction, window);
        Ok(Objective {
            available_time: self.available()?,
            standard: self.preset.map(Preset::standard),
            ..self.common(objective)
        })
    }

    /// What all metrics have.
    fn common(&self, objective: Objective) -> Objective {
        Objective {
            utc_offset_s: i32::try_from(self.utc_offset / SECOND).unwrap_or(i32::MAX),
            breach: self.breach,
            recovery: self.recovery,
            least_samples: self.least_samples,
            least_known_percent: self.least_known_percent,
            ..objective
        }
    }

    fn metric(&self, metric: ObjectiveMetricName) -> Result<ObjectiveMetric, SettingsError> {
        let percent =
            || self.percent.ok_or_else(|| SettingsError::new("percent", "name one, as 99"));
        let delay = || match &self.limit {
            Some(LimitText::Text(text)) => parse_duration(text)
                .map(|ns| self.limit_of(ns as f64))
                .map_err(|why| SettingsError::new("limit", why)),
            None if self.times_usual.is_some() => Ok(self.limit_of(0.0)),
            _ => Err(SettingsError::new("limit", "name the greatest delay, as \"20ms\"")),
        };
        Ok(match metric {
            ObjectiveMetricName::DelayPercentile => {
                ObjectiveMetric::DelayPercentile { percent: percent()?, limit: delay()? }
            }
            ObjectiveMetricName::DelayMean => ObjectiveMetric::DelayMean { limit: delay()? },
            ObjectiveMetricName::PdvPercentile => {
                ObjectiveMetric::PdvPercentile { percent: percent()?, limit: delay()? }
            }
            ObjectiveMetricName::IpdvPercentile => {
                ObjectiveMetric::IpdvPercentile { percent: percent()?, limit: delay()? }
            }
            ObjectiveMetricName::LossRatio => {
                let share = match (&self.limit, self.times_usual) {
                    (None, Some(_)) => 0.0,
                    (limit, _) => share("limit", limit.as_ref(), "the greatest loss, as \"0.1%\"")?,
                };
                ObjectiveMetric::LossRatio { limit: self.limit_of(share) }
            }
            ObjectiveMetricName::ErroredSeconds => {
                let limit = match self.limit {
                    Some(LimitText::Plain(n))
                        if (0.0..=2_678_400.0).contains(&n) && n.fract() == 0.0 =>
                    {
                        n as u32
                    }
                    _ => {
                        let why = "name the most errored seconds, 0 to 2678400, as 60";
                        return Err(SettingsError::new("limit", why));
                    }
                };
                ObjectiveMetric::ErroredSeconds {
                    limit,
                    severe: self.severe,
                    rule: self.second_rule()?,
                }
            }
            ObjectiveMetricName::Availability => ObjectiveMetric::Availability {
                target_percent: self.target_percent.ok_or_else(|| {
                    SettingsError::new("target_percent", "name the least availability, as 99.95")
                })?,
                rule: match (self.preset.and_then(Preset::rule), &self.rule) {
                    (Some(rule), _) => rule,
                    (None, Some(rule)) => rule.rule("rule")?,
                    (None, None) => return Err(SettingsError::new("preset", NO_RULE)),
                },
            },
        })
    }

    /// A limit of its own, or one that hangs on what is usual and never lies below it.
    fn limit_of(&self, value: f64) -> ObjectiveLimit {
        match self.times_usual {
            Some(times) => ObjectiveLimit::Usual { times, floor: value },
            None => ObjectiveLimit::Fixed(value),
        }
    }

    /// When a second is errored: by the preset, or by a rule of intervals of a second.
    fn second_rule(&self) -> Result<SecondRule, SettingsError> {
        if let Some(rule) = self.preset.and_then(Preset::second_rule) {
            return Ok(rule);
        }
        match (self.preset.and_then(Preset::rule), &self.rule) {
            (Some(_), _) => Err(SettingsError::new(
                "preset",
                "it says nothing of errored seconds; write g826, or a rule",
            )),
            (None, None) => Err(SettingsError::new("preset", "write g826, or a rule")),
            (None, Some(rule)) => match rule.rule("rule")? {
                AvailabilityRule::Sliding { interval_ns: SECOND, loss_ratio, window, .. } => {
                    Ok(SecondRule { severe_ratio: loss_ratio, window, reordered: false })
                }
                _ => {
                    let why = "errored seconds have intervals of 1s; write that";
                    Err(SettingsError::new("rule.interval", why))
                }
            },
        }
    }

    fn available(&self) -> Result<Option<AvailabilityRule>, SettingsError> {
        match &self.available_time {
            None => Ok(None),
            Some(NamedRule::Own(rule)) => rule.rule("available_time").map(Some),
            Some(NamedRule::Preset(preset)) => match preset.rule() {
                Some(rule) => Ok(Some(rule)),
                None => Err(SettingsError::new("available_time", NO_RULE)),
            },
        }
    }

    /// An error of the objective, by the key that stands in this table.
    fn in_its_keys(&self, error: &ObjectiveError) -> SettingsError {
        let rule = if self.rule.is_some() { "rule." } else { "preset " };
        let key = match error.key.as_str() {
            "metric.percent" => "percent".to_owned(),
            "metric.limit.fixed" | "metric.limit.usual.floor" => "limit".into(),
            "metric.limit.usual.times" => "times_usual".into(),
            "metric.target_percent" => "target_percent".into(),
            "window.length_s" | "window.kind" => "window".into(),
            "window.offset_s" => "window_offset".into(),
            "utc_offset_s" => "utc_offset".into(),
            other => {
                match other.split_once("rule.").or_else(|| other.split_once("available_time.")) {
                    Some(("metric.", key)) => format!("{rule}{}", rule_key(key)),
                    Some((_, key)) => format!("available_time.{}", rule_key(key)),
                    None => other.to_owned(),
                }
            }
        };
        SettingsError::new(&key, &error.why)
    }
}

fn rule_key(key: &str) -> &str {
    match key {
        "interval_ns" => "interval",
        "block_ns" => "block",
        "loss_ratio" | "severe_ratio" => "loss",
        other => other,
    }
}

impl RuleSettings {
    fn rule(&self, table: &str) -> Result<AvailabilityRule, SettingsError> {
        let key = |key: &str| format!("{table}.{key}");
        let loss_ratio =
            share(&key("loss"), self.loss.as_ref(), "the loss of a bad one, as \"50%\"")?;
        let stray = |name: &str, given: bool, of: &str| match given {
            true => Err(SettingsError::new(&key(name), format!("only a rule with {of} has it"))),
            false => Ok(()),
        };
        match (self.interval, self.block) {
            (Some(interval_ns), None) => {
                stray("least_packets", self.least_packets.is_some(), "block")?;
                Ok(AvailabilityRule::Sliding {
                    interval_ns,
                    loss_ratio,
                    window: self.window.unwrap_or(10),
                    consecutive: self.consecutive,
                })
            }
            (None, Some(block_ns)) => {
                stray("window", self.window.is_some(), "interval")?;
                stray("consecutive", self.consecutive.is_some(), "interval")?;
                Ok(AvailabilityRule::Blocks {
                    block_ns,
                    offset_ns: 0,
                    loss_ratio,
                    least_packets: self.least_packets.unwrap_or(1_000),
                })
            }
            _ => Err(SettingsError::new(table, "write interval or block, one of them")),
        }
    }
}

/// Whether the store can say what is usual: it keeps no buckets of round trips with the dwell.
fn usual_is_kept(judged: &JudgedObjective) -> Option<SettingsError> {
    let metric = &judged.objective.metric;
    let wants = metric.limit().is_some_and(|limit| limit.is_usual()) && metric.percent().is_some();
    let with_dwell = judged.objective.direction == MeasuredDirection::RoundTrip;
    (wants && with_dwell && !judged.is_of_traffic()).then(|| {
        let why = "of round trips with the reflector's dwell no percentile is kept, so that none is \
                   usual; write round_trip_net, forward or backward";
        SettingsError::new("direction", why)
    })
}

fn check_labels(labels: &LabelPatterns) -> Vec<SettingsError> {
    let unknown = labels.0.keys().filter(|name| !LABELS.contains(&name.as_str()));
    let wrong = |name: &String| {
        let why = format!("there is no such label; there are {}", LABELS.join(", "));
        SettingsError::new(&format!("match.{name}"), why)
    };
    unknown.map(wrong).collect()
}

fn share(key: &str, text: Option<&LimitText>, wanted: &str) -> Result<f64, SettingsError> {
    let text = match text {
        None => return Err(SettingsError::new(key, format!("name {wanted}"))),
        Some(LimitText::Text(text)) => text.clone(),
        Some(LimitText::Plain(share)) => share.to_string(),
    };
    parse_share(&text, 1.0).map_err(|why| SettingsError::new(key, why))
}

fn seconds(key: &str, ns: i64) -> Result<u32, SettingsError> {
    let whole = (ns % SECOND == 0).then(|| u32::try_from(ns / SECOND).ok()).flatten();
    whole.ok_or_else(|| {
        let why = format!("{} are no whole seconds; write \"5m\" or the like", format_duration(ns));
        SettingsError::new(key, why)
    })
}

impl LimitText {
    /// As a text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            LimitText::Text(text) => Some(text),
            LimitText::Plain(_) => None,
        }
    }
}

impl From<WindowText> for String {
    fn from(window: WindowText) -> String {
        match window {
            WindowText::Length(ns) => format_duration(ns),
            WindowText::Month => "month".into(),
        }
    }
}

impl JsonSchema for WindowText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WindowText".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for WindowText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        match text.as_str() {
            "month" => Ok(WindowText::Month),
            text => parse_duration(text)
                .map(WindowText::Length)
                .map_err(|why| de::Error::custom(format!("{why}, or \"month\""))),
        }
    }
}

impl<'de> Deserialize<'de> for NamedRule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NameOrTable)
    }
}

struct NameOrTable;

impl<'de> Visitor<'de> for NameOrTable {
    type Value = NamedRule;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a preset, as \"mef_10\", or a table with interval or block")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<NamedRule, E> {
        Preset::deserialize(de::value::StrDeserializer::new(name)).map(NamedRule::Preset)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NamedRule, A::Error> {
        RuleSettings::deserialize(MapAccessDeserializer::new(map)).map(NamedRule::Own)
    }
}

/// Durations that may be negative: "-5h".
mod offset {
    use super::{Deserialize, Deserializer, de, format_duration, parse_duration};
    use serde::Serializer;

    pub fn serialize<S: Serializer>(ns: &i64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format_duration(*ns))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
        let text = String::deserialize(from)?;
        let (sign, length) = match text.strip_prefix('-') {
            Some(length) => (-1, length),
            None => (1, text.as_str()),
        };
        let ns = parse_duration(length).map_err(de::Error::custom)?;
        match ns % super::SECOND {
            0 => Ok(sign * ns),
            _ => Err(de::Error::custom(format!("'{text}' is no whole second; write \"1h\""))),
        }
    }
}

/// Labels of whom is judged.
pub const LABELS: [&str; 4] = ["station", "unit", "target", "class"];

const NO_RULE: &str = "write y1540_75_percent_5_min, y1540_20_percent_1_min, y1563, g826 or mef_10, \
                       or a table with interval or block";

#[cfg(test)]
mod tests;
