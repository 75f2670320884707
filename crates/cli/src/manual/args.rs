//! The arguments of `sonde completion` and `sonde man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Args, Debug)]
#[command(after_help = COMPLETION_HELP)]
pub struct CompletionArgs {
    /// Whose
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

#[derive(Args, Debug)]
#[command(after_help = MAN_HELP)]
pub struct ManArgs {
    /// Where to write them; the folder is made
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

const COMPLETION_HELP: &str = "\
Example:
  sonde completion bash > /etc/bash_completion.d/sonde
  sonde completion zsh > ~/.zfunc/_sonde
  sonde completion fish > ~/.config/fish/completions/sonde.fish";

const MAN_HELP: &str = "\
Example:
  sonde man /usr/local/share/man/man1
  sonde man pages && man -l pages/sonde-probe.1
Exit codes: 0 written, 2 usage, 3 cannot write.";
