//! The JSON that commands print, against what this layout's first version printed
//! (`crates/results/tests/fixtures/1`): every key that there was is there, with a value of the
//! same type. A later version may say more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::net::{Net, SONDE};
use crate::turn;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/tests/fixtures/1")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn fixture(name: &str) -> Value {
    json(&fs::read_to_string(fixtures().join(name)).unwrap())
}

/// Lists are of one kind of thing: that which has most keys stands for all.
fn fullest(list: &[Value]) -> Option<&Value> {
    list.iter().max_by_key(|value| value.as_object().map_or(0, |o| o.len()))
}

fn has_shape(new: &Value, old: &Value, path: &str) {
    match (new, old) {
        // What may be missing has no type that could be compared.
        (_, Value::Null) | (Value::Null, _) => {}
        (Value::Object(new), Value::Object(old)) => {
            for (key, value) in old {
                let path = format!("{path}.{key}");
                has_shape(new.get(key).unwrap_or_else(|| panic!("{path} is gone")), value, &path);
            }
        }
        (Value::Array(new), Value::Array(old)) => {
            if let (Some(new), Some(old)) = (fullest(new), fullest(old)) {
                has_shape(new, old, &format!("{path}[]"));
            }
        }
        _ => {
            let (new, old) = (std::mem::discriminant(new), std::mem::discriminant(old));
            assert_eq!(new, old, "{path} is of another type");
        }
    }
}

/// A folder of the test's own, removed with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-json-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn sonde(&self, line: &str) -> Output {
        Command::new(SONDE).args(line.split(' ')).current_dir(&self.0).output().unwrap()
    }

    fn json(&self, line: &str) -> Value {
        json(&String::from_utf8(self.sonde(line).stdout).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn doctor_says_what_it_said() {
    let _turn = turn::shared();
    let folder = Folder::new("doctor");
    has_shape(&folder.json("doctor --json"), &fixture("doctor.json"), "doctor");
}

#[test]
fn flow_verify_says_what_it_said() {
    let _turn = turn::shared();
    let folder = Folder::new("verify");
    let made = "gen flows --flows 5 --packets 80 --seed 7 --out f.pcap --truth t.csv";
    assert!(folder.sonde(made).status.success());
    assert!(folder.sonde("flow f.pcap --write f.ipfix").status.success());
    // The truth forgets a flow: there is a difference.
    let truth = fs::read_to_string(folder.0.join("t.csv")).unwrap();
    let mut lines: Vec<&str> = truth.lines().collect();
    lines.remove(2);
    fs::write(folder.0.join("t.csv"), lines.join("\n") + "\n").unwrap();
    let now = folder.json("flow verify --truth t.csv f.ipfix --json");
    assert_eq!(now["exact"], false);
    has_shape(&now, &fixture("verify.json"), "verify");
}

#[test]
fn compare_says_what_it_said() {
    let _turn = turn::shared();
    let folder = Folder::new("compare");
    // The run of this layout, in its folder.
    let mut run = fixture("bench.json");
    let saved = folder.0.join("saved");
    fs::create_dir_all(&saved).unwrap();
    for part in ["measurements", "trials"] {
        let Value::Array(all) = run[part].take() else { panic!("{part}") };
        let lines: Vec<String> = all.iter().map(|value| format!("{value}\n")).collect();
        fs::write(saved.join(format!("{part}.jsonl")), lines.concat()).unwrap();
        run[part] = Value::Array(Vec::new());
    }
    fs::write(saved.join("run.json"), run.to_string()).unwrap();
    let now = folder.json("compare saved saved --json");
    assert!(now["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
    has_shape(&now, &fixture("compare.json"), "compare");
}

#[test]
fn reflectors_report_what_they_reported() {
    let Some(net) = Net::pair("reflectors_report_what_they_reported") else { return };
    for (mode, name) in [("", "reflect.json"), ("--kernel --iface eth0", "reflect_kernel.json")] {
        let mut reflector = net.reflect(mode);
        net.measure("10.1.0.2 -i 10ms -c 50");
        let full = |line: &String| json(line)["reflected"].as_u64() == Some(50);
        reflector.0.until("a report of all", |p| p.out().iter().any(full));
        let last = reflector.0.out().into_iter().rev().find(full).unwrap();
        has_shape(&json(&last), &fixture(name), name);
    }
}
