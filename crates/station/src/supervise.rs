//! What follows when a unit starts, works, stalls or ends: a state machine without threads and
//! without a clock.
//!
//! Health is progress made: a unit that makes none for [`STALL`] is stopped and
//! started again. A unit that fails is started again after a delay ([`Backoff`]). Each time in
//! which a unit that had begun measures nothing becomes one [`Gap`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sonde_run::change::Change;
use sonde_wire::time::Time;

use crate::backoff::Backoff;
use crate::plan::{Plan, Resource, UnitId, UnitSpec};
use crate::reload::{ReloadError, Step, StopReason, steps};

/// One life of a unit: what an earlier one says late is not taken for the present one's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// Whose.
    pub unit: UnitId,
    /// Counts the starts of this unit, from 1.
    pub start: u64,
}

/// What happened to an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It is open and measures.
    Started,
    /// What it has done so far: any count that grows while it works.
    Progress(u64),
    /// It could not change while it runs.
    NotAdjusted(String),
    /// It has ended, or could not start; what it held is free.
    Exited(Exit),
}

/// How a unit ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was asked to, or had done what it was to do.
    Done,
    /// It failed; another try may succeed.
    Failed(String),
    /// Its settings cannot be on any host: another try is of no use.
    Refused(String),
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Action<S> {
    /// Start it with these settings.
    Start(Instance, Arc<S>),
    /// Give it these settings while it runs.
    Adjust(Instance, Arc<S>),
    /// Ask it to end, within [`PATIENCE`].
    Stop(Instance),
    /// It did not end in time: ask it to wait for nothing.
    Hurry(Instance),
    /// Record that a unit measured nothing.
    RecordGap(Gap),
    /// Tell people.
    Raise(Notice),
}

/// A time in which a unit that was wanted measured nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Which.
    pub unit: UnitId,
    /// The last moment at which it is known to have worked.
    pub from: Time,
    /// When it measured again, or was not wanted any more.
    pub to: Time,
    /// Why.
    pub why: String,
}

/// What people are told of a unit, once for each trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It failed; it is tried again, and nothing more is said until [`Notice::Recovered`].
    Failed(UnitId, String),
    /// Its settings are refused; it waits for others.
    Refused(UnitId, String),
    /// It neither works nor ends; what it holds is not free.
    Stuck(UnitId),
    /// It has worked for [`SETTLED`] since it failed.
    Recovered(UnitId),
}

impl Notice {
    /// Of which unit.
    pub fn unit(&self) -> &UnitId {
        match self {
            Notice::Failed(unit, _)
            | Notice::Refused(unit, _)
            | Notice::Stuck(unit)
            | Notice::Recovered(unit) => unit,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Failed(unit, why) => write!(f, "{unit} failed, and is tried again: {why}"),
            Notice::Refused(unit, why) => write!(f, "{unit} waits for other settings: {why}"),
            Notice::Stuck(unit) => {
                write!(
                    f,
                    "{unit} neither works nor ends; restart the station to free what it holds"
                )
            }
            Notice::Recovered(unit) => write!(f, "{unit} works again"),
        }
    }
}

/// What a unit does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// It waits until what it needs is free.
    Blocked,
    /// It was asked to start.
    Starting,
    /// It measures.
    Running,
    /// It was asked to end.
    Stopping,
    /// It waits for its next try.
    Waiting,
    /// It neither works nor ends.
    Stuck,
    /// It had done what it was to do.
    Done,
    /// Its settings are refused.
    Refused,
}

/// All units of a station.
pub struct Supervisor<S> {
    units: BTreeMap<UnitId, SupervisedUnit<S>>,
    random: fastrand::Rng,
}

struct SupervisedUnit<S> {
    /// What it is to do; `None`: it is not wanted any more.
    wanted: Option<Arc<S>>,
    wanted_since: Time,
    /// What it was started or last adjusted with, and holds.
    given: Option<Arc<S>>,
    state: UnitState,
    start: u64,
    /// When the state was entered; of a waiting one, when its next try is.
    at: Time,
    /// The last count of progress, and when it grew.
    progress: (u64, Time),
    /// Since when it has worked without a break.
    well_since: Time,
    /// Why it was asked to end.
    ends_because: Option<String>,
    /// It ends for a failure: the next try has to wait.
    tries_later: bool,
    /// Since when it measures nothing, and why.
    silent: Option<(Time, String)>,
    backoff: Backoff,
    /// It failed and has not settled since: people know.
    in_trouble: bool,
}

/// Without progress for so long, a unit is taken for stalled; also one that starts.
pub const STALL: Duration = Duration::from_secs(30);
/// For an end in order. A unit that takes longer is stuck.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// After so long a time without a failure, a unit counts as well again.
pub const SETTLED: Duration = Duration::from_secs(600);

impl<S: UnitSpec> Supervisor<S> {
    /// One with nothing to run. `seed` is of the delays.
    pub fn new(seed: u64) -> Supervisor<S> {
        Supervisor { units: BTreeMap::new(), random: fastrand::Rng::with_seed(seed) }
    }

    /// The units that are wanted or have not ended, by name.
    pub fn states(&self) -> impl Iterator<Item = (&UnitId, UnitState)> {
        self.units.iter().map(|(id, unit)| (id, unit.state))
    }

    /// What going over to another plan would do. The steps are for people.
    ///
    /// # Errors
    /// Units that cannot run side by side.
    pub fn foresee(&self, plan: &Plan<S>) -> Result<Vec<Step>, Vec<ReloadError>> {
        steps(&self.current(), plan)
    }

    /// Goes over to another plan; the empty one ends all. The steps are for people.
    ///
    /// # Errors
    /// Units that cannot run side by side; all goes on as it was.
    pub fn reload(
        &mut self,
        now: Time,
        plan: Plan<S>,
        actions: &mut Vec<Action<S>>,
    ) -> Result<Vec<Step>, Vec<ReloadError>> {
        let steps = self.foresee(&plan)?;
        for step in &steps {
            match step {
                Step::Keep(id) | Step::Start(id) => self.want(now, id, &plan),
                Step::Adjust { unit, .. } => self.want(now, unit, &plan),
                Step::Stop { unit, why } => self.unwant(now, unit, why, actions),
            }
        }
        self.act(now, actions);
        Ok(steps)
    }

    /// Takes what happened to an instance.
    pub fn handle(
        &mut self,
        now: Time,
        instance: &Instance,
        happened: Happened,
        actions: &mut Vec<Action<S>>,
    ) {
        let id = &instance.unit;
        let Some(unit) = self.units.get_mut(id).filter(|unit| unit.start == instance.start) else {
            return;
        };
        match happened {
            Happened::Started => unit.started(now, id, actions),
            Happened::Progress(count) => unit.progressed(now, count),
            Happened::NotAdjusted(why) => {
                if unit.state == UnitState::Running {
                    unit.fail(id, &why, actions);
                    unit.stop(now, instance.clone(), &why, actions);
                }
            }
            Happened::Exited(exit) => {
                if unit.exited(now, id, exit, &mut self.random, actions) {
                    self.units.remove(id);
                }
            }
        }
        self.act(now, actions);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time, actions: &mut Vec<Action<S>>) {
        for (id, unit) in &mut self.units {
            let instance = Instance { unit: id.clone(), start: unit.start };
            if unit.due().is_none_or(|due| due > now) {
                continue;
            }
            match unit.state {
                UnitState::Waiting => unit.enter(now, UnitState::Blocked),
                UnitState::Starting => {
                    let why = format!("it did not start within {} s", STALL.as_secs());
                    unit.fail(id, &why, actions);
                    unit.stop(now, instance, &why, actions);
                }
                UnitState::Running if unit.has_stalled(now) => {
                    let why = format!("it made no progress for {} s", STALL.as_secs());
                    unit.fall_silent(unit.progress.1, &why);
                    unit.fail(id, &why, actions);
                    unit.stop(now, instance, &why, actions);
                }
                UnitState::Running => unit.settle(id, actions),
                UnitState::Stopping => {
                    unit.enter(now, UnitState::Stuck);
                    actions.push(Action::Hurry(instance));
                    actions.push(Action::Raise(Notice::Stuck(id.clone())));
                }
                UnitState::Stuck | UnitState::Blocked | UnitState::Done | UnitState::Refused => {}
            }
        }
        self.act(now, actions);
    }

    /// When [`Supervisor::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.units.values().filter_map(SupervisedUnit::due).min()
    }

    /// Starts and adjusts what is free to.
    fn act(&mut self, now: Time, actions: &mut Vec<Action<S>>) {
        let ids: Vec<UnitId> = self.units.keys().cloned().collect();
        for id in ids {
            let unit = &self.units[&id];
            let Some(spec) = unit.wanted.clone() else { continue };
            let adjusts = unit.is_to_be_adjusted();
            if !(adjusts || unit.state == UnitState::Blocked) {
                continue;
            }
            let in_the_way = self.in_the_way(&id, &spec.holds());
            let Some(unit) = self.units.get_mut(&id) else { continue };
            if let Some(other) = in_the_way {
                if !adjusts {
                    unit.fall_silent(
                        unit.wanted_since,
                        &format!("it waited for the end of {other}"),
                    );
                }
                continue;
            }
            unit.given = Some(spec.clone());
            if adjusts {
                actions.push(Action::Adjust(Instance { unit: id, start: unit.start }, spec));
                continue;
            }
            unit.start += 1;
            unit.enter(now, UnitState::Starting);
            actions.push(Action::Start(Instance { unit: id, start: unit.start }, spec));
        }
    }

    /// A unit that holds some of `needs`.
    fn in_the_way(&self, id: &UnitId, needs: &[Resource]) -> Option<UnitId> {
        let holds = |unit: &SupervisedUnit<S>| {
            let held = unit.given.iter().flat_map(|given| given.holds()).collect::<Vec<_>>();
            held.iter().any(|theirs| needs.iter().any(|mine| mine.meets(theirs)))
        };
        self.units
            .iter()
            .find(|(other, unit)| *other != id && holds(unit))
            .map(|(id, _)| id.clone())
    }

    /// What the wanted units were given last, or will be.
    fn current(&self) -> Plan<S> {
        let wanted = self.units.iter().filter(|(_, unit)| unit.wanted.is_some());
        let given = |unit: &SupervisedUnit<S>| match unit.state {
            UnitState::Starting | UnitState::Running => unit.given.clone(),
            _ => unit.wanted.clone(),
        };
        Plan::shared(wanted.filter_map(|(id, unit)| Some((id.clone(), given(unit)?))))
    }

    fn want(&mut self, now: Time, id: &UnitId, plan: &Plan<S>) {
        let Some(spec) = plan.get(id) else { return };
        let unit = self.units.entry(id.clone()).or_insert_with(|| SupervisedUnit::new(now));
        if unit.wanted.is_none() {
            unit.wanted_since = now;
        }
        let same = unit.wanted.as_ref().is_some_and(|wanted| wanted.change(spec) == Change::Same);
        unit.wanted = Some(spec.clone());
        let rests = matches!(unit.state, UnitState::Waiting | UnitState::Done | UnitState::Refused);
        if rests && !same {
            unit.backoff.reset();
            unit.enter(now, UnitState::Blocked);
        }
    }

    fn unwant(&mut self, now: Time, id: &UnitId, why: &StopReason, actions: &mut Vec<Action<S>>) {
        let Some(unit) = self.units.get_mut(id) else { return };
        let instance = Instance { unit: id.clone(), start: unit.start };
        let why = match why {
            StopReason::Removed => {
                unit.wanted = None;
                unit.end_silence(now, id, actions);
                "it is not in the configuration any more"
            }
            StopReason::Changed(why) => why,
        };
        match unit.state {
            UnitState::Starting | UnitState::Running => unit.stop(now, instance, why, actions),
            UnitState::Stopping | UnitState::Stuck => {}
            _ if unit.wanted.is_none() => drop(self.units.remove(id)),
            _ => unit.enter(now, UnitState::Blocked),
        }
        // Other settings are tried at once, however the earlier ones fared.
        if let Some(unit) = self.units.get_mut(id) {
            unit.backoff.reset();
            unit.tries_later = false;
        }
    }
}

impl<S: UnitSpec> SupervisedUnit<S> {
    fn new(now: Time) -> SupervisedUnit<S> {
        SupervisedUnit {
            wanted: None,
            wanted_since: now,
            given: None,
            state: UnitState::Blocked,
            start: 0,
            at: now,
            progress: (0, now),
            well_since: now,
            ends_because: None,
            tries_later: false,
            silent: None,
            backoff: Backoff::default(),
            in_trouble: false,
        }
    }

    fn enter(&mut self, at: Time, state: UnitState) {
        (self.state, self.at) = (state, at);
    }

    fn due(&self) -> Option<Time> {
        match self.state {
            UnitState::Waiting => Some(self.at),
            UnitState::Starting => Some(later(self.at, STALL)),
            UnitState::Stopping => Some(later(self.at, PATIENCE)),
            UnitState::Running => {
                let stalls = later(self.progress.1, STALL);
                let settles = self.in_trouble.then(|| later(self.well_since, SETTLED));
                Some(settles.map_or(stalls, |settles| settles.min(stalls)))
            }
            UnitState::Blocked | UnitState::Stuck | UnitState::Done | UnitState::Refused => None,
        }
    }

    /// Whether it runs with other settings than are wanted.
    fn is_to_be_adjusted(&self) -> bool {
        let (Some(given), Some(wanted)) = (&self.given, &self.wanted) else { return false };
        self.state == UnitState::Running && given.change(wanted) != Change::Same
    }

    fn started(&mut self, now: Time, id: &UnitId, actions: &mut Vec<Action<S>>) {
        if self.state != UnitState::Starting {
            return;
        }
        self.end_silence(now, id, actions);
        self.progress = (0, now);
        self.well_since = now;
        self.enter(now, UnitState::Running);
    }

    fn progressed(&mut self, now: Time, count: u64) {
        if self.state == UnitState::Running && count != self.progress.0 {
            self.progress = (count, now);
        }
    }

    fn has_stalled(&self, now: Time) -> bool {
        later(self.progress.1, STALL) <= now
    }

    /// It has worked long enough.
    fn settle(&mut self, id: &UnitId, actions: &mut Vec<Action<S>>) {
        self.in_trouble = false;
        self.backoff.reset();
        actions.push(Action::Raise(Notice::Recovered(id.clone())));
    }

    /// Tells of a failure, once until it has settled.
    fn fail(&mut self, id: &UnitId, why: &str, actions: &mut Vec<Action<S>>) {
        self.tries_later = true;
        if !std::mem::replace(&mut self.in_trouble, true) {
            actions.push(Action::Raise(Notice::Failed(id.clone(), why.into())));
        }
    }

    fn fall_silent(&mut self, from: Time, why: &str) {
        self.silent.get_or_insert_with(|| (from, why.into()));
    }

    fn end_silence(&mut self, now: Time, id: &UnitId, actions: &mut Vec<Action<S>>) {
        let Some((from, why)) = self.silent.take() else { return };
        actions.push(Action::RecordGap(Gap { unit: id.clone(), from, to: now, why }));
    }

    fn stop(&mut self, now: Time, instance: Instance, why: &str, actions: &mut Vec<Action<S>>) {
        if self.state == UnitState::Starting && self.tries_later {
            self.fall_silent(self.wanted_since, why);
        }
        if self.state == UnitState::Running {
            // It sends no more, and only waits for its last replies.
            self.fall_silent(now, why);
        }
        self.ends_because = Some(why.into());
        self.enter(now, UnitState::Stopping);
        actions.push(Action::Stop(instance));
    }

    /// Whether nothing is left of it.
    fn exited(
        &mut self,
        now: Time,
        id: &UnitId,
        exit: Exit,
        random: &mut fastrand::Rng,
        actions: &mut Vec<Action<S>>,
    ) -> bool {
        let was = self.state;
        let asked = matches!(was, UnitState::Stopping | UnitState::Stuck);
        if !asked && !matches!(was, UnitState::Starting | UnitState::Running) {
            return false;
        }
        self.given = None;
        if self.wanted.is_none() {
            return true;
        }
        let why = match &exit {
            Exit::Failed(why) | Exit::Refused(why) => Some(why.clone()),
            Exit::Done => None,
        };
        let why = self.ends_because.take().or(why);
        if was == UnitState::Done || (exit == Exit::Done && !asked) {
            self.enter(now, UnitState::Done);
            return false;
        }
        let from = if was == UnitState::Starting { self.wanted_since } else { now };
        self.fall_silent(from, why.as_deref().unwrap_or("it ended"));
        match exit {
            Exit::Refused(why) => {
                self.in_trouble = true;
                actions.push(Action::Raise(Notice::Refused(id.clone(), why)));
                self.enter(now, UnitState::Refused);
            }
            Exit::Failed(why) if !asked => {
                self.fail(id, &why, actions);
                self.wait(now, random);
            }
            Exit::Done | Exit::Failed(_) if self.tries_later => self.wait(now, random),
            // It takes other settings, at once.
            Exit::Done | Exit::Failed(_) => self.enter(now, UnitState::Blocked),
        }
        false
    }

    fn wait(&mut self, now: Time, random: &mut fastrand::Rng) {
        self.tries_later = false;
        let delay = self.backoff.next(random);
        self.enter(later(now, delay), UnitState::Waiting);
    }
}

fn later(time: Time, by: Duration) -> Time {
    time + i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
