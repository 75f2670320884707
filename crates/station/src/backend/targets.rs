//! The targets of all probes: those of the configuration's files, and those that were added here.

use std::collections::{BTreeMap, HashMap};

use sonde_api::etag::EntityTag;
use sonde_api::instant::UtcInstant;
use sonde_api::page::{ListPage, PageRequest};
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_api::request::{ChangeContext, RouteAnswer};
use sonde_api::route::read_part;
use sonde_api::targets::{MeasuredTarget, TargetOrder, TargetOrigin, Targets, TargetsParams};
use sonde_run::error::SettingsError;
use sonde_run::probe::{Settings, TargetEntry};

use super::StationBackend;
use super::readings::UNMEASURED;
use crate::added::{AddedTarget, AddedTargets, name_of};
use crate::live::TargetNow;
use crate::plan::UnitId;
use crate::service::{RunConfig, utc_now};
use crate::unit::Instrument;

impl Targets for StationBackend {
    fn targets(
        &self,
        ask: &TargetsParams,
        page: &PageRequest,
    ) -> Result<RouteAnswer<ListPage<MeasuredTarget>>, ProblemDetails> {
        let (tag, all) = self.all_targets();
        let wanted = all.into_values().filter(|target| ask.wants(target));
        Ok(RouteAnswer::of_version(page.cut(wanted, |target| target.id.clone())?, tag))
    }

    fn target(&self, id: &str) -> Result<RouteAnswer<MeasuredTarget>, ProblemDetails> {
        let (tag, mut all) = self.all_targets();
        let target = all.remove(id).ok_or_else(|| ProblemDetails::not_found("target", id))?;
        Ok(RouteAnswer::of_version(target, tag))
    }

    fn add_target(
        &self,
        order: &TargetOrder,
        change: &ChangeContext<'_>,
    ) -> Result<RouteAnswer<MeasuredTarget>, ProblemDetails> {
        let mut id = String::new();
        self.core.change_added(|running| {
            change.check(&running.targets_version())?;
            if running.added.targets.len() >= ADDED_MAX {
                let why = format!(
                    "{ADDED_MAX} targets were added already; remove some, or write them into a file"
                );
                return Err(ProblemDetails::new(ProblemKind::Conflict, why));
            }
            let target = entry_of(order)?;
            let name = name_of(&target).to_owned();
            let used = used_names(running, &order.unit)?;
            if used.iter().any(|used| *used == name) {
                let why = format!("{} has a target '{name}'; give this another name", order.unit);
                return Err(ProblemDetails::of_body(ProblemKind::Conflict, "/name", why));
            }
            let mut added = running.added.clone();
            added.targets.push(added_target(order, target, change));
            check(running, &added, added.targets.len() - 1)?;
            id = listed(running, &added).pop().map(|(id, _)| id).unwrap_or_default();
            Ok(added)
        })?;
        tracing::info!("{} added the target {id}: {}", change.caller.name, order.host);
        self.target(&id)
    }

    fn change_target(
        &self,
        id: &str,
        order: &TargetOrder,
        change: &ChangeContext<'_>,
    ) -> Result<RouteAnswer<MeasuredTarget>, ProblemDetails> {
        self.core.change_added(|running| {
            change.check(&running.targets_version())?;
            let at = added_at(running, id, "change it there")?;
            let mut added = running.added.clone();
            let old = &added.targets[at];
            let fixed = |pointer: &str, what: &str, is: &str| {
                let why = format!("a target keeps its {what}, {is}; remove it, and add another");
                Err(ProblemDetails::of_body(ProblemKind::Unprocessable, pointer, why))
            };
            if order.unit != old.unit {
                return fixed("/unit", "unit", &old.unit);
            }
            let name = old.name().to_owned();
            if order.name.as_ref().is_some_and(|new| *new != name) {
                return fixed("/name", "name", &name);
            }
            let target = TargetEntry { name: Some(name), ..entry_of(order)? };
            added.targets[at] = added_target(order, target, change);
            check(running, &added, at)?;
            Ok(added)
        })?;
        tracing::info!("{} changed the target {id}", change.caller.name);
        self.target(id)
    }

    fn remove_target(&self, id: &str, change: &ChangeContext<'_>) -> Result<(), ProblemDetails> {
        self.core.change_added(|running| {
            change.check(&running.targets_version())?;
            let at = added_at(running, id, "take it out there")?;
            let mut added = running.added.clone();
            added.targets.remove(at);
            Ok::<_, ProblemDetails>(added)
        })?;
        tracing::info!("{} removed the target {id}", change.caller.name);
        Ok(())
    }
}

/// Where a listed target stands.
#[derive(Clone, Copy)]
enum Stands<'a> {
    /// In the settings of this unit.
    InFile(&'a UnitId, &'a TargetEntry),
    /// Among those that were added.
    Added(usize, &'a AddedTarget),
}

/// All targets with their ids: first those of the files, then what was added, each in its order.
fn listed<'a>(running: &'a RunConfig, added: &'a AddedTargets) -> Vec<(String, Stands<'a>)> {
    let filed = running.filed.iter().flat_map(|(unit, spec)| {
        let targets = match &spec.instrument {
            Instrument::Probe(settings) => settings.targets.as_slice(),
            _ => &[],
        };
        targets.iter().map(move |target| Stands::InFile(unit, target))
    });
    let own = added.targets.iter().enumerate().map(|(at, target)| Stands::Added(at, target));
    // Of several with one name each has an id.
    let mut named: HashMap<String, u32> = HashMap::new();
    let with_id = |stands: Stands<'a>| {
        let id = match stands {
            Stands::InFile(unit, target) => format!("{unit}:{}", name_of(target)),
            Stands::Added(_, target) => format!("{}:{}", target.unit, target.name()),
        };
        let n = named.entry(id.clone()).or_default();
        *n += 1;
        (if *n == 1 { id } else { format!("{id}:{n}") }, stands)
    };
    filed.chain(own).map(with_id).collect()
}

/// The place of an added target among all added ones.
fn added_at(running: &RunConfig, id: &str, advice: &str) -> Result<usize, ProblemDetails> {
    let all = listed(running, &running.added);
    match all.into_iter().find(|(other, _)| other == id).map(|(_, stands)| stands) {
        None => Err(ProblemDetails::not_found("target", id)),
        Some(Stands::Added(at, _)) => Ok(at),
        Some(Stands::InFile(..)) => {
            let why = format!("it stands in a file of the configuration; {advice}, and reload");
            Err(ProblemDetails::new(ProblemKind::Conflict, why))
        }
    }
}

/// What the targets of a probe are called.
fn used_names<'a>(running: &'a RunConfig, unit: &str) -> Result<Vec<&'a str>, ProblemDetails> {
    let settings = running.filed.get(&UnitId::new(unit)).map(|unit| &unit.instrument);
    let Some(Instrument::Probe(settings)) = settings else {
        let probes = running.filed.iter();
        let probes = probes.filter(|(_, unit)| matches!(unit.instrument, Instrument::Probe(_)));
        let probes: Vec<&str> = probes.map(|(id, _)| id.as_str()).collect();
        let why = match probes.is_empty() {
            true => format!("'{unit}' is no probe; the configuration has none: write one first"),
            false => format!("'{unit}' is no probe; there are {}", probes.join(", ")),
        };
        return Err(ProblemDetails::of_body(ProblemKind::Unprocessable, "/unit", why));
    };
    let own = running.added.targets.iter().filter(|target| target.unit == unit);
    Ok(settings.targets.iter().map(name_of).chain(own.map(AddedTarget::name)).collect())
}

/// An order as a target of a unit's settings.
fn entry_of(order: &TargetOrder) -> Result<TargetEntry, ProblemDetails> {
    let mut target = order.settings.clone();
    for name in ["host", "name"] {
        if target.contains_key(name) {
            let why = format!("it stands beside the settings, as `/{name}`");
            let pointer = format!("/settings/{name}");
            return Err(ProblemDetails::of_body(ProblemKind::Unprocessable, &pointer, why));
        }
    }
    target.insert("host".into(), order.host.clone().into());
    target.extend(order.name.clone().map(|name| ("name".into(), name.into())));
    read_part(target.into(), "/settings")
}

fn added_target(
    order: &TargetOrder,
    target: TargetEntry,
    change: &ChangeContext<'_>,
) -> AddedTarget {
    AddedTarget {
        unit: order.unit.clone(),
        target,
        labels: order.labels.clone(),
        since_ns: change.now.ns(),
        by: change.caller.name.clone(),
    }
}

/// Whether the added target at `at` goes with the settings of its unit, and with those that were
/// added before.
fn check(running: &RunConfig, added: &AddedTargets, at: usize) -> Result<(), ProblemDetails> {
    let new = &added.targets[at];
    let unit = running.filed.get(&UnitId::new(&new.unit)).map(|unit| &unit.instrument);
    // One whose unit is gone rests; it can be changed all the same.
    let Some(Instrument::Probe(settings)) = unit else { return Ok(()) };
    let others = added.targets.iter().enumerate().filter(|(other, target)| {
        target.unit == new.unit
            && *other != at
            && running.rests.get(*other).is_none_or(Option::is_none)
    });
    let mut settings: Settings = (**settings).clone();
    settings.targets.extend(others.map(|(_, target)| target.target.clone()));
    settings.targets.push(new.target.clone());
    let wrong = |error: SettingsError| {
        let pointer = pointer_of(error.key.as_deref().unwrap_or_default());
        ProblemDetails::of_body(ProblemKind::Unprocessable, &pointer, error.message)
    };
    Instrument::Probe(Box::new(settings)).check().map_err(wrong)
}

/// Where in an order a setting of its unit is given.
fn pointer_of(key: &str) -> String {
    match key.strip_prefix("target.") {
        Some("host") => "/host".to_owned(),
        Some(own) => format!("/settings/{}", own.replace('.', "/")),
        // That of the unit, which does not go with this target.
        None => "/settings".to_owned(),
    }
}

impl StationBackend {
    /// By id, and the version of all.
    fn all_targets(&self) -> (EntityTag, BTreeMap<String, MeasuredTarget>) {
        let now = utc_now();
        let running = self.core.config();
        let live = self.core.live_state();
        let states = live.series_states(now);
        let mut units: HashMap<&str, HashMap<&str, TargetNow>> = HashMap::new();
        let mut all = BTreeMap::new();
        for (id, stands) in listed(&running, &running.added) {
            let (unit, entry) = match &stands {
                Stands::InFile(unit, entry) => (unit.as_str(), *entry),
                Stands::Added(_, added) => (added.unit.as_str(), &added.target),
            };
            let name = name_of(entry);
            let rests = match stands {
                Stands::InFile(..) => None,
                Stands::Added(at, _) => running.rests.get(at).cloned().flatten(),
            };
            let targets = units.entry(unit).or_insert_with(|| live.targets(&UnitId::new(unit)));
            // What rests has none of what another of its name has.
            let seen = targets.get(name).filter(|_| rests.is_none());
            let left_out = [name, &entry.host].iter().find_map(|name| {
                let target = targets.get(name)?;
                target.left_out.clone().filter(|_| target.series.is_empty())
            });
            let series = seen.map(|seen| seen.series.clone()).unwrap_or_default();
            let state = series.iter().filter_map(|id| Some(states.get(id)?.state)).min();
            let target = MeasuredTarget {
                id: id.clone(),
                unit: unit.to_owned(),
                name: name.to_owned(),
                host: entry.host.clone(),
                addresses: seen
                    .map(|seen| seen.addresses.iter().map(ToString::to_string).collect())
                    .unwrap_or_default(),
                unresolved: rests.map(|why| format!("it is not measured: {why}")).or(left_out),
                labels: match stands {
                    Stands::InFile(..) => BTreeMap::new(),
                    Stands::Added(_, added) => added.labels.clone(),
                },
                origin: match stands {
                    Stands::InFile(..) => TargetOrigin::File,
                    Stands::Added(..) => TargetOrigin::Api,
                },
                series,
                state: state.unwrap_or(UNMEASURED.state),
                since: match stands {
                    Stands::InFile(..) => running.since,
                    Stands::Added(_, added) => UtcInstant::from_ns(added.since_ns),
                },
            };
            all.insert(id, target);
        }
        (running.targets_version(), all)
    }
}

/// Targets that can be added, at most.
const ADDED_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn order(settings: serde_json::Value) -> TargetOrder {
        let order = json!({
            "unit": "probe.core", "host": "192.0.2.2", "name": "muc", "settings": settings,
        });
        serde_json::from_value(order).unwrap()
    }

    #[test]
    fn an_order_is_a_target_of_the_settings_and_its_faults_have_pointers() {
        let entry = entry_of(&order(json!({ "stream": { "interval": "20ms" } }))).unwrap();
        assert_eq!((&*entry.host, entry.name.as_deref()), ("192.0.2.2", Some("muc")));
        assert_eq!(entry.stream.interval, Some(20_000_000));
        let pointer = |settings: serde_json::Value| {
            let problem = entry_of(&order(settings)).unwrap_err();
            assert_eq!(problem.status, 422);
            problem.errors[0].pointer.clone().unwrap()
        };
        assert_eq!(pointer(json!({ "stream": { "ttl": 900 } })), "/settings/stream/ttl");
        assert_eq!(pointer(json!({ "name": "x" })), "/settings/name");
        assert_eq!(pointer(json!({ "colour": "x" })), "/settings/colour");
        assert_eq!(pointer_of("target.host"), "/host");
        assert_eq!(pointer_of("target.stream.size"), "/settings/stream/size");
        assert_eq!(pointer_of("stream.size"), "/settings");
    }
}
