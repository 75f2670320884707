//! Objectives that no window can meet.

use std::collections::BTreeSet;

use sonde_results::units::format_dscp;
use sonde_run::error::SettingsError;

use super::Config;
use crate::alert::model::LabelSet;
use crate::judge::never_met;
use crate::unit::Instrument;

impl Config {
    /// Objectives that no window can ever meet, since too few probes are sent: one line for each
    /// objective and unit.
    pub(super) fn unmeetable(&self) -> Vec<SettingsError> {
        let (station, mut seen, mut warnings) = (self.station_name(), BTreeSet::new(), Vec::new());
        for (unit, spec) in self.plan.iter() {
            let Instrument::Probe(settings) = &spec.instrument else { continue };
            for (target, stream) in settings.named_streams() {
                let packets = f64::from(stream.flows) * 1e9 / stream.interval.max(1) as f64;
                for class in stream.dscp.iter().map(|&dscp| format_dscp(dscp)) {
                    let labels = [
                        ("station", station.as_str()),
                        ("unit", unit.as_str()),
                        ("target", target),
                        ("class", class.as_str()),
                    ];
                    let labels: LabelSet =
                        labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
                    for judged in self.judge.objectives.iter().filter(|o| o.judges(&labels)) {
                        let objective = &judged.objective;
                        if let Some(why) = never_met(objective, packets)
                            && seen.insert((objective.name.clone(), unit.clone()))
                        {
                            let whom = format!("{unit} {target} {class}");
                            let key = format!("objective.{}", objective.name);
                            warnings.push(SettingsError::new(&key, format!("{whom}: {why}")));
                        }
                    }
                }
            }
        }
        warnings
    }
}
