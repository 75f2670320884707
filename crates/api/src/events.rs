//! What happened: breaches, recoveries, changes of route, trouble of instruments; and what
//! explains it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::caveat::CaveatSet;
use sonde_results::sla::{self, BoundSense, ObjectiveUnit, ObjectiveVerdict, UndecidedReason};

use crate::Asked;
use crate::instant::{GivenInstant, QueryRange, UtcInstant};
use crate::page::{ListPage, PageRequest};
use crate::problem::{ProblemDetails, ProblemKind};
use crate::request::ChangeContext;
use crate::route::{ApiRoute, RouteHead, list_params};

/// What happened, and why.
pub trait Events {
    /// Those that are asked for, the newest first.
    fn events(
        &self,
        ask: &EventsQuery,
        page: &PageRequest,
    ) -> Result<ListPage<EventEntry>, ProblemDetails>;

    /// One of them with its evidence.
    fn event(&self, id: &str) -> Result<EventDetail, ProblemDetails>;

    /// Somebody takes care of it. Once more by the same one changes its note.
    fn acknowledge(
        &self,
        id: &str,
        order: &AcknowledgeOrder,
        change: &ChangeContext<'_>,
    ) -> Result<EventDetail, ProblemDetails>;

    /// Nobody takes care of it any more.
    fn unacknowledge(&self, id: &str, change: &ChangeContext<'_>) -> Result<(), ProblemDetails>;

    /// What changed most at its time.
    fn explain(&self, id: &str) -> Result<EventExplanation, ProblemDetails>;
}

/// An event in the list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EventEntry {
    /// Its id.
    pub id: String,
    /// What it is: `breach`, `availability`, `route_change`, `unit_failed`. More kinds may come.
    pub kind: String,
    /// How grave it is.
    pub grade: EventGrade,
    /// What it is about: a target, class, group or unit.
    pub subject: String,
    /// The objective, of those that are about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// One line for people.
    pub title: String,
    /// When it began: of an unavailability the first bad interval, which was known later.
    pub begin: UtcInstant,
    /// When it was certain.
    pub known: UtcInstant,
    /// When it ended; absent: it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<UtcInstant>,
    /// When all was well last; absent: never, or not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good: Option<UtcInstant>,
    /// The series concerned.
    pub series: Vec<u32>,
    /// Who takes care of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<EventAcknowledgement>,
    /// The station doubts itself at that time: nothing is concluded from it.
    pub doubtful: bool,
}

/// How grave an event is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EventGrade {
    /// Good to know.
    Info,
    /// Worth a look.
    Warning,
    /// Something is broken.
    Critical,
}

/// Who takes care of an event.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EventAcknowledgement {
    /// Who: the name of a token.
    pub by: String,
    /// Since when.
    pub at: UtcInstant,
    /// What that one says.
    pub note: String,
}

/// An event with what it stands on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EventDetail {
    /// As in the list.
    pub event: EventEntry,
    /// What it was concluded from, in the order of time.
    pub evidence: Vec<VerdictEvidence>,
    /// Who was told, and whether it arrived.
    pub deliveries: Vec<DeliveryEntry>,
    /// Other things that are known of it, by name.
    pub details: BTreeMap<String, String>,
}

/// What one verdict stands on: a window of an objective.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct VerdictEvidence {
    /// Begin of the window.
    pub from: UtcInstant,
    /// End of the window.
    pub to: UtcInstant,
    /// Whether the objective was met.
    pub verdict: ObjectiveVerdict,
    /// Why it is open; null: it is not.
    pub undecided: Option<UndecidedReason>,
    /// The least that the value can be, in `unit`; null: there was no data.
    pub low: Option<f64>,
    /// The greatest that the value can be.
    pub high: Option<f64>,
    /// What it is held against, in `unit`; null: the usual is not known.
    pub bound: Option<f64>,
    /// Which side of the bound is good.
    pub sense: BoundSense,
    /// Unit of the value and the bound.
    pub unit: ObjectiveUnit,
    /// Of a percentile: the delay beyond which samples count, ns.
    pub limit_ns: Option<f64>,
    /// Samples, or packets sent, on which it stands.
    pub n: u64,
    /// Samples that it needs.
    pub least_n: u64,
    /// Intervals that count.
    pub counted: u64,
    /// Intervals without data.
    pub unknown: u64,
    /// Intervals that were left out as unavailable.
    pub unavailable: u64,
    /// Intervals of which it is open whether they were available.
    pub open: u64,
    /// Intervals that were left out by name.
    pub excluded: u64,
    /// Whatever casts doubt on an interval that counts.
    pub caveats: CaveatSet,
}

/// A notification, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DeliveryEntry {
    /// The receiver's name.
    pub receiver: String,
    /// How it stands.
    pub state: DeliveryState,
    /// When it was last tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_try: Option<UtcInstant>,
    /// Why it failed, without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a notification stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It waits in the queue.
    Waiting,
    /// The receiver has it.
    Delivered,
    /// It failed, and is tried again.
    Retrying,
    /// The receiver refuses it: it is not tried again.
    GivenUp,
    /// A silence or maintenance holds it back.
    HeldBack,
}

/// What explains an event. It ranks what changed; it proves no cause.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EventExplanation {
    /// The event.
    pub event: String,
    /// When the excess began.
    pub onset: UtcInstant,
    /// End of the time that was looked at.
    pub to: UtcInstant,
    /// Begin of the time that it was held against.
    pub baseline_from: UtcInstant,
    /// End of that.
    pub baseline_to: UtcInstant,
    /// Windows as long as the time that was looked at, in that: 6 or more make it sound.
    pub baseline_windows: u64,
    /// Series that were looked at.
    pub series: u64,
    /// When it was computed.
    pub computed: UtcInstant,
    /// How far it can be relied on.
    pub grade: ExplanationGrade,
    /// The answer in sentences, for people.
    pub text: Vec<String>,
    /// What explains it, the best first: at most 3.
    pub candidates: Vec<ExplanationCandidate>,
    /// What fits next best instead of the first: at most 3.
    pub next: Vec<ExplanationCandidate>,
    /// What is suspected first and is clean, with its bad samples and all.
    pub acquitted: Vec<String>,
}

/// How far an explanation can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExplanationGrade {
    /// It explains most of the excess, and most of what it names is affected.
    Strong,
    /// It fits best; part of it may be the cause, or something without a label.
    Leaning,
    /// Nothing explains it.
    None,
    /// The station was itself at fault: the network cannot be judged.
    CannotJudge,
}

/// Something that explains an excess.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExplanationCandidate {
    /// What it is, by all of its names: the data cannot tell those apart.
    pub names: Vec<String>,
    /// What kind of fault, if that is known: `filled_link`, `bad_member`, `policer`, `server`,
    /// `resolver`, `route_change`, `physical`, `common`, `starved_station`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Share of the excess that it explains, about 0 to 1.
    pub coverage: f64,
    /// Share of its series that are affected, 0 to 1; null: none has samples enough to show it.
    pub purity: Option<f64>,
    /// Share of bad samples inside.
    pub inside_ratio: f64,
    /// Samples inside.
    pub inside_n: u64,
    /// Share of bad samples elsewhere.
    pub outside_ratio: f64,
    /// Samples elsewhere.
    pub outside_n: u64,
    /// Share of bad samples inside before.
    pub before_ratio: f64,
    /// How many series it has.
    pub series: u64,
    /// On which way its packets were lost; absent: the event is about no losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<sla::LossDirection>,
    /// Evidence of other instruments at that time, in sentences.
    pub evidence: Vec<String>,
}

/// A question for events.
#[derive(Clone, Debug, PartialEq)]
pub struct EventsQuery {
    /// Those that lasted at some instant of it.
    pub range: QueryRange,
    /// Only those that last, or that have ended; `None`: both.
    pub state: Option<EventState>,
    /// Only of these kinds; empty: all.
    pub kinds: Vec<String>,
    /// Only at least as grave.
    pub grade: Option<EventGrade>,
    /// Only about this.
    pub subject: Option<String>,
}

/// Whether an event lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventState {
    /// It lasts.
    Open,
    /// It has ended.
    Closed,
}

/// Parameters of the list of events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsParams {
    /// Begin; absent: an hour before the end. Events that lasted at some instant from there on.
    pub from: Option<GivenInstant>,
    /// End; absent: now.
    pub to: Option<GivenInstant>,
    /// Only those that last, or that have ended.
    pub state: Option<EventState>,
    /// Only of these kinds.
    #[serde(default)]
    pub kind: Vec<String>,
    /// Only at least as grave.
    pub grade: Option<EventGrade>,
    /// Only about this target, class, group or unit.
    pub subject: Option<String>,
    /// Items of a page, 1 to 1,000; absent: 100.
    pub limit: Option<u32>,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

/// Parameters of one event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventParams {
    /// Its id.
    pub id: String,
}

/// An order to acknowledge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcknowledgeOrder {
    /// What to say beside it, up to 1,000 characters.
    #[serde(default)]
    pub note: String,
}

list_params!(EventsParams);

impl From<&sla::Evidence> for VerdictEvidence {
    fn from(of: &sla::Evidence) -> VerdictEvidence {
        VerdictEvidence {
            from: UtcInstant::from_ns(of.start_ns),
            to: UtcInstant::from_ns(of.end_ns),
            verdict: of.verdict,
            undecided: of.undecided,
            low: of.low,
            high: of.high,
            bound: of.bound,
            sense: of.sense,
            unit: of.unit,
            limit_ns: of.limit_ns,
            n: of.samples,
            least_n: of.least_samples,
            counted: of.counted,
            unknown: of.unknown,
            unavailable: of.unavailable,
            open: of.open,
            excluded: of.excluded,
            caveats: of.caveats,
        }
    }
}

impl EventsQuery {
    /// Whether it asks for this event.
    pub fn wants(&self, event: &EventEntry) -> bool {
        let lasted = event.begin < self.range.to && event.end.is_none_or(|e| e > self.range.from);
        let state = self.state.is_none_or(|s| (s == EventState::Open) == event.end.is_none());
        lasted
            && state
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.grade.is_none_or(|grade| event.grade >= grade)
            && self.subject.as_ref().is_none_or(|subject| *subject == event.subject)
    }
}

pub(crate) fn routes() -> Vec<ApiRoute> {
    let head = |path, operation, summary| RouteHead { path, operation, summary };
    vec![
        ApiRoute::list(
            head("/sonde/v1/events", "list_events", "What happened, the newest first"),
            |backend, asked: &Asked<'_, EventsParams>, page| {
                let params = &asked.params;
                let query = EventsQuery {
                    range: asked.range(params.from, params.to)?,
                    state: params.state,
                    kinds: params.kind.clone(),
                    grade: params.grade,
                    subject: params.subject.clone(),
                };
                Ok(backend.events(&query, page)?.into())
            },
        ),
        ApiRoute::get(
            head("/sonde/v1/events/{id}", "get_event", "An event and its evidence"),
            |backend, asked: &Asked<'_, EventParams>| Ok(backend.event(&asked.params.id)?.into()),
        ),
        ApiRoute::post(
            head(
                "/sonde/v1/events/{id}/acknowledgement",
                "acknowledge_event",
                "Says that somebody takes care of it",
            ),
            |backend, asked: &Asked<'_, EventParams, AcknowledgeOrder>| {
                check_note("/note", &asked.body.note)?;
                Ok(backend.acknowledge(&asked.params.id, &asked.body, &asked.change())?.into())
            },
        ),
        ApiRoute::delete(
            head(
                "/sonde/v1/events/{id}/acknowledgement",
                "unacknowledge_event",
                "Says that nobody takes care of it any more",
            ),
            |backend, asked: &Asked<'_, EventParams>| {
                backend.unacknowledge(&asked.params.id, &asked.change())
            },
        ),
        ApiRoute::get(
            head(
                "/sonde/v1/events/{id}/explanation",
                "explain_event",
                "What changed most at its time",
            ),
            |backend, asked: &Asked<'_, EventParams>| Ok(backend.explain(&asked.params.id)?.into()),
        ),
    ]
}

/// Whether a text that people wrote can be kept.
///
/// # Errors
/// 422: it is too long.
pub(crate) fn check_note(pointer: &str, note: &str) -> Result<(), ProblemDetails> {
    if note.chars().count() <= NOTE_MAX {
        return Ok(());
    }
    let why = format!("it has at most {NOTE_MAX} characters");
    Err(ProblemDetails::of_body(ProblemKind::Unprocessable, pointer, why))
}

/// Characters of a note, at most.
const NOTE_MAX: usize = 1_000;
