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

/// A block of code.
pub struct Block {
    /// As its fence names it; none: lines for the shell.
    pub language: String,
    pub lines: Vec<String>,
}

impl Block {
    pub fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }

    /// What is to be typed.
    pub fn commands(&self) -> Vec<String> {
        let lines = self.lines.iter().map(String::as_str);
        let of_unit = |line: &&str| line.starts_with("ExecStart=");
        let all = match &*self.language {
            "" => joined(lines),
            "ini" => joined(lines.filter(of_unit)),
            _ => Vec::new(),
        };
        all.into_iter().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
    }
}

/// The blocks of code of a page: fenced, or indented behind an empty line.
pub fn blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut fenced, mut open, mut before) = (Vec::<Block>::new(), false, false, "");
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fenced = !fenced;
            open = fenced;
            if fenced {
                blocks.push(Block { language: language.to_owned(), lines: Vec::new() });
            }
        } else if fenced {
            blocks.last_mut().unwrap().lines.push(line.to_owned());
        } else if let Some(code) = line.strip_prefix("    ") {
            if !open && before.is_empty() {
                blocks.push(Block { language: String::new(), lines: Vec::new() });
                open = true;
            }
            if open {
                blocks.last_mut().unwrap().lines.push(code.to_owned());
            }
        } else if !line.is_empty() {
            open = false;
        }
        before = line;
    }
    blocks
}

/// What a text says to type.
pub fn code(text: &str) -> Vec<String> {
    blocks(text).iter().flat_map(Block::commands).collect()
}

/// Those that go on joined.
pub fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let (mut all, mut open) = (Vec::<String>::new(), false);
    for line in lines {
        let (line, goes_on) = match line.trim().strip_suffix('\\') {
            Some(line) => (line.trim(), true),
            None => (line.trim(), line.trim().ends_with('|')),
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

/// The program that a line begins with, whoever runs it.
pub fn program(line: &str) -> String {
    let words = arguments(line);
    words.into_iter().find(|word| !["$", "sudo"].contains(&&**word)).unwrap_or_default()
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
