//! What versions of Sonde have written, and what this one makes of it. A folder of `tests/fixtures`
//! is a version of the layout. Its files were written by the commands in `README.md` there. They
//! are never written again, so that later versions prove that they still read them.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sonde_results::flow::FlowRecord;
use sonde_results::rtt::{RttFlow, RttGroup, RttSample};
use sonde_results::rtt_run::RttPoint;
use sonde_results::{BenchRun, FlowRun, Interval, RttRun, Run, schema};

fn text(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Whether all that `old` says is in `new`, which may say more.
fn has_all(new: &Value, old: &Value, path: &str) {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            for (key, value) in old {
                let path = format!("{path}.{key}");
                has_all(new.get(key).unwrap_or(&Value::Null), value, &path);
            }
        }
        (Value::Array(new), Value::Array(old)) => {
            assert_eq!(new.len(), old.len(), "{path}");
            for (i, (new, old)) in new.iter().zip(old).enumerate() {
                has_all(new, old, &format!("{path}[{i}]"));
            }
        }
        (Value::Number(new), Value::Number(old)) => {
            let (new, old) = (new.as_f64().unwrap(), old.as_f64().unwrap());
            assert!((new - old).abs() <= old.abs() * 1e-12, "{path}: {new}, was {old}");
        }
        _ => assert_eq!(new, old, "{path}"),
    }
}

/// Reads it as a `T`, which loses nothing of it.
fn reads<T: DeserializeOwned + Serialize>(text: &str, what: &str) -> T {
    let value: T = serde_json::from_str(text).unwrap_or_else(|e| panic!("{what}: {e}"));
    let old: Value = serde_json::from_str(text).unwrap();
    has_all(&serde_json::to_value(&value).unwrap(), &old, what);
    value
}

#[test]
fn run_files_of_layout_1_are_read() {
    let probe: Run = reads(&text("1/probe.json"), "probe");
    assert!(probe.overall.counters.sent > 0 && probe.overall.rtt.count > 0);
    let rtt: RttRun = reads(&text("1/rtt.json"), "rtt");
    assert!(rtt.groups.iter().any(|group| group.clean.count > 0));
    let flow: FlowRun = reads(&text("1/flow.json"), "flow");
    assert!(!flow.top.is_empty() && !flow.protocols.is_empty());
    let bench: BenchRun = reads(&text("1/bench.json"), "bench");
    assert!(!bench.measurements.is_empty());
}

/// Lines hold more than the record: whose it is, and what follows from it.
#[test]
fn lines_of_layout_1_are_read() {
    let of = |name: &str, kind: &str| -> Vec<String> {
        let all = text(name);
        let is_kind = |line: &&str| {
            serde_json::from_str::<Value>(line).unwrap()["type"].as_str() == Some(kind)
        };
        let lines: Vec<String> = all.lines().filter(is_kind).map(str::to_owned).collect();
        assert!(!lines.is_empty(), "{name} has no {kind}");
        lines
    };
    fn all<T: DeserializeOwned>(lines: &[String]) -> Vec<T> {
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
    let intervals: Vec<Interval> = all(&of("1/probe.jsonl", "interval"));
    assert!(intervals.iter().any(|interval| interval.counters.received > 0));
    let groups: Vec<RttGroup> = all(&of("1/rtt.jsonl", "group"));
    let samples: Vec<RttSample> = all(&of("1/rtt.jsonl", "sample"));
    let flows: Vec<RttFlow> = all(&of("1/rtt.jsonl", "flow"));
    assert!(!groups.is_empty() && !samples.is_empty() && !flows.is_empty());
    let points: Vec<RttPoint> = all(&of("1/rtt_points.jsonl", "point"));
    assert!(points.iter().all(|point| !point.name.is_empty() && !point.how.is_empty()));
    for line in text("1/flow.jsonl").lines() {
        reads::<FlowRecord>(line, "flow.jsonl");
    }
}

/// A later schema may say more, and takes nothing away.
#[test]
fn schemas_of_layout_1_are_kept() {
    for (name, now) in [
        ("probe", schema::of::<Run>()),
        ("rtt", schema::of::<RttRun>()),
        ("flow", schema::of::<FlowRun>()),
        ("bench", schema::of::<BenchRun>()),
    ] {
        let old: Value = serde_json::from_str(&text(&format!("1/{name}.schema.json"))).unwrap();
        kept(&serde_json::to_value(now).unwrap(), &old, name);
    }
}

/// Every property that there was is there, of the same type.
fn kept(new: &Value, old: &Value, path: &str) {
    for table in ["properties", "$defs"] {
        let Some(Value::Object(names)) = old.get(table) else { continue };
        for (name, value) in names {
            let path = format!("{path}.{name}");
            let now = new.get(table).and_then(|table| table.get(name));
            let now = now.unwrap_or_else(|| panic!("{path} is gone"));
            assert_eq!(now.get("type"), value.get("type"), "{path}");
            assert_eq!(now.get("$ref"), value.get("$ref"), "{path}");
            kept(now, value, &path);
        }
    }
}
