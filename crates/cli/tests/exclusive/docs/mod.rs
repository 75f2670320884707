//! The command lines of README.md and docs/ work, and those of the help texts are ones that the
//! program takes.

mod bed;
mod figures;
mod links;
mod pages;
mod performed;
mod quotes;
#[path = "../../../../report/tests/synthetic/mod.rs"]
#[allow(dead_code, missing_docs)]
mod synthetic;

use clap::{CommandFactory as _, Parser as _};
use sonde_cli::args::Cli;

use pages::{code, joined, pages, sonde};

/// The command lines in a text; what stands for something else is left out.
fn commands(lines: Vec<String>) -> Vec<(String, Vec<String>)> {
    lines.into_iter().filter_map(|line| sonde(&line).map(|arguments| (line, arguments))).collect()
}

fn check(source: &str, commands: Vec<(String, Vec<String>)>) -> Vec<String> {
    let wrong = |(line, arguments): (String, Vec<String>)| {
        let error = Cli::try_parse_from(&arguments).err()?;
        error.use_stderr().then(|| {
            let what = error.to_string();
            format!("{source}: {line}\n    {}", what.lines().next().unwrap_or_default())
        })
    };
    commands.into_iter().filter_map(wrong).collect()
}

#[test]
fn what_the_pages_say_to_type_can_be_typed() {
    let (mut wrong, mut found) = (Vec::new(), 0);
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let commands = commands(code(&text));
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
        let commands = commands(joined(lines));
        found += commands.len();
        wrong.extend(check(&name, commands));
    }
    assert!(found > 30, "only {found} examples were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
