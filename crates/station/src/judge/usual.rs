//! What is usual in an hour: asked for here, read from the store by [`super::thread`].

use std::sync::Arc;

use sonde_meter::sla::{Objective, Usual};

use super::StationJudge;
use super::subject::Subject;
use crate::alert::model::LabelSet;

/// An hour whose usual is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct UsualWanted {
    /// Whose: station, unit, target, class.
    pub labels: LabelSet,
    /// By which objective.
    pub objective: Arc<Objective>,
    /// Begin of the hour, ns since 1970 UTC.
    pub hour_ns: i64,
}

impl StationJudge {
    /// The hours whose usual is wanted at `now_ns` or soon, so many at most.
    pub fn wanted_usuals(&self, now_ns: i64, most: usize) -> Vec<UsualWanted> {
        let asks = |o: &super::settings::JudgedObjective| {
            o.objective.metric.limit().is_some_and(|limit| limit.is_usual())
        };
        if !self.settings.objectives.iter().any(asks) {
            return Vec::new();
        }
        let wanted = self.subjects.iter().flat_map(|(labels, subject)| {
            let hours = subject.wanted_usuals([now_ns, now_ns + AHEAD_NS]);
            hours.into_iter().map(|(objective, hour_ns)| UsualWanted {
                labels: labels.clone(),
                objective,
                hour_ns,
            })
        });
        wanted.take(most).collect()
    }

    /// Says what is usual in an hour; `None`: it is not known.
    pub fn set_usual(&mut self, wanted: &UsualWanted, usual: Option<Usual>) {
        if let Some(subject) = self.subjects.get_mut(&wanted.labels) {
            subject.set_usual(&wanted.objective.name, wanted.hour_ns, usual);
        }
    }
}

impl Subject {
    fn wanted_usuals(&self, times_ns: [i64; 2]) -> Vec<(Arc<Objective>, i64)> {
        let mut wanted = Vec::new();
        for (judge, next_ns) in self.judges_and_times() {
            for at_ns in next_ns.into_iter().chain(times_ns) {
                let Some(hour_ns) = judge.wants_usual(at_ns) else { continue };
                let known = |(objective, hour): &(Arc<Objective>, i64)| {
                    *hour == hour_ns && objective.name == judge.objective().name
                };
                if !wanted.iter().any(known) {
                    wanted.push((Arc::new(judge.objective().clone()), hour_ns));
                }
            }
        }
        wanted
    }
}

/// So long before an hour begins its usual is asked for, ns.
const AHEAD_NS: i64 = 600 * 1_000_000_000;
