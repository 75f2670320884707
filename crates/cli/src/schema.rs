//! `sonde schema`: JSON schemas of run files and of settings.

use clap::{Args, ValueEnum};
use sonde_results::{BenchRun, FlowRun, RttRun, Run, schema};
use sonde_run::{flow, probe, reflect, rtt, traffic};
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
        RunKind::Probe => schema::of::<Run>(),
        RunKind::Rtt => schema::of::<RttRun>(),
        RunKind::Flow => schema::of::<FlowRun>(),
        RunKind::Bench => schema::of::<BenchRun>(),
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
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json, to_value};
    use sonde_testbed::expand::expand;
    use sonde_testbed::plan::TomlText;

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

    fn fixture(name: &str) -> Value {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../results/tests/fixtures/1/");
        let text = std::fs::read_to_string(format!("{folder}{name}")).expect(name);
        serde_json::from_str(&text).expect(name)
    }

    fn list(value: Option<&Value>) -> &[Value] {
        match value {
            Some(Value::Array(list)) => list,
            Some(one) => std::slice::from_ref(one),
            None => &[],
        }
    }

    /// Whether settings that `old` allows are allowed by `new`, which may allow more.
    fn allows(new: &Value, old: &Value, path: &str) -> Result<(), String> {
        let (Value::Object(new_keys), Value::Object(old_keys)) = (new, old) else {
            return if new == old { Ok(()) } else { Err(format!("{path}: {new}, was {old}")) };
        };
        for (key, old) in old_keys {
            let path = format!("{path}.{key}");
            let new = new_keys.get(key);
            let one_allows = |old| list(new).iter().any(|new| allows(new, old, &path).is_ok());
            let wider = match key.as_str() {
                "title" | "description" | "required" => true,
                "properties" | "$defs" => {
                    for (name, old) in old.as_object().into_iter().flatten() {
                        let path = format!("{path}.{name}");
                        let new = new.and_then(|table| table.get(name));
                        allows(new.ok_or_else(|| format!("{path} is gone"))?, old, &path)?;
                    }
                    true
                }
                "oneOf" | "anyOf" => list(Some(old)).iter().all(one_allows),
                "enum" | "type" => list(Some(old)).iter().all(|old| list(new).contains(old)),
                "minimum" => new.is_none_or(|new| new.as_f64() <= old.as_f64()),
                "maximum" => new.is_none_or(|new| new.as_f64() >= old.as_f64()),
                _ => {
                    allows(new.unwrap_or(&Value::Null), old, &path)?;
                    true
                }
            };
            if !wider {
                return Err(format!("{path}: {new:?}, was {old}"));
            }
        }
        let (now, before) = (list(new_keys.get("required")), list(old_keys.get("required")));
        match now.iter().find(|name| !before.contains(name)) {
            Some(name) => Err(format!("{path} must have {name}")),
            None => Ok(()),
        }
    }

    /// The settings that layout 1 allowed are still allowed.
    #[test]
    fn schemas_of_settings_of_layout_1_are_kept() {
        for kind in SettingsKind::value_variants() {
            let name = kind.to_possible_value().unwrap().get_name().to_owned();
            let old = fixture(&format!("{name}.settings.schema.json"));
            allows(&of_settings(*kind), &old, &name).unwrap();
        }
    }

    #[test]
    fn settings_in_run_files_of_layout_1_are_read() {
        fn read<T: DeserializeOwned>(name: &str) {
            let settings = fixture(name)["config"]["settings"].take();
            serde_json::from_value::<T>(settings).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        read::<probe::Settings>("probe.json");
        read::<rtt::Settings>("rtt.json");
        read::<flow::Settings>("flow.json");
        let plan = fixture("bench.json")["config"]["plan"].take();
        let text = plan.as_str().unwrap().to_owned();
        expand(&TomlText { file: "bench.json".into(), text }).unwrap();
    }

    #[test]
    fn a_schema_that_allows_less_is_found() {
        let old = json!({
            "properties": {"a": {"type": ["string", "null"]}, "b": {"enum": [1, 2]}},
            "required": ["b"],
        });
        for (new, is_allowed) in [
            (old.clone(), true),
            (
                json!({"properties": {"a": {"type": ["string", "null"]}, "b": {"enum": [1, 2, 3]}, "c": {}}}),
                true,
            ),
            (json!({"properties": {"a": {"type": "string"}, "b": {"enum": [1, 2]}}}), false),
            (json!({"properties": {"a": {"type": ["string", "null"]}, "b": {"enum": [1]}}}), false),
            (json!({"properties": {"a": {"type": ["string", "null"]}}}), false),
            (json!({"properties": old["properties"], "required": ["a"]}), false),
        ] {
            assert_eq!(allows(&new, &old, "x").is_ok(), is_allowed, "{new}");
        }
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
