//! The tables as files, one a part: what is committed below `perf/tables`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::args::Args;

/// Measures each part by a process of its own, prints what that prints, and writes it to
/// `folder/PART.md`. A file is written when its part has come to its end.
pub fn write(folder: &Path, parts: &[&str], args: &Args) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let me = std::env::current_exe()?;
    for part in parts {
        let command = options(part, args);
        let output = Command::new(&me)
            .args(&command)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot run {}", me.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        print!("{text}");
        ensure!(output.status.success(), "measuring {part} ended with {}", output.status);
        let path = folder.join(part).with_extension("md");
        let page = page(&command, &today()?, &text);
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("{} is written", path.display());
    }
    Ok(())
}

fn options(part: &str, args: &Args) -> Vec<String> {
    let Args { seconds, repeat, endurance, short, .. } = args;
    let short = short.then(|| "--short".to_owned());
    [
        ("--only", part.to_owned()),
        ("--seconds", seconds.to_string()),
        ("--repeat", repeat.to_string()),
        ("--endurance", endurance.to_string()),
    ]
    .into_iter()
    .flat_map(|(option, value)| [option.to_owned(), value])
    .chain(short)
    .collect()
}

fn page(command: &[String], day: &str, text: &str) -> String {
    format!("<!-- Made by `sonde-perf {}` on {day}. -->\n\n{text}", command.join(" "))
}

/// The day in UTC.
fn today() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%F"]).output().context("cannot run date")?;
    ensure!(output.status.success(), "date failed");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Asked, parse};

    #[test]
    fn a_part_is_asked_for_as_the_whole_was_and_its_file_says_how() {
        let args = Args { seconds: 2, repeat: 7, endurance: 9, only: None, short: true, out: None };
        let command = options("rtt", &args);
        let Asked::Bench(asked) = parse(command.clone().into_iter()).unwrap() else {
            panic!("no benchmark")
        };
        assert_eq!((asked.seconds, asked.repeat, asked.endurance), (2, 7, 9));
        assert_eq!((asked.only.as_deref(), asked.out, asked.short), (Some("rtt"), None, true));
        let page = page(&command, "2026-11-29", "# T\n");
        let first = "<!-- Made by `sonde-perf --only rtt --seconds 2 --repeat 7 --endurance 9 --short` \
                     on \
                     2026-11-29. -->\n\n# T\n";
        assert_eq!(page, first);
    }
}
