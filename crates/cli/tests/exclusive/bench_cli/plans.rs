//! Plans that measure nothing: listed, or refused with the line that is wrong.

use std::collections::HashSet;
use std::path::Path;

use super::support::{Folder, sonde};

#[test]
fn every_example_comes_to_measurements_and_a_time() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bench");
    let mut kinds = HashSet::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let plan = path.to_str().unwrap();
        let ended = sonde(&["bench", "--dry-run", plan]);
        assert_eq!(ended.code, 0, "{plan}: {}", ended.err);
        let last = ended.out.lines().last().unwrap().to_owned();
        let listed = ended.out.lines().count() - 1;
        assert!(last.starts_with(&format!("{listed} measurements, at most ")), "{plan}: {last}");
        let json = sonde(&["bench", "--dry-run", "--json", plan]);
        assert_eq!((json.code, json.out.lines().count()), (0, listed), "{plan}");
        for line in json.out.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(value["time_ns"].as_i64().unwrap() > 0, "{plan}: {line}");
            kinds.insert(value["case"]["procedure"].as_str().unwrap().to_owned());
        }
    }
    // Each procedure has an example.
    let unknown =
        "title = 'x'\n[[device]]\nname = 'r'\nkind = 'router'\n[[procedure]]\nkind = '-'\n";
    let refused = Folder::with_plan(unknown).bench().err;
    let (_, all) = refused.trim().split_once("there are ").unwrap();
    let all: Vec<&str> = all.split(", ").collect();
    assert!(all.len() > 20, "{refused}");
    let without: Vec<_> = all.iter().filter(|kind| !kinds.contains(**kind)).collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn a_plan_that_cannot_be_is_refused_with_its_line_and_sends_nothing() {
    let device = "[[device]]\nname = 'r'\nkind = 'router'\n";
    let procedure = "[[procedure]]\nkind = 'throughput'\n";
    for (text, line, word) in [
        (format!("title = 'x'\n{device}[[procedure]]\nkind = 'through'\n"), 5, "throughput"),
        (format!("title = 'x'\n[bed]\nengin = 'xdp'\n{device}{procedure}"), 3, "engin"),
        (format!("title = 'x'\n{device}{procedure}trial = 'soon'\n"), 7, "trial"),
        (format!("title = 'x'\n[[device]]\nname = 'r'\nkind = 'rooter'\n{procedure}"), 2, "router"),
        (format!("title = 'x'\n{device}{procedure}[[check]]\nexpect = 'fast'\n"), 8, ">="),
        (format!("title = 'x'\n{device}{device}{procedure}"), 5, "name"),
        (format!("title = 'x'\n[workload]\nframes = [20]\n{device}{procedure}"), 3, "64"),
        (format!("title = 'x'\n{device}mtu = 500\n{procedure}frames = [1518]\n"), 2, "1518"),
        ("title = 'x\n".to_owned(), 1, ""),
    ] {
        let folder = Folder::with_plan(&text);
        let ended = folder.bench();
        assert_eq!(ended.code, 2, "{text}\n{}", ended.err);
        let prefix = format!("plan.toml line {line}: ");
        assert!(ended.err.contains(&prefix) && ended.err.contains(word), "{text}\n{}", ended.err);
        assert!(!folder.run().exists(), "{text}");
    }
    let missing = sonde(&["bench", "no-such-plan.toml"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("no-such-plan.toml"), "{}", missing.err);
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let plan = "title = 'x'\n[[device]]\nname = 'r'\nkind = 'router'\n[[procedure]]\nkind = \
                'throughput'\n";
    let folder = Folder::with_plan(plan);
    std::fs::create_dir(folder.run()).unwrap();
    std::fs::write(folder.run().join("thesis.tex"), "precious").unwrap();
    let ended = folder.bench();
    assert_eq!(ended.code, 2, "{}", ended.err);
    assert!(ended.err.contains("holds no run") && ended.err.contains("--out"), "{}", ended.err);
    assert_eq!(std::fs::read(folder.run().join("thesis.tex")).unwrap(), b"precious");
    let report = sonde(&["report", folder.run().to_str().unwrap()]);
    assert_eq!(report.code, 3, "{}", report.err);
}
