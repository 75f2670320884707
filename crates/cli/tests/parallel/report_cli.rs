//! `sonde report` and `sonde compare` on run folders, through the binary.

#[path = "../support/saved_run.rs"]
mod saved_run;
#[path = "../../../report/tests/synthetic/mod.rs"]
#[allow(dead_code, missing_docs)]
mod synthetic;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use synthetic::Recipe;

/// A folder of the test's own, removed with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-report-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn run(&self, name: &str, recipe: &Recipe) -> PathBuf {
        let folder = self.0.join(name);
        saved_run::write(&folder, &synthetic::run(recipe));
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sonde(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sonde")).args(args).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SMALL: Recipe =
    Recipe { seed: 2544, rate_factor: 1.0, repetitions: 5, speed_bps: Some(10_000_000_000) };

#[test]
fn a_report_in_every_format() {
    let folder = Folder::new("formats");
    let run = folder.run("run", &Recipe { repetitions: 1, ..SMALL });
    let done = sonde(&["report", text(&run)]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert_eq!(out(&done).trim_end(), text(&run.join("report/report.html")));
    assert!(fs::read_to_string(run.join("report/report.html")).unwrap().contains("</html>"));

    let to = folder.0.join("elsewhere");
    let all = "html,md,latex,csv,tsv,json,parquet,npy";
    let done = sonde(&["report", text(&run), "--out", text(&to), "--format", all]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    for name in ["report.html", "report.md", "report.tex", "report.json"] {
        assert!(out(&done).contains(name) && to.join(name).is_file(), "{name}");
    }
    for name in ["csv/results.csv", "tsv/trials.tsv", "parquet/trials.parquet", "npy/index.json"] {
        assert!(to.join(name).is_file(), "{name}");
    }
    let mut left = fs::read_dir(&to).unwrap().flatten().map(|e| e.file_name());
    assert!(!left.any(|n| n.to_string_lossy().ends_with(".tmp")));
}

#[test]
fn a_run_that_grows_can_be_read() {
    let folder = Folder::new("grows");
    let run = folder.run("run", &Recipe { repetitions: 1, ..SMALL });
    let trials = run.join("trials.jsonl");
    let mut file = fs::OpenOptions::new().append(true).open(trials).unwrap();
    file.write_all(b"{\"number\": 9999, \"measure").unwrap();
    let done = sonde(&["report", text(&run), "-f", "json"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
}

#[test]
fn what_is_no_run_and_what_cannot_be_saved() {
    let folder = Folder::new("wrong");
    let done = sonde(&["report", text(&folder.0)]);
    assert_eq!(done.status.code(), Some(3));
    assert!(err(&done).contains("holds no run"), "{}", err(&done));
    let done = sonde(&["report", text(&folder.0), "--format", "pdf"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(err(&done).contains("[possible values: html, md, latex"), "{}", err(&done));

    let run = folder.run("run", &Recipe { repetitions: 1, ..SMALL });
    let file = folder.0.join("file");
    fs::write(&file, "in the way").unwrap();
    let done = sonde(&["report", text(&run), "--out", text(&file)]);
    assert_eq!(done.status.code(), Some(4));
    assert!(err(&done).contains("--out"), "{}", err(&done));
}

#[test]
fn a_slower_run_fails_the_comparison_and_a_faster_one_does_not() {
    let folder = Folder::new("compare");
    let a = folder.run("a", &SMALL);
    let b = folder.run("b", &Recipe { seed: 7, rate_factor: 0.85, ..SMALL });
    let worse = sonde(&["compare", text(&a), text(&b)]);
    assert_eq!(worse.status.code(), Some(1), "{}", err(&worse));
    assert!(out(&worse).contains("WORSE") && out(&worse).contains("by chance"), "{}", out(&worse));
    let bearable =
        sonde(&["compare", text(&a), text(&b), "-m", "throughput", "--threshold", "30%"]);
    assert_eq!(bearable.status.code(), Some(0), "{}", out(&bearable));
    assert!(out(&bearable).contains(" worse"));
    let better = sonde(&["compare", text(&b), text(&a), "-m", "throughput"]);
    assert_eq!(better.status.code(), Some(0), "{}", out(&better));
    assert!(out(&better).contains("better"));
    let same = sonde(&["compare", text(&a), text(&a), "--metric", "all"]);
    // Of some quantities there are too few values.
    let open = out(&same).contains("Cannot tell: ");
    assert_eq!(same.status.code(), Some(if open { 5 } else { 0 }), "{}", out(&same));
    assert!(out(&same).contains("0 better, 0 worse"));

    let figure = folder.0.join("difference.svg");
    let json = sonde(&["compare", text(&a), text(&b), "--json", "--figure", text(&figure)]);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(!value["worse_beyond_threshold"].as_array().unwrap().is_empty());
    let row = &value["rows"][0];
    assert_eq!(
        (row["metric"].as_str(), row["verdict"].as_str()),
        (Some("throughput"), Some("worse"))
    );
    assert!(row["relative_interval"]["high"].as_f64().unwrap() < 0.0);
    assert!(fs::read_to_string(&figure).unwrap().starts_with("<svg"));
}

#[test]
fn a_damaged_run_is_refused_by_name_and_a_last_line_that_was_cut_short_is_said() {
    let folder = Folder::new("damaged");
    let run = folder.run("run", &Recipe { repetitions: 1, ..SMALL });
    let file = run.join("trials.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let last = lines.len() - 1;
    let commands = [vec!["report", text(&run)], vec!["compare", text(&run), text(&run)]];
    for (damaged, wanted) in [
        // A line in the middle; the end of the file; a whole line.
        (whole.replacen("\"number\":3,", "\"number\":?,", 1), "trials.jsonl line 3 is damaged"),
        (lines[..last].concat(), "trials.jsonl does not have trial"),
        ([&lines[..2], &lines[3..]].concat().concat(), "trials.jsonl line 3 has trial 4"),
    ] {
        fs::write(&file, damaged).unwrap();
        for command in &commands {
            let done = sonde(command);
            assert_eq!(done.status.code(), Some(3), "{command:?}: {}", err(&done));
            assert!(err(&done).contains(wanted), "{command:?}: {}", err(&done));
            assert!(err(&done).contains("bring it back from a copy"), "{}", err(&done));
        }
    }
    fs::write(&file, whole.clone() + "{\"number\":").unwrap();
    for command in &commands {
        let done = sonde(command);
        assert_ne!(done.status.code(), Some(3), "{}", err(&done));
        let said = format!("line {} was cut short", lines.len() + 1);
        assert!(err(&done).contains(&said), "{command:?}: {}", err(&done));
    }
}

#[test]
fn few_repetitions_show_nothing_and_say_so() {
    let folder = Folder::new("few");
    let few = Recipe { repetitions: 2, ..SMALL };
    let a = folder.run("a", &few);
    let b = folder.run("b", &Recipe { rate_factor: 0.5, ..few });
    let done = sonde(&["compare", text(&a), text(&b)]);
    assert_eq!(done.status.code(), Some(5), "{}", out(&done));
    assert!(out(&done).contains("too few repetitions"), "{}", out(&done));
    assert!(out(&done).contains("Cannot tell: "), "{}", out(&done));
}

#[test]
fn nothing_in_common_and_unknown_quantities_are_named() {
    let folder = Folder::new("nothing");
    let a = folder.run("a", &Recipe { repetitions: 1, ..SMALL });
    let mut other = synthetic::run(&Recipe { repetitions: 1, ..SMALL });
    other.measurements.iter_mut().for_each(|m| m.case.device = "another".into());
    let b = folder.0.join("b");
    saved_run::write(&b, &other);
    let done = sonde(&["compare", text(&a), text(&b)]);
    assert_eq!(done.status.code(), Some(3), "{}", out(&done));
    assert!(err(&done).contains("compare runs of one plan"), "{}", err(&done));
    let done = sonde(&["compare", text(&a), text(&a), "--metric", "thruput"]);
    assert_eq!(done.status.code(), Some(2), "{}", out(&done));
    assert!(err(&done).contains("throughput"), "{}", err(&done));
}
