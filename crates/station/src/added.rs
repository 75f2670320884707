//! Targets that were added by the API: they stand in no file of the configuration, but beside the
//! store, and go to the probes that the configuration has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use anyhow::Context as _;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use sonde_results::units::format_hex;
use sonde_run::error::{RunError, SettingsError};
use sonde_run::probe::{Settings, TargetEntry};

use crate::alert::spool::write_whole;
use crate::plan::{Plan, UnitId};
use crate::unit::{Instrument, Unit};

/// A target that was added by the API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddedTarget {
    /// The unit that measures it: `probe.core`.
    pub unit: String,
    /// As it would stand in the unit's settings.
    pub target: TargetEntry,
    /// Labels that the API shows with it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Since when it is measured as it is, ns since 1970 UTC.
    pub since_ns: i64,
    /// Who added it, or changed it last.
    pub by: String,
}

/// All targets that were added by the API, in the order in which they were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddedTargets {
    /// Themselves.
    pub targets: Vec<AddedTarget>,
}

/// A plan of the configuration's files, with the targets that were added.
pub struct JoinedPlan {
    /// What is run.
    pub plan: Plan<Unit>,
    /// Of each added target, in their order, why it is not measured now; `None`: it is.
    pub rests: Vec<Option<String>>,
}

impl AddedTarget {
    /// What it is called.
    pub fn name(&self) -> &str {
        name_of(&self.target)
    }
}

/// What a target is called.
pub fn name_of(target: &TargetEntry) -> &str {
    target.name.as_deref().unwrap_or(&target.host)
}

impl AddedTargets {
    /// Those of a station whose store is `store`; none where nothing was added yet. A file that
    /// cannot be understood is set aside.
    ///
    /// # Errors
    /// The file cannot be read, or not be set aside.
    pub fn read(store: &Path) -> Result<AddedTargets, RunError> {
        let file = store.join(FILE);
        let text = match crate::state_file::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.with_context(|| format!("cannot read {}", file.display()))?,
        };
        serde_json::from_slice(&text).or_else(|error| {
            let aside = file.with_extension("damaged");
            tracing::error!(
                "{} cannot be read ({error}); it is set aside as {}, and targets that the API \
                 added are not measured",
                file.display(),
                aside.display()
            );
            fs::rename(&file, &aside)
                .with_context(|| format!("cannot rename {}", file.display()))?;
            Ok(Self::default())
        })
    }

    /// Keeps them beside the store, so that a restart finds them.
    ///
    /// # Errors
    /// The file cannot be written; the text names it.
    pub fn write(&self, store: &Path) -> Result<(), String> {
        let file = store.join(FILE);
        let text = serde_json::to_vec_pretty(self).map_err(|error| error.to_string())?;
        write_whole(&file, &text).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Their version: of all that is kept of them.
    pub fn version(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        format_hex(&digest(&SHA256, &text).as_ref()[..8])
    }

    /// With the units of the files. What a file says counts first: an added target rests while a
    /// file has one of its name in the unit, while its unit is in no file, and while it does not go
    /// with the unit's settings.
    pub fn joined(&self, filed: &Plan<Unit>) -> JoinedPlan {
        let mut rests: Vec<Option<String>> = self
            .targets
            .iter()
            .map(|added| match filed.get(&UnitId::new(&added.unit)).map(|u| &u.instrument) {
                Some(Instrument::Probe(_)) => None,
                Some(_) => Some(format!("{} is no probe", added.unit)),
                None => Some(format!("the configuration has no unit [{}]", added.unit)),
            })
            .collect();
        let mut units = Vec::new();
        for (id, unit) in filed.iter() {
            let Instrument::Probe(settings) = &unit.instrument else {
                units.push((id.clone(), unit.clone()));
                continue;
            };
            let names: BTreeSet<&str> = settings.targets.iter().map(name_of).collect();
            let own = self.targets.iter().zip(&mut rests);
            let mut own: Vec<_> = own.filter(|(added, _)| added.unit == id.as_str()).collect();
            for (added, rests) in &mut own {
                if names.contains(added.name()) {
                    **rests = Some(format!("a file has a target '{}' of {id}", added.name()));
                }
            }
            own.retain(|(_, rests)| rests.is_none());
            if own.is_empty() {
                units.push((id.clone(), unit.clone()));
                continue;
            }
            let mut joined = settings.clone();
            joined.targets.extend(own.iter().map(|(added, _)| added.target.clone()));
            if check(&joined).is_err() {
                // Some of them: those that go with what came before stay.
                joined = settings.clone();
                for (added, rests) in own {
                    joined.targets.push(added.target.clone());
                    if let Err(error) = check(&joined) {
                        joined.targets.pop();
                        *rests = Some(error.message);
                    }
                }
            }
            let unit = Unit { instrument: Instrument::Probe(joined), netns: unit.netns.clone() };
            units.push((id.clone(), Arc::new(unit)));
        }
        JoinedPlan { plan: Plan::shared(units), rests }
    }

    /// Says in the log what rests, and why.
    pub fn log_rests(&self, joined: &JoinedPlan) {
        for (added, why) in self.targets.iter().zip(&joined.rests) {
            if let Some(why) = why {
                tracing::warn!(
                    "target {} of {}, which the API added, is not measured: {why}",
                    added.name(),
                    added.unit
                );
            }
        }
    }
}

fn check(settings: &Settings) -> Result<(), SettingsError> {
    Instrument::Probe(Box::new(settings.clone())).check()
}

/// Where the folder of the store keeps them.
const FILE: &str = "targets.json";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::testing::Folder;
    use sonde_run::probe::settings::StreamOptions;

    fn added(unit: &str, host: &str) -> AddedTarget {
        AddedTarget {
            unit: unit.into(),
            target: TargetEntry::of(host),
            labels: BTreeMap::from([("site".to_owned(), "muc".to_owned())]),
            since_ns: 5,
            by: "desk".into(),
        }
    }

    fn of(targets: impl IntoIterator<Item = AddedTarget>) -> AddedTargets {
        AddedTargets { targets: targets.into_iter().collect() }
    }

    fn filed() -> Plan<Unit> {
        let probe = Settings { targets: vec![TargetEntry::of("192.0.2.1")], ..Settings::default() };
        let unit = |instrument| Unit { instrument, netns: None };
        Plan::of([
            (UnitId::new("probe.core"), unit(Instrument::Probe(Box::new(probe)))),
            (UnitId::new("rtt.edge"), unit(Instrument::Rtt(Box::default()))),
        ])
    }

    fn hosts(joined: &JoinedPlan) -> Vec<String> {
        let unit = joined.plan.get(&UnitId::new("probe.core")).unwrap();
        let Instrument::Probe(settings) = &unit.instrument else { panic!() };
        settings.targets.iter().map(|target| target.host.clone()).collect()
    }

    #[test]
    fn they_are_kept_beside_the_store_and_what_is_damaged_is_set_aside() {
        let folder = Folder::new("added");
        assert_eq!(AddedTargets::read(&folder.0).unwrap(), AddedTargets::default());
        let mut own = added("probe.core", "192.0.2.2");
        own.target.stream.interval = Some(20_000_000);
        let all = of([own]);
        all.write(&folder.0).unwrap();
        assert_eq!(AddedTargets::read(&folder.0).unwrap(), all);
        fs::write(folder.0.join(FILE), "{").unwrap();
        assert_eq!(AddedTargets::read(&folder.0).unwrap(), AddedTargets::default());
        assert_eq!(fs::read_to_string(folder.0.join("targets.damaged")).unwrap(), "{");
        let away = all.write(Path::new("/nonexistent/store")).unwrap_err();
        assert!(away.contains("/nonexistent/store/targets.json"), "{away}");
    }

    #[test]
    fn they_go_to_their_units_and_the_files_count_first() {
        let mut long = added("probe.core", "192.0.2.4");
        long.target.stream = StreamOptions { size: Some(20), ..StreamOptions::default() };
        let all = of([
            added("probe.core", "192.0.2.2"),
            added("probe.core", "192.0.2.1"),
            added("rtt.edge", "192.0.2.3"),
            added("probe.gone", "192.0.2.3"),
            long,
            added("probe.core", "192.0.2.5"),
        ]);
        let joined = all.joined(&filed());
        assert_eq!(hosts(&joined), ["192.0.2.1", "192.0.2.2", "192.0.2.5"]);
        let why: Vec<&str> =
            joined.rests.iter().map(|why| why.as_deref().unwrap_or_default()).collect();
        assert_eq!(why[0], "");
        assert_eq!(why[1], "a file has a target '192.0.2.1' of probe.core");
        assert_eq!(why[2], "rtt.edge is no probe");
        assert_eq!(why[3], "the configuration has no unit [probe.gone]");
        assert!(why[4].contains("size"), "{}", why[4]);
        assert_eq!(why[5], "");
        // A unit that nothing is added to stays the same value.
        let none = AddedTargets::default().joined(&filed());
        assert_eq!(hosts(&none), ["192.0.2.1"]);
    }

    #[test]
    fn every_change_is_another_version() {
        let one = of([added("probe.core", "192.0.2.2")]);
        let versions = [AddedTargets::default().version(), one.version(), {
            let mut other = one.clone();
            other.targets[0].labels.clear();
            other.version()
        }];
        assert_eq!(versions.iter().collect::<BTreeSet<_>>().len(), 3);
        assert_eq!(one.version(), one.clone().version());
    }
}
