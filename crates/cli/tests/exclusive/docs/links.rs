//! The links of the pages lead somewhere.

use std::fs::read_to_string;
use std::path::Path;

use super::pages::pages;

/// The targets of `[text](target)`.
pub fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next())
}

/// As GitHub names a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

fn has_anchor(page: &Path, wanted: &str) -> bool {
    let text = read_to_string(page).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).any(|anchor| anchor == wanted)
}

#[test]
fn links_lead_to_pages_and_headings_that_are_there() {
    let root = super::bed::root();
    let more = ["ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root.join(name));
    let results = ["perf/results", "perf/tables"].map(|folder| root.join(folder));
    let results = results.into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let results = results.map(|file| file.unwrap().path());
    let (mut wrong, mut found) = (Vec::new(), 0);
    for page in pages().into_iter().chain(more).chain(results) {
        for target in targets(&read_to_string(&page).unwrap()) {
            if target.contains("://") {
                continue;
            }
            found += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            if !to.exists() || !anchor.is_empty() && !has_anchor(&to, anchor) {
                wrong.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(found > 100, "only {found} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
