//! The judge of one objective of one subject.
//!
//! It takes intervals in the order of time. Where time is missing it counts as time without data:
//! such intervals are rows of their own, never absent ones. Each interval waits until it is known
//! whether it was available. Then it counts in its window, or is left out. A window that no interval
//! can change any more gets its verdict; n of m verdicts make a breach or a recovery.

mod intake;

use std::collections::VecDeque;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::Interval;
use sonde_results::sla::{
    AvailabilityLabel, Evidence, Exclusion, ExclusionKind, ObjectiveMonth, ObjectiveVerdict,
    SlaEvent, SlaEventKind,
};

use super::group::LabelledTime;
use super::hysteresis::{Crossing, Hysteresis};
use super::month::MonthSums;
use super::objective::{Objective, ObjectiveMetric};
use super::open_window::{Item, OpenWindow};
use super::rule::AvailabilityRule;
use super::runs::AvailabilityRuns;
use super::sliding::{IntervalClass, SlidingAvailability};
use super::slot::OpenSlot;
use super::tally::Requirement;
use super::usual::{Usual, hour_of};
use super::window::{TimeRange, month_at};

/// Some time of the subject that is judged.
#[derive(Clone, Copy, Debug)]
pub struct JudgeInput<'a> {
    /// Which.
    pub range: TimeRange,
    /// What was measured; `None`: there is no data.
    pub record: Option<&'a Interval>,
    /// Why it is left out, if it is.
    pub exclusion: Option<&'a Exclusion>,
}

/// What came of an input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgeOutput {
    /// Events, in the order in which they became certain.
    pub events: Vec<SlaEvent>,
    /// The verdict of each window that closed.
    pub windows: Vec<Evidence>,
    /// Each month that closed.
    pub months: Vec<ObjectiveMonth>,
    /// Where the objective is availability: time whose label became final, in order.
    pub labels: Vec<LabelledTime>,
}

/// Why an input was refused. It changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputRefused {
    /// It ends before it begins, or has no length.
    #[error("the interval from {start_ns} to {end_ns} ns has no length; give its true end")]
    Empty {
        /// Its begin, ns.
        start_ns: i64,
        /// Its end, ns.
        end_ns: i64,
    },
    /// Its time has been judged already. Late data are judged anew, from what is stored.
    #[error(
        "the interval from {start_ns} ns on comes after all until {next_ns} ns was judged; judge \
         its month again from what is stored"
    )]
    OutOfOrder {
        /// Its begin, ns.
        start_ns: i64,
        /// The instant up to which all was judged, ns.
        next_ns: i64,
    },
}

/// Judges one objective of one subject. All of it can be saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judge {
    /// Shared: there are many subjects of one objective.
    #[serde(with = "shared")]
    #[schemars(with = "Objective")]
    objective: Arc<Objective>,
    subject: String,
    /// Begin of what was taken: nothing is said of time before it.
    #[serde(default)]
    first_ns: Option<i64>,
    /// End of what was taken.
    next_ns: Option<i64>,
    /// When measuring last began.
    #[serde(default)]
    begun_ns: Option<i64>,
    /// Length of the last record, ns.
    record_ns: i64,
    slot: Option<OpenSlot>,
    sliding: Option<SlidingAvailability<Item>>,
    runs: AvailabilityRuns,
    /// The last label, and since when.
    label: Option<LabelSince>,
    window: Option<OpenWindow>,
    hysteresis: Hysteresis,
    month: Option<MonthSums>,
    usuals: VecDeque<UsualOfHour>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct UsualOfHour {
    hour_ns: i64,
    usual: Option<Usual>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct LabelSince {
    label: AvailabilityLabel,
    since_ns: i64,
}

impl<'a> JudgeInput<'a> {
    /// A record, over its own time.
    pub fn record(record: &'a Interval) -> Self {
        let range = TimeRange { start_ns: record.start_ns, end_ns: record.end_ns };
        JudgeInput { range, record: Some(record), exclusion: None }
    }

    /// Time without data.
    pub fn gap(range: TimeRange) -> Self {
        JudgeInput { range, record: None, exclusion: None }
    }

    /// The same, left out.
    pub fn excluded(self, exclusion: &'a Exclusion) -> Self {
        JudgeInput { exclusion: Some(exclusion), ..self }
    }
}

impl Judge {
    /// Of `objective`, in which [`Objective::diagnose`] finds nothing wrong.
    pub fn new(objective: impl Into<Arc<Objective>>, subject: impl Into<String>) -> Judge {
        let objective = objective.into();
        let (sliding, consecutive) = match objective.rule() {
            Some(AvailabilityRule::Sliding { window, consecutive, .. }) => {
                (Some(SlidingAvailability::new(window)), consecutive)
            }
            _ => (None, None),
        };
        Judge {
            objective,
            subject: subject.into(),
            first_ns: None,
            next_ns: None,
            begun_ns: None,
            record_ns: 0,
            slot: None,
            sliding,
            runs: AvailabilityRuns::new(consecutive),
            label: None,
            window: None,
            hysteresis: Hysteresis::default(),
            month: None,
            usuals: VecDeque::new(),
        }
    }

    /// As `saved` left off, if that judged the same objective of the same subject; else a new one.
    pub fn resume(
        objective: impl Into<Arc<Objective>>,
        subject: impl Into<String>,
        saved: Option<Judge>,
    ) -> Judge {
        let new = Judge::new(objective, subject);
        match saved {
            Some(old) if old.objective == new.objective && old.subject == new.subject => {
                Judge { objective: new.objective, ..old }
            }
            _ => new,
        }
    }

    /// Goes over to another definition of its objective at `at_ns`, for the same subject. What lasts
    /// goes on: a breach that no window of the new definition misses ends at `at_ns`. Windows and months
    /// begin anew.
    pub fn redefine(self, objective: impl Into<Arc<Objective>>, at_ns: i64) -> Judge {
        let mut new = Judge::new(objective, self.subject);
        new.hysteresis = self.hysteresis.redefined(self.objective.breach, &new.objective, at_ns);
        if self.objective.rule() == new.objective.rule() {
            new.label = self.label;
            new.sliding = self.sliding.map(SlidingAvailability::forget);
        }
        new
    }

    /// What it judges.
    pub fn objective(&self) -> &Objective {
        &self.objective
    }

    /// Begin of the open breach, ns since 1970 UTC; `None`: there is none.
    pub fn breach_ns(&self) -> Option<i64> {
        self.hysteresis.breach_ns()
    }

    /// What the last interval was whose label is final; `None`: there is none yet, or the objective
    /// is no availability.
    pub fn label(&self) -> Option<AvailabilityLabel> {
        self.label.map(|last| last.label)
    }

    /// Whether none of the windows looked at decided anything.
    pub fn is_unknown(&self) -> bool {
        self.hysteresis.is_unknown(self.objective.breach)
    }

    /// The hour, by its begin, of which it needs the usual before it takes time from `at_ns` on:
    /// that of `same_hours`. `None`: it needs none.
    pub fn wants_usual(&self, at_ns: i64) -> Option<i64> {
        let hour_ns = hour_of(at_ns);
        let wants = self.objective.metric.limit().is_some_and(|l| l.is_usual());
        let known = self.usuals.iter().any(|u| u.hour_ns == hour_ns);
        (wants && !known).then_some(hour_ns)
    }

    /// Says what is usual in the hour that begins at `hour_ns`; `None`: it is not known.
    pub fn set_usual(&mut self, hour_ns: i64, usual: Option<Usual>) {
        self.usuals.retain(|u| u.hour_ns != hour_ns);
        self.usuals.push_back(UsualOfHour { hour_ns, usual });
        if self.usuals.len() > HOURS {
            self.usuals.pop_front();
        }
    }

    /// Measuring begins, or begins again, at `at_ns`, ns since 1970 UTC: what the window of that
    /// instant lacks from before is nothing to tell of.
    pub fn begins(&mut self, at_ns: i64) {
        self.begun_ns = Some(at_ns);
    }

    /// Takes the next time of the subject. What lies before it and was never given had no data.
    /// An input that overlaps by less than half of itself is cut.
    pub fn push(
        &mut self,
        input: JudgeInput<'_>,
        out: &mut JudgeOutput,
    ) -> Result<(), InputRefused> {
        let TimeRange { start_ns, end_ns } = input.range;
        if end_ns <= start_ns {
            return Err(InputRefused::Empty { start_ns, end_ns });
        }
        if self.next_ns.is_none() {
            self.first_ns = Some(start_ns);
        }
        let next_ns = self.next_ns.unwrap_or(start_ns);
        self.begun_ns = self.begun_ns.or(Some(start_ns));
        if start_ns + (end_ns - start_ns) / 2 < next_ns {
            return Err(InputRefused::OutOfOrder { start_ns, next_ns });
        }
        if next_ns < start_ns {
            self.next_ns = Some(start_ns);
            self.take_gap(TimeRange { start_ns: next_ns, end_ns: start_ns }, None, out);
        }
        let range = TimeRange { start_ns: start_ns.max(next_ns), end_ns };
        self.next_ns = Some(end_ns);
        // What was measured in time that is left out is not looked at. Only by the sliding rule an
        // outage goes on through maintenance.
        let looked_at = |exclusion: &&Exclusion| {
            self.sliding.is_some() && exclusion.kind == ExclusionKind::Maintenance
        };
        match (input.record, input.exclusion) {
            (Some(record), exclusion) if exclusion.as_ref().is_none_or(looked_at) => {
                self.take_record(range, record, exclusion, out);
            }
            (_, exclusion) => {
                if exclusion.is_some() && self.record_ns == 0 {
                    self.record_ns = range.length_ns();
                }
                self.take_gap(range, exclusion, out);
            }
        }
        self.settle(out);
        Ok(())
    }

    /// All data from before `now_ns` has been given: what is missing up to there is missing.
    pub fn advance(&mut self, now_ns: i64, out: &mut JudgeOutput) {
        if let Some(start_ns) = self.next_ns.filter(|&next| next < now_ns) {
            let gap = JudgeInput::gap(TimeRange { start_ns, end_ns: now_ns });
            // It begins where the last one ended.
            let _ = self.push(gap, out);
        }
    }

    /// The month that is filling, with intervals that still wait for their label as they look now.
    pub fn month_so_far(&self) -> Option<ObjectiveMonth> {
        let mut waiting = self.sliding.iter().flat_map(|s| s.waiting()).peekable();
        let first_ns = match &self.window {
            Some(window) => Some(window.range.start_ns),
            None => waiting.peek().map(|(item, _)| item.range.start_ns),
        };
        let mut month = match (&self.month, first_ns) {
            (Some(month), first) if first.is_none_or(|first| first < month.range.end_ns) => {
                month.clone()
            }
            (_, first) => self.month_of(first?),
        };
        if let Some(window) = &self.window {
            month.add_open(window);
            if window.told {
                month.count(ObjectiveVerdict::Missed);
            }
        }
        let mut runs = self.runs.clone();
        for (item, label) in waiting.filter(|(i, _)| i.range.start_ns < month.range.end_ns) {
            runs.count(&mut month.availability, item.labelled(label));
        }
        Some(month.report(&self.objective, &self.subject, true))
    }

    /// Finds out whether the next interval was available, and counts what that decides.
    fn label_item(&mut self, item: Item, out: &mut JudgeOutput) {
        let Some(sliding) = &mut self.sliding else {
            let label = match item.class {
                IntervalClass::Good => AvailabilityLabel::Available,
                IntervalClass::Bad => AvailabilityLabel::Unavailable,
                IntervalClass::Unknown => AvailabilityLabel::Undecided,
            };
            return self.count(item, label, out);
        };
        let mut decided = Vec::new();
        sliding.push(item.class, item.slots, item, &mut decided);
        for (item, label) in decided {
            self.count(item, label, out);
        }
    }

    /// Counts an interval whose label is final.
    fn count(&mut self, item: Item, label: AvailabilityLabel, out: &mut JudgeOutput) {
        let start_ns = item.range.start_ns;
        if self.window.as_ref().is_some_and(|w| start_ns >= w.range.end_ns) {
            self.close_window(out);
        }
        self.note_label(&item, label, out);
        let requirement = self.requirement(start_ns);
        let range = self.objective.window.at(start_ns, self.objective.utc_offset_s);
        let rule = self.objective.rule();
        let interval_ns = rule.map_or(0, |r| r.interval_ns());
        let window =
            self.window.get_or_insert_with(|| OpenWindow::new(range, requirement, interval_ns));
        if rule.is_some() {
            self.runs.count(&mut window.availability, item.labelled(label));
        }
        window.add(&item, label);
        if !window.told && window.is_missed_already(&self.objective) {
            window.told = true;
            // Since the interval with which it is certain.
            let range = TimeRange { start_ns, ..window.range };
            let evidence = window.evidence(&self.objective);
            evidence.into_iter().for_each(|evidence| self.step(range, evidence, out));
        }
    }

    fn note_label(&mut self, item: &Item, label: AvailabilityLabel, out: &mut JudgeOutput) {
        let ObjectiveMetric::Availability { .. } = self.objective.metric else { return };
        let excluded = item.exclusion.is_some();
        out.labels.push(LabelledTime { range: item.range, label, excluded });
        if self.sliding.is_none() && item.exclusion.is_some() {
            return;
        }
        let at_ns = item.range.start_ns;
        let since_ns = self.label.map_or(at_ns, |l| l.since_ns);
        let before = self.label.map_or(AvailabilityLabel::Available, |l| l.label);
        self.label = Some(LabelSince { label, since_ns });
        if label != before {
            self.label = Some(LabelSince { label, since_ns: at_ns });
            let duration_ns = at_ns - since_ns;
            self.tell(at_ns, SlaEventKind::Availability { label, before, duration_ns }, out);
        }
    }

    /// Closes the window as soon as nothing can change it.
    fn settle(&mut self, out: &mut JudgeOutput) {
        let waits = self.slot.is_some()
            || self.sliding.as_ref().is_some_and(|s| s.waiting().next().is_some());
        let over = |w: &OpenWindow| self.next_ns.is_some_and(|next| next >= w.range.end_ns);
        if !waits && self.window.as_ref().is_some_and(over) {
            self.close_window(out);
        }
    }

    fn close_window(&mut self, out: &mut JudgeOutput) {
        let Some(window) = self.window.take() else { return };
        let start_ns = window.range.start_ns;
        let report = |month: MonthSums| month.report(&self.objective, &self.subject, false);
        if let Some(over) = self.month.take_if(|m| start_ns >= m.range.end_ns) {
            out.months.push(report(over));
        }
        let evidence = window.evidence(&self.objective);
        let mut month = self.month.take().unwrap_or_else(|| self.month_of(start_ns));
        month.add_closed(&window, evidence.as_ref());
        match window.range.end_ns >= month.range.end_ns {
            true => out.months.push(report(month)),
            false => self.month = Some(month),
        }
        let Some(evidence) = evidence else { return };
        // The first window is mostly a part of one.
        let TimeRange { start_ns: from_ns, end_ns } = window.range;
        let is_part = self.begun_ns.is_some_and(|begun| from_ns < begun && begun < end_ns);
        let says_nothing = is_part && evidence.verdict == ObjectiveVerdict::Undecided;
        if !window.told && !says_nothing {
            self.step(window.range, evidence.clone(), out);
        }
        out.windows.push(evidence);
    }

    /// What follows from the verdict of a window.
    fn step(&mut self, range: TimeRange, evidence: Evidence, out: &mut JudgeOutput) {
        let start_ns = range.start_ns;
        let (breach, recovery) = (self.objective.breach, self.objective.recovery);
        let crossings = self.hysteresis.step(range, evidence.verdict, breach, recovery);
        for crossing in crossings.into_iter().flatten() {
            let evidence = Box::new(evidence.clone());
            let (at_ns, kind) = match crossing {
                Crossing::Breach { at_ns, missed } => {
                    (at_ns, SlaEventKind::Breach { missed, of: breach.m, evidence })
                }
                Crossing::Recovery { at_ns, breach_ns } => {
                    let duration_ns = at_ns - breach_ns;
                    (at_ns, SlaEventKind::Recovery { breach_ns, duration_ns, evidence })
                }
                Crossing::Unknown => (start_ns, SlaEventKind::Unknown { evidence }),
                Crossing::Known => (start_ns, SlaEventKind::Known { evidence }),
            };
            self.tell(at_ns, kind, out);
        }
    }

    fn tell(&self, at_ns: i64, kind: SlaEventKind, out: &mut JudgeOutput) {
        let at_ns = self.first_ns.map_or(at_ns, |first| first.max(at_ns));
        out.events.push(SlaEvent {
            objective: self.objective.name.clone(),
            subject: self.subject.clone(),
            at_ns,
            known_ns: self.next_ns.unwrap_or(at_ns),
            kind,
        });
    }

    fn requirement(&self, at_ns: i64) -> Option<Requirement> {
        let hour_ns = hour_of(at_ns);
        let usual = self.usuals.iter().find(|u| u.hour_ns == hour_ns).and_then(|u| u.usual);
        Requirement::of(&self.objective, usual)
    }

    fn month_of(&self, at_ns: i64) -> MonthSums {
        MonthSums::new(month_at(at_ns, self.objective.utc_offset_s))
    }
}

/// Saves the objective as if it were not shared.
mod shared {
    use super::{Arc, Objective};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(
        objective: &Arc<Objective>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        objective.as_ref().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<Objective>, D::Error> {
        Objective::deserialize(deserializer).map(Arc::new)
    }
}

/// Hours whose usual is kept: intervals wait for their label for one at most.
const HOURS: usize = 4;
