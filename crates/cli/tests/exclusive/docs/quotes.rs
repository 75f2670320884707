//! What docs/troubleshooting.md quotes is what the programs say.

use std::fs::read_to_string;
use std::path::Path;

/// All sources below a folder, with the text of a literal that goes on in the next line in one.
fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = read_to_string(&path).unwrap();
            let mut pieces = text.split("\\\n");
            all.push_str(pieces.next().unwrap_or_default());
            pieces.for_each(|piece| all.push_str(piece.trim_start()));
        }
    }
}

#[test]
fn what_troubleshooting_quotes_is_said_by_the_program() {
    let root = super::bed::root();
    let mut said = String::new();
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut said);
    }
    let page = read_to_string(root.join("docs/troubleshooting.md")).unwrap();
    let (mut wrong, mut found) = (Vec::new(), 0);
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let seen = row.split('|').nth(1).unwrap();
        for quote in seen.split('"').skip(1).step_by(2) {
            found += 1;
            // A value stands as N or as dots.
            let quote = quote.replace("...", "\n").replace(" N ", " \n ").replace("862", "\n");
            let pieces = quote.lines().map(str::trim).filter(|piece| piece.len() > 2);
            let missing = pieces.filter(|piece| !said.contains(piece));
            wrong.extend(missing.map(str::to_owned));
        }
    }
    assert!(found > 10, "only {found} quotes were found");
    assert!(wrong.is_empty(), "no program says: {wrong:#?}");
}
