//! A month adds up its windows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::sla::{
    AvailabilityTotals, BoundSense, CaveatIntervals, Evidence, ObjectiveMonth, ObjectiveVerdict,
    SecondTotals, WindowTotals,
};

use super::objective::Objective;
use super::open_window::OpenWindow;
use super::window::TimeRange;

/// What a month has so far. Names and texts come to it when it is reported: there are as many
/// months as judges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct MonthSums {
    pub range: TimeRange,
    windows: WindowTotals,
    worst: Option<Box<Evidence>>,
    pub availability: AvailabilityTotals,
    seconds: SecondTotals,
    caveats: Vec<CaveatIntervals>,
}

impl MonthSums {
    pub fn new(range: TimeRange) -> Self {
        MonthSums {
            range,
            windows: WindowTotals::default(),
            worst: None,
            availability: AvailabilityTotals::default(),
            seconds: SecondTotals::default(),
            caveats: Vec::new(),
        }
    }

    /// Adds a window with its verdict; `None`: no time of it counted.
    pub fn add_closed(&mut self, window: &OpenWindow, evidence: Option<&Evidence>) {
        self.add_open(window);
        match evidence {
            Some(evidence) => self.windows.add(evidence.verdict),
            None => self.windows.excluded += 1,
        }
        let missed = evidence.filter(|e| e.verdict == ObjectiveVerdict::Missed);
        if let Some(missed) = missed
            && self.worst.as_ref().is_none_or(|worst| further(missed, worst))
        {
            self.worst = Some(Box::new(missed.clone()));
        }
    }

    /// Counts a window whose verdict is certain before its end.
    pub fn count(&mut self, verdict: ObjectiveVerdict) {
        self.windows.add(verdict);
    }

    /// Adds what a window has counted so far.
    pub fn add_open(&mut self, window: &OpenWindow) {
        self.availability.merge(&window.availability);
        self.seconds.merge(&window.seconds);
        for more in &window.caveats {
            match self.caveats.binary_search_by_key(&more.caveat, |c| c.caveat) {
                Ok(i) => self.caveats[i].intervals += more.intervals,
                Err(i) => self.caveats.insert(i, *more),
            }
        }
    }

    /// The figures, with whose they are.
    pub fn report(self, objective: &Objective, subject: &str, provisional: bool) -> ObjectiveMonth {
        ObjectiveMonth {
            objective: objective.name.clone(),
            subject: subject.into(),
            direction: objective.direction,
            text: objective.to_string(),
            standard: objective.standard.clone(),
            start_ns: self.range.start_ns,
            end_ns: self.range.end_ns,
            provisional,
            revision: 0,
            windows: self.windows,
            worst: self.worst.map(|worst| *worst),
            availability: self.availability,
            seconds: self.seconds,
            caveats: self.caveats,
        }
    }
}

/// Whether `a` is further from the objective than `b`. Numbers that were saved as text may read back
/// with another last digit; it decides nothing.
fn further(a: &Evidence, b: &Evidence) -> bool {
    let (a, b) = (distance(a), distance(b));
    a - b > 1e-9 * b.abs()
}

/// How far a window is beyond its bound, for certain.
fn distance(evidence: &Evidence) -> f64 {
    let beyond = match evidence.sense {
        BoundSense::AtMost => evidence.low.zip(evidence.bound).map(|(value, bound)| value - bound),
        BoundSense::AtLeast => {
            evidence.high.zip(evidence.bound).map(|(value, bound)| bound - value)
        }
    };
    beyond.unwrap_or(0.0)
}
