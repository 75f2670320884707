//! What follows from what the judges of a subject found.

use serde_json::{Value, json};
use sonde_meter::sla::{JudgeOutput, Objective};
use sonde_results::civil_time;
use sonde_results::sla::{
    AvailabilityLabel, LossDirection, ObjectiveMonth, SlaEvent, SlaEventKind, UndecidedReason,
};
use sonde_results::units::{
    format_availability, format_count, format_duration, format_elapsed, format_share,
};

use super::burn::{self, BurnChange, BurnWatch};
use super::located::LocatedLoss;
use super::passive::is_traffic;
use super::subject::{Subject, subject_name};
use super::trouble::{JudgeFinding, Trouble, TroubleKind, event, evidence_of, evidence_text};
use super::{EndedTrouble, StationJudge, subject_labels};
use crate::alert::model::{AlertSeverity, LabelSet};

impl StationJudge {
    /// What follows from what the judges of a subject found.
    pub(super) fn conclude(&mut self, labels: &LabelSet, out: JudgeOutput) {
        for event in out.events {
            self.sla_event(labels, &event);
        }
        for month in out.months {
            self.month(labels, &month);
        }
        let Some(subject) = self.subjects.get_mut(labels) else { return };
        let burned = subject.take_burned();
        burned.into_iter().for_each(|change| self.burned(labels, &change));
        let Some(subject) = self.subjects.get_mut(labels) else { return };
        for loss in subject.located.told() {
            let happened = located_events(&self.subjects[labels], &loss);
            self.findings.extend(happened);
        }
    }

    fn sla_event(&mut self, labels: &LabelSet, sla: &SlaEvent) {
        let settings = self.settings.objectives.iter();
        let Some(judged) = settings.into_iter().find(|o| o.objective.name == sla.objective) else {
            return;
        };
        let (objective, severity) = (judged.objective.clone(), judged.severity);
        let labels = objective_labels(labels, &objective);
        let subject = subject_name(&labels);
        let end = |judge: &mut Self, kind: TroubleKind, at_ns| {
            let same = |t: &&Trouble| t.kind == kind && base(&t.labels) == labels;
            let found = judge.open.values().find(same).cloned();
            found.map(|trouble| judge.ends(trouble, at_ns, sla.known_ns)).is_some()
        };
        let at_fault = self.subjects.get(&subject_labels(&labels)).map(losing);
        let located = self.subjects.get_mut(&subject_labels(&labels)).map(|s| &mut s.located);
        match &sla.kind {
            SlaEventKind::Breach { missed, of, evidence } => {
                located.into_iter().for_each(|l| l.watch(&sla.objective, sla.at_ns));
                let title = match of {
                    1 => format!("{subject}: {objective}: missed"),
                    _ => format!(
                        "{subject}: {objective}: missed in {missed} of the last {of} windows"
                    ),
                };
                let figures = json!({
                    "objective": objective.to_string(),
                    "metric": objective.metric,
                    "missed": missed, "of": of,
                    "known_ns": sla.known_ns,
                    "window": **evidence,
                });
                let text = evidence_text(evidence);
                self.begins(TroubleKind::Breach, labels, severity, sla.at_ns, title, text, figures);
            }
            SlaEventKind::Recovery { breach_ns, duration_ns, evidence } => {
                located.into_iter().for_each(|l| l.unwatch(&sla.objective, sla.at_ns));
                let lasted = format_elapsed(*duration_ns);
                let title = match self.was_redefined(&labels, sla.at_ns) {
                    true => format!(
                        "{subject}: {objective}: not missed as it is defined since {}",
                        civil_time::plain(sla.at_ns)
                    ),
                    false => format!("{subject}: {objective}: kept again after {lasted}"),
                };
                let figures = json!({
                    "objective": objective.to_string(),
                    "breach_ns": breach_ns, "duration_ns": duration_ns,
                    "known_ns": sla.known_ns,
                    "window": **evidence,
                });
                let text = evidence_text(evidence);
                end(self, TroubleKind::Breach, sla.at_ns);
                self.happened("recovery", &labels, (sla.at_ns, sla.at_ns), title, &text, figures);
            }
            // Traffic that pauses is nothing to tell of.
            SlaEventKind::Unknown { .. } if is_traffic(&labels) => {}
            SlaEventKind::Unknown { evidence } => {
                let severity = match evidence.undecided {
                    Some(UndecidedReason::NoData | UndecidedReason::MostlyUnknown) => {
                        AlertSeverity::Warning
                    }
                    _ => AlertSeverity::Info,
                };
                let title = format!("{subject}: {objective}: cannot be judged");
                let figures = json!({
                    "objective": objective.to_string(),
                    "metric": objective.metric,
                    "known_ns": sla.known_ns,
                    "window": **evidence,
                });
                let text = evidence_text(evidence);
                self.begins(
                    TroubleKind::Unjudged,
                    labels,
                    severity,
                    sla.at_ns,
                    title,
                    text,
                    figures,
                );
            }
            SlaEventKind::Known { .. } => {
                end(self, TroubleKind::Unjudged, sla.at_ns);
            }
            SlaEventKind::Availability { label: AvailabilityLabel::Unavailable, .. } => {
                let late = located.map_or(0, |l| {
                    l.watch(&sla.objective, sla.at_ns);
                    l.late()
                });
                let rule = objective.rule();
                let title = format!("{subject} is unavailable");
                let text = match rule {
                    Some(rule) => format!(
                        "{objective}; more than {} % lost in each {}",
                        rule.loss_ratio() * 100.0,
                        format_duration(rule.interval_ns()),
                    ),
                    None => objective.to_string(),
                };
                let (lost, losses) = at_fault.unwrap_or_default();
                let text = format!("{text}{lost}");
                let text = match late {
                    0 => text,
                    late => format!("{text}; answered too late: {}", format_count(late)),
                };
                let figures = json!({
                    "objective": objective.to_string(),
                    "losses": losses,
                    "rule": rule,
                    "answered_late": late,
                    "standard": objective.standard,
                    "known_ns": sla.known_ns,
                });
                self.begins(
                    TroubleKind::Unavailable,
                    labels,
                    severity,
                    sla.at_ns,
                    title,
                    text,
                    figures,
                );
            }
            SlaEventKind::Availability {
                label: AvailabilityLabel::Available, duration_ns, ..
            } => {
                located.into_iter().for_each(|l| l.unwatch(&sla.objective, sla.at_ns));
                // What was open in between may have been available, too.
                if end(self, TroubleKind::Unavailable, sla.at_ns) {
                    let title = format!("{subject} is available again");
                    let figures = json!({"duration_ns": duration_ns, "known_ns": sla.known_ns});
                    self.happened("available", &labels, (sla.at_ns, sla.at_ns), title, "", figures);
                }
            }
            SlaEventKind::Availability { label: AvailabilityLabel::Undecided, .. } => {}
        }
    }

    /// Whether the objective of an open breach was defined in another way at `at_ns`.
    fn was_redefined(&self, labels: &LabelSet, at_ns: i64) -> bool {
        let same = |t: &&Trouble| t.kind == TroubleKind::Breach && base(&t.labels) == *labels;
        let at = |t: &Trouble| t.evidence.get(REDEFINED).and_then(Value::as_i64);
        self.open.values().find(same).and_then(at) == Some(at_ns)
    }

    /// A pair of windows fires, or is quiet again. Without data it stays as it was.
    fn burned(&mut self, labels: &LabelSet, change: &BurnChange) {
        let found = self.settings.objectives.iter().find(|o| o.objective.name == change.objective);
        let Some(objective) = found.map(|judged| judged.objective.clone()) else { return };
        let mut labels = objective_labels(labels, &objective);
        let (long, short) = (window(change.rule.long_s), window(change.rule.short_s));
        labels.insert(WINDOW.into(), long.clone());
        if !change.fires {
            let same =
                |t: &&Trouble| t.kind == TroubleKind::BudgetBurn && base(&t.labels) == labels;
            if let Some(trouble) = self.open.values().find(same).cloned() {
                self.ends(trouble, change.at_ns, change.at_ns);
            }
            return;
        }
        let rate = |rate: Option<f64>| rate.map_or("?".to_owned(), |rate| format!("{rate:.1}"));
        let (fast, now) = (rate(change.rates.0), rate(change.rates.1));
        let title = format!(
            "{}: {objective}: the error budget is spent {fast} times too fast",
            subject_name(&labels)
        );
        let text = format!(
            "{fast} times over {long}, {now} times over {short}; it alerts above {} in both",
            change.rule.factor
        );
        let figures = json!({
            "objective": objective.to_string(),
            "metric": objective.metric,
            "rule": change.rule,
            "rate_long": change.rates.0,
            "rate_short": change.rates.1,
        });
        let severity = burn::severity(&change.rule);
        let kind = TroubleKind::BudgetBurn;
        self.begins(kind, labels, severity, change.at_ns, title, text, figures);
    }

    fn month(&mut self, labels: &LabelSet, month: &ObjectiveMonth) {
        let customer = self.customer_of(&month.objective);
        self.tell_month(labels, &customer, month, month.end_ns);
    }

    /// Tells of a month to which nothing comes after `end_ns`.
    pub(super) fn tell_month(
        &mut self,
        labels: &LabelSet,
        customer: &str,
        month: &ObjectiveMonth,
        end_ns: i64,
    ) {
        let figures = serde_json::to_value(month).unwrap_or_default();
        let mut labels = labels.clone();
        labels.insert("objective".into(), month.objective.clone());
        let kept = month.windows.compliance().map_or("no window".into(), format_availability);
        let available = month.availability.low().zip(month.availability.high());
        let available =
            available.map(|range| format!(", available {}", format_availability(range)));
        let title = format!(
            "{}: month closed: {}: windows kept {kept}{}",
            month.subject,
            month.text,
            available.unwrap_or_default()
        );
        let times = (month.start_ns, end_ns);
        let figures = json!({"month": figures, "customer": customer});
        self.happened(SLA_MONTH, &labels, times, title, "", figures);
    }

    fn happened(
        &mut self,
        kind: &str,
        labels: &LabelSet,
        (begin_ns, end_ns): (i64, i64),
        title: String,
        text: &str,
        figures: Value,
    ) {
        let evidence = evidence_of(labels, text, figures);
        let event = event(kind, AlertSeverity::Info, (begin_ns, Some(end_ns)), title, evidence);
        self.findings.push(JudgeFinding::Happened { event, alert: None });
    }

    #[expect(clippy::too_many_arguments, reason = "a trouble's fields, once")]
    pub(super) fn begins(
        &mut self,
        kind: TroubleKind,
        mut labels: LabelSet,
        severity: AlertSeverity,
        starts_ns: i64,
        title: String,
        text: String,
        evidence: Value,
    ) {
        labels.insert("alertname".into(), kind.alert_name().into());
        labels.insert("severity".into(), severity.as_str().into());
        if self.open.contains_key(&labels) {
            return;
        }
        let trouble = Trouble { kind, labels, starts_ns, title, text, evidence, event: None };
        self.findings.push(JudgeFinding::Begins(trouble.clone()));
        self.open.insert(trouble.labels.clone(), trouble);
    }

    pub(super) fn ends(&mut self, trouble: Trouble, ends_ns: i64, found_ns: i64) {
        self.open.remove(&trouble.labels);
        self.findings.push(JudgeFinding::Ends(trouble.clone(), ends_ns));
        self.ended.push_back(EndedTrouble { trouble, ends_ns, found_ns });
    }
}

/// Whether a trouble is that of this pair of windows, which still fires.
pub(super) fn is_of(trouble: &Trouble, watch: &BurnWatch) -> bool {
    trouble.labels.get("objective") == Some(&watch.objective)
        && trouble.labels.get(WINDOW) == Some(&window(watch.long_s()))
        && watch.fires()
}

fn window(seconds: u32) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let unit = units.into_iter().find(|(length, _)| seconds.is_multiple_of(*length));
    unit.map_or_else(
        || format!("{seconds}s"),
        |(length, name)| format!("{}{name}", seconds / length),
    )
}

fn objective_labels(labels: &LabelSet, objective: &Objective) -> LabelSet {
    let direction = serde_json::to_value(objective.direction).ok();
    let direction = direction.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut labels = labels.clone();
    labels.insert("objective".into(), objective.name.clone());
    labels.insert("direction".into(), direction);
    labels
}

/// The labels without those that say what is wrong.
fn base(labels: &LabelSet) -> LabelSet {
    let mut labels = labels.clone();
    labels.retain(|name, _| !matches!(name.as_str(), "alertname" | "severity"));
    labels
}

/// What a subject loses now, on which side, since when, and where its probes go: as text, which
/// goes on after another, and for programs.
fn losing(subject: &Subject) -> (String, Value) {
    let mut to: Vec<String> =
        subject.members.iter().map(|m| m.info.destination.ip().to_string()).collect();
    to.sort();
    to.dedup();
    let addresses = match to.as_slice() {
        [] => String::new(),
        some if some.len() > ADDRESSES => {
            format!("; to {} and {} more", some[..ADDRESSES].join(", "), some.len() - ADDRESSES)
        }
        some => format!("; to {}", some.join(", ")),
    };
    let Some(loss) = subject.located.open_loss() else {
        return (addresses, json!({ "to": to }));
    };
    let sides = match is_mostly_late(subject.located.late(), loss.lost) {
        true => String::new(),
        false => format!(
            ": there {}, back {}, side unknown {}",
            format_count(loss.lost_forward),
            format_count(loss.lost_backward),
            format_count(loss.lost_unknown),
        ),
    };
    let text = format!(
        "; {} of {} packets lost since {}{sides}{addresses}",
        format_count(loss.lost),
        format_count(loss.sent),
        civil_time::plain(loss.start_ns),
    );
    let figures = json!({
        "to": to, "since_ns": loss.start_ns, "sent": loss.sent, "lost": loss.lost,
        "lost_forward": loss.lost_forward, "lost_backward": loss.lost_backward,
        "lost_unknown": loss.lost_unknown,
    });
    (text, figures)
}

/// Whether most of what is lost came back at last: that was lost on neither way.
fn is_mostly_late(late: u64, lost: u64) -> bool {
    late > 0 && late * 2 >= lost
}

/// Addresses of one target that a text names.
const ADDRESSES: usize = 3;

/// What an episode of losses is told as: itself, and each member that is worse than the others.
fn located_events(subject: &Subject, loss: &LocatedLoss) -> Vec<JudgeFinding> {
    let episode = &loss.episode;
    let name = subject_name(&subject.labels);
    let times = (episode.start_ns, Some(episode.end_ns));
    let tuple = |member: u32| subject.members.get(member as usize).map(|m| &m.info);
    let late = loss.late;
    let mostly_late = is_mostly_late(late, episode.lost);
    let direction = if mostly_late { LossDirection::Unknown } else { episode.direction };
    let side = match episode.direction {
        _ if mostly_late => "by the timeout",
        LossDirection::Forward => "on the way there",
        LossDirection::Backward => "on the way back",
        LossDirection::Both => "on both ways",
        LossDirection::Unknown => "on an unknown way",
    };
    let lost = |lost: u64, sent: u64| {
        let share = format_share(lost, sent);
        format!("{} of {} packets lost ({share})", format_count(lost), format_count(sent))
    };
    let title = format!(
        "{name}: {} {side}{} within {}; streams concerned: {} of {}",
        lost(episode.lost, episode.sent),
        if late > 0 {
            format!(" ({} answered too late)", format_count(late))
        } else {
            String::new()
        },
        format_elapsed(episode.length_ns()),
        episode.streams.len(),
        subject.members.len()
    );
    let streams = episode.streams.iter().take(STREAMS).map(|s| {
        let info = tuple(s.stream);
        json!({
            "source": info.map(|i| i.source), "destination": info.map(|i| i.destination),
            "dscp": info.map(|i| i.dscp), "sent": s.sent, "lost": s.lost,
        })
    });
    let streams: Vec<Value> = streams.collect();
    let figures = json!({
        "direction": direction,
        "answered_late": late,
        "sent": episode.sent, "lost": episode.lost,
        "lost_forward": episode.lost_forward, "lost_backward": episode.lost_backward,
        "lost_unknown": episode.lost_unknown,
        "streams_concerned": episode.streams.len(),
        "streams": streams,
    });
    let text = format!(
        "{}lost there {}, back {}, side unknown {}",
        match late {
            0 => String::new(),
            late => format!("answered after the timeout {}; ", format_count(late)),
        },
        format_count(episode.lost_forward),
        format_count(episode.lost_backward),
        format_count(episode.lost_unknown)
    );
    let happened = |kind, title, text: &str, figures| {
        let evidence = evidence_of(&subject.labels, text, figures);
        let event = event(kind, AlertSeverity::Warning, times, title, evidence);
        JudgeFinding::Happened { event, alert: None }
    };
    let mut all = vec![happened("located_loss", title, &text, figures)];
    for worse in loss.worse.iter().take(STREAMS) {
        let Some(info) = tuple(worse.counts.member) else { continue };
        let path = format!("{} > {}", info.source, info.destination);
        let title = format!("{name}: {path} loses more than the others of its group");
        let text = format!(
            "{}; the others: {}; p = {:.1e}",
            lost(worse.counts.lost, worse.counts.sent),
            lost(worse.others_lost, worse.others_sent),
            worse.p
        );
        let figures = json!({
            "source": info.source, "destination": info.destination, "dscp": info.dscp,
            "sent": worse.counts.sent, "lost": worse.counts.lost,
            "others_sent": worse.others_sent, "others_lost": worse.others_lost, "p": worse.p,
        });
        all.push(happened("worse_member", title, &text, figures));
    }
    all
}

/// The field of an open trouble that says when its objective was defined in another way.
pub(super) const REDEFINED: &str = "redefined_ns";
/// The kind of the event that keeps a month which has closed.
pub(crate) const SLA_MONTH: &str = "sla_month";
/// The label of a pair of windows: the long one's length.
const WINDOW: &str = "window";
/// Streams that an event names.
const STREAMS: usize = 50;
