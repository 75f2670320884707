//! `sonde token`: a token for a station's API.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum, ValueHint};
use sonde_results::units::parse_positive_duration;
use sonde_station::serve::{AccessRole, check_new_token, issue_token};
use sonde_sys::clock::unix_now_ns;

use crate::exit::{Exit, Failure};

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct TokenArgs {
    /// Its name: 1 to 64 letters, digits, '-', '_', '.'
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What it allows
    #[arg(long, value_enum, default_value = "read")]
    pub role: TokenRole,
    /// It is good for so long; without it for ever
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub expires: Option<i64>,
    /// The station's file of tokens, which its line is added to
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// What a token allows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TokenRole {
    /// To see everything
    Read,
    /// Also to acknowledge and silence
    Operate,
    /// Also to change the configuration
    Admin,
}

impl From<TokenRole> for AccessRole {
    fn from(role: TokenRole) -> AccessRole {
        match role {
            TokenRole::Read => AccessRole::Read,
            TokenRole::Operate => AccessRole::Operate,
            TokenRole::Admin => AccessRole::Admin,
        }
    }
}

/// Adds the hash of a new token to the file, and prints the token.
pub fn run(args: &TokenArgs) -> Result<Exit, Failure> {
    let path = args.file.display().to_string();
    let before = match std::fs::read_to_string(&args.file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("cannot read {path}"))?,
    };
    let usage = |why: String| Failure::Usage(anyhow!(why));
    check_new_token(&path, &before, &args.name).map_err(usage)?;
    let expires_ns = args.expires.map(|lasts| unix_now_ns().saturating_add(lasts));
    let token = issue_token(&args.name, args.role.into(), expires_ns).map_err(usage)?;
    let end = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&args.file)
        .and_then(|mut file| file.write_all(format!("{end}{}\n", token.line).as_bytes()))
        .with_context(|| format!("cannot write {path}"))?;
    outln!("{}", token.secret);
    sonde_errln!(INFO, "it is shown this once; a reload of the station (SIGHUP) lets it in");
    Ok(Exit::Ok)
}

const HELP: &str = "\
Example:
  sudo sonde token page --role read --expires 90d --file /etc/sonde/tokens
The file keeps a hash of it. Its owner sends it as 'Authorization: Bearer TOKEN'.
Exit codes: 0 made, 2 usage, or the name is taken, 3 the file cannot be written.";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_token_is_added_once_and_the_file_is_closed_to_others() {
        let file = std::env::temp_dir().join(format!("sonde-tokens-{}", std::process::id()));
        let args = |name: &str| TokenArgs {
            name: name.into(),
            role: TokenRole::Operate,
            expires: None,
            file: file.clone(),
        };
        assert_eq!(run(&args("page")).unwrap(), Exit::Ok);
        assert_eq!(run(&args("desk")).unwrap(), Exit::Ok);
        let text = std::fs::read_to_string(&file).unwrap();
        let mode = std::fs::metadata(&file).unwrap().mode() & 0o777;
        let usage = |name: &str| matches!(run(&args(name)), Err(Failure::Usage(_)));
        let refused = [usage("page"), usage("two words")];
        let after = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((refused, &after), ([true, true], &text));
        let fields: Vec<Vec<&str>> =
            text.lines().map(|line| line.split(' ').take(3).collect()).collect();
        assert_eq!(fields, [["page", "operate", "never"], ["desk", "operate", "never"]]);
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
}
