//! A run in its folder.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use sonde_results::bench::BenchRun;

/// A run as `sonde bench` keeps it.
pub fn write(folder: &Path, run: &BenchRun) {
    fs::create_dir_all(folder).unwrap();
    let head = BenchRun { measurements: Vec::new(), trials: Vec::new(), ..run.clone() };
    fs::write(folder.join("run.json"), serde_json::to_vec(&head).unwrap()).unwrap();
    let mut measurements = fs::File::create(folder.join("measurements.jsonl")).unwrap();
    for m in &run.measurements {
        writeln!(measurements, "{}", serde_json::to_string(m).unwrap()).unwrap();
    }
    let mut trials = fs::File::create(folder.join("trials.jsonl")).unwrap();
    for t in &run.trials {
        writeln!(trials, "{}", serde_json::to_string(t).unwrap()).unwrap();
    }
}
