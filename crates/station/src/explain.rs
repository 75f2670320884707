//! What changed when an objective was missed: what all instruments saw then and before is lined up
//! from the store, and ranked ([`sonde_meter::explain`]).
//!
//! [`explain_event`] does it for one event, purely but for the store that it reads. [`thread`] does
//! it for each event that begins, and keeps the result with the event.

mod about;
mod baseline;
mod counters;
mod due;
mod flows;
pub mod kept;
mod labels;
pub mod paths;
pub mod thread;

use std::collections::BTreeMap;

use sonde_meter::explain::{ExplainSeries, OwnTime, Question, SampleCounts, explain, onset};
use sonde_results::Caveat;
use sonde_store::query::{
    BadSampleKind, BadSampleRow, BadSampleTable, BadSampleWindow, BadSamples, TimeRange,
};
use sonde_store::series::SeriesDirection;
use sonde_store::{
    Answer, Limit, MINUTE_NS, Query, Reader, Series, SeriesFilter, SeriesId, SeriesLabels,
    StoreError, StoredEvent,
};

use self::about::{ExplainSubject, SubjectMeasure};
use self::due::{DueCounts, OwnFault, UnitFacts};
use self::kept::KeptExplanation;
use self::labels::QuestionLabels;
use self::paths::PathBook;
use crate::keep::station_of;

/// Why an event is not explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// It is no trouble of an objective.
    #[error("an event of the kind '{0}' has no explanation; breaches and outages have one")]
    Kind(String),
    /// The store says nothing of its time.
    #[error("the store has no samples of its time; they came too late, or are kept no more")]
    NoSamples,
    /// The store cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Kinds of events that are explained.
pub const EXPLAINED: [&str; 4] = ["breach", "unavailable", "unjudged", "station_doubt"];

/// What the store is asked with.
pub struct ExplainInput<'a> {
    /// Answers.
    pub reader: &'a dyn Reader,
    /// All series, by number.
    pub series: &'a [Series],
    /// The station that asks.
    pub station: &'a str,
    /// What is known of its ways to targets.
    pub paths: &'a PathBook,
    /// What each question to the store may cost.
    pub limit: &'a Limit,
    /// The present time, ns since 1970 UTC.
    pub now_ns: i64,
}

/// The times that are compared, ns since 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExplainTimes {
    /// When the excess began, and until when it is looked at.
    during: TimeRange,
    /// Before.
    before: TimeRange,
    /// So many windows as long as `during` are in `before`.
    windows: usize,
    /// Length of a record, ns.
    interval_ns: i64,
}

/// What explains an event.
///
/// # Errors
/// It is of no kind that is explained; the store has nothing of its time, or cannot be asked.
pub fn explain_event(
    input: &ExplainInput<'_>,
    event: &StoredEvent,
) -> Result<KeptExplanation, ExplainError> {
    let Some(subject) = ExplainSubject::of(event) else {
        return Err(ExplainError::Kind(event.kind.clone()));
    };
    let unknown = PathBook::default();
    let gather = Gather {
        input,
        subject: &subject,
        series: input
            .series
            .iter()
            .filter(|series| series.labels.station == subject.station)
            .cloned()
            .collect(),
        paths: if subject.station == input.station { input.paths } else { &unknown },
    };
    let times = gather.times(event)?;
    let kinds = gather.kinds(&times)?;
    let (mut now, mut before) = (Vec::new(), Vec::new());
    for kind in &kinds {
        let whole = times.during.to_ns - times.during.from_ns;
        now.extend(gather.ask(times.during, whole, kind, gather.all_series())?.rows);
        if times.windows > 0 {
            before.extend(gather.ask(times.before, whole, kind, gather.all_series())?.rows);
        }
    }
    let mut labels = QuestionLabels::new(&gather.series, gather.paths, &now);
    let mut then = gather.usual_windows(before, times.windows);
    let mut question = Question {
        onset_ns: times.during.from_ns,
        interval_ns: times.interval_ns,
        ..Question::default()
    };
    let mut seen = Seen::default();
    for row in &now {
        let mut sum = BadSampleWindow::default();
        row.windows.iter().for_each(|window| sum.add(window));
        let windows = then.of.remove(&(row.series, row.group.clone()));
        let windows = windows.unwrap_or_else(|| vec![SampleCounts::default(); then.windows]);
        let of_series = labels.of(row);
        seen.add(&of_series, &sum, labels.station_of(row.series), gather.is_subject(row.series));
        seen.sums.push(sum);
        question.series.push(ExplainSeries {
            now: SampleCounts { n: sum.n, bad: sum.bad },
            before: windows,
            labels: of_series,
        });
    }
    question.own = seen.own.iter().map(|(&label, own)| own.time(label)).collect();
    let others = gather.events(&times, event)?;
    let flows = flows::grown(&gather, &times)?;
    let interfaces = counters::changed(&gather, &times)?;
    question.evidence = labels.evidence(&others, &flows, &interfaces, &times);
    question.labels = labels.finish();
    let answer = explain(&question);
    let due = gather.due(event)?;
    let own_fault = match &due {
        Some(due) => gather.own_fault(due, event)?,
        None => seen.own_fault(),
    };
    Ok(kept::explanation(&kept::Explained {
        question: &question,
        answer: &answer,
        times: &times,
        seen: &seen,
        flows: &flows,
        others: &others,
        measure: &subject.measure,
        windows: then.windows,
        due: due.as_ref(),
        own_fault: own_fault.as_ref(),
        now_ns: input.now_ns,
    }))
}

/// Windows before, without those that were a fault themselves.
struct UsualWindows {
    /// So many of each series.
    windows: usize,
    of: BTreeMap<(SeriesId, String), Vec<SampleCounts>>,
}

/// What was counted besides.
#[derive(Default)]
struct Seen {
    /// The sum of each series in the time of the fault.
    sums: Vec<BadSampleWindow>,
    /// By the label of the station.
    own: BTreeMap<usize, OwnSum>,
    /// The sum of the series that the event is about.
    subject: BadSampleWindow,
}

/// What a station says of itself.
#[derive(Clone, Copy, Debug, Default)]
struct OwnSum {
    sum: BadSampleWindow,
    suspect: bool,
}

impl OwnSum {
    fn time(&self, label: usize) -> OwnTime {
        let late = SampleCounts { n: self.sum.doubtful_n, bad: self.sum.doubtful_bad };
        // Where nearly all of its time is doubtful, nothing is left to hold that against.
        let suspect = self.suspect || self.sum.doubtful_n * 10 > self.sum.n * 9;
        OwnTime { label, late, suspect }
    }
}

impl Seen {
    fn add(
        &mut self,
        labels: &[usize],
        sum: &BadSampleWindow,
        station: Option<usize>,
        is_subject: bool,
    ) {
        if let Some(station) = station.filter(|station| labels.contains(station)) {
            let own = self.own.entry(station).or_default();
            own.sum.add(sum);
            own.suspect |= sum.doubt == Some(Caveat::ClockStepped);
        }
        if is_subject {
            self.subject.add(sum);
        }
    }

    /// A breach is concluded from what is not doubtful; hardly anything of it may be left.
    fn own_fault(&self) -> Option<OwnFault> {
        let sum = &self.subject;
        let doubt = sum.doubt.filter(|_| sum.doubtful_n * 10 > sum.n * 9)?;
        Some(due::doubtful(doubt, sum))
    }
}

/// The labels of a series among all of them. Between the numbers of stations that share a store there
/// are gaps.
fn find_labels(all: &[Series], id: SeriesId) -> Option<&SeriesLabels> {
    let at = all.binary_search_by_key(&id, |series| series.id).ok()?;
    all.get(at).map(|series| &series.labels)
}

/// Asks the store.
struct Gather<'a> {
    input: &'a ExplainInput<'a>,
    subject: &'a ExplainSubject,
    /// The series of the event's station, by number: others that share the store have units, targets
    /// and interfaces of the same names, and are elsewhere.
    series: Vec<Series>,
    /// What is known of that station's ways to targets.
    paths: &'a PathBook,
}

impl Gather<'_> {
    fn is_subject(&self, id: SeriesId) -> bool {
        find_labels(&self.series, id).is_some_and(|labels| self.subject.fits(labels))
    }

    /// All that the event's station measures.
    fn all_series(&self) -> SeriesFilter {
        let station = ("station".to_owned(), self.subject.station.clone());
        SeriesFilter { labels: [station].into(), ..SeriesFilter::default() }
    }

    fn ask(
        &self,
        range: TimeRange,
        step_ns: i64,
        bad: &BadSampleKind,
        filter: SeriesFilter,
    ) -> Result<BadSampleTable, StoreError> {
        let ask = BadSamples { range, step_ns, filter, bad: bad.clone() };
        match self.query(&Query::BadSamples(ask))? {
            Answer::BadSamples(table) => Ok(table),
            _ => Err(other_answer()),
        }
    }

    fn query(&self, query: &Query) -> Result<Answer, StoreError> {
        Ok(self.input.reader.query(query, self.input.limit)?.answer)
    }

    /// Which times are compared: where the samples of the event's own series say that it began, and
    /// the hour before.
    fn times(&self, event: &StoredEvent) -> Result<ExplainTimes, ExplainError> {
        let own = self.own_series();
        if own.is_empty() {
            return Err(ExplainError::NoSamples);
        }
        let last = event.end_ns.unwrap_or(i64::MAX).min(event.begin_ns + LONGEST_NS);
        let last = last.saturating_add(self.subject.window_ns);
        let range = TimeRange {
            from_ns: event.begin_ns - BEFORE_NS,
            to_ns: last.min(self.input.now_ns).max(event.begin_ns + 1),
        };
        let kind = self.own_kind(&own, range)?;
        let filter = SeriesFilter { groups: self.subject.groups(), ..SeriesFilter::of(own) };
        let table = self.ask(range, FINE_NS, &kind, filter)?;
        let mut steps: BTreeMap<u32, SampleCounts> = BTreeMap::new();
        for window in table.rows.iter().flat_map(|row| &row.windows) {
            let step = steps.entry(window.window).or_default();
            step.n += window.n;
            step.bad += window.bad;
        }
        let starts: Vec<i64> =
            steps.keys().map(|&step| table.from_ns + i64::from(step) * FINE_NS).collect();
        let counts: Vec<SampleCounts> = steps.into_values().collect();
        let interval_ns = table.interval_ns.max(FINE_NS);
        let first = starts.first().copied().ok_or(ExplainError::NoSamples)?;
        let (begin, end) = self.excess_span(event, &starts, &counts);
        let to_ns = end + interval_ns;
        Ok(ExplainTimes::of(begin, to_ns, first, interval_ns))
    }

    /// Begin of the first and of the last record of the excess.
    fn excess_span(
        &self,
        event: &StoredEvent,
        starts: &[i64],
        counts: &[SampleCounts],
    ) -> (i64, i64) {
        let early = starts.partition_point(|start| *start < event.begin_ns);
        let usual: SampleCounts = counts[..early].iter().copied().sum();
        let share = (usual.bad as f64 + 0.5) / (usual.n as f64 + 1.0);
        let expected: Vec<f64> = counts.iter().map(|c| c.n as f64 * share).collect();
        let mean = counts.iter().map(|c| c.n).sum::<u64>() as f64 / counts.len().max(1) as f64;
        let chance = (mean * share * (1.0 - share)).sqrt();
        let least = (mean * self.subject.limit_share).max(chance) / 2.0;
        let bad: Vec<u64> = counts.iter().map(|c| c.bad).collect();
        let after =
            starts.partition_point(|start| *start < event.begin_ns - self.subject.window_ns);
        match onset(&bad, &expected, least.max(0.01), after) {
            Some((begin, end)) => (starts[begin], starts[end]),
            None => {
                let last = starts.last().copied().unwrap_or(event.begin_ns);
                (event.begin_ns.min(last), last)
            }
        }
    }

    /// What was due in the time of an event that says that nothing could be judged. `None`: it is no
    /// such event; or about traffic, which may pause.
    fn due(&self, event: &StoredEvent) -> Result<Option<DueCounts>, ExplainError> {
        if !self.subject.unjudged || self.subject.is_passive() {
            return Ok(None);
        }
        let own: Vec<SeriesId> = self.own_series();
        let filter = SeriesFilter::of(own.iter().copied());
        let from_ns = event.begin_ns;
        // Records of this time were there, or missing, when the event was concluded.
        let window = event.evidence["window"]["end_ns"].as_i64();
        let known_ns = window.unwrap_or(event.begin_ns + MINUTE_NS).min(self.input.now_ns);
        let known_ns = known_ns.max(from_ns + FINE_NS);
        let last_ns = event.end_ns.unwrap_or(self.input.now_ns).min(from_ns + LONGEST_NS);
        let longest = TimeRange { from_ns, to_ns: last_ns.max(known_ns) };
        let range = TimeRange {
            from_ns: from_ns - DueCounts::before_ns(longest),
            to_ns: (longest.to_ns + MINUTE_NS).min(self.input.now_ns).max(longest.to_ns),
        };
        // Each row of a series is a cell of the answer, unless steps are longer.
        let cells = (range.to_ns - range.from_ns).saturating_mul(own.len() as i64) / MOST_CELLS;
        let step_ns = FINE_NS.max(cells - cells % FINE_NS);
        let kind = BadSampleKind::Lost(SeriesDirection::RoundTrip);
        let table = self.ask(range, step_ns, &kind, filter)?;
        let longest = DueCounts::of(&table, step_ns, longest);
        // Later records than the last one are still to come.
        let to_ns = longest.last_ns.clamp(known_ns, longest.span.to_ns);
        Ok(Some(DueCounts::of(&table, step_ns, TimeRange { from_ns, to_ns })))
    }

    /// Whether an event that nothing could be judged is the station's own doing.
    fn own_fault(
        &self,
        due: &DueCounts,
        event: &StoredEvent,
    ) -> Result<Option<OwnFault>, StoreError> {
        let range = TimeRange { from_ns: due.span.from_ns - BEFORE_NS, to_ns: self.input.now_ns };
        let list = sonde_store::query::EventList { range, ..Default::default() };
        let Answer::Events(rows) = self.query(&Query::Events(list))? else {
            return Err(other_answer());
        };
        let events: Vec<StoredEvent> = rows.into_iter().map(|row| row.event).collect();
        let ExplainSubject { unit, target, .. } = self.subject;
        Ok(due.own_fault(&UnitFacts {
            unit,
            target,
            judged: event.evidence["window"]["samples"].as_u64().unwrap_or(0),
            runs: self.paths.measures(unit, target),
            events: &events,
            now_ns: self.input.now_ns,
        }))
    }

    /// The series that the event is about.
    fn own_series(&self) -> Vec<SeriesId> {
        let all = self.series.iter();
        all.filter(|series| self.subject.fits(&series.labels)).map(|series| series.id).collect()
    }

    /// The samples of the windows before. Left out are what the station doubts, as it is by who
    /// judges, and windows in which the series of the event surely missed the objective, too: they say
    /// what a fault does, and nothing of chance.
    fn usual_windows(&self, rows: Vec<BadSampleRow>, windows: usize) -> UsualWindows {
        let mut of: BTreeMap<(SeriesId, String), Vec<SampleCounts>> = BTreeMap::new();
        let mut own = vec![SampleCounts::default(); windows];
        let groups = self.subject.groups();
        for row in rows {
            let is_own =
                self.is_subject(row.series) && (groups.is_empty() || groups.contains(&row.group));
            let all = of.entry((row.series, row.group));
            let all = all.or_insert_with(|| vec![SampleCounts::default(); windows]);
            for window in &row.windows {
                let at = window.window as usize;
                let Some(counts) = all.get_mut(at) else { continue };
                counts.n += window.n - window.doubtful_n;
                counts.bad += window.bad - window.doubtful_bad;
                if is_own {
                    own[at].n += window.n - window.doubtful_n;
                    own[at].bad += window.bad - window.doubtful_bad;
                }
            }
        }
        let missed = |counts: &SampleCounts| {
            let allowed = counts.n as f64 * self.subject.limit_share;
            counts.bad as f64 > allowed + 3.0 * allowed.sqrt() + 3.0
        };
        let usual: Vec<bool> = own.iter().map(|counts| !missed(counts)).collect();
        let kept = usual.iter().filter(|usual| **usual).count();
        if kept < windows {
            for counts in of.values_mut() {
                let mut usual = usual.iter();
                counts.retain(|_| usual.next().copied().unwrap_or(false));
            }
        }
        UsualWindows { windows: kept, of }
    }

    /// What counts against the objective, of the event's own series.
    fn own_kind(&self, own: &[SeriesId], range: TimeRange) -> Result<BadSampleKind, StoreError> {
        baseline::own_kind(self, own, range)
    }

    /// What counts as bad of all series: of probes, and of passive round trips.
    fn kinds(&self, times: &ExplainTimes) -> Result<Vec<BadSampleKind>, StoreError> {
        match &self.subject.measure {
            SubjectMeasure::Loss(direction) => {
                Ok(vec![BadSampleKind::Lost(*direction), BadSampleKind::Recovery])
            }
            SubjectMeasure::Delay { .. } => baseline::limits(self, times),
        }
    }

    /// What else happened at that time.
    fn events(
        &self,
        times: &ExplainTimes,
        own: &StoredEvent,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let range = TimeRange {
            from_ns: times.during.from_ns - 2 * times.interval_ns.max(paths::LOOK_NS),
            to_ns: times.during.to_ns,
        };
        let list = sonde_store::query::EventList { range, ..Default::default() };
        let Answer::Events(rows) = self.query(&Query::Events(list))? else {
            return Err(other_answer());
        };
        let told = |event: &StoredEvent| {
            OTHERS.contains(&event.kind.as_str())
                && event != own
                && station_of(event).is_none_or(|name| name == self.subject.station)
        };
        Ok(rows.into_iter().map(|row| row.event).filter(told).collect())
    }
}

impl ExplainTimes {
    /// Of an excess from `begin` to `end`, where samples reach back to `first`; all ns since 1970.
    fn of(begin: i64, end: i64, first: i64, interval_ns: i64) -> ExplainTimes {
        let reach = (begin - first - interval_ns).clamp(0, BEFORE_NS);
        let length = (end - begin).clamp(interval_ns, LONGEST_NS);
        // Rather less of the fault than too few windows without it.
        let length = length.min((reach / WANTED_WINDOWS).max(2 * interval_ns));
        let minutes = length / MINUTE_NS;
        // Whole minutes are read from the roll-up.
        let (begin, length, gap) = match minutes {
            0 | 1 => (begin, length - length % interval_ns, interval_ns),
            _ => (begin - begin.rem_euclid(MINUTE_NS), minutes * MINUTE_NS, 0),
        };
        let length = length.max(interval_ns);
        let windows = ((begin - gap - first).clamp(0, BEFORE_NS) / length).min(MOST_WINDOWS);
        let before_end = begin - gap;
        ExplainTimes {
            during: TimeRange { from_ns: begin, to_ns: begin + length },
            before: TimeRange { from_ns: before_end - windows * length, to_ns: before_end },
            windows: windows as usize,
            interval_ns,
        }
    }
}

fn other_answer() -> StoreError {
    let what = "the store answered another question".to_owned();
    StoreError::Query { what, help: "report this as a fault of Sonde" }
}

/// So long before the event is looked at, ns.
const BEFORE_NS: i64 = 60 * MINUTE_NS;
/// So much of a fault is looked at, ns.
const LONGEST_NS: i64 = 5 * MINUTE_NS;
/// Steps by which an onset is found; records that begin in one step are one, ns.
const FINE_NS: i64 = 100_000_000;
/// Windows before that make a sound answer.
const WANTED_WINDOWS: i64 = 12;
/// Windows before that are looked at, at most.
const MOST_WINDOWS: i64 = 60;
/// Cells of an answer about what was due: fewer than a limit allows.
const MOST_CELLS: i64 = 500_000;
/// Kinds of events that are told beside an explanation.
const OTHERS: [&str; 9] = [
    "route_change",
    "address_change",
    "gap",
    "records_lost",
    "unit_failed",
    "unit_refused",
    "unit_stuck",
    "station_doubt",
    "station_unclean_end",
];

#[cfg(test)]
mod tests;
