//! The configuration of a station: one TOML file and what it includes.
//!
//! ```toml
//! [station]
//! name = "ber"
//!
//! [probe.core]
//! stream = { interval = "100ms", dscp = [0, 46] }
//! [[probe.core.target]]
//! host = "192.0.2.1"
//! ```
//!
//! A table `[KIND.NAME]` is a unit. Its keys are those of the instrument's settings. Everything
//! that is wrong is reported at once, with file, line and key.

mod include;
mod secrets;
mod unmeetable;
mod warn;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_run::confined::Uses;
use sonde_run::error::{FileLine, SettingsError};
use sonde_run::toml_file::TomlText;
use sonde_run::{flow, probe, reflect, rtt};
use sonde_testbed::{agent, otg};

use crate::alert::route::LabelPatterns;
use crate::alert::settings::AlertSettings;
use crate::alert::sink::SinkConfig;
use crate::export::on_demand::{ModuleSettings, Modules};
use crate::export::settings::ExportSettings;
use crate::export::thread::ExportTable;
use crate::interfaces::InterfaceSettings;
use crate::judge::settings::{
    JudgeSettings, JudgedMaintenance, JudgedObjective, MaintenanceSettings, ObjectiveSettings,
};
use crate::keep::settings::StoreSettings;
use crate::plan::{Plan, UnitId};
use crate::reload::conflicts;
use crate::serve::ApiSettings;
use crate::unit::{Instrument, Unit};

/// A file of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    /// Further files, relative to this one; `conf.d/*.toml` are all of a folder, by name.
    pub include: Vec<String>,
    /// The station itself: in one file only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub station: Option<StationSettings>,
    /// Who is told of alerts: in one file only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<AlertSettings>,
    /// Where what is measured is kept: in one file only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreSettings>,
    /// How its API is reached: in one file only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<ApiSettings>,
    /// Interfaces whose counters are kept beside those of units: in one file only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<InterfaceSettings>,
    /// Units that work in another network namespace than the station: the unit, as
    /// `rtt.router`, and the namespace, as `ip netns` calls it.
    pub netns: BTreeMap<String, String>,
    /// STAMP senders, by name.
    pub probe: BTreeMap<String, probe::Settings>,
    /// STAMP reflectors, by name.
    pub reflect: BTreeMap<String, reflect::Settings>,
    /// Passive round-trip times, by name.
    pub rtt: BTreeMap<String, rtt::Settings>,
    /// Flow meters, by name.
    pub flow: BTreeMap<String, flow::Settings>,
    /// Traffic generators for clients of the Open Traffic Generator model, by name.
    pub otg: BTreeMap<String, otg::Settings>,
    /// This host's ports for controllers of benchmarks, by name.
    pub agent: BTreeMap<String, agent::Settings>,
    /// What is promised, by name.
    pub objective: BTreeMap<String, ObjectiveSettings>,
    /// Announced work, by name.
    pub maintenance: BTreeMap<String, MaintenanceSettings>,
    /// How measurements on demand are made (`/probe`), by name.
    pub module: BTreeMap<String, ModuleSettings>,
    /// Where what is measured is pushed to, by name.
    pub export: BTreeMap<String, ExportSettings>,
}

/// The station itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StationSettings {
    /// What it is called in records and alerts, up to 64 letters, digits, `-`, `_` and `.`;
    /// absent: the host's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A whole configuration that can be run.
#[derive(Debug, Default)]
pub struct Config {
    /// The station itself.
    pub station: StationSettings,
    /// Who is told of alerts; `None`: nobody.
    pub alert: Option<AlertSettings>,
    /// Where what is measured is kept.
    pub store: StoreSettings,
    /// What is promised, and when not.
    pub judge: JudgeSettings,
    /// How its API is reached.
    pub api: ApiSettings,
    /// How measurements on demand are made.
    pub modules: Modules,
    /// Where what is measured is pushed to.
    pub exports: ExportTable,
    /// Interfaces whose counters are kept beside those of units.
    pub interfaces: InterfaceSettings,
    /// All its units.
    pub plan: Plan<Unit>,
    /// What can be run and is hardly meant.
    pub warnings: Vec<SettingsError>,
}

impl Config {
    /// Reads `path` and what it includes.
    ///
    /// # Errors
    /// All that is wrong in any of them.
    pub fn load(path: &Path) -> Result<Config, Vec<SettingsError>> {
        Config::of(&Config::read_files(path)?)
    }

    /// The files of a configuration: `path` and what it includes.
    ///
    /// # Errors
    /// All files that cannot be read or parsed.
    pub fn read_files(path: &Path) -> Result<Vec<ReadFile>, Vec<SettingsError>> {
        include::read_all(path)
    }

    /// Warnings of maintenance in `files` that is over at `now_ns`, ns since 1970 UTC.
    pub fn ended_maintenance(files: &[ReadFile], now_ns: i64) -> Vec<SettingsError> {
        warn::ended_maintenance(files, now_ns)
    }

    /// What the station is called.
    pub fn station_name(&self) -> String {
        self.station.name.clone().unwrap_or_else(|| sonde_sys::host::HostFacts::read().name)
    }

    /// What its units and receivers of alerts need of the rights that a station started with.
    pub fn uses(&self) -> Vec<Uses> {
        let receivers = self.alert.iter().flat_map(|alert| alert.receiver.values());
        let programs = receivers.filter(|sink| matches!(sink, SinkConfig::Exec(_)));
        let units = self.plan.iter().flat_map(|(_, unit)| unit.uses());
        units.chain(programs.map(|_| Uses::Programs)).collect()
    }

    /// Files and folders that it writes to.
    pub fn writes(&self) -> Vec<PathBuf> {
        let units = self.plan.iter().flat_map(|(_, unit)| unit.instrument.writes());
        let alerts = self.alert.iter().map(|alert| alert.folder.clone());
        units.chain([self.store.path.clone()]).chain(alerts).collect()
    }

    /// Files that are to be those of the station's user: what it writes to, and secrets.
    pub fn owned(&self) -> Vec<PathBuf> {
        let secrets = self.plan.iter().flat_map(|(_, unit)| unit.instrument.secrets());
        self.writes().into_iter().chain(secrets).collect()
    }

    /// Files and folders that it writes to, and the folder of its socket, which it removes.
    pub fn written(&self) -> Vec<PathBuf> {
        let socket = self.api.socket_path(&self.store.path);
        self.writes().into_iter().chain(socket).collect()
    }

    /// Of files that were read.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn of(files: &[ReadFile]) -> Result<Config, Vec<SettingsError>> {
        let mut merged = Merged::default();
        files.iter().for_each(|file| merged.add(file));
        // What is left out for an error would be missed by what names it.
        let is_whole = files.iter().all(|file| file.wrong.is_empty());
        if is_whole {
            merged.place_units();
            merged.check_units_of_objectives();
        }
        let plan = Plan::of(merged.units.iter().map(|(id, unit)| (id.clone(), unit.0.clone())));
        for error in conflicts(&plan) {
            let second = &merged.units[&error.second];
            let message = SettingsError::of(error.second.as_str(), error.to_string());
            merged.errors.push(message.at(Some(&second.1)));
        }
        let store = merged.store.map(|(store, _)| store).unwrap_or_default();
        match merged.errors.is_empty() {
            true => {
                let mut config = Config {
                    station: merged.station.map(|(station, _)| station).unwrap_or_default(),
                    alert: merged.alert.map(|(mut alert, _)| {
                        alert.settle_folder(&store.path);
                        alert
                    }),
                    store,
                    judge: JudgeSettings {
                        objectives: merged.objectives.into_values().flat_map(|o| o.0).collect(),
                        maintenance: merged.maintenance.into_values().map(|m| m.0).collect(),
                    },
                    api: merged.api.map(|(api, _)| api).unwrap_or_default(),
                    exports: merged.exports.into_iter().map(|(name, e)| (name, e.0)).collect(),
                    interfaces: merged
                        .interfaces
                        .map(|(interfaces, _)| interfaces)
                        .unwrap_or_default(),
                    modules: merged.modules.into_iter().map(|(name, m)| (name, m.0)).collect(),
                    warnings: warn::warnings(files, &plan),
                    plan,
                };
                let unmeetable = config.unmeetable();
                config.warnings.extend(unmeetable);
                let untold = config.alert.iter().flat_map(AlertSettings::warnings);
                let untold: Vec<_> = untold.map(|why| SettingsError::of("alert", why)).collect();
                config.warnings.extend(untold);
                Ok(config)
            }
            false => Err(merged.errors),
        }
    }
}

/// A file of a configuration, and its text for messages.
#[derive(Clone, Debug)]
pub struct ReadFile {
    /// Its text.
    pub text: TomlText,
    /// What it says, without the units in which a key or a type is wrong.
    pub says: ConfigFile,
    /// Keys and types that are wrong.
    pub wrong: Vec<SettingsError>,
}

impl ReadFile {
    /// Parses a text.
    ///
    /// # Errors
    /// It is no TOML.
    pub fn parse(text: TomlText) -> Result<ReadFile, SettingsError> {
        let (mut says, wrong): (ConfigFile, _) = text.parse_all(keys_of_unit)?;
        for (name, settings) in &mut says.probe {
            let lines = text.lines_of(&["probe", name, "target"]);
            for (target, line) in settings.targets.iter_mut().zip(lines) {
                target.at = Some(FileLine { file: text.file.clone(), line });
            }
        }
        Ok(ReadFile { text, says, wrong })
    }

    /// The line where the deepest of these keys stands that is there.
    fn line_of(&self, keys: &[&str]) -> FileLine {
        let line =
            (1..=keys.len()).rev().find_map(|n| self.text.lines_of(&keys[..n]).first().copied());
        FileLine { file: self.text.file.clone(), line: line.unwrap_or(1) }
    }
}

/// What all files say together.
#[derive(Default)]
struct Merged {
    station: Option<(StationSettings, FileLine)>,
    alert: Option<(AlertSettings, FileLine)>,
    store: Option<(StoreSettings, FileLine)>,
    api: Option<(ApiSettings, FileLine)>,
    interfaces: Option<(InterfaceSettings, FileLine)>,
    units: BTreeMap<UnitId, (Unit, FileLine)>,
    /// Namespaces of units, which may stand in another file.
    netns: BTreeMap<UnitId, (String, FileLine)>,
    objectives: BTreeMap<String, (Vec<JudgedObjective>, FileLine)>,
    maintenance: BTreeMap<String, (JudgedMaintenance, FileLine)>,
    modules: BTreeMap<String, (ModuleSettings, FileLine)>,
    exports: BTreeMap<String, (ExportSettings, FileLine)>,
    errors: Vec<SettingsError>,
}

impl Merged {
    fn add(&mut self, file: &ReadFile) {
        let says = &file.says;
        self.errors.extend(file.wrong.iter().cloned());
        if let Some(station) = &says.station {
            self.station(station, file);
        }
        if let Some(store) = &says.store {
            self.store(store, file);
        }
        if let Some(api) = &says.api {
            self.api(api, file);
        }
        if let Some(interfaces) = &says.interfaces {
            self.interfaces(interfaces, file);
        }
        if let Some(alert) = &says.alert {
            self.alert(alert, file);
        }
        for (name, settings) in &says.probe {
            self.unit(file, "probe", name, Instrument::Probe(Box::new(settings.clone())));
        }
        for (name, settings) in &says.reflect {
            self.unit(file, "reflect", name, Instrument::Reflect(Box::new(settings.clone())));
        }
        for (name, settings) in &says.rtt {
            self.unit(file, "rtt", name, Instrument::Rtt(Box::new(settings.clone())));
        }
        for (name, settings) in &says.flow {
            self.unit(file, "flow", name, Instrument::Flow(Box::new(settings.clone())));
        }
        for (name, settings) in &says.otg {
            self.unit(file, "otg", name, Instrument::Otg(Box::new(settings.clone())));
        }
        for (name, settings) in &says.agent {
            self.unit(file, "agent", name, Instrument::Agent(Box::new(settings.clone())));
        }
        for (unit, netns) in &says.netns {
            let (at, id) = (file.line_of(&["netns", unit]), UnitId::new(unit));
            if !sonde_sys::netns::is_name(netns) {
                let why = format!("'{netns}' is no name of a namespace; 'ip netns' lists them");
                let wrong = SettingsError::of(&format!("netns.{unit}"), format!("netns: {why}"));
                self.errors.push(wrong.at(Some(&at)));
            }
            let first = self.netns.insert(id, (netns.clone(), at.clone()));
            self.once("netns", unit, first.map(|(_, first)| first), &at);
        }
        for (name, settings) in &says.objective {
            let found = settings.objectives(name);
            if let Some((found, at)) = self.judged(file, "objective", name, found) {
                let kept = self.objectives.insert(name.clone(), (found, at.clone()));
                self.once("objective", name, kept.map(|(_, first)| first), &at);
            }
        }
        for (name, settings) in &says.maintenance {
            let found = settings.window(name);
            if let Some((found, at)) = self.judged(file, "maintenance", name, found) {
                let kept = self.maintenance.insert(name.clone(), (found, at.clone()));
                self.once("maintenance", name, kept.map(|(_, first)| first), &at);
            }
        }
        for (name, settings) in &says.module {
            let found = settings.check().map(|()| settings.clone()).map_err(|error| vec![error]);
            if let Some((found, at)) = self.judged(file, "module", name, found) {
                let kept = self.modules.insert(name.clone(), (found, at.clone()));
                self.once("module", name, kept.map(|(_, first)| first), &at);
            }
        }
        for (name, settings) in &says.export {
            let found = settings.check().map(|()| settings.clone()).map_err(|error| vec![error]);
            if let Some((found, at)) = self.judged(file, "export", name, found) {
                let kept = self.exports.insert(name.clone(), (found, at.clone()));
                self.once("export", name, kept.map(|(_, first)| first), &at);
            }
        }
    }

    /// Gives units their namespaces.
    fn place_units(&mut self) {
        for (id, (netns, at)) in std::mem::take(&mut self.netns) {
            match self.units.get_mut(&id) {
                Some((unit, _)) => unit.netns = Some(netns),
                None => {
                    let why = format!("netns: there is no unit [{id}]; write it, or drop this");
                    let wrong = SettingsError::of(&format!("netns.{id}"), why);
                    self.errors.push(wrong.at(Some(&at)));
                }
            }
        }
    }

    /// Refuses an objective that no unit can ever be judged by: mostly a name is misspelt.
    fn check_units_of_objectives(&mut self) {
        let of = |fits: fn(&Instrument) -> bool| -> Vec<&str> {
            let units = self.units.iter().filter(|(_, (unit, _))| fits(&unit.instrument));
            units.map(|(id, _)| id.as_str()).collect()
        };
        let probes = of(|instrument| matches!(instrument, Instrument::Probe(_)));
        let watching = of(|instrument| matches!(instrument, Instrument::Rtt(_)));
        for (name, (judged, at)) in &self.objectives {
            let of_traffic = judged.iter().any(JudgedObjective::is_of_traffic);
            let (units, what) = if of_traffic {
                (&watching, "unit that watches round trips")
            } else {
                (&probes, "probe")
            };
            let pattern = judged.iter().find_map(|o| o.labels.0.get("unit").cloned());
            let labels =
                LabelPatterns(pattern.iter().map(|p| ("unit".into(), p.clone())).collect());
            let fits = |unit: &&str| labels.matches(&[("unit".into(), (*unit).into())].into());
            if units.iter().any(fits) {
                continue;
            }
            let id = format!("objective.{name}");
            let error = match pattern {
                _ if units.is_empty() => {
                    let table = if of_traffic { "rtt" } else { "probe" };
                    let why = format!("no {what} is there to be judged; write [{table}.NAME]");
                    SettingsError::new(&id, why)
                }
                pattern => {
                    let pattern = pattern.unwrap_or_default();
                    let why = format!("no {what} fits '{pattern}'; there are {}", units.join(", "));
                    SettingsError::new("match.unit", why).inside(&id)
                }
            };
            self.errors.push(error.at(Some(at)));
        }
    }

    /// What a table stands for; what is wrong with it has its line.
    fn judged<T>(
        &mut self,
        file: &ReadFile,
        kind: &str,
        name: &str,
        found: Result<T, Vec<SettingsError>>,
    ) -> Option<(T, FileLine)> {
        let (at, id) = (file.line_of(&[kind, name]), format!("{kind}.{name}"));
        if !is_name(name) {
            self.errors.push(SettingsError::new(&id, bad_name(name)).at(Some(&at)));
        }
        let errors = match found {
            Ok(found) => return Some((found, at)),
            Err(errors) => errors,
        };
        for error in errors {
            let inner = error.key.clone().unwrap_or_default();
            let keys: Vec<&str> = [kind, name].into_iter().chain(inner.split('.')).collect();
            let line = file.line_of(&keys);
            self.errors.push(of_table(error, &id).at(Some(&line)));
        }
        None
    }

    /// Refuses the second of one name.
    fn once(&mut self, kind: &str, name: &str, first: Option<FileLine>, at: &FileLine) {
        if let Some(first) = first {
            let why = format!("it stands in {first} already; give one of them another name");
            self.errors.push(SettingsError::new(&format!("{kind}.{name}"), why).at(Some(at)));
        }
    }

    fn station(&mut self, station: &StationSettings, file: &ReadFile) {
        let at = file.line_of(&["station"]);
        if let Some(name) = station.name.as_deref().filter(|name| !is_name(name)) {
            let wrong = SettingsError::new("station.name", bad_name(name));
            self.errors.push(wrong.at(Some(&file.line_of(&["station", "name"]))));
        }
        keep_one(&mut self.station, (station.clone(), at), "station", &mut self.errors);
    }

    fn store(&mut self, store: &StoreSettings, file: &ReadFile) {
        let at = file.line_of(&["store"]);
        if let Err(error) = store.check() {
            let error = error.inside("store");
            let key = error.key.clone().unwrap_or_default();
            let line = file.line_of(&key.split('.').collect::<Vec<_>>());
            self.errors.push(error.at(Some(&line)));
        }
        keep_one(&mut self.store, (store.clone(), at), "store", &mut self.errors);
    }

    fn api(&mut self, api: &ApiSettings, file: &ReadFile) {
        let at = file.line_of(&["api"]);
        if let Err(error) = api.check() {
            let key = error.key.clone().unwrap_or_default();
            let error = error.inside("api");
            self.errors.push(error.at(Some(&file.line_of(&["api", &key]))));
        }
        keep_one(&mut self.api, (api.clone(), at), "api", &mut self.errors);
    }

    fn interfaces(&mut self, interfaces: &InterfaceSettings, file: &ReadFile) {
        let at = file.line_of(&["interfaces"]);
        if let Err(error) = interfaces.check() {
            let line = file.line_of(&["interfaces", "names"]);
            self.errors.push(error.inside("interfaces").at(Some(&line)));
        }
        keep_one(&mut self.interfaces, (interfaces.clone(), at), "interfaces", &mut self.errors);
    }

    fn alert(&mut self, alert: &AlertSettings, file: &ReadFile) {
        let at = file.line_of(&["alert"]);
        let lines = file.text.lines_of(&["alert", "route"]);
        let routes = lines.iter().take(alert.route.len()).enumerate().map(|(index, &line)| {
            let at = FileLine { file: file.text.file.clone(), line };
            alert.check_route(index).map_err(|error| error.at(Some(&at)))
        });
        let checked = routes.collect::<Result<(), _>>().and_then(|()| alert.check());
        if let Err(error) = checked {
            let error = error.inside("alert");
            let key = error.key.clone().unwrap_or_default();
            let line = file.line_of(&key.split('.').collect::<Vec<_>>());
            self.errors.push(match error.line {
                Some(_) => error,
                None => error.at(Some(&line)),
            });
        }
        keep_one(&mut self.alert, (alert.clone(), at), "alert", &mut self.errors);
    }

    fn unit(&mut self, file: &ReadFile, kind: &str, name: &str, instrument: Instrument) {
        let at = file.line_of(&[kind, name]);
        let id = UnitId::new(&format!("{kind}.{name}"));
        if !is_name(name) {
            self.errors.push(SettingsError::new(id.as_str(), bad_name(name)).at(Some(&at)));
        }
        if let Err(error) = instrument.check() {
            let inner = error.key.clone().unwrap_or_default();
            let keys: Vec<&str> = [kind, name].into_iter().chain(inner.split('.')).collect();
            let key = Some(keys.join(".").trim_end_matches('.').to_owned());
            // One that names a line knows better where it stands.
            self.errors.push(match error.line {
                Some(_) => SettingsError { key, ..error },
                None => of_table(error, id.as_str()).at(Some(&file.line_of(&keys))),
            });
        }
        match self.units.get(&id) {
            Some((_, first)) => {
                let why = format!("it stands in {first} already; give one of them another name");
                self.errors.push(SettingsError::new(id.as_str(), why).at(Some(&at)));
            }
            None => drop(self.units.insert(id, (Unit { instrument, netns: None }, at))),
        }
    }
}

/// A table that stands in one file only: refuses the second.
fn keep_one<T>(
    kept: &mut Option<(T, FileLine)>,
    new: (T, FileLine),
    table: &str,
    errors: &mut Vec<SettingsError>,
) {
    if let Some((_, first)) = kept {
        let why = format!("it stands in {first} already; keep one of them");
        errors.push(SettingsError::new(table, why).at(Some(&new.1)));
    }
    *kept = Some(new);
}

pub(crate) fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&name.len()) && name.chars().all(fits)
}

pub(crate) fn bad_name(name: &str) -> String {
    format!("'{name}' is no name; write up to 64 letters, digits, '-', '_' and '.'")
}

/// How many keys name what is read by itself: `[probe.core]`, `[store]`.
fn keys_of_unit(first: &str) -> usize {
    match first {
        "include" | "station" | "alert" | "store" | "api" | "interfaces" => 1,
        _ => 2,
    }
}

/// An error of what stands in the table `id`, which its own checks do not know.
fn of_table(error: SettingsError, id: &str) -> SettingsError {
    match error.key {
        Some(_) => error.inside(id),
        None => SettingsError { key: Some(id.to_owned()), ..error.within(id) },
    }
}

#[cfg(test)]
mod tests;
