//! What is asked for.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::load::{Load, Look};

/// What is to be measured.
pub struct Args {
    /// Seconds of each accuracy run, and of each run through the watched router.
    pub seconds: u64,
    pub repeat: usize,
    /// Seconds of the endurance run.
    pub endurance: u64,
    pub only: Option<String>,
    /// Parts of the station are measured with fewer repetitions and less data.
    pub short: bool,
    /// A folder for the tables, a file a part.
    pub out: Option<PathBuf>,
}

impl Args {
    /// Seconds of each run of a station, and rounds.
    pub fn of_station(&self) -> (u64, usize) {
        if self.short { (15, 1) } else { (40, self.repeat) }
    }
}

/// One engine under one load, as a process in a namespace is asked for it.
#[derive(Serialize, Deserialize)]
pub struct Measure {
    /// The engine, or "plain".
    pub name: String,
    pub rate: u64,
    pub seconds: u64,
    pub look: Look,
}

impl Measure {
    pub fn load(&self) -> Load {
        Load { rate: self.rate, seconds: self.seconds }
    }
}

/// What a process is started for.
pub enum Asked {
    Bench(Args),
    /// One engine under one load; JSON on standard output.
    Measure(Measure),
    /// Nanoseconds a packet of the kernel reflector; JSON on standard output.
    TestRun,
    /// What is left of the labs of the process of this number is removed when it has ended.
    Sweep(u32),
    Help,
}

/// From the command line, the program's name left out.
pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Asked> {
    let mut args =
        Args { seconds: 5, repeat: 3, endurance: 60, only: None, short: false, out: None };
    while let Some(argument) = arguments.next() {
        let (option, value) = match argument.split_once('=') {
            Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        if option == "-h" || option == "--help" {
            return Ok(Asked::Help);
        }
        if option == "test-run" {
            return Ok(Asked::TestRun);
        }
        if option == "--short" {
            args.short = true;
            continue;
        }
        let value = value.or_else(|| arguments.next());
        let value = value.with_context(|| format!("{option} needs a value; see --help"))?;
        let integer = || -> Result<u64> {
            value.parse().with_context(|| format!("{option}: '{value}' is no integer"))
        };
        match option.as_str() {
            "sweep" => return Ok(Asked::Sweep(integer()?.try_into()?)),
            "measure" => return Ok(Asked::Measure(serde_json::from_str(&value)?)),
            "--seconds" => args.seconds = integer()?,
            "--repeat" => args.repeat = integer()? as usize,
            "--endurance" => args.endurance = integer()?,
            "--out" => args.out = Some(value.into()),
            "--only" if PARTS.contains(&value.as_str()) => args.only = Some(value),
            "--only" => bail!("--only: there is no part '{value}'; choose {}", PARTS.join(", ")),
            _ => bail!("'{option}' is no option; see --help"),
        }
    }
    Ok(Asked::Bench(args))
}

/// What can be measured alone.
pub const PARTS: [&str; 20] = [
    "accuracy",
    "gen",
    "reflectors",
    "endurance",
    "forwarding",
    "no-drop",
    "rtt",
    "flow",
    "search",
    "feature",
    "ipfix",
    "flow-cache",
    "flow-apps",
    "flow-engines",
    "store",
    "station",
    "queries",
    "alert",
    "reload",
    "slow-clients",
];

pub fn help() -> String {
    format!(
        "Measures Sonde itself, on veth links between namespaces. Needs root.

Options:
  --seconds <N>    Seconds of each accuracy run, and of each run through the watched router [default: 5]
  --repeat <N>     Repetitions of each: the accuracy run with the median p99.9 is shown, else medians [default: 3]
  --endurance <N>  Seconds of the endurance run [default: 60]
  --only <PART>    Only this part: {}
  --short          The parts station, queries, alert, reload and slow-clients in a minute or two each
  --out <FOLDER>   Also write the tables there, a file a part

Example:
  sonde-perf --seconds 5
  sonde-perf --only accuracy
  sonde-perf --out perf/tables",
        PARTS.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Asked> {
        parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn options_are_read_and_wrong_ones_named() {
        let Asked::Bench(args) =
            asked("--seconds 2 --only=rtt --short --repeat 7 --out perf/tables").unwrap()
        else {
            panic!("no benchmark");
        };
        assert_eq!((args.seconds, args.repeat, args.endurance), (2, 7, 60));
        assert_eq!((args.only.as_deref(), args.short), (Some("rtt"), true));
        assert_eq!(args.out, Some("perf/tables".into()));
        assert!(matches!(asked("--help").unwrap(), Asked::Help));
        for (line, part) in [
            ("--only x", "no part 'x'"),
            ("--fast", "needs a value"),
            ("--seconds x", "no integer"),
        ] {
            let error = asked(line).err().unwrap().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
