//! When people are told of alerts: a state machine without I/O and without a clock.
//!
//! Alerts of one cause are one group for each receiver. A group is told of when it has waited for
//! others of its cause, when something changed in it, and again after a while. The laws, which
//! `tests` holds it to:
//!
//! - every group that opened is told of, unless it was held back whenever it could have been;
//! - whatever was told is resolved exactly once, with its duration, also during a silence;
//! - what a silence held back comes out at its end, if it still lasts;
//! - what has not changed is not told to the same receiver again before the time to repeat it;
//! - the order of alerts and silences that come at one instant does not matter;
//! - a state that was saved and restored goes on as if nothing had happened.
//!
//! An alert that ends and begins again before a receiver was told of the end goes on for that
//! receiver; [`NotifiedAlert::episodes`](super::notification::NotifiedAlert::episodes) counts it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::group::{Around, Group, Known};
use super::model::{Alert, LabelSet, bounded_labels};
use super::notification::Notification;
use super::route::{AlertGroupKey, AlertRoute, GroupTiming, groups_of};
use super::silence::{Acknowledgement, Mute};

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlertInput {
    /// An alert lasts, or has ended. What came already may come again.
    Alert(Alert),
    /// Hold back what matches. One of the same name goes.
    Mute(Mute),
    /// End the silence or maintenance of this name now.
    Unmute(String),
    /// Somebody takes care of the alert with these labels.
    Acknowledge(LabelSet, Acknowledgement),
    /// Nobody does any more.
    Unacknowledge(LabelSet),
}

/// Who tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Teller {
    /// The station's name.
    pub station: String,
    /// Where it is found.
    pub link: Option<String>,
}

/// What was counted since the state began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AlertCounters {
    /// Alerts that began.
    pub began: u64,
    /// Of those, for how many no route names a receiver.
    pub unrouted: u64,
    /// Alerts that found no room: more than [`OPEN_MOST`] lasted at once. Nobody was told of them.
    pub overflow: u64,
    /// What came of an alert after its end was told.
    pub late: u64,
    /// Alerts that were held back whenever a receiver could have been told, by receiver.
    pub unsaid: u64,
    /// Notifications made.
    pub notifications: u64,
    /// Alerts of which a receiver is not told the end because it was taken out of the
    /// configuration, or another route took its place before it was told of the begin.
    pub abandoned: u64,
}

/// All alerts that last, and who knows of them.
pub struct Alerting {
    routes: Vec<AlertRoute>,
    teller: Teller,
    open: BTreeMap<LabelSet, Open>,
    groups: BTreeMap<AlertGroupKey, Group>,
    mutes: BTreeMap<String, Mute>,
    /// The begins of alerts whose ends were told, and when that was.
    closed: BTreeMap<LabelSet, Closed>,
    counters: AlertCounters,
}

/// An alert that lasts, or whose end is not told everywhere yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Open {
    pub alert: Alert,
    /// When the station learned of it, ns, and who it is.
    pub acknowledged: Option<(i64, Acknowledgement)>,
    /// When it last came, ns.
    seen_ns: i64,
    /// The last begin whose end some receiver was told of, ns.
    closed_ns: Option<i64>,
    groups: Vec<AlertGroupKey>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Closed {
    labels: LabelSet,
    starts_ns: i64,
    at_ns: i64,
}

/// Why the groups of an alert are told of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// It begins, or begins again: it comes to all groups that the routes name.
    Begins,
    /// More is known of it: it stays in its groups.
    GoesOn,
    /// There are other routes: while it lasts, it comes to those groups, too.
    Rerouted,
}

/// All that a restart must not forget.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AlertState {
    /// Of this form; another one is not read.
    version: u32,
    /// The name of the station whose state it is; another one does not go on from it.
    #[serde(default)]
    station: String,
    open: Vec<Open>,
    groups: Vec<Group>,
    mutes: Vec<Mute>,
    closed: Vec<Closed>,
    counters: AlertCounters,
}

/// An alert that lasts, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AlertView {
    /// What it is.
    pub alert: Alert,
    /// What the alerts of its group agree in. Of one that goes to nobody: its name.
    pub cause: LabelSet,
    /// The receivers that it goes to.
    pub receivers: Vec<String>,
    /// Who takes care of it.
    pub acknowledged: Option<Acknowledgement>,
    /// The silences and maintenance that hold it back now, by name.
    pub held_back_by: Vec<String>,
    /// The receivers that were told of it and not of its end.
    pub told: Vec<String>,
}

impl Alerting {
    /// Nothing lasts yet.
    pub fn new(routes: Vec<AlertRoute>, teller: Teller) -> Alerting {
        Alerting {
            routes,
            teller,
            open: BTreeMap::new(),
            groups: BTreeMap::new(),
            mutes: BTreeMap::new(),
            closed: BTreeMap::new(),
            counters: AlertCounters::default(),
        }
    }

    /// Goes on from a state. `now_ns`: ns since 1970 UTC. What was to be told meanwhile is due at
    /// once.
    ///
    /// # Errors
    /// The state is of another version, or of another station.
    pub fn restore(
        routes: Vec<AlertRoute>,
        teller: Teller,
        state: AlertState,
        now_ns: i64,
    ) -> Result<Alerting, AlertStateError> {
        if state.version != VERSION {
            return Err(AlertStateError::Version(state.version));
        }
        if !state.station.is_empty() && state.station != teller.station {
            let (wrote, reads) = (state.station, teller.station);
            return Err(AlertStateError::OtherStation { wrote, reads });
        }
        let mut alerting = Alerting {
            open: state.open.into_iter().map(|o| (o.alert.labels.clone(), o)).collect(),
            groups: state.groups.into_iter().map(|g| (g.key.clone(), g)).collect(),
            mutes: state.mutes.into_iter().map(|m| (m.id.clone(), m)).collect(),
            closed: state.closed.into_iter().map(|c| (c.labels.clone(), c)).collect(),
            counters: state.counters,
            ..Alerting::new(Vec::new(), teller.clone())
        };
        alerting.groups.values_mut().for_each(|group| group.not_after(now_ns));
        alerting.reload(now_ns, routes, teller);
        Ok(alerting)
    }

    /// All that a restart must not forget.
    pub fn state(&self) -> AlertState {
        AlertState {
            version: VERSION,
            station: self.teller.station.clone(),
            open: self.open.values().cloned().collect(),
            groups: self.groups.values().cloned().collect(),
            mutes: self.mutes.values().cloned().collect(),
            closed: self.closed.values().cloned().collect(),
            counters: self.counters,
        }
    }

    /// Goes over to other routes. Who was told of an alert is told of its end, too, whatever the
    /// routes say; who was not told yet is found anew. A receiver that no route names any more
    /// is told nothing: [`AlertCounters::abandoned`].
    pub fn reload(&mut self, now_ns: i64, routes: Vec<AlertRoute>, teller: Teller) {
        (self.routes, self.teller) = (routes, teller);
        let all: Vec<LabelSet> = self.open.keys().cloned().collect();
        for labels in all {
            let wanted = groups_of(&self.routes, &labels);
            self.leave(&labels, &wanted);
            let Some(open) = self.open.get(&labels) else { continue };
            let starts_ns = open.alert.starts_ns;
            self.spread(now_ns, &labels, starts_ns, Spread::Rerouted);
            self.close_if_over(now_ns, &labels);
        }
    }

    /// Takes an alert out of the groups in which it is not `wanted` any more, and gives the
    /// others their timing.
    fn leave(&mut self, labels: &LabelSet, wanted: &[(AlertGroupKey, GroupTiming)]) {
        let Some(open) = self.open.get_mut(labels) else { return };
        open.groups.retain(|key| {
            let Some(group) = self.groups.get_mut(key) else { return false };
            if let Some((_, timing)) = wanted.iter().find(|(other, _)| other == key) {
                group.timing = *timing;
                group.touch();
                return true;
            }
            let told = group.has_told(labels);
            let is_named = |route: &AlertRoute| {
                route.receivers.iter().any(|(receiver, _)| *receiver == key.receiver)
            };
            let stays = told && self.routes.iter().any(is_named);
            if !stays {
                self.counters.abandoned += u64::from(told || !open.alert.lasts());
                group.forget(labels);
            }
            stays
        });
    }

    /// The clock was set back to `now_ns`: what was to wait since a later instant waits since now.
    pub fn clock_was_set_back(&mut self, now_ns: i64) {
        self.groups.values_mut().for_each(|group| group.not_after(now_ns));
    }

    /// Takes what happens. `now_ns`: ns since 1970 UTC.
    pub fn handle(&mut self, now_ns: i64, input: AlertInput) {
        match input {
            AlertInput::Alert(alert) => self.take(now_ns, alert.bounded()),
            AlertInput::Mute(mute) => {
                self.mutes.insert(mute.id.clone(), mute);
                self.touch_all();
            }
            AlertInput::Unmute(id) => {
                if let Some(mute) = self.mutes.get_mut(&id) {
                    mute.ends_ns = mute.ends_ns.min(now_ns);
                }
                self.touch_all();
            }
            AlertInput::Acknowledge(labels, by) => {
                self.acknowledge(&bounded_labels(labels), Some((now_ns, by)));
            }
            AlertInput::Unacknowledge(labels) => self.acknowledge(&bounded_labels(labels), None),
        }
    }

    /// When [`Alerting::handle_timeout`] has something to do, ns since 1970 UTC; in the past: now.
    pub fn poll_timeout(&mut self, now_ns: i64) -> Option<i64> {
        let around = Around { open: &self.open, mutes: &self.mutes, teller: &self.teller };
        self.groups.values_mut().filter_map(|group| group.due(now_ns, &around)).min()
    }

    /// Does what is due: what is to be told, in the order of the groups.
    pub fn handle_timeout(&mut self, now_ns: i64, told: &mut Vec<Notification>) {
        let mut gone: Vec<(AlertGroupKey, LabelSet)> = Vec::new();
        let around = Around { open: &self.open, mutes: &self.mutes, teller: &self.teller };
        for (key, group) in &mut self.groups {
            let turned = group.turn(now_ns, &around);
            self.counters.unsaid += turned.unsaid;
            self.counters.notifications += u64::from(turned.notification.is_some());
            told.extend(turned.notification);
            gone.extend(turned.gone.into_iter().map(|labels| (key.clone(), labels)));
        }
        self.groups.retain(|_, group| !group.is_over(now_ns));
        for (key, labels) in gone {
            if let Some(open) = self.open.get_mut(&labels) {
                open.groups.retain(|other| *other != key);
                open.closed_ns = open.closed_ns.max(Some(open.alert.starts_ns));
                self.close_if_over(now_ns, &labels);
            }
        }
        self.forget_old(now_ns);
    }

    /// Alerts that last, by their labels.
    pub fn alerts(&self, now_ns: i64) -> Vec<AlertView> {
        let lasting = self.open.values().filter(|open| open.alert.lasts());
        let view = |open: &Open| {
            let labels = &open.alert.labels;
            let held = self.mutes.values().filter(|mute| mute.holds_back(labels, now_ns));
            let told = open
                .groups
                .iter()
                .filter(|key| self.groups.get(*key).is_some_and(|group| group.has_told(labels)));
            let own = || labels.iter().filter(|(name, _)| *name == "alertname");
            let own = || own().map(|(name, value)| (name.clone(), value.clone())).collect();
            AlertView {
                alert: open.alert.clone(),
                cause: open.groups.first().map_or_else(own, |key| key.labels.clone()),
                receivers: open.groups.iter().map(|key| key.receiver.clone()).collect(),
                acknowledged: open.acknowledged.as_ref().map(|(_, by)| by.clone()),
                held_back_by: held.map(|mute| mute.id.clone()).collect(),
                told: told.map(|key| key.receiver.clone()).collect(),
            }
        };
        lasting.map(view).collect()
    }

    /// Silences and maintenance: those of now, of the future, and of the last day.
    pub fn mutes(&self) -> impl Iterator<Item = &Mute> {
        self.mutes.values()
    }

    /// What was counted.
    pub fn counters(&self) -> AlertCounters {
        self.counters
    }

    fn take(&mut self, now_ns: i64, alert: Alert) {
        let labels = alert.labels.clone();
        let over = match self.open.get(&labels) {
            Some(open) => open.closed_ns,
            None => self.closed.get(&labels).map(|closed| closed.starts_ns),
        };
        if over.is_some_and(|over| alert.starts_ns <= over) {
            self.counters.late += 1;
            return;
        }
        let starts_ns = alert.starts_ns;
        let Some(open) = self.open.get_mut(&labels) else {
            if self.open.len() >= OPEN_MOST {
                self.counters.overflow += 1;
                return;
            }
            self.counters.began += 1;
            let open = Open {
                alert,
                acknowledged: None,
                seen_ns: now_ns,
                closed_ns: over,
                groups: Vec::new(),
            };
            self.open.insert(labels.clone(), open);
            let routed = self.spread(now_ns, &labels, starts_ns, Spread::Begins);
            self.counters.unrouted += u64::from(routed == 0);
            self.close_if_over(now_ns, &labels);
            return;
        };
        let begins = alert.starts_ns > open.alert.starts_ns;
        open.merge(now_ns, alert);
        let spread = if begins { Spread::Begins } else { Spread::GoesOn };
        self.spread(now_ns, &labels, starts_ns, spread);
        self.close_if_over(now_ns, &labels);
    }

    /// Tells the groups of an alert what is known of it. In how many groups it is.
    fn spread(&mut self, now_ns: i64, labels: &LabelSet, starts_ns: i64, spread: Spread) -> usize {
        let Some(open) = self.open.get_mut(labels) else { return 0 };
        let lasts = open.alert.lasts();
        if spread == Spread::Begins || (spread == Spread::Rerouted && lasts) {
            for (key, timing) in groups_of(&self.routes, labels) {
                if open.groups.iter().all(|other| other.receiver != key.receiver) {
                    let made = || Group::new(key.clone(), timing);
                    self.groups.entry(key.clone()).or_insert_with(made);
                    open.groups.push(key);
                }
            }
        }
        let known = Known { now_ns, starts_ns, begins: spread == Spread::Begins, lasts };
        for key in &open.groups {
            if let Some(group) = self.groups.get_mut(key) {
                group.take(labels, &known, &self.mutes);
            }
        }
        open.groups.len()
    }

    fn acknowledge(&mut self, labels: &LabelSet, by: Option<(i64, Acknowledgement)>) {
        let Some(open) = self.open.get_mut(labels) else { return };
        open.acknowledged = by;
        for key in &open.groups {
            self.groups.get_mut(key).into_iter().for_each(Group::touch);
        }
    }

    /// Forgets an alert whose end is told to all.
    fn close_if_over(&mut self, now_ns: i64, labels: &LabelSet) {
        let over = |open: &Open| !open.alert.lasts() && open.groups.is_empty();
        if !self.open.get(labels).is_some_and(over) {
            return;
        }
        let Some(open) = self.open.remove(labels) else { return };
        let starts_ns = open.alert.starts_ns;
        let closed = Closed { labels: labels.clone(), starts_ns, at_ns: now_ns };
        self.closed.insert(labels.clone(), closed);
    }

    fn touch_all(&mut self) {
        self.groups.values_mut().for_each(Group::touch);
    }

    /// Whatever nothing depends on any more.
    fn forget_old(&mut self, now_ns: i64) {
        let day_ago = now_ns.saturating_sub(KEPT_NS);
        self.mutes.retain(|_, mute| mute.ends_ns > day_ago);
        self.closed.retain(|_, closed| closed.at_ns > day_ago);
        while self.closed.len() > CLOSED_MOST {
            let oldest = self.closed.values().min_by_key(|closed| closed.at_ns);
            let Some(labels) = oldest.map(|closed| closed.labels.clone()) else { return };
            self.closed.remove(&labels);
        }
    }
}

impl Open {
    /// The later begin counts; of one begin its end, the latest. Of the same the later text, and
    /// of one instant the greater: so the order does not matter.
    fn merge(&mut self, now_ns: i64, alert: Alert) {
        let rank = |a: &Alert| (a.starts_ns, a.ends_ns);
        let (old, new) = (rank(&self.alert), rank(&alert));
        let text = |a: &Alert| (a.annotations.clone(), a.evidence.clone(), a.link.clone());
        let replaces = match new.cmp(&old) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => now_ns > self.seen_ns || text(&alert) > text(&self.alert),
        };
        if replaces {
            self.alert = alert;
        }
        self.seen_ns = now_ns;
    }
}

/// A state that this station does not go on from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlertStateError {
    /// This version of the program does not read it.
    #[error(
        "the state of alerts has version {0}, and this program reads version {VERSION}; start \
         the newer program, or move the file away: what lasts is then told of again"
    )]
    Version(u32),
    /// Its alerts, and what waits beside it for receivers, are not this station's.
    #[error(
        "station '{wrote}' keeps its alerts there, and this one is '{reads}'; give this one \
         another folder. If it was renamed, move the folder away: what lasts is then told of again"
    )]
    OtherStation {
        /// The station that wrote it.
        wrote: String,
        /// The station that reads it.
        reads: String,
    },
}

/// Alerts that last at a time, at most.
pub const OPEN_MOST: usize = 10_000;
const VERSION: u32 = 1;
/// Ends are remembered so long, and so many of them.
const KEPT_NS: i64 = 86_400 * 1_000_000_000;
const CLOSED_MOST: usize = 10_000;

#[cfg(test)]
mod tests;
