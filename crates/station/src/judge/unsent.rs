//! Targets that are not measured: none of their probes leaves, or there is nobody to send to.
//!
//! Nothing was sent, so that nothing was lost: by ITU-T Y.1540 and RFC 2678 such time is neither
//! available nor unavailable, and stays unknown. But people have to know, and why.

use std::collections::{BTreeMap, VecDeque};

use serde_json::json;
use sonde_meter::sla::TimeRange;
use sonde_results::Interval;
use sonde_results::sla::OWN_REASONS;
use sonde_wire::NotSent;

use super::subject::{Subject, subject_name};
use super::trouble::{Trouble, TroubleKind};
use super::{StationJudge, subject_labels};
use crate::alert::model::{AlertSeverity, LabelSet};
use crate::plan::UnitId;

/// Whether probes of a stream leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unsent {
    /// Since when none does, ns since 1970 UTC, and why.
    since: Option<(i64, NotSent)>,
    /// Up to where that is known.
    until_ns: i64,
    /// Begin of the last record of which some did.
    sent_ns: Option<i64>,
}

impl Unsent {
    /// Takes a record.
    pub fn note(&mut self, record: &Interval) {
        let c = &record.counters;
        if c.sent > 0 {
            (self.since, self.sent_ns) = (None, Some(record.start_ns));
        } else if c.skipped > 0 {
            let most = c.not_sent.iter().max_by_key(|(_, n)| *n);
            let why = most.map_or(NotSent::Other, |(why, _)| why);
            // Another's fault is another trouble.
            let alike = |(_, before): &(i64, NotSent)| is_own(*before) == is_own(why);
            let since = self.since.filter(alike).map_or(record.start_ns, |(since, _)| since);
            (self.since, self.until_ns) = (Some((since, why)), record.end_ns);
        }
    }
}

/// Times in which some target of a unit answered, joined where they meet.
#[derive(Debug, Default)]
pub(super) struct AnsweredTimes(VecDeque<TimeRange>);

impl AnsweredTimes {
    /// Takes a record.
    pub fn note(&mut self, record: &Interval) {
        if record.counters.received == 0 {
            return;
        }
        let (start_ns, end_ns) = (record.start_ns, record.end_ns);
        let mut near = self.0.iter_mut().rev();
        match near.find(|r| r.start_ns <= end_ns && start_ns <= r.end_ns) {
            Some(range) => {
                range.start_ns = range.start_ns.min(start_ns);
                range.end_ns = range.end_ns.max(end_ns);
            }
            None => self.0.push_back(TimeRange { start_ns, end_ns }),
        }
        if self.0.len() > ANSWERED {
            self.0.pop_front();
        }
    }

    /// Whether another target answered in this time. Records of one time come one after another: one
    /// that answered just before counts, unless it may be the target itself, which answered last until
    /// `own_ns`.
    pub fn about(&self, range: TimeRange, own_ns: i64) -> bool {
        let before_ns = range.start_ns - range.length_ns();
        let from_ns = if own_ns > before_ns { range.start_ns } else { before_ns };
        self.0.iter().rev().any(|r| r.start_ns < range.end_ns && from_ns < r.end_ns)
    }
}

impl StationJudge {
    /// Targets of a unit of which nothing leaves for some time are told, until something does.
    pub(super) fn tell_unsent(&mut self) {
        let mut silent: BTreeMap<LabelSet, (i64, NotSent)> = BTreeMap::new();
        for (labels, subject) in &self.subjects {
            let Some((since, why)) = unsent_of(subject) else { continue };
            let longest = silent.entry(whom(labels, why)).or_insert((since, why));
            *longest = (*longest).min((since, why));
        }
        let over: Vec<(Trouble, i64)> = self
            .open
            .values()
            .filter(|t| t.kind == TroubleKind::NotSent && !silent.contains_key(&unlabelled(t)))
            .filter_map(|t| Some((t.clone(), self.sent_again(t)?)))
            .collect();
        for (trouble, at_ns) in over {
            self.ends(trouble, at_ns, at_ns);
        }
        for (labels, (since_ns, why)) in silent {
            let title = match labels.contains_key("target") {
                true => format!("{}: nothing could be sent: {}", subject_name(&labels), why.text()),
                false => format!(
                    "{}: nothing could be sent to some targets: {}, which is this host's own doing",
                    labels.get("unit").map_or("", String::as_str),
                    why.text()
                ),
            };
            let text =
                "nothing is known of this time: it is neither available nor unavailable".into();
            let figures = json!({"not_sent": why.name()});
            let kind = TroubleKind::NotSent;
            self.begins(kind, labels, AlertSeverity::Error, since_ns, title, text, figures);
        }
    }

    /// When something left again to one of those that a trouble is about, or another reason began for
    /// which nothing does; `None`: it lasts.
    fn sent_again(&self, trouble: &Trouble) -> Option<i64> {
        let labels = unlabelled(trouble);
        let of_it = |l: &LabelSet| labels.iter().all(|(name, value)| l.get(name) == Some(value));
        let mut first = None::<i64>;
        for (subject, Subject { members, .. }) in self.subjects.iter().filter(|(l, _)| of_it(l)) {
            for member in members.iter().filter(|member| !member.ended) {
                let at_ns = match member.unsent.since {
                    Some((_, why)) if whom(subject, why) == labels => return None,
                    Some((since_ns, _)) => Some(since_ns),
                    None => member.unsent.sent_ns,
                };
                let at_ns = at_ns.filter(|at| *at >= trouble.starts_ns);
                first = first.into_iter().chain(at_ns).min();
            }
        }
        first
    }

    /// The unit does not measure these targets, and says why: all of them.
    pub(super) fn left_out(&mut self, id: &UnitId, left_out: &[(String, String)], now_ns: i64) {
        let is_left_out = |trouble: &&Trouble| {
            trouble.kind == TroubleKind::NotMeasured
                && trouble.labels.get("unit").is_some_and(|unit| unit == id.as_str())
        };
        let of_target = |trouble: &Trouble, name: &str| {
            trouble.labels.get("target").is_some_and(|target| target == name)
        };
        let open = self.open.values().filter(is_left_out);
        let over = open.filter(|t| !left_out.iter().any(|(name, _)| of_target(t, name)));
        let over: Vec<Trouble> = over.cloned().collect();
        over.into_iter().for_each(|trouble| self.ends(trouble, now_ns, now_ns));
        for (target, why) in left_out {
            let labels =
                [("station", self.station.as_str()), ("unit", id.as_str()), ("target", target)];
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let title = format!("{id} does not measure {target}: {why}");
            let text = "it is tried again, after a minute at most each time".to_owned();
            let figures = json!({"reason": why});
            let severity = AlertSeverity::Warning;
            let kind = TroubleKind::NotMeasured;
            self.begins(kind, labels.into(), severity, now_ns, title, text, figures);
        }
    }
}

/// Since when nothing leaves to a subject, and why, if that is for long.
fn unsent_of(subject: &Subject) -> Option<(i64, NotSent)> {
    let mut first = None::<(i64, NotSent)>;
    let mut until_ns = i64::MIN;
    for member in subject.members.iter().filter(|member| !member.ended) {
        // One that sends is enough.
        let (since, why) = member.unsent.since?;
        until_ns = until_ns.max(member.unsent.until_ns);
        first = Some(first.map_or((since, why), |first| first.max((since, why))));
    }
    first.filter(|(since, _)| until_ns - since >= TOLD_NS)
}

fn is_own(why: NotSent) -> bool {
    OWN_REASONS.contains(&why)
}

/// Whom it is told of: what is this host's own doing concerns the whole unit.
fn whom(labels: &LabelSet, why: NotSent) -> LabelSet {
    let mut labels = subject_labels(labels);
    if is_own(why) {
        labels.retain(|name, _| name != "target" && name != "class");
    }
    labels
}

/// The labels of a trouble without those that say what is wrong.
fn unlabelled(trouble: &Trouble) -> LabelSet {
    subject_labels(&trouble.labels)
}

/// After so long without a probe that left people are told, ns: as after so long without an answer.
const TOLD_NS: i64 = 10_000_000_000;
/// Times of answers of a unit that are remembered.
const ANSWERED: usize = 256;
