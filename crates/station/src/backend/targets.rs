//! The targets of all probes, as the configuration has them.

use std::collections::BTreeMap;

use sonde_api::etag::EntityTag;
use sonde_api::page::{ListPage, PageRequest};
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_api::request::{ChangeContext, RouteAnswer};
use sonde_api::targets::{MeasuredTarget, TargetOrder, TargetOrigin, Targets, TargetsParams};

use super::StationBackend;
use super::readings::UNMEASURED;
use crate::service::utc_now;
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
        _: &TargetOrder,
        _: &ChangeContext<'_>,
    ) -> Result<RouteAnswer<MeasuredTarget>, ProblemDetails> {
        Err(by_file("added"))
    }

    fn remove_target(&self, id: &str, _: &ChangeContext<'_>) -> Result<(), ProblemDetails> {
        if !self.all_targets().1.contains_key(id) {
            return Err(ProblemDetails::not_found("target", id));
        }
        let why = "it stands in a file of the configuration; take it out there, and reload";
        Err(ProblemDetails::new(ProblemKind::Conflict, why))
    }
}

impl StationBackend {
    /// By id, and the version of all.
    fn all_targets(&self) -> (EntityTag, BTreeMap<String, MeasuredTarget>) {
        let now = utc_now();
        let (tag, since, plan) = {
            let config = self.core.config();
            (EntityTag::strong(&config.version), config.since, config.plan.clone())
        };
        let live = self.core.live_state();
        let states = live.series_states(now);
        let mut all: BTreeMap<String, MeasuredTarget> = BTreeMap::new();
        for (unit, spec) in plan.iter() {
            let Instrument::Probe(settings) = &spec.instrument else { continue };
            for entry in &settings.targets {
                let name = entry.name.clone().unwrap_or_else(|| entry.host.clone());
                // Of several with one name each has an id.
                let ids = (1..).map(|n| match n {
                    1 => format!("{unit}:{name}"),
                    n => format!("{unit}:{name}:{n}"),
                });
                let Some(id) = ids.into_iter().find(|id| !all.contains_key(id)) else { continue };
                let seen = live.target(unit, &name);
                let state = seen.series.iter().filter_map(|id| Some(states.get(id)?.state)).min();
                let target = MeasuredTarget {
                    id: id.clone(),
                    unit: unit.to_string(),
                    name,
                    host: entry.host.clone(),
                    addresses: seen.addresses.iter().map(ToString::to_string).collect(),
                    unresolved: seen.left_out,
                    labels: BTreeMap::new(),
                    origin: TargetOrigin::File,
                    series: seen.series,
                    state: state.unwrap_or(UNMEASURED.state),
                    since,
                };
                all.insert(id, target);
            }
        }
        (tag, all)
    }
}

fn by_file(what: &str) -> ProblemDetails {
    let why = format!(
        "targets are {what} in a file of the configuration, and by a reload, which loses no probe"
    );
    ProblemDetails::new(ProblemKind::NotOffered, why)
}
