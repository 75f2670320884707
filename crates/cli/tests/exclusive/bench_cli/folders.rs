//! A run from its begin to its report, taken up again, judged, and on a disk that is full.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::{Folder, assert_consistent, fixed, router, sonde, valid_trials};
use crate::process::Process;

#[test]
fn a_router_is_measured_reported_compared_and_not_measured_again() {
    if sonde_lab::skip("a_router_is_measured_reported_compared_and_not_measured_again") {
        return;
    }
    let search = "[[procedure]]\nkind = 'tst009'\ntrial = '200ms'\nresolution = 0.3\n";
    let plan = router(&format!("{search}{}", fixed(&["1000", "2000"], "200ms")));
    let folder = Folder::with_plan(&plan.replace("loop = false", "loop = true"));
    let (ended, run) = folder.whole_run();
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    // The search and two loads, of the loop and of the router.
    assert_eq!((run.measurements.len(), run.config.measurements_planned), (6, 6));
    for m in &run.measurements {
        assert!(m.finding.complete && !m.finding.values.is_empty(), "{m:?}");
        for trial in valid_trials(&run, m) {
            let d = &trial.directions[0];
            assert!(d.sent > 0 && d.latency.count == d.received && d.latency.min > 0, "{d:?}");
        }
    }
    assert!(run.bed.facts.contains_key("the tester's priority"), "{:?}", run.bed.facts);
    assert!(run.header.end_ns > run.header.start_ns);

    let before = folder.trials();
    let again = folder.bench();
    assert_eq!((again.code, folder.trials()), (0, before), "{}", again.err);
    assert_eq!(again.out.matches("(measured before)").count(), 6, "{}", again.out);

    let path = folder.run();
    let path = path.to_str().unwrap();
    let out = folder.file("report");
    let formats = "html,md,latex,csv,tsv,json,parquet,npy";
    let report = sonde(&["report", path, "--format", formats, "--out", out.to_str().unwrap()]);
    assert_eq!(report.code, 0, "{}", report.err);
    let files = files_below(&out);
    for ending in ["html", "md", "tex", "csv", "tsv", "json", "parquet", "npy", "svg"] {
        let mut found = files.iter().filter(|f| f.extension().is_some_and(|e| e == ending));
        let first = found.next().unwrap_or_else(|| panic!("no {ending} among {files:?}"));
        assert!(std::fs::metadata(first).unwrap().len() > 0, "{first:?} is empty");
    }
    let compare = sonde(&["compare", path, path, "--metric", "all"]);
    // One repetition cannot show that nothing is worse.
    assert_eq!(compare.code, 5, "{}", compare.err);
    assert!(compare.out.contains("Cannot tell: "), "{}", compare.out);
    assert!(compare.out.contains("throughput"), "{}", compare.out);
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().flatten().map(|e| e.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn a_threshold_that_does_not_hold_is_exit_code_1() {
    if sonde_lab::skip("a_threshold_that_does_not_hold_is_exit_code_1") {
        return;
    }
    let check = "[[check]]\nexpect = 'latency_p50 <= 1ns'\n";
    let folder = Folder::with_plan(&router(&format!("{}{check}", fixed(&["1000"], "200ms"))));
    for _ in 0..2 {
        // Measured, or measured before: it does not hold.
        let ended = folder.bench();
        assert_eq!(ended.code, 1, "{}\n{}", ended.out, ended.err);
        assert!(ended.out.contains("fails: latency_p50 <= 1ns"), "{}", ended.out);
    }
    let run = folder.read();
    let checks = &run.measurements[0].checks;
    assert!(checks.len() == 1 && !checks[0].pass && checks[0].value.is_some(), "{checks:?}");
}

#[test]
fn a_full_disk_ends_the_run_in_order_and_room_lets_it_go_on() {
    if sonde_lab::skip("a_full_disk_ends_the_run_in_order_and_room_lets_it_go_on") {
        return;
    }
    let loads: Vec<String> = (1..=12).map(|n| format!("{}", 500 * n)).collect();
    let loads: Vec<&str> = loads.iter().map(String::as_str).collect();
    let folder = Folder::with_plan(&router(&fixed(&loads, "100ms")));
    // A limit on the length of files: the kernel refuses the rest of a write, as a disk that
    // is full does. In units of 512 octets.
    let mut limited = Command::new("sh");
    let command = folder.command();
    let script = "trap '' XFSZ; ulimit -f 48; exec \"$@\"";
    limited.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    let full = Process::start(limited).end();
    assert_eq!(full.code, 4, "{}\n{}", full.out, full.err);
    assert!(full.err.contains("cannot write") && full.err.contains("free space"), "{}", full.err);
    let before = folder.read();
    let kept = folder.trials();
    assert!(!kept.is_empty() && before.measurements.len() < 12, "{}", kept.len());
    let path = folder.run();
    assert_eq!(sonde(&["report", path.to_str().unwrap()]).code, 0);

    let ended = folder.bench();
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    let run = folder.read();
    assert_consistent(&run);
    assert_eq!(run.measurements.len(), 12);
    assert_eq!(folder.trials()[..kept.len()], kept, "what was saved was changed");
    assert!(run.measurements.iter().all(|m| valid_trials(&run, m).len() == 1));
}
