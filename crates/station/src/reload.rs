//! What going over from one plan to another takes: the difference as a value.

use std::collections::BTreeSet;
use std::sync::Arc;

use sonde_run::change::Change;

use crate::plan::{Plan, Resource, UnitId, UnitSpec};

/// One thing to do, in the order in which it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It runs on as it is.
    Keep(UnitId),
    /// It runs on with other settings.
    Adjust {
        /// Which one.
        unit: UnitId,
        /// What it measures besides, or otherwise than before.
        added: Vec<String>,
        /// What it does not measure any more, or not as it did.
        ended: Vec<String>,
    },
    /// It ends, and its resources are free.
    Stop {
        /// Which one.
        unit: UnitId,
        /// Why.
        why: StopReason,
    },
    /// It begins with the new settings.
    Start(UnitId),
}

/// Why a reload stops a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It is not in the new plan.
    Removed,
    /// The change cannot be made while it runs, for this reason.
    Changed(String),
}

/// Why a plan cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {second} both need {resource}; change one of them")]
pub struct ReloadError {
    /// The unit that comes first by name.
    pub first: UnitId,
    /// The other.
    pub second: UnitId,
    /// What both would hold.
    pub resource: Resource,
}

/// The steps from `old`, which runs, to `new`.
///
/// A unit starts before others stop, so that nothing is without measurement for want of order;
/// only where two meet at a resource, the one that holds it stops first.
///
/// # Errors
/// Units of `new` that cannot run side by side, all of them.
pub fn steps<S: UnitSpec>(old: &Plan<S>, new: &Plan<S>) -> Result<Vec<Step>, Vec<ReloadError>> {
    let errors = conflicts(new);
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut order = Order::between(old, new);
    while !order.is_done() {
        if order.do_what_is_free() {
            continue;
        }
        if !order.stop_one_in_the_way() {
            order.restart_one();
        }
    }
    Ok(order.steps)
}

/// Pairs of units that hold what excludes the other.
pub(crate) fn conflicts<S: UnitSpec>(plan: &Plan<S>) -> Vec<ReloadError> {
    let held: Vec<(&UnitId, Vec<Resource>)> = plan.iter().map(|(id, s)| (id, s.holds())).collect();
    let mut errors = Vec::new();
    for (i, (first, ours)) in held.iter().enumerate() {
        for (second, theirs) in &held[i + 1..] {
            let met = ours.iter().find(|mine| theirs.iter().any(|other| mine.meets(other)));
            errors.extend(met.map(|resource| ReloadError {
                first: (*first).clone(),
                second: (*second).clone(),
                resource: resource.clone(),
            }));
        }
    }
    errors
}

/// What is still to be done, and who holds what meanwhile.
struct Order {
    steps: Vec<Step>,
    held: Vec<(UnitId, Vec<Resource>)>,
    adjusts: Vec<Pending>,
    starts: Vec<Pending>,
    stops: Vec<(UnitId, StopReason)>,
}

struct Pending {
    unit: UnitId,
    holds: Vec<Resource>,
    added: Vec<String>,
    ended: Vec<String>,
}

impl Order {
    fn between<S: UnitSpec>(old: &Plan<S>, new: &Plan<S>) -> Order {
        let held = old.iter().map(|(id, spec)| (id.clone(), spec.holds())).collect();
        let mut order =
            Order { steps: vec![], held, adjusts: vec![], starts: vec![], stops: vec![] };
        for (id, spec) in new.iter() {
            let mut pending =
                Pending { unit: id.clone(), holds: spec.holds(), added: vec![], ended: vec![] };
            match old.get(id).map(|before| change(before, spec)) {
                None => order.starts.push(pending),
                Some(Change::Same) => order.steps.push(Step::Keep(id.clone())),
                Some(Change::Live { added, ended }) => {
                    (pending.added, pending.ended) = (added, ended);
                    order.adjusts.push(pending);
                }
                Some(Change::Restart(why)) => {
                    order.stops.push((id.clone(), StopReason::Changed(why)));
                    order.starts.push(pending);
                }
            }
        }
        let removed = old.iter().filter(|(id, _)| new.get(id).is_none());
        order.stops.extend(removed.map(|(id, _)| (id.clone(), StopReason::Removed)));
        order
    }

    fn is_done(&self) -> bool {
        self.adjusts.is_empty() && self.starts.is_empty() && self.stops.is_empty()
    }

    /// Whether `pending` can be done as things are held now.
    fn is_free(&self, pending: &Pending, starts: bool) -> bool {
        self.held.iter().all(|(id, theirs)| match *id == pending.unit {
            true => !starts,
            false => !pending.holds.iter().any(|mine| theirs.iter().any(|t| mine.meets(t))),
        })
    }

    /// Does one thing for which nothing has to stop; whether there was one.
    fn do_what_is_free(&mut self) -> bool {
        if let Some(at) = self.adjusts.iter().position(|p| self.is_free(p, false)) {
            let Pending { unit, holds, added, ended } = self.adjusts.remove(at);
            self.held.retain(|(id, _)| *id != unit);
            self.held.push((unit.clone(), holds));
            self.steps.push(Step::Adjust { unit, added, ended });
            return true;
        }
        let Some(at) = self.starts.iter().position(|p| self.is_free(p, true)) else {
            return false;
        };
        let Pending { unit, holds, .. } = self.starts.remove(at);
        self.held.push((unit.clone(), holds));
        self.steps.push(Step::Start(unit));
        true
    }

    /// Stops a unit that is to stop: one that is in the way of another if there is such; whether
    /// there was one to stop.
    fn stop_one_in_the_way(&mut self) -> bool {
        let wanted: BTreeSet<&UnitId> = self.starts.iter().map(|p| &p.unit).collect();
        let awaited = |unit: &UnitId| {
            let theirs = self.held.iter().find(|(id, _)| id == unit).map(|(_, held)| held);
            wanted.contains(unit)
                || self.adjusts.iter().chain(&self.starts).any(|pending| {
                    let holds =
                        |mine: &Resource| theirs.is_some_and(|t| t.iter().any(|t| mine.meets(t)));
                    pending.holds.iter().any(holds)
                })
        };
        let at = self.stops.iter().position(|(unit, _)| awaited(unit));
        let Some(at) = at.or((!self.stops.is_empty()).then_some(0)) else { return false };
        let (unit, why) = self.stops.remove(at);
        self.held.retain(|(id, _)| *id != unit);
        self.steps.push(Step::Stop { unit, why });
        true
    }

    /// Units that would take each other's resources: the first of them begins anew.
    fn restart_one(&mut self) {
        let pending = self.adjusts.remove(0);
        let why = "it takes what another unit gives up in the same reload".into();
        self.stops.push((pending.unit.clone(), StopReason::Changed(why)));
        self.starts.push(pending);
    }
}

/// The same value is no change, whatever its type says.
fn change<S: UnitSpec>(old: &Arc<S>, new: &Arc<S>) -> Change {
    if Arc::ptr_eq(old, new) { Change::Same } else { old.change(new) }
}

#[cfg(test)]
mod tests;
