//! The figures of docs/benchmarks.md are those that were measured: each is in the files below
//! `perf` that its section leads to.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use super::links::targets;

/// Numbers of a text, without their thousands separators. What is code, a link's target, a date
/// or a name with digits in it (p50, `af_xdp`) is none.
fn figures(text: &str) -> Vec<String> {
    let mut outside = String::new();
    for (i, part) in text.split('`').enumerate() {
        outside.push_str(if i % 2 == 0 { part } else { " " });
    }
    while let Some(begin) = outside.find("](") {
        let end = outside[begin..].find(')').map_or(outside.len(), |n| begin + n + 1);
        outside.replace_range(begin..end, " ");
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".,-_".contains(c);
    let words = outside.split(|c| !is_part(c)).map(|word| word.trim_matches(['.', ',', '-']));
    let words = words.map(|word| word.replace(',', "").replace("Mpps", ""));
    words.filter(|word| !word.is_empty() && word.parse::<f64>().is_ok()).collect()
}

/// The files below `perf` that a page leads to, and those that they lead to in turn.
fn sources(page: &Path, text: &str) -> Vec<PathBuf> {
    let linked = |page: &Path, text: &str| -> Vec<PathBuf> {
        let all = targets(text).filter(|target| target.ends_with(".md"));
        let all = all.map(|target| page.parent().unwrap().join(target).canonicalize().unwrap());
        all.filter(|path| path.components().any(|c| c.as_os_str() == "perf")).collect()
    };
    let mut all = linked(page, text);
    for path in all.clone() {
        all.extend(linked(&path, &read_to_string(&path).unwrap()));
    }
    all
}

fn numbers(files: &[PathBuf]) -> Vec<f64> {
    let all = files.iter().flat_map(|path| figures(&read_to_string(path).unwrap()));
    all.map(|figure| figure.parse().unwrap()).collect()
}

#[test]
fn the_figures_of_benchmarks_are_in_the_tables_that_were_made() {
    let page = super::bed::root().join("docs/benchmarks.md");
    let text = read_to_string(&page).unwrap();
    let (mut wrong, mut found) = (Vec::new(), 0);
    for section in text.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap();
        let sources = sources(&page, section);
        assert!(!sources.is_empty(), "{title} names no file below perf");
        // Where a part's tables are made by the program, those of the page are taken from them.
        let made = |path: &&PathBuf| path.parent().unwrap().ends_with("tables");
        let tables: Vec<PathBuf> = sources.iter().filter(made).cloned().collect();
        let tables = numbers(if tables.is_empty() { &sources } else { &tables });
        let all = numbers(&sources);
        for line in section.lines() {
            let measured = if line.starts_with('|') { &tables } else { &all };
            for figure in figures(line) {
                found += 1;
                // As values: 0.40 is 0.4, and 0.41 is not.
                if !measured.contains(&figure.parse().unwrap()) {
                    wrong.push(format!("{title}: {figure}"));
                }
            }
        }
    }
    assert!(found > 100, "only {found} figures were found");
    assert!(wrong.is_empty(), "in no file below perf that is named there:\n{}", wrong.join("\n"));
}

#[test]
fn numbers_are_told_from_names_and_dates() {
    let text =
        "2 x Xeon, 2026-11-21: 126,430 of 3.55 / 9.86 us at p99.9, `--rate 7`, [a](b5.md) 0.4 %.";
    assert_eq!(figures(text), ["2", "126430", "3.55", "9.86", "0.4"]);
}
