//! `sonde schema`: JSON schemas of run files and of settings.

use clap::{Args, ValueEnum};
use sonde_run::{flow, probe, reflect, rtt, schema, traffic};
use sonde_testbed::plan::BenchPlan;
use sonde_testbed::{agent, otg};

use crate::exit::{Exit, Failure};

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct SchemaArgs {
    /// The instrument that wrote the run file
    #[arg(value_enum, default_value = "probe", value_name = "INSTRUMENT")]
    pub instrument: RunKind,
    /// Print the schema of this instrument's settings instead: 'config.settings' of a run file
    #[arg(long, value_enum, value_name = "INSTRUMENT", conflicts_with = "instrument")]
    pub settings: Option<SettingsKind>,
}

/// The instrument that wrote a run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunKind {
    /// `sonde probe` and `sonde demo`
    Probe,
    /// `sonde rtt`
    Rtt,
    /// `sonde flow`
    Flow,
    /// `sonde bench`: its folder as one document
    Bench,
}

/// The instrument that takes settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SettingsKind {
    /// `sonde probe`
    Probe,
    /// `sonde reflect`
    Reflect,
    /// `sonde rtt`
    Rtt,
    /// `sonde flow`
    Flow,
    /// `sonde flow verify`
    Verify,
    /// `sonde gen flows`
    Gen,
    /// `sonde bench`: a plan
    Bench,
    /// `sonde agent`
    Agent,
    /// `sonde otg`
    Otg,
}

/// Prints a schema.
pub fn run(args: &SchemaArgs) -> Result<Exit, Failure> {
    let schema = match args.settings {
        Some(kind) => of_settings(kind),
        None => of_run(args.instrument),
    };
    outln!("{schema:#}");
    Ok(Exit::Ok)
}

fn of_run(kind: RunKind) -> serde_json::Value {
    match kind {
        RunKind::Probe => sonde_results::run::schema(),
        RunKind::Rtt => sonde_results::rtt_run::schema(),
        RunKind::Flow => sonde_results::flow_run::schema(),
        RunKind::Bench => sonde_results::bench::schema(),
    }
}

fn of_settings(kind: SettingsKind) -> serde_json::Value {
    match kind {
        SettingsKind::Probe => schema::of::<probe::Settings>(),
        SettingsKind::Reflect => schema::of::<reflect::Settings>(),
        SettingsKind::Rtt => schema::of::<rtt::Settings>(),
        SettingsKind::Flow => schema::of::<flow::Settings>(),
        SettingsKind::Verify => schema::of::<flow::verify::Settings>(),
        SettingsKind::Gen => schema::of::<traffic::Settings>(),
        SettingsKind::Bench => schema::of::<BenchPlan>(),
        SettingsKind::Agent => schema::of::<agent::Settings>(),
        SettingsKind::Otg => schema::of::<otg::Settings>(),
    }
}

const HELP: &str = "\
Example:
  sonde schema > run.schema.json
  sonde schema rtt > rtt.schema.json
  sonde schema --settings bench > plan.schema.json";

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::to_value;

    use super::*;

    fn has_every_key(kind: SettingsKind, settings: &impl Serialize) {
        let schema = of_settings(kind);
        let known = schema["properties"].as_object().unwrap();
        for key in to_value(settings).unwrap().as_object().unwrap().keys() {
            assert!(known.contains_key(key), "{kind:?}: {key}");
        }
    }

    #[test]
    fn a_schema_has_every_key_of_the_settings() {
        has_every_key(SettingsKind::Probe, &probe::Settings::default());
        has_every_key(SettingsKind::Reflect, &reflect::Settings::default());
        has_every_key(SettingsKind::Rtt, &rtt::Settings::default());
        has_every_key(SettingsKind::Flow, &flow::Settings::default());
        has_every_key(SettingsKind::Gen, &traffic::Settings::default());
    }

    #[test]
    fn every_instrument_has_a_schema() {
        for kind in SettingsKind::value_variants() {
            assert!(of_settings(*kind)["properties"].is_object(), "{kind:?}");
        }
        for kind in RunKind::value_variants() {
            assert!(of_run(*kind)["properties"].is_object(), "{kind:?}");
        }
    }
}
