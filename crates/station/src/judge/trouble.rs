//! What the judge finds: troubles that begin and end, and things that happened.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sonde_results::civil_time;
use sonde_results::sla::{BoundSense, Evidence, ObjectiveUnit, UndecidedReason};
use sonde_results::units::{format_count, format_duration, format_ns, format_percent};
use sonde_store::{EventSeverity, StoredEvent};

use crate::alert::model::{Alert, AlertSeverity, LabelSet, severity_of};
use crate::alert::silence::Mute;

/// Something that is wrong, from its begin on. Two of the same labels are the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trouble {
    /// What is wrong.
    pub kind: TroubleKind,
    /// Whom it is about; `alertname` and `severity` are among them.
    pub labels: LabelSet,
    /// When it began, ns since 1970 UTC.
    pub starts_ns: i64,
    /// One line for people.
    pub title: String,
    /// What it was concluded from, in one line for people.
    pub text: String,
    /// The same, for programs.
    pub evidence: Value,
    /// The number of its event in the store; `None`: it has none yet.
    pub event: Option<u64>,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TroubleKind {
    /// An objective is breached.
    Breach,
    /// Time is unavailable by the rule of an objective.
    Unavailable,
    /// An error budget is spent too fast.
    BudgetBurn,
    /// The data decide nothing of an objective.
    Unjudged,
    /// All that a unit measures is left out, because the station doubts itself.
    StationDoubt,
    /// No probe to a target leaves this host.
    NotSent,
    /// A target is not measured: its name does not resolve, or there was never a way to it.
    NotMeasured,
    /// A unit failed, is refused or is stuck. Its events are those of the supervisor's notices.
    UnitFailed,
}

/// What the judge found.
#[derive(Clone, Debug, PartialEq)]
pub enum JudgeFinding {
    /// A trouble begins, or lasts after a restart.
    Begins(Trouble),
    /// It has ended at this instant, ns since 1970 UTC.
    Ends(Trouble, i64),
    /// Something happened that does not last.
    Happened {
        /// For the store.
        event: StoredEvent,
        /// For people who are told of it.
        alert: Option<Alert>,
    },
    /// Announced work has begun: nobody is told of those that it is about.
    Muted(Mute),
    /// For the log.
    Warning(String),
}

impl TroubleKind {
    /// Those whose events the judge keeps.
    pub const KEPT: [TroubleKind; 7] = [
        TroubleKind::Breach,
        TroubleKind::Unavailable,
        TroubleKind::BudgetBurn,
        TroubleKind::Unjudged,
        TroubleKind::StationDoubt,
        TroubleKind::NotSent,
        TroubleKind::NotMeasured,
    ];

    /// As events are called.
    pub fn name(self) -> &'static str {
        match self {
            TroubleKind::Breach => "breach",
            TroubleKind::Unavailable => "unavailable",
            TroubleKind::BudgetBurn => "budget_burn",
            TroubleKind::Unjudged => "unjudged",
            TroubleKind::StationDoubt => "station_doubt",
            TroubleKind::NotSent => "not_sent",
            TroubleKind::NotMeasured => "target_left_out",
            TroubleKind::UnitFailed => "unit_failed",
        }
    }

    /// As alerts are called.
    pub fn alert_name(self) -> &'static str {
        match self {
            TroubleKind::Breach => "ObjectiveBreached",
            TroubleKind::Unavailable => "Unavailable",
            TroubleKind::BudgetBurn => "ErrorBudgetBurns",
            TroubleKind::Unjudged => "ObjectiveNotJudged",
            TroubleKind::StationDoubt => "StationDoubtsItself",
            TroubleKind::NotSent => "NothingSent",
            TroubleKind::NotMeasured => "TargetNotMeasured",
            TroubleKind::UnitFailed => "UnitFailed",
        }
    }

    /// Whether the judge keeps events of it.
    pub fn is_kept(self) -> bool {
        TroubleKind::KEPT.contains(&self)
    }
}

impl Trouble {
    /// As an event that lasts.
    pub fn to_event(&self) -> StoredEvent {
        let severity = severity_of(&self.labels);
        event(
            self.kind.name(),
            severity,
            (self.starts_ns, None),
            self.title.clone(),
            self.with_labels(),
        )
    }

    /// As an alert that lasts, or has ended.
    pub fn to_alert(&self, ends_ns: Option<i64>) -> Alert {
        Alert {
            labels: self.labels.clone(),
            annotations: [("summary".to_owned(), self.title.clone())].into(),
            starts_ns: self.starts_ns,
            ends_ns: ends_ns.map(|end| end.max(self.starts_ns)),
            evidence: self.text.clone(),
            link: None,
        }
    }

    fn with_labels(&self) -> Value {
        evidence_of(&self.labels, &self.text, self.evidence.clone())
    }
}

/// Evidence as all events of the judge have it: the labels, a line for people, and the figures.
pub(super) fn evidence_of(labels: &LabelSet, text: &str, figures: Value) -> Value {
    let mut all = json!({"labels": labels, "text": text});
    if let (Some(all), Value::Object(figures)) = (all.as_object_mut(), figures) {
        all.extend(figures);
    }
    all
}

/// An event that began and ended at these instants, ns since 1970 UTC.
pub(super) fn event(
    kind: &str,
    severity: AlertSeverity,
    (begin_ns, end_ns): (i64, Option<i64>),
    title: String,
    evidence: Value,
) -> StoredEvent {
    let severity = match severity {
        AlertSeverity::Info => EventSeverity::Info,
        AlertSeverity::Warning => EventSeverity::Warning,
        AlertSeverity::Error | AlertSeverity::Critical => EventSeverity::Critical,
    };
    StoredEvent { kind: kind.into(), severity, series: None, begin_ns, end_ns, title, evidence }
}

/// What a window was judged by: value against bound, samples, time, doubts.
pub(super) fn evidence_text(evidence: &Evidence) -> String {
    let value = |v: f64| match evidence.unit {
        ObjectiveUnit::Nanoseconds => format_ns(v),
        ObjectiveUnit::Ratio => format_percent(v),
        ObjectiveUnit::Seconds => format!("{v} s"),
    };
    let measured = match (evidence.low, evidence.high) {
        (Some(low), Some(high)) if value(low) == value(high) => value(low),
        (Some(low), Some(high)) => format!("{} to {}", value(low), value(high)),
        _ => "nothing".to_owned(),
    };
    let beyond = evidence.limit_ns.map(|limit| format!(" beyond {}", format_ns(limit)));
    let side = match evidence.sense {
        BoundSense::AtMost => "at most",
        BoundSense::AtLeast => "at least",
    };
    let bound =
        evidence.bound.map_or("unknown".to_owned(), |bound| format!("{side} {}", value(bound)));
    let mut text = format!(
        "{measured}{}, wanted {bound}; n = {}; from {} for {}",
        beyond.unwrap_or_default(),
        format_count(evidence.samples),
        civil_time::plain(evidence.start_ns),
        format_duration(evidence.end_ns - evidence.start_ns),
    );
    if let Some(why) = evidence.undecided {
        text += match why {
            UndecidedReason::NoData => "; there is no data",
            UndecidedReason::MostlyUnknown => "; too little of it is known",
            UndecidedReason::TooFewSamples => "; too few samples",
            UndecidedReason::NoUsual => "; what is usual is not known",
            UndecidedReason::AvailabilityOpen => "; it hangs on time of open availability",
            UndecidedReason::LimitInRange => "; the limit lies within what is known",
        };
        if why == UndecidedReason::TooFewSamples {
            text += &format!(", {} are needed", format_count(evidence.least_samples));
        }
    }
    for (count, what) in [
        (evidence.unknown, "without data"),
        (evidence.unavailable, "unavailable"),
        (evidence.excluded, "left out"),
    ] {
        if count > 0 {
            text += &format!("; intervals {what}: {}", format_count(count));
        }
    }
    let caveats: Vec<&str> = evidence.caveats.iter().map(|caveat| caveat.text()).collect();
    match caveats.is_empty() {
        true => text,
        false => format!("{text}; doubts: {}", caveats.join(", ")),
    }
}
