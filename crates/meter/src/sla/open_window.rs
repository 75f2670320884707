//! The window that is filling, and its verdict.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::caveat::CaveatSet;
use sonde_results::sla::{
    AvailabilityLabel, AvailabilityTotals, BoundSense, CaveatIntervals, Evidence, Exclusion,
    ObjectiveUnit, ObjectiveVerdict, SecondTotals, UndecidedReason,
};

use super::objective::{Objective, ObjectiveMetric};
use super::share::{WHOLE, percent_parts, refutes};
use super::sliding::IntervalClass;
use super::tally::{Requirement, Sums, Tally, beyond};
use super::window::TimeRange;

/// One interval, or several alike, on the way to a label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Item {
    pub range: TimeRange,
    /// Intervals in it.
    pub slots: u64,
    pub class: IntervalClass,
    pub exclusion: Option<Exclusion>,
    /// What it adds; `None`: no data for this objective.
    pub tally: Option<Tally>,
    pub caveats: CaveatSet,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct OpenWindow {
    pub range: TimeRange,
    requirement: Option<Requirement>,
    /// Of intervals that count.
    counted: Tally,
    /// Of intervals of open availability: those that would help, and those that would hurt.
    helping: Sums,
    hurting: Sums,
    slots: SlotCounts,
    /// Time that is known, and that is not; neither has what was excluded.
    known_ns: i64,
    unknown_ns: i64,
    pub availability: AvailabilityTotals,
    pub seconds: SecondTotals,
    pub caveats: Vec<CaveatIntervals>,
    /// It was told before its end that it is missed.
    #[serde(default)]
    pub told: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct SlotCounts {
    counted: u64,
    unknown: u64,
    unavailable: u64,
    open: u64,
    excluded: u64,
}

/// What a verdict comes from: the least and the greatest value, and whether they decide.
struct Judged {
    low: Option<f64>,
    high: Option<f64>,
    samples: u64,
    verdict: Result<ObjectiveVerdict, UndecidedReason>,
}

impl OpenWindow {
    pub fn new(range: TimeRange, requirement: Option<Requirement>, interval_ns: i64) -> Self {
        OpenWindow {
            range,
            requirement,
            counted: Tally::default(),
            helping: Sums::default(),
            hurting: Sums::default(),
            slots: SlotCounts::default(),
            known_ns: 0,
            unknown_ns: 0,
            availability: AvailabilityTotals { interval_ns, ..AvailabilityTotals::default() },
            seconds: SecondTotals::default(),
            caveats: Vec::new(),
            told: false,
        }
    }

    /// Whether it is missed whatever comes until its end: what counts against it only grows.
    pub fn is_missed_already(&self, objective: &Objective) -> bool {
        match objective.metric {
            ObjectiveMetric::ErroredSeconds { .. } => {
                self.requirement.is_some_and(|r| self.counted.low.bad > r.constant())
            }
            // Were all that is to come available, and nothing of it left out.
            ObjectiveMetric::Availability { target_percent, rule } => {
                // One more, where intervals do not lie on the window's grid.
                let whole = self.range.length_ns() / rule.interval_ns().max(1) + 2;
                let left = whole - self.availability.unavailable as i64;
                i128::from(left) * WHOLE < percent_parts(target_percent) * i128::from(whole)
            }
            _ => false,
        }
    }

    /// Adds an interval with its final label. Without a rule for it all time is available.
    pub fn add(&mut self, item: &Item, label: AvailabilityLabel) {
        let length_ns = item.range.length_ns();
        if item.exclusion.is_some() {
            self.slots.excluded += item.slots;
            return;
        }
        if label == AvailabilityLabel::Unavailable {
            self.slots.unavailable += item.slots;
            self.known_ns += length_ns;
            return;
        }
        let Some(tally) = &item.tally else {
            self.slots.unknown += item.slots;
            self.unknown_ns += length_ns;
            self.seconds.errored_possible += item.slots;
            self.seconds.severe_possible += item.slots;
            return;
        };
        for caveat in item.caveats.iter() {
            match self.caveats.iter_mut().find(|c| c.caveat == caveat) {
                Some(known) => known.intervals += item.slots,
                None => self.caveats.push(CaveatIntervals { caveat, intervals: item.slots }),
            }
        }
        self.caveats.sort_by_key(|c| c.caveat);
        if label == AvailabilityLabel::Available {
            self.slots.counted += item.slots;
            self.known_ns += length_ns;
            self.counted.merge(tally);
            self.seconds.errored += tally.errored.0;
            self.seconds.errored_possible += tally.errored.1 - tally.errored.0;
            self.seconds.severe += tally.severe.0;
            self.seconds.severe_possible += tally.severe.1 - tally.severe.0;
            return;
        }
        self.slots.open += item.slots;
        self.unknown_ns += length_ns;
        self.seconds.errored_possible += tally.errored.1;
        self.seconds.severe_possible += tally.severe.1;
        let Some(requirement) = &self.requirement else { return };
        if requirement.least_excess(tally.low) < 0 {
            self.helping.add(tally.low);
        }
        if requirement.most_excess(tally.high) > 0 {
            self.hurting.add(tally.high);
        }
    }

    /// The verdict with what it stands on. `None`: no time of it counts.
    pub fn evidence(&self, objective: &Objective) -> Option<Evidence> {
        let SlotCounts { counted, unknown, unavailable, open, excluded } = self.slots;
        let metric = objective.metric;
        let availability = matches!(metric, ObjectiveMetric::Availability { .. });
        let judged = match metric {
            _ if !availability && counted + unknown + open == 0 => return None,
            ObjectiveMetric::Availability { target_percent, .. } => {
                self.judge_availability(target_percent)?
            }
            ObjectiveMetric::ErroredSeconds { .. } => self.judge_seconds(),
            _ => self.judge_samples(objective),
        };
        let limit = self.requirement.map(|r| r.limit_ns.1 as f64);
        let percent = metric.percent();
        let bound = match metric {
            ObjectiveMetric::Availability { target_percent, .. } => Some(target_percent / 100.0),
            ObjectiveMetric::ErroredSeconds { limit, .. } => Some(limit.into()),
            _ => match percent {
                Some(percent) => Some((100.0 - percent) / 100.0),
                None => self.requirement.map(|r| r.bound()),
            },
        };
        let mut caveats = CaveatSet::default();
        self.caveats.iter().for_each(|c| caveats.insert(c.caveat));
        Some(Evidence {
            start_ns: self.range.start_ns,
            end_ns: self.range.end_ns,
            verdict: judged.verdict.unwrap_or(ObjectiveVerdict::Undecided),
            undecided: judged.verdict.err(),
            low: judged.low,
            high: judged.high,
            bound,
            sense: if availability { BoundSense::AtLeast } else { BoundSense::AtMost },
            unit: if percent.is_some() { ObjectiveUnit::Ratio } else { metric.unit() },
            limit_ns: percent.and(limit),
            samples: judged.samples,
            least_samples: objective.least_samples(),
            counted,
            unknown,
            unavailable,
            open,
            excluded,
            caveats,
        })
    }

    fn judge_availability(&self, target_percent: f64) -> Option<Judged> {
        let totals = &self.availability;
        let (low, high) = (totals.low()?, totals.high()?);
        let target = percent_parts(target_percent) * i128::from(totals.base());
        let verdict = match () {
            () if totals.undecided == totals.base() => Err(UndecidedReason::NoData),
            () if i128::from(totals.available) * WHOLE >= target => Ok(ObjectiveVerdict::Met),
            () if i128::from(totals.available + totals.undecided) * WHOLE < target => {
                Ok(ObjectiveVerdict::Missed)
            }
            () => Err(UndecidedReason::LimitInRange),
        };
        Some(Judged { low: Some(low), high: Some(high), samples: totals.base(), verdict })
    }

    fn judge_seconds(&self) -> Judged {
        let SlotCounts { counted, unknown, open, .. } = self.slots;
        let low = self.counted.low.bad;
        let hurting = self.hurting.bad + i128::from(unknown);
        let high = self.counted.high.bad + hurting;
        let constant = self.requirement.map_or(0, |r| r.constant());
        let verdict = match () {
            () if counted + open == 0 => Err(UndecidedReason::NoData),
            () if high <= constant => Ok(ObjectiveVerdict::Met),
            () if low > constant => Ok(ObjectiveVerdict::Missed),
            () if unknown == 0 && self.counted.high.bad <= constant => {
                Err(UndecidedReason::AvailabilityOpen)
            }
            () => Err(UndecidedReason::LimitInRange),
        };
        Judged { low: Some(low as f64), high: Some(high as f64), samples: counted, verdict }
    }

    fn judge_samples(&self, objective: &Objective) -> Judged {
        let nothing =
            |samples, reason| Judged { low: None, high: None, samples, verdict: Err(reason) };
        let Some(requirement) = self.requirement else {
            return nothing(0, UndecidedReason::NoUsual);
        };
        let counted = match self.relative(objective, &requirement) {
            Some(tally) => tally,
            None => self.counted.clone(),
        };
        if counted.high.base == 0 {
            let reason = match self.slots.open {
                0 => UndecidedReason::NoData,
                _ => UndecidedReason::AvailabilityOpen,
            };
            return nothing(0, reason);
        }
        let value = |sums: Sums| (sums.base > 0).then(|| sums.bad as f64 / sums.base as f64);
        let decide = |helping: Sums, hurting: Sums| {
            let (mut least, mut most) = (counted.low, counted.high);
            least.add(helping);
            most.add(hurting);
            match () {
                () if requirement.most_excess(most) <= 0 => Some(ObjectiveVerdict::Met),
                () if requirement.least_excess(least) > 0 => Some(ObjectiveVerdict::Missed),
                () => None,
            }
        };
        let samples = counted.high.base;
        let known = self.known_ns as f64 * 100.0;
        let all = (self.known_ns + self.unknown_ns) as f64;
        let certain = decide(Sums::default(), Sums::default());
        let verdict = match decide(self.helping, self.hurting) {
            Some(ObjectiveVerdict::Missed) if self.refutes(objective, &requirement, &counted) => {
                Ok(ObjectiveVerdict::Missed)
            }
            _ if known < objective.least_known_percent * all => Err(UndecidedReason::MostlyUnknown),
            _ if samples < objective.least_samples() => Err(UndecidedReason::TooFewSamples),
            // The least delay hangs on the open intervals, too.
            _ if self.counted.delays.is_some() && self.slots.open > 0 => {
                Err(UndecidedReason::AvailabilityOpen)
            }
            Some(verdict) => Ok(verdict),
            None if certain.is_some() => Err(UndecidedReason::AvailabilityOpen),
            None => Err(UndecidedReason::LimitInRange),
        };
        let low = value(counted.low).or(Some(0.0));
        Judged { low, high: value(counted.high), samples, verdict }
    }

    /// Whether what was seen misses the objective whatever else there was in the window: time without
    /// data, were all of it good, and the samples that a statement at 95 % needs.
    fn refutes(&self, objective: &Objective, requirement: &Requirement, counted: &Tally) -> bool {
        // The least delay may be another one.
        let open = self.counted.delays.is_some() && self.slots.open > 0;
        let Some(share) = requirement.share().filter(|_| !open) else { return false };
        let mut least = counted.low;
        least.add(self.helping);
        let enough = counted.high.base >= objective.least_samples()
            || refutes(u64::try_from(least.bad).unwrap_or(0), least.base, share);
        // Time without data is filled with as many packets as went out in the time that counts. How
        // many of them had arrived is not known, so that delays are not filled.
        let SlotCounts { counted: slots, unavailable, .. } = self.slots;
        let counted_ns = self.known_ns as f64 * slots as f64 / (slots + unavailable).max(1) as f64;
        let missing = counted.high.base as f64 * self.unknown_ns as f64 / counted_ns.max(1.0);
        let is_loss = matches!(objective.metric, ObjectiveMetric::LossRatio { .. });
        let known = self.known_ns as f64 * 100.0
            >= objective.least_known_percent * (self.known_ns + self.unknown_ns) as f64;
        if !known && is_loss {
            least.base = least.base.saturating_add(missing.ceil() as u64);
        }
        enough && (known || is_loss) && requirement.least_excess(least) > 0
    }

    /// Of an objective about the delay above the least: the samples beyond that and the limit.
    fn relative(&self, objective: &Objective, requirement: &Requirement) -> Option<Tally> {
        let delays = self.counted.delays.as_deref()?;
        debug_assert!(matches!(objective.metric, ObjectiveMetric::PdvPercentile { .. }));
        let least = delays.min()?;
        let (low, high) = requirement.limit_ns;
        beyond(delays, (least.saturating_add(low), least.saturating_add(high)), false)
    }
}
