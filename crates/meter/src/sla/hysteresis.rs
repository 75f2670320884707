//! n of m: when windows that missed an objective are a breach, and when it is over.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::sla::ObjectiveVerdict;

use super::objective::{Objective, OutOf};
use super::window::TimeRange;

/// The state of an objective between its windows.
///
/// A window that is undecided takes its place among the last m, and counts for neither side. So it
/// never causes a breach or a recovery. After each of these the counting begins anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hysteresis {
    recent: VecDeque<RecentWindow>,
    /// Begin of the breach that is open.
    breach_ns: Option<i64>,
    /// End of the last window that missed.
    last_missed_ns: i64,
    undecided: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct RecentWindow {
    start_ns: i64,
    verdict: ObjectiveVerdict,
}

/// What a window changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// A breach, from the first window on that missed.
    Breach {
        /// Its begin, ns.
        at_ns: i64,
        /// Windows that missed.
        missed: u32,
    },
    /// A recovery, from the end of the last window on that missed.
    Recovery {
        /// When, ns.
        at_ns: i64,
        /// When the breach had begun, ns.
        breach_ns: i64,
    },
    /// Nothing is known any more.
    Unknown,
    /// Something is known again.
    Known,
}

impl Hysteresis {
    /// Begin of the open breach, ns since 1970 UTC; `None`: there is none.
    pub fn breach_ns(&self) -> Option<i64> {
        self.breach_ns
    }

    /// Whether none of the windows looked at decided anything.
    pub fn is_unknown(&self, breach: OutOf) -> bool {
        self.undecided >= breach.m
    }

    /// The same for another definition of the objective from `at_ns` on: the breach that is open stays
    /// so, and is over at `at_ns` where no window misses the new one.
    pub fn redefined(&self, old: OutOf, new: &Objective, at_ns: i64) -> Hysteresis {
        Hysteresis {
            recent: VecDeque::new(),
            breach_ns: self.breach_ns,
            last_missed_ns: at_ns,
            undecided: if self.is_unknown(old) { new.breach.m } else { 0 },
        }
    }

    /// Takes the next window. At most two things come of it.
    pub fn step(
        &mut self,
        window: TimeRange,
        verdict: ObjectiveVerdict,
        breach: OutOf,
        recovery: OutOf,
    ) -> [Option<Crossing>; 2] {
        if verdict == ObjectiveVerdict::Undecided {
            self.undecided = self.undecided.saturating_add(1);
            self.remember(window, verdict, breach, recovery);
            return [(self.undecided == breach.m).then_some(Crossing::Unknown), None];
        }
        let known = self.is_unknown(breach).then_some(Crossing::Known);
        self.undecided = 0;
        self.remember(window, verdict, breach, recovery);
        if verdict == ObjectiveVerdict::Missed {
            self.last_missed_ns = window.end_ns;
        }
        [known, self.cross(breach, recovery)]
    }

    fn remember(
        &mut self,
        window: TimeRange,
        verdict: ObjectiveVerdict,
        breach: OutOf,
        recovery: OutOf,
    ) {
        self.recent.push_back(RecentWindow { start_ns: window.start_ns, verdict });
        while self.recent.len() > breach.m.max(recovery.m) as usize {
            self.recent.pop_front();
        }
    }

    fn cross(&mut self, breach: OutOf, recovery: OutOf) -> Option<Crossing> {
        let last = |m: u32, wanted: ObjectiveVerdict| {
            let skipped = self.recent.len().saturating_sub(m as usize);
            self.recent.iter().skip(skipped).filter(move |w| w.verdict == wanted)
        };
        let crossing = match self.breach_ns {
            None => {
                let missed = last(breach.m, ObjectiveVerdict::Missed).count() as u32;
                let first = last(breach.m, ObjectiveVerdict::Missed).next()?;
                (missed >= breach.n)
                    .then_some(Crossing::Breach { at_ns: first.start_ns, missed })?
            }
            Some(breach_ns) => {
                let met = last(recovery.m, ObjectiveVerdict::Met).count() as u32;
                (met >= recovery.n)
                    .then_some(Crossing::Recovery { at_ns: self.last_missed_ns, breach_ns })?
            }
        };
        self.breach_ns = match crossing {
            Crossing::Breach { at_ns, .. } => Some(at_ns),
            _ => None,
        };
        self.recent.clear();
        Some(crossing)
    }
}
