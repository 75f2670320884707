//! The station itself: units, health, configuration, reload.

use std::collections::BTreeMap;

use sonde_api::etag::EntityTag;
use sonde_api::instant::UtcInstant;
use sonde_api::page::{ListPage, PageRequest};
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_api::request::{ChangeContext, RouteAnswer};
use sonde_api::station::{
    ConfigFault, ConfigText, LengthSummary, ReloadAction, ReloadPlan, ReloadStep, StationAbout,
    StationConfig, StationHealth, StationInfo, UnitDetail, UnitEntry, UnitsParams,
};
use sonde_results::Hist;
use sonde_run::error::SettingsError;

use super::StationBackend;
use crate::plan::UnitId;
use crate::reload::{Step, StopReason};
use crate::runner::Station;
use crate::service::ReloadFailure;
use crate::unit::Instrument;

impl StationInfo for StationBackend {
    fn about(&self, now: UtcInstant) -> Result<StationAbout, ProblemDetails> {
        let mut units = BTreeMap::new();
        for entry in self.unit_entries() {
            *units.entry(entry.phase).or_default() += 1;
        }
        Ok(StationAbout {
            name: self.core.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_version: sonde_api::API_VERSION.to_owned(),
            started: self.core.started,
            now,
            config_version: self.core.config().version.clone(),
            units,
            doubts: self.doubts(),
            parts: self.parts(),
            guards: sonde_sys::privilege::guards(),
        })
    }

    fn units(
        &self,
        ask: &UnitsParams,
        page: &PageRequest,
    ) -> Result<ListPage<UnitEntry>, ProblemDetails> {
        let wanted = self.unit_entries().into_iter().filter(|unit| ask.wants(unit));
        page.cut(wanted, |unit| unit.name.clone())
    }

    fn unit(&self, name: &str) -> Result<UnitDetail, ProblemDetails> {
        let missing = || ProblemDetails::not_found("unit", name);
        let id = UnitId::new(name);
        let unit = self.core.config().plan.get(&id).cloned().ok_or_else(missing)?;
        let settings = match &unit.instrument {
            Instrument::Probe(settings) => serde_json::to_value(settings),
            Instrument::Reflect(settings) => serde_json::to_value(settings),
            Instrument::Rtt(settings) => serde_json::to_value(settings),
            Instrument::Flow(settings) => serde_json::to_value(settings),
            Instrument::Otg(settings) => serde_json::to_value(settings),
            Instrument::Agent(settings) => serde_json::to_value(settings),
        };
        let live = self.core.live_state();
        let unit = live.unit_entry(&id).ok_or_else(missing)?;
        let known = live.units().find(|(other, _)| **other == id).map(|(_, known)| known);
        let mut counters = known.map(|known| known.counters.clone()).unwrap_or_default();
        counters.extend(known.map(|known| known.health.counters.clone()).unwrap_or_default());
        Ok(UnitDetail {
            unit,
            settings: settings.unwrap_or_default(),
            counters,
            send_lateness: known.map(|k| summary(&k.health.send_lateness)).unwrap_or_default(),
            pauses: known.map(|k| summary(&k.health.pauses)).unwrap_or_default(),
            caveats: known.map(|known| known.caveats).unwrap_or_default(),
        })
    }

    fn health(&self, now: UtcInstant) -> Result<StationHealth, ProblemDetails> {
        self.health_now(now)
    }

    fn config(&self) -> Result<RouteAnswer<StationConfig>, ProblemDetails> {
        let running = self.core.config();
        let text = |file: &crate::config::ReadFile| ConfigText {
            path: file.text.file.clone(),
            text: file.text.text.clone(),
        };
        let config = StationConfig {
            version: running.version.clone(),
            since: running.since,
            files: running.files.iter().map(text).collect(),
            added_targets: u32::try_from(running.added.targets.len()).unwrap_or(u32::MAX),
        };
        let tag = EntityTag::strong(&running.version);
        Ok(RouteAnswer::of_version(config, tag))
    }

    fn config_changes(&self) -> Result<ReloadPlan, ProblemDetails> {
        let plan = match self.core.foresee() {
            Err(errors) => ReloadPlan {
                version: self.core.config().version.clone(),
                steps: Vec::new(),
                errors: errors.iter().map(fault_of).collect(),
            },
            Ok(foreseen) => {
                let (steps, errors) = match foreseen.steps {
                    Ok(steps) => (steps.into_iter().map(step_of).collect(), Vec::new()),
                    Err(errors) => (Vec::new(), errors.iter().map(plain_fault).collect()),
                };
                ReloadPlan { version: foreseen.version, steps, errors }
            }
        };
        Ok(plan)
    }

    fn reload(&self, change: &ChangeContext<'_>) -> Result<ReloadPlan, ProblemDetails> {
        let (steps, version) = self.core.reload(|current| change.check(current))?;
        tracing::info!("{} had the configuration read again", change.caller.name);
        let steps = steps.into_iter().map(step_of).collect();
        Ok(ReloadPlan { version, steps, errors: Vec::new() })
    }
}

impl StationBackend {
    fn parts(&self) -> Vec<String> {
        let alerts = self.core.station(Station::alerts).flatten().map(|_| "alerts");
        ["store", "flows", "sql", "objectives", "runs"]
            .into_iter()
            .chain(alerts)
            .map(str::to_owned)
            .collect()
    }

    /// All units that the supervisor knows, by name.
    pub(super) fn unit_entries(&self) -> Vec<UnitEntry> {
        let live = self.core.live_state();
        live.units().filter_map(|(id, _)| live.unit_entry(id)).collect()
    }
}

impl From<ReloadFailure> for ProblemDetails {
    fn from(failure: ReloadFailure) -> ProblemDetails {
        let kind = match &failure {
            ReloadFailure::Ending => ProblemKind::Unavailable,
            ReloadFailure::Unsaved(_) => ProblemKind::Internal,
            _ => ProblemKind::Unprocessable,
        };
        let why = match failure {
            ReloadFailure::Files(errors) => {
                let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
                format!("the configuration has errors, and nothing has changed: {}", all.join("; "))
            }
            other => format!("nothing has changed: {other}"),
        };
        ProblemDetails::new(kind, why)
    }
}

fn step_of(step: Step) -> ReloadStep {
    let plain = |unit: UnitId, action| ReloadStep {
        unit: unit.to_string(),
        action,
        reason: None,
        added: Vec::new(),
        ended: Vec::new(),
    };
    match step {
        Step::Keep(unit) => plain(unit, ReloadAction::Keep),
        Step::Start(unit) => plain(unit, ReloadAction::Start),
        Step::Adjust { unit, added, ended } => {
            ReloadStep { added, ended, ..plain(unit, ReloadAction::Adjust) }
        }
        Step::Stop { unit, why } => {
            let reason = match why {
                StopReason::Removed => "it is in no file any more".to_owned(),
                StopReason::Changed(why) => why,
            };
            ReloadStep { reason: Some(reason), ..plain(unit, ReloadAction::Stop) }
        }
    }
}

fn fault_of(error: &SettingsError) -> ConfigFault {
    ConfigFault {
        file: error.file.clone(),
        line: error.line.and_then(|line| u32::try_from(line).ok()),
        key: error.key.clone(),
        ..plain_fault(error)
    }
}

fn plain_fault(error: &impl ToString) -> ConfigFault {
    ConfigFault { file: None, line: None, column: None, key: None, message: error.to_string() }
}

fn summary(hist: &Hist) -> LengthSummary {
    let of = |q: f64, least: u64| hist.quantile(q).filter(|_| hist.count >= least);
    LengthSummary { n: hist.count, p50_ns: of(0.5, 10), p99_ns: of(0.99, 500), max_ns: hist.max() }
}
