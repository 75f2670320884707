//! The command lines of README.md, docs/ and the help texts are ones that the program takes.

use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, Parser as _};
use sonde_cli::args::Cli;

/// Everything that people read.
fn pages() -> Vec<PathBuf> {
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
fn code(text: &str) -> Vec<String> {
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
fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
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
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut was_quoted = false;
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (None, '\'' | '"') => (quote, was_quoted) = (Some(c), true),
            (Some(q), c) if q == c => quote = None,
            (None, c) if c.is_whitespace() => {
                if !word.is_empty() || was_quoted {
                    let ends = ["#", "|", ">", "<", "&", "&&", ";", "2>", ">>"];
                    if !was_quoted && (ends.contains(&word.as_str()) || word.starts_with('#')) {
                        return words;
                    }
                    words.push(std::mem::take(&mut word));
                    was_quoted = false;
                }
            }
            (_, c) => word.push(c),
        }
    }
    words
}

/// The command lines in a text; what stands for something else is left out.
fn commands(lines: impl Iterator<Item = String>) -> Vec<(String, Vec<String>)> {
    let command = |line: String| {
        let mut words = words(&line);
        for before in ["$", "sudo"] {
            if words.first().is_some_and(|word| word == before) {
                words.remove(0);
            }
        }
        let is_sonde = words.first().is_some_and(|w| w == "sonde" || w.ends_with("/sonde"));
        let is_whole = !words.iter().any(|word| word.contains("...") || word.contains("{"));
        (is_sonde && is_whole && words.len() > 1).then_some((line, words))
    };
    lines.filter_map(command).collect()
}

fn check(place: &str, commands: Vec<(String, Vec<String>)>) -> Vec<String> {
    let wrong = |(line, words): (String, Vec<String>)| {
        let error = Cli::try_parse_from(&words).err()?;
        error.use_stderr().then(|| {
            let what = error.to_string();
            format!("{place}: {line}\n    {}", what.lines().next().unwrap_or_default())
        })
    };
    commands.into_iter().filter_map(wrong).collect()
}

#[test]
fn what_the_pages_say_to_type_can_be_typed() {
    let (mut wrong, mut found) = (Vec::new(), 0);
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let commands = commands(code(&text).into_iter());
        found += commands.len();
        wrong.extend(check(&page.file_name().unwrap().to_string_lossy(), commands));
    }
    assert!(found > 50, "only {found} command lines were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_examples_of_the_help_can_be_typed() {
    fn texts(command: &mut clap::Command, all: &mut Vec<(String, String)>) {
        all.push((command.get_name().to_owned(), command.render_long_help().to_string()));
        command.get_subcommands_mut().for_each(|sub| texts(sub, all));
    }
    let mut all = Vec::new();
    texts(&mut Cli::command(), &mut all);
    let (mut wrong, mut found) = (Vec::new(), 0);
    for (name, text) in all {
        let examples = text.split("Example:").nth(1).unwrap_or_default();
        let lines = examples.lines().take_while(|line| !line.starts_with("Exit codes"));
        let commands = commands(joined(lines).into_iter());
        found += commands.len();
        wrong.extend(check(&name, commands));
    }
    assert!(found > 30, "only {found} examples were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
