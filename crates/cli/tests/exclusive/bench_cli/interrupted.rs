//! Runs that are ended before their end, at many moments, and taken up again.

use std::fs::OpenOptions;
use std::io::Write as _;

use super::support::{
    Folder, assert_consistent, assert_nothing_left, fixed, is_interrupted, namespaces, router,
    until, valid_trials,
};

const LOADS: [&str; 5] = ["1000", "1500", "2000", "2500", "3000"];

/// Takes the run up to its end; nothing that was saved is changed, no finished trial repeated.
/// What it says on standard error.
fn resume(folder: &Folder, kept: &[String]) -> String {
    let ended = folder.bench();
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    let run = folder.read();
    assert_consistent(&run);
    assert_eq!(run.measurements.len(), LOADS.len());
    assert_eq!(folder.trials()[..kept.len()], *kept, "what was saved was changed");
    for m in &run.measurements {
        assert_eq!(valid_trials(&run, m).len(), 1, "{}: {:?}", m.id, m.trials);
        assert!(m.finding.complete);
    }
    ended.err
}

#[test]
fn ctrl_c_at_any_moment_leaves_a_run_that_goes_on() {
    if sonde_lab::skip("ctrl_c_at_any_moment_leaves_a_run_that_goes_on") {
        return;
    }
    for moment in 0..4 {
        let folder = Folder::with_plan(&router(&fixed(&LOADS, "200ms")));
        let mut process = folder.start();
        let pid = process.id();
        let came = until(&mut process, || match moment {
            // While the bed is made; before the first trial's end; later.
            0 => folder.run().join("run.json").exists(),
            1 => !namespaces(pid).is_empty(),
            n => folder.trials().len() >= n - 1,
        });
        assert!(came, "{:?}", process.err());
        process.signal("INT");
        let ended = folder.finish(process);
        assert_eq!(ended.code, 130, "moment {moment}: {}\n{}", ended.out, ended.err);
        assert_nothing_left(pid);
        let run = folder.read();
        assert!(run.measurements.len() < LOADS.len());
        assert!(run.trials.iter().filter(|t| is_interrupted(t)).count() <= 1);
        let kept = folder.trials();
        resume(&folder, &kept);
    }
}

#[test]
fn a_run_that_was_killed_goes_on_and_its_bed_is_removed() {
    if sonde_lab::skip("a_run_that_was_killed_goes_on_and_its_bed_is_removed") {
        return;
    }
    for after in [0, 2] {
        let folder = Folder::with_plan(&router(&fixed(&LOADS, "200ms")));
        let mut process = folder.start();
        let pid = process.id();
        let came =
            until(&mut process, || !namespaces(pid).is_empty() && folder.trials().len() >= after);
        assert!(came, "{:?}", process.err());
        process.signal("KILL");
        assert_eq!(folder.finish(process).code, 128 + 9);
        assert!(!namespaces(pid).is_empty());
        let kept = folder.trials();
        // The kernel had taken half a line.
        let file = folder.run().join("trials.jsonl");
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        file.write_all(b"{\"number\":99,\"measure").unwrap();
        let said = resume(&folder, &kept);
        let torn = format!("trials.jsonl line {} was cut short", kept.len() + 1);
        assert!(said.contains(&torn), "{said}");
        assert_nothing_left(pid);
    }
}
