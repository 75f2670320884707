//! `sonde completion` and `sonde man`: completions and manual pages, from the argument definitions.

pub mod args;

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::{Arg, Command, ValueHint};
use clap_mangen::Man;

use self::args::{CompletionArgs, ManArgs};
use crate::console;
use crate::exit::{Exit, Failure};

/// Prints the completions of a shell for `command`.
pub fn complete(args: &CompletionArgs, mut command: Command) -> Result<Exit, Failure> {
    command = with_hints(command);
    clap_complete::generate(args.shell, &mut command, "sonde", &mut console::out());
    Ok(Exit::Ok)
}

/// With what a shell is to offer for each value: files only where one is meant.
fn with_hints(command: Command) -> Command {
    let hinted = |arg: Arg| {
        if !arg.get_action().takes_values() {
            return arg;
        }
        let name = arg.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
        let hint = match name {
            "FILE" | "IFACE|FILE" | "PLAN.toml" => ValueHint::FilePath,
            "DIR" | "FOLDER" | "RUN" | "A" | "B" => ValueHint::DirPath,
            "HOST" => ValueHint::Hostname,
            _ => ValueHint::Other,
        };
        arg.value_hint(hint)
    };
    command.mut_args(hinted).mut_subcommands(with_hints)
}

/// Writes a page for `command`, and each under it.
pub fn write(args: &ManArgs, command: Command) -> Result<Exit, Failure> {
    std::fs::create_dir_all(&args.folder)
        .with_context(|| format!("cannot make {}", args.folder.display()))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let pages = pages(&command, &args.folder)?;
    outln!("{pages} pages in {}", args.folder.display());
    Ok(Exit::Ok)
}

/// Those of a command and of what stands under it; how many.
fn pages(command: &Command, folder: &Path) -> Result<usize> {
    let man = Man::new(command.clone());
    let path = folder.join(man.get_filename());
    let mut text = Vec::new();
    man.render(&mut text).with_context(|| format!("cannot make {}", path.display()))?;
    let text = String::from_utf8(text).context("a page is text")?;
    std::fs::write(&path, with_title(&text, command))
        .with_context(|| format!("cannot write {}", path.display()))?;
    let mut written = 1;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        written += pages(sub, folder)?;
    }
    Ok(written)
}

/// A page with its title line: name, section, no date (a page changes only with what it says), and
/// the version. clap_mangen leaves an empty date out, so that what follows is taken for it.
fn with_title(page: &str, command: &Command) -> String {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let version = concat!("sonde ", env!("CARGO_PKG_VERSION"));
    let title = |line: &str| match line.starts_with(".TH ") {
        true => format!(".TH \"{name}\" \"1\" \"\" \"{version}\" \"Sonde\"\n"),
        false => line.to_owned(),
    };
    page.split_inclusive('\n').map(title).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap_complete::Shell;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_command_has_a_page_with_its_options_and_its_example() {
        let folder = std::env::temp_dir().join(format!("sonde-man-{}", std::process::id()));
        let args = ManArgs { folder: folder.clone() };
        write(&args, Cli::command()).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let (whole, probe, gen_flows) =
            (page("sonde.1"), page("sonde-probe.1"), page("sonde-gen-flows.1"));
        std::fs::remove_dir_all(&folder).unwrap();
        for (name, page) in [("sonde", &whole), ("sonde-gen-flows", &gen_flows)] {
            let titles: Vec<&str> = page.lines().filter(|line| line.starts_with(".TH")).collect();
            let version = concat!("sonde ", env!("CARGO_PKG_VERSION"));
            assert_eq!(titles, [format!(r#".TH "{name}" "1" "" "{version}" "Sonde""#)]);
        }
        assert!(whole.contains("sonde\\-probe(1)"), "{whole}");
        assert!(probe.contains("\\-\\-dscp") && probe.contains("sonde probe 192.0.2.7"), "{probe}");
        assert!(gen_flows.contains("\\-\\-truth"), "{gen_flows}");
    }

    #[test]
    fn shells_know_the_commands_and_their_values() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut with_hints(Cli::command()), "sonde", &mut text);
            let text = String::from_utf8(text).unwrap();
            for word in ["reflect", "zerocopy", "poisson", "netflow9", "udp-gro"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn files_are_offered_where_a_file_is_meant_and_nowhere_else() {
        fn hints(command: &Command, of: &mut Vec<(String, ValueHint)>) {
            let valued = command.get_arguments().filter(|arg| arg.get_action().takes_values());
            for arg in valued.filter(|arg| arg.get_possible_values().is_empty()) {
                of.push((format!("{} {}", command.get_name(), arg.get_id()), arg.get_value_hint()));
            }
            command.get_subcommands().for_each(|below| hints(below, of));
        }
        let mut all = Vec::new();
        hints(&with_hints(Cli::command()), &mut all);
        let hint = |name: &str| all.iter().find(|(of, _)| of == name).expect(name).1;
        for (name, wanted) in [
            ("probe interval", ValueHint::Other),
            ("probe iface", ValueHint::Other),
            ("probe hosts", ValueHint::Hostname),
            ("probe targets", ValueHint::FilePath),
            ("probe out", ValueHint::FilePath),
            ("flow sources", ValueHint::FilePath),
            ("flow spool", ValueHint::DirPath),
            ("bench plan", ValueHint::FilePath),
            ("report run", ValueHint::DirPath),
            ("man folder", ValueHint::DirPath),
        ] {
            assert_eq!(hint(name), wanted, "{name}");
        }
        assert!(!all.iter().any(|(_, hint)| *hint == ValueHint::Unknown), "{all:?}");
    }
}
