//! An explanation as it is kept with its event, and shown.

use serde::{Deserialize, Serialize};
use sonde_api::events::{EventExplanation, ExplanationCandidate, ExplanationGrade};
use sonde_api::instant::UtcInstant;
use sonde_meter::explain::{
    Answer, Cause, CauseKind, EvidenceKind, ExplainGrade, Question, SampleCounts, label_name,
    name_of_set, sentences,
};
use sonde_results::sla::LossDirection;
use sonde_results::units::{format_count, format_number};
use sonde_store::StoredEvent;
use sonde_store::query::BadSampleWindow;

use super::about::SubjectMeasure;
use super::due::{DueCounts, OwnFault};
use super::flows::GrownFlow;
use super::{ExplainTimes, Seen};

/// What explains an event, as its evidence has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptExplanation {
    /// How far it can be relied on.
    pub grade: ExplainGrade,
    /// When the excess began, ns since 1970 UTC.
    pub onset_ns: i64,
    /// Up to here it was looked at, ns since 1970 UTC.
    pub to_ns: i64,
    /// Begin of the time that it was held against, ns since 1970 UTC.
    pub before_from_ns: i64,
    /// End of that.
    pub before_to_ns: i64,
    /// So many windows were in that time.
    pub windows: usize,
    /// Series that were looked at.
    pub series: usize,
    /// Bad samples in excess of what was usual.
    pub excess: f64,
    /// When it was computed, ns since 1970 UTC.
    pub computed_ns: i64,
    /// In sentences, the most important first.
    pub text: Vec<String>,
    /// What explains it, the best first: at most 3.
    pub causes: Vec<KeptCause>,
    /// What fits next best instead of the first.
    pub next: Vec<KeptCause>,
    /// Labels that are as before, in sentences.
    pub acquitted: Vec<String>,
}

/// A set of series that explains an excess.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptCause {
    /// All its names.
    pub names: Vec<String>,
    /// The kind of fault, if that is known.
    pub kind: Option<CauseKind>,
    /// Share of the excess, about 0 to 1.
    pub coverage: f64,
    /// Share of its series that are affected; `None`: none has samples enough to show it.
    pub purity: Option<f64>,
    /// Inside, in the time of the fault.
    pub inside: SampleCounts,
    /// Elsewhere.
    pub outside: SampleCounts,
    /// Inside, before.
    pub before: SampleCounts,
    /// How many series it has.
    pub series: usize,
    /// On which side its packets were lost; `None`: the event is about no losses.
    pub direction: Option<LossDirection>,
    /// What other instruments saw of it, in sentences.
    pub evidence: Vec<String>,
}

/// What is told.
pub(super) struct Explained<'a> {
    pub question: &'a Question,
    pub answer: &'a Answer,
    pub times: &'a ExplainTimes,
    pub seen: &'a Seen,
    pub flows: &'a [GrownFlow],
    pub others: &'a [StoredEvent],
    pub measure: &'a SubjectMeasure,
    /// Windows before that it is held against.
    pub windows: usize,
    /// Of an event that says that nothing could be judged.
    pub due: Option<&'a DueCounts>,
    /// The event says more of the station than of the network.
    pub own_fault: Option<&'a OwnFault>,
    pub now_ns: i64,
}

/// What is kept of an answer.
pub(super) fn explanation(of: &Explained<'_>) -> KeptExplanation {
    let Explained { question, answer, times, .. } = of;
    let cause = |cause: &Cause| of.cause(cause);
    let mut kept = KeptExplanation {
        grade: answer.grade,
        onset_ns: times.during.from_ns,
        to_ns: times.during.to_ns,
        before_from_ns: times.before.from_ns,
        before_to_ns: times.before.to_ns,
        windows: of.windows,
        series: question.series.len(),
        excess: if question.series.is_empty() { 0.0 } else { answer.excess },
        computed_ns: of.now_ns,
        text: sentences(question, answer),
        causes: answer.causes.iter().map(cause).collect(),
        next: answer.next.iter().map(cause).collect(),
        acquitted: answer
            .acquitted
            .iter()
            .map(|&(label, counts)| {
                let (bad, n) = (format_count(counts.bad), format_count(counts.n));
                format!("{} ({bad} of {n})", label_name(question, label))
            })
            .collect(),
    };
    if let Some(fault) = of.own_fault {
        kept.grade = ExplainGrade::CannotJudge;
        kept.text = vec![fault.sentence.clone()];
        kept.next = std::mem::replace(&mut kept.causes, vec![of.own_cause(fault)]);
        kept.next.truncate(3);
        if let Some(due) = of.due {
            (kept.onset_ns, kept.to_ns) = (due.span.from_ns, due.span.to_ns);
        }
    } else if of.seen.subject.n == 0 {
        kept.grade = ExplainGrade::Silent;
        kept.text = vec!["Nothing was measured in that time: there is nothing to explain.".into()];
        (kept.causes, kept.next, kept.acquitted) = (Vec::new(), Vec::new(), Vec::new());
    } else if of.windows == 0 {
        kept.text =
            vec![match times.windows {
            0 => "Nothing was measured before: there is nothing to hold it against.".into(),
            _ => "All that was measured before missed the objective, too: there is nothing to hold \
                  it against."
                .into(),
        }];
    } else if let Some(side) = kept.causes.first().and_then(|first| of.side_sentence(first)) {
        kept.text.insert(1.min(kept.text.len()), side);
    }
    kept.text.extend(of.notes());
    kept
}

impl Explained<'_> {
    fn cause(&self, cause: &Cause) -> KeptCause {
        let names = cause.names.iter().map(|name| name_of_set(self.question, name)).collect();
        let sum = self.sum_of(cause);
        KeptCause {
            names,
            kind: cause.kind,
            coverage: cause.coverage,
            purity: cause.purity,
            inside: cause.inside,
            outside: cause.outside,
            before: cause.before,
            series: cause.series,
            direction: match self.measure {
                SubjectMeasure::Loss(_) => Some(side_of(&sum)),
                SubjectMeasure::Delay { .. } => None,
            },
            evidence: cause.evidence.iter().map(|e| self.evidence(&e.kind)).collect(),
        }
    }

    /// The samples of the series of a cause.
    fn sum_of(&self, cause: &Cause) -> BadSampleWindow {
        let name: &[usize] = cause.names.first().map_or(&[], Vec::as_slice);
        let mut sum = BadSampleWindow::default();
        for (series, own) in self.question.series.iter().zip(&self.seen.sums) {
            if name.iter().all(|label| series.labels.contains(label)) {
                sum.add(own);
            }
        }
        sum
    }

    fn evidence(&self, kind: &EvidenceKind) -> String {
        let mbit = |bps: f64| format!("{:.1}", bps / 1e6);
        match kind {
            EvidenceKind::Late => "The station was late itself in most of it.".into(),
            EvidenceKind::Route => "Its route changed at that time.".into(),
            EvidenceKind::Address => "Its address changed at that time.".into(),
            EvidenceKind::Drops { before, now } => format!(
                "It dropped {} packets a second for want of room, and {} before.",
                format_number(*now),
                format_number(*before)
            ),
            EvidenceKind::Errors => "Damaged frames or drops were counted there.".into(),
            EvidenceKind::Filled { before, now } => {
                format!("It went from {:.0}% to {:.0}% of its rate.", before * 100.0, now * 100.0)
            }
            EvidenceKind::GrownFlow { flow, before_bps, now_bps } => {
                format!("Flow {flow} grew from {} to {} Mbit/s.", mbit(*before_bps), mbit(*now_bps))
            }
        }
    }

    fn side_sentence(&self, first: &KeptCause) -> Option<String> {
        let sum = self.sum_of(self.answer.causes.first()?);
        let unknown = sum.lost.saturating_sub(sum.lost_forward + sum.lost_backward);
        let (there, back) = (format_count(sum.lost_forward), format_count(sum.lost_backward));
        let open = match unknown {
            0 => String::new(),
            n => format!(", side unknown {}", format_count(n)),
        };
        Some(match first.direction? {
            _ if sum.lost == 0 => return None,
            LossDirection::Forward => {
                format!("Its packets were lost on the way there: there {there}, back {back}{open}.")
            }
            LossDirection::Backward => {
                format!("Its packets were lost on the way back: there {there}, back {back}{open}.")
            }
            LossDirection::Both => {
                format!("Its packets were lost on both ways: there {there}, back {back}{open}.")
            }
            LossDirection::Unknown => "On which way its packets were lost is not known.".into(),
        })
    }

    fn own_cause(&self, fault: &OwnFault) -> KeptCause {
        let sum = self.due.map_or(&self.seen.subject, |due| &due.sum);
        let own = self.question.own.first().map(|own| label_name(self.question, own.label));
        let name = fault.name.clone().or(own).unwrap_or_else(|| "the station".into());
        KeptCause {
            names: vec![name],
            kind: fault.kind,
            coverage: fault.share,
            purity: None,
            inside: SampleCounts { n: sum.doubtful_n, bad: sum.doubtful_bad },
            outside: SampleCounts { n: sum.n - sum.doubtful_n, bad: sum.bad - sum.doubtful_bad },
            before: SampleCounts::default(),
            series: self.question.series.len(),
            direction: None,
            evidence: vec![fault.evidence.clone()],
        }
    }

    /// What else was seen at that time.
    fn notes(&self) -> Vec<String> {
        let said = |flow: &&GrownFlow| {
            let of_cause = self.answer.causes.iter().flat_map(|cause| &cause.evidence);
            !of_cause.into_iter().any(|e| match &e.kind {
                EvidenceKind::GrownFlow { flow: name, .. } => *name == flow.name,
                _ => false,
            })
        };
        let flows = self.flows.iter().filter(said).map(GrownFlow::sentence);
        let events = self.others.iter().take(5).map(|e| format!("At that time: {}.", e.title));
        flows.chain(events).collect()
    }
}

impl KeptExplanation {
    /// As the API shows it, of the event of that number.
    pub fn to_api(&self, event: &str) -> EventExplanation {
        EventExplanation {
            event: event.into(),
            onset: UtcInstant::from_ns(self.onset_ns),
            to: UtcInstant::from_ns(self.to_ns),
            baseline_from: UtcInstant::from_ns(self.before_from_ns),
            baseline_to: UtcInstant::from_ns(self.before_to_ns),
            baseline_windows: self.windows as u64,
            series: self.series as u64,
            computed: UtcInstant::from_ns(self.computed_ns),
            grade: match self.grade {
                ExplainGrade::Strong => ExplanationGrade::Strong,
                ExplainGrade::Leaning => ExplanationGrade::Leaning,
                ExplainGrade::Silent => ExplanationGrade::None,
                ExplainGrade::CannotJudge => ExplanationGrade::CannotJudge,
            },
            text: self.text.clone(),
            candidates: self.causes.iter().map(KeptCause::to_api).collect(),
            next: self.next.iter().map(KeptCause::to_api).collect(),
            acquitted: self.acquitted.clone(),
        }
    }
}

impl KeptCause {
    fn to_api(&self) -> ExplanationCandidate {
        ExplanationCandidate {
            names: self.names.clone(),
            kind: self
                .kind
                .and_then(|kind| serde_json::to_value(kind).ok()?.as_str().map(str::to_owned)),
            coverage: self.coverage,
            purity: self.purity,
            inside_ratio: self.inside.ratio(),
            inside_n: self.inside.n,
            outside_ratio: self.outside.ratio(),
            outside_n: self.outside.n,
            before_ratio: self.before.ratio(),
            series: self.series as u64,
            direction: self.direction,
            evidence: self.evidence.clone(),
        }
    }
}

/// On which side most of the losses are: a tenth may be on the other one.
fn side_of(sum: &BadSampleWindow) -> LossDirection {
    let (there, back) = (sum.lost_forward, sum.lost_backward);
    match there + back {
        known if known * 2 < sum.lost || known == 0 => LossDirection::Unknown,
        known if there * 10 >= known * 9 => LossDirection::Forward,
        known if back * 10 >= known * 9 => LossDirection::Backward,
        _ => LossDirection::Both,
    }
}

pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
