//! `sonde completion` and `sonde man`: completions and manual pages, from the argument definitions.

pub mod args;

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Command;
use clap_mangen::Man;

use self::args::{CompletionArgs, ManArgs};
use crate::console;
use crate::exit::{Exit, Failure};

/// Prints the completions of a shell for `command`.
pub fn complete(args: &CompletionArgs, mut command: Command) -> Result<Exit, Failure> {
    clap_complete::generate(args.shell, &mut command, "sonde", &mut console::out());
    Ok(Exit::Ok)
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
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    let mut written = 1;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        written += pages(sub, folder)?;
    }
    Ok(written)
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
        assert!(whole.contains("sonde\\-probe(1)"), "{whole}");
        assert!(probe.contains("\\-\\-dscp") && probe.contains("sonde probe 192.0.2.7"), "{probe}");
        assert!(gen_flows.contains("\\-\\-truth"), "{gen_flows}");
    }

    #[test]
    fn shells_know_the_commands_and_their_values() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sonde", &mut text);
            let text = String::from_utf8(text).unwrap();
            for word in ["reflect", "af_packet", "netflow9"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }
}
