//! What the pages say to type.

use std::path::{Path, PathBuf};

/// Everything that people read.
pub fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md"].iter().map(|name| root.join(name)).collect();
    for folder in [root.join("docs"), root.join("docs/design")] {
        let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|e| e == "md")));
    }
    pages.sort();
    pages
}

/// Lines of code blocks, indented or fenced.
pub fn code(text: &str) -> Vec<String> {
    let (mut lines, mut fenced) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if !fenced && !line.starts_with("    ") {
            continue;
        }
        lines.push(line);
    }
    joined(lines.into_iter())
}

/// Those that go on joined.
pub fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let (mut all, mut open) = (Vec::<String>::new(), false);
    for line in lines {
        let (line, goes_on) = match line.trim().strip_suffix('\\') {
            Some(line) => (line.trim(), true),
            None => (line.trim(), false),
        };
        match all.last_mut() {
            Some(last) if open => *last = format!("{last} {line}"),
            _ => all.push(line.to_owned()),
        }
        open = goes_on;
    }
    all
}

/// Words as a shell takes them, up to a comment, a redirection or another command.
fn arguments(line: &str) -> Vec<String> {
    let (mut arguments, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut was_quoted = false;
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (None, '\'' | '"') => (quote, was_quoted) = (Some(c), true),
            (Some(q), c) if q == c => quote = None,
            (None, c) if c.is_whitespace() => {
                if !word.is_empty() || was_quoted {
                    let ends = ["#", "|", ">", "<", "&", "&&", ";", "2>", ">>"];
                    if !was_quoted && (ends.contains(&word.as_str()) || word.starts_with('#')) {
                        return arguments;
                    }
                    arguments.push(std::mem::take(&mut word));
                    was_quoted = false;
                }
            }
            (_, c) => word.push(c),
        }
    }
    arguments
}

/// The blocks of code in a language.
pub fn blocks(text: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let blocks = text.split(&begin).skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.map(str::to_owned).collect()
}

/// The arguments of the `sonde` command in a line, also within a pipeline or a systemd unit. `None`
/// for a line with parts that stand for something else ("...", braces).
pub fn sonde(line: &str) -> Option<Vec<String>> {
    let line = line.strip_prefix("ExecStart=").unwrap_or(line);
    line.split(" | ").find_map(|stage| {
        let mut arguments = arguments(stage);
        for before in ["$", "sudo"] {
            if arguments.first().is_some_and(|word| word == before) {
                arguments.remove(0);
            }
        }
        let is_sonde = arguments.first().is_some_and(|w| w == "sonde" || w.ends_with("/sonde"));
        let is_whole = !arguments.iter().any(|word| word.contains("...") || word.contains("{"));
        (is_sonde && is_whole && arguments.len() > 1).then_some(arguments)
    })
}
